"""Find out by test which nodes cannot take part in a collective."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from assistant.errors import ToolError
from assistant.nodeset import expand, fold
from assistant.records import Risk
from assistant.recover.collective.commands import cost_of, load_terms
from assistant.recover.collective.executor import Ran, free_nodes
from assistant.recover.collective.planner import Limits, Verdict
from assistant.rendering import RenderedChange, command_line
from assistant.tooling import Context, tool
from assistant.tools._collective import compare_nodes, reservation_lines


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
    context.confirm(_test_line(free, program))
    verdict, ran, choice, reservation = compare_nodes(context, free, keep=free, program=program)
    return {
        **_told(verdict, ran),
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


def _told(verdict: Verdict, ran: Sequence[Ran]) -> Mapping[str, Any]:
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
                "round": one.round,
                "nodes": list(one.world),
                "outcome": str(one.result.outcome),
                "mib_s": one.result.mib_s,
                "detail": one.result.detail,
            }
            for one in ran
        ],
    }
