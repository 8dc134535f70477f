"""Garbage is looked for in the pauses of whoever types, and nowhere else."""

from __future__ import annotations

import gc
import weakref
from collections.abc import Iterator

import pytest

from assistant.process_memory import LATEST_S, PAUSE_S, QUIET_S, WHOLE_S, Garbage
from assistant.tui.app import ChatApp
from assistant.tui.backend import ChatBackend
from tests.scenarios.scene import Scene
from tests.tui.conftest import OnScene
from tests.tui.waiting import until


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    thresholds = gc.get_threshold()
    yield
    gc.set_threshold(*thresholds)
    gc.unfreeze()


class Time:
    """Seconds that a test moves on."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


class Counted(Garbage):
    """Counts instead of looking."""

    def __init__(self) -> None:
        super().__init__()
        self.keys = self.looks = 0

    def touched(self) -> None:
        self.keys += 1
        super().touched()

    def look(self) -> None:
        self.looks += 1
        self._looked = self._clock()


class Ring:
    """Refers to itself: only the collector can free it."""

    def __init__(self) -> None:
        self.itself = self


@pytest.mark.parametrize(
    ("keys", "at", "looks"),
    [
        ((), QUIET_S - 1, False),
        ((), QUIET_S, True),
        ((1.0,), 1 + PAUSE_S / 2, False),
        ((1.0,), 1 + 2 * PAUSE_S, True),
        (tuple(n * PAUSE_S / 2 for n in range(60)), 60 * PAUSE_S / 2, False),
        (tuple(n * PAUSE_S / 2 for n in range(int(2 * LATEST_S / PAUSE_S) + 1)), LATEST_S, True),
    ],
    ids=["quiet", "quiet for long", "a key just now", "the first pause", "typing", "typing for very long"],
)
def test_it_looks_when_nobody_waits(keys: tuple[float, ...], at: float, looks: bool) -> None:
    time = Time()
    garbage = Garbage(time)
    for time.now in keys:
        garbage.touched()
    time.now = at
    assert garbage.look_if_quiet() is looks
    assert not garbage.look_if_quiet(), "twice in a row"


def test_all_that_nobody_reaches_is_freed_in_the_end() -> None:
    time = Time()
    garbage = Garbage(time)
    early, late = Ring(), Ring()
    first, second = weakref.ref(early), weakref.ref(late)
    del early
    garbage.look()
    assert first() is None
    del late
    garbage.look()
    assert second() is not None, "what survived a look is left alone for a while"
    time.now = WHOLE_S
    garbage.look()
    assert second() is None


def test_python_is_left_with_young_objects_only() -> None:
    garbage = Garbage()
    before = gc.get_threshold()
    assert gc.get_threshold() == before, "nothing changes before the chat runs"
    garbage.take_over()
    assert gc.get_threshold()[2] >= 100_000


async def test_the_chat_tells_of_keys_and_looks_once_all_is_loaded(scene: Scene) -> None:
    garbage = Counted()
    starts = OnScene(scene)
    app = ChatApp(
        lambda post: ChatBackend(starts, post, by="chat:alice", owner="alice@here:1.1", clock=scene.clock), garbage=garbage
    )
    async with app.run_test() as pilot:
        await until(pilot, lambda: garbage.looks == 1, "a look after the agent is ready")
        await pilot.press("a", "b")
        assert garbage.keys == 2
        await until(pilot, lambda: garbage.looks == 2, "a look in the pause after the keys")
