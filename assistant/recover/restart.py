"""Plan a restart: from the job that failed and a checkpoint to the job to submit. Pure; nothing is submitted here.

The script learns of the restart by its environment: `NIGHTSHIFT_RESUME_FROM` and `NIGHTSHIFT_STEP`; `NIGHTSHIFT_SKIP_FROM` and
`NIGHTSHIFT_SKIP_TO` in samples, `NIGHTSHIFT_SKIP_FROM_STEP` and `NIGHTSHIFT_SKIP_TO_STEP`; `NIGHTSHIFT_ATTEMPT`; and
`NIGHTSHIFT_ARGS`, which holds the filled-in `resume=` and `skip=` templates. A script that has templates and names no such variable
gets `${NIGHTSHIFT_ARGS:-}` at the end of its launch command.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

from assistant.errors import MalformedContent, ToolError
from assistant.ports import Dependents, Scheduler
from assistant.records import Checkpoint, Job, JobSpec, JobState, Node, NodeState, without_tags
from assistant.recover.directives import Directives, read_directives
from assistant.recover.launch_arguments import ARGS, RESUME_FROM, STEP, with_arguments
from assistant.rendering import NEW_JOB
from assistant.schedulers.slurm_typed import NEW_ARGUMENTS, arguments_digest
from assistant.untrusted import whole_number

if TYPE_CHECKING:
    from assistant.recover.job_program import JobProgram

SKIP_FROM = "NIGHTSHIFT_SKIP_FROM"
SKIP_TO = "NIGHTSHIFT_SKIP_TO"
SKIP_STEPS = ("NIGHTSHIFT_SKIP_FROM_STEP", "NIGHTSHIFT_SKIP_TO_STEP")
ATTEMPT = "NIGHTSHIFT_ATTEMPT"
VARIABLE = "NIGHTSHIFT_VARIABLE"
"""Names the variables of the script itself that a restart set."""
CONFIG = "NIGHTSHIFT_CONFIG"
"""Names the copy of a configuration that a restart gave the script as its argument."""
RESUMES = re.compile(r"-{0,2}[\w.-]*resum[\w.-]*=.*", re.IGNORECASE | re.DOTALL)
"""An argument that says what a run goes on from: it makes no other run."""
COPIED = re.compile(r"\.nightshift-step\d{1,15}$")
"""How the name of such a copy ends, before its suffix."""
OF_THE_JOB = re.compile(r"SLURM_(?:JOB_NAME|JOB_?ID|ARRAY_|PROCID)|\bRANDOM\b|\bdate\b|\bmktemp\b|\buuidgen\b|--export=\w+=")
"""What makes two runs of one script differ."""
OF_A_SHELL = re.compile(
    r"(?:SLURM|SBATCH|NIGHTSHIFT|SSH|TERM|TMUX|XDG|LC)_?\w*|PWD|OLDPWD|SHLVL|_|STY|WINDOWID|DISPLAY|HOSTNAME|HOME|USER|LOGNAME|PATH|TMPDIR"
)
"""Variables that make no other run of a script: of the shell it was submitted from, or the same in all jobs of a user."""
OUTSIDE = re.compile(r"\$\{?([A-Za-z]\w{0,100})")
NOT_SAFE = re.compile(r"[^\w@%+=:,./-]")
"""Characters that a shell would not pass on as they are."""


@dataclass(frozen=True, slots=True)
class Skip:
    """Data to leave out: that of the steps from `first` (inclusive) to `end` (exclusive)."""

    first: int
    end: int
    samples: tuple[int, int] | None = None
    """The same in samples, where the log tells how many a step takes."""


def attempt_of(spec: JobSpec) -> int:
    """Return how many restarts of ours led to a job; 0 for one that a person submitted."""
    text = spec.environment.get(ATTEMPT, "0")
    try:
        return max(whole_number(text), 0)
    except MalformedContent:  # a job's environment is its user's
        return 0


def submission_lines(scheduler: Scheduler, job: str, spec: JobSpec) -> tuple[str, ...]:
    """Return the commands that submit a job again, release it, and let the jobs that wait for the old one wait for the new one."""
    lines = scheduler.command_lines("submit", spec) + scheduler.command_lines("release", NEW_JOB, user=spec.user)
    waiting = scheduler.dependents(job) if isinstance(scheduler, Dependents) else ()
    moves = [scheduler.command_lines("move_dependent", dependent.id, job, NEW_JOB) for dependent in waiting]
    return (*lines, *(line for move in moves for line in move))


def plan_restart(
    job: Job,
    spec: JobSpec,
    checkpoint: Checkpoint | None,
    *,
    exclude: Sequence[str] = (),
    skip: Skip | None = None,
    attempt: int,
    tag: str,
    resume: str = "",
    variable: str = "",
    config: Sequence[str] = (),
    arguments: Sequence[str] | None = None,
) -> JobSpec:
    """Return the job to submit.

    Args:
        job: The attempt that failed.
        spec: What it was submitted with; everything is kept that is not named here.
        checkpoint: Where to go on; None begins at the start.
        exclude: Nodes to stay away from, on top of those that were excluded before.
        skip: Data to leave out.
        attempt: 1 for the first restart.
        tag: `nightshift:<store>:<incident>:<call>`; it is how the job is found again after a crash.
        resume: Arguments by which its program goes on, as `ResumeWay.argument`; what its script says outranks them.
        variable: The assignments by which its script goes on, as `ResumeWay.variable`.
        config: The arguments of its script with a copy of its configuration in them, and behind them that copy; empty for none.
        arguments: Those of its script as its owner's own command gives them, as `ResumeWay.arguments`.

    Returns:
        The job, submitted held: it is a claim on the run until it is released (docs/decisions/0015).

    Raises:
        ToolError: The script has templates that cannot be passed on.
    """
    directives = read_directives(spec.script)
    words = _arguments(directives if directives.resume else replace(directives, resume=resume), checkpoint, skip)
    # An earlier skip stays: from an older checkpoint the run would meet the same data again.
    # So does a variable of the script: without a checkpoint of its own the attempt is repeated from where it began.
    environment = {name: text for name, text in spec.environment.items() if name not in (RESUME_FROM, STEP, ARGS)}
    environment[ATTEMPT] = str(attempt)
    if checkpoint is not None:
        environment |= {RESUME_FROM: str(checkpoint.path), STEP: str(checkpoint.step)}
    if skip is not None:
        environment |= _skip_environment(spec, skip)
    if words:
        environment[ARGS] = words
    options = spec.options
    if variable and checkpoint is not None:
        items = [item.partition("=") for item in variable.split(" ")]
        values = {name: _filled(template, _places(checkpoint)) for name, _, template in items}
        environment |= {**values, VARIABLE: ",".join(values)}
        options = tuple(_exporting(option, values) for option in options)
    if config and checkpoint is not None:
        environment[CONFIG] = config[-1]
    if arguments is not None:
        environment[NEW_ARGUMENTS] = arguments_digest(arguments)
    return replace(
        spec,
        arguments=tuple(config[:-1]) if config else spec.arguments if arguments is None else tuple(arguments),
        options=options,
        script=with_arguments(spec.script) if words else spec.script,
        work_dir=spec.work_dir if str(spec.work_dir) != "." else (job.work_dir or spec.work_dir),
        environment=environment,
        exclude=tuple(dict.fromkeys((*spec.exclude, *exclude))),
        comment=_comment(spec.comment, tag),
        hold=True,
    )


def _exporting(option: str, values: Mapping[str, str]) -> str:
    """Return an option of the submission in which an `--export` that gives variables a value gives them a new one."""
    if not option.startswith("--export="):
        return option
    items = [item.partition("=") for item in option.removeprefix("--export=").split(",")]
    texts = [f"{name}={values.get(name, text)}" if equals else name for name, equals, text in items]
    return f"--export={','.join(texts)}"


def copied_config(config: Path, step: int) -> Path:
    """Return where the copy of a configuration lies that names the checkpoint of a step: beside it."""
    return config.with_name(f"{COPIED.sub('', config.stem)}.nightshift-step{step}{config.suffix}")


def hidden_variable(spec: JobSpec, lines: Sequence[str]) -> str:
    """Return why a planned restart would not hand its script the variable that it sets; empty where the commands show it.

    Args:
        spec: The planned job.
        lines: The commands that submit it, as they are approved.
    """
    approved_text = " ".join(lines)
    names = [name for name in spec.environment.get(VARIABLE, "").split(",") if name]
    name = next((name for name in names if f"{name}={spec.environment.get(name, '')}" not in approved_text), "")
    return name and f"its script goes on by {name}, and slurm.job_environment lets no variable of that name through"


def _skip_environment(spec: JobSpec, skip: Skip) -> dict[str, str]:
    """Return the variables that tell a script what to leave out.

    Raises:
        ToolError: It counts in samples, and how many a step takes is not known.
    """
    skip_values = dict(zip(SKIP_STEPS, (str(skip.first), str(skip.end)), strict=True))
    if skip.samples is not None:
        return {**skip_values, SKIP_FROM: str(skip.samples[0]), SKIP_TO: str(skip.samples[1])}
    by_samples = re.search(rf"\b{SKIP_FROM}\b", spec.script) or re.search(r"\{(?:from|to)\}", read_directives(spec.script).skip)
    if by_samples:
        raise ToolError("the script skips data by samples, but its log does not tell how many samples a step takes")
    return skip_values


def can_skip(spec: JobSpec) -> bool:
    """Return whether a job has a way to leave data out."""
    return bool(read_directives(spec.script).skip) or "NIGHTSHIFT_SKIP_" in spec.script


_SKIPS = re.compile(
    r"(?:^|_)(?:skip|skipped|exclude|excluded|ignore|ignored|omit|bad)_(?:[a-z0-9]{1,20}_){0,2}?"
    r"(?:shards?|data|files?|samples?|batch(?:es)?|steps?|iters?|iterations?|examples?|docs?|documents?|ranges?|index(?:es)?|indices"
    r"|ids?|records?|rows?|chunks?|parts?)$"
    r"|^(?:shards?|data|files?|samples?|batches|steps?|examples?|documents?|records?|rows?|chunks?|parts?)_to_(?:skip|exclude|ignore)$"
)
"""Names of options by which programs leave out part of their data."""
_SKIPS_OTHERS = re.compile(r"(?:^|_)(?:eval|val|valid|validation|test|log|logging|save|warmup|last|ckpt|data_skip)(?:_|$)")


def own_skip_option(programs: Iterable[JobProgram]) -> str:
    """Return the option by which a program of a job leaves out data of its own choice, for people; empty where none is known."""
    for program in programs:
        names = [option.last for option in program.options]
        names += [name for source in program.sources for name in source.options]
        name = next((name for name in names if _SKIPS.search(name.lower()) and not _SKIPS_OTHERS.search(name.lower())), "")
        if name:
            return f"--{name.replace('_', '-')} of {program.name}"
    return ""


def must_skip_by_hand(spec: JobSpec, programs: Iterable[JobProgram]) -> str:
    """Return why a person leaves out the data that has to be left out: the job's program has an option of its own for that.

    Empty where the script takes our skip, or where no such option is known.

    Args:
        spec: Of the job.
        programs: What its script starts.
    """
    option = own_skip_option(programs) if not can_skip(spec) else ""
    if not option:
        return ""
    return (
        f"its program leaves out data by an option of its own ({option}), and which data it means by that only its owner knows: "
        "start it again with that option set to what was read when the loss went off"
    )


def _comment(before: str, tag: str) -> str:
    """Put our tag into a comment, in the place of an older one; what a person wrote stays."""
    return f"{without_tags(before)} {tag}".strip()


def _arguments(directives: Directives, checkpoint: Checkpoint | None, skip: Skip | None) -> str:
    parts = []
    if directives.resume and checkpoint is not None:
        parts.append(_filled(directives.resume, _places(checkpoint)))
    if directives.skip and skip is not None:
        first, end = skip.samples or (0, 0)  # without samples _skip_environment refuses a template that needs them
        values = {"from": str(first), "to": str(end), "from_step": str(skip.first), "to_step": str(skip.end)}
        parts.append(_filled(directives.skip, values))
    return " ".join(parts)


def _places(checkpoint: Checkpoint) -> dict[str, str]:
    """Return what the places of a template stand for."""
    path = checkpoint.path
    return {"checkpoint": str(path), "step": str(checkpoint.step), "name": path.name, "folder": str(path.parent)}


def _filled(template: str, values: Mapping[str, str]) -> str:
    """Fill a template in one pass, so that a value is never read as a template again."""
    for name, value in values.items():
        if f"{{{name}}}" in template and NOT_SAFE.search(value):
            raise ToolError(f"{name} {value!r} cannot stand in resume arguments: it has characters that a shell would change")
    return re.sub(r"\{(\w+)\}", lambda match: values.get(match.group(1), match.group(0)), template)


def restart_problem(
    job: Job,
    spec: JobSpec,
    *,
    jobs: Sequence[Job],
    nodes: Sequence[Node],
    checkpoint: Checkpoint | None = None,
    blamed: Sequence[str] = (),
    reached_step: int | None = None,
    same: Callable[[Job, Job], bool] | None = None,
) -> str | None:
    """Return why a planned restart must not be submitted, or None.

    Args:
        job: The attempt that failed.
        spec: The planned job, with its exclusions.
        jobs: All that the scheduler knows.
        nodes: All of the cluster; empty skips the look at capacity.
        checkpoint: Where it would go on.
        blamed: Nodes that a diagnosis holds at fault.
        reached_step: How far the failed attempt came; None when unknown, which is not held against it.
        same: Tells whether two jobs are of one run; `same_run` where not given.
    """
    double = live_double(job, jobs, same)
    if double is not None:
        return f"job {double.id} ({double.state}) is the same run already: a second one would write over its checkpoints"
    missing = [node for node in blamed if node not in spec.exclude and not _cordoned(node, nodes)]
    if missing:
        return f"node {', '.join(missing)} was found at fault, and is neither cordoned nor excluded"
    stale = stale_restart(job, checkpoint, reached_step)
    return stale or too_few_nodes(spec, nodes)


def interactive_note(job: Job | None) -> str:
    """Return why nothing brings an allocation of salloc or srun back, for people; empty for other jobs."""
    if job is None or not job.interactive:
        return ""
    return (
        f"job {job.id} is interactive (salloc or srun): it has no script that could be submitted again, and its output went to the "
        f"terminal of {job.user}; nothing is restarted"
    )


def live_double(job: Job, jobs: Sequence[Job], same: Callable[[Job, Job], bool] | None = None) -> Job | None:
    """Return a job that is pending or running and of the same run.

    Args:
        job: The attempt that failed.
        jobs: Where to look.
        same: Tells whether two jobs are of one run; `same_run` where not given.
    """
    alive = [twin for twin in jobs if twin.id != job.id and not twin.state.ended and twin.state is not JobState.UNKNOWN]
    return next((twin for twin in alive if (same or same_run)(job, twin)), None)


def same_run(job: Job, second: Job, *, folder: Path | None = None, other_folder: Path | None = None) -> bool:
    """Return whether two jobs are attempts of one training run: what one saves, the other would write over.

    Checkpoint folders decide where both are known. Else jobs of one user, name and work folder are one run, unless they are
    different tasks of arrays, or differ in what their scripts run, in arguments or in exported variables. Names may differ, as in
    a chain `run:1`, `run:2`, where the very same commands run and take nothing from name or id of the job.

    Args:
        job: An attempt.
        second: Another job.
        folder: Where the first saves its checkpoints; None when not known.
        other_folder: Where the other one does.
    """
    if folder is not None and other_folder is not None:
        return folder == other_folder
    if (job.user, job.work_dir) != (second.user, second.work_dir):
        return False
    if job.name != second.name and not _differ_in_name_only(job.spec, second.spec):
        return False
    if (
        _tasks(job)
        and _tasks(second)
        and (_tasks(job) != _tasks(second) or job.id.partition("_")[0] == second.id.partition("_")[0])
    ):
        return False
    return job.spec is None or second.spec is None or _asks_the_same(job.spec, second.spec)


def _tasks(job: Job) -> str:
    """Return the index of an array's task, or the set of indexes that still wait; empty for a job that is none."""
    return job.id.partition("_")[2]


