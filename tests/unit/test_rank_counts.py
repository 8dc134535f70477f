"""Whether ranks that wait for one another have different numbers of batches, by the logs that each of them writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from assistant.engine.evidence.rank_counts import uneven_batches, with_uneven_batches
from assistant.records import Action, Category, DecidedBy, Diagnosis, Job
from assistant.records.jobs import OpenFile, ProcessReport
from tests.unit.logged_job import START, job_in

LENGTH = "len(loader)={}"


def dealt_out(count: int, last: int, *, shown: str = "{} train batches in this rank's part", left: bool = False) -> list[str]:
    """Return the log of a rank with so many batches whose last logged one is `last`; it logs each tenth, and that it left."""
    lines = [f"12:00:0{n} INFO {text}" for n, text in enumerate(("device 3 of 8", shown.format(count), "9 dev batches"))]
    return [
        *lines,
        *(f"12:01:{step:02} INFO ep 2 iter {step}/{count} nll {9 - step / 40:.2f}" for step in range(10, last + 1, 10)),
        *["ep 2 over"] * left,
    ]


@pytest.mark.parametrize(
    ("texts", "ranks", "stands_there"),
    [
        ([dealt_out(43, 40), dealt_out(43, 40), dealt_out(42, 40, left=True)], {42: (2,), 43: (0, 1)}, True),
        ([dealt_out(43, 20), dealt_out(42, 20)], {42: (1,), 43: (0,)}, False),
        ([dealt_out(43, 40, left=True), dealt_out(42, 40, left=True)], {42: (1,), 43: (0,)}, False),
        ([dealt_out(43, 40), dealt_out(42, 40)], {42: (1,), 43: (0,)}, False),
        ([dealt_out(43, 40, shown=LENGTH), dealt_out(42, 40, shown=LENGTH, left=True)], {42: (1,), 43: (0,)}, True),
        ([dealt_out(43, 40, shown="part of {}"), dealt_out(42, 40, shown="part of {}", left=True)], {42: (1,), 43: (0,)}, True),
        ([dealt_out(43, 40), dealt_out(43, 40)], None, None),
        ([dealt_out(43, 40)], None, None),
        ([["7 batches so far", "8 batches so far"], ["7 batches so far", "9 batches so far"]], None, None),
        ([["rank 0 started on gpu 0", "4001 samples"], ["rank 1 started on gpu 1", "4000 samples"]], None, None),
        ([["8 dev batches"], ["9 dev batches"]], None, None),
        ([["43 batches in all"], ["nothing that tells"]], None, None),
    ],
    ids=[
        "one has fewer, and all stand there",
        "in the middle of an epoch",
        "all have left it",
        "nothing tells who has left it",
        "by the length of the loader",
        "by the progress alone",
        "the same number",
        "one rank",
        "a counter",
        "samples",
        "of an evaluation",
        "one rank says nothing",
    ],
)  # fmt: skip
def test_ranks_differ_only_by_what_each_says_once_of_its_batches(
    texts: Sequence[Sequence[str]], ranks: dict[int, tuple[int, ...]] | None, stands_there: bool | None
) -> None:
    uneven = uneven_batches(dict(enumerate(texts)))
    assert (uneven.ranks if uneven is not None else None) == ranks
    assert (uneven.stands_there if uneven is not None else None) is stands_there


def hung(reason: str = "hang") -> Diagnosis:
    return Diagnosis(
        reason, Category.FRAMEWORK, Action.RESTART_SAME_NODES, 0.9, DecidedBy.RULE, (), (), (), "It hangs.", "Restart.", step=40
    )


def job_with(folder: Path, *texts: Sequence[str], shared: bool = False) -> Job:
    """Return a job of which each rank keeps a log of its own open."""
    files = []
    for rank, text in enumerate(texts):
        path = folder / "exp" / f"rank{rank}.log"
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(text) + "\n")
        files.append(OpenFile(path, "gpu001", 40 + rank, START, path.stat().st_ino, path.stat().st_size, 0, True, shared=shared))
    return job_in(folder, processes=ProcessReport(START, files=tuple(files)))


def test_a_hang_at_the_end_of_uneven_epochs_is_its_owners_to_mend(tmp_path: Path) -> None:
    diagnosis = with_uneven_batches(hung(), job_with(tmp_path, dealt_out(43, 40), dealt_out(42, 40, left=True), dealt_out(43, 40)))
    assert (diagnosis.action, diagnosis.category) == (Action.FIX_AND_RESUBMIT, Category.SCRIPT)
    assert "42 on rank 1 and 43 on ranks 0, 2 (rank1.log:2, rank0.log:2)" in diagnosis.advice
    assert "3 divides" in diagnosis.advice


def test_a_hang_elsewhere_is_restarted_with_a_word_on_the_numbers(tmp_path: Path) -> None:
    diagnosis = with_uneven_batches(hung(), job_with(tmp_path, dealt_out(43, 20), dealt_out(42, 20)))
    assert diagnosis.action is Action.RESTART_SAME_NODES
    assert "42 on rank 1 and 43 on rank 0" in diagnosis.summary


@pytest.mark.parametrize(("reason", "shared"), [("ecc_error", False), ("hang", True)], ids=["another reason", "files of two jobs"])
def test_what_is_no_hang_or_not_the_jobs_own_stays_as_it_is(tmp_path: Path, reason: str, *, shared: bool) -> None:
    job = job_with(tmp_path, dealt_out(43, 40), dealt_out(42, 40, left=True), shared=shared)
    assert with_uneven_batches(hung(reason), job) == hung(reason)
