"""Conversations that outlive the chat: one file each, a line an entry, added to as it goes and read by its owner only.

A line that a crash cut short is dropped when the file is read. Secrets never get into a file.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import StrEnum
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple

from assistant.agent.answer import Answer, AnswerKind, AnswerSource, Proposal, cut_text, harmless
from assistant.display import block, markdown, markdown_code, markdown_fence, markdown_tamed
from assistant.errors import InputError, UsageError
from assistant.private_files import open_private, private_folder
from assistant.records import EventKind
from assistant.redact import redact, redact_value
from assistant.tooling import to_json
from assistant.tui.news import NewsEvent, NewsKind, StoreMark

MOST_SESSIONS = 40
"""Conversations."""
MOST_VALUE = 20_000
"""Characters of one source that are kept."""
MOST_READ = 32 * 1024 * 1024
"""Bytes of a conversation that are read again, from its end."""
MOST_TYPED, TYPED_KEPT = 2_000, 1_000
"""Lines at which the file of what was typed is cut, and to how many."""
_NAME = re.compile(r"[A-Za-z0-9][\w.-]{0,63}", re.ASCII)
_TYPED, _LAST_USE = ".typed", ".last-use"


class SessionEntryKind(StrEnum):
    """What an entry is."""

    TYPED = "said"
    """By the person: a question or a command."""
    ANSWERED = "answered"
    FAILED = "failed"
    """There was no answer; the text says why."""
    NOTED = "noted"
    """By the chat, as Markdown: a report, what came of a command."""
    SETTLED = "settled"
    """What came of an approval."""
    NEWS = "news"
    """An event that the chat announced."""
    AWAY = "away"
    """What had happened since the chat was last in use."""


ANNOUNCED = frozenset({SessionEntryKind.NEWS, SessionEntryKind.AWAY})
"""By the chat itself, without a question."""


@dataclass(frozen=True, slots=True)
class SessionEntry:
    """One thing that was said or came of it."""

    at: datetime
    what: SessionEntryKind
    question: int
    """Which exchange of the conversation it belongs to."""
    text: str = ""
    answer: Answer | None = None
    events: tuple[NewsEvent, ...] = ()
    """What was announced."""


class LastUse(NamedTuple):
    """When a person last used the chat, and how the store stood then."""

    at: datetime
    mark: StoreMark


class SavedSession(NamedTuple):
    """A conversation that lies in the folder."""

    name: str
    at: datetime
    """Last written to."""


class Talks:
    """The folder of conversations; every method may block."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def names(self) -> list[SavedSession]:
        """Return what is kept, the newest first."""
        sessions = []
        for path in self.folder.glob("*.jsonl") if self.folder.is_dir() else ():
            try:
                sessions.append(SavedSession(path.stem, datetime.fromtimestamp(path.stat().st_mtime).astimezone()))
            except OSError:  # another chat removed it meanwhile
                continue
        return sorted(sessions, key=lambda session: (session.at, session.name), reverse=True)

    def free_name(self, now: datetime) -> str:
        """Return a name that no conversation has, by the time."""
        stem = now.astimezone().strftime("%Y-%m-%d-%H%M")
        number, name = 1, stem
        while self._path(name).exists():
            number += 1
            name = f"{stem}-{number}"
        return name

    def existing_name(self, name: str) -> str:
        """Return the name of a conversation that exists: the newest where none is named.

        Raises:
            UsageError: There is none of that name, or none at all.
        """
        names = [session.name for session in self.names()]
        if name and checked(name) in names:
            return name
        if not names:
            raise UsageError("there is no conversation to go on with yet")
        if name:
            raise UsageError(f"there is no conversation {name!r}; the newest: {', '.join(names[:5])}")
        return names[0]

    def add(self, name: str, entry: SessionEntry) -> None:
        """Write an entry; with the first of a conversation the oldest ones beyond those kept are removed."""
        path = self._path(name)
        fresh = not path.exists()
        _append(path, _to_line(entry))
        if fresh:
            for old in self.names()[MOST_SESSIONS:]:
                self._path(old.name).unlink(missing_ok=True)

    def entries(self, name: str) -> list[SessionEntry]:
        """Return what a conversation holds, oldest first; lines that cannot be read are left out.

        Raises:
            InputError: The file cannot be read.
        """
        parsed = (_from_line(line) for line in _lines(self._path(name)))
        return [entry for entry in parsed if entry is not None]

    def typed(self) -> list[str]:
        """Return what was typed in all conversations, oldest first."""
        path = self.folder / _TYPED
        if not path.exists():
            return []
        lines = [line for line in _lines(path) if line]
        if len(lines) > MOST_TYPED:
            lines = lines[-TYPED_KEPT:]
            shorter = path.with_suffix(f".{os.getpid()}")
            _append(shorter, b"\n".join(lines) + b"\n")
            shorter.replace(path)
        parsed = (_loaded(line) for line in lines)
        return [text for text in parsed if isinstance(text, str)]

    def add_typed(self, text: str) -> None:
        """Keep a line that was typed."""
        _append(self.folder / _TYPED, _dumped(redact_value(text)))

    def last_use(self) -> LastUse | None:
        """Return when a chat on this folder was last in use; None where that is not known."""
        try:
            record = json.loads((self.folder / _LAST_USE).read_bytes())
            mark = StoreMark(int(record["incident"]), int(record["approval"]), frozenset(map(int, record["unfinished"])))
            return LastUse(datetime.fromisoformat(record["at"]), mark)
        except (OSError, ValueError, TypeError, KeyError):
            return None

    def save_last_use(self, last_use: LastUse) -> None:
        """Write down when the chat was last in use, in place of what was written before."""
        mark = last_use.mark
        record = {
            "at": last_use.at.isoformat(),
            "incident": mark.newest_incident,
            "approval": mark.newest_approval,
            "unfinished": sorted(mark.unfinished),
        }
        path = self.folder / _LAST_USE
        fresh = path.with_suffix(f".{os.getpid()}")
        fresh.unlink(missing_ok=True)  # of a chat that died in the middle of this
        _append(fresh, _dumped(record))
        fresh.replace(path)

    def _path(self, name: str) -> Path:
        return self.folder / f"{checked(name)}.jsonl"


