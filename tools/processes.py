"""Look at the processes of a running job: where they work, what they write to, what their environment says of folders."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from assistant.errors import ToolError
from assistant.records import Job, JobState, Risk
from assistant.records.jobs import MOST_FILES, MOST_FOLDERS, ProcessReport
from assistant.tooling import Context, to_json, tool
from assistant.tools import _processes
from assistant.tools._processes import ProcessState

LOOK_S = 30.0
"""For all nodes together; the script itself ends after some seconds a question."""
MOST_NODES = 16
MOST_NAMED = 8
UNRUN = {
    "T": "is stopped (state T)",
    "t": "is held by a debugger (state t)",
    "D": "waits in the kernel (state D)",
    "Z": "is dead and not collected (state Z)",
}
WAITING = frozenset(("bash", "sh", "dash", "zsh", "ksh", "sleep", "tail", "cat", "tee", "busybox", "coreutils", "slurmstepd"))
"""What runs where a batch script only waits: none of these trains or starts a rank."""
DAEMONS = {
    "Ray": r"raylet|gcs_server|plasma_store\w*|ray|ray::(?:IDLE|Dashboard|RuntimeEnv)\w*"
    r"|python[\d.]* ray/(?!default_worker)\S+\.py",
    "Dask": r"(?:python[\d.]* )?dask[-_](?:scheduler|ssh)",
    "MPI": r"orted|prted|prte|pmixd?|hydra_\w+|mpirun|mpiexec(?:\.hydra)?|orterun|prun",
    "Spark": r"python[\d.]* pyspark\S*daemon\S*",
    "Slurm": r"slurmstepd|srun|sattach",
    "SSH": r"sshd|ssh",
}
"""Programs of a framework that carry others and train nothing themselves.

