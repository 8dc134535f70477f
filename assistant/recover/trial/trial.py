"""What a trial start asks of a node, and what its answer proves about how a script goes on. Pure.

Reading a script and its programs leaves open what only a run can tell. So the script is run where nothing that it does can stay: in
the sandbox of `sandbox_program.py`. Two witnesses prove that it goes on from the chosen checkpoint: a file of that checkpoint was
read, and the log of the trial, or the step of the first checkpoint that it saved, goes on behind its step.
"""

from __future__ import annotations

import base64
import hashlib
import json
import re
import zlib
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any

from assistant.errors import MalformedContent, ToolError
from assistant.logs.lines import Lines
from assistant.nodeset import fold
from assistant.ports import Reply
from assistant.records import Checkpoint, Job, JobSpec
from assistant.recover.checkpoints.inventory import Inventory
from assistant.recover.checkpoints.layout import step_in_name
from assistant.recover.checkpoints.secured import folder_of
from assistant.recover.loaded import LoadedCheckpoint, LoadVerdict, compare_loaded, loaded_checkpoint
from assistant.recover.resume.means import OwnerCommand, ResumeMeans, ResumeWay, ScriptArguments
from assistant.recover.resume.script_arguments import submission_arguments
from assistant.recover.source.settings import is_of_submitit
from assistant.redact import head_of, tail_of
from assistant.untrusted import parse_json

__all__ = [
    "TrialAnswer", "TrialVerdict", "TrialWay", "judge_trial", "longest_s", "proven_trial", "removed_besides", "spec_digest",
    "trial_answer", "trial_command", "trial_for", "trials_of",
]  # fmt: skip

MARK = "NIGHTSHIFT-TRIAL "
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
NEVER_BEGAN = "never got past its imports or waiting for its peers: it read no checkpoint and logged no step"
NOT_KNOWN = "so whether it goes on is not known"
ERROR_LINE = re.compile(r"(?:\[?(?:rank)?\d{1,6}\]?:? ?)?(?:\w{1,60}\.){0,6}\w{0,60}(?:Error|Exception)\b:? ")
"""The last line of a traceback, with the rank that some launchers put before it."""
LAUNCHER_ERROR = re.compile(r"\b(?:CalledProcessError|ChildFailedError)\b")
"""Says only that a process that was started ended badly."""
LEFTOVER = re.compile(r"/__pycache__(?:/|$)|(?:\.tmp|\.part|\.lock|\.pid|\.pyc|\.sock|~)$")
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


@dataclass(frozen=True, slots=True)
class TrialAnswer:
    """What the sandbox saw."""

    problem: str
    """Why nothing was started; empty where it was."""
    exit_code: int | None = None
    """Of the script; None where it was ended by the trial."""
    seconds: float = 0.0
    read: tuple[str, ...] = ()
    """Files of the checkpoint folder that were read."""
    saved: tuple[str, ...] = ()
    """Files that were written and had not been there."""
    changed: tuple[str, ...] = ()
    """Files that were there and were written over or removed."""
    texts: tuple[str, ...] = ()
    """Output and logs, each by itself."""
    removed: tuple[str, ...] = ()
    """Those of `changed` that were there and are no more."""
    cpu_seconds: float = 0.0
    """Processor time of all its processes, as far as the node showed it."""


REFUSES = re.compile(
    r"already exists?\b|not empty|non-?empty|--?(?:overwrite|resume|force|restart|continue)[\w-]*|\brefus", re.IGNORECASE
)
"""Last words of a program that does not begin beside what an earlier start of it left: it says the same to a restart."""


@dataclass(frozen=True, slots=True)
class TrialVerdict:
    """Whether a trial has proven that the script goes on from the chosen checkpoint."""

    proven: bool
    note: str
    """For people: what it read and where it went on, or what is missing."""
    refuted: bool = False
    """Whether it went on from something else, or harmed the chosen one: no restart may be made in that way."""
    output: str = ""
    """What it printed."""
    started: bool = True
    """Whether anything was started: what reading refuses is not."""
    cut_off: bool = False
    """Whether its time was over before it showed anything: that speaks neither for the way nor against it."""


def trials_of(way: ResumeWay) -> tuple[TrialWay, ...]:
    """Return what is worth trying, the most likely first; nothing where a known convention tells how the script goes on."""
    if way.repeats or way.tried:
        return ()
    by_script = tuple(TrialWay(template=template) for template in way.script_arguments)
    documented = tuple(trial for trial in by_script if trial.template is not None and trial.template.command)
    if way.destroys:
        return by_script  # what a start as it is destroys, one with arguments may spare: the sandbox shows it
    if way.means not in (ResumeMeans.UNKNOWN, ResumeMeans.NONE, ResumeMeans.FIXED):
        return (*documented, TrialWay(way.variable, way.argument, way.config_key, arguments=way.arguments)) if way.home_made else ()
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
    # with a variable or an argument of its own a script most likely does nothing without it
    # a command is asked first: it takes a moment, and most leave nothing to try
    return (*commands, *(*[*by_hand][: MOST_TRIALS - 1], *as_it_is)[:MOST_TRIALS])


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


