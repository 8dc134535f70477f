"""The file and the line of a record that a program could not parse, where its error tells a place within the record alone.

`json.loads(line)` says `line 1 column 71` of each line of a JSONL file. The files are those that the log names before the error,
the last one first, else those that the job's configuration names; a line counts that the same parser refuses with the same words.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

from assistant.display import shorten
from assistant.errors import InputError, MalformedContent, NightshiftError
from assistant.records import Action, Diagnosis, Job
from assistant.recover.joblog import log_lines
from assistant.recover.services import configured_texts
from assistant.untrusted import LOOK_S, is_regular, list_folder, parse_json, read_start, within

__all__ = ["BrokenRecord", "broken_json", "broken_row", "data_files", "with_broken_record"]

MOST_FILES, MOST_NAMES = 12, 2_000
MOST_BYTES = 64 << 20
"""Of a file; what stands behind them is not read."""
LONGEST_RECORD = 1 << 20
MANIFEST = re.compile(r"manifest|checksum|md5|sha\d|sizes|index", re.IGNORECASE)
"""In the names of lists that say of files how large they are, or what their checksums are."""
MANIFEST_BYTES, MOST_OF_ROW = 256 << 10, 160
JSON_ERROR = re.compile(
    r"JSONDecodeError: (?P<words>(?P<complaint>.{1,100}?): line \d{1,9} column (?P<column>\d{1,9})(?: \(char \d{1,12}\))?)"
)
ROW_ERROR = re.compile(r"Expected (?P<want>\d{1,6}) fields in line (?P<line>\d{1,9}), saw (?P<got>\d{1,6})")
_FILE = re.compile(r"(?<![\w.])((?:[\w.@%+=~-]{0,255}/){0,40}[\w.@%+=~-]{1,200}\.(?:jsonl|ndjson|json|csv|tsv))(?![\w/])")
_FOLDER = re.compile(r"(?<![\w.@%+=~-])((?:\.?/)?[\w.@%+=~-]{1,100}(?:/[\w.@%+=~-]{1,100}){0,20})")
_PLACE = re.compile(
    r"What is read at (?P<own>.{1,400}?) is no JSON at line \d{1,9}, column \d{1,9} \(.{1,100}?\): look at the file there; "
    r".{1,200}?in its place\. Write or load it anew\."
)
_LINES = (".jsonl", ".ndjson")
_ROWS = (".csv", ".tsv")


class BrokenRecord(NamedTuple):
    """A record that its parser refuses."""

    path: Path
    line: int
    """1-based, in the file."""
    complaint: str
    more: int = 0
    """Lines behind it that are refused too."""
    breaks_off: bool = False
    """Whether it is the last line of its file and has no end: the file is cut short."""
    manifest: str = ""
    """What a list beside a file that is cut short says of it, as a sentence with a space before it; empty where none names it."""

    @property
    def sentence(self) -> str:
        """What people are told."""
        if self.breaks_off:
            return (
                f"Line {self.line} of {self.path}, its last, breaks off without an end of line ({self.complaint}): the file is cut "
                "short. Copy it from where it came from, or write it anew, and compare its size and number of lines with those "
                f"there; to leave the line out would leave out all that is missing behind it, too.{self.manifest}"
            )
        further = f"; {self.more} more lines of it are refused too" if self.more else ""
        return (
            f"Line {self.line} of {self.path} cannot be parsed ({self.complaint}){further}: "
            "correct it or leave it out, and mend what wrote it."
        )


def with_broken_record(diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return a diagnosis of a record that cannot be parsed with its file and line; as it is where none is found.

    Reads with the rights that are in force: those of the job's owner.
    """
    lines = [cited.text for cited in diagnosis.root_cause]
    json_error = next((match for text in lines if (match := JSON_ERROR.search(text))), None)
    row_error = next((match for text in lines if (match := ROW_ERROR.search(text))), None)
    if job is None or job.work_dir is None or diagnosis.action is not Action.FIX_AND_RESUBMIT or not (json_error or row_error):
        return diagnosis
    suffixes = (*_LINES, ".json") if json_error is not None else _ROWS
    try:
        record = within(LOOK_S, partial(_searched, job, lines, json_error, row_error, suffixes), f"the data of job {job.id}")
    except (NightshiftError, OSError):
        return diagnosis
    if record is None:
        return diagnosis
    match = _PLACE.search(diagnosis.advice)
    advice_start = f"{record.sentence} It is read at {match['own']}." if match is not None else f"{record.sentence} "
    advice = diagnosis.advice.replace(match[0], advice_start) if match is not None else f"{advice_start}{diagnosis.advice}"
    summary = f"{diagnosis.summary} It is line {record.line} of {record.path}."
    return replace(diagnosis, summary=summary, advice=advice.strip())


