"""What is understood of a job from its batch script: logs, checkpoints, how it resumes, its shape, which line would improve it.

Pure: a script and its arguments in, a `JobReading` out. Each part is a function of its own that fills one field, so that a better
source (the scheduler's record, the job's log, its folders) can replace the field afterwards with `dataclasses.replace`.
"""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from pathlib import Path

from assistant.records import JobSpec
from assistant.recover.checkpoints.place import ENVIRONMENT
from assistant.recover.directives import Directives, read_directives
from assistant.recover.restart import ARGS, LAUNCHER, RESUME_FROM, STEP
from assistant.schedulers.slurm_typed import VALUE_LETTERS

MOST_CHARACTERS = 20_000
"""Of one command: what a user writes is read in bounded time."""
DEFAULT_OUTPUT, DEFAULT_ARRAY_OUTPUT = "slurm-%j.out", "slurm-%A_%a.out"
NEVER_READ = "/dev/null"
_SHORT = {
    "A": "account", "a": "array", "b": "begin", "c": "cpus-per-task", "C": "constraint", "d": "dependency", "D": "chdir",
    "e": "error", "G": "gpus", "i": "input", "J": "job-name", "N": "nodes", "n": "ntasks", "o": "output", "p": "partition",
    "q": "qos", "t": "time", "w": "nodelist", "x": "exclude",
}  # fmt: skip
_OF_ONE_ATTEMPT = re.compile(r"%[jAs]")
_SAVE_ARGUMENTS = (
    "exp_manager.exp_dir", "exp_manager.explicit_log_dir", "save", "save-dir", "save_dir", "save-path", "save_path", "save_folder",
    "output_dir", "output-dir", "out_dir", "out-dir", "checkpoint.folder", "checkpoint_dir", "checkpoint-dir", "checkpoint_path",
    "checkpoint-path", "ckpt_dir", "ckpt-dir", "ckpt_path", "default_root_dir", "trainer.default_root_dir", "job.dump_folder",
    "dump_folder", "model_dir", "workdir",
)  # fmt: skip
_CONFIG_ARGUMENTS = ("config", "config-file", "config_file", "job.config_file", "deepspeed_config", "config_path", "yaml", "cfg")
_RESUME_ARGUMENTS = (
    "load",
    "resume",
    "resume-from",
    "resume_from",
    "resume_from_checkpoint",
    "ckpt_path",
    "init_from",
    "load_path",
)
_STARTS = re.compile(rf"{LAUNCHER.pattern}|\b(?:composer|horovodrun|apptainer|singularity|colossalai|litgpt|julia)\s")
_REDIRECTION = re.compile(r"(?:^|\s)(?:[12]?>>?|&>>?|\|\s*tee(?:\s+-a)?)\s*([^\s;&|]+)")


class ResumeMode(StrEnum):
    """How a script goes on from a checkpoint when it is submitted again."""

    NIGHTSHIFT = "nightshift"
    """It takes the checkpoint that Nightshift chose."""
    ITSELF = "itself"
    """It takes the newest that it finds, whatever was chosen."""
    NO = "no"
    """It would start at step 0."""
    UNKNOWN = "unknown"


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
class LogFile:
    """A file that the job writes its output to."""

    path: str
    """As written, with Slurm's patterns."""
    stream: str
    """`output`, `error`, `step` (of an srun), or `redirected`."""
    how: str
    """Where that is said."""


@dataclass(frozen=True, slots=True)
class ResumeReading:
    """How a script resumes, and what says so."""

    mode: ResumeMode
    how: str


