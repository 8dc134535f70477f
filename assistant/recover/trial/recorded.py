"""What a command of a job's owner would submit, as it was written down in the sandbox, and whether that is the same run. Pure.

It counts where the command submits one job, of the same script in the same folder with the same options, and changes no file: then
what differs, the variables and the arguments of the script, is a way of going on that a trial start has to prove. A record that it
only adds a line to is no change; that line is left out. Everything else is told to the owner and not done.
"""

from __future__ import annotations

import posixpath
import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path, PurePosixPath
from typing import Any, NamedTuple

from assistant.errors import MalformedContent
from assistant.ports import Reply
from assistant.records import Job, JobSpec
from assistant.recover.restart import NOT_SAFE
from assistant.recover.resume.documented import is_the_script
from assistant.recover.resume.means import OwnerCommand
from assistant.recover.resume.script_variable import is_harmless
from assistant.recover.trial.judgement import LEFTOVER, MARK, trial_answer
from assistant.recover.trial.trial import MEMORY_BYTES, longest_s, program_text, sandbox_command
from assistant.rendering import command_line
from assistant.schedulers.slurm_spec import exported_items
from assistant.schedulers.slurm_typed import exact_words
from assistant.untrusted import parse_json

COMMAND_S = 20
"""How long a command may take that does no more than submit; one that still imports or works may take `longest_s` of it."""
REPLACED = tuple(
    "sbatch srun salloc sattach sbcast scancel scontrol sacctmgr strigger squeue sacct sinfo mpirun mpiexec torchrun".split()
)
"""Commands in whose place one lies that only writes down what is asked."""
ASKS = frozenset(("squeue", "sacct", "sinfo"))
"""Those that change nothing."""
NOT_COMPARED = frozenset(("parsable", "quiet", "verbose", "export", "chdir", "time", "comment"))
"""Options that make no other run, or that are compared elsewhere; a restart keeps the limit of time that the job had."""
UNSTABLE = re.compile(
    r"SLURM_\w*|NIGHTSHIFT_\w*|PWD|OLDPWD|SHLVL|_|PATH|HOME|USER|LOGNAME|SHELL|TMPDIR|MAKE\w*|MFLAGS|COLUMNS|LINES|BASH_FUNC_.*|LC_CTYPE"
)
"""Variables that a shell, make or the sandbox sets and that make no other run."""
LONGEST_TOLD = 300


class RecordedSubmission(NamedTuple):
    """How a recorded submission differs from that of the job."""

    assignments: tuple[str, ...]
    """Variables of its environment that have another value."""
    arguments: tuple[str, ...] | None
    """Of its script; None where they are the same."""
    line: str
    """What was recorded, for people."""
    left_out: str
    """What the command would add to a file besides, for people; empty for nothing."""


class _Call(NamedTuple):
    name: str
    words: tuple[str, ...]
    folder: str
    texts: Mapping[str, str]
    stdin: str
    environment: Mapping[str, str]
    at: float


def recording_command(
    job: Job, command: OwnerCommand, *, uid: int, folder: Path, python: Sequence[str] = ("python3",)
) -> list[str]:
    """Return the words that let a command of a job's owner say in the sandbox what it would submit.

    Args:
        job: The attempt that ended.
        command: Of its owner.
        uid: Of that owner on this machine; the node must know the same.
        folder: That of its checkpoints.
        python: The words that start Python on the nodes.

    Raises:
        ToolError: It is too large to be handed over.
    """
    spec = job.spec or JobSpec("", "")
    work_dir = _work_dir(job)
    request = {
        "user": job.user,
        "uid": uid,
        "work_dir": work_dir,
        "script": '#!/bin/sh\nexec env "$@"\n',
        "arguments": list(command.words),
        "environment": submission_environment(spec),
        "launchers": dict.fromkeys(REPLACED, program_text("recorder_program")),
        "nodes": [],
        "needed": list(dict.fromkeys((work_dir, str(folder)))),
        "watched": [],
        "hidden": [],
        "written": {},
        "seconds": COMMAND_S,
        "longest": longest_s(COMMAND_S),
        "memory_bytes": MEMORY_BYTES,
    }
    return sandbox_command(job, request, python)