def _number(pattern: re.Pattern[str], words: str) -> int:
    return int(values[-1]) if (values := pattern.findall(words)) else 0


def trial_answer(reply: Reply) -> TrialAnswer:
    """Return what the sandbox saw, from what the node answered; what cannot be read is a problem."""
    line = next((line for line in reversed(reply.out.splitlines()) if line.startswith(MARK)), "")
    if not line:
        return TrialAnswer(tail_of(reply.err.strip(), 300) or "the node gave no answer")
    try:
        value = parse_json(line.removeprefix(MARK))
    except (MalformedContent, ValueError) as error:
        return TrialAnswer(f"the answer of the node cannot be read: {error}")
    if not isinstance(value, Mapping) or value.get("status") != "ran":
        return TrialAnswer(head_of(str(value.get("why", "")), 300) if isinstance(value, Mapping) else "the answer is no object")
    changes = [item for item in _list(value.get("changed")) if isinstance(item, Mapping)]
    logs = value.get("logs")
    texts = [value.get("output"), *(logs.values() if isinstance(logs, Mapping) else ())]
    return TrialAnswer(
        "",
        code if isinstance(code := value.get("exit"), int) else None,
        float(value["seconds"]) if isinstance(value.get("seconds"), int | float) else 0.0,
        tuple(str(path) for path in _list(value.get("opened"))),
        tuple(str(item.get("path")) for item in changes if item.get("was") is None),
        (*(str(item.get("path")) for item in changes if item.get("was") is not None), *map(str, _list(value.get("removed")))),
        tuple(text for text in texts if isinstance(text, str) and text.strip()),
        tuple(map(str, _list(value.get("removed")))),
        float(value["cpu_seconds"]) if isinstance(value.get("cpu_seconds"), int | float) else 0.0,
    )


def longest_s(seconds: int) -> int:
    """Return how long a trial may take that was given so many seconds and is still at its start by then."""
    return max(seconds, min(seconds * LONGER, LONGEST_S))


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def judge_trial(answer: TrialAnswer, checkpoint: Checkpoint, inventory: Inventory | None) -> TrialVerdict:
    """Return whether a trial proves that the script goes on from the chosen checkpoint.

    Args:
        answer: Of the sandbox.
        checkpoint: The one that a restart is to go on from.
        inventory: What its folder holds.
    """
    if answer.problem:
        return TrialVerdict(False, answer.problem)
    outcome = "ended by itself" if answer.exit_code is not None else f"ran for {answer.seconds:.0f} s"
    loads = [loaded_checkpoint(Lines.of(text.splitlines())) for text in answer.texts]
    comparisons = [compare_loaded(checkpoint, load) for load in loads]
    otherwise = next((item for item in comparisons if item.differs), None)
    if otherwise is not None:
        return TrialVerdict(False, otherwise.note, refuted=True)
    same = {
        checkpoint.path,
        *(item.path for item in (inventory.entries if inventory is not None else ()) if item.step == checkpoint.step),
    }
    read = next((path for path in answer.read if any(Path(path).is_relative_to(item) for item in same)), "")
    began = answer.read or answer.saved or any(not load.silent for load in loads)
    is_cut = answer.exit_code is None
    if not began and is_cut:
        working = f", with {answer.cpu_seconds:.0f} s of processor time," if answer.cpu_seconds >= 1 else ""
        return TrialVerdict(
            False, f"it was cut off after {answer.seconds:.0f} s{working} and {NEVER_BEGAN}, {NOT_KNOWN}", cut_off=True
        )
    if not read:
        nothing = not began and bool(answer.exit_code)
        words = (
            "it ended before it read a checkpoint or logged a step"
            if nothing
            else f"it {outcome} and read no file of {checkpoint.path.name}"
        )
        end = _end(answer)
        return TrialVerdict(False, f"{words}{end}", refuted=bool(answer.exit_code) and REFUSES.search(end) is not None)
    saved = _first_save(answer, checkpoint, inventory)
    steps = [item.step for item in inventory.checkpoints] if inventory is not None else []
    gap = max((after - before for before, after in pairwise(sorted({*steps, 0})) if after > before), default=0)
    evidence = next((item.note for item in comparisons if item.verdict is LoadVerdict.CHOSEN), "")
    if evidence and saved is None and not any(_went_on(answer, text, load) for text, load in zip(answer.texts, loads, strict=True)):
        return TrialVerdict(False, f"it read {read} and failed while it loaded {checkpoint.path.name}{_end(answer)}")
    if saved is not None and (saved <= checkpoint.step or (saved > checkpoint.step + max(gap, 1) and not evidence)):
        return TrialVerdict(False, f"it read {read} and then saved step {saved}; chosen was step {checkpoint.step}", refuted=True)
    if _is_lost(answer, checkpoint) and saved is None:
        if evidence and _is_saved_over(answer, checkpoint):
            return TrialVerdict(True, f"it read {read}; {evidence}; then it saved over {checkpoint.path.name}, as each save does")
        lost = f"it read {read} and then removed or wrote over {checkpoint.path.name} before it saved anything"
        return TrialVerdict(False, lost, refuted=True)
    if saved is None and (lost_name := _lost_beside(answer, inventory)):
        return TrialVerdict(False, f"it read {read} and removed {lost_name} before it saved anything", refuted=True)
    if evidence:
        return TrialVerdict(True, f"it read {read}; {evidence}")
    if rival := _other_read(answer, inventory, read, same):
        return TrialVerdict(False, f"it read {read} and {rival}, and its log does not tell from which it went on{_end(answer)}")
    if saved is not None and checkpoint.step > 0:
        return TrialVerdict(True, f"it read {read}, and the first that it saved is step {saved}")
    cut = f" before it was cut off after {answer.seconds:.0f} s, {NOT_KNOWN}" if is_cut and saved is None else ""
    note = f"it read {read}, and nothing tells at which step it went on{cut}{_end(answer)}"
    return TrialVerdict(False, note, cut_off=bool(cut))


