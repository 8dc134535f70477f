"""What a job asks for: its `#NIGHTSHIFT` lines, the restarts that it may have, its submission and its GPUs. Pure.

    #NIGHTSHIFT checkpoints=/ckpt/run7 format=megatron
    #NIGHTSHIFT resume="--load {checkpoint} --ckpt-step {step}"  skip="--skip-samples {from}:{to}"
    #NIGHTSHIFT resumes=newest
    #NIGHTSHIFT restarts=10 act=auto owner=#llm-7b-oncall

A script belongs to its user, so a mistake in it is reported and never stops anything else.

How often the same root cause may be answered with a restart goes by its fingerprint: the reason and the shape of the line that
proves it, free of numbers, nodes, ranks, addresses and paths. Progress resets the count; failing twice at the same step ends it
early.

An owner submits a job again with the file in its work folder that holds its very script; of a heterogeneous job that starts all
components together or none. A job that never began (Slurm could not open its output, no line of its script ran) has nothing to lose
and has written nothing over: submitted once more as it was, it is what its owner asked for.
"""

from __future__ import annotations

import difflib
import hashlib
import re
import shlex
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Protocol

from assistant.content.playbooks import PlaybookLimits
from assistant.errors import MalformedContent, NightshiftError
from assistant.records import Category, Checkpoint, Diagnosis, Job, JobState
from assistant.records.jobs import LAUNCH_FAILURE, OUTPUT_FAILED
from assistant.recover.checkpoints.entry import Format
from assistant.redact import head_of
from assistant.schedulers.slurm_specs import component_count
from assistant.untrusted import LOOK_S, list_folder, read_whole, reading_as, status_of, whole_number, within

LINE = re.compile(r"^\s*+#\s?NIGHTSHIFT\b[ \t:]*+(.*)$")
PLACEHOLDERS = {"resume": {"checkpoint", "step"}, "skip": {"from", "to", "from_step", "to_step"}}
ACT = ("auto", "ask", "never")
FORMATS = tuple(form for form in Format if form not in (Format.EPOCHS, Format.SAVES, Format.PLACED))
"""What a script may say; that a file tells only its epoch is found out."""
RESUMES = ("newest", "tracker", "no")


@dataclass(frozen=True, slots=True)
class Directives:
    """What the script says; empty and None where it says nothing."""

    checkpoints: str = ""
    """Folder; relative to the job's working folder."""
    format: str = ""
    resume: str = ""
    """Arguments for a restart, with `{checkpoint}` and `{step}`."""
    resumes: str = ""
    """How the script resumes by itself: `newest`, `tracker`, or `no`; empty: told from the script and its programs."""
    skip: str = ""
    """Arguments that skip data, with `{from}` and `{to}` in samples, or `{from_step}` and `{to_step}`."""
    restarts: int | None = None
    """How many restarts for one root cause, at most; the playbook's limit counts where it is smaller."""
    act: str = ""
    """`auto`: the owner agrees to restarts by policy and wants the run to chain; `ask`; `never`."""
    owner: str = ""
    """Whom to tell."""
    heartbeat: str = ""
    """File that the training loop replaces at each step; the watch reads it."""
    logs: tuple[str, ...] = ()
    """Files that the job logs into, separated by commas; `%j`, `%x`, `%t` and variables as in `srun --output`."""
    problems: tuple[str, ...] = ()
    """What could not be understood, with the line of the script."""


def read_directives(script: str) -> Directives:
    """Return what the `#NIGHTSHIFT` lines of a script say; the last word on a key counts."""
    directives = Directives()
    problems: list[str] = []
    for number, line in enumerate(script.splitlines(), 1):
        match = LINE.match(line)
        if match is None:
            continue
        try:
            words = shlex.split(match.group(1), comments=False)
        except ValueError as error:
            problems.append(f"line {number}: {error}: {match.group(1).strip()}")
            continue
        for word in words:
            key, equals, value = word.partition("=")
            problem = f"{word!r} is not key=value" if not equals else ""
            if not problem:
                setting = _value(key, value)
                problem = setting if isinstance(setting, str) else ""
                directives = directives if isinstance(setting, str) else setting(directives)
            if problem:
                problems.append(f"line {number}: {problem}")
    return replace(directives, problems=tuple(problems))


