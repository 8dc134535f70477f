"""Made-up dialogues in the form of `assistant.llm.chat`: a question, a call, the beginning of its result, an answer.

Only the form is to be learned: which call a question is about, that its job is copied, and that an answer says what the result
says. Questions are those of knowledge/intents.toml and
questions.toml; none of tests/cases is seen.
"""

from __future__ import annotations

import json
import random
import tomllib
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

KNOWLEDGE = Path(__file__).parents[2] / "knowledge"
LONGEST = 210
"""Characters of a message that the model's template shows it."""
REASONS = sorted(path.stem for path in (KNOWLEDGE / "reasons").glob("*.toml"))
STATES = ("pending", "running", "failed", "completed", "cancelled", "timeout", "preempted")
ACTIONS = ("restart_same_nodes", "cordon_and_restart", "wait_and_retry", "fix_and_resubmit", "none")
NODE_STATES = ("idle", "allocated", "drained", "draining", "down", "unknown")
COPIES = ("explain_job", "explain_job", "explain_job", "show_job", "show_job", "node_states", "show_incident")
"""Whose answers say what a result says: seen more often, for that is what is hard to learn."""
WORDS = ("NCCL", "OutOfMemory", "nan", "Xid", "Traceback", "ERROR", "loss", "timeout")


class Message(NamedTuple):
    """One message as the template gets it."""

    role: str
    content: str


class _Names(NamedTuple):
    """What one dialogue is about."""

    job: str
    node: str
    incident: str
    word: str


def dialogue(draw: random.Random) -> list[Message]:
    """Return one question with all that follows."""
    name = draw.choice([*_TOLD, *COPIES])
    names = _Names(
        str(draw.randrange(10 ** draw.choice((2, 3, 3, 3, 4, 5)), 10**6))[: draw.choice((3, 4, 4, 4, 5, 6))],
        draw.choice(("node{:02}", "node{:02}", "node{:03}", "gpu-{}", "worker{}")).format(draw.randrange(1, 120)),
        str(draw.randrange(1, 140)),
        draw.choice(WORDS),
    )
    call = {"tool": name, "args": _TOLD[name].arguments(names)}
    value, answer = _TOLD[name].tells(draw, names)
    shown = f"{name}({', '.join(f'{key}={_short(one)}' for key, one in call['args'].items())})"
    if draw.random() < 0.12:
        told = f'[1] It did not work: <data from="{name}">\n{draw.choice(_TROUBLES).format(**names._asdict())}\n</data>'
        answer = f"It is not known: {name} did not work [1]."
    else:
        text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
        if draw.random() < 0.75:
            # results are longer than what the model is shown of them
            text = text.rstrip("}]") + draw.choice(_TAILS).format(draw.randrange(1, 900), names.node)
        told = f'[1]\n<data from="{shown}">\n{text}\n</data>'
    return [
        Message("user", _question(draw, name, names)[:LONGEST]),
        Message("assistant", json.dumps(call, ensure_ascii=False)),
        Message("user", f"Result of {name}:\n{told}"[:LONGEST]),
        Message("assistant", json.dumps({"answer": answer}, ensure_ascii=False)),
    ]


def _question(draw: random.Random, tool: str, names: _Names) -> str:
    text = draw.choice(_sentences()[tool])
    for slot, value in (("job", names.job), ("node", names.node), ("nodes", names.node), ("incident", names.incident)):
        text = text.replace(f"{{{slot}}}", value)
    for slot in ("word", "text"):
        text = text.replace(f"{{{slot}}}", names.word)
    rest = {"job2": "4790", "node2": "node04", "n": "50", "step": "400", "user": "alice", "path": "/data/ckpt"}
    for slot, value in rest.items():
        text = text.replace(f"{{{slot}}}", value)
    text = draw.choice(("", "", "", "please ", "hi, ")) + text + draw.choice(("", "", "?", "?", " please"))
    return text[:1].upper() + text[1:] if draw.random() < 0.2 else text


@cache
def _sentences() -> dict[str, list[str]]:
    """Return questions by tool; of those about a job or a node, only such as name one."""
    by_tool = tomllib.loads((KNOWLEDGE / "intents.toml").read_text(encoding="utf-8"))
    asked = tomllib.loads((KNOWLEDGE / "questions.toml").read_text(encoding="utf-8"))["intent"]
    by_intent = {one["name"]: one["says"] for one in asked}
    kept = {}
    for name, tool in _TOLD.items():
        said = [line for line in by_tool.get(name, "").split("\n") if line.strip()]
        said += [line for intent in tool.like for line in by_intent[intent]]
        kept[name] = [line for line in said if not tool.needs or f"{{{tool.needs}}}" in line]
    return kept


