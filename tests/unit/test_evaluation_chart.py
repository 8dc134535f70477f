"""Charts show what GPUs did, on any terminal, and as a picture that is well-formed."""

from __future__ import annotations

import math
from xml.etree import ElementTree

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant.evaluation.results import ChartPanel, busy, svg, terminal
from assistant.evaluation.simulate import PhaseSpan, ReplayOutcome, ReplayPhase

SPANS = [
    PhaseSpan(0, 0, ReplayPhase.LOAD, 0, 10),
    PhaseSpan(0, 0, ReplayPhase.INFER, 10, 40),
    PhaseSpan(0, 1, ReplayPhase.INFER, 0, 20),
    PhaseSpan(0, 0, ReplayPhase.APART, 0, 40),
]
OUTCOME = ReplayOutcome(40.0, SPANS, (), 2)
DRAWN = """\
one: 40 s
2 |..##
  |##########
0 +----------------
two: 80 s
2 |..##
  |##########
0 +----------------
   0           80 s
   # GPUs that infer   . GPUs held for loading, preparing and metrics"""


def test_gpus_are_counted_by_what_holds_them_and_processors_are_not() -> None:
    found = busy(SPANS, 40, 4)
    assert found[ReplayPhase.INFER] == [1, 2, 1, 1]
    assert found[ReplayPhase.LOAD] == [1, 0, 0, 0]
    assert ReplayPhase.APART not in found


@given(
    st.lists(st.tuples(st.sampled_from([ReplayPhase.LOAD, ReplayPhase.INFER]), st.floats(0, 90), st.floats(0.1, 9)), min_size=1),
    st.integers(1, 50),
)
def test_the_area_of_a_chart_is_the_time_that_gpus_were_held(drawn: list[tuple[ReplayPhase, float, float]], bins: int) -> None:
    spans = [PhaseSpan(0, 0, phase, begin, begin + length) for phase, begin, length in drawn]
    area = sum(sum(heights) for heights in busy(spans, 100, bins).values()) * 100 / bins
    assert area == pytest.approx(sum(span.end - span.begin for span in spans))


def test_a_terminal_without_utf8_gets_plain_characters() -> None:
    spans = [
        PhaseSpan(0, 0, ReplayPhase.LOAD, 0, 10),
        PhaseSpan(0, 0, ReplayPhase.INFER, 10, 50),
        PhaseSpan(0, 1, ReplayPhase.INFER, 0, 20),
    ]
    panels = [ChartPanel("one", ReplayOutcome(40.0, spans, (), 1)), ChartPanel("two", ReplayOutcome(80.0, spans, (), 1))]
    assert terminal(panels, 2, width=19, height=2, unicode=False) == DRAWN


def test_a_terminal_with_utf8_gets_blocks_no_wider_than_it_is() -> None:
    drawn = terminal([ChartPanel("one", OUTCOME)], 2, width=50, height=4)
    assert "█" in drawn
    assert all(len(line) <= 50 for line in drawn.splitlines()[:-1])
    assert not terminal([ChartPanel("one", OUTCOME)], 2, width=50, height=4, unicode=False).strip(
        "#.|+-\n 0123456789abcdefghijklmnopqrstuvwxyzGPU,:"
    )


def test_what_never_ends_is_not_drawn() -> None:
    assert terminal([ChartPanel("x", ReplayOutcome(math.inf, SPANS, (), 1))], 2) == ""


def test_the_picture_is_well_formed_whatever_the_titles_hold() -> None:
    drawn = svg([ChartPanel("a <b> & c", OUTCOME), ChartPanel("two", OUTCOME)], 2, 30.0, title="x < y & z")
    root = ElementTree.fromstring(drawn)
    texts = [one.text or "" for one in root.iter("{http://www.w3.org/2000/svg}text")]
    assert "x < y & z" in texts
    assert "a <b> & c: 40 s" in texts
    assert "┊ lower bound 30 s" in texts


def test_an_area_of_the_picture_is_as_high_as_gpus_were_held() -> None:
    drawn = svg([ChartPanel("one", ReplayOutcome(40.0, [PhaseSpan(0, 0, ReplayPhase.INFER, 0, 40)], (), 1))], 2, 40.0)
    path = next(
        one for one in ElementTree.fromstring(drawn).iter("{http://www.w3.org/2000/svg}path") if one.get("fill") == "#2a6f97"
    )
    assert path.get("d") == "M70 160V120H830.0V160H70.0Z"