def _value(key: str, value: str) -> str | Callable[[Directives], Directives]:
    """Return how to write a value down, or what is wrong with it."""
    if key == "restarts":
        try:
            number = whole_number(value)
        except MalformedContent:
            number = -1
        if number < 0:
            return f"restarts must be a number, not {head_of(value, 40)!r}"
        return lambda directives: replace(directives, restarts=number)
    if key == "logs":
        paths = tuple(path for path in value.split(",") if path)
        return (lambda directives: replace(directives, logs=paths)) if paths else "logs must name at least one file"
    if key == "act" and value not in ACT:
        return f"act must be one of {', '.join(ACT)}, not {value!r}"
    if key == "resumes" and value not in RESUMES:
        return f"resumes must be one of {', '.join(RESUMES)}, not {value!r}"
    if key == "format" and value not in FORMATS:
        return f"format {value!r} is unknown; known: {', '.join(FORMATS)}"
    if key in PLACEHOLDERS:
        unknown = set(re.findall(r"\{([^{}]*)\}", value)) - PLACEHOLDERS[key]
        if unknown:
            return f"{key} knows {{{'}, {'.join(sorted(PLACEHOLDERS[key]))}}}, not {{{sorted(unknown)[0]}}}"
    elif key not in ("checkpoints", "act", "format", "owner", "heartbeat", "resumes"):
        keys = ["checkpoints", "format", "resume", "resumes", "skip", "restarts", "act", "owner", "heartbeat", "logs"]
        near = difflib.get_close_matches(key, keys, n=1)
        return f"unknown key {key!r}" + (f"; did you mean {near[0]!r}?" if near else f"; known: {', '.join(keys)}")
    return lambda directives: replace(directives, **{key: value})  # type: ignore[arg-type]


def directives_of(job: Job | None) -> Directives:
    """Return what the script of a job says to Nightshift; nothing where the scheduler keeps no script."""
    return read_directives(job.spec.script) if job is not None and job.spec is not None else Directives()


PROGRESS_STEPS = 10
"""A run that passed the previous failing step by so many has made progress."""
SAME_STEP = {Category.INFRASTRUCTURE: 3, Category.NONE: 3}
"""Failures at the same step that make a crash loop; 2 for what the job's own code or data does."""

_PREFIX = re.compile(
    r"^(?:\s{0,16}+(?:\[[^\]]{0,255}\]|\(?\w{0,32}rank ?\d{1,18}\)?:?|\d{4}-\d\d-\d\d[T ][\d:.,+Z]+"
    r"|(?=[A-Za-z_.-]{0,254}\d)[\w.-]{1,255}+:(?=\s)|\d{1,18}+:)\s{0,16}+){1,8}",
    re.IGNORECASE,
)
_VARYING = (
    (re.compile(r"(?:(?<![\w.-])[\w.-]{1,255}+)?(?:/[\w.@%+-]{1,255}+)+"), "<path>"),
    (re.compile(r"\b(?:0x[0-9a-f]+|[0-9a-f]{2,}(?::[0-9a-f]{2,})+(?:\.\d)?|[0-9a-f]{12,})\b", re.IGNORECASE), "<id>"),
    (re.compile(r"\b[a-z][a-z-]{0,63}[-_]?\d{1,18}+(?:-\d{1,18}+){0,8}(?:\.[a-z][\w.-]{0,254})?\b(?![.\w]{0,255}\()"), "<name>"),
    (re.compile(r"[-+]?\d+(?:\.\d+)?(?:e[-+]?\d+)?", re.IGNORECASE), "<n>"),
)


NO_THEORY = frozenset({"preempted", "time_limit"})
"""What others do to a job: that they do it again refutes nothing."""
LONGEST_BACKOFF_MIN = 120.0
SPIKE_SLACK = 20
"""Steps by which the onset of the same spike is found apart; and a second time at the same step is no bad luck with data."""


class PastRestart(Protocol):
    """One restart that was made for a root cause; the store's `Attempt` is one."""

    @property
    def step(self) -> int | None:
        """Training step at which the run had failed, where known."""
        ...

    @property
    def at(self) -> datetime:
        """When it was made."""
        ...


@dataclass(frozen=True, slots=True)
class Budget:
    """Whether one more restart is allowed."""

    allowed: bool
    used: int
    limit: int
    why: str
    """One sentence for the incident's note."""
    not_before: datetime | None = None
    """Back-off: an allowed restart waits until then; None for at once."""


def fingerprint(diagnosis: Diagnosis) -> str:
    """Return the mark of a root cause: the same for the same cause on other nodes, ranks, steps and artifacts."""
    line = diagnosis.root_cause[0].text if diagnosis.root_cause else ""
    shape = normalised(line)
    return f"{diagnosis.reason}:{hashlib.sha256(shape.encode()).hexdigest()[:12]}"


def normalised(line: str) -> str:
    """Return a log line without what differs from one run to the next."""
    shape = _PREFIX.sub("", line)
    for pattern, word in _VARYING:
        shape = pattern.sub(word, shape)
    return re.sub(r"\s+", " ", shape).strip().lower()[:300]