Sources: ray-project/ray (python/ray/_private/services.py), dask/distributed (cli), openpmix/prrte, Open MPI, MPICH (hydra).
"""
ACCOUNT = re.compile(r"[A-Za-z0-9_][\w.@-]{0,63}\$?", re.ASCII)


@tool(risk=Risk.READ)
def job_processes(context: Context, job: str, most_nodes: int = 2) -> dict[str, Any]:
    """Look at the processes of a running job on its first and last nodes: working folders, open files, variables that name folders.

    `files` are those open for writing; each entry names node, process and time. `unknown` says why a node shows nothing: it needs
    the job's user or root there. `programs` names what runs by node; `gone` is "yes" where no more than a waiting shell is left;
    `left` says so of daemons. `stopped` lists processes in state T while others of the same program are not, `unrun` all that are
    stopped, traced, dead or wait in the kernel, for people. No file of the job is read, and of its environment only variables
    such as OUTPUT_DIR.

    Args:
        job: Scheduler job id.
        most_nodes: On how many nodes to look, 1 to 16: ranks of a job write alike.
    """
    if not 1 <= most_nodes <= MOST_NODES:
        raise ToolError(f"most_nodes must be 1 to {MOST_NODES}, not {most_nodes}")
    shown = context.scheduler.job(job)
    if shown.state is not JobState.RUNNING or not shown.nodes:
        raise ToolError(f"job {job} is {shown.state}: it has no processes to look at")
    if shown.account and not ACCOUNT.fullmatch(shown.account):
        raise ToolError(f"job {job}: {shown.account[:64]!r} is no name of an account, so its processes cannot be told from others")
    chosen = list(dict.fromkeys((*shown.nodes[: (most_nodes + 1) // 2], *shown.nodes[len(shown.nodes) - most_nodes // 2 :])))
    command = _processes.command(job_numbers(shown), shown.account)
    replies = context.transport.run(chosen, command, timeout_s=LOOK_S)
    at = context.clock.now()
    answers: dict[str, _processes.NodeProcesses] = {}
    for node, reply in replies.items():
        if reply.reached and not reply.status:
            answers[node] = _processes.node_processes(node, reply.out, at)
        else:
            why = reply.err.strip()[:200] or f"ended with status {reply.status}"
            answers[node] = _processes.NodeProcesses(why=why)
    programs = {node: list(answer.programs) for node, answer in answers.items() if not answer.why}
    everywhere = len(programs) == len(chosen) >= min(MOST_NODES, len(shown.nodes))
    gone = "yes" if everywhere and _only_waits(programs) else ""
    left = daemons_left(programs) if everywhere and not gone else ""
    text = f"{_text(answers)}; {left}" if left else _text(answers)
    states = [(node, state) for node, answer in answers.items() for state in answer.states if state.program not in WAITING]
    stopped, unrun = stopped_apart(states), unrun_words(states)
    about = {"programs": programs, "gone": gone, "left": left, "stopped": stopped, "unrun": unrun, "text": text}
    return {**to_json(report_of_nodes(answers, at)), **about}


def stopped_apart(states: Sequence[tuple[str, ProcessState]]) -> list[dict[str, Any]]:
    """Return the processes that are stopped while others of the same program are not.

    Where all of them are, somebody has suspended the job. A process in the hands of a debugger is none of these.

    Args:
        states: Processes of the job, with their nodes.
    """
    going = {state.program for _, state in states if state.state not in ("T", "t", "Z", "X")}
    return [
        {"node": node, "pid": state.pid, "program": state.program}
        for node, state in states
        if state.state == "T" and state.program in going
    ][:MOST_NAMED]


def unrun_words(states: Sequence[tuple[str, ProcessState]]) -> str:
    """Return which processes the kernel does not run and why; empty where it runs all."""
    sentences = [
        f"process {state.pid} ({state.program}) of {node} {UNRUN[state.state]}{f' in {state.waits_in}' if _is_known(state) else ''}"
        for node, state in states
        if state.state in UNRUN
    ]
    more = f", and {len(sentences) - MOST_NAMED} more" if len(sentences) > MOST_NAMED else ""
    return f"{', '.join(sentences[:MOST_NAMED])}{more}"


def _is_known(state: ProcessState) -> bool:
    return state.state == "D" and bool(state.waits_in)


def daemons_left(programs: Mapping[str, Sequence[str]]) -> str:
    """Return that nothing but daemons of a framework runs, with their names; empty where anything else does, or nothing."""
    names = sorted({name for those in programs.values() for name in those} - WAITING)
    of = {name: next((kind for kind, form in DAEMONS.items() if re.fullmatch(form, name)), "") for name in names}
    if not names or not all(of.values()):
        return ""
    kinds = dict.fromkeys(of.values())
    parts = [f"{kind} ({', '.join(name for name in names if of[name] == kind)})" for kind in kinds]
    return f"only daemons live of it, none of its own programs: those of {' and '.join(parts)}"


def _only_waits(programs: dict[str, list[str]]) -> bool:
    """Tell whether all that runs is known, and is no more than a batch script that waits."""
    return any(programs.values()) and all(name in WAITING for names in programs.values() for name in names)


def job_numbers(job: Job) -> list[str]:
    """Return the numbers under which a node knows a job; of a part of a heterogeneous job also the one of the whole."""
    numbers = [job.raw_id or job.id, *([job.id.partition("+")[0]] if "+" in job.id else [])]
    if not all(re.fullmatch(r"\d{1,18}", number, re.ASCII) for number in numbers):
        raise ToolError(f"job {job.id}: its processes are found by a number, and the scheduler names none")
    return list(dict.fromkeys(numbers))


def report_of_nodes(answers: dict[str, _processes.NodeProcesses], at: Any) -> ProcessReport:
    """Return what processes of a job write, over all nodes that were asked."""
    files = [file for answer in answers.values() for file in answer.files]
    folders = [folder for answer in answers.values() for folder in answer.folders]
    unknown = {node: answer.why for node, answer in answers.items() if answer.why}
    return ProcessReport(at, 1, tuple(files[:MOST_FILES]), tuple(folders[:MOST_FOLDERS]), unknown)


def _text(answers: dict[str, _processes.NodeProcesses]) -> str:
    """Return what was seen, in a sentence."""
    known = {node: answer for node, answer in answers.items() if not answer.why}
    parts = [f"{node}: not known, {answer.why}" for node, answer in answers.items() if answer.why]
    if known:
        processes = sum(answer.processes for answer in known.values())
        files = sum(len(answer.files) for answer in known.values())
        left_out = sum(answer.left_out for answer in known.values())
        more = f", {left_out} more are deleted, or only a container sees them" if left_out else ""
        parts.insert(0, f"{processes} processes on {len(known)} nodes have {files} files open for writing{more}")
    return "; ".join(parts)
