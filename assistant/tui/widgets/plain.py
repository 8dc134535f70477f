"""Text as it is: nothing in it is markup, its indents stay, what it cites can be opened, a long one shows its beginning first."""

from __future__ import annotations

import re
from typing import Any

from textual.content import Content
from textual.geometry import Size
from textual.message import Message
from textual.widget import Widget

from assistant.display import block, line

MOST_LINES, MOST_CHARACTERS = 40, 8_000
"""Shown before somebody asks for all of it."""
ALL_LINES, ALL_CHARACTERS = 2_000, 200_000
"""Shown at most."""
FEW = 6
"""Lines more than that which nobody has to ask for."""
MUTED = "$foreground 60%"
DEEPEST = 12
"""Cells of an indent that are kept where a line is wrapped."""
_CITED = re.compile(r"\[(\d{1,4})\]")
_LINK = "underline $primary"


class Plain(Widget):
    """Shows a text; a line that is too long goes on below itself, further in."""

    class Cited(Message):
        """The person wants to see a source."""

        def __init__(self, number: int) -> None:
            super().__init__()
            self.number = number

    def __init__(self, text: str, *, cites: bool = False, most: int = MOST_LINES, classes: str | None = None) -> None:
        """Show a text.

        Args:
            text: Whatever others wrote.
            cites: Whether `[1]` in it leads to a source.
            most: Lines that are shown before somebody asks for all of it.
            classes: For the style.
        """
        super().__init__(classes=classes)
        self.text = block(text).expandtabs(4)
        self._cites, self._most = cites, most
        self.whole = False
        self._laid_out: tuple[int, Content] = (0, Content(""))

    def render(self) -> Content:
        """Return the text, wrapped."""
        return self._wrapped(self.size.width)

    def get_content_height(self, container: Size, viewport: Size, width: int) -> int:
        """Return how many lines the text has at a width."""
        return self._wrapped(width).plain.count("\n") + 1

    def get_content_width(self, container: Size, viewport: Size) -> int:
        """Return how wide the text is when nothing is wrapped."""
        return min(container.width, max(map(len, self.text.split("\n")), default=0))

    def action_cite(self, number: int) -> None:
        """Lead to a source."""
        self.post_message(self.Cited(number))

    def action_all(self) -> None:
        """Show all of it."""
        self.whole = True
        self._laid_out = (0, Content(""))
        self.refresh(layout=True)

    def _wrapped(self, width: int) -> Content:
        if self._laid_out[0] != width and width > 0:
            lines = [part for content in self._lines() for part in hanging(content, width)]
            self._laid_out = (width, Content("\n").join(lines))
        return self._laid_out[1]

    def _lines(self) -> list[Content]:
        lines = self.text.split("\n")
        most, characters = (ALL_LINES, ALL_CHARACTERS) if self.whole else (self._most, MOST_CHARACTERS)
        if len(lines) <= most + FEW:
            most = len(lines)
        clipped = "\n".join(lines[:most])[:characters]
        contents = [cited(text) if self._cites else Content(line(text)) for text in clipped.split("\n")]
        if len(clipped) < len(self.text):
            hidden_lines = len(lines) - len(contents)
            remainder = f"{hidden_lines:,} more lines" if hidden_lines > 0 else f"{len(self.text) - len(clipped):,} more characters"
            contents.append(Content.styled(line(f"… {remainder}"), MUTED) if self.whole else link(f"… show {remainder}", "all"))
        return contents


def hanging(content: Content, width: int) -> list[Content]:
    """Return one line as the lines that it takes at a width; what goes on stands two cells further in than it began."""
    if content.cell_length <= width:
        return [content]
    plain = content.plain
    indent = min(len(plain) - len(plain.lstrip(" ")), DEEPEST, max(0, width // 3))
    body = content[len(plain) - len(plain.lstrip(" ")) :]
    further = indent + 2 if width >= indent + 12 else indent
    first, *more = body.wrap(max(4, width - further))
    return [first.pad_left(indent), *(part.pad_left(further) for part in more)]


def link(text: str, action: str, *arguments: Any) -> Content:
    """Return text that does something when it is clicked."""
    call = f"{action}({', '.join(map(repr, arguments))})"
    # the text is handed over beside the markup: nothing in it is read as markup
    return Content.from_markup(f"[{_LINK} @click={call}]$text[/]", text=line(text))


def cited(text: str) -> Content:
    """Return text whose citations lead to their sources."""
    parts, end = [], 0
    for match in _CITED.finditer(text):
        parts += [Content(line(text[end : match.start()])), link(match.group(), "cite", int(match.group(1)))]
        end = match.end()
    return Content("").join([*parts, Content(line(text[end:]))])
