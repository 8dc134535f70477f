"""Answers about nodes: how they stand, what they did before, what their kernels say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from assistant.agent.phrasing import counted, when
from assistant.agent.tell_jobs import MOST_ROWS, failed
from assistant.agent.turn import QuestionTurn
from assistant.agent.wording import one_line
from assistant.nodeset import fold
from assistant.records import NodeState

OUT = {NodeState.DRAINING.value, NodeState.DRAINED.value, NodeState.DOWN.value, NodeState.UNKNOWN.value}


def bad_nodes(turn: QuestionTurn) -> Iterator[str]:
    """Tell which nodes are out, and why."""
    listed = turn.look("node_states")
    if listed.error:
        yield failed(turn, listed)
        return
    nodes: Sequence[Mapping[str, Any]] = listed.value
    mark = f"[{listed.number}]"
    counted = Counter(node["state"] for node in nodes)
    yield f"{len(nodes)} nodes: {', '.join(f'{count} {state}' for state, count in counted.most_common())} {mark}."
    words = set(turn.request.question.lower().replace("?", "").split())
    if words & {"idle", "free"}:
        idle = [node["node"] for node in nodes if node["state"] == "idle"]
        yield f"Idle: {fold(idle) or 'none'} {mark}."
        return
    out = [node for node in nodes if node["state"] in OUT]
    if not out:
        yield f"No node is cordoned, drained or down {mark}."
    leases = turn.look("cordon_leases")
    leased = {lease["node"]: lease for lease in (leases.value or {}).get("leases", ())}
    for node in out[:MOST_ROWS]:
        why = one_line(node["reason"], 200) or "no reason given"
        if node["node"] in leased:
            why = f"{_lease_text(leased[node['node']], turn.now)} [{leases.number}]"
        yield f"  {node['node']}  {node['state']}  {why}"
    if len(out) > MOST_ROWS:
        yield f"… and {len(out) - MOST_ROWS} more {mark}."
    if leases.value and leases.value["expired"]:
        yield f"Run out [{leases.number}]: {fold(leases.value['expired'])}"


def node_state(turn: QuestionTurn) -> Iterator[str]:
    """Tell how nodes stand."""
    nodes = list(turn.request.nodes)
    listed = turn.look("node_states", nodes=nodes)
    if listed.error:
        yield failed(turn, listed)
        return
    mark = f"[{listed.number}]"
    leases = turn.look("cordon_leases")
    leased = {lease["node"]: lease for lease in (leases.value or {}).get("leases", ())}
    for node in listed.value[:MOST_ROWS]:
        jobs = f", running job {', '.join(node['jobs'])}" if node["jobs"] else ", no job on it"
        why = f" Reason: {one_line(node['reason'], 240)}" if node["reason"] else ""
        if node["node"] in leased:
            why = f" Reason: {_lease_text(leased[node['node']], turn.now)} [{leases.number}]"
        yield f"{node['node']} is {node['state']}{jobs}, partition {node['partition']} {mark}.{why}"
    if len(nodes) > 1:
        counted = Counter(node["state"] for node in listed.value)
        yield f"Together: {', '.join(f'{count} {state}' for state, count in counted.most_common())} {mark}."
        return
    about = turn.look("list_incidents", node=nodes[0], limit=5)
    for incident in (about.value or ())[:3]:
        turn.incidents.append(incident["incident"])
        yield f"Incident {incident['incident']}: {incident['reason'] or incident['kind']}, {incident['state']} [{about.number}]."
    yield f"To run the health probes on it: check {nodes[0]}"


def node_history(turn: QuestionTurn) -> Iterator[str]:
    """Tell what nodes did before."""
    node = turn.request.nodes[0] if turn.request.nodes else ""
    ledger = turn.look("node_ledger", node=node)
    if ledger.error:
        yield failed(turn, ledger)
        return
    mark = f"[{ledger.number}]"
    rows = ledger.value
    if not rows:
        yield (
            f"{node} was never part of a failed job that the ledger knows {mark}."
            if node
            else f"The ledger of nodes is empty {mark}."
        )
    for row in rows[:MOST_ROWS]:
        reasons = ", ".join(f"{reason} x {count}" for reason, count in row["reasons"].items()) or "nothing"
        last = f", last {when(row['last'], turn.now)}" if row["last"] else ""
        numbers = f" (incidents {', '.join(str(incident) for incident in row['incidents'])})" if row["incidents"] else ""
        yield (
            f"{row['node']} was to blame {counted(row['blamed'], 'time')} for {reasons}{numbers}; "
            f"part of {counted(row['failed_jobs'], 'failed job')}{last}; score {row['score']:.2f} {mark}."
        )
        turn.incidents += row["incidents"]
    if node:
        about = turn.look("list_incidents", node=node)
        for incident in (about.value or ())[:8]:
            turn.incidents.append(incident["incident"])
            reason = incident["reason"] or incident["kind"]
            opened = when(incident["opened"], turn.now)
            yield f"Incident {incident['incident']}, opened {opened}: {reason}, {incident['state']} [{about.number}]."


def check_node(turn: QuestionTurn) -> Iterator[str]:
    """Run the health probes on nodes and tell what they found."""
    source = turn.look("check_nodes", nodes=list(turn.request.nodes))
    if source.error:
        yield failed(turn, source)
        return
    mark = f"[{source.number}]"
    for node, health in source.value["nodes"].items():
        status = {"ok": "all that could be checked is well", "unknown": "could not be checked"}.get(
            health["status"], health["status"]
        )
        yield f"{node}: {status} {mark}."
        probes = [row for row in health.get("probes", ()) if row.get("status") in ("critical", "warning")]
        for row in probes[:8]:
            yield f"  {row['status']}: {row['probe']}: {one_line(row.get('text', ''), 200)}"
        silent = [row["probe"] for row in health.get("probes", ()) if row.get("status") == "unknown"]
        if silent:
            yield f"  without an answer, {counted(len(silent), 'probe')}: {', '.join(dict.fromkeys(silent[:12]))}"
    if source.value["faulty"]:
        yield f"To be taken out of service: {fold(source.value['faulty'])} {mark}."


def kernel_log(turn: QuestionTurn) -> Iterator[str]:
    """Show what kernels of nodes say."""
    source = turn.look("kernel_log", nodes=list(turn.request.nodes), lines=turn.request.names.lines or 200)
    if source.error:
        yield failed(turn, source)
        return
    mark = f"[{source.number}]"
    for node, text in source.value["text"].items():
        lines = str(text).splitlines()
        marked = [line for line in lines if "xid" in line.lower() or "error" in line.lower() or "fail" in line.lower()]
        yield f"Kernel log of {node}: {counted(len(lines), 'line')}, {len(marked)} of them about Xids, errors or failures {mark}."
        yield "\n".join(f"  {one_line(line, 240)}" for line in (marked or lines)[-12:]) or "  (nothing)"
    for node, why in source.value["unknown"].items():
        yield f"Kernel log of {node}: not known, {one_line(why, 160)} {mark}."


def _lease_text(lease: Mapping[str, Any], now: datetime) -> str:
    """Return why Nightshift holds a node, and how long."""
    end = f"until {when(lease['until'], now)}" if lease["until"] else "without an end"
    return f"cordoned by Nightshift {end}: {one_line(lease['why'], 160)}"
