"""Where evidence can be read: a citation becomes a file and a line, a gathered text a private file. Done on a lane."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assistant.errors import InputError
from assistant.private_files import create_private
from assistant.records import Citation, Rival
from assistant.recover.joblog import LOGS
from assistant.tui.log_rows import Cited

if TYPE_CHECKING:
    from assistant.tui.about_incident import IncidentSeen

NEAR = re.compile(r"\s+")
_NAMED = re.compile(r"\b([\w-]{1,255}\.(?:log|jsonl)):(\d{1,12})(?:: ([^;]+))?")


@dataclass(frozen=True, slots=True)
class Place:
    """A file to be shown, at a line."""

    path: Path
    title: str
    line: int | None = None
    """1-based; None for the end."""
    cited: tuple[Cited, ...] = ()
    """Lines of that file that the verdict cites."""
    account: str = ""
    """With whose rights it is read; empty: with our own."""


def place_of(seen: IncidentSeen, citation: Citation, folder: Path) -> Place:
    """Return where a cited line is read.

    Args:
        seen: The incident.
        citation: The line.
        folder: Private; gets the texts that are kept in the store only.

    Raises:
        InputError: What was cited is no longer there.
    """
    cited = _cited(seen, citation.file)
    if citation.file == "metrics.jsonl":
        path = seen.job.work_dir / "metrics.jsonl" if seen.job is not None and seen.job.work_dir is not None else None
        return Place(_there(path, citation.file), citation.file, citation.line, cited, seen.account)
    if (noted := _noted(seen, citation.file)) is not None:
        return Place(_there(noted, citation.file), citation.file, citation.line, cited, seen.account)
    text = _kept(seen, citation.file)
    if text is None:
        return log_of(seen, citation.line)
    lines = text.split("\n")
    line = _number(lines, citation)
    known = tuple(replace(mark, line=_number(lines, one)) for mark, one in zip(cited, _of(seen, citation.file), strict=True))
    return Place(written(folder, f"incident-{seen.incident.id}-{citation.file}", text), citation.file, line, known)


def log_of(seen: IncidentSeen, line: int | None = None) -> Place:
    """Return where the job's log is read.

    Raises:
        InputError: It is not known, or no longer there.
    """
    return Place(_there(seen.log, "the job's log"), f"log of job {seen.incident.job}", line, _cited(seen, "job.log"), seen.account)


def text_place(folder: Path, name: str, text: str) -> Place:
    """Return where a text can be read whole."""
    safe = re.sub(r"[^\w.-]+", "_", name)[:80]
    return Place(written(folder, safe, text or "(empty)\n"), name)


def first_place(seen: IncidentSeen) -> Citation | None:
    """Return the line that the verdict rests on: of the job's log where one is cited."""
    cited = _citations(seen)
    return next((one for one in cited if one.file == "job.log"), cited[0] if cited else None)


def rival_place(rival: Rival) -> Citation | None:
    """Return the line that an explanation which was weighed and not chosen names; None where it names none."""
    for told in (rival.speaks_for, rival.speaks_against, rival.test):
        named = _NAMED.search(told)
        if named is not None:
            return Citation(named[1], int(named[2]), (named[3] or "").strip()[:60], rival.reason, "rival")
    return None


def written(folder: Path, name: str, text: str) -> Path:
    """Write a text into a file and return it."""
    path = folder / name
    with create_private(path, encoding="utf-8", errors="replace") as file:
        file.write(text)
    return path


def _there(path: Path | None, what: str) -> Path:
    if path is None:
        raise InputError(f"where {what} is, is not known: the scheduler no longer tells, and no evidence does")
    if not path.is_file():
        raise InputError(f"{what} is gone: {path} does not exist")
    return path


def _noted(seen: IncidentSeen, file: str) -> Path | None:
    """Return a log of the job that is not its main one, as the evidence names it; None where it names none of that name."""
    for one in seen.evidence:
        for known in one.facts.get("files", ()) if one.source == LOGS and file != "job.log" else ():
            if isinstance(known, dict) and known.get("name") == file:
                return Path(str(known["path"]))
    return None


def _kept(seen: IncidentSeen, file: str) -> str | None:
    """Return the text of a file that only the store has; None for the job's own log."""
    if file == "slurmctld.log":
        for one in seen.calls:
            value: Any = one.outcome.value if one.outcome is not None and one.outcome.ok else None
            if one.call.tool == "scheduler_log" and isinstance(value, dict):
                return str(value.get("text", ""))
    texts = [one.text for one in seen.evidence if one.source == file]
    if file != "job.log" and not texts:
        raise InputError(f"{file} was cited, and its text is not among the evidence of incident {seen.incident.id}")
    return texts[-1] if texts else None


def _citations(seen: IncidentSeen) -> list[Citation]:
    found = seen.diagnosis
    if found is None:
        return []
    return list(dict.fromkeys((*found.root_cause, *(cited for node in found.nodes for cited in node.citations))))


def _of(seen: IncidentSeen, file: str) -> list[Citation]:
    return [one for one in _citations(seen) if one.file == file]


def _cited(seen: IncidentSeen, file: str) -> tuple[Cited, ...]:
    return tuple(Cited(one.line, one.role, one.rule) for one in _of(seen, file))


def _number(lines: Sequence[str], citation: Citation) -> int:
    """Return the number of a cited line in a text whose beginning may have been cut off since."""
    wanted = NEAR.sub(" ", citation.text).strip()
    if not wanted:
        return citation.line
    at = [number for number, line in enumerate(lines, 1) if wanted in NEAR.sub(" ", line)]
    return min(at, key=lambda number: abs(number - citation.line)) if at else min(citation.line, len(lines))
