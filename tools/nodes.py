"""Look at nodes and check them: their state, kernel log and health probes, what speaks against them, and DCGM's diagnostics."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any

from assistant.content.devices import limits
from assistant.errors import ToolError, Unavailable
from assistant.ports import Reply
from assistant.probing import Circumstances, Finding, Health, merged, ok, unknown, worst
from assistant.records import Node, NodeState, Risk
from assistant.recover.identity import ours
from assistant.recover.situation import witnesses
from assistant.tooling import Context, Probe, tool
from assistant.tools.cordons import known_node
from assistant.tools.probes._check import NodeHealth, check, checked_values, parsed_time
from assistant.tools.probes.gpu_reports import DCGM_PACKAGE, diagnostic_results, json_in

COMMAND_NOT_FOUND = 127


@tool(risk=Risk.READ)
def node_states(context: Context, nodes: list[str] | None = None) -> list[dict[str, Any]]:
    """List nodes with their state in the scheduler, why they are out, and their jobs.

    Args:
        nodes: Only these; all when not given.
    """
    chosen_nodes = [node for node in context.scheduler.nodes() if nodes is None or node.name in nodes]
    return [
        {"node": node.name, "state": node.state.value, "reason": node.reason, "partition": node.partition, "jobs": list(node.jobs)}
        for node in chosen_nodes
    ]


@tool(risk=Risk.READ)
def kernel_log(context: Context, nodes: list[str], lines: int = 2000) -> dict[str, Any]:
    """Show the end of the kernel log of nodes: `text` by node, and under `unknown` why a node did not answer.

    Args:
        nodes: Names of the nodes.
        lines: How many of the last lines of each.
    """
    command = context.commands.get("kernel_log")
    if command is None:
        raise ToolError("no command reads the kernel log here; set commands.kernel_log in the settings")
    replies = context.transport.run(nodes, command, timeout_s=context.command_timeout_s)
    unknown = {node: why for node, reply in replies.items() if (why := _why_unknown(reply, command[0]))}
    text = {node: "\n".join(reply.out.splitlines()[-lines:]) for node, reply in replies.items() if node not in unknown}
    return {"text": text, "unknown": unknown}


@tool(risk=Risk.READ)
def check_nodes(
    context: Context,
    nodes: list[str] | None = None,
    since: str = "",
    job_started: str = "",
    idle: bool = False,
    seen: list[str] | None = None,
    accused: list[str] | None = None,
) -> dict[str, Any]:
    """Run the health probes on nodes: under `nodes` a status for each (ok, warning, critical, unknown) and what each probe said.

    `gpu_faults` lists nodes where a GPU shows since the job, or since its driver was loaded, an error by which it may compute
    wrong, and `gpu_fault_words` says which: a restart after a loss that is no number stays away from them. `faulty` lists those
    whose hardware must be taken out of service: one sign for which the vendor asks that, or two critical ones of different
    witnesses. `slowed` lists those on which a job may be slow: faulty ones, and ones whose GPUs are held back now by heat or
    power; `slowed_words` says by what, and `link_words` what is wrong with links, which may have been so before.
    A node that does not answer, a program that is missing or does not end, is unknown, never bad.

    Args:
        nodes: Names of the nodes; all when not given.
        since: Time from which on kernel messages count, such as the last check; when not given one day, and never before the job.
        job_started: When the job began; a boot after that is critical.
        idle: Whether it is known that no job runs there, so that what uses the GPUs was left behind.
        seen: Identities of kernel messages that an earlier check returned as `events`; they do not count again.
        accused: Nodes that one witness speaks against; `seconded` lists those of them against which something else speaks, too.
    """
    all_nodes: Sequence[Node] = ()
    try:
        all_nodes = context.scheduler.nodes()
    except Unavailable:
        if nodes is None:
            raise
    busy = {node.name: bool(node.jobs) for node in all_nodes}
    device_limits, now = limits(context.site), context.clock.now()
    try:
        began = parsed_time(job_started, "job_started")
        circumstances = Circumstances(
            device_limits,
            now,
            since=parsed_time(since, "since") or _window(now, began, device_limits.node.kernel_window_h),
            job_started=began,
            busy=False if idle else None,
            seen=frozenset(seen or ()),
        )
    except ValueError as error:
        raise ToolError(str(error)) from error
    checked = check(context, list(busy) if nodes is None else nodes, circumstances, {} if idle else busy)
    slow_words = slow_down_words(checked)
    return {
        "nodes": {node: checked_values(result) for node, result in checked.items()},
        "faulty": [node for node, result in checked.items() if result.faulty],
        "gpu_faults": list(faults := gpu_faults(checked)),
        "gpu_fault_words": "; ".join(f"{node}: {words}" for node, words in faults.items()),
        "slowed": [node for node, result in checked.items() if result.faulty or node in slow_words],
        "slowed_words": slow_words,
        "link_words": link_words(checked),
        "seconded": [node for node in accused or () if has_second_witness(context, node, checked, all_nodes)],
        "events": sorted({event for result in checked.values() for event in result.events}),
    }


def _window(now: datetime, began: datetime | None, hours: float) -> datetime | None:
    """Return from when on kernel messages count where the caller names no time; None for the usual window."""
    return max(began, now - timedelta(hours=hours)) if began is not None else None


def _why_unknown(reply: Reply, program: str) -> str:
    """Return why a reply says nothing about the node; empty when it does."""
    if not reply.reached:
        return reply.err or "it did not answer"
    if reply.status == COMMAND_NOT_FOUND:
        return f"{program} is not there"
    return f"{program} ended with status {reply.status}: {reply.err.strip()[:200]}" if reply.status else ""


DIAGNOSTIC_LIMIT_S = {1: 120.0, 2: 600.0, 3: 2700.0, 4: 10800.0}
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
    if level not in DIAGNOSTIC_LIMIT_S:
        raise ToolError(f"the level of a diagnostic is 1, 2, 3 or 4, not {level}")
    for name in nodes if level > 1 else ():
        node = known_node(context, name)
        if node.jobs or node.state not in (NodeState.DRAINED, NodeState.DOWN):
            raise ToolError(f"node {name} is {node.state}: cordon it and wait until it is drained before a test of level {level}")
    replies = context.transport.run(nodes, ("dcgmi", "diag", "-r", str(level), "-j"), timeout_s=DIAGNOSTIC_LIMIT_S[level])
    results: dict[str, Any] = {}
    for node_name, reply in replies.items():
        findings = judge_diagnostic(reply)
        rows = [{"status": finding.status.value, "text": finding.text, "remedy": finding.remedy} for finding in findings]
        results[node_name] = {"status": worst(finding.status for finding in findings).value, "tests": rows}
    return {"nodes": results, "failed": [name for name, result in results.items() if result["status"] == Health.CRITICAL]}


def judge_diagnostic(reply: Reply) -> list[Finding]:
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


LIVE_COUNTS = ("since the driver was loaded", "the driver says", "the driver asks")
"""What the memory probe finds of now; errors of a GPU's whole life may be older than any job."""