def checked(name: str) -> str:
    """Return a name that can be one of a conversation.

    Raises:
        UsageError: It cannot.
    """
    if not _NAME.fullmatch(name):
        raise UsageError(f"{name[:40]!r} is no name for a conversation: letters, digits, . _ and -, at most 64")
    return name


def _append(path: Path, line: bytes) -> None:
    private_folder(path.parent)
    # one write, so that two chats on one conversation cannot mix within a line
    handle = open_private(path, os.O_RDWR | os.O_APPEND)
    try:
        size = os.fstat(handle).st_size
        cut_short = size > 0 and os.pread(handle, 1, size - 1) != b"\n"
        os.write(handle, (b"\n" if cut_short else b"") + line.rstrip(b"\n") + b"\n")
    finally:
        os.close(handle)


def _lines(path: Path) -> Iterator[bytes]:
    """Yield the whole lines of a file, of a very large one those at its end."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(0, size - MOST_READ))
            lines = file.read(MOST_READ).split(b"\n")
    except OSError as error:
        raise InputError(f"{path}: {error.strerror or error}") from error
    # what stands behind the last newline was cut short, what stands first in a part of a file as well
    yield from lines[int(size > MOST_READ) : -1]


def _to_line(entry: SessionEntry) -> bytes:
    answer = entry.answer
    if answer is not None:
        answer = replace(answer, sources=tuple(replace(source, value=_capped(source.value)) for source in answer.sources))
    return _dumped(redact_value(to_json(replace(entry, answer=answer))))


def _capped(value: Any) -> Any:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False, indent=2, default=str)
    return value if len(text) <= MOST_VALUE else cut_text(text, MOST_VALUE)


def _dumped(value: Any) -> bytes:
    # a lone surrogate, as from a file name that is not UTF-8, is no reason to lose a line
    return json.dumps(value, ensure_ascii=False).encode("utf-8", errors="replace")


def _loaded(line: bytes) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _from_line(line: bytes) -> SessionEntry | None:
    try:
        record = json.loads(line)
        answer = record.get("answer")
        return SessionEntry(
            datetime.fromisoformat(record["at"]),
            SessionEntryKind(record["what"]),
            int(record["question"]),
            str(record["text"]),
            _answer(answer) if answer is not None else None,
            tuple(_event(event) for event in record.get("events") or ()),
        )
    except (ValueError, TypeError, KeyError, AttributeError):
        return None


def _event(record: Mapping[str, Any]) -> NewsEvent:
    incident, approval, trouble = (record.get(name) for name in ("incident", "approval", "trouble"))
    return NewsEvent(
        NewsKind(record["kind"]),
        str(record["subject"]),
        int(incident) if incident is not None else None,
        int(approval) if approval is not None else None,
        EventKind(trouble) if trouble is not None else None,
        str(record.get("why", "")),
        str(record.get("by", "")),
    )


def _answer(record: Mapping[str, Any]) -> Answer:
    return Answer(
        str(record["text"]),
        AnswerKind(record["kind"]),
        str(record["mode"]),
        str(record.get("intent", "")),
        float(record.get("confidence", 1.0)),
        tuple(
            AnswerSource(int(row["number"]), str(row["tool"]), dict(row["arguments"]), row.get("value"), str(row.get("error", "")))
            for row in record.get("sources", ())
        ),
        tuple(int(number) for number in record.get("evidence", ())),
        tuple(int(number) for number in record.get("incidents", ())),
        tuple(
            Proposal(
                str(row["tool"]),
                dict(row["arguments"]),
                str(row["preview"]),
                row.get("approval"),
                str(row.get("why_not", "")),
                str(row.get("digest", "")),
            )
            for row in record.get("proposals", ())
        ),
        tuple(str(option) for option in record.get("options", ())),
        tuple(str(note) for note in record.get("notes", ())),
        begun=str(record.get("begun", "")),
    )


# A conversation as Markdown that can be shared: without secrets, without characters that deceive, quotes as they are. Pure.


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


_WORDS = {SessionEntryKind.FAILED: "No answer", SessionEntryKind.NEWS: "News", SessionEntryKind.AWAY: "News"}


def _time(entry: SessionEntry) -> str:
    return entry.at.strftime("%Y-%m-%d %H:%M:%S UTC")


def _entry(entry: SessionEntry, came: Mapping[int, str]) -> Iterator[str]:
    if entry.what is SessionEntryKind.TYPED:
        lines = harmless(entry.text).strip().split("\n")
        yield f"## {escaped(lines[0])}"
        yield ""
        yield f"{_time(entry)}"
        yield from (["", *fenced(entry.text)] if len(lines) > 1 else [])
    elif entry.what is SessionEntryKind.ANSWERED and entry.answer is not None:
        yield from _answer_text(entry.answer, came)
    elif entry.what is SessionEntryKind.NOTED:
        yield re.sub(r"^(#+ )", r"##\1", tamed(entry.text), flags=re.MULTILINE)
    else:
        word = _WORDS.get(entry.what, "Then")
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
