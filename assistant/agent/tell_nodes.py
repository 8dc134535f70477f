"""Answers about nodes: how they stand, what they did before, what their kernels say."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from datetime import datetime
from typing import Any

from assistant.agent.phrasing import counted, when
from assistant.agent.tell_jobs import SHOWN, failed
from assistant.agent.turn import Turn
from assistant.agent.wording import one_line
from assistant.nodeset import fold
from assistant.records import NodeState

OUT = {NodeState.DRAINING.value, NodeState.DRAINED.value, NodeState.DOWN.value, NodeState.UNKNOWN.value}


def bad_nodes(turn: Turn) -> Iterator[str]:
    """Tell which nodes are out, and why."""
    listed = turn.look("node_states")
    if listed.error:
        yield failed(turn, listed)
        return
    nodes: Sequence[Mapping[str, Any]] = listed.value
    mark = f"[{listed.number}]"
    counted = Counter(node["state"] for node in nodes)
    yield f"{len(nodes)} nodes: {', '.join(f'{count} {state}' for state, count in counted.most_common())} {mark}."
    words = set(turn.asked.question.lower().replace("?", "").split())
    if words & {"idle", "free"}:
        idle = [node["node"] for node in nodes if node["state"] == "idle"]
        yield f"Idle: {fold(idle) or 'none'} {mark}."
        return
    out = [node for node in nodes if node["state"] in OUT]
    if not out:
        yield f"No node is cordoned, drained or down {mark}."
    leases = turn.look("cordon_leases")
    ours = {lease["node"]: lease for lease in (leases.value or {}).get("leases", ())}
    for node in out[:SHOWN]:
        why = one_line(node["reason"], 200) or "no reason given"
        if node["node"] in ours:
            why = f"{_held(ours[node['node']], turn.now)} [{leases.number}]"
        yield f"  {node['node']}  {node['state']}  {why}"
    if len(out) > SHOWN:
        yield f"… and {len(out) - SHOWN} more {mark}."
    if leases.value and leases.value["expired"]:
        yield f"Run out [{leases.number}]: {fold(leases.value['expired'])}"


def node_state(turn: Turn) -> Iterator[str]:
    """Tell how nodes stand."""
    wanted = list(turn.asked.nodes)
    listed = turn.look("node_states", nodes=wanted)
    if listed.error:
        yield failed(turn, listed)
        return
    mark = f"[{listed.number}]"
    leases = turn.look("cordon_leases")
    ours = {lease["node"]: lease for lease in (leases.value or {}).get("leases", ())}
    for node in listed.value[:SHOWN]:
        jobs = f", running job {', '.join(node['jobs'])}" if node["jobs"] else ", no job on it"
        why = f" Reason: {one_line(node['reason'], 240)}" if node["reason"] else ""
        if node["node"] in ours:
            why = f" Reason: {_held(ours[node['node']], turn.now)} [{leases.number}]"
        yield f"{node['node']} is {node['state']}{jobs}, partition {node['partition']} {mark}.{why}"
    if len(wanted) > 1:
        counted = Counter(node["state"] for node in listed.value)
        yield f"Together: {', '.join(f'{count} {state}' for state, count in counted.most_common())} {mark}."
        return
    about = turn.look("list_incidents", node=wanted[0], limit=5)
    for one in (about.value or ())[:3]:
        turn.incidents.append(one["incident"])
        yield f"Incident {one['incident']}: {one['reason'] or one['kind']}, {one['state']} [{about.number}]."
    yield f"To run the health probes on it: check {wanted[0]}"


def node_history(turn: Turn) -> Iterator[str]:
    """Tell what nodes did before."""
    node = turn.asked.nodes[0] if turn.asked.nodes else ""
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
    for row in rows[:SHOWN]:
        reasons = ", ".join(f"{reason} x {count}" for reason, count in row["reasons"].items()) or "nothing"
        last = f", last {when(row['last'], turn.now)}" if row["last"] else ""
        numbers = f" (incidents {', '.join(str(one) for one in row['incidents'])})" if row["incidents"] else ""
        yield (
            f"{row['node']} was to blame {counted(row['blamed'], 'time')} for {reasons}{numbers}; "
            f"part of {counted(row['failed_jobs'], 'failed job')}{last}; score {row['score']:.2f} {mark}."
        )
        turn.incidents += row["incidents"]
    if node:
        about = turn.look("list_incidents", node=node)
        for one in (about.value or ())[:8]:
            turn.incidents.append(one["incident"])
            reason = one["reason"] or one["kind"]
            yield f"Incident {one['incident']}, opened {when(one['opened'], turn.now)}: {reason}, {one['state']} [{about.number}]."


def check_node(turn: Turn) -> Iterator[str]:
    """Run the health probes on nodes and tell what they found."""
    found = turn.look("check_nodes", nodes=list(turn.asked.nodes))
    if found.error:
        yield failed(turn, found)
        return
    mark = f"[{found.number}]"
    for node, told in found.value["nodes"].items():
        status = {"ok": "all that could be checked is well", "unknown": "could not be checked"}.get(told["status"], told["status"])
        yield f"{node}: {status} {mark}."
        probes = [row for row in told.get("probes", ()) if row.get("status") in ("critical", "warning")]
        for row in probes[:8]:
            yield f"  {row['status']}: {row['probe']}: {one_line(row.get('text', ''), 200)}"
        silent = [row["probe"] for row in told.get("probes", ()) if row.get("status") == "unknown"]
        if silent:
            yield f"  without an answer, {counted(len(silent), 'probe')}: {', '.join(dict.fromkeys(silent[:12]))}"
    if found.value["faulty"]:
        yield f"To be taken out of service: {fold(found.value['faulty'])} {mark}."


def kernel_log(turn: Turn) -> Iterator[str]:
    """Show what kernels of nodes say."""
    found = turn.look("kernel_log", nodes=list(turn.asked.nodes), lines=turn.asked.names.lines or 200)
    if found.error:
        yield failed(turn, found)
        return
    mark = f"[{found.number}]"
    for node, text in found.value["text"].items():
        lines = str(text).splitlines()
        marked = [line for line in lines if "xid" in line.lower() or "error" in line.lower() or "fail" in line.lower()]
        yield f"Kernel log of {node}: {counted(len(lines), 'line')}, {len(marked)} of them about Xids, errors or failures {mark}."
        yield "\n".join(f"  {one_line(line, 240)}" for line in (marked or lines)[-12:]) or "  (nothing)"
    for node, why in found.value["unknown"].items():
        yield f"Kernel log of {node}: not known, {one_line(why, 160)} {mark}."


def _held(lease: Mapping[str, Any], now: datetime) -> str:
    """Return why Nightshift holds a node, and how long."""
    until = f"until {when(lease['until'], now)}" if lease["until"] else "without an end"
    return f"cordoned by Nightshift {until}: {one_line(lease['why'], 160)}"
