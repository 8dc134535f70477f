"""What a job's script, configuration and source add to its diagnosis: the commands that remain, its learning rate, exits by design.

The failed command of a pipeline is known by the rule of make that ended, or by the program of the last traceback. What stands in
the script before it would run again: a removal there would take the finished model with it. A program that ends itself with an
exit code of its own where its loss is no number has failed all the same, but nothing is to be mended and no checkpoint helps.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from assistant.diagnose.weighing.training_failure import NO_RESTART
from assistant.engine.evidence.missing_data import relative_paths
from assistant.errors import InputError, NightshiftError, ToolError, Unavailable, UnreadableFile
from assistant.logs.shell import ShellCommand, commands
from assistant.records import Action, Diagnosis, Job
from assistant.recover.checkpoints.search import search_checkpoints
from assistant.recover.job_program import CONFIGS, FileReader, JobProgram, programs_of
from assistant.recover.joblog import log_lines
from assistant.recover.saved_progress import epoch_pace, logged_epoch
from assistant.redact import head_of
from assistant.untrusted import list_folder, read_start
from assistant.watch.outages import paths_of

LAST_LINES, MOST_SHOWN, MAKEFILE_BYTES, MOST_TARGETS, MOST_FILES = 200, 4, 256 << 10, 64, 2_000
_MAKE_ENDED = re.compile(r"^g?make(?:\[\d+\])?: \*\*\* \[(?:[^\]\n]{1,200}:\d+: )?(?P<target>[\w./%+-]{1,100})\] Error \d+")
_PROGRAM = re.compile(r'^\W{0,3}(?:\[?\w{1,20}\]?:\s?)?\s*File "(?P<path>[^"]{1,1000})", line \d{1,9}, in <module>')
_RULE = re.compile(r"^(?P<targets>[\w./%+-][\w./%+ -]{0,400}?)\s*:(?![:=])\s*(?P<needs>[^=#\n]{0,1000})$")
_REMOVES = re.compile(r"^[@-]{0,2}\s*rm\s(?=.{0,80}-\w{0,8}[rR])[^;&|]{1,300}")
_VARIABLE = re.compile(r"\$(?:\{(\w{1,60})\}|(\w{1,60}))")
_PARTED = re.compile(r"[\s;&|<>()*?]")
_IDLE = frozenset(
    "echo printf set export cd module source . date hostname exit trap true ulimit mkdir rm sleep wait unset ml conda local".split()
)
"""What prepares and reports: nobody has to run it for the rest."""


class Remainder(NamedTuple):
    """What of a script is left to be run."""

    commands: tuple[str, ...]
    """The one that failed, and those behind it, as a person would type them."""
    removals: tuple[str, ...]
    """What the whole script removes before it comes there, for people."""


def with_remaining_commands(diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return a diagnosis of a failed tail that names the commands that remain; as it is where the training is not over.

    Call it inside `reading_as(job.account)`.
    """
    if not diagnosis.tail or job is None or job.spec is None or not diagnosis.advice.startswith(NO_RESTART):
        return diagnosis
    try:
        texts = [line.text for line in log_lines(job)][-LAST_LINES:]
        remainder = remainder_of(job.spec.script, texts, _makefile(job))
    except (NightshiftError, OSError):
        return diagnosis
    near = _near_name(job, [cited.text for cited in diagnosis.root_cause[:1]], diagnosis.reason)
    words = [near] if near else []
    if remainder is not None:
        remaining = "; ".join(f"`{command}`" for command in remainder.commands[:MOST_SHOWN])
        words.append(f"What remains, in {job.work_dir}, once that is mended: {remaining}.")
        if remainder.removals:
            removed = "; ".join(remainder.removals[:MOST_SHOWN])
            words.append(f"Do not submit the script again as it is: it begins with {removed}, and would train anew.")
        else:
            words.append("Do not submit the script again as it is: it would train anew first.")
    if not words:
        return diagnosis
    specific = "" if near else diagnosis.advice.removeprefix(NO_RESTART).strip()
    return replace(diagnosis, advice=" ".join([NO_RESTART, *words, specific]).strip())