def restart_budget(
    diagnosis: Diagnosis,
    past: Sequence[PastRestart],
    limits: PlaybookLimits,
    *,
    now: datetime,
    directives: Directives | None = None,
) -> Budget:
    """Return whether the root cause may be answered with one more restart.

    Args:
        diagnosis: Of the attempt that failed now.
        past: Restarts made for this fingerprint since its last progress, oldest first.
        limits: Of the playbook.
        now: The time.
        directives: Of the job's script; its `restarts` counts where it is smaller.
    """
    said = directives or Directives()
    limit = limits.attempts if said.restarts is None else min(limits.attempts, said.restarts)
    recent = [restart for restart in past if restart.at > now - timedelta(hours=limits.within_h)]
    used = len(recent)
    if said.act == "never":
        return Budget(False, used, 0, "the job's script says act=never: its owner restarts it")
    step, spiked = failing_step(diagnosis), diagnosis.spike_step is not None
    slack = SPIKE_SLACK if spiked else 0
    same = [restart for restart in recent if step is not None and restart.step is not None and abs(restart.step - step) <= slack]
    loop = 2 if spiked else SAME_STEP.get(diagnosis.category, 2)
    if used and len(same) + 1 >= loop:
        return Budget(False, used, limit, f"crash loop: {diagnosis.reason} at step {step} for the {_nth(len(same) + 1)} time")
    if used >= limit:
        source = "the job's script" if said.restarts is not None and said.restarts <= limits.attempts else "its playbook"
        tries = f"{used} restart{'s' * (used != 1)} for this root cause within {limits.within_h:g} h"
        return Budget(False, used, limit, f"no restart is left: {tries}, and {source} allows {limit}")
    why = f"restart {used + 1} of {limit} for this root cause within {limits.within_h:g} h"
    return Budget(True, used, limit, why, _not_before(recent, limits) if used else None)


def _not_before(recent: Sequence[PastRestart], limits: PlaybookLimits) -> datetime:
    minutes = min(limits.backoff_min * 2 ** (len(recent) - 1), LONGEST_BACKOFF_MIN)
    return max(restart.at for restart in recent) + timedelta(minutes=minutes)


def refuted(before: Diagnosis, diagnosis: Diagnosis) -> bool:
    """Tell whether a restart that came to nothing has refuted what would be tried again: the same cause, and no node that is new.

    Args:
        before: What the restart rested on that did not hold.
        diagnosis: What is found now.
    """
    if diagnosis.reason in NO_THEORY:
        return False
    return fingerprint(before) == fingerprint(diagnosis) and {*diagnosis.faulty_nodes} <= {*before.faulty_nodes}


def _nth(number: int) -> str:
    return {1: "first", 2: "second", 3: "third"}.get(number, f"{number}th")


def failing_step(diagnosis: Diagnosis) -> int | None:
    """Return the step at which a run failed: where its loss went off, else the last one seen; None where that is unknown."""
    return diagnosis.spike_step if diagnosis.spike_step is not None else diagnosis.step


def made_progress(failed_step: int | None, reached_step: int | None, *, margin: int = PROGRESS_STEPS) -> bool:
    """Return whether a run went past the step at which the one before failed; unknown steps are no progress."""
    return failed_step is not None and reached_step is not None and reached_step >= failed_step + margin


MOST_FILES = 400
MOST_TASKS = 64
_TASK = re.compile(r"(\d{1,18})_(\d{1,18})")


def start_line(job: Job, options: Sequence[str] = ()) -> str:
    """Return the command by which an owner submits a job again.

    Args:
        job: With its spec.
        options: More options of sbatch, which outrank those of the script.
    """
    file = _script_file(job)
    if file is None or job.spec is None:
        more = f", with {shlex.join(options)}" if options else ""
        return f"submit job {job.id} again as the first time{more}"
    return f"cd {shlex.quote(str(file.parent))} && {shlex.join(['sbatch', *options, file.name, *job.spec.arguments])}"


def task_line(jobs: Sequence[Job], exclude: Sequence[str] = ()) -> str:
    """Return the command by which an owner submits some tasks of one array again; empty where they are no such.

    Args:
        jobs: The tasks, with their spec.
        exclude: Nodes to stay away from.
    """
    tasks = [match for job in jobs if (match := _TASK.fullmatch(job.id)) is not None]
    if not tasks or len(tasks) != len(jobs) or len({match[1] for match in tasks}) > 1 or len(tasks) > MOST_TASKS:
        return ""
    numbers = ",".join(str(number) for number in sorted({int(match[2]) for match in tasks}))
    return start_line(jobs[0], [f"--array={numbers}", *([f"--exclude={','.join(sorted(exclude))}"] if exclude else [])])


