"""What is understood of a job: its logs, checkpoints, how it resumes, its shape, and which line of its script would improve that.

Pure: a job with its script and what was found out about it in, a `JobReading` out. Logs, folders and the way it resumes are read by
the same functions as after a failure (`joblog`, `checkpoints`, `resume`), so that a check promises nothing that a restart does not
keep.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from pathlib import Path, PurePosixPath

from assistant.logs.attempt import JobLogs, LogFileState
from assistant.logs.declared import LogOrigin, Surroundings, declared_logs, known_variables, shown_pattern
from assistant.records import Job, JobSpec, JobState
from assistant.recover.checkpoints.place import Place, checkpoint_place, place_of
from assistant.recover.checkpoints.save_options import save_folders
from assistant.recover.checkpoints.search import CheckpointSearch, SaveState
from assistant.recover.directives import Directives, read_directives
from assistant.recover.job_program import JobProgram, programs_of
from assistant.recover.resume.means import ResumeMeans, ResumeWay
from assistant.recover.resume.script import resume_way, stage_way
from assistant.recover.resume.stages import Stage
from assistant.recover.shell.folders import UNRESOLVED
from assistant.schedulers.slurm_spec import repeat_doubt
from assistant.schedulers.slurm_specs import SEPARATOR
from assistant.schedulers.slurm_text import folder_of_one_job
from assistant.schedulers.slurm_typed import VALUE_LETTERS

DEFAULT_OUTPUT, DEFAULT_ARRAY_OUTPUT = "slurm-%j.out", "slurm-%A_%a.out"
NEVER_READ = "/dev/null"
MOST_CALLED = 6
"""Scripts that a script runs, whose logs are looked for as well."""
_SHORT = {
    "A": "account", "a": "array", "b": "begin", "c": "cpus-per-task", "C": "constraint", "d": "dependency", "D": "chdir",
    "e": "error", "G": "gpus", "i": "input", "J": "job-name", "N": "nodes", "n": "ntasks", "o": "output", "p": "partition",
    "q": "qos", "t": "time", "w": "nodelist", "x": "exclude",
}  # fmt: skip
_OF_ONE_ATTEMPT = re.compile(r"%\d*[jAs]")
_PLACEHOLDERS = {letter: f"%{letter}" for letter in "AaJjNnstux"}
"""Of a job that does not exist yet: Slurm's patterns stay as they are."""
BY_ITSELF = (ResumeMeans.TRACKER, ResumeMeans.NEWEST)


class Weight(StrEnum):
    """What a gap costs."""

    BLOCKS = "blocks"
    """Nightshift would not bring the job back, or not from its checkpoint."""
    IMPROVES = "improves"
    """It would, and knows less than it could."""


@dataclass(frozen=True, slots=True)
class Gap:
    """Something that is not understood, and the one line that would tell."""

    weight: Weight
    text: str
    line: str
    """To add to the script, or the command to give; empty where no single line helps."""


@dataclass(frozen=True, slots=True)
class LogSource:
    """A file that the job writes its output to, or one a rank."""

    path: str
    """Absolute where its folder is known; of a script with Slurm's patterns."""
    origin: LogOrigin
    how: str
    """The words that name it."""
    state: str = ""
    """Of a job's: what is there now, as `logs.attempt.LogFileState` has it; empty of a script."""
    note: str = ""
    """Why it is not read, or what is to be known about it."""


@dataclass(frozen=True, slots=True)
class JobReading:
    """What is understood of one job."""

    spec: JobSpec
    options: Mapping[str, str]
    """Of sbatch, by long name, those of its command line over the `#SBATCH` lines; a plain option has an empty value."""
    directives: Directives
    framework: str
    """Empty where none was recognised."""
    launch: str
    """The last program that the script starts, expanded; empty where it starts none that is recognised."""
    logs: tuple[LogSource, ...]
    log_problems: tuple[str, ...]
    """What names a log that could not be looked for, or sends output nowhere."""
    checkpoint_folder: str
    """Empty where nothing says it."""
    checkpoint_how: str
    never_saves: str
    """The proof that it saves no checkpoint; empty where there is none, or where a folder is known."""
    resume: ResumeWay
    shape: str
    """Nodes, tasks, array, time limit, in words."""
    doubt: str = ""
    """Why a new submission would not be the same job; empty where it would be."""
    unread_behind: str = ""
    """Why the script is not read to its end; empty where it is."""
    gaps: tuple[Gap, ...] = ()
    """The costliest first."""
    stateless: bool = False
    """Whether its programs are read to keep no state, so that a restart loses nothing: a server."""

    @property
    def ready(self) -> bool:
        """Whether nothing keeps Nightshift from bringing the job back from its checkpoint."""
        return not any(gap.weight is Weight.BLOCKS for gap in self.gaps)


