"""Every page that a scenario has made is held against the rules of `consistency.py` when it is over."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from assistant.errors import NightshiftError
from tests.scenarios.consistency import contradictions_of
from tests.scenarios.scene import Scene


@pytest.fixture(autouse=True)
def _pages_are_consistent(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    scenes: list[Scene] = []
    begin = Scene.__init__

    def recorded(scene: Scene, *arguments: Any, **options: Any) -> None:
        begin(scene, *arguments, **options)
        scenes.append(scene)

    monkeypatch.setattr(Scene, "__init__", recorded)
    yield
    for scene in scenes:
        try:
            faults = contradictions_of(scene.engine.store)
        except NightshiftError:
            continue  # the scenario has broken or closed its store
        assert not faults, "\n".join(faults)
