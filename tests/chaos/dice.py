"""What happens next in a random night, and how often: all by the world's own dice, so that a seed is always the same night."""

from __future__ import annotations

from collections.abc import Callable

from assistant.policy import Mode
from assistant.records import Verdict
from tests.chaos.failures import KINDS
from tests.chaos.unreliable_cluster import Loss
from tests.chaos.watches import Blow
from tests.chaos.world import NAMES, World

OFTEN = (*KINDS, "ecc", "ecc", "dead node", "nccl", "nccl", "worker", "hang", "spike", "preempted")
DIRECTIVES = ("", "", "", "act=never", "act=auto", "restarts=1")
JUMPS_S = (30.0, 120.0, 900.0, 7200.0, 90_000.0)


def something(world: World) -> None:
    """Let one thing happen, chosen by the world's own dice; most of the time the watches just go on."""
    dice = world.random
    node = dice.choice(world.names)
    name = dice.choice("ab")
    deeds: list[tuple[int, Callable[[], None]]] = [
        (30, lambda: world.passes(dice.randint(1, 8), every_s=dice.choice((5, 10, 30, 120)))),
        (4, lambda: world.passes(dice.randint(1, 4), who=name)),
        (24, lambda: world.submit(dice.choice(OFTEN), dice.randrange(NAMES), dice.choice((1, 2, 2, 4)), dice.choice(DIRECTIVES))),
        (6, lambda: world.hit(name, dice.choice((Blow.DIES_BEFORE, Blow.DIES_AFTER)), dice.randrange(120))),
        (4, lambda: world.hit(name, Blow.PAUSES, dice.randrange(60))),
        (4, lambda: world.doze(name, dice.randrange(30))),
        (2, lambda: world.hit(name, Blow.FULL, dice.randrange(60), dice.randint(1, 40))),
        (1, world.locked_pass),
        (3, lambda: world.lose(*dice.choices(list(Loss), k=dice.randint(1, 3)))),
        (2, lambda: world.set_outage(not world.cluster.outage)),
        (3, lambda: world.set_outage(False)),
        (1, lambda: world.set_untidy(not world.cluster.untidy)),
        (1, lambda: world.set_lag(dice.choice((0.0, 0.0, 45.0, 300.0)))),
        (2, lambda: world.set_mute(dice.sample(world.names, dice.randint(0, 4)))),
        (1, lambda: world.die(node)),
        (2, lambda: world.return_to_life(node)),
        (3, lambda: world.cancel(dice.randrange(100))),
        (2, lambda: world.requeue(dice.randrange(100))),
        (1, lambda: world.use_id_again(dice.randrange(100))),
        (1, lambda: world.drain(node)),
        (2, lambda: world.undrain(node)),
        (1, lambda: world.set_kill_switch(on=True)),
        (8, lambda: world.set_kill_switch(on=False)),
        (1, lambda: world.set_breaker(on=True)),
        (6, lambda: world.set_breaker(on=False)),
        (1, lambda: world.change_policy(dice.choice(list(Mode)))),
        (1, lambda: world.change_policy(Mode.ACT)),
        (1, lambda: world.open_window(dice.choice((5, 30)))),
        (
            6,
            lambda: world.answer(
                dice.randrange(8), dice.choice((Verdict.ALLOW, Verdict.ALLOW, Verdict.DENY)), go_on=dice.random() < 0.5
            ),
        ),
        (1, lambda: world.undo(dice.randrange(100))),
        (2, lambda: world.jump(dice.choice(JUMPS_S))),
    ]
    weights, acts = zip(*deeds, strict=True)
    dice.choices(acts, weights)[0]()