def _short(value: object) -> str:
    return ",".join(map(str, value)) if isinstance(value, list) else str(value)


Tells = Callable[[random.Random, _Names], tuple[Any, str]]


class _Tool(NamedTuple):
    """What dialogues know of a tool."""

    needs: str
    arguments: Callable[[_Names], dict[str, Any]]
    tells: Tells
    like: tuple[str, ...] = ()
    """What the chat calls such questions; knowledge/questions.toml has them under that name."""


def _explained(draw: random.Random, names: _Names) -> tuple[Any, str]:
    reason = draw.choice(REASONS)
    category = draw.choice(("infrastructure", "framework", "script", "none"))
    value = {"reason": reason, "category": category, "action": draw.choice(ACTIONS), "confidence": round(draw.random(), 2)}
    if draw.random() < 0.5:
        value = {**_opened(draw, names), "job": names.job, "node": None, "kind": "job_ended", "reason": reason, "summary": "GPU"}
    if reason in ("unknown", "no_failure"):
        return value, f"The record says {reason} [1]."
    return value, f"Job {names.job} failed: {reason} [1]."


def _opened(draw: random.Random, names: _Names) -> dict[str, Any]:
    state = draw.choice(("open", "recovered", "escalated", "waiting", "closed"))
    return {"incident": int(names.incident), "state": state, "ended": draw.random() < 0.5}


def _job(draw: random.Random, names: _Names) -> tuple[Any, str]:
    state, name = draw.choice(STATES), draw.choice(("llm-7b", "sft-chat", "tokenise", "eval-suite", "llm-13b"))
    value = {"job": names.job, "name": name, "user": draw.choice(("alice", "bob", "carol", "dave")), "state": state, "reason": ""}
    return value, f"Job {names.job} is {state} [1]." if state not in ("failed", "timeout") else f"Job {names.job} {state} [1]."


def _node(draw: random.Random, names: _Names) -> tuple[Any, str]:
    state, reason = draw.choice(NODE_STATES), draw.choice(("", "nightshift:1:2 ecc_error", "bob: fan replacement"))
    return [{"node": names.node, "state": state, "reason": reason}], f"{names.node} is {state} [1]."


def _incident(draw: random.Random, names: _Names) -> tuple[Any, str]:
    value = {**_opened(draw, names), "job": names.job, "node": None, "kind": "job_ended", "reason": draw.choice(REASONS)}
    return value, f"Incident {names.incident} is {value['state']} [1]."


def _lines(draw: random.Random, names: _Names) -> tuple[Any, str]:
    step = draw.randrange(10, 900)
    lines = (
        f" [2026-03-01 00:{step % 60:02}:30] iteration {step:8}/    1000 | consumed samples: {32 * step:12} | elapsed time",
        "[rank0]: Traceback (most recent call last):",
        f"[2026-03-01T06:00:00Z] _job_complete: JobId={names.job} FAILED",
        f"{draw.randrange(1, 4)} lines of job {names.job} match '{names.word}'",
    )
    return draw.choice(lines), f"The log of job {names.job} is in [1]."


def _points(what: str, *begins: str) -> Tells:
    def tells(draw: random.Random, names: _Names) -> tuple[Any, str]:
        number = str(draw.randrange(1, 900))
        text = draw.choice((*begins, "[]")) if begins else "[]"
        for slot, value in (("NODE", names.node), ("JOB", names.job), ("NUMBER", number), ("REASON", draw.choice(REASONS))):
            text = text.replace(slot, value)
        return text, f"The {what} are in [1]."

    return tells


