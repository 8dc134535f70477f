"""The embedded model on the blind suites, which it has never read: better than words alone, and honest when it is sure."""

from __future__ import annotations

import pytest

from assistant.llm import embedded
from assistant.llm.encoder import open_words
from bench.encoder import calibrated

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not built: make deps-llama")
pytestmark = pytest.mark.slow


@pytest.mark.timeout(300)
def test_it_is_sure_more_often_than_words_alone_and_as_seldom_wrong() -> None:
    both, words = calibrated(embedded.ranker()), calibrated(open_words())
    assert both.sure > words.sure
    assert both.sure >= 0.5
    assert both.sure_right >= 0.97
    assert both.right > words.right
