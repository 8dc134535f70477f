"""Rules by which two sentences of one page contradict each other; held against every page that a scenario has made."""

from __future__ import annotations

import re
from collections.abc import Iterator

from assistant.daemon.notifications import notices
from assistant.engine.report import report
from assistant.store import Store

_PATH = r"(?:/[\w.@%+=-]{1,200}){1,24}"
_REFUSED = (
    re.compile(rf"(?P<name>{_PATH}|[\w.=-]{{1,200}}) (?:must not be loaded|refused: )"),
    re.compile(r"not to be loaded: (?P<name>[\w.=-]{1,200})"),
)
"""How a page says that a checkpoint is not to be used."""
_ADVISED = (
    re.compile(rf"[Tt]he newest whole (?:checkpoint|one)[^.;]{{0,60}}? is (?P<name>{_PATH})"),
    re.compile(rf"{re.escape('Its newest checkpoint from before step')} \d+ is (?P<name>{_PATH})"),
    re.compile(rf"again from (?P<name>{_PATH})"),
)
"""How a page names the checkpoint to go on from."""
_DAMAGED = re.compile(r"[Ww]hat(?:ever)? was saved from step (\d+) on holds")
_NEWEST = re.compile(r"[Tt]he newest whole checkpoint is \S+ \(step (\d+)\)")
_ARRAY = re.compile(r"sbatch --array=(?P<tasks>[\d,-]+)(?P<away> --exclude=\S+)? (?P<script>[\w./-]+)")
_NOTHING_MOVED = re.compile(r"nothing there is to be moved or removed")
_MOVE = re.compile(r"[Mm]ove \S+ (?:to another|to a|away)|has to be moved away|have to be moved away|`(?:mv|rm) ")
_NO_START = re.compile(r"must not be started again in this folder")
_START = re.compile(r"[Tt]o start (?:it )?again as (?:it|they) w|alone is started again by `")


def contradictions(page: str) -> Iterator[str]:
    """Yield each pair of sentences of a page of which one orders or advises what the other forbids."""
    refused = {match["name"].rpartition("/")[2] for form in _REFUSED for match in form.finditer(page)}
    for form in _ADVISED:
        for match in form.finditer(page):
            if (name := match["name"].rpartition("/")[2]) in refused:
                yield f"{name} is refused, and {match[0]!r}"
    for step in map(int, _DAMAGED.findall(page)):
        yield from (
            f"damage from step {step} on, and step {newest} is advised" for newest in _NEWEST.findall(page) if int(newest) >= step
        )
    for first, second in ((_NOTHING_MOVED, _MOVE), (_NO_START, _START)):
        if (one := first.search(page)) and (other := second.search(page)):
            yield f"{one[0]!r} beside {other[0]!r}"
    yield from different_exclusions([page])


def different_exclusions(pages: list[str]) -> Iterator[str]:
    """Yield each array task that is started again by commands that stay away from different nodes."""
    ways: dict[tuple[str, str], str] = {}
    for match in (match for page in pages for match in _ARRAY.finditer(page)):
        for task in match["tasks"].split(","):
            away = ways.setdefault((match["script"], task), match["away"] or "")
            if away != (match["away"] or ""):
                yield f"task {task} of {match['script']} is started away from {away!r}, and from {match['away']!r}"


def pages_of(store: Store) -> list[str]:
    """Return what a person reads of each incident of a store: its report, and its note behind it."""
    return [f"{report(store, entry.id)}\n{entry.note}" for entry in store.incidents(limit=10_000)]


def contradictions_of(store: Store) -> list[str]:
    """Return all contradictions of the pages and messages of a store, with the incident they are of."""
    pages = pages_of(store)
    bodies = [f"{notice.title}\n{notice.text}" for notice in notices(store.audit_after(0, 10_000), store)]
    return [words for text in (*pages, *bodies) for words in contradictions(text)] + list(different_exclusions(pages))