def submission_environment(spec: JobSpec) -> dict[str, str]:
    """Return what a job was submitted with, without what Slurm and a restart set themselves."""
    return {name: text for name, text in spec.environment.items() if not name.startswith(("SLURM_", "SBATCH_", "NIGHTSHIFT_"))}


def recorded_submission(job: Job, command: OwnerCommand, reply: Reply) -> RecordedSubmission | str:
    """Return how what a command would submit differs from the job that ended; else why it is not done, for people.

    Args:
        job: With its spec.
        command: That was recorded.
        reply: Of the node.
    """
    answer, command_text = trial_answer(reply), f"`{' '.join(command.words)}` ({command.place})"
    if answer.problem:
        return f"{command_text} was not tried: {answer.problem}"
    value = _value(reply)
    calls = sorted(_calls(value), key=lambda call: call.at)
    acts = [call for call in calls if call.name not in ASKS and not (call.name == "scontrol" and call.words[:1] == ("show",))]
    lines = "; ".join(dict.fromkeys(_line(call) for call in acts))[:LONGEST_TOLD]
    if answer.exit_code is None:
        return f"{command_text} was cut off after {answer.seconds:.0f} s, so what it would submit is not known"
    if [call.name for call in acts] != ["sbatch"]:
        last = next((line for text in answer.texts[:1] for line in reversed(text.splitlines()) if line.strip()), "")
        request_text = (
            f"asks Slurm for more than one job: {lines}"
            if acts
            else f"submits nothing; it ends with {answer.exit_code}: {last[:200]!r}"
        )
        return f"{command_text} {request_text}"
    changed, grown = _changes(value, _work_dir(job))
    if changed:
        names = ", ".join(changed[:4]) + (f" and {len(changed) - 4} more" if len(changed) > 4 else "")
        return f"{command_text} would change {names} and then run `{lines}`: that is for {job.user} to do"
    if answer.exit_code:
        return f"{command_text} would run `{lines}`, and ended with {answer.exit_code}"
    outcome = _difference(job, job.spec or JobSpec("", ""), acts[0])
    if isinstance(outcome, str):
        return f"{command_text} would run `{lines}`: {outcome}"
    return outcome._replace(line=lines, left_out=", ".join(grown[:4]))


def _work_dir(job: Job) -> str:
    return str(job.work_dir or (job.spec.work_dir if job.spec is not None else "/"))


def _value(reply: Reply) -> Mapping[str, Any]:
    line = next((line for line in reversed(reply.out.splitlines()) if line.startswith(MARK)), "")
    value = parse_json(line.removeprefix(MARK))
    return value if isinstance(value, Mapping) else {}


def _calls(value: Mapping[str, Any]) -> Iterator[_Call]:
    """Yield what was written down; what is no record of that form counts as a call that nobody knows."""
    for text in value.get("records") or ():
        try:
            record = parse_json(str(text))
            words = tuple(str(word) for word in record["words"])
            texts = {str(name): str(inner) for name, inner in record["texts"].items()}
            environment = {str(name): str(inner) for name, inner in record["environment"].items()}
            yield _Call(
                str(record["name"]), words, str(record["folder"]), texts, str(record["stdin"]), environment, float(record["at"])
            )
        except (MalformedContent, ValueError, KeyError, TypeError, AttributeError):
            yield _Call("?", (), "", {}, "", {}, 0.0)


def _line(call: _Call) -> str:
    return command_line([call.name, *call.words])


def _changes(value: Mapping[str, Any], work_dir: str) -> tuple[list[str], list[str]]:
    """Return which files a command would change, and to which it would only add something; what it leaves in /tmp is neither."""
    items = [item for item in value.get("changed") or () if isinstance(item, Mapping)]
    items = [item for item in items if not _is_passing(str(item.get("path")), work_dir)]
    grown = [str(item.get("path")) for item in items if item.get("grown") is True and item.get("was")]
    changed = [str(item.get("path")) for item in items if str(item.get("path")) not in grown]
    return [*map(str, value.get("removed") or ()), *changed], grown


