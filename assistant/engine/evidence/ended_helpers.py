"""A helper process that a job starts beside its training and that the kernel ended, while its ranks wait for what it made.

A stager of data, a tokenizer, a sidecar: the job lives on, logs nothing, and stands still until somebody ends it. Nothing outside
brings the helper back, and a restart does. It is proven where all of this holds: the job stands still and none of its processes
uses the CPU, the kernel of one of its nodes ended a process of its owner, a script of the job starts a program of that name, and no
process of that name is left there.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import PurePosixPath
from typing import TYPE_CHECKING, Any, NamedTuple

from assistant.engine.evidence.own_servers import MOST_NODES, last_kill
from assistant.engine.gather import ask
from assistant.engine.retry_policy import AWAITS_ITSELF, WORKS
from assistant.errors import NightshiftError
from assistant.records import Action, Category, Diagnosis, Event, EventKind, Incident, Job, JobState
from assistant.recover.directives import start_line
from assistant.recover.job_program import FileReader, job_launches
from assistant.untrusted import reading_as
from assistant.watch.hang import WAITS

if TYPE_CHECKING:
    from assistant.engine.ports import EnginePort

REASONS = frozenset({"out_of_memory_error", "hang", "killed", "unknown"})
COMM_LENGTH = 15
"""Characters of a process' name that Linux keeps. Source: TASK_COMM_LEN, 16 with the end mark."""
SMALL_KIB = 100 << 10
"""A process that held less has not used up a node's memory."""
_VICTIM = re.compile(r"\bKilled process \d{1,10} \(([^)]{1,64})\)(?:.{0,200}?anon-rss:(\d{1,12})\s?kB)?")
_INTERPRETER = re.compile(r"(?:python|perl|ruby|node|java|bash|sh|zsh|srun|slurm\w*)[\d.]*")
_ALONE = re.compile(r"(?:python|perl|ruby|node|java)[\d.]*")
"""An interpreter whose program the list does not tell."""
_WORD = re.compile(r"[\w./$\{\}-]{2,200}")


class EndedHelper(NamedTuple):
    """A helper of a living job that the kernel has ended."""

    program: str
    node: str
    kill: str
    """The kernel's line."""
    held_kib: int | None
    """Memory that it held; None where the kernel does not say."""


def with_ended_helper(engine: EnginePort, incident: Incident, diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return the diagnosis of a job that stands still behind a dead helper of its own as just that; any other as it is.

    That the job waits for a part of itself is noted in the incident, so that it may be ended and started again.
    """
    living = job is not None and job.state is JobState.RUNNING and job.attempt == incident.attempt
    if job is None or not living or incident.kind is not EventKind.HANG or diagnosis.reason not in REASONS:
        return diagnosis
    events = [event for event in engine.store.events(incident.id) if event.kind is EventKind.HANG]
    if not events or any(_speaks_against(event) for event in events) or not 0 < len(job.nodes) <= MOST_NODES:
        return diagnosis
    try:
        full = job if job.spec is not None else engine.scheduler.job(job.id)
        helper = _ended_helper(engine, incident, full)
    except (NightshiftError, OSError):
        return diagnosis
    if helper is None:
        return diagnosis
    engine.store.mark_stage(incident.id, AWAITS_ITSELF)
    small = helper.held_kib is not None and helper.held_kib < SMALL_KIB
    held_mib = (helper.held_kib or 0) / 1024
    held_words = f" It held {held_mib:.0f} MiB alone: others used up the memory of {helper.node}." if small else ""
    words = (
        f"Job {job.id} stands still: the kernel of {helper.node} ended {helper.program}, which the job starts itself, no such "
        f"process is left there, and what runs on waits.{held_words}"
    )
    advice = (
        f"Nothing outside brings {helper.program} back. End the job and start it again unchanged, from its newest checkpoint: "
        f"scancel {job.id}, then {start_line(full)}. Its script should end when {helper.program} ends (wait -n), or what waits for "
        "that should give up after a while."
    )
    hang = replace(diagnosis, reason="hang", category=Category.NONE, rivals=(), nodes=())
    return replace(hang, action=Action.RESTART_SAME_NODES, summary=words, advice=advice)


def _speaks_against(event: Event) -> bool:
    """Tell whether a look showed that the job works, or its own words say for what it waits."""
    return bool(event.detail.get(WAITS)) or WORKS.search(str(event.detail.get("witness") or "")) is not None


def _ended_helper(engine: EnginePort, incident: Incident, job: Job) -> EndedHelper | None:
    node, line = last_kill(engine, incident, job, job.nodes)
    match = _VICTIM.search(line)
    if not node or match is None:
        return None
    with reading_as(job.account):
        program = started_program(match[1], scripts_of(job))
    answer = (
        ask(engine.store, engine.gate, incident, "job_processes", {"job": job.id, "most_nodes": MOST_NODES}) if program else None
    )
    if not is_gone_from(answer or {}, node, program):
        return None
    return EndedHelper(program, node, line, int(match[2]) if match[2] else None)


def is_gone_from(processes: Mapping[str, Any], node: str, program: str) -> bool:
    """Tell whether a node showed what runs of a job and a program is not among it. Pure.

    Args:
        processes: As `job_processes` returns them.
        node: Where it ran.
        program: Its file name.
    """
    programs, scripts = (processes.get(key) for key in ("programs", "scripts"))
    if not isinstance(programs, Mapping) or not isinstance(scripts, Mapping) or not programs.get(node) or node not in scripts:
        return False
    names = [*map(str, programs[node])]
    if any(program in name.split() for name in names) or any(_ALONE.fullmatch(name) for name in names):
        return False
    return all(script and script != program for script in map(str, scripts[node]))


def scripts_of(job: Job) -> list[str]:
    """Return the text of a job's script and of the shell scripts that it starts, as far as they can be read."""
    read = FileReader(job.account)
    job_launches(job, read)
    return [job.spec.script if job.spec is not None else "", *(text for text in read.texts.values() if text)]


def started_program(name: str, texts: Iterable[str]) -> str:
    """Return the file name of the program that scripts start under the name of a process; empty where none does. Pure.

    Args:
        name: As the kernel keeps it, at most 15 characters; that of an interpreter tells no program.
        texts: Of scripts.
    """
    if _INTERPRETER.fullmatch(name):
        return ""
    for text in texts:
        for line in text.splitlines():
            words = () if line.lstrip().startswith("#") else _WORD.findall(line[:2_000])
            for word in (PurePosixPath(word).name for word in words):
                if word == name or (len(name) == COMM_LENGTH and word.startswith(name)):
                    return word
    return ""