def remainder_of(script: str, texts: Sequence[str], makefile: str = "") -> Remainder | None:
    """Return what is left of a script behind what failed; None where the failed command is not known, or is its first one.

    Args:
        script: The batch script.
        texts: The end of the attempt's log, in order.
        makefile: The text of the Makefile that it runs; empty where there is none.
    """
    called = [command for command in commands(script) if command.words]
    values = _values(commands(script))
    ended = next((match["target"] for text in reversed(texts) if (match := _MAKE_ENDED.match(text)) is not None), None)
    programs = (match["path"] for text in reversed(texts) if (match := _PROGRAM.match(text)) is not None)
    program = PurePosixPath(next(programs, "")).name
    for place, command in enumerate(called):
        words = [word.source for word in command.words]
        if ended is not None and PurePosixPath(words[0]).name in ("make", "gmake"):
            if (of_make := _of_make(words, ended, makefile)) is None:
                continue
            removals = (*_removals(called[:place], values), *of_make.removals)
            return Remainder((*of_make.commands, *_typed(called[place + 1 :], values)), removals)
        if ended is None and program and any(PurePosixPath(word.strip("'\"")).name == program for word in words):
            before = called[:place]
            if not _typed(before, values):
                return None  # what failed is all that it runs
            return Remainder(_typed(called[place:], values), _removals(before, values))
    return None


def _of_make(words: Sequence[str], ended: str, makefile: str) -> Remainder | None:
    """Return the targets that a call of make had still to make, and what it removes before them."""
    needs, recipes = _rules(makefile)
    options = [word for word in words[1:] if word.startswith("-") or "=" in word]
    goals = [word for word in words[1:] if word not in options] or list(needs)[:1]
    order = list(dict.fromkeys(target for goal in goals for target in _order(goal, needs)))
    if ended not in order:
        return None
    at = order.index(ended)
    prerequisites = {need for goal in goals for need in (needs.get(goal) or [goal])}
    remaining = [target for target in order[at:] if target == ended or target in prerequisites]
    removals = [
        f"`{match[0].lstrip('@- ').strip()}` (target {target} of `{' '.join(words)}`)"
        for target in order[:at]
        for line in recipes.get(target, ())
        if (match := _REMOVES.match(line)) is not None
    ]
    if at == 0:
        return None
    return Remainder((" ".join([words[0], *options, *remaining]),), tuple(removals))


def _rules(makefile: str) -> tuple[dict[str, list[str]], dict[str, list[str]]]:
    """Return what each target of a Makefile needs, and the lines of its recipe; variables stay as they are written."""
    needs: dict[str, list[str]] = {}
    recipes: dict[str, list[str]] = {}
    current: list[str] = []
    for line in makefile.splitlines():
        if line.startswith("\t"):
            for target in current:
                recipes.setdefault(target, []).append(line.strip())
        elif match := _RULE.match(line):
            current = [target for target in match["targets"].split() if not target.startswith(".")]
            for target in current:
                needs.setdefault(target, []).extend(match["needs"].replace("|", " ").split())
        elif line.strip():
            current = []
    return needs, recipes


def _order(goal: str, needs: Mapping[str, Sequence[str]]) -> list[str]:
    """Return the targets in the order in which make makes them for a goal, the goal last."""
    order: list[str] = []
    waiting = [(goal, False)]
    visited: set[str] = set()
    while waiting and len(order) < MOST_TARGETS:
        target, ready = waiting.pop()
        if ready:
            order.append(target)
        elif target not in visited:
            visited.add(target)
            waiting += [(target, True), *((need, False) for need in reversed(needs.get(target, ())))]
    return order


def _values(called: Iterable[ShellCommand]) -> dict[str, str]:
    """Return the variables that a script sets by plain texts."""
    return {
        name: value.source.strip("'\"")
        for command in called
        if not command.words
        for name, value in command.assignments
        if "$" not in value.source and "`" not in value.source
    }


