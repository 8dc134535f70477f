"""A conversation as Markdown that can be shared: without secrets, without characters that deceive, quotes as they are. Pure."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from itertools import groupby

from assistant.agent.answer import Answer
from assistant.agent.wording import harmless
from assistant.display import block, markdown, markdown_code, markdown_fence, markdown_tamed
from assistant.redact import redact
from assistant.tui.sessions import EntryKind, SessionEntry


def exported(name: str, entries: Sequence[SessionEntry], came: Mapping[int, str]) -> str:
    """Return a conversation as Markdown.

    Args:
        name: Of the conversation.
        entries: Oldest first.
        came: What came of approvals, by their numbers.
    """
    return "\n".join(_page(name, entries, came)).rstrip("\n") + "\n"


def escaped(text: str) -> str:
    """Return plain text, line by line, such that Markdown shows it as it is, without secrets."""
    return "\n".join(markdown(line) for line in block(redact(text)).split("\n"))


def fenced(text: str) -> list[str]:
    """Return lines of a block of code that shows a text without secrets as it is, whatever stands in it."""
    return markdown_fence(redact(text))


def code(text: str) -> str:
    """Return one line without secrets as code within a line."""
    return markdown_code(redact(text))


def plain_answer(text: str) -> Iterator[str]:
    """Yield an answer that is plain text as Markdown: sentences as sentences, what is quoted below them as code."""
    for quoted, lines in groupby(harmless(text).split("\n"), key=lambda line: line.startswith("  ")):
        part = list(lines)
        yield from fenced("\n".join(line[2:] for line in part)) if quoted else [f"{escaped(line)}  ".rstrip("\n") for line in part]
        yield ""


def tamed(text: str) -> str:
    """Return Markdown of a model without secrets, HTML and pictures."""
    return markdown_tamed(redact(text))


def _page(name: str, entries: Sequence[SessionEntry], came: Mapping[int, str]) -> Iterator[str]:
    yield f"# Nightshift: {escaped(name)}"
    if entries:
        yield ""
        yield f"{_time(entries[0])} to {_time(entries[-1])}"
    for entry in entries:
        yield ""
        yield from _entry(entry, came)


def _time(entry: SessionEntry) -> str:
    return entry.at.strftime("%Y-%m-%d %H:%M:%S UTC")


def _entry(entry: SessionEntry, came: Mapping[int, str]) -> Iterator[str]:
    if entry.what is EntryKind.SAID:
        lines = harmless(entry.text).strip().split("\n")
        yield f"## {escaped(lines[0])}"
        yield ""
        yield f"{_time(entry)}"
        yield from (["", *fenced(entry.text)] if len(lines) > 1 else [])
    elif entry.what is EntryKind.ANSWERED and entry.answer is not None:
        yield from _answer_text(entry.answer, came)
    elif entry.what is EntryKind.NOTED:
        yield re.sub(r"^(#+ )", r"##\1", tamed(entry.text), flags=re.MULTILINE)
    else:
        word = "No answer" if entry.what is EntryKind.FAILED else "Then"
        yield f"**{word}** ({_time(entry)}): {escaped(entry.text)}"


def _answer_text(answer: Answer, came: Mapping[int, str]) -> Iterator[str]:
    if answer.begun:
        yield "*A model was ended in the middle of this; it is held against nothing:*"
        yield ""
        yield "\n".join(f"> {line}" for line in tamed(answer.begun).splitlines())
        yield ""
    if answer.mode.startswith("model:"):
        yield tamed(answer.text)
        yield ""
    else:
        yield from plain_answer(answer.text)
    for option in answer.options:
        yield f"- {escaped(option)}"
    for proposal in answer.proposals:
        state = came.get(proposal.approval, "waits") if proposal.approval is not None else f"refused: {proposal.why_not}"
        yield f"- Proposed: {code(proposal.preview or proposal.tool)}"
        yield f"  {escaped(f'approval {proposal.approval}, ' if proposal.approval is not None else '')}{escaped(state)}"
    for note in answer.notes:
        yield f"- Note: {escaped(note)}"
    if answer.sources:
        yield "Sources:"
        yield ""
        for source in answer.sources:
            failed = f": {escaped(source.error)}" if source.error else ""
            yield f"- \\[{source.number}\\] {code(source.call)}{failed}"
        yield ""
    evidence = f"; evidence {', '.join(map(str, answer.evidence))}" if answer.evidence else ""
    yield f"*Answered by {escaped(answer.mode)}{evidence}.*"
