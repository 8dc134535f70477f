"""The embedded model on cases that it has never read: better than words alone and than the prototype, honest when it is sure."""

from __future__ import annotations

import pytest

from assistant.llm import embedded
from assistant.llm.encoder import open_words
from bench import prototype
from bench.encoder import calibrated, judged

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not built: make deps-llama")
pytestmark = pytest.mark.slow


@pytest.mark.timeout(300)
def test_it_is_sure_more_often_than_words_alone_and_as_seldom_wrong() -> None:
    both, words = calibrated(embedded.ranker()), calibrated(open_words())
    assert both.sure > words.sure
    assert both.sure >= 0.5
    assert both.sure_right >= 0.97
    assert both.right > words.right


@pytest.mark.timeout(300)
def test_it_beats_the_prototype_on_wordings_that_the_prototype_held_out() -> None:
    try:
        cases = prototype.excerpts(prototype.FOLDER)
    except FileNotFoundError as error:
        pytest.skip(f"the prototype's generator is not there: {error}")
    found = judged(cases, embedded.ranker())
    assert found.root >= 0.955
    assert found.reason > 0.848
    assert found.sure_right >= 0.994
    assert found.sure > 0.56