def _text(command: ShellCommand, values: Mapping[str, str]) -> str:
    words = [_VARIABLE.sub(lambda match: values.get(match[1] or match[2], match[0]), word.source) for word in command.words]
    return " ".join(shlex.quote(word) if _PARTED.search(word) else word for word in words)[:300]


def _typed(called: Iterable[ShellCommand], values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the commands that do work, as a person would type them."""
    work = (command for command in called if PurePosixPath(command.words[0].source).name not in _IDLE)
    return tuple(_text(command, values) for command in work)


def _removals(called: Iterable[ShellCommand], values: Mapping[str, str]) -> tuple[str, ...]:
    """Return the commands that remove folders, in backticks, for people."""
    return tuple(f"`{text}`" for command in called if _REMOVES.match(text := _text(command, values)))


def _makefile(job: Job) -> str:
    """Return the text of the Makefile in the folder of a job; empty where there is none that can be read."""
    for name in ("GNUmakefile", "makefile", "Makefile"):
        try:
            return read_start(job.work_dir / name, MAKEFILE_BYTES).decode("utf-8", "replace") if job.work_dir is not None else ""
        except (OSError, InputError):
            continue
    return ""


def _near_name(job: Job, texts: Sequence[str], reason: str) -> str:
    """Return that a file beside the one that is missing has a name of the same words; empty where none or several have."""
    missing = [Path(path) for path in (*paths_of(reason, texts), *relative_paths(job, texts)) if reason == "file_not_found_error"]
    for path in missing[:1]:
        try:
            names = [entry.name for entry in list_folder(path.parent, MOST_FILES)]
        except (OSError, InputError):
            return ""
        words = sorted(re.findall(r"[a-z0-9]+", path.name.lower()))
        near = [name for name in names if sorted(re.findall(r"[a-z0-9]+", name.lower())) == words and name != path.name]
        if len(near) == 1 and path.name not in names:
            return (
                f"{path} is not there; {path.parent / near[0]} is, of the same words: one of the two names is wrong in the script."
            )
    return ""


RATE_OPTIONS = ("lr", "learning_rate", "max_lr", "peak_lr", "base_lr")
"""Names of the option, the last part of a dotted one."""
MOST_CHARACTERS = 120


def with_rate_setting(diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return a loss that its owner has to answer with the place of the learning rate; any other diagnosis as it is."""
    if job is None or diagnosis.reason != "loss_spike" or diagnosis.action is not Action.FIX_AND_RESUBMIT:
        return diagnosis
    place = rate_setting(job)
    return replace(diagnosis, advice=f"{diagnosis.advice} It is set by {place}.") if place else diagnosis


def rate_setting(job: Job) -> str:
    """Return where the learning rate of a job is set: `conf/vae.yaml:2 (lr: 0.6)`; empty where no option of it is known."""
    read = FileReader(job.account)
    try:
        for program in programs_of(job, read):
            option = program.option(*RATE_OPTIONS)
            if option is not None:
                return _line_of(program, option.last, option.value, read) or f"{option.where} ({option.value})"
    except (ToolError, Unavailable, UnreadableFile, OSError):
        pass  # nothing is said of what cannot be read now
    return ""


def _line_of(program: JobProgram, name: str, value: str, read: Callable[[str], str | None]) -> str:
    """Return the line of a configuration that sets an option to a value; empty where a command line does."""
    pattern = re.compile(rf"\s*['\"]?(?:[\w.]{{1,80}}\.)?{re.escape(name)}['\"]?\s{{0,8}}[:=]")
    for word in program.launch.arguments:
        config_path = word.partition("=")[2] or word
        path = program.launch.outside(config_path) if config_path.endswith(tuple(CONFIGS)) else None
        text = read(str(path)) if path is not None else None
        for number, line in enumerate((text or "").splitlines(), 1):
            if pattern.match(line.replace("-", "_")) and value in line:
                return f"{config_path}:{number} ({head_of(line.strip(), MOST_CHARACTERS)})"
    return ""


_MINUTES = re.compile(
    r"(?:^\s{0,8}#SBATCH\s[^\n]{0,400}?|\bsbatch\s[^\n]{0,400}?)(?:--time[= ]|-t\s{0,4})(\d{1,4}):([0-5]\d)(?![:\d])", re.MULTILINE
)
"""A limit of two parts, which sbatch takes for minutes and seconds. Source: sbatch(1), --time."""
MOST_MEANT_S = 3600


def with_time_limit(diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return the diagnosis of a job that its limit ended with that limit, and what its two parts mean; any other as it is."""
    limit_s = job.spec.time_limit_s if job is not None and job.spec is not None else None
    if job is None or job.spec is None or diagnosis.reason != "time_limit" or not limit_s:
        return diagnosis
    words = f"Its limit was {limit_words(limit_s)}."
    match = next((match for match in _MINUTES.finditer(job.spec.script) if int(match[1]) * 60 + int(match[2]) == limit_s), None)
    if match is not None and limit_s < MOST_MEANT_S:
        parts = f"{match[1]}:{match[2]}"
        words += f" `{parts}` is {limit_words(limit_s)} for sbatch, which reads minutes:seconds: {parts} hours are {parts}:00."
        return replace(diagnosis, summary=f"{diagnosis.summary} {words}", advice=f"{words} {diagnosis.advice}")
    return replace(diagnosis, summary=f"{diagnosis.summary} {words}")


def limit_words(seconds: int) -> str:
    """Return a limit in days, hours, minutes and seconds, the two largest parts that it has."""
    parts = [(seconds // 86400, "d"), (seconds // 3600 % 24, "h"), (seconds // 60 % 60, "min"), (seconds % 60, "s")]
    return " ".join(f"{count} {unit}" for count, unit in [part for part in parts if part[0]][:2]) or "0 s"


ORDINARY_CODES = (None, 0, 1)
"""Exit codes that any program ends with."""
EXIT_CALLS = ("exit", "_exit", "SystemExit")
_NO_NUMBER = re.compile(r"isnan|isfinite|isinf|\bnan\b|\binf\b|diverg|(\b\w*loss\w*\b) != \1", re.IGNORECASE)


class DeliberateExit(NamedTuple):
    """A call by which a program ends itself where its loss is no number."""

    place: str
    """`trial.py:17`."""
    test: str
    """The condition under which it is made, as written."""


def with_deliberate_exit(diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return the diagnosis of a lost loss with the exit that its program makes for that; as it is where none is known.

    Reads with the rights that are in force: those of the job's owner.
    """
    if diagnosis.reason != "loss_spike" or job is None or not job.state.ended or job.exit_code in ORDINARY_CODES:
        return diagnosis
    try:
        exit_call = next(deliberate_exits(programs_of(job), job.exit_code or 0), None)
    except (NightshiftError, OSError):
        return diagnosis
    if exit_call is None:
        return diagnosis
    words = f"Its program ends itself there with exit code {job.exit_code} ({exit_call.place}, where {exit_call.test})."
    meaning = (
        "That is its own word for a run that diverged: where it is one trial of a search nothing has to be done. No checkpoint of "
        "it helps, and the same settings would end the same way."
    )
    return replace(diagnosis, summary=f"{diagnosis.summary} {words}", advice=f"{words} {meaning}")


def deliberate_exits(programs: Sequence[JobProgram], code: int) -> Iterator[DeliberateExit]:
    """Yield the calls that end a program with an exit code where its loss is no number.

    Args:
        programs: What a script starts.
        code: As the scheduler shows it.
    """
    for program in programs:
        for source in program.sources:
            for call in source.called(*EXIT_CALLS):
                tests = [ast.unparse(test) for test in call.conditions]
                test = next((text for text in tests if _NO_NUMBER.search(text)), "")
                if test and call.positional and source.value(call.positional[0]) == code:
                    yield DeliberateExit(f"{PurePosixPath(source.path).name}:{call.line}", test[:120])


EVALUATION_INTERVALS = (
    "eval_steps", "eval_interval", "eval_every", "eval_freq", "evaluation_interval", "evaluate_every", "val_interval", "val_every",
    "validation_interval", "valid_interval", "valid_steps",
)  # fmt: skip
"""Options that say after how many steps a program evaluates."""
_STEP_LIMIT = re.compile(r"Used were (\d{7,18}) of (\d{7,18})\.")
"""Of the limit of memory of a step, in bytes; source: Slurm, slurmd/common/xcgroup and jobacct_gather."""


def with_memory_phase(diagnosis: Diagnosis, job: Job | None, folders: Mapping[str, Path], now: datetime) -> Diagnosis:
    """Return memory that ran out with the phase in which it did, where that is an evaluation; with the limit in GiB.

    It came in an evaluation where the last step that was logged is one after which the program evaluates, and none came behind it.
    Reads with the rights that are in force: those of the job's owner.

    Args:
        diagnosis: Of the failure.
        job: The attempt that ended.
        folders: Of checkpoints, as the site names them.
        now: Of the clock that counts.
    """
    if diagnosis.reason != "out_of_memory_error" or job is None:
        return diagnosis
    advice = _STEP_LIMIT.sub(_limit_sentence, diagnosis.advice)
    diagnosis = replace(diagnosis, advice=advice)
    try:
        programs = programs_of(job)
        setting = next(evaluation_intervals(programs), None)
        lowest, highest = _last_steps(diagnosis, job, folders, now) if setting is not None else (0, 0)
    except (NightshiftError, OSError):
        return diagnosis
    if setting is None or not lowest or highest // setting[1] == (lowest - 1) // setting[1]:
        return diagnosis
    step = highest // setting[1] * setting[1]
    words = f"It came behind step {step}, where the program evaluates ({setting[0]}), and not in a step of the training."
    if any("transformers" in source.modules for program in programs for source in program.sources):
        remedy = (
            "Trainer keeps the logits of the whole evaluation: let preprocess_logits_for_metrics reduce them, set "
            "eval_accumulation_steps, or lower per_device_eval_batch_size."
        )
    else:
        remedy = "Let the evaluation hold less: a smaller batch, results reduced batch by batch, no_grad around it."
    return replace(diagnosis, summary=f"{diagnosis.summary} {words}", advice=f"{words} {remedy} {advice}")


def _last_steps(diagnosis: Diagnosis, job: Job, folders: Mapping[str, Path], now: datetime) -> tuple[int, int]:
    """Return the lowest and the highest step that the last one logged may be: a log of epochs leaves a few; zeros where none is."""
    if diagnosis.step:
        return diagnosis.step, diagnosis.step
    texts = [line.text for line in log_lines(job)]
    epoch = next((epoch for text in reversed(texts) if (epoch := logged_epoch(text)) is not None), None)
    saves = search_checkpoints(job, folders, texts, now=now).inventory if epoch is not None else None
    pace = epoch_pace(saves) if saves is not None else None
    return (pace.first_step(epoch), pace.last_step(epoch)) if pace is not None and epoch is not None else (0, 0)


def _limit_sentence(match: re.Match[str]) -> str:
    limit = int(match[2]) / 2**30
    words = f"{limit:.1f} GiB" if limit >= 1 else f"{limit * 1024:.0f} MiB"
    return f"It was ended as it passed the limit of {words}: how much more it would have taken that does not show."


def evaluation_intervals(programs: Sequence[JobProgram]) -> Iterator[tuple[str, int]]:
    """Yield where programs set after how many steps they evaluate, and the number: (`eval_steps=100 in train.py:12`, 100)."""
    for program in programs:
        option = program.option(*EVALUATION_INTERVALS)
        if option is not None and option.value.isdecimal() and int(option.value):
            yield f"{option.where} ({option.value})", int(option.value)
        for source in program.sources:
            for call in source.calls:
                for name in EVALUATION_INTERVALS:
                    value = source.value(call.keywords[name]) if name in call.keywords else None
                    if isinstance(value, int) and value > 1:
                        yield f"{name}={value} in {PurePosixPath(source.path).name}:{call.line}", value
