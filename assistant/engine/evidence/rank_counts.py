"""Whether the ranks of a job that hangs at the end of an epoch have different numbers of batches, by their own logs.

Data that is dealt out to ranks without a rest that is dropped gives some one batch more. Who has fewer leaves the epoch; the others
wait for them in a collective for ever, on healthy nodes, and each restart does so again. Each rank says its number itself, in a
file of its own: `151 train batches`, `batch 150/151`. Numbers of samples prove nothing: a last batch may be smaller.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from assistant.errors import NightshiftError
from assistant.logs.prefix import file_ranks
from assistant.records import Action, Category, Diagnosis, Job
from assistant.recover.joblog import logs_of
from assistant.untrusted import LOOK_S, read_end_from, within

REASONS = frozenset({"hang", "nccl_timeout_error"})
"""Ends of a job whose ranks wait for one another."""
MOST_BYTES = 1 << 20
MOST_FILES = 64
MOST_LINE = 400
LOG_SUFFIXES = frozenset({".log", ".txt", ".out", ".err", ""})
_BATCHES = r"(?:mini-?)?(?:batches|buckets|steps|iterations|iters|updates)"
_COUNT = re.compile(rf"(?<![\w./-])(\d{{1,9}}) (?:[A-Za-z_-]{{1,20}} ){{0,2}}{_BATCHES}\b", re.IGNORECASE)
_KEY = re.compile(
    rf"\b(?:(?:num|n|total|len)[_ ])?(?:train(?:ing)?[_ ])?{_BATCHES}\s?[=:]\s?(\d{{1,9}})\b"
    r"|\blen\(\w{0,30}loader\)\s?[=:]\s?(\d{1,9})\b",
    re.IGNORECASE,
)
_PROGRESS = re.compile(r"\b(?:batch|bucket|step|iter(?:ation)?|it)s?[ =:\[#]{1,3}(\d{1,9}) ?(?:/|of) ?(\d{1,9})\b", re.IGNORECASE)
_NOT_TRAINING = re.compile(r"\b(?:dev|val(?:id(?:ation)?)?|eval(?:uat\w*)?|test|warm-?up)\b", re.IGNORECASE)


class UnevenBatches(NamedTuple):
    """Ranks with different numbers of batches in an epoch."""

    ranks: Mapping[int, tuple[int, ...]]
    """By the number of batches, in ascending order."""
    places: Mapping[int, int]
    """The line that says it, by rank."""
    stands_there: bool
    """Whether those with fewer have left the epoch, by what they alone wrote behind their last batch, and the job stands there."""

    @property
    def least(self) -> int:
        """The number of those with fewest."""
        return min(self.ranks)


def uneven_batches(texts: Mapping[int, Sequence[str]]) -> UnevenBatches | None:
    """Return by what the ranks' own logs differ in their numbers of batches; None where they do not, or do not all say it. Pure.

    Args:
        texts: Lines of the file of each rank.
    """
    counts: dict[str, dict[int, set[int]]] = defaultdict(lambda: defaultdict(set))
    places: dict[tuple[str, int], int] = {}
    reached: dict[int, list[int]] = defaultdict(list)
    last_lines: dict[int, set[str]] = defaultdict(set)
    for rank, lines in texts.items():
        for number, line in enumerate(lines, 1):
            for form, count in _counts_in(line[:MOST_LINE]):
                counts[form][rank].add(count)
                places.setdefault((form, rank), number)
            if (match := _PROGRESS.search(line[:MOST_LINE])) is not None and not _NOT_TRAINING.search(line[:MOST_LINE]):
                reached[rank].append(int(match[1]))
                last_lines[rank].clear()
            else:
                last_lines[rank].add(_masked(line[:MOST_LINE]))
    for form, by_rank in counts.items():
        if len(texts) < 2 or set(by_rank) != set(texts) or any(len(values) != 1 for values in by_rank.values()):
            continue  # what differs within one rank is a counter
        ranks: dict[int, list[int]] = defaultdict(list)
        for rank, values in by_rank.items():
            ranks[next(iter(values))].append(rank)
        if len(ranks) < 2:
            continue
        ordered = {count: tuple(sorted(ranks[count])) for count in sorted(ranks)}
        fewer = ordered[min(ordered)]
        written = set().union(*(last_lines[rank] for rank in texts if rank not in fewer))
        stands_there = _stands_at(min(ordered), reached) and all(last_lines[rank] - written for rank in fewer)
        return UnevenBatches(ordered, {rank: places[form, rank] for rank in texts}, stands_there)
    return None


def _counts_in(line: str) -> list[tuple[str, int]]:
    """Return the numbers of batches of an epoch that a line says, each with the form of what says it."""
    counts = [
        (f"{place} {_masked(line)}", int(match[match.lastindex or 1]), match[0])
        for pattern in (_COUNT, _KEY)
        for place, match in enumerate(pattern.finditer(line))
    ]
    counts += [(_masked(match[0]), int(match[2]), match[0]) for match in _PROGRESS.finditer(line)]
    return [(form, count) for form, count, text in counts if not _NOT_TRAINING.search(text)]


def _masked(text: str) -> str:
    return re.sub(r"\d+", "#", text)


def _stands_at(least: int, reached: Mapping[int, Sequence[int]]) -> bool:
    """Tell whether the last batch that a rank logged is the last one that all ranks have, as far as it logs each of them."""
    last = max((steps[-1] for steps in reached.values() if steps), default=0)
    intervals = [after - before for steps in reached.values() for before, after in pairwise(steps) if after > before]
    return last <= least + 1 and last > least - max(min(intervals, default=1), 1) > -1


def with_uneven_batches(diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return a diagnosis of a hang by which its ranks have different numbers of batches; as it is where that is not seen.

    Where the job stands at the last batch that all have, no restart helps: it is its owner's to mend.
    """
    if job is None or diagnosis.reason not in REASONS or diagnosis.faulty_nodes:
        return diagnosis
    files = _files_of_ranks(job)
    texts = {rank: lines for rank, (path, begin) in files.items() if (lines := _lines(path, begin))}
    uneven = uneven_batches(texts) if len(texts) == len(files) else None
    if uneven is None:
        return diagnosis
    words = " and ".join(f"{count} on {_ranks(ranks)}" for count, ranks in uneven.ranks.items())
    cited = ", ".join(f"{files[ranks[0]][0].name}:{uneven.places[ranks[0]]}" for ranks in uneven.ranks.values())
    sentence = f"The ranks have different numbers of batches in an epoch: {words} ({cited})."
    diagnosis = replace(diagnosis, summary=f"{diagnosis.summary} {sentence}")
    if not uneven.stands_there:
        return replace(diagnosis, advice=f"{diagnosis.advice} {sentence} Where it stands at the end of one, that is why.")
    advice = (
        f"{sentence} It stands where those with {uneven.least} have left the epoch: the others wait for them in a collective, and "
        "each restart does so again, on any node. Give all ranks the same number: drop the rest when the data is dealt out "
        f"(drop_last=True, DistributedSampler, a number of samples that {len(files)} divides), or train within "
        "torch.distributed.algorithms.Join. It keeps its nodes until somebody ends it."
    )
    return replace(diagnosis, category=Category.SCRIPT, action=Action.FIX_AND_RESUBMIT, advice=advice)


