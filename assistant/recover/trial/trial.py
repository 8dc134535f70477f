"""Which ways of going on a trial start tries, and what it asks of a node. Pure.

Reading a script and its programs leaves open what only a run can tell. So the script is run where nothing that it does can stay: in
the sandbox of `sandbox_program.py`; what its answer proves says `judgement`.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from pathlib import Path
from typing import Any

from assistant.errors import ToolError
from assistant.nodeset import fold
from assistant.records import Checkpoint, Job, JobSpec
from assistant.recover.resume.means import OwnerCommand, ResumeMeans, ResumeWay, ScriptArguments
from assistant.recover.resume.script_arguments import submission_arguments
from assistant.recover.source.settings import is_of_submitit

JOB_ID = 67_043_327
"""Of the trial in the script's eyes: the last id that Slurm gives by default (slurm.conf(5), MaxJobId)."""
MOST_TRIALS = 3
LAUNCHERS = ("srun", "mpirun", "mpiexec", "torchrun")
"""Programs in whose place one lies that starts the ranks in the sandbox."""
MOST_RANKS = 16
MEMORY_BYTES = 4 << 30  # of each overlay: what the script saves lies in memory
MOST_REQUEST = 100_000  # bytes: Linux takes 128 KiB for one argument
MARGIN_S = 30
LONGEST_S = 900
LONGER = 3
"""So many times as long as it was given a trial may take that is still at its start and works."""
TASKS = re.compile(r"(?:^|\s)(?:-n\s*|--ntasks[= ])(\d{1,6})(?=\s|$)")
TASKS_PER_NODE = re.compile(r"(?:^|\s)--ntasks-per-node[= ](\d{1,6})(?=\s|$)")
GPUS = re.compile(
    r"(?:^|\s)(?:--gres[= ]gpu(?::[\w.-]+)?:|--gpus-per-node[= ](?:[\w.-]+:)?|--gpus[= ](?:[\w.-]+:)?|-G\s*)(\d{1,4})"
)


@dataclass(frozen=True, slots=True)
class TrialWay:
    """A way of going on that a trial start tries."""

    variable: str = ""
    """An assignment in the environment of the submission, with `{checkpoint}`; empty for none."""
    argument: str = ""
    """What is put behind the command line of the program, with `{checkpoint}`; empty for none."""
    config: str = ""
    """The key of a configuration of which a copy is given; empty for none."""
    command: OwnerCommand | None = None
    """A command of the owner's that says what it would submit: variables and arguments are not known before; None for none."""
    arguments: tuple[str, ...] | None = None
    """Those of its script; None where they stay as they were."""
    bound: str = ""
    """The one checkpoint for which that holds; empty for any."""
    template: ScriptArguments | None = None
    """What is added to the arguments of its script, of a way whose `arguments` are made of it for a checkpoint; None for none."""

    @property
    def label(self) -> str:
        """For people: what is added to the submission."""
        if self.command is not None:
            return f"`{' '.join(self.command.words)}` as it would submit"
        place = f" ({self.template.place})" if self.template is not None else ""
        if self.arguments is not None:
            return f"{self.variable} arguments {' '.join(self.arguments)}{place}".strip()
        if self.template is not None:
            return f"arguments {' '.join(self.template.words)}{place}"
        return self.variable or self.argument or (f"{self.config} in a copy of its configuration" if self.config else "as it is")

    def way(self, by: str) -> ResumeWay:
        """Return how a script goes on for which this one was proven; with a word that names no checkpoint from the newest."""
        if self.bound:
            return ResumeWay(
                ResumeMeans.ARGUMENT, by, variable=self.variable, arguments=self.arguments, bound=self.bound, tried=True
            )
        if "{" not in self.variable + self.argument:
            return ResumeWay(ResumeMeans.NEWEST, by, variable=self.variable, argument=self.argument, tried=True)
        return ResumeWay(ResumeMeans.ARGUMENT, by, variable=self.variable, argument=self.argument, tried=True)