def _is_passing(path: str, work_dir: str) -> bool:
    is_temporary = path.startswith(("/tmp/", "/var/tmp/")) and not PurePosixPath(path).is_relative_to(work_dir)
    return is_temporary or LEFTOVER.search(path) is not None


def _difference(job: Job, spec: JobSpec, call: _Call) -> RecordedSubmission | str:
    """Return how a recorded submission differs; else why it is not that of the same run."""
    parsed = exact_words(call.words)
    if parsed is None:
        return "an option of it is not known"
    values, place = parsed
    if place >= len(call.words):
        return "its script comes from its input or is a text of --wrap"
    script = call.texts.get(call.words[place], "")
    if not is_the_script(job, script):
        return f"{call.words[place]} is not the script of job {job.id}"
    work_dir = _work_dir(job)
    folder = posixpath.normpath(posixpath.join(call.folder, values.get("chdir", "")))
    if folder != posixpath.normpath(work_dir):
        return f"it submits from {folder}, and job {job.id} was submitted from {work_dir}"
    if difference := _other_option(job, spec, values, work_dir):
        return difference
    assignments = _assignments(spec, values, call.environment)
    if isinstance(assignments, str):
        return assignments
    arguments = call.words[place + 1 :]
    bad = next((word for word in (*assignments, *arguments) if NOT_SAFE.search(word)), "")
    if bad:
        return f"{bad!r} has characters that a shell would change"
    return RecordedSubmission(assignments, arguments if arguments != spec.arguments else None, "", "")


def _other_option(job: Job, spec: JobSpec, values: Mapping[str, str], work_dir: str) -> str:
    """Return an option of a recorded submission that the job was not given; empty where there is none."""
    before = exact_words(spec.options)
    own = {} if before is None else before[0]
    own |= {"job-name": spec.name, "partition": spec.partition, "exclude": ",".join(spec.exclude)}
    for name, text in values.items():
        if name in NOT_COMPARED:
            continue
        if name == "output":
            same = spec.log is None or posixpath.join(work_dir, text) == posixpath.join(work_dir, spec.log)
        elif name == "nodes":
            same = text.split("-")[0] == str(spec.nodes)
        else:
            same = name in own and own[name] == text
        if not same:
            return f"--{name}={text} is not how job {job.id} was submitted"
    return ""


def _assignments(spec: JobSpec, values: Mapping[str, str], environment: Mapping[str, str]) -> tuple[str, ...] | str:
    """Return which variables a recorded submission gives another value; else why that cannot be repeated."""
    items = [item for item in values.get("export", "ALL").split(",") if item]
    before = [item for item in exported_items(spec.script, spec.options) if not item.startswith("NIGHTSHIFT_")] or ["ALL"]
    names = [sorted(item.partition("=")[0] for item in listed) for listed in (items, before)]
    if names[0] != names[1] and ({"NONE", "NIL"} & {*names[0], *names[1]} or not set(names[0]) >= set(names[1])):
        return f"--export={','.join(names[0])} is not what the job was given ({','.join(names[1])})"
    own = submission_environment(spec)
    exported = {name: text for name, equals, text in (item.partition("=") for item in items) if equals}
    passed = environment if "ALL" in items else {name: environment[name] for name in items if name in environment}
    changed = {name: text for name, text in passed.items() if own.get(name) != text and not UNSTABLE.fullmatch(name)}
    changed |= {name: text for name, text in exported.items() if own.get(name) != text}
    changed = {name: text for name, text in changed.items() if name not in exported or exported[name] == text}
    lost = next((name for name in own if name not in environment and not UNSTABLE.fullmatch(name) and "ALL" in items), "")
    if lost:
        return f"it takes {lost} away"
    if obeyed := next((name for name in changed if not is_harmless(name)), ""):
        return f"it sets {obeyed}, which programs besides the script obey"
    return tuple(f"{name}={text}" for name, text in changed.items())
