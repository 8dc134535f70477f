"""The same world under hypothesis, which looks for the shortest story that breaks what must hold."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from assistant.policy import Mode
from assistant.records import Verdict
from tests.chaos.dice import DIRECTIVES, JUMPS_S
from tests.chaos.failures import KINDS
from tests.chaos.unreliable_cluster import Loss
from tests.chaos.watches import Blow
from tests.chaos.world import NODES, World

NUMBERS = st.integers(0, 99)
NODE_NUMBERS = st.integers(0, NODES - 1)
WATCHES = st.sampled_from("ab")


class ChaosMachine(RuleBasedStateMachine):
    """What may happen, as rules."""

    def __init__(self) -> None:
        super().__init__()
        self._folder = tempfile.TemporaryDirectory()
        self.world = World(Path(self._folder.name), 1)

    @rule(count=st.integers(1, 8), every_s=st.sampled_from((5.0, 10.0, 30.0, 120.0)), who=st.sampled_from(("ab", "a", "b")))
    def passes(self, count: int, every_s: float, who: str) -> None:
        self.world.passes(count, every_s=every_s, who=who)

    @rule(kind=st.sampled_from(KINDS), number=NUMBERS, nodes=st.sampled_from((1, 2, 4)), said=st.sampled_from(DIRECTIVES))
    def submit(self, kind: str, number: int, nodes: int, said: str) -> None:
        self.world.submit(kind, number, nodes, said)
        self.world.passes(4, every_s=30.0)

    @rule(name=WATCHES, blow=st.sampled_from(list(Blow)), due=NUMBERS, lasts=st.integers(1, 20))
    def hit(self, name: str, blow: Blow, due: int, lasts: int) -> None:
        self.world.hit(name, blow, due, lasts)

    @rule(name=WATCHES, due=st.integers(0, 30))
    def doze(self, name: str, due: int) -> None:
        self.world.doze(name, due)

    @rule(losses=st.lists(st.sampled_from(list(Loss)), min_size=1, max_size=3))
    def lose(self, losses: list[Loss]) -> None:
        self.world.lose(*losses)

    @rule(outage=st.booleans(), untidy=st.booleans(), lag_s=st.sampled_from((0.0, 45.0, 300.0)))
    def trouble(self, outage: bool, untidy: bool, lag_s: float) -> None:
        self.world.set_outage(outage)
        self.world.set_untidy(untidy)
        self.world.set_lag(lag_s)

    @rule(nodes=st.lists(NODE_NUMBERS, max_size=4, unique=True))
    def mute(self, nodes: list[int]) -> None:
        self.world.set_mute([self.world.names[number] for number in nodes])

    @rule(node=NODE_NUMBERS, dies=st.booleans())
    def die(self, node: int, dies: bool) -> None:
        (self.world.die if dies else self.world.return_to_life)(self.world.names[node])

    @rule(choice=NUMBERS)
    def cancel(self, choice: int) -> None:
        self.world.cancel(choice)

    @rule(choice=NUMBERS)
    def requeue(self, choice: int) -> None:
        self.world.requeue(choice)

    @rule(choice=NUMBERS)
    def use_id_again(self, choice: int) -> None:
        self.world.use_id_again(choice)

    @rule(node=NODE_NUMBERS, out=st.booleans())
    def drain(self, node: int, out: bool) -> None:
        (self.world.drain if out else self.world.undrain)(self.world.names[node])

    @rule(on=st.booleans())
    def kill_switch(self, on: bool) -> None:
        self.world.set_kill_switch(on)

    @rule(on=st.booleans())
    def breaker(self, on: bool) -> None:
        self.world.set_breaker(on)

    @rule(mode=st.sampled_from(list(Mode)))
    def policy(self, mode: Mode) -> None:
        self.world.change_policy(mode)

    @rule(minutes=st.sampled_from((5, 30)))
    def window(self, minutes: int) -> None:
        self.world.open_window(minutes)

    @rule(choice=NUMBERS, allow=st.booleans(), go_on=st.booleans())
    def answer(self, choice: int, allow: bool, go_on: bool) -> None:
        self.world.answer(choice, Verdict.ALLOW if allow else Verdict.DENY, go_on=go_on)

    @rule(choice=NUMBERS)
    def undo(self, choice: int) -> None:
        self.world.undo(choice)

    @rule()
    def locked(self) -> None:
        self.world.locked_pass()

    @rule(seconds=st.sampled_from(JUMPS_S))
    def jump(self, seconds: float) -> None:
        self.world.jump(seconds)

    @invariant()
    def nothing_is_wrong(self) -> None:
        assert not self.world.judge.wrong, "\n".join(self.world.judge.wrong)

    def teardown(self) -> None:
        try:
            self.world.settle()
            self.nothing_is_wrong()
        finally:
            self.world.close()
            self._folder.cleanup()


ChaosMachine.TestCase.settings = settings(
    max_examples=int(os.environ.get("NIGHTSHIFT_CHAOS_EXAMPLES", "30")),
    stateful_step_count=40,
    derandomize=True,
    database=None,
    deadline=None,
    print_blob=False,
    suppress_health_check=list(HealthCheck),
)
TestWhateverHappens = pytest.mark.slow(ChaosMachine.TestCase)