def trials_of(way: ResumeWay) -> tuple[TrialWay, ...]:
    """Return what is worth trying, the most likely first; nothing where a known convention tells how the script goes on."""
    if way.repeats or way.tried:
        return ()
    by_script = tuple(TrialWay(template=template) for template in way.script_arguments)
    documented = tuple(trial for trial in by_script if trial.template is not None and trial.template.command)
    if way.destroys:
        return by_script  # what a start as it is destroys, one with arguments may spare: the sandbox shows it
    if way.means not in (ResumeMeans.UNKNOWN, ResumeMeans.NONE, ResumeMeans.FIXED):
        if not (way.home_made or way.listed):
            return ()
        variables = tuple(TrialWay(variable=text) for text in way.trial_variables if way.means is ResumeMeans.NEWEST)
        as_read = TrialWay(way.variable, way.argument, way.config_key, arguments=way.arguments)
        return (*(*documented, *variables)[: MOST_TRIALS - 1], as_read)
    commands = tuple(TrialWay(command=command) for command in way.commands)
    likely = [trial for trial in by_script if trial not in documented]
    handed = {" ".join(template.words) for template in way.script_arguments}
    together = [
        *(TrialWay(argument=text) for text in way.trial_arguments if " " in text and text not in handed),
        *(TrialWay(variable=text) for text in way.trial_variables if " " in text),
    ][: MOST_TRIALS - 2]
    by_hand = dict.fromkeys(
        (
            *documented,
            *together,  # switch and choice: where there are both, one alone loads something else or nothing
            *(TrialWay(variable=text) for text in way.trial_variables),
            *likely,
            *(TrialWay(argument=text) for text in way.trial_arguments if text not in handed),
        )
    )
    as_it_is = (TrialWay(),) if way.means is ResumeMeans.UNKNOWN else ()
    # with an argument of its own a script most likely does nothing without it; a variable counts only where it does not
    # a command is asked first: it takes a moment, and most leave nothing to try
    likely_ways = [*by_hand][: MOST_TRIALS - 1]
    has_variable = any(trial.variable for trial in likely_ways)
    return (*commands, *((*as_it_is, *likely_ways) if has_variable else (*likely_ways, *as_it_is)))


def trial_for(trial: TrialWay, job: Job, spec: JobSpec, checkpoint: Checkpoint) -> TrialWay | str:
    """Return a trial with the arguments of its script for a checkpoint; any other as it is; else why it cannot be made, for people.

    Args:
        trial: From `trials_of`.
        job: The attempt that ended.
        spec: What it was submitted with.
        checkpoint: The chosen one.
    """
    if trial.template is None:
        return trial
    arguments = submission_arguments(trial.template, spec, Path(job.work_dir or spec.work_dir), checkpoint)
    if isinstance(arguments, str):
        return arguments
    return replace(trial, arguments=arguments, bound=str(checkpoint.path))


def proven_trial(answer: Mapping[str, Any]) -> TrialWay:
    """Return the way that a trial start has proven, from what it answered."""
    arguments = answer.get("arguments")
    return TrialWay(
        str(answer.get("variable", "")),
        str(answer.get("argument", "")),
        arguments=tuple(map(str, arguments)) if isinstance(arguments, list) else None,
        bound=str(answer.get("bound", "")),
    )


def spec_digest(spec: JobSpec) -> str:
    """Return the digest of what a submission runs: its script, arguments and environment."""
    text = json.dumps([spec.script, list(spec.arguments), sorted(spec.environment.items())], ensure_ascii=True)
    return hashlib.sha256(text.encode()).hexdigest()


@cache
def program_text(name: str) -> str:
    """Return the text of a program that stands alone."""
    return (files(__package__) / f"{name}.py").read_text(encoding="utf-8")


@cache
def sandbox_text() -> str:
    """Return the text of the sandbox's program, with those that it imports before it."""
    lines = ["import sys, types"]
    for name in ("changes_program", "deadline_program", "network_program"):
        module = f"{__package__}.{name}"
        lines.append(f"part = sys.modules[{module!r}] = types.ModuleType({module!r})")
        lines.append(f"exec({program_text(name)!r}, part.__dict__)")
    return "\n".join([*lines, program_text("sandbox_program")])


def trial_command(
    job: Job,
    spec: JobSpec,
    *,
    uid: int,
    folder: Path,
    hidden: Sequence[Path],
    seconds: int,
    written: Mapping[str, str] | None = None,
    job_paths: Sequence[str] = (),
    python: Sequence[str] = ("python3",),
) -> list[str]:
    """Return the words that start a script in the sandbox on a node.

    Args:
        job: The attempt that ended.
        spec: The planned restart.
        uid: Of its owner on this machine; the node must know the same.
        folder: That of its checkpoints.
        hidden: Checkpoints that must not be loaded: they are not there in the sandbox.
        seconds: How long the script may run; longer only while it is at its start and works, up to `longest_s`.
        written: Texts that stand in files of the sandbox alone, by their paths: a tracker, the copy of a configuration.
        job_paths: Other folders that the job names, from `named_folders`: where its owner may write, the sandbox lets it seem so.
        python: The words that start Python on the nodes.

    Raises:
        ToolError: It is too large to be handed over.
    """
    work_dir = str(spec.work_dir if str(spec.work_dir) != "." else (job.work_dir or "/"))
    request = {
        "user": job.user,
        "uid": uid,
        "work_dir": work_dir,
        "script": spec.script,
        "arguments": list(spec.arguments),
        "environment": {**spec.environment, **_slurm_variables(job, spec, work_dir)},
        "launchers": dict.fromkeys(LAUNCHERS, program_text("launcher_program")),
        "nodes": list(job.nodes),
        "needed": list(dict.fromkeys((work_dir, str(folder)))),
        "watched": [str(folder)],
        "named": list(job_paths),
        "hidden": [str(path) for path in hidden],
        "written": dict(written or {}),
        "seconds": seconds,
        "longest": longest_s(seconds),
        "memory_bytes": MEMORY_BYTES,
    }
    return sandbox_command(job, request, python)