def _asks_the_same(spec: JobSpec, second: JobSpec) -> bool:
    """Return whether two submissions run the same commands with the same arguments and the same exported values."""
    commands = [_commands(job_spec.script) for job_spec in (spec, second)]
    if commands[0] != commands[1] or not (spec.doubt or second.doubt or _has_same_arguments(spec, second)):
        return False
    exports = [_exports(job_spec) for job_spec in (spec, second)]
    names = {name for export in exports for name in export if not name.startswith("NIGHTSHIFT_")}
    values = [
        [{**job_spec.environment, **own_named}.get(name) for name in names]
        for job_spec, own_named in zip((spec, second), exports, strict=True)
    ]
    return all(None in pair or pair[0] == pair[1] for pair in zip(*values, strict=True))


def _has_same_arguments(spec: JobSpec, second_spec: JobSpec) -> bool:
    """Tell whether two scripts are given the same; a copy of a configuration that a restart made counts as that.

    What says from where a run goes on does not count.
    """
    words, other_words = ([word for word in item.arguments if not RESUMES.fullmatch(word)] for item in (spec, second_spec))
    if words == other_words or not any(COPIED.search(Path(word).stem) for word in (*words, *other_words)):
        return words == other_words
    names = [[f"{COPIED.sub('', Path(word).stem)}{Path(word).suffix}" for word in listed] for listed in (words, other_words)]
    return names[0] == names[1]