def job_of_script(script: str, *, name: str, arguments: Sequence[str] = (), work_dir: Path = Path(), user: str = "") -> Job:
    """Return the job that a batch script would become; of an array its first task. It has no id.

    Args:
        script: Its text.
        name: Of the job where the script names none: sbatch takes the file's.
        arguments: Of the script.
        work_dir: Where it would be submitted.
        user: Who would submit it.
    """
    options = sbatch_options(script)
    folder = work_dir / options.get("chdir", "")
    first = re.match(r"\d{1,9}", options.get("array", ""))
    spec = JobSpec(
        options.get("job-name") or name,
        script,
        nodes=_whole(options.get("nodes"), 1),
        ranks_per_node=_whole(options.get("ntasks-per-node"), 1),
        work_dir=folder,
        log=options.get("output"),
        partition=options.get("partition", ""),
        user=user,
        environment={"SLURM_ARRAY_TASK_ID": first[0]} if first is not None else {},
        arguments=tuple(arguments),
        doubt=repeat_doubt(script, heterogeneous=bool(SEPARATOR.search(script)), array="array" in options),
    )
    return Job(
        "",
        spec.name,
        user,
        JobState.PENDING,
        spec.partition,
        (),
        None,
        folder,
        submitted=None,
        started=None,
        ended=None,
        exit_code=None,
        signal=None,
        spec=spec,
    )


def read_script(
    script: str,
    *,
    name: str = "job",
    arguments: Sequence[str] = (),
    work_dir: Path = Path(),
    read: Callable[[str], str | None] = lambda _: None,
) -> JobReading:
    """Return what is understood of a batch script as a user would submit it.

    Args: as `job_of_script`, and
        read: Returns the text of a file that the script names, by its absolute path; None where it cannot be read.
    """
    job = job_of_script(script, name=name, arguments=arguments, work_dir=work_dir)
    programs = programs_of(job, read)
    logs, problems = script_logs(job, read)
    place = checkpoint_place(job, {}, (), programs)
    return read_job(job, programs, resume_way(job, programs), place=place, logs=logs, log_problems=problems)


def read_job(
    job: Job,
    programs: Sequence[JobProgram],
    way: ResumeWay,
    *,
    place: Place | None,
    search: CheckpointSearch | None = None,
    logs: tuple[LogSource, ...] = (),
    log_problems: tuple[str, ...] = (),
) -> JobReading:
    """Return what is understood of a job.

    Args:
        job: With its spec.
        programs: What its script starts.
        way: How it resumes.
        place: The surest folder of its checkpoints.
        search: What was found in the folders; None where none was looked at.
        logs: Its logs.
        log_problems: Which of them could not be looked for.

    Raises:
        ValueError: It has no spec.
    """
    if job.spec is None:
        raise ValueError(f"job {job.id} has no script to be read")
    spec = job.spec
    options = {**sbatch_options(spec.script), **_options_of(spec.options)}
    place = search.place if search is not None and search.place is not None else place
    if search is not None and search.place is None and search.stages is not None and search.stages.resumed is not None:
        place = place_of(save_folders(search.stages.stages[search.stages.resumed].programs)[0])
    how = place.how if place is not None else ""
    stages = [stage for stage in search.stages.stages if stage.launched] if search is not None and search.stages is not None else []
    if len(stages) > 1:
        how += f"; it trains in {len(stages)} stages: {', '.join(stage.name for stage in stages)}"
    how += f", of task {spec.environment['SLURM_ARRAY_TASK_ID']}" if how and not job.id and "array" in options else ""
    launch = shlex.join(programs[-1].launch.words).replace(UNRESOLVED, "?") if programs else ""
    reading = JobReading(
        spec,
        options,
        read_directives(spec.script),
        framework_of(
            "\n".join([launch, spec.script, *(name for program in programs for s in program.sources for name in s.modules)])
        ),
        launch,
        logs,
        log_problems,
        str(place.folder) if place is not None else "",
        how,
        search.note if search is not None and search.state is SaveState.NEVER_SAVED and place is None else "",
        way,
        shape_of(spec, options),
        spec.doubt,
        next((program.unread_behind for program in programs if program.unread_behind), ""),
    )
    reading = replace(reading, stateless=search is not None and search.stateless)
    return replace(reading, gaps=(*_stage_gaps(reading, stages), *gaps_of(reading)))