def sandbox_command(job: Job, request: Mapping[str, Any], python: Sequence[str]) -> list[str]:
    """Return the words that run the program of the sandbox with a request.

    Raises:
        ToolError: It is too large to be handed over.
    """
    text = base64.b64encode(zlib.compress(json.dumps(request).encode(), 9)).decode()
    if len(text) > MOST_REQUEST:
        raise ToolError(f"the script and environment of job {job.id} are too large for a trial start: {len(text)} bytes")
    return [*python, "-I", "-c", sandbox_text(), text, str(request["longest"] + MARGIN_S)]


def _slurm_variables(job: Job, spec: JobSpec, work_dir: str) -> dict[str, str]:
    """Return what Slurm tells a batch script, of a job on the nodes of the attempt that ended."""
    nodes = max(spec.nodes, 1)
    words = " ".join([*(line[7:] for line in spec.script.splitlines() if line.startswith("#SBATCH")), *spec.options])
    per_node = _number(TASKS_PER_NODE, words) or spec.ranks_per_node
    tasks = _number(TASKS, words) or per_node * nodes
    gpus = _number(GPUS, words)
    names = fold(job.nodes) if job.nodes else "localhost"
    first = job.nodes[0] if job.nodes else "localhost"
    own_id = job.id.partition("_")[0] if is_of_submitit(spec.script) else str(JOB_ID)  # its call lies under that id
    variables = {
        "SLURM_JOB_ID": own_id, "SLURM_JOBID": own_id, "SLURM_JOB_NAME": spec.name, "SLURM_JOB_USER": job.user,
        "SLURM_SUBMIT_DIR": work_dir, "SLURM_JOB_PARTITION": job.partition, "SLURM_NNODES": str(nodes),
        "SLURM_JOB_NUM_NODES": str(nodes), "SLURM_NTASKS": str(tasks), "SLURM_NPROCS": str(tasks),
        "SLURM_NTASKS_PER_NODE": str(-(-tasks // nodes)), "SLURM_JOB_NODELIST": names, "SLURM_NODELIST": names,
        "SLURM_NODEID": "0", "SLURM_PROCID": "0", "SLURM_LOCALID": "0", "SLURMD_NODENAME": first, "TMPDIR": "/tmp",
        "SLURM_TASKS_PER_NODE": f"{-(-tasks // nodes)}(x{nodes})" if nodes > 1 else str(tasks),
        "LAUNCHER_NODES": ",".join(job.nodes), "LAUNCHER_RANKS": str(MOST_RANKS),
    }  # fmt: skip
    if gpus:
        devices = ",".join(str(number) for number in range(gpus))
        variables |= {"SLURM_GPUS_ON_NODE": str(gpus), "SLURM_JOB_GPUS": devices, "CUDA_VISIBLE_DEVICES": devices}
    array, _, task = job.id.partition("_")
    if task.isdecimal():
        variables |= {"SLURM_ARRAY_JOB_ID": array, "SLURM_ARRAY_TASK_ID": task}
    return variables


def has_fewer_devices(job: Job, spec: JobSpec) -> bool:
    """Tell whether a trial on one node has fewer ranks or devices than the job."""
    words = " ".join([*(line[7:] for line in spec.script.splitlines() if line.startswith("#SBATCH")), *spec.options])
    nodes = max(spec.nodes, len(job.nodes), 1)
    tasks = _number(TASKS, words) or (_number(TASKS_PER_NODE, words) or spec.ranks_per_node) * nodes
    return tasks > MOST_RANKS or (nodes > 1 and _number(GPUS, words) > 0)


def _number(pattern: re.Pattern[str], words: str) -> int:
    return int(values[-1]) if (values := pattern.findall(words)) else 0


def longest_s(seconds: int) -> int:
    """Return how long a trial may take that was given so many seconds and is still at its start by then."""
    return max(seconds, min(seconds * LONGER, LONGEST_S))
