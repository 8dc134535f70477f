"""Markdown of a model or of a report, in which nothing can be pressed but sources."""

from __future__ import annotations

import re

from markdown_it import MarkdownIt
from textual.widgets import Markdown

from assistant.display import block, line
from assistant.tui.widgets.plain import Plain

_SOURCE_MARK = re.compile(r"(?<!\\)\[(\d{1,4})\](?!\()")
_SOURCE = "source:"
_LEADS_TO = re.compile(rf"{_SOURCE}([0-9]{{1,4}})")


def parser() -> MarkdownIt:
    """Return a reader of Markdown that takes tags as text."""
    return MarkdownIt("gfm-like", {"html": False, "linkify": False})


class Spoken(Markdown):
    """Markdown of a model or of a report; a link in it opens nothing but sources."""

    def __init__(self, text: str = "", *, classes: str | None = None) -> None:
        super().__init__(
            _SOURCE_MARK.sub(rf"[\\[\1\\]]({_SOURCE}\1)", block(text)), open_links=False, parser_factory=parser, classes=classes
        )

    def on_markdown_link_clicked(self, event: Markdown.LinkClicked) -> None:
        """Lead to a source, or show where a link leads: whoever wrote it may not send anybody anywhere."""
        event.stop()
        cited = _LEADS_TO.fullmatch(event.href)  # a model may write links of this form itself
        if cited is not None:
            self.post_message(Plain.Cited(int(cited[1])))
        else:
            self.app.notify(line(event.href, 200), title="This link leads to", markup=False)