COUNTS_SIBLINGS = re.compile(r"SLURM_ARRAY_(?:TASK_(?:COUNT|MIN|MAX|STEP)|JOB_ID)\b")
"""In a script that divides its work by the number of tasks, or names folders by the array, a task alone would do other work."""


def together_words(job: Job, checkpoint: Checkpoint | None, reached: int | None, exclude: Sequence[str] = ()) -> str:
    """Return how a person starts a heterogeneous job, or one task of an array, again, and what is lost; empty for any other job.

    Args:
        job: With its spec.
        checkpoint: Where it is to go on; None where none may be used or is known.
        reached: The last step of its log; None where it shows none.
        exclude: Nodes to stay away from.
    """
    count = component_count(job.spec.script, job.submit_line) if job.spec is not None else 1
    counts_siblings = job.spec is not None and COUNTS_SIBLINGS.search(job.spec.script) is not None
    if count < 2 and not counts_siblings and (line := task_line([job], exclude)):
        array, _, task = job.id.partition("_")
        words = f"task {task} of array {array} alone is started again by `{line}`, and its siblings are not touched by that"
    elif count < 2:
        return ""
    else:
        leader, _, _ = job.id.partition("+")
        typed = f"`{job.submit_line}` in {job.work_dir}" if job.submit_line and job.work_dir is not None else f"`{start_line(job)}`"
        away = f", with --exclude={','.join(sorted(exclude))} for each" if exclude else ""
        words = f"job {leader} is a heterogeneous job of {count} components, which have to be started together: {typed}{away}"
    if checkpoint is None:
        return words
    cost = f"; {reached - checkpoint.step} steps, {checkpoint.step} to {reached}, are lost" if reached is not None else ""
    return f"{words}, from {checkpoint.path} (step {checkpoint.step}){cost if reached and reached >= checkpoint.step else ''}"


def _script_file(job: Job) -> Path | None:
    """Return the file in a job's work folder that holds its script as it was submitted; None where none does."""
    folder = job.work_dir
    if folder is None or job.spec is None:
        return None
    script = job.spec.script.encode()

    def look() -> Path | None:
        for file in list_folder(folder, MOST_FILES):
            try:
                if status_of(file).st_size == len(script) and read_whole(file, len(script)) == script:
                    return file
            except (OSError, NightshiftError):
                continue
        return None

    try:
        with reading_as(job.account):
            return within(LOOK_S, look, f"{folder}")
    except (OSError, NightshiftError):
        return None


def gpus_of(job: Job) -> int:
    """Return how many GPUs a job has, as its submission asks for them; 0 where that is not known."""
    if job.spec is None:
        return 0
    request_text = " ".join([*re.findall(r"^#SBATCH\s+(.*)$", job.spec.script, re.MULTILINE), *job.spec.options])
    nodes = len(job.nodes) or job.spec.nodes
    number = r"(?:[A-Za-z]\w*:)?(\d{1,6})\b"
    forms: Sequence[tuple[str, int]] = (
        (rf"--gres[= ]gpu:{number}", nodes),
        (rf"--gpus-per-node[= ]{number}", nodes),
        (rf"--gpus-per-task[= ]{number}", nodes * job.spec.ranks_per_node),
        (rf"(?:--gpus[= ]|-G ?){number}", 1),
    )
    return next((int(matches[-1]) * times for form, times in forms if (matches := re.findall(form, request_text))), 0)


def gpu_hours(job: Job, now: datetime) -> float | None:
    """Return the GPU hours that an attempt has used; None where its start or its GPUs are not known."""
    gpus = gpus_of(job)
    if job.started is None or not gpus:
        return None
    return max(0.0, ((job.ended or now) - job.started).total_seconds()) / 3600 * gpus


def never_began(job: Job) -> bool:
    """Tell whether no line of a job's script ran in any of its attempts, as the scheduler itself says."""
    by_launch = job.reason in ("", LAUNCH_FAILURE)
    return job.state is JobState.FAILED and job.signal == OUTPUT_FAILED and by_launch and not job.attempt and not job.steps


def never_began_words(job: Job) -> str:
    """Return why a restart of a job that never began loses nothing, for people."""
    return f"job {job.id} never began: Slurm could not open its output; it is submitted once more as it was, and loses nothing"


def launch_paths(job: Job) -> tuple[Path, ...]:
    """Return the folders that a node needs to start a job: of its output, of its error file, and the work folder."""
    folders = [log.parent for log in (job.log, job.error_log) if log is not None]
    folders += [job.work_dir] if job.work_dir is not None else []
    return tuple(dict.fromkeys(folder for folder in folders if folder.is_absolute()))