def gpu_faults(checked: Mapping[str, NodeHealth]) -> dict[str, str]:
    """Return what speaks against the GPUs of nodes, by node, for people; a node without a finding or an answer is left out.

    Args:
        checked: What the probes said, by node.
    """
    texts_by_node = {
        node: [finding.text for probe, finding in answer.findings if _is_fault(probe, finding)] for node, answer in checked.items()
    }
    return {node: ", ".join(texts[:2])[:400] for node, texts in texts_by_node.items() if texts}


def _is_fault(probe: Probe, finding: Finding) -> bool:
    if finding.status is not Health.CRITICAL:
        return False
    return probe.name == "kernel_log" or (probe.name == "gpu_memory" and any(words in finding.text for words in LIVE_COUNTS))


HOLD_BACK = frozenset({"gpu_clocks", "gpu_temperature", "amd"})
"""Probes whose critical findings are of now and make a node slow by themselves."""
LINKS = frozenset({"gpu_pcie", "nvlink", "infiniband"})
"""Probes of what may have been so before: a job that was fast there is not slow for it."""
MOST_WORDS = 400


def slow_down_words(checked: Mapping[str, NodeHealth]) -> dict[str, str]:
    """Return what holds nodes back now, by node, for people; a node without a critical finding of that kind is left out.

    Args:
        checked: What the probes said, by node.
    """
    return _critical_words(checked, HOLD_BACK)