def _first_save(answer: TrialAnswer, checkpoint: Checkpoint, inventory: Inventory | None) -> int | None:
    """Return the lowest step of the checkpoints that a trial saved beside the chosen one; None where their names tell none.

    What it writes over of another checkpoint is saved as well: a run saves again the steps that the attempt before it had saved.
    """
    folder = folder_of(checkpoint.path)
    names = [PurePosixPath(path).relative_to(folder).parts[0] for path in answer.saved if Path(path).is_relative_to(folder)]
    steps = [step for name in names if name != checkpoint.path.name and (step := step_in_name(name)) is not None and step >= 0]
    rivals = [item for item in (inventory.entries if inventory is not None else ()) if item.step != checkpoint.step]
    written = [Path(path) for path in answer.changed if path not in answer.removed]
    return min([*steps, *(item.step for item in rivals if any(path.is_relative_to(item.path) for path in written))], default=None)


def _other_read(answer: TrialAnswer, inventory: Inventory | None, read: str, same: Collection[Path]) -> str:
    """Return a file of another checkpoint that a trial read and that bears the name of the one it read; empty for none.

    What only lists or counts checkpoints reads a record of them, and no file that a load reads.
    """
    rivals = [item.path for item in (inventory.entries if inventory is not None else ()) if item.path not in same]
    name = next((Path(read).relative_to(path) for path in same if Path(read).is_relative_to(path)), Path(read))
    return next((str(path / name) for path in rivals if str(path / name) in answer.read), "")


def _lost_beside(answer: TrialAnswer, inventory: Inventory | None) -> str:
    """Return the name of another checkpoint that a trial removed; empty for none."""
    entries = [item.path for item in (inventory.entries if inventory is not None else ()) if not item.temporary]
    return next((path.name for path in entries if any(path.is_relative_to(lost) for lost in answer.removed)), "")


def removed_besides(answer: TrialAnswer, folder: Path) -> str:
    """Return what a trial removed outside the folder of its checkpoints that is no leftover of a program; empty for nothing.

    A variable that a script was never seen to be given may mean more than going on: `CLEAN=1`.
    """
    lost = (
        path for path in answer.removed if not Path(path).is_relative_to(folder) and not path.startswith(("/tmp/", "/var/tmp/"))
    )
    return next((path for path in lost if not LEFTOVER.search(path)), "")


def _is_lost(answer: TrialAnswer, checkpoint: Checkpoint) -> bool:
    return any(Path(path).is_relative_to(checkpoint.path) or checkpoint.path.is_relative_to(path) for path in answer.changed)


def _is_saved_over(answer: TrialAnswer, checkpoint: Checkpoint) -> bool:
    """Tell whether a checkpoint is a file that each save replaces (its name tells no step), and was written anew and is there."""
    is_removed = any(checkpoint.path.is_relative_to(lost) for lost in answer.removed)
    return str(checkpoint.path) in answer.changed and not is_removed and step_in_name(checkpoint.path.name) is None


def _went_on(answer: TrialAnswer, text: str, load: LoadedCheckpoint) -> bool:
    """Tell whether a script got past its load: "Loading ..." is said before it, and what follows may be how that failed."""
    if not answer.exit_code or load.first_step is not None:
        return True
    lines_after = text.splitlines()[load.loads[-1].number :] if load.loads else []
    first = next((line.strip() for line in lines_after if line.strip()), "Traceback")
    return not (first.startswith("Traceback") or ERROR_LINE.match(first))


def _end(answer: TrialAnswer) -> str:
    """Return by which line a script that ended badly by itself tells why: its error rather than that of the launcher around it."""
    if not answer.exit_code or not answer.texts:
        return ""
    lines = [line.strip() for line in answer.texts[0].splitlines() if line.strip()]
    errors = [line for line in lines if ERROR_LINE.match(line) and not LAUNCHER_ERROR.search(line)]
    line = next(reversed(errors or lines), "")
    return f"; it ended with {answer.exit_code}: {head_of(line, 200)!r}" if line else f"; it ended with {answer.exit_code}"