@dataclass(frozen=True, slots=True)
class JobReading:
    """What is understood of one job."""

    spec: JobSpec
    options: Mapping[str, str]
    """Of sbatch, by long name, as the script's `#SBATCH` lines have them; a plain option has an empty value."""
    directives: Directives
    framework: str
    """Empty where none was recognised."""
    launch: str
    """The command line that starts training, with its continued lines joined; empty where none was recognised."""
    logs: tuple[LogFile, ...]
    checkpoint_folder: str
    """As written; empty where nothing says it."""
    checkpoint_how: str
    resume: ResumeReading
    shape: str
    """Nodes, tasks, array, time limit, in words."""
    cannot_repeat: tuple[str, ...] = ()
    """Why the scheduler cannot be given the same job again."""
    gaps: tuple[Gap, ...] = field(default=())
    """The costliest first."""

    @property
    def ready(self) -> bool:
        """Whether nothing keeps Nightshift from bringing the job back from its checkpoint."""
        return not any(gap.weight is Weight.BLOCKS for gap in self.gaps)


def read_script(script: str, *, name: str = "job", arguments: Sequence[str] = (), work_dir: Path = Path()) -> JobReading:
    """Return what is understood of a batch script as a user would submit it.

    Args:
        script: Its text.
        name: Of the job where the script names none: sbatch takes the file's.
        arguments: Of the script.
        work_dir: Where it would be submitted.
    """
    options = sbatch_options(script)
    folder = Path(options.get("chdir", "") or work_dir)
    spec = JobSpec(
        options.get("job-name") or name,
        script,
        nodes=_whole(options.get("nodes"), 1),
        ranks_per_node=_whole(options.get("ntasks-per-node"), 1),
        work_dir=folder,
        log=options.get("output"),
        partition=options.get("partition", ""),
        arguments=tuple(arguments),
    )
    return read_spec(spec, options)


def read_spec(spec: JobSpec, options: Mapping[str, str] | None = None) -> JobReading:
    """Return what is understood of a job's specification, as the scheduler or a script gives it."""
    options = sbatch_options(spec.script) if options is None else options
    directives = read_directives(spec.script)
    launch = launch_of(spec.script, spec.arguments, name=spec.name)
    framework = framework_of(f"{launch}\n{spec.script}")
    folder, how = checkpoints_of(spec, directives, launch)
    logs = logs_of(spec.script, options, spec.log)
    resume = resume_of(spec.script, directives, launch, framework)
    reading = JobReading(
        spec, options, directives, framework, launch, logs, folder, how, resume, shape_of(spec, options), repeat_of(spec.script)
    )
    return with_gaps(reading)


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
        place = 0
        while place < len(words):
            word = words[place]
            place += 1
            named, equals, value = word.partition("=")
            if named.startswith("--"):
                key = named[2:]
                if not equals and place < len(words) and not words[place].startswith("-"):
                    value, place = words[place], place + 1
            elif named.startswith("-") and len(word) > 1:
                key, value = _SHORT.get(word[1], word[1]), word[2:].removeprefix("=")
                if not value and word[1] in VALUE_LETTERS and place < len(words):
                    value, place = words[place], place + 1
            else:
                continue
            options[key] = value
    return options


def code_lines(script: str) -> list[str]:
    """Return the commands of a script: comments left out, continued lines joined, heredocs as they stand."""
    joined = re.sub(r"\\\r?\n", " ", script)
    lines = (line.strip()[:MOST_CHARACTERS] for line in joined.splitlines())
    return [line for line in lines if line and not line.startswith("#")]


_ASSIGNMENT = re.compile(r"(?:export\s+)?([A-Za-z_]\w*)=(?:\"([^\"`]*)\"|'([^'`]*)'|([^\s\"'`;]*))")
_NO_LAUNCH = re.compile(r"(?:module|source|echo|export|conda|which|mkdir|cat)\b")
MOST_PASSES = 5