def _stage_gaps(reading: JobReading, stages: Sequence[Stage]) -> Iterator[Gap]:
    """Yield the stages that a restart in a later one would run again from the start, over what they have saved."""
    if reading.directives.resumes:
        return
    for stage in stages[:-1]:
        way = stage_way(reading.spec.script, stage)
        if stage.guarded or way.means in BY_ITSELF:
            continue
        text = f"a restart in a later stage runs {stage.name} again: {way.sentence}"
        folder = shown_pattern(str(stage.folder))
        yield Gap(Weight.BLOCKS, text, f"[ -f {folder}/done ] || {{ …; touch {folder}/done; }}    # around that stage")


def sbatch_options(script: str) -> dict[str, str]:
    """Return the options of the `#SBATCH` lines by their long names; the last word on one counts, as with sbatch.

    Like sbatch it stops at the first command, and reads no `#SBATCH` line behind it.
    """
    options: dict[str, str] = {}
    for number, line in enumerate(script.splitlines()):
        text = line.strip()
        if not text or (text.startswith("#") and not text.startswith("#SBATCH")) or (number == 0 and text.startswith("#!")):
            continue
        if not text.startswith("#SBATCH"):
            break
        try:
            words = shlex.split(text.removeprefix("#SBATCH"), comments=True)
        except ValueError:
            continue
        options |= _options_of(words)
    return options


def _options_of(words: Sequence[str]) -> dict[str, str]:
    """Return options by their long names from words of a command line."""
    options: dict[str, str] = {}
    place = 0
    while place < len(words):
        word = words[place]
        place += 1
        option_name, equals, value = word.partition("=")
        if option_name.startswith("--"):
            key = option_name[2:]
            if not equals and place < len(words) and not words[place].startswith("-"):
                value, place = words[place], place + 1
        elif option_name.startswith("-") and len(word) > 1:
            key, value = _SHORT.get(word[1], word[1]), word[2:].removeprefix("=")
            if not value and word[1] in VALUE_LETTERS and place < len(words):
                value, place = words[place], place + 1
        else:
            continue
        options[key] = value
    return options


_FRAMEWORKS = (
    ("torchtitan", re.compile(r"torchtitan|--job\.config_file")),
    ("nemo", re.compile(r"\bnemo\b|nemo_run|\bexp_manager\.", re.IGNORECASE)),
    ("megatron", re.compile(r"megatron|pretrain_(?:gpt|bert|t5|llama)\w*\.py|--tensor-model-parallel-size")),
    ("litgpt", re.compile(r"\blitgpt\b")),
    ("nanogpt", re.compile(r"--init_from|--out_dir=|nanogpt", re.IGNORECASE)),
    ("composer", re.compile(r"\bcomposer\s|llm-foundry|--save_folder")),
    ("lightning", re.compile(r"lightning|--trainer\.")),
    ("deepspeed", re.compile(r"\bdeepspeed\b|--deepspeed")),
    (
        "huggingface",
        re.compile(r"run_(?:clm|mlm|sft|glue|summarization)\w*\.py|--per_device_train_batch_size|transformers|\btrl\b"),
    ),
    ("accelerate", re.compile(r"\baccelerate\s+launch")),
)


def framework_of(text: str) -> str:
    """Return the training framework that a script names; empty where it names none."""
    return next((name for name, pattern in _FRAMEWORKS if pattern.search(text)), "")


