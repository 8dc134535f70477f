"""Test nodes by small collectives: the two-round test of many, and the test of one before its cordon is lifted."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from assistant.errors import ToolError
from assistant.nodeset import expand, fold
from assistant.ports import Reserves
from assistant.records import Risk
from assistant.recover.collective.commands import LOOK, Choice, choose_program, cost_of, load_terms
from assistant.recover.collective.executor import Ran, Runner, busy, free_nodes, kept_free, partners_of, reserved_minutes, run_test
from assistant.recover.collective.planner import Limits, Verdict
from assistant.rendering import IDLE_PARTNERS, RenderedChange, command_line
from assistant.tooling import Context, tool

LOCAL_ADDRESS = "127.0.0.1"
"""Where the virtual nodes of this machine listen."""
FEW = 4
"""Nodes of the test that lifts a cordon, at most: the node itself and three partners."""
REMEDY = {
    "faulty": "repair it",
    "slow": "look at its links and clocks",
    "ambiguous": "try again with more idle partners",
    "unreached": "look at it from its console, and whether the test's ports are open and python3 is there",
}
"""What to do about a node that does not come out good."""


class Comparison(NamedTuple):
    """Result of a two-round test."""

    verdict: Verdict
    ran: Sequence[Ran]
    choice: Choice
    reservation: str
    """Name of the reservation while the test ran; empty where none was made."""


def compare_nodes(
    context: Context, nodes: Sequence[str], *, keep: Sequence[str], program: str = "auto", line: str = ""
) -> Comparison:
    """Run the two-round test.

    Args:
        context: The way to the nodes.
        nodes: Distinct, without a job.
        keep: Those of them on which the scheduler would place jobs meanwhile.
        program: What runs, or auto for the best that all nodes have.
        line: The test as one of the commands that were decided on; empty where it is part of another change.

    Raises:
        ToolError: The nodes do not have the program that was asked for.
        CommandRefused: It is not allowed any more, or not this test; so are `Denied` before any command, and `Fenced`.
    """
    terms, limits = load_terms(context.site), Limits()
    seconds = _most_seconds(context, len(nodes))
    with kept_free(context.scheduler, keep, seconds, name=_reservation(context)) as reservation:
        context.confirm(*filter(None, [line]))
        choice = _choice(context, nodes, program)
        runner = Runner(
            context.transport,
            terms,
            context.random,
            lambda node: LOCAL_ADDRESS if context.transport.name == "local" else node,
            lambda busy_nodes: busy(context.scheduler, busy_nodes),
            choice,
            tuple(context.commands.get("python3", ("python3",))),
            context.confirm,
        )
        verdict, ran = run_test(nodes, runner, limits)
    return Comparison(verdict, ran, choice, reservation)


def proven_good(context: Context, node: str) -> str:
    """Test a cordoned node with idle partners and return what is to be told about it.

    Raises:
        ToolError: It did not come out good, or could not be tested; the message says why and what to do.
    """
    stays = f"node {node} passes its probes and stays out"
    if busy(context.scheduler, [node]):
        raise ToolError(f"{stays}: a job runs on it, so the collective test cannot; wait for its end, or --force")
    partners = partners_of(context.scheduler, node)
    if not partners.nodes:
        raise ToolError(
            f"{stays}: the collective test needs an idle node of {partners.where} that is not cordoned, and there is none now; "
            "wait for one, or --force"
        )
    verdict = compare_nodes(context, [node, *partners.nodes], keep=partners.nodes).verdict
    with_whom = f"with {fold(partners.nodes)}"
    if node in verdict.good:
        return f"collective test {with_whom}: {verdict.note}"
    verdict_word = next(name for name in REMEDY if node in getattr(verdict, name))
    detail = f": {verdict.why[node]}" if verdict.why.get(node) else ""
    remedy = "look at the fabric first" if verdict.fabric_wide else REMEDY[verdict_word]
    raise ToolError(f"{stays}: the collective test {with_whom} finds it {verdict_word}{detail}; {remedy}, or --force")


def would_test(context: Context, node: str) -> str:
    """Return the test of a cordoned node that `proven_good` would make, in words."""
    partners = partners_of(context.scheduler, node)
    if not partners.nodes:
        return f"a collective test, for which {partners.where} has no idle partner now: it would be refused"
    cost = cost_of(1 + len(partners.nodes), load_terms(context.site), Limits())
    return f"a collective test with {fold(partners.nodes)} (about {cost.seconds:.0f} s)"


def reservation_lines(context: Context, nodes: Sequence[str] = ()) -> tuple[str, ...]:
    """Return the commands that keep nodes free for a test and give them back; without nodes those that are idle when it begins."""
    name, scheduler = _reservation(context), context.scheduler
    if not isinstance(scheduler, Reserves):
        return ()
    minutes = reserved_minutes(_most_seconds(context, len(nodes)))
    reserve = scheduler.command_lines("reserve", name, nodes or [IDLE_PARTNERS], minutes=minutes)
    return (*reserve, *scheduler.command_lines("unreserve", name))


def _most_seconds(context: Context, nodes: int) -> float:
    """Return how long a test may take; for up to `FEW` nodes the same, so that a partner more or less changes no command."""
    return cost_of(max(nodes, FEW), load_terms(context.site), Limits()).most_seconds


def _reservation(context: Context) -> str:
    return "nightshift-test-" + (context.tag.partition(":")[2] or "0").replace(":", "-")


def _choice(context: Context, nodes: Sequence[str], program: str) -> Choice:
    if program == "ring":
        return Choice()
    replies = context.transport.run(nodes, LOOK, timeout_s=context.command_timeout_s)
    # a node that does not answer now will not hold the others back from the better program
    choice = choose_program({name: reply.out for name, reply in replies.items() if reply.reached})
    if program not in ("auto", str(choice.program)):
        raise ToolError(f"{program} was asked for, but the best that all of {fold(nodes)} have is {choice.program}")
    return choice


@tool(risk=Risk.CHANGE, kind="test")
def two_round_test(context: Context, nodes: list[str], program: str = "auto") -> dict[str, Any]:
    """Run small collectives between pairs of nodes, round by round, until each is proven good, slow or faulty, or cannot be told.

    It puts load on the nodes and their network for some seconds a round, so nodes that run a job are left out. `faulty` may be
    cordoned. `ambiguous` and `unreached` nodes are not proven bad; `edges` are good nodes that fail with each other, `groups` good
    nodes that a switch keeps apart. With `fabric_wide` no node is blamed.

    Args:
        nodes: Names of the nodes, two or more; four or more let one faulty node be told for sure.
        program: What runs: ring (TCP, needs only python3), gloo or nccl (torch), or auto for the best that all nodes have.
    """
    if program not in ("auto", "ring", "gloo", "nccl"):
        raise ToolError(f"program {program!r} is unknown; known: auto, gloo, nccl, ring")
    free, left_out = free_nodes(context.scheduler, expand(",".join(nodes)) if nodes else [])
    cost = cost_of(len(free), load_terms(context.site), Limits())
    verdict, ran, choice, reservation = compare_nodes(context, free, keep=free, program=program, line=_test_line(free, program))
    return {
        **_verdict_values(verdict, ran),
        "left_out": left_out,
        "program": str(choice.program),
        "reservation": reservation,
        "estimate": {"rounds": cost.rounds, "seconds": cost.seconds},
    }


@two_round_test.lookup
def after_a_crash(context: Context, tag: str, nodes: list[str], program: str = "auto") -> None:
    """Return None: the programs end by themselves and leave nothing behind, so a test that was cut short is made again."""
    return


@two_round_test.preview
def would_run(context: Context, nodes: list[str], program: str = "auto") -> RenderedChange:
    """Return what would be run where, and what it takes."""
    terms = load_terms(context.site)
    free, left_out = free_nodes(context.scheduler, expand(",".join(nodes)) if nodes else [])
    cost = cost_of(len(free), terms, Limits())
    without = f"without {fold(left_out)}; " if left_out else ""
    rounds = "1 round" if cost.rounds == 1 else f"{cost.rounds} rounds"
    return RenderedChange(
        (*reservation_lines(context, free), _test_line(free, program)),
        f"{without}{rounds}, about {cost.seconds:.0f} s and {cost.node_mib} MiB a node; {cost.most_seconds / 60:.0f} min at most",
    )


def _test_line(nodes: Sequence[str], program: str) -> str:
    """Return the test as one command: nodes and program are what a person says yes to."""
    return command_line(["two-round collective test", "on", fold(nodes), "with", program])


def _verdict_values(verdict: Verdict, ran: Sequence[Ran]) -> Mapping[str, Any]:
    return {
        "good": list(verdict.good),
        "slow": list(verdict.slow),
        "faulty": list(verdict.faulty),
        "ambiguous": list(verdict.ambiguous),
        "unreached": list(verdict.unreached),
        "edges": [list(edge) for edge in verdict.edges],
        "groups": [list(group) for group in verdict.groups],
        "fabric_wide": verdict.fabric_wide,
        "rounds": verdict.rounds,
        "note": verdict.note,
        "why": dict(verdict.why),
        "worlds": [
            {
                "round": world_run.round,
                "nodes": list(world_run.world),
                "outcome": str(world_run.result.outcome),
                "mib_s": world_run.result.mib_s,
                "detail": world_run.result.detail,
            }
            for world_run in ran
        ],
    }
