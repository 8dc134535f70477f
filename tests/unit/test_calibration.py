"""Confidence that can be believed: curves rise, cases that they are judged on are held out, and wordings are hidden."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from assistant.content.reading import build
from assistant.diagnose.case import Case, Label, read_labels
from assistant.diagnose.knowledge import Curves, Knowledge, calibrated, curves, fitted, share_right_at
from assistant.diagnose.learning.ranked import KnowledgeWithoutCase, as_toml, held_out, reliability, unseen_lessons, verdicts
from assistant.diagnose.verdict import diagnose
from assistant.errors import ContentError
from assistant.llm.ranker import TrainingExample
from assistant.records import DecidedBy


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    return Knowledge.load()


@given(some.lists(some.tuples(some.floats(0, 1), some.booleans()), max_size=80))
def test_a_fitted_curve_always_rises(told: list[tuple[float, bool]]) -> None:
    curve = fitted(told, least=5)
    assert list(curve) == sorted(curve)
    shares = [share for _, share in curve]
    assert shares == sorted(shares)
    assert all(0 < share < 1 for share in shares)


def test_a_curve_finds_how_often_verdicts_are_right() -> None:
    chance = random.Random(3)
    told = [(raw, chance.random() < raw * raw) for raw in (chance.random() for _ in range(6000))]
    curve = fitted(told, least=100)
    assert all(abs(share_right_at(curve, raw) - raw * raw) < 0.09 for raw in (0.2, 0.4, 0.6, 0.8))


def test_cases_of_one_confidence_do_not_look_like_a_rise() -> None:
    assert fitted([(0.5, place % 2 == 0) for place in range(100)]) == ((0.5, 0.5039),)


@pytest.mark.parametrize(("raw", "share"), [(0.0, 0.3), (0.2, 0.3), (0.3, 0.4), (0.4, 0.5), (0.6, 0.7), (0.9, 0.9), (1.0, 0.9)])
def test_between_two_points_a_curve_is_straight_and_beyond_them_level(raw: float, share: float) -> None:
    assert share_right_at(((0.2, 0.3), (0.4, 0.5), (0.8, 0.9)), raw) == pytest.approx(share)


def test_without_a_curve_confidence_stays() -> None:
    assert share_right_at((), 0.42) == 0.42


def test_the_shipped_curves_are_made_from_hidden_wordings() -> None:
    shipped = curves()
    assert len(shipped.rule) >= 4
    assert len(shipped.ranker) >= 4
    assert "hidden: true" in shipped.made_from


@pytest.mark.parametrize("rule", ["[[0.4, 0.5], [0.2, 0.6]]", "[[0.2, 0.6], [0.4, 0.5]]", "[[0.2, 1.6]]"])
def test_curves_that_fall_are_refused(tmp_path: Path, rule: str) -> None:
    path = tmp_path / "knowledge" / "calibration.toml"
    path.parent.mkdir()
    path.write_text(f"version = 1\nmade_from = 'x'\nrule = {rule}\nranker = []\n")
    with pytest.raises(ContentError, match=r"calibration\.toml"):
        curves(tmp_path)


def test_written_curves_are_read_again(tmp_path: Path) -> None:
    import tomllib

    table = Curves(1, "two cases", ((0.25, 0.5), (0.75, 0.875)), ((0.5, 0.25),), well=((0.5, 0.75),), well_made_from="one case")
    assert build(Curves, tomllib.loads(as_toml(table)), tmp_path / "calibration.toml") == table


def test_a_good_end_has_a_curve_of_its_own(tmp_path: Path, knowledge: Knowledge) -> None:
    log = tmp_path / "job.log"
    log.write_text("".join(f"epoch {number}/30 loss 1.{number}\n" for number in range(1, 31)))
    raw = diagnose(Case.from_path(log), replace(knowledge, curves=None))
    table = Curves(1, "a test", ((0.0, 0.33), (1.0, 0.33)), (), well=((0.0, 0.9), (1.0, 0.9)))
    assert raw.reason == "no_failure"
    assert calibrated(raw, table).confidence == 0.9
    assert calibrated(raw, replace(table, well=())).confidence == 0.33


def test_only_what_the_rules_said_is_calibrated(tmp_path: Path, knowledge: Knowledge) -> None:
    log = tmp_path / "job.log"
    log.write_text("Traceback (most recent call last):\n  File \"a.py\", line 1, in <module>\nKeyError: 'a'\n")
    raw = diagnose(Case.from_path(log), replace(knowledge, curves=None))
    table = Curves(1, "a test", ((0.0, 0.33), (1.0, 0.33)), ())
    assert calibrated(raw, table).confidence == 0.33
    assert calibrated(raw, table).reason == raw.reason
    assert calibrated(replace(raw, by=DecidedBy.MEMORY), table).confidence == raw.confidence
    assert calibrated(replace(raw, reason="unknown"), table).confidence == raw.confidence


def test_held_out_confidence_comes_from_other_cases() -> None:
    told = [(0.9, True)] * 50 + [(0.3, False)] * 50
    found = held_out(told)
    assert len(found) == 100
    assert all(sure > 0.8 if right else sure < 0.2 for sure, right in found)


def test_a_reliability_table_says_how_far_off_confidence_is() -> None:
    table = reliability([(0.95, True)] * 9 + [(0.95, False)] + [(0.25, False)] * 10)
    assert [(one.low, one.cases) for one in table.bins] == [(0.2, 10), (0.9, 10)]
    assert table.right == 0.45
    assert table.error == pytest.approx((0.25 + 0.05) / 2)


def case(folder: Path, text: str, line: int, reason: str) -> Label:
    folder.mkdir()
    (folder / "job.log").write_text(text)
    (folder / "label.toml").write_text(f'reason = "{reason}"\nlines = [{line}]\n')
    return read_labels(folder)[0]


def test_the_wording_of_a_case_is_hidden_from_the_rules(tmp_path: Path, knowledge: Knowledge) -> None:
    text = "starting\nslurmctld: error: Nodes node3 not responding, setting DOWN\n"
    label = case(tmp_path / "a", text, 2, "node_failure")
    told = case(tmp_path / "b", "starting\nnothing of that kind at all here\n", 2, "node_failure")
    unseen = KnowledgeWithoutCase(knowledge)
    of_a, of_b = (unseen.of(one).patterns.match_line(text.splitlines()[1]) for one in (label, told))
    assert len(of_a) < len(of_b)


def test_verdicts_on_hidden_wordings_are_no_better(tmp_path: Path, knowledge: Knowledge) -> None:
    label = case(tmp_path / "a", "starting\nslurmctld: error: Nodes node3 not responding, setting DOWN\n", 2, "node_failure")
    (seen,) = verdicts([label], knowledge, hide_wording=False)
    (hidden,) = verdicts([label], knowledge)
    assert seen.right
    assert hidden.raw <= seen.raw


def test_a_ranker_is_judged_on_lines_that_it_has_not_learned(tmp_path: Path) -> None:
    label = case(tmp_path / "a", "starting\nflux capacitor 3 lost its uplink\n", 2, "network_error")
    examples = [
        TrainingExample("flux capacitor 7 lost its uplink", "network_error", 1.0),
        TrainingExample("mlx5_0: port is down", "network_error", 1.0),
        TrainingExample("flux capacitor 7 lost its uplink, retrying", "none", 0.0),
    ]
    assert [one.text for one in unseen_lessons(examples, [label])] == ["mlx5_0: port is down", examples[2].text]
