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
from assistant.tui.logs.rows import LogCitation

if TYPE_CHECKING:
    from assistant.tui.about_incident import IncidentSnapshot

NEAR = re.compile(r"\s+")
_CITATION = re.compile(r"\b([\w-]{1,255}\.(?:log|jsonl)):(\d{1,12})(?:: ([^;]+))?")


@dataclass(frozen=True, slots=True)
class CitedPlace:
    """A file to be shown, at a line."""

    path: Path
    title: str
    line: int | None = None
    """1-based; None for the end."""
    cited: tuple[LogCitation, ...] = ()
    """Lines of that file that the verdict cites."""
    account: str = ""
    """With whose rights it is read; empty: with our own."""


def place_of(snapshot: IncidentSnapshot, citation: Citation, folder: Path) -> CitedPlace:
    """Return where a cited line is read.

    Args:
        snapshot: The incident.
        citation: The line.
        folder: Private; gets the texts that are kept in the store only.

    Raises:
        InputError: What was cited is no longer there.
    """
    cited = _cited(snapshot, citation.file)
    if citation.file == "metrics.jsonl":
        path = snapshot.job.work_dir / "metrics.jsonl" if snapshot.job is not None and snapshot.job.work_dir is not None else None
        return CitedPlace(_existing(path, citation.file), citation.file, citation.line, cited, snapshot.account)
    if (noted := _noted(snapshot, citation.file)) is not None:
        return CitedPlace(_existing(noted, citation.file), citation.file, citation.line, cited, snapshot.account)
    text = _excerpt(snapshot, citation.file)
    if text is None:
        return log_of(snapshot, citation.line)
    lines = text.split("\n")
    line = _number(lines, citation)
    marks = tuple(
        replace(mark, line=_number(lines, cited_line)) for mark, cited_line in zip(cited, _of(snapshot, citation.file), strict=True)
    )
    return CitedPlace(write_text(folder, f"incident-{snapshot.incident.id}-{citation.file}", text), citation.file, line, marks)


def log_of(snapshot: IncidentSnapshot, line: int | None = None) -> CitedPlace:
    """Return where the job's log is read.

    Raises:
        InputError: It is not known, or no longer there.
    """
    return CitedPlace(
        _existing(snapshot.log, "the job's log"),
        f"log of job {snapshot.incident.job}",
        line,
        _cited(snapshot, "job.log"),
        snapshot.account,
    )


def text_place(folder: Path, name: str, text: str) -> CitedPlace:
    """Return where a text can be read whole."""
    safe = re.sub(r"[^\w.-]+", "_", name)[:80]
    return CitedPlace(write_text(folder, safe, text or "(empty)\n"), name)


def first_place(snapshot: IncidentSnapshot) -> Citation | None:
    """Return the line that the verdict rests on: of the job's log where one is cited."""
    cited = _citations(snapshot)
    return next((citation for citation in cited if citation.file == "job.log"), cited[0] if cited else None)


def rival_place(rival: Rival) -> Citation | None:
    """Return the line that an explanation which was weighed and not chosen names; None where it names none."""
    for text in (rival.speaks_for, rival.speaks_against, rival.test):
        match = _CITATION.search(text)
        if match is not None:
            return Citation(match[1], int(match[2]), (match[3] or "").strip()[:60], rival.reason, "rival")
    return None


def write_text(folder: Path, name: str, text: str) -> Path:
    """Write a text into a file and return it."""
    path = folder / name
    with create_private(path, encoding="utf-8", errors="replace") as file:
        file.write(text)
    return path


def _existing(path: Path | None, subject: str) -> Path:
    if path is None:
        raise InputError(f"where {subject} is, is not known: the scheduler no longer tells, and no evidence does")
    if not path.is_file():
        raise InputError(f"{subject} is gone: {path} does not exist")
    return path


def _noted(snapshot: IncidentSnapshot, file: str) -> Path | None:
    """Return a log of the job that is not its main one, as the evidence names it; None where it names none of that name."""
    for evidence in snapshot.evidence:
        for log_file in evidence.facts.get("files", ()) if evidence.source == LOGS and file != "job.log" else ():
            if isinstance(log_file, dict) and log_file.get("name") == file:
                return Path(str(log_file["path"]))
    return None


def _excerpt(snapshot: IncidentSnapshot, file: str) -> str | None:
    """Return the text of a file that only the store has; None for the job's own log."""
    if file == "slurmctld.log":
        for record in snapshot.calls:
            value: Any = record.outcome.value if record.outcome is not None and record.outcome.ok else None
            if record.call.tool == "scheduler_log" and isinstance(value, dict):
                return str(value.get("text", ""))
    texts = [record.text for record in snapshot.evidence if record.source == file]
    if file != "job.log" and not texts:
        raise InputError(f"{file} was cited, and its text is not among the evidence of incident {snapshot.incident.id}")
    return texts[-1] if texts else None


def _citations(snapshot: IncidentSnapshot) -> list[Citation]:
    diagnosis = snapshot.diagnosis
    if diagnosis is None:
        return []
    return list(dict.fromkeys((*diagnosis.root_cause, *(cited for node in diagnosis.nodes for cited in node.citations))))


def _of(snapshot: IncidentSnapshot, file: str) -> list[Citation]:
    return [citation for citation in _citations(snapshot) if citation.file == file]


def _cited(snapshot: IncidentSnapshot, file: str) -> tuple[LogCitation, ...]:
    return tuple(LogCitation(citation.line, citation.role, citation.rule) for citation in _of(snapshot, file))


def _number(lines: Sequence[str], citation: Citation) -> int:
    """Return the number of a cited line in a text whose beginning may have been cut off since."""
    text = NEAR.sub(" ", citation.text).strip()
    if not text:
        return citation.line
    at = [number for number, line in enumerate(lines, 1) if text in NEAR.sub(" ", line)]
    return min(at, key=lambda number: abs(number - citation.line)) if at else min(citation.line, len(lines))
