"""Two and three who restart one run, in every order and with every kill: one restart is alive, and none is lost or left behind.

*Who*: a watch, a person's approved call, a second watch that takes the first for gone and leads in its place, a watch or a person
with another store, and `kill -9` of any of them. *Every point*: before each call of the scheduler, each transaction of a store and
each read of a store outside of one; why the search may leave out some orders of these is in `explorer.py`.

*What must hold* after each step: at most one job of the run is alive or may begin, at most one restart ever began, at most one
change of the run has an intent in each store. At each end, after what was left is settled as the next passes do: no job is left
held, each call has an outcome, the audit is whole, and the run is alive.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assistant.gate import gate as gate_module
from assistant.records import Job
from assistant.records.tags import tags_in
from assistant.tools import resubmit
from tests.adversary.explorer import Counterexample, Search
from tests.adversary.interleaving import Night

Works = list[Callable[[], object]]
CAST: dict[str, tuple[int, Callable[[Night], Works]]] = {
    "watch, person": (1, lambda night: [night.restart(), night.approved()]),
    "watch, second watch": (1, lambda night: [night.restart(), night.restart(takes_over=True)]),
    "watch, second store": (2, lambda night: [night.restart(), night.restart(1)]),
    "watch, person of a second store": (2, lambda night: [night.restart(), night.approved(1)]),
    "watch, person, second watch": (1, lambda night: [night.restart(), night.approved(), night.restart(takes_over=True)]),
    "watch, person, second store": (2, lambda night: [night.restart(), night.approved(), night.restart(1)]),
    "three stores": (3, lambda night: [night.restart(), night.restart(1), night.restart(2)]),
}
PAIRS, TRIOS = list(CAST)[:4], list(CAST)[4:]


@contextmanager
def search(folder: Path, cast: str, **more: Any) -> Iterator[Search]:
    """Make the night of a cast, and end it afterwards."""
    stores, works = CAST[cast]
    night = Night(folder, stores)
    try:
        yield Search(night, night.begin(works(night)), **more)
    finally:
        night.close()


def everything(folder: Path, cast: str, **more: Any) -> Search:
    with search(folder, cast, **more) as found:
        found.run()
    return found


def first_problem(folder: Path, cast: str, **more: Any) -> str:
    with search(folder, cast, **more) as found:
        try:
            found.run()
        except Counterexample as problem:
            return str(problem)
    return "nothing"


def not_held(whole: Callable[..., resubmit.Plan]) -> Callable[..., resubmit.Plan]:
    def plan(*given: Any, **named: Any) -> resubmit.Plan:
        made = whole(*given, **named)
        return replace(made, spec=replace(made.spec, hold=False))

    return plan


def any_tag(context: Any, tag: str, job: Job) -> bool:
    return bool(tags_in(job.comment))


SEEDED: dict[str, tuple[str, Any, str, Callable[[Any], Any], str]] = {
    "no exclusion by intents": ("watch, person", gate_module, "must_be_alone", lambda _: lambda *given: None, "begun at once"),
    "no last look": (
        "watch, second store",
        resubmit,
        "_must_win",
        lambda _: lambda context, old, claim, known: claim,
        "alive at once",
    ),
    "no hold": ("watch, second store", resubmit, "_plan", not_held, "alive at once"),
    "no check of tags": ("watch, second store", resubmit, "_is_of_call", lambda _: any_tag, "of another for its own"),
    "nothing is withdrawn": ("watch, second store", resubmit.resubmit_job, "take_back", lambda _: None, "left held"),
}
"""Mistakes made on purpose: the cast that must notice it, what is replaced and by what, and what must be said."""


@pytest.mark.parametrize("mistake", SEEDED)
def test_a_mistake_made_on_purpose_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mistake: str) -> None:
    cast, place, name, changed, problem = SEEDED[mistake]
    monkeypatch.setattr(place, name, changed(getattr(place, name)))
    assert problem in first_problem(tmp_path, cast)


def test_two_in_every_order(tmp_path: Path) -> None:
    assert len(everything(tmp_path, "watch, person of a second store").states) > 200


@pytest.mark.slow
@pytest.mark.parametrize("mortal", [(), (0,), (1,)], ids=["nobody dies", "the first dies", "the second dies"])
@pytest.mark.parametrize("cast", PAIRS)
def test_two_and_a_kill_in_every_order(tmp_path: Path, cast: str, mortal: tuple[int, ...]) -> None:
    assert len(everything(tmp_path, cast, mortal=mortal).states) > 200
