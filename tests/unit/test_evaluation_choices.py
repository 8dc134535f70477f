"""What an evaluation decides, as pure functions: what is left, what is given up, what the end of a job means."""

from __future__ import annotations

import random
import re
from pathlib import Path

import pytest

from assistant.errors import ContentError
from assistant.evaluation.coordinator import failed_nodes, grouped, why_sunk
from assistant.evaluation.files import STAGE, EvaluationFailure, JobNote, Journal, RunFolder, name_of
from assistant.evaluation.jobs import ending
from assistant.evaluation.metric import cover, joined
from assistant.evaluation.stage import argv
from assistant.evaluation.work import Dataset, Estimate, Piece, PieceTime, Trial, corrected, gaps, is_far
from assistant.records import Job, JobState

A = Dataset("a", 100, "infer {out}")


@pytest.mark.parametrize("seed", range(30))
def test_gaps_and_what_is_covered_hold_each_item_and_no_other(seed: int) -> None:
    chance = random.Random(seed)
    covered = [Piece("a", first, min(100, first + chance.randrange(1, 40))) for first in chance.sample(range(100), 5)]
    left = gaps(A, covered)
    inside = {item for piece in covered for item in range(piece.first, piece.last)}
    outside = [item for piece in left for item in range(piece.first, piece.last)]
    assert sorted([*inside, *outside]) == list(range(100))


def test_of_a_dataset_that_cannot_be_split_all_or_nothing_is_left() -> None:
    whole = Dataset("a", 100, "infer {out}", split=False)
    assert gaps(whole, [Piece("a", 0, 50)]) == [Piece("a", 0, 100)]
    assert gaps(whole, [Piece("a", 0, 100)]) == []


def test_outputs_are_joined_in_the_order_of_the_items_each_once(tmp_path: Path) -> None:
    pieces = [Piece("a", 50, 100), Piece("a", 0, 50), Piece("a", 0, 20)]
    assert cover(pieces, 100) == [Piece("a", 0, 50), Piece("a", 50, 100)]
    assert cover(pieces[1:], 100) is None
    (tmp_path / "1").write_text("x\n")
    (tmp_path / "2").write_text("y")
    assert joined([tmp_path / "1", tmp_path / "2"], tmp_path / "all").read_text() == "x\ny\n"


def failure(*, first: int = 0, last: int = 50, metric: bool = False, final: bool = False, node: str = "n1") -> EvaluationFailure:
    return EvaluationFailure("a", None if metric else Piece("a", first, last), node, "it fell over", final)


@pytest.mark.parametrize(
    ("failures", "sunk"),
    [
        ([failure()] * 2, False),
        ([failure()] * 3, True),
        ([failure(), failure(first=10, last=20), failure(first=15)], True),
        ([failure(), failure(first=50, last=60), failure(first=60, last=70)], False),
        ([failure(), failure(metric=True), failure(metric=True)], False),
        ([failure(metric=True)] * 3, True),
        ([failure(metric=True, final=True)], True),
    ],
)
def test_a_dataset_is_given_up_when_the_same_failed_once_too_often(failures: list[EvaluationFailure], sunk: bool) -> None:
    assert bool(why_sunk(failures, "a", 2)) is sunk
    assert not why_sunk(failures, "b", 2)


def test_where_a_piece_failed_counts_for_every_trial_that_holds_items_of_it() -> None:
    trial = Trial((Piece("a", 40, 60),), 1.0, 0.0)
    assert failed_nodes(trial, [failure(), failure(first=60, last=70, node="n2")]) == {"n1"}


def test_long_metrics_come_first_and_alone_and_short_ones_share_a_job_where_slots_are_few() -> None:
    sets = [Dataset(f"d{number}", 1, "infer {out}") for number in range(6)]
    seconds = [1.0, 100.0, 2.0, 30.0, 1.0, 1.0]
    estimates = {one.name: Estimate(0, 0, metric) for one, metric in zip(sets, seconds, strict=True)}
    groups = [[one.name for one in group] for group in grouped(sets, estimates, 3, 3)]
    assert groups == [["d1"], ["d3"], ["d2", "d0", "d4", "d5"]]
    assert len(grouped(sets, estimates, 6, 6)) == 6
    assert grouped(sets, estimates, 0, 3) == []


