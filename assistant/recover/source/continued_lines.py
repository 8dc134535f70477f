"""By which line a program of another language than Python, or a batch script, passes over what is done; by forms of lines alone.

A name is filled where a file is read, and a test of that name goes on to the next round (`next if $done{$p}`); or a test of a file
does (`[ -s "$out" ] && continue`). That is enough to tell people of it, and proves nothing to start a job by.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from assistant.records import Job
from assistant.recover.batch_script import Launch
from assistant.recover.job_program import FileReader, job_launches
from assistant.recover.shell.folders import UNRESOLVED
from assistant.recover.source.continued_work import ContinuedWork

SUFFIXES = frozenset(".pl .pm .R .r .rb .jl .js .mjs .ts .lua .tcl .php .sh .bash .awk .m .groovy".split())
MOST_PROGRAMS, MOST_LINES, MOST_OF_LINE = 8, 5_000, 400
MOST_PLACES = 200
"""Reads, writes and tests of one program that are looked at."""
NEAR = 4
"""Lines behind a read in which a name is filled, and in front of a `next` in which its test stands."""
_READ = re.compile(
    r"\bopen\b[^;]{0,60}['\"]<[^'\"]{0,20}['\"]|\b(?:readLines|readlines|eachline|readRDS|read\.csv|read\.table|readFileSync|foreach"
    r"|readlines|scan|lines)\s?\(|\bFile\.(?:read|open|foreach|readlines)\b|\bmapfile\b|\breadarray\b"
)
_QUOTED = re.compile(r"(?P<mark>['\"])(?P<text>[^'\"<>\n]{1,200})(?P=mark)")
_FILLED = re.compile(
    r"\$(?P<hash>\w+)\{[^}]{0,80}\}\s?=|\bpush\s?\(?\s?@(?P<pushed>\w+)|(?<![\w$.])(?P<assigned>\w+)\s?(?:<-|=)(?![=>])"
    r"|(?<![\w$.])(?P<added>\w+)\.(?:add|push|append)\(|\$\{?(?P<variable>\w+)\s?=(?!=)|\b(?:mapfile|readarray)\s(?:-\w\s)*(?P<array>\w+)"
)
_SKIPS = re.compile(r"(?<![\w.$])(?:next|continue)\b(?!\s?[=(<])")
_PRESENT = re.compile(
    r"(?:^|[\s(\[!])-[efs]\s+[\"'$\w{]|\b(?:file\.exists|file_exists|isfile|ispath|existsSync|File\.exists?\?|File\.file\?|exist)\b"
)
_WRITTEN = re.compile(r">>|['\"](?:>{1,2}|a|w|at|ab)['\"]|\b(?:append|write|cat|saveRDS|sink|tee)")
_VARIABLE = re.compile(r"#\{[^}]{1,80}\}|\$\{[^}]{1,80}\}|[$@]\w+(?:\{\w+\}|\[\w+\])?")
_TESTED = re.compile(
    r"\$(\w+)\{|%in%\s?(\w+)|\b(\w+)\.(?:has|includes?|include\?|contains|member\?)\W|\bin\(\w{1,40}, ?(\w+)|\$\{(\w+)\["
    r"|\b(\w+)\[|\bin (\w+)\b|[∈]\s?(\w+)\b"
)
"""What a test in front of a `next` asks whether it holds something: `$done{$p}`, `x %in% done`, `done.has(x)`."""
_MISSING = re.compile(
    r"(?:!|\bnot|\bunless)\s{0,4}\(?-[efs]\s|-[efs]\s{1,4}\S{1,200}\s{0,4}\]{1,2}\s{0,4}\|\|"
    r"|(?:!|\bnot\s|\bunless\s)\s{0,4}\(?(?:file\.exists|file_exists|isfile|ispath|existsSync|File\.exists?\?|File\.file\?|exist)\b"
)
"""Tests of a file that pass over what is missing, as an input may be."""
_REMOVES = re.compile(
    r"(?<![\w.-])(?:unlink(?:Sync)?|rm|rmdir|rm_rf|rm_r|rmtree|remove_tree|shred|truncate|rmSync|File\.delete|delete_recursively)\b"
    r"|\bfile\.remove\b|\b(?:os|fs|FileUtils|shutil|Base\.Filesystem)\.(?:remove\w*|rm\w*|unlink\w*|delete\w*)|\bmv\s|-delete\b"
)
_EMPTIES = re.compile(r"['\"](?:>|w|wt|wb)['\"]|(?<![>&\d=-])>(?![>&=])\s{0,3}[\"'$\w./]|\bwriteFileSync\b|\bsink\(|\bwriteLines\(")
_PARTIAL = re.compile(r"tmp|temp|partial|\.part\b|lock|\.pid", re.IGNORECASE)
"""What a start may take away and empty without harm."""
_COMMENT = re.compile(r"^\s*(?:#|//|--|%)")


def continued_by_lines(job: Job, read: FileReader | None = None) -> list[ContinuedWork]:
    """Return by which lines the programs of a job that are no Python, or its script, pass over what is done, as far as forms tell.

    Args:
        job: With its spec.
        read: Reads with its owner's rights; one of its own when None.

    Raises:
        Unavailable: The storage did not answer.
    """
    if job.spec is None or not job.spec.script:
        return []
    reader = read or FileReader(job.account)
    work = [entry._replace(place=f"line {entry.place} of its script") for entry in passing_lines(job.spec.script)]
    for launch, path in other_programs(job, reader):
        text = reader(str(path)) or ""
        for entry in passing_lines(text):
            outside = launch.outside(entry.path) if entry.path else None
            work.append(ContinuedWork(str(outside) if outside is not None else "", f"{path.name}:{entry.place}"))
    return list(dict.fromkeys(work))


def other_programs(job: Job, read: FileReader) -> Iterator[tuple[Launch, PurePosixPath]]:
    """Yield the programs of other languages that a job's script starts, each with the command that does."""
    count = 0
    for launch in job_launches(job, read):
        word = next((word for word in launch.words[:6] if PurePosixPath(word).suffix in SUFFIXES and UNRESOLVED not in word), "")
        path = launch.outside(word) if word and count < MOST_PROGRAMS else None
        if path is not None:
            count += 1
            yield launch, PurePosixPath(path)