def _ranks(ranks: Sequence[int]) -> str:
    rank_words = ", ".join(map(str, ranks[:4])) + (f" and {len(ranks) - 4} more" if len(ranks) > 4 else "")
    return f"rank{'s' * (len(ranks) > 1)} {rank_words}"


def _files_of_ranks(job: Job) -> dict[int, tuple[Path, int]]:
    """Return the file of each rank with the offset at which this attempt begins, of its logs or of what its processes write."""
    try:
        readable = [file for file in logs_of(job).readable if file.rank is not None and file.sure]
    except NightshiftError:
        return {}
    files = {file.rank: (file.path, file.begin) for file in readable if file.rank is not None}
    if len(files) > 1 and len(files) == len(readable):
        return files if len(files) <= MOST_FILES else {}
    opened = sorted({file.path for file in (job.processes.files if job.processes is not None else ()) if not file.shared})
    opened = [path for path in opened if path.suffix in LOG_SUFFIXES and "rank" in str(path).lower()]
    ranked = {rank: (path, 0) for rank, path in zip(file_ranks(opened), opened, strict=True) if rank is not None}
    return ranked if 1 < len(ranked) == len(opened) <= MOST_FILES else {}


def _lines(path: Path, begin: int) -> list[str]:
    """Return the lines of a file; none where it cannot be read as a whole."""
    try:
        end = within(LOOK_S, lambda: read_end_from(path, begin, MOST_BYTES), str(path))
    except (NightshiftError, OSError):
        return []
    return end.raw.decode("utf-8", "replace").splitlines() if end.begin <= begin else []