def _differ_in_name_only(spec: JobSpec | None, second: JobSpec | None) -> bool:
    """Return whether two submissions run the very same commands, which nothing of the job itself makes another run."""
    if spec is None or second is None or spec.doubt or second.doubt or spec.arguments != second.arguments:
        return False
    commands = _commands(spec.script)
    if not commands or commands != _commands(second.script) or any(OF_THE_JOB.search(line) for line in commands):
        return False
    plain_variables = [
        {name: text for name, text in job_spec.environment.items() if not OF_A_SHELL.fullmatch(name)} for job_spec in (spec, second)
    ]
    if spec.environment and second.environment and plain_variables[0] != plain_variables[1]:
        return False
    text = "\n".join(commands)
    from_outside = {*OUTSIDE.findall(text)} - {*re.findall(r"(?:^|[\s;(])(?:export )?([A-Za-z]\w*)=", text)}
    return bool(spec.environment and second.environment) or not any(not OF_A_SHELL.fullmatch(name) for name in from_outside)


def _commands(script: str) -> list[str]:
    """Return the lines of a script that run something: directives and comments make no other run of it."""
    lines = (line.strip() for line in script.replace(f" ${{{ARGS}:-}}", "").splitlines())
    return [line for line in lines if line and not line.startswith("#")]