def script_logs(job: Job, read: Callable[[str], str | None]) -> tuple[tuple[LogSource, ...], tuple[str, ...]]:
    """Return the logs that a script which has not been submitted names, and what names one that cannot be told.

    Args:
        job: From `job_of_script`.
        read: As in `read_script`; for scripts that it runs.
    """
    if job.spec is None:
        return (), ()
    options = sbatch_options(job.spec.script)
    folder = str(job.work_dir or "")
    default = DEFAULT_ARRAY_OUTPUT if "array" in options else DEFAULT_OUTPUT
    output = options.get("output")
    logs = [LogSource(_below(folder, output or default), LogOrigin.OUTPUT, "#SBATCH --output" if output else "Slurm's default")]
    if options.get("error"):
        logs.append(LogSource(_below(folder, options["error"]), LogOrigin.ERROR, "#SBATCH --error"))
    ids = [("SLURM_JOB_ID", "%j"), ("SLURM_JOBID", "%j"), ("SLURM_JOB_NAME", "%x"), ("SLURM_ARRAY_JOB_ID", "%A")]
    variables = dict(known_variables([*ids, ("SLURM_ARRAY_TASK_ID", "%a"), ("SLURM_SUBMIT_DIR", folder)]))
    around = Surroundings(folder if folder.startswith("/") else "", _PLACEHOLDERS, variables, job.spec.arguments)
    declared = [declared_logs(job.spec.script, around)]
    for path in declared[0].called[:MOST_CALLED]:
        declared.append(declared_logs(read(path) or "", around))
    for declared_log in declared:
        logs += [LogSource(shown_pattern(log.path), log.origin, log.how) for log in declared_log.patterns]
    problems = [problem for one in declared for problem in (*one.problems, *map(_nowhere, one.nowhere))]
    return tuple(dict.fromkeys(logs)), tuple(dict.fromkeys(problems))


def _nowhere(how: str) -> str:
    return f"`{how}` throws output away"


def _below(folder: str, path: str) -> str:
    return str(PurePosixPath(folder) / path)


def log_sources(logs: JobLogs) -> tuple[LogSource, ...]:
    """Return the logs of a job as a reading holds them."""
    return tuple(
        LogSource(
            str(file.path) if file.state is not LogFileState.DISCARDED else NEVER_READ,
            file.origin,
            file.how,
            str(file.state),
            file.note,
        )
        for file in logs.files
    )


def shape_of(spec: JobSpec, options: Mapping[str, str]) -> str:
    """Return nodes, tasks, GPUs, array and time limit in words."""
    parts = [f"{spec.nodes} node{'s' * (spec.nodes != 1)}"]
    parts += [f"{spec.ranks_per_node} tasks a node"] if spec.ranks_per_node > 1 else []
    parts += [f"{options['ntasks']} task{'s' * (options['ntasks'] != '1')}"] if options.get("ntasks") else []
    parts += ["the first part of a heterogeneous job"] if SEPARATOR.search(spec.script) else []
    parts += [f"{key} {options[key]}" for key in ("gpus", "gres", "gpus-per-node", "mem", "cpus-per-task") if options.get(key)]
    parts += [f"array {options['array']}"] if options.get("array") else []
    parts += [f"after {options['dependency']}"] if options.get("dependency") else []
    limit = options.get("time") or (f"{spec.time_limit_s // 60} min" if spec.time_limit_s else "")
    parts += [f"time limit {limit}"] if limit else ["no time limit of its own"]
    return ", ".join(parts)


_HOW_TO_RESUME = {
    "megatron": '#NIGHTSHIFT resume="--load {checkpoint}"',
    "nanogpt": '#NIGHTSHIFT resume="--init_from=resume"',
    "litgpt": '#NIGHTSHIFT resume="--resume {checkpoint}"',
    "composer": '#NIGHTSHIFT resume="--load_path {checkpoint}"',
    "huggingface": '#NIGHTSHIFT resume="--resume_from_checkpoint {checkpoint}"',
    "accelerate": '#NIGHTSHIFT resume="--resume_from_checkpoint {checkpoint}"',
    "deepspeed": '#NIGHTSHIFT resume="--resume_from_checkpoint {checkpoint}"',
    "lightning": '#NIGHTSHIFT resume="--ckpt_path {checkpoint}"',
}
_BY_ITSELF = "#NIGHTSHIFT resumes=newest    # where your program loads the newest checkpoint of its folder by itself"
_ANY_RESUME = '#NIGHTSHIFT resume="ARGUMENT {checkpoint}"    # with the argument by which your program loads a checkpoint'


