"""The figures that diagnosis promises hold on the labelled suites, where those lie beside the checkout."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.diagnose.knowledge import Knowledge
from bench.diagnosis import answers, bench_folder, dev_suites

MINIMA = {"reason": 0.85, "action": 0.90, "line": 0.80}


def test_accuracy_on_the_labelled_suites() -> None:
    suites = dev_suites()
    if not suites:
        pytest.skip(f"no labelled suites at {bench_folder()}; set NIGHTSHIFT_BENCH to their folder")
    knowledge = Knowledge.load()
    labels = [label for suite in suites for label in suite.labels]
    found, _ = answers([Path(label["folder"]) for label in labels], knowledge)
    figures = suites[0].score(labels, found)
    low = {name: figures[name] for name, least in MINIMA.items() if figures[name] < least}
    assert not low, figures["wrong"]
    assert figures["harmful_cordon"] == 0
