"""Write commands as text, exactly and on one line, so that what a person reads is what runs. Pure.

A changing tool states its change as a `RenderedChange`: the commands that it will give to the scheduler, each as the scheduler's
`command_lines` renders it, and a note for people. The gate freezes the commands when it first decides, and compares each command
with them right before it runs. Long or secret parts (scripts, environments) stand in a command by their digest.
"""

from __future__ import annotations

import hashlib
import json
import shlex
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assistant.records import JobSpec
from assistant.redact.command_words import KEY, shown_line

__all__ = [
    "IDLE_PARTNERS",
    "NEW_JOB",
    "RenderedChange",
    "command_line",
    "environment_digest",
    "method_lines",
    "script_digest",
    "single_line",
]

NEW_JOB = "NEW_JOB_ID"
"""Stands in a command for the id that a submission before it in the same call will return."""
IDLE_PARTNERS = "IDLE_PARTNERS"
"""Stands in a reservation for the nodes that are idle when a test begins, where the call does not depend on which these are."""
OWN_VARIABLE = "NIGHTSHIFT_"
DIGEST_LENGTH = 32
"""Hexadecimal digits of a digest inside a command: 128 bits."""


@dataclass(frozen=True, slots=True)
class RenderedChange:
    """What a call of a changing tool would do."""

    commands: tuple[str, ...] = ()
    """In the order in which they are given to the scheduler; a call gives each at most once, and may leave some out."""
    note: str = ""
    """For people: states, names, conditions; it is no part of what is compared."""

    @property
    def text(self) -> str:
        """The commands as a person would type them, and the note after ` # `, on one line; secrets are hidden.

        A word that its user chose, a job's name above all, hides itself at most: redaction of the line changes no other word.
        """
        note = single_line(self.note)
        note_text = f"  # {note}" if note and self.commands else note
        return shown_line(self.commands, note_text)


def single_line(text: str) -> str:
    """Return text with each character that does not print, line ends and bidirectional marks among them, written as its escape."""
    return "".join(letter if letter.isprintable() else letter.encode("unicode_escape").decode("ascii") for letter in text)


def quoted(word: str) -> str:
    """Return a word as a shell takes it: plain, its value in quotes, or as `$'...'` where it holds what does not print."""
    key = KEY.match(word)
    if key is not None and key.end() < len(word):
        return key.group() + quoted_value(word[key.end() :])
    return quoted_value(word)


def quoted_value(word: str) -> str:
    """Return a word in quotes where it needs them."""
    if word.isprintable():
        return shlex.quote(word)
    return "$'" + single_line(word.replace("\\", "\\\\").replace("'", "\\'")) + "'"


def command_line(words: Iterable[str]) -> str:
    """Return a command as a person would type it, on one line; equal lines mean equal words."""
    return " ".join(quoted(word) for word in words)


def script_digest(script: str) -> str:
    """Return what stands in a command for a script."""
    return f"SCRIPT[sha256:{_sha256(script)}]"


def environment_digest(environment: Mapping[str, str]) -> str:
    """Return what stands in a command for a job's environment: Nightshift's own variables by value, all of them by digest.

    The variables of the script that a restart sets, which `NIGHTSHIFT_VARIABLE` names, stand there by value, too.
    """
    script_variables = environment.get(f"{OWN_VARIABLE}VARIABLE", "").split(",")
    own = [
        f"{name}={environment[name]}" for name in sorted(environment) if name.startswith(OWN_VARIABLE) or name in script_variables
    ]
    other_count = len(environment) - len(own)
    parts = [
        *own,
        *([f"{other_count} others"] if other_count else []),
        f"sha256:{_sha256(json.dumps(dict(environment), sort_keys=True))}",
    ]
    return f"ENVIRONMENT[{' '.join(parts)}]"


def method_lines(method: str, arguments: Sequence[Any], keywords: Mapping[str, Any]) -> tuple[str, ...]:
    """Return the command of a scheduler that has no programs of its own, in Slurm's words, with every argument of the method.

    Args:
        method: Name of a changing method of the port `Scheduler` or of one of its optional ports.
        arguments: As the method gets them.
        keywords: Its keyword arguments.
    """
    match method, list(arguments):
        case "submit", [JobSpec() as spec]:
            return (command_line(_submission(spec)),)
        case "cancel", [job]:
            words = ["scancel", job]
        case "release", [job]:
            words = ["scontrol", "release", job]
        case "requeue", [job]:
            words = ["scontrol", "requeuehold" if keywords.get("hold") else "requeue", job]
            words += [f"{key}={value}" for key, value in sorted(keywords.items()) if value and key != "hold"]
        case "cordon", [node, reason]:
            words = ["scontrol", "update", f"NodeName={node}", "State=DRAIN", f"Reason={reason}"]
        case "uncordon", [node]:
            words = ["scontrol", "update", f"NodeName={node}", "State=RESUME"]
        case "move_dependent", [dependent, old, new]:
            words = ["scontrol", "update", f"JobId={dependent}", f"Dependency={old}->{new}"]
        case _:
            words = [method, *map(str, arguments), *(f"{name}={value}" for name, value in sorted(keywords.items()))]
    return (command_line(str(word) for word in words),)


def _submission(spec: JobSpec) -> list[str]:
    words = ["sbatch", *spec.options, f"--job-name={spec.name}", f"--nodes={spec.nodes}"]
    words += [f"--ntasks-per-node={spec.ranks_per_node}"] if spec.ranks_per_node > 1 else []
    words += [f"--chdir={spec.work_dir}"] if str(spec.work_dir) != "." else []
    words += [f"--output={spec.log}"] if spec.log else []
    words += [f"--partition={spec.partition}"] if spec.partition else []
    words += [f"--uid={spec.user}"] if spec.user else []
    words += [f"--exclude={','.join(spec.exclude)}"] if spec.exclude else []
    words += [f"--comment={spec.comment}"] if spec.comment else []
    words += ["--hold"] if spec.hold else []
    words += [f"--time={spec.time_limit_s}s"] if spec.time_limit_s else []
    words += [f"--export-file={environment_digest(spec.environment)}"] if spec.environment else []
    return [*words, script_digest(spec.script), *spec.arguments]


def _sha256(text: str) -> str:
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:DIGEST_LENGTH]
