"""Let DCGM test the GPUs of nodes; what stresses them runs only where no job can be disturbed."""

from __future__ import annotations

from typing import Any

from assistant.errors import ToolError
from assistant.ports import Reply
from assistant.probing import Finding, Health, merged, ok, unknown, worst
from assistant.records import NodeState, Risk
from assistant.tooling import Context, tool
from assistant.tools.cordons import known
from assistant.tools.probes.gpu_reports import DCGM_PACKAGE, diagnostic_results, json_in

LIMIT_S = {1: 120.0, 2: 600.0, 3: 2700.0, 4: 10800.0}
"""Levels of `dcgmi diag -r`: 1 takes seconds, 2 some minutes, 3 about ten minutes on eight GPUs and more, 4 above an hour."""
NO_PROGRAM = (126, 127)


@tool(risk=Risk.READ)
def diagnose_gpus(context: Context, nodes: list[str], level: int = 1) -> dict[str, Any]:
    """Run `dcgmi diag` on nodes: under `nodes` a status for each and what failed; `failed` lists those where a test failed.

    Level 1 looks at the software only. From level 2 on the GPUs are loaded: the nodes must be out of scheduling and without a job.

    Args:
        nodes: Names of the nodes.
        level: 1 to 4; 2 takes some minutes, 3 ten and more, 4 above an hour.
    """
    if level not in LIMIT_S:
        raise ToolError(f"the level of a diagnostic is 1, 2, 3 or 4, not {level}")
    for name in nodes if level > 1 else ():
        node = known(context, name)
        if node.jobs or node.state not in (NodeState.DRAINED, NodeState.DOWN):
            raise ToolError(f"node {name} is {node.state}: cordon it and wait until it is drained before a test of level {level}")
    replies = context.transport.run(nodes, ("dcgmi", "diag", "-r", str(level), "-j"), timeout_s=LIMIT_S[level])
    told: dict[str, Any] = {}
    for node_name, reply in replies.items():
        found = judge(reply)
        rows = [{"status": one.status.value, "text": one.text, "remedy": one.remedy} for one in found]
        told[node_name] = {"status": worst(one.status for one in found).value, "tests": rows}
    return {"nodes": told, "failed": [name for name, one in told.items() if one["status"] == Health.CRITICAL]}


def judge(reply: Reply) -> list[Finding]:
    """Return what failed, or was warned of, in a diagnostic; by structure, since names and nesting change from DCGM 2 to 4."""
    if not reply.reached:
        return [unknown(reply.err or "it did not answer")]
    if reply.status in NO_PROGRAM:
        return [unknown("dcgmi is not there", f"install {DCGM_PACKAGE}", missing=True)]
    # a failed test is told by the status, too, so that is no sign of a broken report
    rows = list(diagnostic_results(json_in(reply.out)))
    if not rows:
        return [unknown(f"dcgmi diag ended with status {reply.status}: {(reply.err or reply.out).strip()[:200]}")]
    levels = {"fail": Health.CRITICAL, "warn": Health.WARNING, "warning": Health.WARNING}
    bad = [
        (
            gpu,
            Finding(
                levels[status.casefold()], f"{{}}: {test}: {text or status}", status, "Pass", remedy="reset the GPU and test again"
            ),
        )
        for test, gpu, status, text in rows
        if status.casefold() in levels
    ]
    return merged(bad) or [ok(f"{len(rows)} results, none failed", len(rows))]
