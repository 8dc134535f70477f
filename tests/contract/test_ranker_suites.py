"""The line ranker on the blind suites: alone it finds most of what it has never read, and beside the rules it does no harm."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest

from assistant.diagnose.case import read_labels
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.learning.ranked import RankerOpinion, unseen_lessons
from assistant.llm.ranker import LinearRanker, lessons, train
from bench.blind import measure, suites
from bench.ranker import LIKE, STRUCTURAL, bare, judge

pytestmark = pytest.mark.slow
FIRST = suites()[0]


@cache
def known() -> Knowledge:
    return Knowledge.load()


@pytest.mark.parametrize("suite", suites(), ids=lambda path: path.name)
def test_asking_the_ranker_makes_no_suite_worse(suite: Path) -> None:
    without, asked = measure(suite, known()), measure(suite, known(), (RankerOpinion(),))
    assert asked.harmful == without.harmful
    assert (asked.reason, asked.action, asked.line) >= (without.reason, without.action, without.line)
    assert set(asked.wrong) <= set(without.wrong)


def test_alone_it_finds_most_of_what_it_has_never_read() -> None:
    labels = [label for label in read_labels(FIRST) if label.reason not in STRUCTURAL]
    ranker = LinearRanker(train(unseen_lessons(lessons(), labels, LIKE)))
    judged = judge(labels, bare(known()), ranker)
    surer = sorted(judged, key=lambda one: -(one.made.score if one.made else 0.0))[: len(judged) // 2]
    assert sum(one.right for one in judged) / len(judged) >= 0.7
    assert sum(one.line for one in judged) / len(judged) >= 0.8
    assert sum(one.right for one in surer) / len(surer) >= 0.9
