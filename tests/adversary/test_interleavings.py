"""Two and three who restart the same run, interrupted at every point: at most one restart is ever alive, and none is lost.

An actor may be interrupted before every call of the scheduler and around every transaction of its store. For two actors every order
is run, up to the order of steps that commute; for three every schedule with at most one preemption, and for the watch, a
person and a second store some with two; and for each two, a kill of each actor at each of its steps, at four points of the other,
for watch
and person at every third point.
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from assistant.ports import JumpingClock
from assistant.store import Store
from tests.adversary.interleaving import Night, Schedule, Touched, orders, switching
from tests.scenarios.scene import START

Works = Sequence[Callable[[], object]]
CAST: dict[str, tuple[int, Callable[[Night], Works]]] = {
    "a watch and a person's approved call": (1, lambda night: [night.restart, night.approved()]),
    "two watches on one store": (1, lambda night: [night.restart, night.restart]),
    "two stores": (2, lambda night: [night.restart, lambda: night.restart(1)]),
    "a person of another store": (2, lambda night: [night.restart, night.approved(1)]),
    "a watch, a person, a second watch": (1, lambda night: [night.restart, night.approved(), night.restart]),
    "a watch, a person, a second store": (2, lambda night: [night.restart, night.approved(), lambda: night.restart(1)]),
    "three stores": (3, lambda night: [night.restart, lambda: night.restart(1), lambda: night.restart(2)]),
}
SPARSE = 9
"""Between two steps at which one of three is interrupted twice: all pairs of steps would take an hour."""
PAIRS, TRIOS = list(CAST)[:4], list(CAST)[4:]


class Stage:
    """Makes one night after the other, all alike."""

    def __init__(self, folder: Path, cast: str) -> None:
        self.folder, self.runs = folder, 0
        self.stores, self.works = CAST[cast]
        self.template = folder / "template.db"
        Store(self.template, JumpingClock(START)).close()

    def play(
        self,
        schedule: Schedule,
        told: Callable[[Touched], None] = lambda _: None,
        *,
        kill: tuple[int, int] | None = None,
    ) -> list[int]:
        """Play a night to its end, settle what is left, and return how many steps each actor took."""
        self.runs += 1
        folder = self.folder / str(self.runs)
        folder.mkdir()
        night = Night(folder, self.template, self.stores)
        taken = night.play(self.works(night), schedule, kill=kill, told=told)
        night.resume()
        wrong = night.judge()
        assert not wrong, (wrong, [actor.end for actor in night.baton.actors], night.cluster.changes, night.cluster.holds)
        shutil.rmtree(folder)
        return taken


def preempted_once(stage: Stage, actors: int) -> None:
    """Play every schedule in which one actor at most is interrupted before its end."""
    for first in range(actors):
        steps = stage.play(switching(first, {}))
        for step, other in itertools.product(range(1, sum(steps)), range(actors)):
            if other != first:
                stage.play(switching(first, {step: other}))


def killed_everywhere(stage: Stage) -> None:
    """Kill each of two actors at each of its steps, once the other has not begun, decided, submitted, or almost ended."""
    steps = stage.play(switching(0, {}))
    for victim in (0, 1):
        other = 1 - victim
        for at, before in itertools.product(range(max(steps) + 1), (0, 7, 9, 12)):
            stage.play(switching(other, {before: victim}), kill=(victim, at))


def test_a_watch_and_a_person_in_every_order(tmp_path: Path) -> None:
    stage = Stage(tmp_path, PAIRS[0])
    assert sum(orders(stage.play)) >= 12


@pytest.mark.parametrize("cast", PAIRS[1:])
def test_two_actors_with_one_interruption(tmp_path: Path, cast: str) -> None:
    stage = Stage(tmp_path, cast)
    for first in (0, 1):
        for step in range(1, 15):
            stage.play(switching(first, {step: 1 - first}))
    assert stage.runs == 28


@pytest.mark.slow
@pytest.mark.parametrize("cast", PAIRS[1:])
def test_two_actors_in_every_order(tmp_path: Path, cast: str) -> None:
    stage = Stage(tmp_path, cast)
    assert sum(orders(stage.play)) >= 60


@pytest.mark.slow
@pytest.mark.parametrize("cast", PAIRS)
def test_one_of_two_is_killed_at_each_of_its_steps(tmp_path: Path, cast: str) -> None:
    stage = Stage(tmp_path, cast)
    killed_everywhere(stage)
    assert stage.runs > 100


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("victim", [0, 1])
def test_a_watch_or_a_person_is_killed_at_each_step_at_every_third_point_of_the_other(tmp_path: Path, victim: int) -> None:
    stage = Stage(tmp_path, PAIRS[0])
    steps = stage.play(switching(0, {}))
    for at, before in itertools.product(range(max(steps) + 1), range(0, max(steps) + 1, 3)):
        stage.play(switching(1 - victim, {before: victim}), kill=(victim, at))
    assert stage.runs > 100


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_watch_a_person_and_a_second_store_with_two_interruptions(tmp_path: Path) -> None:
    stage = Stage(tmp_path, TRIOS[1])
    for first in range(3):
        steps = stage.play(switching(first, {}))
        points = range(1, sum(steps), SPARSE)
        for early, late in itertools.combinations(points, 2):
            for second, third in itertools.product(range(3), repeat=2):
                if second != first and third != second:
                    stage.play(switching(first, {early: second, late: third}))
    assert stage.runs > 30


@pytest.mark.slow
@pytest.mark.parametrize("cast", TRIOS)
def test_three_actors_with_one_interruption(tmp_path: Path, cast: str) -> None:
    stage = Stage(tmp_path, cast)
    preempted_once(stage, 3)
    assert stage.runs > 100
