"""What a job has made that a start of its script goes on behind, for people: how much, by which line, in the owner's words.

Only names, sizes and, of lists of results, the number of lines are looked at, with the rights of the job's owner.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from datetime import UTC, datetime
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from assistant.content.reasons import gives_orders
from assistant.errors import InputError, NightshiftError, Unavailable
from assistant.records import Job
from assistant.recover.job_program import FileReader, JobProgram
from assistant.recover.saved_progress import FEWEST_PIECES, new_pieces
from assistant.recover.source.continued_lines import continued_by_lines, other_programs
from assistant.recover.source.continued_work import ContinuedWork, continued_work
from assistant.recover.source.reruns import skips_what_is_there
from assistant.redact import head_of, redact
from assistant.untrusted import LOOK_S, list_folder, read_whole, reading_as, status_of, within

MOST_FILES, MOST_LISTED, MOST_COUNTED_BYTES, MOST_LOOKED_AT = 3, 2_000, 32 << 20, 200
LONGEST_QUOTE = 160
_RERUN = re.compile(
    r"\b(?:re-?run(?:s|ning)?|re-?submit(?:s|ting)?|re-?start(?:s|ing)?|again)\b[^.\n]{0,80}"
    r"\b(?:continu|resum|pick(?:s|ed)? up|goes on|go on|carr(?:y|ies) on|skip|pass(?:es)? over|only (?:\w{1,10} )?what"
    r"|only the (?:rest|missing)|where it (?:left|stopped)|safe)\w*"
    r"|\b(?:already|done|finished|existing|answered|complete[d]?|converted|processed)\b[^.\n]{0,60}"
    r"\b(?:are|is|will be|get|gets) (?:skipped|passed over|left out|ignored|kept|not (?:done|made|asked|processed) again)\b"
    r"|\b(?:continues|resumes|carries on|picks up)\b[^.\n]{0,40}\b(?:where|from|behind|with|after)\b[^.\n]{0,60}"
    r"\b(?:left|stopped|last|missing|remaining|rest|un\w+ed)\b",
    re.IGNORECASE,
)
"""What owners write of a program that goes on by itself."""
_DENIES = re.compile(r"\b(?:not|never|no|cannot|can't|won't|doesn't|don't|without|todo|fixme|instead of)\b", re.IGNORECASE)
_COMMENT = re.compile(r"^\s{0,80}(?:#(?!!|SBATCH\b)|//|--(?=\s))\s{0,10}(?P<words>\S.{10,400})$|[;{}\s]#\s(?P<behind>\S.{10,300})$")


class KeptFile(NamedTuple):
    """A file that is there and that a start reads first."""

    path: Path
    size_bytes: int
    written: datetime
    lines: int | None
    """None of a data base, and where the file is too large or cannot be read."""
    work: ContinuedWork


def kept_files(job: Job, work: Iterable[ContinuedWork]) -> list[KeptFile]:
    """Return the files that are there of those which programs read first, those that hold something.

    Args:
        job: Whose owner's rights count, and in whose folder a relative pattern is looked for.
        work: From `continued_work`, `continued_by_lines`.
    """
    files: dict[Path, KeptFile] = {}
    for entry in work:
        for path in _matching(job, entry.path):
            if len(files) >= MOST_FILES:
                break
            try:
                with reading_as(job.account):
                    status = within(LOOK_S, partial(status_of, path), str(path))
                    if not stat.S_ISREG(status.st_mode) or not status.st_size:
                        continue
                    lines = None if entry.is_store or status.st_size > MOST_COUNTED_BYTES else _lines_of(path)
            except (OSError, NightshiftError, ValueError):
                continue
            written = datetime.fromtimestamp(status.st_mtime, UTC)
            files.setdefault(path, KeptFile(path, status.st_size, written, lines, entry))
    return list(files.values())


def kept_words(job: Job, programs: Sequence[JobProgram], now: datetime) -> str:
    """Return what of a job's work is there, and that a start of its script goes on behind it; empty where it does not.

    Args:
        job: The attempt that ended.
        programs: Those of its script.
        now: The time.

    Raises:
        Unavailable: The storage did not answer.
    """
    by_lines = continued_by_lines(job)
    work = [*continued_work(programs), *by_lines]
    sentences = [_file_words(file, job) for file in kept_files(job, work)]
    passing = skips_what_is_there(programs) or next((entry.place for entry in by_lines if not entry.path), "")
    pieces = _pieces(job, now) if passing and not sentences else ""
    sentences += [f"{pieces}, and a start passes over what is there ({passing})."] if pieces else []
    if quote := owner_quote(job, programs):
        sentences.append(quote)
    elif sentences:
        sentences.append("Leave it where it is.")
    return " ".join(sentences)


def _file_words(file: KeptFile, job: Job) -> str:
    folder = job.work_dir
    inside = folder is not None and file.path.is_relative_to(folder)
    name = str(file.path.relative_to(folder)) if inside and folder is not None else str(file.path)
    amount = f"{file.lines:,} line{'s' if file.lines != 1 else ''}" if file.lines is not None else f"{file.size_bytes:,} bytes"
    does = "goes on behind what it holds" if file.work.is_store else "reads it first and passes over what stands in it"
    if file.work.adds:
        return f"{name} is there ({amount}), and a start makes its full number again beside what that holds ({file.work.adds})."
    return f"{name} is there ({amount}), and a start {does} ({file.work.place})."


def _pieces(job: Job, now: datetime) -> str:
    try:
        pieces = new_pieces(job, now)
    except (NightshiftError, OSError):
        return ""
    if pieces is None or pieces.number < FEWEST_PIECES:
        return ""
    inside = job.work_dir is not None and pieces.newest.is_relative_to(job.work_dir)
    name = pieces.newest.relative_to(job.work_dir) if inside and job.work_dir is not None else pieces.newest
    return f"{pieces.number} files like {name} are there"


def owner_quote(job: Job, programs: Sequence[JobProgram]) -> str:
    """Return a comment of a job's script, or of its programs, that says that a start goes on; empty where none does.

    It is quoted as the owner's word and proves nothing.
    """
    for place_form, text in _own_texts(job, programs):
        for number, line in enumerate(text.splitlines()[:MOST_LISTED], 1):
            match = _COMMENT.search(line[:MOST_LISTED])
            for sentence in re.split(r"(?<=[.;!]) ", (match["words"] or match["behind"]) if match is not None else ""):
                if _RERUN.search(sentence) and not _DENIES.search(sentence) and not gives_orders(sentence):
                    place = place_form.format(number=number)
                    return f'{place} says: "{head_of(redact(sentence.strip()), LONGEST_QUOTE, "…")}"'
    return ""


def _own_texts(job: Job, programs: Sequence[JobProgram]) -> Iterator[tuple[str, str]]:
    """Yield the batch script, then the programs that it starts, each with the form of a place in it."""
    if job.spec is not None:
        yield "Line {number} of its script", job.spec.script
    for source in (source for program in programs for source in program.sources[:1]):
        yield f"{PurePosixPath(source.path).name}:{{number}}", source.text
    reader = FileReader(job.account)
    try:
        for _, path in other_programs(job, reader):
            yield f"{path.name}:{{number}}", reader(str(path)) or ""
    except Unavailable:
        return


def _matching(job: Job, pattern: str) -> list[Path]:
    """Return the files of a pattern with `*` in at most two of its parts; as it is where it has none."""
    if not pattern:
        return []
    path = Path(pattern) if pattern.startswith("/") else Path(job.work_dir or "/") / pattern
    places = [Path("/")]
    for part in path.parts[1:]:
        if "*" not in part:
            places = [place / part for place in places]
            continue
        matches: list[Path] = []
        for place in places[:MOST_FILES]:
            try:
                with reading_as(job.account):
                    names = within(LOOK_S, partial(_names_in, place), str(place))
            except (OSError, InputError, NightshiftError, ValueError):
                continue
            matches += [place / name for name in sorted(names) if fnmatchcase(name, part)]
        places = matches[:MOST_LISTED]
    return places[:MOST_LOOKED_AT]


def _names_in(folder: Path) -> list[str]:
    return [child.name for child in list_folder(folder, MOST_LISTED)]


def _lines_of(path: Path) -> int | None:
    raw = within(LOOK_S, partial(read_whole, path, MOST_COUNTED_BYTES), str(path))
    return None if b"\0" in raw[:4096] else raw.count(b"\n") + (not raw.endswith(b"\n") and bool(raw))
