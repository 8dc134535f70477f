"""The embedded model on the blind suites, which it has never read: better than words alone, and honest when it is sure."""

from __future__ import annotations

import pytest

from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.labels import read_labels
from assistant.diagnose.reliability import guesses, held_out
from assistant.llm import embedded
from assistant.llm.encoder import open_words
from assistant.ports import Ranker
from bench.blind import suites

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not built: make deps-llama")
pytestmark = pytest.mark.slow
SURE = 0.9


@pytest.mark.timeout(300)
def test_it_is_sure_more_often_than_words_alone_and_as_seldom_wrong() -> None:
    labels = [label for suite in suites() for label in read_labels(suite)]
    knowledge = Knowledge.load()

    def told(ranker: Ranker) -> tuple[int, float, float]:
        pairs = [(one.raw, one.right) for one in guesses(labels, knowledge, ranker)]
        sure = [right for confidence, right in held_out(pairs) if confidence >= SURE]
        return len(sure), sum(sure) / len(sure), sum(right for _, right in pairs) / len(pairs)

    often, right, overall = told(embedded.ranker())
    words_often, _, words_overall = told(open_words())
    assert often > words_often
    assert often >= 250
    assert right >= 0.97
    assert overall > words_overall