def passing_lines(text: str) -> Iterator[ContinuedWork]:
    """Yield the lines of a source that pass over what is done, each with its number as the place; pure.

    The path is as the program names it, with `*` for what a variable stands for; empty where only that is known.
    """
    lines = [line[:MOST_OF_LINE] if not _COMMENT.match(line) else "" for line in text.splitlines()[:MOST_LINES]]
    skips = [place for place, line in enumerate(lines) if _SKIPS.search(line)][:MOST_PLACES]
    tests = {place: " ".join(lines[max(0, place - 2) : place + 1]) for place in skips}
    tested_names = {name for test in tests.values() for match in _TESTED.finditer(test) for name in match.groups() if name}
    removing = [line for line in lines if _REMOVES.search(line) and not _PARTIAL.search(line)]
    written_lines = [(place, line) for place, line in enumerate(lines) if _WRITTEN.search(line)][:MOST_PLACES]
    reads = [(place, line, read) for place, line in enumerate(lines) if (read := _READ.search(line)) is not None][:MOST_PLACES]
    for place, line, read in reads:
        path = next((match["text"] for match in _QUOTED.finditer(line[read.start() :]) if _is_path(match["text"])), "")
        names = {
            name for near in lines[place : place + NEAR] for match in _FILLED.finditer(near) for name in match.groups() if name
        }
        written = bool(path) and any(path in line_text for at, line_text in written_lines if at != place)
        emptied = any(path in before and _EMPTIES.search(before) for before in lines[:place])
        if removing or emptied:
            continue  # which files it takes away is not followed
        if names & tested_names and written:
            yield ContinuedWork(_pattern(path), str(place + 1))
    for place in skips:
        # a test for what is missing passes over an input that is not there
        if _MISSING.search(tests[place]) or removing:
            continue
        if _PRESENT.search(lines[place]) or (_PRESENT.search(tests[place]) and "if" in tests[place]):
            yield ContinuedWork("", str(place + 1))


def _is_path(text: str) -> bool:
    return re.search(r"[A-Za-z]{2}", _VARIABLE.sub("", text)) is not None and " " not in text and not text.startswith("<")


def _pattern(path: str) -> str:
    pattern = _VARIABLE.sub("*", path)
    return pattern if re.search(r"[A-Za-z]{2}", pattern.replace("*", "")) else ""
