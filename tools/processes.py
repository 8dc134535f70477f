"""Look at the processes of a job: what a running one writes to, and whether the program of an ended one lives on and saves."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

from assistant.errors import NightshiftError, ToolError
from assistant.ports import Reply
from assistant.records import Checkpoint, Job, JobState, Risk
from assistant.records.jobs import MOST_FILES, MOST_FOLDERS, NONE_THERE, ProcessReport
from assistant.recover.comparison import said_over
from assistant.recover.joblog import log_lines, log_points, logs_of
from assistant.recover.wrong_start import AHEAD, TEAR_DOWN
from assistant.tooling import Context, to_json, tool
from assistant.tools import _processes
from assistant.tools._processes import ProcessState
from assistant.tools.checkpoints import search_of

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
    `left` says so of daemons. `scripts` names by node what its shells run, with an empty name where that is not told. `stopped`
    lists processes in state T while others of the same program are not, `unrun` all that are stopped, traced, dead or wait in the
    kernel, for people. No file of the job is read, and of its environment only variables such as OUTPUT_DIR.

    Args:
        job: Scheduler job id.
        most_nodes: On how many nodes to look, 1 to 16: ranks of a job write alike.
    """
    if not 1 <= most_nodes <= MOST_NODES:
        raise ToolError(f"most_nodes must be 1 to {MOST_NODES}, not {most_nodes}")
    running_job = context.scheduler.job(job)
    if running_job.state is not JobState.RUNNING or not running_job.nodes:
        raise ToolError(f"job {job} is {running_job.state}: it has no processes to look at")
    _must_have_account(running_job)
    nodes = list(
        dict.fromkeys((*running_job.nodes[: (most_nodes + 1) // 2], *running_job.nodes[len(running_job.nodes) - most_nodes // 2 :]))
    )
    command = _processes.command(job_numbers(running_job), running_job.account)
    replies = context.transport.run(nodes, command, timeout_s=LOOK_S)
    at = context.clock.now()
    answers = _answers(replies, at)
    programs = {node: list(answer.programs) for node, answer in answers.items() if not answer.why}
    everywhere = len(programs) == len(nodes) >= min(MOST_NODES, len(running_job.nodes))
    all_gone = "yes" if everywhere and _only_waits(programs) else ""
    daemon_note = daemons_left(programs) if everywhere and not all_gone else ""
    text = f"{_text(answers)}; {daemon_note}" if daemon_note else _text(answers)
    states = [(node, state) for node, answer in answers.items() for state in answer.states if state.program not in WAITING]
    stopped, unrun = stopped_apart(states), unrun_words(states)
    scripts = {node: list(answer.scripts) for node, answer in answers.items() if not answer.why}
    about = {
        "programs": programs,
        "scripts": scripts,
        "gone": all_gone,
        "left": daemon_note,
        "stopped": stopped,
        "unrun": unrun,
        "text": text,
    }
    return {**to_json(report_of_nodes(answers, at)), **about}


def _must_have_account(job: Job) -> None:
    """Make sure that the account of a job, where it has one, can be looked for on nodes.

    Raises:
        ToolError: It is no name of an account.
    """
    if job.account and not ACCOUNT.fullmatch(job.account):
        raise ToolError(f"job {job.id}: {job.account[:64]!r} is no name of an account, so its processes cannot be told from others")


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
    names = sorted({name for node_programs in programs.values() for name in node_programs} - WAITING)
    framework_of = {name: next((kind for kind, form in DAEMONS.items() if re.fullmatch(form, name)), "") for name in names}
    if not names or not all(framework_of.values()):
        return ""
    kinds = dict.fromkeys(framework_of.values())
    parts = [f"{kind} ({', '.join(name for name in names if framework_of[name] == kind)})" for kind in kinds]
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
    answered = {node: answer for node, answer in answers.items() if not answer.why}
    parts = [f"{node}: not known, {answer.why}" for node, answer in answers.items() if answer.why]
    if answered:
        processes = sum(answer.processes for answer in answered.values())
        files = sum(len(answer.files) for answer in answered.values())
        left_out = sum(answer.left_out for answer in answered.values())
        more = f", {left_out} more are deleted, or only a container sees them" if left_out else ""
        parts.insert(0, f"{processes} processes on {len(answered)} nodes have {files} files open for writing{more}")
    return "; ".join(parts)


MOST_LIVING_NAMED = 4
"""Processes that are named to people."""
OF_SLURM = frozenset(("slurmstepd", "srun", "sattach"))
"""Programs of Slurm itself, which carry others."""
DEAD = frozenset("ZX")
"""States of a process that runs no more. Source: proc(5)."""


@dataclass(frozen=True, slots=True)
class JobTraces:
    """What a job has written last, as far as that is known."""

    step: int | None = None
    """The last step of its log."""
    logged_at: datetime | None = None
    saved: Checkpoint | None = None
    last_line: str = ""
    """The last one of its log."""

    @property
    def written_at(self) -> datetime | None:
        """When its log or its checkpoint folder was written last."""
        times = [at for at in (self.logged_at, self.saved.saved_at if self.saved is not None else None) if at is not None]
        return max(times, default=None)


@tool(risk=Risk.READ)
def living_program(context: Context, job: str, nodes: list[str] | None = None) -> dict[str, Any]:
    """Tell whether the program of a job that the scheduler calls ended still lives on its nodes, and what it wrote last.

    `lives` is "yes" where a process that is provably the job's was seen, or where a node cannot be asked and its log or checkpoint
    folder is still written long after its end. `gone` is "yes" where each node answered and has none; else it is not known.
    `says_over` is "yes" where the log ends with words that it is through, `over` where also nothing lives and its last step was
    saved. `living` lists the processes, `unknown` says why a node shows nothing. Daemons of a framework and dead processes count
    as none.

    Args:
        job: Scheduler job id of the attempt that ended.
        nodes: Those of its nodes on which to look, 16 at most; all when not given.
    """
    ended_job = context.scheduler.job(job)
    if not ended_job.state.ended or ended_job.ended is None:
        raise ToolError(f"job {job} is {ended_job.state}: job_processes looks at the processes of a running job")
    _must_have_account(ended_job)
    own_nodes = [node for node in ended_job.nodes if nodes is None or node in nodes][:MOST_NODES]
    if not own_nodes:
        raise ToolError(f"job {job} ran on none of these nodes")
    replies = context.transport.run(own_nodes, _processes.command(job_numbers(ended_job), ended_job.account), timeout_s=LOOK_S)
    at = context.clock.now()
    answers = _answers(replies, at)
    living = _living(answers)
    unknown = {node: answer.why for node, answer in answers.items() if answer.why not in ("", NONE_THERE)}
    traces = _traces(context, ended_job)
    late = bool(unknown) and _is_late(ended_job, traces, at)
    lives = bool(living) or late
    return {
        **to_json(report_of_nodes(answers, at)),
        "lives": "yes" if lives else "",
        "gone": "yes" if not living and not unknown else "",
        "over": "yes" if not living and not unknown and _is_over(traces) else "",
        "says_over": "yes" if said_over(traces.last_line) else "",
        "living": living,
        "unknown": unknown,
        "step": traces.step,
        "last_line": traces.last_line,
        "note": _note(ended_job, living, unknown, traces) if lives else _ended_note(traces),
    }


@tool(risk=Risk.READ)
def former_program(context: Context, job: str, nodes: list[str]) -> dict[str, Any]:
    """Tell whether the program of an earlier attempt of a job that was queued again still lives on nodes which the job has left.

    `lives` is "yes" where a process that is provably the job's was seen, `gone` is "yes" where each node answered and has none;
    else it is not known. `living` lists the processes, `unknown` says why a node shows nothing. Daemons of a framework and dead
    processes count as none.

    Args:
        job: Scheduler job id; it waits in the queue, or runs on other nodes.
        nodes: Of the earlier attempt, 16 at most; those on which the job runs now are left out.
    """
    requeued_job = context.scheduler.job(job)
    _must_have_account(requeued_job)
    left_nodes = [node for node in nodes if node not in requeued_job.nodes or requeued_job.state is JobState.PENDING][:MOST_NODES]
    if not left_nodes:
        raise ToolError(f"job {job} runs on all of these nodes: what lives there may be its own")
    replies = context.transport.run(
        left_nodes, _processes.command(job_numbers(requeued_job), requeued_job.account), timeout_s=LOOK_S
    )
    answers = _answers(replies, context.clock.now())
    living = _living(answers)
    unknown = {node: answer.why for node, answer in answers.items() if answer.why not in ("", NONE_THERE)}
    return {
        "lives": "yes" if living else "",
        "gone": "yes" if not living and not unknown else "",
        "living": living,
        "unknown": unknown,
        "note": _process_names(living),
    }


def _answers(replies: Mapping[str, Reply], at: datetime) -> dict[str, _processes.NodeProcesses]:
    """Return what nodes say of the processes of a job."""
    return {
        node: _processes.node_processes(node, reply.out, at)
        if reply.reached and not reply.status
        else _processes.NodeProcesses(why=reply.err.strip()[:200] or f"ended with status {reply.status}")
        for node, reply in replies.items()
    }


def _living(answers: Mapping[str, _processes.NodeProcesses]) -> list[dict[str, Any]]:
    """Return the processes that may still work, by node and number."""
    if daemons_left({node: answer.programs for node, answer in answers.items() if answer.programs}):
        return []
    return [
        {"node": node, "pid": state.pid, "program": state.program}
        for node, answer in answers.items()
        for state in answer.states
        if state.state not in DEAD and state.program not in OF_SLURM
    ]


def _traces(context: Context, job: Job) -> JobTraces:
    """Return what a job has written last; nothing of what cannot be read now."""
    step, logged_at, saved, last_line = None, None, None, ""
    try:
        points = log_points(job)
        step = points[-1].step if points else None
        logged_at = max((file.written for file in logs_of(job).readable if file.written is not None), default=None)
        last_line = next((line.text.strip() for line in reversed(list(log_lines(job))) if line.text.strip()), "")[:200]
        inventory = search_of(context, job).inventory
        saved = (
            max(inventory.checkpoints, key=lambda save: (save.saved_at, save.step), default=None) if inventory is not None else None
        )
    except (NightshiftError, OSError):
        pass  # what is known until then counts
    return JobTraces(step, logged_at if job.dated_logs else None, saved, last_line)


def _is_late(job: Job, traces: JobTraces, now: datetime) -> bool:
    """Tell whether a job is written for longer than what processes that are being ended may write."""
    written_at = traces.written_at
    return job.dated_logs and job.ended is not None and written_at is not None and job.ended + TEAR_DOWN < written_at < now + AHEAD


def _is_over(traces: JobTraces) -> bool:
    """Tell whether a log ends with the end of the training, and its last step was saved."""
    saved = traces.saved
    return said_over(traces.last_line) and saved is not None and traces.step is not None and saved.step >= traces.step


def _process_names(living: Sequence[Mapping[str, Any]]) -> str:
    """Return node, program and id of the first processes, and how many more there are."""
    names = [f"{process['node']} ({process['program'] or 'a process'}, pid {process['pid']})" for process in living]
    more = f" and {len(names) - MOST_LIVING_NAMED} more" if len(names) > MOST_LIVING_NAMED else ""
    return f"{', '.join(names[:MOST_LIVING_NAMED])}{more}"


def _note(job: Job, living: Sequence[Mapping[str, Any]], unknown: Mapping[str, str], traces: JobTraces) -> str:
    """Return that a program lives, where, and what it wrote last, for people."""
    state = f"though the scheduler calls the job {job.state} since {_clock(job.ended)}"
    if living:
        sentence = f"the program of job {job.id} still runs on {_process_names(living)}, {state}"
    else:
        nodes = ", ".join(unknown)
        sentence = (
            f"the program of job {job.id} may still run on {nodes}, which cannot be asked, {state}: its files are still written"
        )
    parts = [sentence]
    if traces.saved is not None:
        parts.append(f"it saved step {traces.saved.step} at {_clock(traces.saved.saved_at)} ({traces.saved.path})")
    if traces.step is not None:
        parts.append(f"its last logged step is {traces.step}")
    return "; ".join(parts)


def _ended_note(traces: JobTraces) -> str:
    step = f"its last logged step is {traces.step}" if traces.step is not None else "its log shows no step"
    saved = f", its last save {traces.saved.path}" if traces.saved is not None else ""
    return f"{step}{saved}; the last line of its log: {traces.last_line!r}" if traces.last_line else f"{step}{saved}"


def _clock(at: datetime | None) -> str:
    return f"{at.astimezone(UTC):%H:%M:%S} UTC" if at is not None else "an unknown time"