def _searched(
    job: Job, lines: Sequence[str], json_error: re.Match[str] | None, row_error: re.Match[str] | None, suffixes: Sequence[str]
) -> BrokenRecord | None:
    texts = [line.text for line in log_lines(job)]
    errors = {text.strip() for text in lines}
    end = next((place for place, text in enumerate(texts) if text.strip() in errors), len(texts))
    folder = job.work_dir or Path("/")
    paths = data_files(reversed(texts[:end]), folder, suffixes)
    if not paths:
        words = [job.spec.script, *job.spec.arguments] if job.spec is not None else []
        paths = data_files([*words, *configured_texts(job)], folder, suffixes, folders=True)
    for path in paths:
        record = None
        if json_error is not None:
            record = broken_json(path, json_error["words"], f"{json_error['complaint']}, column {json_error['column']}")
        elif row_error is not None:
            record = broken_row(path, int(row_error["line"]), int(row_error["want"]), int(row_error["got"]))
        if record is not None:
            return record
    return None


def data_files(texts: Iterable[str], work_dir: Path, suffixes: Sequence[str], *, folders: bool = False) -> list[Path]:
    """Return the files with data that texts name and that are there, each once, in the order of the texts.

    Args:
        texts: Lines; names in them are looked for as seen from the folder.
        work_dir: The job's.
        suffixes: Of the files that count.
        folders: Whether files in folders that the texts name count, too.
    """
    paths: dict[Path, None] = {}
    for text in texts:
        for name in reversed(_FILE.findall(text[:4_000] if not folders else text)):
            if name.endswith(tuple(suffixes)) and is_regular(work_dir / name):
                paths.setdefault(work_dir / name)
        for name in dict.fromkeys(_FOLDER.findall(text)) if folders else ():
            for file in _files_in(work_dir / name, suffixes):
                paths.setdefault(file)
        if len(paths) >= MOST_FILES:
            break
    return list(paths)[:MOST_FILES]


def _files_in(folder: Path, suffixes: Sequence[str]) -> list[Path]:
    if len(folder.parts) <= 2:
        return []
    try:
        return sorted(entry for entry in list_folder(folder, MOST_NAMES) if entry.suffix in suffixes)
    except (OSError, InputError):
        return []


def broken_json(path: Path, words: str, complaint: str) -> BrokenRecord | None:
    """Return the first line of a file that the parser of JSON refuses with the same words; None where none is.

    Args:
        path: The file; one that is one whole JSON value has no lines to be parsed alone.
        words: Of the error: `Invalid control character at: line 1 column 71 (char 70)`.
        complaint: What people are told of it.
    """
    content = read_start(path, MOST_BYTES)
    lines = content.split(b"\n")
    if path.suffix == ".json" and (len(lines) < 2 or _refusal(content) is None):
        return None
    lines = lines[:-1] if len(content) >= MOST_BYTES else lines  # the last one may be cut here
    refusals = [(number, line) for number, line in enumerate(lines, 1) if line.strip() and _refusal(line) is not None]
    # a program may give the end of the line to the parser, too
    numbers = [
        number for number, line in refusals if any(words in (_refusal(text) or "") for text in (line, line.strip(), line + b"\n"))
    ]
    if not numbers or (path.suffix == ".json" and len(refusals) > len(lines) // 2):
        return None
    breaks_off = numbers[0] == len(lines) and len(lines) > 1 and len(content) < MOST_BYTES
    more = len([number for number, _ in refusals if number > numbers[0]])
    return BrokenRecord(path, numbers[0], complaint, more, breaks_off, manifest_words(path) if breaks_off else "")


def manifest_words(path: Path) -> str:
    """Return what a list of sizes or checksums in the folder of a file says of it, as a sentence; empty where none names it."""
    try:
        lists = [entry for entry in list_folder(path.parent, MOST_NAMES) if MANIFEST.search(entry.name) and entry.name != path.name]
        for entry in sorted(lists)[:MOST_FILES]:
            texts = read_start(entry, MANIFEST_BYTES).decode("utf-8", "replace").splitlines()
            row = next((text.strip() for text in texts if path.name in re.split(r"[\s,;:\"'*/]+", text)), "")
            if row:
                return f" {entry.name} there says of it: `{shorten(row, MOST_OF_ROW)}`."
    except (OSError, InputError):
        pass
    return ""


def _refusal(line: bytes) -> str | None:
    if len(line) > LONGEST_RECORD:
        return None
    try:
        parse_json(line)
    except MalformedContent as error:
        return str(error)
    return None


def broken_row(path: Path, line: int, want: int, got: int) -> BrokenRecord | None:
    """Return the line of a table that has more fields than the others, where an error tells its number; None where it has not."""
    rows = read_start(path, MOST_BYTES).split(b"\n")
    separator = b"\t" if path.suffix == ".tsv" else b","
    if not 1 < line <= len(rows) or rows[line - 1].count(separator) < got - 1:
        return None
    return BrokenRecord(path, line, f"{got} fields where the lines before it have {want}")
