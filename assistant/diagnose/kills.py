"""Say what decides who killed a process, and what to lower where it was memory."""

from __future__ import annotations

import re

from assistant.diagnose.batch_system import record_command
from assistant.diagnose.circumstances import BATCH, FOLDER, WORKERS, last_save, setting
from assistant.diagnose.facts import Facts
from assistant.diagnose.program import Program, ProgramKind
from assistant.records import Diagnosis

KILLS = frozenset({"killed", "dataloader_killed"})
_SHELL = re.compile(r"(?<!\d)(\d{2,8})(?: Done .{0,80}\|)?\s+Killed\b")
_WORKER = re.compile(r"DataLoader worker \(pid\W{0,5}(\d{2,8})")
_LAUNCHED = re.compile(r"exitcode: -9\).{0,60}\(pid: (\d{2,8})\)")
_OF_MEMORY = re.compile(r"signal: Killed|exited unexpectedly")


def kill_account(diagnosis: Diagnosis, facts: Facts, program: Program) -> str:
    """Return which record decides, what to lower if it was memory, and where a save may lie; empty for other reasons."""
    texts = [cited.text for cited in diagnosis.root_cause[:3]]
    if diagnosis.reason not in KILLS or facts.case.job is not None or not texts:
        return ""
    if diagnosis.reason == "dataloader_killed" and not any(_OF_MEMORY.search(text) for text in texts):
        return ""
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
