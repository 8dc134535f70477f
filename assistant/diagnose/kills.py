"""Say what decides who killed a process, and what to lower where it was memory."""

from __future__ import annotations

import re

from assistant.diagnose.batch_system import record_command
from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.circumstances import BATCH, FOLDER, WORKERS, last_save, setting
from assistant.diagnose.readers.origin import Program, ProgramKind
from assistant.records import Diagnosis

KILLS = frozenset({"killed", "dataloader_killed"})
_SHELL = re.compile(r"(?<!\d)(\d{2,8})(?: Done .{0,80}\|)?\s+Killed\b")
_WORKER = re.compile(r"DataLoader worker \(pid\W{0,5}(\d{2,8})")
_LAUNCHED = re.compile(r"exitcode: -9\).{0,60}\(pid: (\d{2,8})\)")
_SRUN_KILLED = re.compile(r"srun: error: \S{1,80}: tasks? [\d,-]{1,80}: Killed")
_SRUN_SIGNAL = re.compile(
    r"srun: error: (?P<node>[\w.-]{1,80}): tasks? (?P<tasks>[\d,-]{1,80}): "
    r"(?P<how>Bus error|Segmentation fault|Aborted|Illegal instruction|Floating point exception)"
)
_OF_SIGNALS = {
    "Bus error": "a bus error is a mapped file that was cut off, a full /dev/shm or /tmp on that node, or its memory (dmesg -T)",
    "Segmentation fault": "a segmentation fault is native code that touched memory not its own (a core file, its stack)",
    "Aborted": "an abort is a check of its own that failed, and what it printed last says which",
    "Illegal instruction": "an illegal instruction is a program that was built for another processor than that node has",
    "Floating point exception": "a floating point exception is mostly a whole number that is divided by 0",
}
_OF_MEMORY = re.compile(r"signal: Killed|exited unexpectedly")


def kill_account(diagnosis: Diagnosis, facts: Facts, program: Program) -> str:
    """Return which record decides, what to lower if it was memory, and where a save may lie; empty for other reasons."""
    texts = [cited.text for cited in diagnosis.root_cause[:3]]
    if diagnosis.reason not in KILLS or facts.case.job is not None or not texts:
        return ""
    if diagnosis.reason == "dataloader_killed" and not any(_OF_MEMORY.search(text) for text in texts):
        return ""
    if diagnosis.reason == "killed" and (first := _ended_first(diagnosis, facts)):
        return first
    match = next((match for text in texts for pattern in (_WORKER, _SHELL, _LAUNCHED) if (match := pattern.search(text))), None)
    who = f" of process {match[1]}" if match else ""
    batch_job = f", or {record}" if (record := record_command(facts)) else ""
    words = (
        "SIGKILL without a word is most often the kernel's, when the host has no memory left: dmesg -T of the node "
        f"(an oom-kill record{who}){batch_job} says it."
    )
    early = (
        "It came before any step was made, so it comes again unless that changes. " if program.trains and not program.steps else ""
    )
    lower = _levers(diagnosis, facts, program)
    return f"{words} {early}If it was memory, {lower}; if not, a person or the scheduler ended it.{_folder(facts)}"


def _ended_first(diagnosis: Diagnosis, facts: Facts) -> str:
    """Return which task ended by a signal of its own before Slurm killed the others of its step; empty where none did."""
    cited = diagnosis.root_cause[0]
    if cited.file != "job.log" or _SRUN_KILLED.search(cited.text) is None:
        return ""
    for line in facts.lines:
        if line.number >= cited.line:
            return ""
        match = _SRUN_SIGNAL.search(line.text[:400]) if line.number >= facts.progress.leg else None
        if match is not None:
            why = _OF_SIGNALS[match["how"]]
            return (
                f"Task {match['tasks']} on {match['node']} ended first, by {match['how']} (job.log:{line.number}), and the tasks "
                f"that were killed are what Slurm ended after it. Look at its output; {why}."
            )
    return ""


def _levers(diagnosis: Diagnosis, facts: Facts, program: Program) -> str:
    before = diagnosis.root_cause[0].line
    workers, batch = setting(facts, WORKERS, before), setting(facts, BATCH, before)
    loads = diagnosis.reason == "dataloader_killed" or program.trains or program.kind is ProgramKind.EVALUATION
    settings = [str(value) for value in (workers, batch if loads else None) if value is not None and value.value != "1"]
    if settings:
        return f"lower {' or '.join(settings)}, or ask for more host memory"
    less = "lower the loader's num_workers" if diagnosis.reason == "dataloader_killed" else "let it hold less"
    return f"{less}, or ask for more host memory"


def _folder(facts: Facts) -> str:
    """Return where the program was told to write, where the log shows no save."""
    folder = setting(facts, FOLDER, facts.lines[-1].number) if facts.lines and last_save(facts) is None else None
    return f" A save would lie in {folder.value} ({folder.name}, job.log:{folder.line})." if folder is not None else ""