def _exports(spec: JobSpec) -> dict[str, str]:
    """Return the variables that a submission sets by `--export=NAME=value`."""
    words = [word.removeprefix("--export=") for word in spec.options if word.startswith("--export=")]
    items = [item.partition("=") for word in words[-1:] for item in word.split(",")]
    return {name: text for name, equals, text in items if equals}


def stale_restart(job: Job, checkpoint: Checkpoint | None, reached_step: int | None) -> str | None:
    """Return why the same checkpoint must not be tried again: the last run began there and came nowhere."""
    before = job.spec.environment if job.spec is not None else {}
    if checkpoint is None or before.get(RESUME_FROM) != str(checkpoint.path) or reached_step is None:
        return None
    if reached_step > checkpoint.step or attempt_of(job.spec or JobSpec("", "")) < 2:
        return None
    return f"the last two runs began at {checkpoint.path} and made no step: once more would end the same"


def too_few_nodes(spec: JobSpec, nodes: Sequence[Node]) -> str | None:
    """Return why the job could not start even on an empty cluster, or None."""
    if not nodes:
        return None
    usable = usable_nodes(spec, nodes)
    if len(usable) >= spec.nodes:
        return None
    here = usable_nodes(replace(spec, exclude=()), [replace(node, state=NodeState.IDLE) for node in nodes])
    return f"the job needs {spec.nodes} nodes and {len(usable)} of {len(here)} may be used; repair and uncordon some first"