@pytest.mark.parametrize(("cpus", "together"), [(1, 7), (4, 3), (20, 1)])
def test_short_metrics_share_a_job_no_longer_than_each_processor_has_to_do(cpus: int, together: int) -> None:
    sets = [Dataset(f"d{number:02}", 1, "infer {out}") for number in range(12)]
    estimates = {one.name: Estimate(0, 0, 8.0) for one in sets}
    assert [len(group) for group in grouped(sets, estimates, 1, cpus)] == [together]


def test_a_prior_that_is_wrong_by_a_hundred_is_replaced_by_what_was_measured() -> None:
    before = {name: Estimate(0, 10.0, 1) for name in "abcd"}
    items = dict.fromkeys("abcd", 100)
    after = corrected(before, [PieceTime(Piece("a", 0, 10), 100.0)], items)
    assert (after["a"].infer_s, after["b"].infer_s) == (1000.0, 10.0)
    after = corrected(before, [PieceTime(Piece(name, 0, 10), 100.0) for name in "abc"], items)
    assert after["d"].infer_s == 1000.0
    assert is_far(before, after, ["d"])
    assert not is_far(after, after, "abcd")


def test_values_of_a_template_stay_one_word_and_meet_no_shell() -> None:
    values = {"model": "/a b/$(reboot)", "dataset": "x';rm", "out": "o"}
    words = argv("run --m '{model}' --json '{\"{dataset}\": {{out}}}' {out}", values, "infer")
    assert words == ["run", "--m", "/a b/$(reboot)", "--json", '{"x\';rm": {out}}', "o"]


@pytest.mark.parametrize(
    ("template", "message"),
    [("run '{model}", "no command line"), ("  ", "empty"), ("run {modle}", r"\{modle\} is unknown; known: \{model\}")],
)
def test_a_template_that_is_none_is_refused(template: str, message: str) -> None:
    with pytest.raises(ContentError, match=message):
        argv(template, {"model": "m"}, "infer of a")


@pytest.mark.parametrize("name", ["gsm8k", "../../etc", ".", "..", "a/b", "x.0-5", "ü b"])
def test_no_name_of_a_dataset_leads_out_of_its_folder(tmp_path: Path, name: str) -> None:
    folder = RunFolder(tmp_path)
    assert folder.out(Piece(name, 0, 5)).resolve().parent.parent == tmp_path / "out"
    assert "/" not in name_of(name)
    folder.out(Piece(name, 0, 5)).parent.mkdir(parents=True)
    folder.out(Piece(name, 0, 5)).touch()
    assert list(folder.pieces()) == [Piece(name, 0, 5)]


def test_a_journal_whose_last_line_was_cut_is_read_without_it(tmp_path: Path) -> None:
    folder = RunFolder(tmp_path)
    journal = Journal(folder)
    journal.write("submit", number=1, kind="trial", node="n1", at=5.0, pieces=[["a", 0, 5]])
    with folder.journal.open("a") as file:
        file.write('{"event": "submitted", "num')
    again = Journal(folder)
    assert [note.job_id for note in again.state.live()] == [""]
    again.write("submitted", number=1, job="7")
    assert [note.job_id for note in Journal(folder).state.live()] == ["7"]


@pytest.mark.parametrize(
    ("state", "log", "why"),
    [
        (JobState.FAILED, "", "it left no log in .*, which every node must see under this path"),
        (JobState.FAILED, "No module named numpy\n", "exit status 1: No module named numpy$"),
        (JobState.NODE_FAIL, "", "^job 12 is node_fail, exit status 1$"),
    ],
)
def test_a_precursor_that_failed_says_what_to_look_at(tmp_path: Path, state: JobState, log: str, why: str) -> None:
    folder = RunFolder(tmp_path)
    folder.job(1).mkdir(parents=True)
    if log:
        (folder.job(1) / "log").write_text(log)
    job = Job("12", "evaluate-stage", "ada", state, "train", ("n1",), None, None, None, None, None, 1, None)
    event = ending(folder, JobNote(1, STAGE, "n1", 0.0), job)
    assert not event["staged"]
    assert re.search(why, event["why"])