def link_words(checked: Mapping[str, NodeHealth]) -> dict[str, str]:
    """Return what is wrong with the links of nodes, by node, for people; since when is not known.

    Args:
        checked: What the probes said, by node.
    """
    return _critical_words(checked, LINKS)


def _critical_words(checked: Mapping[str, NodeHealth], names: frozenset[str]) -> dict[str, str]:
    texts_by_node = {
        node: [finding.text for probe, finding in answer.findings if probe.name in names and finding.status is Health.CRITICAL]
        for node, answer in checked.items()
    }
    return {node: ", ".join(dict.fromkeys(texts))[:MOST_WORDS] for node, texts in texts_by_node.items() if texts}


REPEATED = timedelta(days=30)
"""To blame in an earlier incident within this time: the same node twice is no chance."""


def has_second_witness(context: Context, node: str, checked: Mapping[str, NodeHealth], all_nodes: Sequence[Node]) -> bool:
    """Tell whether a second witness speaks against a node.

    Args:
        context: Its history holds the ledger of nodes.
        node: Is accused by one.
        checked: What the probes say of it and of others.
        all_nodes: All nodes, as the scheduler shows them.
    """
    accusers = _accusers(context, node)
    findings = checked[node].findings if node in checked else ()
    if any(finding.status is Health.CRITICAL and probe.witness not in accusers for probe, finding in findings):
        return True
    if "scheduler" not in accusers and any(
        entry.name == node and entry.state is NodeState.DOWN and not ours(entry.reason) for entry in all_nodes
    ):
        return True
    return _alone_in_silence(node, checked) or _blamed_before(context, node)


def _accusers(context: Context, node: str) -> frozenset[str]:
    """Return who accuses the node in the diagnosis of the call's incident: the same witness once more is no second one."""
    diagnosis = context.history.diagnosis(context.incident) if context.incident is not None else None
    return witnesses(diagnosis, node) if diagnosis is not None else frozenset()


def _alone_in_silence(node: str, checked: Mapping[str, NodeHealth]) -> bool:
    """Tell whether a node does not answer while others do: then it is not the way to all of them."""
    answers = {name: any(f.status is not Health.UNKNOWN for _, f in health.findings) for name, health in checked.items()}
    return node in answers and not answers[node] and any(answers.values())


def _blamed_before(context: Context, node: str) -> bool:
    """Tell whether somebody else than the user of this job had the node blamed before, or a machine had.

    What a job prints is its user's word: the same user's word twice is one witness, where there are other users whom it could harm.
    """
    since = context.clock.now() - REPEATED
    earlier = [
        sighting.incident
        for sighting in context.history.sightings(since, node)
        if sighting.blamed and sighting.incident != context.incident
    ]
    if not earlier:
        return False
    if len({job.user for job in context.scheduler.jobs()}) <= 1:
        return True
    user = _user_of(context, context.incident)
    return any(
        _machine_accuses(context, incident, node) or (user and _user_of(context, incident) not in ("", user))
        for incident in earlier
    )


def _machine_accuses(context: Context, incident: int, node: str) -> bool:
    diagnosis = context.history.diagnosis(incident)
    return diagnosis is not None and bool(witnesses(diagnosis, node) - {"job"})


def _user_of(context: Context, incident: int | None) -> str:
    """Return the user of an incident's job as the scheduler shows it now, empty where it has forgotten the job."""
    job_id = context.history.incident(incident).job if incident is not None else None
    try:
        return context.scheduler.job(job_id).user if job_id is not None else ""
    except (ToolError, Unavailable):
        return ""