def gaps_of(reading: JobReading) -> tuple[Gap, ...]:
    """Return what is not understood, the costliest first, each with the line that would mend it."""
    gaps = [Gap(Weight.BLOCKS, f"a #NIGHTSHIFT line is not understood: {problem}", "") for problem in reading.directives.problems]
    gaps += [*_log_gaps(reading), *_resume_gaps(reading)]
    if reading.unread_behind:
        gaps.append(Gap(Weight.BLOCKS, f"{reading.unread_behind}; what stands behind that is not known", ""))
    if not reading.launch:
        gaps.append(Gap(Weight.IMPROVES, "no program is recognised in it: what it starts may say more", ""))
    if not reading.directives.owner:
        gaps.append(Gap(Weight.IMPROVES, "who is told of it is its user alone", "#NIGHTSHIFT owner=NAME"))
    return tuple(sorted(gaps, key=lambda gap: gap.weight is Weight.IMPROVES))


def _log_gaps(reading: JobReading) -> list[Gap]:
    gaps = []
    if all(log.path == NEVER_READ for log in reading.logs):
        text = "all of its output goes to /dev/null: nobody can see why it fails" if reading.logs else "it has no log that is known"
        gaps.append(Gap(Weight.BLOCKS, text, "#SBATCH --output=%x-%j.log"))
    streams = {"output": reading.spec.log or reading.options.get("output"), "error": reading.options.get("error")}
    for stream, path in streams.items():
        if path and path != NEVER_READ and not _OF_ONE_ATTEMPT.search(path):
            stem, dot, end = path.rpartition(".")
            better = f"{stem}-%j.{end}" if dot and "/" not in end else f"{path}-%j"
            gaps.append(Gap(Weight.IMPROVES, f"the next attempt writes over {path}, or behind it", f"#SBATCH --{stream}={better}"))
            break
    for stream, path in streams.items():
        if path and (folder := folder_of_one_job(path)):
            text = f"Slurm makes no folders, and {folder} is another one for each job: without it a new job ends at once with 0:53"
            name = path[len(folder) + 1 :]
            gaps.append(Gap(Weight.BLOCKS, text, f"#SBATCH --{stream}={folder}-{name}"))
    if reading.log_problems:
        gaps.append(Gap(Weight.IMPROVES, f"not all logs are known: {reading.log_problems[0]}", "#NIGHTSHIFT logs=FILE"))
    return gaps


def _resume_gaps(reading: JobReading) -> list[Gap]:
    gaps = []
    way, line = reading.resume, _HOW_TO_RESUME.get(reading.framework, _ANY_RESUME)
    if reading.doubt:
        line = _BY_ITSELF  # a job that is queued again under its own id is given no arguments
    if reading.never_saves and not reading.stateless:
        gaps.append(Gap(Weight.BLOCKS, reading.never_saves, ""))
    elif not reading.checkpoint_folder and not reading.stateless:
        gaps.append(Gap(Weight.BLOCKS, "where it saves checkpoints is not known", "#NIGHTSHIFT checkpoints=FOLDER"))
    if way.means in (ResumeMeans.NONE, ResumeMeans.UNKNOWN, ResumeMeans.FIXED) and not reading.stateless:
        gaps.append(Gap(Weight.BLOCKS, way.sentence, line))
    elif way.means in BY_ITSELF and not reading.doubt:
        text = "where an older checkpoint is chosen, newer ones are moved aside or the tracker is set first, as the policy allows"
        gaps.append(Gap(Weight.IMPROVES, text, line))
    if reading.doubt and way.means is ResumeMeans.ARGUMENT:
        text = (
            f"it cannot be submitted again as it was: {reading.doubt}; queued again under its own id it is not told the checkpoint "
            "that its script takes from Nightshift: let the program load the newest of its folder by itself"
        )
        gaps.append(Gap(Weight.BLOCKS, text, ""))
    elif reading.doubt:
        text = f"it is queued again under its own id, not submitted anew: {reading.doubt}"
        gaps.append(Gap(Weight.IMPROVES, text, ""))
    return gaps


def _whole(text: str | None, default: int) -> int:
    first = (text or "").partition("-")[0]
    return int(first) if first.isdecimal() and len(first) < 8 and int(first) else default