_OF_JOB = ("job", lambda names: {"job": names.job})
_OF_NOTHING = ("", lambda names: {})
_TAILS = (
    ', "partition": "train", "nodes": ["{1}", "node06", "node0{0}"], "submitted": "2026-02-28T21:54:00+00:00", "started": null',
    ', "by": "rule", "summary": "No failure: [2026-03-01 05:59:40] iteration {0}/ 1800 | consumed samples: 28800 | elapsed time',
    ', "summary": "error on {1} after step {0}: [Sun Mar  1 02:00:00 2026] NVRM: Xid (PCI:0000:0f:00): 48, pid=812, name=python3',
    " | learning rate: 1.000000E-04 | global batch size:    32 | lm loss: 2.{0}E+00 | loss scale: 1.0 | grad norm: 0.221 | number",
    ', "note": "waits for approval {0}", "playbook": "faulty_node", "parent": null, "opened": "2026-03-01T03:30:00+00:00", "why',
)
_TROUBLES = ("job {job} is not known", "job {job} has no log yet", "sinfo did not answer within 20 s", "no node {node} here")
_CHECKPOINTS = _points(
    "checkpoints",
    '{"folder": "/data/JOB/checkpoints", "found_by": "#NIGHTSHIFT checkpoints= in the script", "checkpoints": [{"path": "/data',
    '{"path": "/data/JOB/checkpoints/iter_0000NUMBER", "step": NUMBER, "format": "nightshift", '
    '"size_bytes": 166, "saved_at": "2026',
)
_INCIDENTS = _points(
    "incidents", '[{"incident": NUMBER, "state": "escalated", "ended": true, "job": "JOB", "node": null, "kind": "job_ended", "re'
)
_JOBS = _points(
    "jobs", '[{"job": "JOB", "name": "eval-suite", "user": "dave", "state": "pending", "reason": "", "partition": "train"'
)
_CHANGES = _points(
    "changes", '[{"call": NUMBER, "change": "submit llm-7b (4 nodes) again from step NUMBER --exclude=NODE", "status": "pend'
)
_APPROVALS = _points(
    "approvals", '[{"approval": NUMBER, "change": "submit llm-7b (4 nodes) again from step NUMBER --exclude=NODE", "tool": "resub'
)
_PLAN = _points(
    "steps of the plan", '{"reason": "REASON", "action": "cordon_and_restart", "summary": "error on NODE after step NUMBER: [Sun'
)
_PROGRESS = _points(
    "steps of the job",
    '{"status": "past_restart_step", "note": "job JOB reached step NUMBER, past restart step 0", "step": NUMBER, "',
)
_KERNEL = _points(
    "lines of the kernel", '{"text": {"NODE": "[Thu Feb 26 23:00:00 2026] NVRM: Xid (PCI:0000:0f:00): NUMBER, pid=611, name=pyth'
)
_LEDGER = _points(
    "entries of the node", '[{"node": "NODE", "score": 1.885, "blamed": 2, "failed_jobs": 2, "reasons": {"REASON": 2}, "incidents'
)
_TOLD = {
    "explain_job": _Tool(*_OF_JOB, _explained, ("explain_job",)),
    "show_job": _Tool(*_OF_JOB, _job, ("job_status",)),
    "tail_log": _Tool(*_OF_JOB, _lines, ("show_log",)),
    "search_log": _Tool("job", lambda names: {"job": names.job, "pattern": names.word}, _lines, ("search_log",)),
    "list_checkpoints": _Tool(*_OF_JOB, _CHECKPOINTS, ("checkpoints",)),
    "choose_checkpoint": _Tool(*_OF_JOB, _CHECKPOINTS, ("newest_checkpoint",)),
    "plan_recovery": _Tool(*_OF_JOB, _PLAN, ("plan",)),
    "job_progress": _Tool(*_OF_JOB, _PROGRESS, ("progress",)),
    "scheduler_log": _Tool(*_OF_JOB, _lines, ("scheduler_log",)),
    "node_states": _Tool("node", lambda names: {"nodes": [names.node]}, _node, ("node_state",)),
    "kernel_log": _Tool("node", lambda names: {"nodes": [names.node]}, _KERNEL, ("kernel_log",)),
    "node_ledger": _Tool("node", lambda names: {"node": names.node}, _LEDGER, ("node_history",)),
    "show_incident": _Tool("incident", lambda names: {"incident": int(names.incident)}, _incident, ("explain_incident",)),
    "list_incidents": _Tool(*_OF_NOTHING, _INCIDENTS, ("incidents", "overview")),
    "list_jobs": _Tool(*_OF_NOTHING, _JOBS, ("list_jobs", "failed_jobs")),
    "list_approvals": _Tool(*_OF_NOTHING, _APPROVALS, ("approvals",)),
    "recent_changes": _Tool(*_OF_NOTHING, _CHANGES, ("changes",)),
}