def launch_of(script: str, arguments: Sequence[str] = (), *, name: str = "") -> str:
    """Return the last command that starts a program of a known launcher, its variables filled in where the script sets them."""
    lines = code_lines(script)
    values = {"SLURM_JOB_NAME": name} if name else {}
    for line in lines:
        match = _ASSIGNMENT.fullmatch(line)
        if match is not None and "$(" not in line:
            values[match[1]] = next((text for text in match.groups()[1:] if text is not None), "")[: MOST_CHARACTERS // 4]
    launches = [line for line in lines if _STARTS.search(line) and not _NO_LAUNCH.match(line) and not _ASSIGNMENT.fullmatch(line)]
    if not launches:
        return ""
    filled = launches[-1]
    for _ in range(MOST_PASSES):
        before = filled
        filled = _VARIABLE.sub(lambda match: values.get(match[1] or match[2], match[0]), filled)[:MOST_CHARACTERS]
        if filled == before:
            break
    if arguments:
        filled = re.sub(r"\"?\$[@*]\"?", lambda _: shlex.join(arguments), filled)
    return filled


_VARIABLE = re.compile(r"\$\{([A-Za-z_]\w*)(?::?-[^}]*)?\}|\$([A-Za-z_]\w*)")


_FRAMEWORKS = (
    ("torchtitan", re.compile(r"torchtitan|--job\.config_file")),
    ("nemo", re.compile(r"\bnemo\b|nemo_run|\bexp_manager\.", re.IGNORECASE)),
    ("megatron", re.compile(r"megatron|pretrain_(?:gpt|bert|t5|llama)\w*\.py|--tensor-model-parallel-size")),
    ("nanogpt", re.compile(r"--init_from|--out_dir|nanogpt", re.IGNORECASE)),
    ("composer", re.compile(r"\bcomposer\s|llm-foundry|--save_folder")),
    ("lightning", re.compile(r"lightning|litgpt|--trainer\.")),
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


def argument_of(launch: str, names: Sequence[str]) -> tuple[str, str] | None:
    """Return the first of some long arguments of a command, with its value; None where it has none of them."""
    for name in names:
        match = re.search(rf"(?<![^\s\"'])--{re.escape(name)}(?:[= ]+(?!-)(\"[^\"]*\"|'[^']*'|[^\s;|&]+)|(?=\s|$))", launch)
        if match is not None:
            return f"--{name}", (match[1] or "").strip("\"'")
        # Hydra and NeMo write key=value
        match = re.search(rf"(?<![^\s\"'])\+?{re.escape(name)}=([^\s;|&\"']+)", launch) if "." in name else None
        if match is not None:
            return name, match[1]
    return None


def checkpoints_of(spec: JobSpec, directives: Directives, launch: str) -> tuple[str, str]:
    """Return where a job saves, and what says so; two empty texts where nothing does."""
    if directives.checkpoints:
        return directives.checkpoints, "#NIGHTSHIFT checkpoints= in the script"
    if spec.environment.get(ENVIRONMENT):
        return spec.environment[ENVIRONMENT], f"{ENVIRONMENT} in the job's environment"
    exported = re.search(rf"^\s*(?:export\s+)?{ENVIRONMENT}=[\"']?([^\"'\s]+)", spec.script, re.MULTILINE)
    if exported:
        return exported[1], f"{ENVIRONMENT} in the script"
    said = argument_of(launch, _SAVE_ARGUMENTS)
    if said is not None and said[1] and "$" not in said[1]:
        return said[1], f"{said[0]} of the launch command"
    return "", ""


def resume_of(script: str, directives: Directives, launch: str, framework: str) -> ResumeReading:
    """Return how a script goes on when it is submitted again, by what it says itself."""
    code = "\n".join(code_lines(script))
    if RESUME_FROM in code or ARGS in code or re.search(rf"\b{STEP}\b", code):
        return ResumeReading(ResumeMode.NIGHTSHIFT, f"the script uses {RESUME_FROM if RESUME_FROM in code else ARGS}")
    if directives.resume:
        return ResumeReading(ResumeMode.NIGHTSHIFT, f'#NIGHTSHIFT resume="{directives.resume}"')
    if re.search(r"--overwrite_output_dir\b(?!\s+false)", launch, re.IGNORECASE):
        return ResumeReading(ResumeMode.NO, "--overwrite_output_dir starts over")
    if framework == "torchtitan":
        return ResumeReading(ResumeMode.ITSELF, "torchtitan loads the newest checkpoint of its folder when checkpoints are enabled")
    said = argument_of(launch, _RESUME_ARGUMENTS)
    if framework == "nanogpt":
        mode = ResumeMode.ITSELF if said == ("--init_from", "resume") else ResumeMode.NO
        return ResumeReading(mode, "--init_from=resume loads ckpt.pt" if mode is ResumeMode.ITSELF else "--init_from is not resume")
    if framework == "megatron":
        if said is not None and said[0] == "--load":
            return ResumeReading(ResumeMode.ITSELF, "--load takes the checkpoint that the tracker names")
        return ResumeReading(ResumeMode.NO, "Megatron loads nothing without --load")
    if framework == "nemo" and re.search(r"resume_if_exists=true", launch, re.IGNORECASE):
        return ResumeReading(ResumeMode.ITSELF, "exp_manager.resume_if_exists=true loads the newest of its folder")
    if said is None:
        return ResumeReading(ResumeMode.UNKNOWN, "nothing in the script says it")
    if said[1].lower() in ("", "true", "latest", "auto", "last", "resume", "yes", "1"):
        return ResumeReading(ResumeMode.ITSELF, f"{said[0]} {said[1]}".strip())
    return ResumeReading(ResumeMode.UNKNOWN, f"{said[0]} {said[1]} names one place: what it loads there is not known")


def logs_of(script: str, options: Mapping[str, str], known: str | None = None) -> tuple[LogFile, ...]:
    """Return the files that the job's output goes to: of the batch script, of its steps, and those that the script redirects to."""
    output = options.get("output")
    default = DEFAULT_ARRAY_OUTPUT if "array" in options else DEFAULT_OUTPUT
    found = [
        LogFile(
            known or output or default,
            "output",
            "#SBATCH --output" if output else "as sbatch was told" if known else "Slurm's default",
        )
    ]
    if options.get("error"):
        found.append(LogFile(options["error"], "error", "#SBATCH --error"))
    for line in code_lines(script):
        if re.search(r"\bsrun\b", line):
            step = argument_of(line, ("output",)) or _short_argument(line, "o")
            error = argument_of(line, ("error",)) or _short_argument(line, "e")
            found += [LogFile(said[1], "step", f"srun {said[0]}") for said in (step, error) if said is not None and said[1]]
        if _STARTS.search(line):
            found += [
                LogFile(path.strip("\"'"), "redirected", "a redirection") for path in _REDIRECTION.findall(line) if path != "&1"
            ]
    return tuple(dict.fromkeys(found))


def _short_argument(line: str, letter: str) -> tuple[str, str] | None:
    match = re.search(rf"\bsrun\b(?:\s+-\S+(?:\s+[^-\s]\S*)?)*?\s-{letter}\s*(\S+)", line)
    return None if match is None else (f"-{letter}", match[1])


def shape_of(spec: JobSpec, options: Mapping[str, str]) -> str:
    """Return nodes, tasks, GPUs, array and time limit in words."""
    parts = [f"{spec.nodes} node{'s' * (spec.nodes != 1)}"]
    parts += [f"{spec.ranks_per_node} tasks a node"] if spec.ranks_per_node > 1 else []
    parts += [f"{options['ntasks']} tasks"] if options.get("ntasks") else []
    parts += [f"{key} {options[key]}" for key in ("gpus", "gres", "gpus-per-node", "mem", "cpus-per-task") if options.get(key)]
    parts += [f"array {options['array']}"] if options.get("array") else []
    parts += [f"after {options['dependency']}"] if options.get("dependency") else []
    limit = options.get("time") or (f"{spec.time_limit_s // 60} min" if spec.time_limit_s else "")
    parts += [f"time limit {limit}"] if limit else ["no time limit of its own"]
    return ", ".join(parts)


def repeat_of(script: str) -> tuple[str, ...]:
    """Return why the same job cannot be submitted again as it was."""
    if re.search(r"^#SBATCH\s+(?:hetjob|packjob)\b", script, re.MULTILINE):
        return ("it is heterogeneous: Slurm keeps too little of the other parts to submit it again; requeue keeps them",)
    return ()


_HOW_TO_RESUME = {
    "megatron": '#NIGHTSHIFT resume="--load {checkpoint}"',
    "nanogpt": '#NIGHTSHIFT resume="--init_from=resume"',
    "huggingface": '#NIGHTSHIFT resume="--resume_from_checkpoint {checkpoint}"',
    "accelerate": '#NIGHTSHIFT resume="--resume_from_checkpoint {checkpoint}"',
    "deepspeed": '#NIGHTSHIFT resume="--resume_from_checkpoint {checkpoint}"',
    "lightning": '#NIGHTSHIFT resume="--ckpt_path {checkpoint}"',
}
_ANY_RESUME = '#NIGHTSHIFT resume="ARGUMENT {checkpoint}"    # with the argument by which your program loads a checkpoint'


def with_gaps(reading: JobReading) -> JobReading:
    """Return a reading with what is not understood, the costliest first, each with the line that would mend it."""
    gaps = [Gap(Weight.BLOCKS, f"a #NIGHTSHIFT line is not understood: {problem}", "") for problem in reading.directives.problems]
    gaps += [Gap(Weight.BLOCKS, text, "") for text in reading.cannot_repeat]
    real = [log for log in reading.logs if log.path != NEVER_READ]
    if not real:
        gaps.append(
            Gap(Weight.BLOCKS, "all of its output goes to /dev/null: nobody can see why it fails", "#SBATCH --output=%x-%j.log")
        )
    if not reading.checkpoint_folder:
        config = argument_of(reading.launch, _CONFIG_ARGUMENTS)
        where = f"; {config[0]} {config[1]} may say it" if config is not None and config[1] else ""
        gaps.append(Gap(Weight.BLOCKS, f"where it saves checkpoints is not known{where}", "#NIGHTSHIFT checkpoints=FOLDER"))
    if reading.resume.mode in (ResumeMode.NO, ResumeMode.UNKNOWN):
        what = "would start at step 0 again" if reading.resume.mode is ResumeMode.NO else "is not known to resume"
        line = _HOW_TO_RESUME.get(reading.framework, _ANY_RESUME)
        gaps.append(Gap(Weight.BLOCKS, f"submitted again it {what}: {reading.resume.how}", line))
    elif reading.resume.mode is ResumeMode.ITSELF:
        text = f"it loads what it finds ({reading.resume.how}), also where Nightshift chose an older healthy checkpoint"
        gaps.append(Gap(Weight.IMPROVES, text, _HOW_TO_RESUME.get(reading.framework, _ANY_RESUME)))
    fixed = next((log for log in real if log.stream in ("output", "error") and not _OF_ONE_ATTEMPT.search(log.path)), None)
    if fixed is not None:
        stem, dot, end = fixed.path.rpartition(".")
        better = f"{stem}-%j.{end}" if dot and "/" not in end else f"{fixed.path}-%j"
        text = f"the next attempt writes over {fixed.path}, or behind it"
        gaps.append(Gap(Weight.IMPROVES, text, f"#SBATCH --{fixed.stream}={better}"))
    if not reading.launch:
        gaps.append(Gap(Weight.IMPROVES, "no launch command is recognised in it: what it starts may say more", ""))
    if not reading.directives.owner:
        gaps.append(Gap(Weight.IMPROVES, "who is told of it is its user alone", "#NIGHTSHIFT owner=NAME"))
    return replace(reading, gaps=tuple(sorted(gaps, key=lambda gap: gap.weight is Weight.IMPROVES)))


def _whole(text: str | None, default: int) -> int:
    first = (text or "").partition("-")[0]
    return int(first) if first.isdecimal() and len(first) < 8 and int(first) else default
