"""What is known before, and how fast what is measured takes its place."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path
from statistics import median

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant.errors import ContentError
from assistant.evaluation.files import RunFolder, took, write_json
from assistant.evaluation.plan_inputs import Measured, Priors
from assistant.evaluation.work import Dataset, Piece, PieceTime
from assistant.ports import JumpingClock
from assistant.store import EvaluationRun, Store

PRIORS = Priors.load()
SETS = [Dataset(name, one.items, "run {out}", "score {out}") for name, one in PRIORS.by_dataset.items()]
UNIT = PRIORS.unit


def piece(dataset: str, factor: float, run: str = "now", *, items: int = 50, size: int = 0) -> Measured:
    one = next(one for one in SETS if one.name == dataset)
    before = PRIORS.before(one)
    return Measured(run, dataset, items, before.infer_s * items / one.items * factor, model_bytes=size)


def off(priors: Priors, dataset: str) -> float:
    one = next(one for one in SETS if one.name == dataset)
    return priors.estimate(one).infer_s / PRIORS.before(one).infer_s


def test_there_are_sixty_three_datasets() -> None:
    assert len(PRIORS.by_dataset) == 63


def test_a_trial_of_humaneval_has_the_shares_of_the_paper() -> None:
    # eight trials of a node load at once through its 25 Gb/s
    loading = 8 * UNIT.model_bytes * 8 / UNIT.nic_bits_s + UNIT.start_s
    found = PRIORS.before(next(one for one in SETS if one.name == "humaneval"))
    total = loading + found.prepare_s + found.infer_s + found.metric_s
    assert (loading + found.prepare_s) / total == pytest.approx(0.295, abs=0.001)
    assert found.metric_s / total == pytest.approx(0.190, abs=0.001)
    assert 0.48 < found.infer_s / total < 0.53


def test_half_of_the_trials_are_as_short_as_half_of_the_gpu_jobs_of_the_trace() -> None:
    # AcmeTrace, cluster_summary.csv: median run of a GPU job 122 s (Seren) and 124 s (Kalos), most of them evaluation.
    # The trials load with one to eight others on their node
    for readers in (1, 8):
        loading = readers * UNIT.model_bytes * 8 / UNIT.nic_bits_s + UNIT.start_s
        found = [PRIORS.before(one) for one in SETS]
        assert 100 < median(loading + one.prepare_s + one.infer_s + one.metric_s for one in found) < 140


@pytest.mark.parametrize(
    ("name", "units"),
    [("gsm8k", 200), ("humaneval", 20), ("hellaswag", 4), ("mmlu-professional-law", 40), ("bbh-navigate", 200), ("nobody's", 20)],
)
def test_an_item_has_as_many_units_as_in_opencompass(name: str, units: int) -> None:
    assert PRIORS.factor(name) == units


def test_what_the_author_of_a_suite_expects_stands_in_place_of_the_prior() -> None:
    found = PRIORS.estimate(Dataset("gsm8k", 1319, "x", infer_s=7, metric_s=3, prepare_s=1))
    assert (found.infer_s, found.metric_s, found.prepare_s, found.runs) == (7, 3, 1, 0)


def test_a_faster_machine_shortens_what_runs_on_its_gpus_only() -> None:
    slow, fast = PRIORS.estimate(SETS[0]), PRIORS.estimate(SETS[0], speed=2)
    assert (fast.infer_s, fast.metric_s) == (slow.infer_s / 2, slow.metric_s)


def test_a_model_ten_times_slower_is_noticed_after_few_pieces_for_all_datasets() -> None:
    names = ["boolq", "piqa", "rte", "wic", "copa"]
    found = PRIORS.learn(SETS, [piece(name, 10) for name in names], run="now")
    assert 7 < off(found, "gsm8k") < 10.5
    assert 9 < off(found, "boolq") < 10.5


def test_one_prior_wrong_by_a_hundred_is_corrected_by_one_piece_and_spoils_no_other() -> None:
    right = [piece(name, 1) for name in ("boolq", "piqa", "rte", "wic")]
    found = PRIORS.learn(SETS, [*right, piece("gsm8k", 100)], run="now")
    assert 70 < off(found, "gsm8k") <= 100
    assert 0.9 < off(found, "hellaswag") < 1.1


@given(st.floats(0.01, 100), st.floats(0.1, 10), st.integers(3, 12))
def test_with_pieces_of_all_kinds_estimates_come_near_the_truth(wrong: float, slow: float, pieces: int) -> None:
    rest = [piece(name, slow) for name in ("boolq", "piqa", "rte", "wic", "copa", "cb", "arc-e")]
    found = PRIORS.learn(SETS, [*rest, *[piece("gsm8k", slow * wrong)] * pieces], run="now")
    assert off(found, "gsm8k") == pytest.approx(slow * wrong, rel=0.2)


def test_what_past_runs_took_corrects_a_dataset_whatever_the_speed_of_their_models() -> None:
    past = [piece(name, speed, run) for run, speed in (("a", 1), ("b", 8)) for name in ("boolq", "piqa", "rte")]
    past += [piece("gsm8k", 0.1, "a"), piece("gsm8k", 0.8, "b")]
    found = PRIORS.learn(SETS, [*past, piece("boolq", 3), piece("rte", 3)], run="now")
    assert off(found, "gsm8k") == pytest.approx(0.3, rel=0.25)
    assert found.estimate(next(one for one in SETS if one.name == "gsm8k")).runs == 2


def test_until_a_run_measured_anything_models_of_its_size_say_how_fast_it_is() -> None:
    past = [
        piece(name, factor, f"{size}{n}", size=size)
        for n in range(4)
        for size, factor in ((14, 1), (140, 9))
        for name in ("rte", "wic")
    ]
    assert off(PRIORS.learn(SETS, past, run="now", model_bytes=150), "copa") == pytest.approx(9, rel=0.3)
    assert off(PRIORS.learn(SETS, past, run="now", model_bytes=13), "copa") == pytest.approx(1, rel=0.05)


@pytest.mark.parametrize("seconds", [0.0, -1.0, float("nan"), float("inf")])
def test_impossible_measurements_are_passed_over(seconds: float) -> None:
    found = PRIORS.learn(
        SETS, [Measured("now", "rte", 10, seconds, seconds), Measured("now", "rte", 0, 5), Measured("now", "?", 5, 5)]
    )
    assert off(found, "rte") == 1


def test_metrics_are_learned_apart_from_the_speed_of_the_model() -> None:
    mbpp = next(one for one in SETS if one.name == "mbpp")
    before = PRIORS.before(mbpp)
    found = PRIORS.learn(SETS, [Measured("now", "mbpp", 50, before.infer_s, before.metric_s)], run="now")
    assert found.estimate(mbpp).metric_s == pytest.approx(10 * before.metric_s, rel=0.2)


def test_a_dataset_twice_is_refused(tmp_path: Path) -> None:
    from assistant.content.reading import shipped

    (tmp_path / "knowledge").mkdir()
    text = (shipped("knowledge") / "evaluation.toml").read_text()
    (tmp_path / "knowledge/evaluation.toml").write_text(text + '[[dataset]]\nname = "mbpp"\nitems = 1\n')
    with pytest.raises(ContentError, match="'mbpp' is there twice"):
        Priors.load(tmp_path)


def test_the_store_keeps_what_pieces_took_and_a_piece_again_replaces_it(tmp_path: Path) -> None:
    at = datetime(2026, 3, 1, tzinfo=UTC)
    first = EvaluationRun("r1", "gsm8k", 0, 10, 5.0, 0.5, "7b", 14, at)
    second = EvaluationRun("r1", "gsm8k", 10, 20, 6.0, 0.0, "7b", 14, at + timedelta(minutes=1))
    again = EvaluationRun("r1", "gsm8k", 0, 10, 7.0, 0.5, "7b", 14, at + timedelta(minutes=2))
    with Store(tmp_path / "s.db", JumpingClock(at)) as store:
        store.keep_evaluation([first, second])
        store.keep_evaluation([again])
        assert store.evaluations() == [again, second]
        assert store.evaluations(1) == [again]
    assert again.items == 10


def test_what_a_command_tells_of_preparing_is_kept_apart_from_inference() -> None:
    before = PRIORS.estimate(Dataset("gsm8k", 1319, "x"))
    told = [Measured("now", "gsm8k", 20, before.infer_s * 20 / 1319, prepare_s=before.prepare_s * 10)]
    told += [Measured("now", "gsm8k", 20, before.infer_s * 20 / 1319)]  # on the same node: nothing to prepare
    found = PRIORS.learn(SETS, told, run="now").estimate(Dataset("gsm8k", 1319, "x"))
    assert found.prepare_s == pytest.approx(before.prepare_s * 10, rel=0.15)
    assert found.infer_s == pytest.approx(before.infer_s)


def test_a_piece_that_says_nonsense_of_its_time_spoils_nothing(tmp_path: Path) -> None:
    folder, piece = RunFolder(tmp_path), Piece("a", 0, 5)
    told: list[tuple[object, PieceTime | None]] = [
        ({"seconds": 5.0, "prepare_s": 2.0}, PieceTime(piece, 3.0, 2.0)),
        ({"seconds": 5.0, "prepare_s": 9.0}, PieceTime(piece, 0.0, 5.0)),
        ({"seconds": 5.0, "prepare_s": "x"}, PieceTime(piece, 5.0)),
        ({"seconds": 5.0, "prepare_s": -1}, PieceTime(piece, 5.0)),
        ({"seconds": None}, None),
    ]
    for record, wanted in told:
        write_json(folder.timing_file(piece), record)
        assert took(folder, piece) == wanted
    folder.timing_file(piece).unlink()
    assert took(folder, piece) is None
