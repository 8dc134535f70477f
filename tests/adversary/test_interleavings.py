"""Two who restart one run, in every order and with every kill, and three: one restart is alive, and none is lost or left behind.

*Who*: a watch, a person's approved call, a second watch that takes the first for gone and leads in its place, a watch or a person
with another store, and `kill -9` of any of them. *Every point*: before each call of the scheduler, each transaction of a store and
each read of a store outside of one; why the search may leave out some orders of these is in `explorer.py`. Of two every order is
searched, without a kill and with a kill of each at each point; of three every order in which at most one of them is interrupted
while it could go on, without a kill and with a kill of each at each point (NIGHTSHIFT_PREEMPTIONS=2 and more: hours;
NIGHTSHIFT_STATES bounds them).

*What must hold* after each step: at most one job of the run is alive or may begin, at most one restart ever began, at most one
change of the run has an intent in each store. At each end, after what was left is settled as the next passes do: no job is left
held, each call has an outcome, the audit is whole, and the run is alive.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assistant.gate import gate as gate_module
from assistant.records import Job
from assistant.records.jobs import tags_in
from assistant.tools import jobs, preconditions, resubmit
from tests.adversary.explorer import Counterexample, Search
from tests.adversary.interleaving import Night, RequeueCluster

Works = list[Callable[[], object]]
CAST: dict[str, tuple[int, Callable[[Night], Works]]] = {
    "watch, person": (1, lambda night: [night.restart(), night.approved()]),
    "watch, second watch": (1, lambda night: [night.restart(), night.restart(takes_over=True)]),
    "watch, second store": (2, lambda night: [night.restart(), night.restart(1)]),
    "watch, person of a second store": (2, lambda night: [night.restart(), night.approved(1)]),
    "watch, requeue of a second store": (2, lambda night: [night.restart(), night.approved(1, requeue=True)]),
    "watch, requeue by a watch of a second store": (2, lambda night: [night.restart(), night.restart(1, requeue=True)]),
    "watch, person, second watch": (1, lambda night: [night.restart(), night.approved(), night.restart(takes_over=True)]),
    "watch, person, second store": (2, lambda night: [night.restart(), night.approved(), night.restart(1)]),
    "watch, second watch, second store": (2, lambda night: [night.restart(), night.restart(takes_over=True), night.restart(1)]),
    "three stores": (3, lambda night: [night.restart(), night.restart(1), night.restart(2)]),
    "three stores, one requeues": (3, lambda night: [night.restart(), night.restart(1, requeue=True), night.restart(2)]),
}
GIVES_UP = {"watch, requeue of a second store": "is of the same run, so it was withdrawn"}
"""A requeue waits for a held restart of the same run for so long and no longer: here one look."""
PARTS = {"watch, second watch": 12}
"""Into how many tests the orders of a cast are parted; one where it is not named."""
PREEMPTIONS = int(os.environ.get("NIGHTSHIFT_PREEMPTIONS", "1"))
"""How often one of three is interrupted while it could go on, at every point; all of it is more than a test may take."""
MOST_STATES = int(os.environ.get("NIGHTSHIFT_STATES", "0")) or None
"""Where a search of three with kills stops; 0: nowhere."""
PAIRS, TRIOS = list(CAST)[:6], list(CAST)[6:]


@contextmanager
def search(folder: Path, cast: str, **more: Any) -> Iterator[Search]:
    """Make the night of a cast, and end it afterwards."""
    stores, works = CAST[cast]
    night = Night(folder, stores, may_give_up=GIVES_UP.get(cast, ""))
    longest_s, preconditions.HELD_AT_MOST_S = preconditions.HELD_AT_MOST_S, preconditions.LOOK_S
    try:
        yield Search(night, night.begin(works(night)), **more)
    finally:
        preconditions.HELD_AT_MOST_S = longest_s
        night.close()


def everything(folder: Path, cast: str, **more: Any) -> Search:
    with search(folder, cast, **more) as found:
        found.run()
    print(f"{cast} {more}: {found.summary()}")  # pytest -rP shows it
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
    "no hold": ("watch, second store", resubmit, "plan_submission", not_held, "alive at once"),
    "no check of tags": ("watch, second store", resubmit, "is_of_call", lambda _: any_tag, "of another for its own"),
    "a requeue looks no more": (
        "watch, requeue of a second store",
        jobs,
        "wait_until_alone",
        lambda _: lambda context, before: None,
        "alive at once",
    ),
    "nothing is withdrawn": (
        "watch, second store",
        RequeueCluster,
        "withdraw",
        lambda _: lambda cluster, job_id: None,
        "left held",
    ),
}
"""Mistakes made on purpose: the cast that must notice it, what is replaced and by what, and what must be said."""


FAST = {"no exclusion by intents", "no last look", "no check of tags"}


@pytest.mark.parametrize(
    "mistake", [pytest.param(mistake, marks=() if mistake in FAST else pytest.mark.slow) for mistake in SEEDED]
)
def test_a_mistake_made_on_purpose_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, mistake: str) -> None:
    cast, place, name, changed, problem = SEEDED[mistake]
    monkeypatch.setattr(place, name, changed(getattr(place, name)))
    assert problem in first_problem(tmp_path, cast)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_two_in_every_order(tmp_path: Path) -> None:
    assert len(everything(tmp_path, "watch, person of a second store").states) > 200


@pytest.mark.exhaustive
@pytest.mark.parametrize("mortal", [(), (0,), (1,)], ids=["nobody dies", "the first dies", "the second dies"])
@pytest.mark.parametrize(("cast", "part"), [(cast, part) for cast in PAIRS for part in range(PARTS.get(cast, 1))])
def test_two_and_a_kill_in_every_order(tmp_path: Path, cast: str, part: int, mortal: tuple[int, ...]) -> None:
    if mortal == (1,) and cast in GIVES_UP:
        pytest.skip("a person's requeue that was killed is not made again (docs/decisions/0015): the run may stay ended")
    assert len(everything(tmp_path, cast, mortal=mortal, part=(part, PARTS.get(cast, 1))).states) > 100


@pytest.mark.exhaustive
@pytest.mark.parametrize("mortal", [0, 1, 2], ids=["the first dies", "the second dies", "the third dies"])
@pytest.mark.parametrize("cast", TRIOS)
def test_three_and_a_kill_at_every_point(tmp_path: Path, cast: str, mortal: int) -> None:
    found = everything(tmp_path, cast, mortal=[mortal], preemptions=PREEMPTIONS, most_states=MOST_STATES)
    assert len(found.states) > 300


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("cast", TRIOS)
def test_three_in_every_order_with_one_preemption(tmp_path: Path, cast: str) -> None:
    assert len(everything(tmp_path, cast, preemptions=PREEMPTIONS).states) > 300