def elsewhere(spec: JobSpec, attempt: Sequence[str], nodes: Sequence[Node]) -> tuple[str, ...]:
    """Return nodes of an attempt to stay away from, so that a restart does not run on the very same set; as many as can be spared.

    Args:
        spec: The planned job, with its exclusions.
        attempt: Nodes of the attempt that failed.
        nodes: All of the cluster.

    Raises:
        ToolError: Not one of them can be spared.
    """
    usable = {node.name for node in usable_nodes(spec, nodes)}
    same = [name for name in attempt if name in usable]
    if not nodes or len(same) < len(set(attempt)):
        return ()  # one of them is out or excluded: the set is another one already
    spare = len(usable) - spec.nodes
    if spare <= 0:
        why = "a machine may be at fault and nobody knows which"
        raise ToolError(f"{why}: the job must not start on the very same {len(same)} nodes, and there are no others")
    return tuple(same[:spare])


def usable_nodes(spec: JobSpec, nodes: Sequence[Node]) -> list[Node]:
    """Return the nodes that a job could start on if the cluster were empty."""
    usable = [node for node in nodes if not spec.partition or not node.partition or spec.partition in node.partition.split(",")]
    out = (NodeState.DRAINING, NodeState.DRAINED, NodeState.DOWN)
    return [node for node in usable if (node.state not in out or node.window) and node.name not in spec.exclude]


def _cordoned(name: str, nodes: Sequence[Node]) -> bool:
    return any(node.name == name and node.state in (NodeState.DRAINING, NodeState.DRAINED, NodeState.DOWN) for node in nodes)
