"""By which variable or argument of its own a script stays in the folder of its run, where each start names that anew.

`RUN=${RUN:-run_$SLURM_JOB_ID}` and `RUN=${RUN:-run-$(date +%s)}` begin another run at each submission, and go on with the same one
where RUN is set. The script is read as another start would read it, with the variable set: it counts where every command that names
the folder is then the one of the attempt. What a program makes of its environment itself is proven by a trial start alone.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from pathlib import Path

from assistant.processes import LOADS_CODE, NAME, OPTIONS_IN_DISGUISE
from assistant.records import Job
from assistant.recover.changing_names import JOB_ID, AnotherStart, OldText, as_another_job, named_at_start
from assistant.recover.directives import read_directives
from assistant.recover.job_program import JobProgram
from assistant.recover.restart import NOT_SAFE
from assistant.recover.resume_means import ResumeMeans, ResumeWay
from assistant.recover.script_variable import NEVER_SET, usage_line
from assistant.recover.source.settings import OF_LAUNCHERS, variables_in_source
from assistant.schedulers.slurm_spec import OF_SYSTEM, exports_plainly

__all__ = ["JOB_ID", "FolderPin", "as_another_job", "folder_pin", "moved_folder", "with_pinned_folder"]

DEFAULT = re.compile(r"\$\{([A-Za-z_]\w{0,80}):?[-=]")
"""A variable with what counts where it is not set."""
TESTED = re.compile(r"(?:-[znv]\s+|==?\s+)[\"']?(?:\$\{?)?([A-Za-z_]\w{0,80})")
DEFAULT_ARGUMENT = re.compile(r"\$\{([1-9]):?[-=]")
NAMES_A_RUN = re.compile(r"run|name|exp|out|dir|folder|path|tag|id|version|log|save|ckpt|checkpoint", re.IGNORECASE)
PLACEHOLDER = re.compile(r"<[^<>\n]{1,60}>|\b(?:OLD_RUN|OLDRUN|OLD|NAME|RUN|RUN_ID|RUNID)\b(?![=\w])")
MOST_NAMES = 6
MOST_VALUES = 6


@dataclass(frozen=True)
class FolderPin:
    """What keeps another start in the folder of a run."""

    variable: str = ""
    """An assignment, as `RUN=run_1`; empty for none."""
    arguments: tuple[str, ...] | None = None
    """Those of the script; None where they stay as they were."""
    proven: bool = True
    """Whether reading proves it; else a trial start has to."""
    unsafe: tuple[str, ...] = field(default=())
    """Assignments that would do it and hold characters which a shell would change."""
    made_name: str = ""
    """The part of the path that its program made when it started; empty where the script did, or nothing."""

    @property
    def label(self) -> str:
        """For people."""
        return self.variable or (f"{' '.join(self.arguments)!r} as arguments of its script" if self.arguments is not None else "")


def folder_pin(job: Job, programs: Sequence[JobProgram], folder: Path | None) -> FolderPin:
    """Return what keeps another start in the folder where the checkpoints lie.

    Args:
        job: With its spec.
        programs: What its script starts, from `programs_of`.
        folder: That of its checkpoints; None where it is not known.

    Raises:
        Unavailable: The storage did not answer.
    """
    spec = job.spec
    if spec is None or spec.doubt or spec.environment_lost or folder is None:
        return FolderPin()
    start = AnotherStart(job)
    old_texts = list(start.old_texts(folder))
    if not old_texts:
        part = named_at_start(job, programs, folder)
        return _pin_by_program(job, programs, part) if part and not _is_stated(job) else FolderPin()
    values = dict.fromkeys(
        text for item in old_texts for text in (item.old_word.rpartition("=")[2], item.old_word.rpartition("/")[2], *item.parts)
    )
    code = _code(spec.script)
    unsafe: list[str] = []
    for name, value in product(_settable(job, [*DEFAULT.findall(code), *TESTED.findall(code)]), [*values][:MOST_VALUES]):
        if _stays(start, start.words_with({name: value}), old_texts):
            if not NOT_SAFE.search(value):
                return FolderPin(f"{name}={value}")
            unsafe.append(f"{name}={value}")
    for number, value in product(dict.fromkeys(DEFAULT_ARGUMENT.findall(code)), [*values][:MOST_VALUES]):
        arguments = (*spec.arguments, value)
        if len(arguments) == int(number) and _stays(start, start.words_with({}, arguments), old_texts):
            if not NOT_SAFE.search(value):
                return FolderPin(arguments=arguments)
            unsafe.append(f"argument {number}: {value}")
    return FolderPin(unsafe=tuple(unsafe))


def moved_folder(job: Job, programs: Sequence[JobProgram], folder: Path, *, same_id: bool = False) -> str:
    """Return why another start would look in another folder than that of the checkpoints, for people; empty if it would not.

    Args:
        job: With its spec.
        programs: What its script starts, from `programs_of`.
        folder: That of its checkpoints.
        same_id: Whether the job is queued again under its own id.

    Raises:
        Unavailable: The storage did not answer.
    """
    if job.spec is None:
        return ""
    start = AnotherStart(job, same_id=same_id)
    old_text = next(start.old_texts(folder), None)
    line = start.line_of(old_text.word) if old_text is not None else ""
    if old_text is not None and not line:
        return f"the path of {folder} holds the job's id"
    part = named_at_start(job, programs, folder) if old_text is None and not _is_stated(job) else ""
    if old_text is None and not part:
        return ""
    by = line or "its program made it when it started"
    old_name = old_text.name if old_text is not None else part
    documented = usage_line(job.spec.script)
    usage = f"; {filled_usage(documented, old_name)}" if documented else ""
    return f"{old_name} in the path of {folder} is a name that each start makes anew ({by}){usage}"


def filled_usage(usage: str, old_name: str) -> str:
    """Return a documented command with the name of the old run in the place of the one thing that it leaves open."""
    places = {match[0] for match in PLACEHOLDER.finditer(usage)}
    marked = {text for text in places if text.startswith("<")} or places
    return usage.replace(marked.pop(), old_name) if len(marked) == 1 else f"{usage} (the old run is {old_name})"


def with_pinned_folder(job: Job, way: ResumeWay, programs: Sequence[JobProgram], folder: Path | None) -> ResumeWay:
    """Return a way that goes on by itself with what keeps it in the folder of its run, where that is proven or can be tried.

    Args:
        job: With its spec.
        way: How its script goes on.
        programs: What it starts.
        folder: That of its checkpoints; None where it is not known.

    Raises:
        Unavailable: The storage did not answer.
    """
    by_itself = way.means in (ResumeMeans.NEWEST, ResumeMeans.TRACKER)
    if not (by_itself or way.means is ResumeMeans.UNKNOWN) or way.variable or way.argument:
        return way
    pin = folder_pin(job, programs, folder)
    if pin.unsafe:
        return replace(way, pin_problem=f"{pin.unsafe[0]!r} would keep it there, and holds characters that a shell would change")
    if not pin.label and not pin.made_name:
        return way
    if not pin.label:
        by = f"{way.by}; {pin.made_name} in the path of {folder} is a name that its program made when it started"
        return replace(way, means=ResumeMeans.UNKNOWN, by=by)
    by = f"{way.by}; {pin.label} keeps it in that run"
    if pin.arguments is not None:
        return replace(way, arguments=pin.arguments, pins=True, by=by, home_made=True) if by_itself else way
    if not by_itself or not pin.proven:
        by = f"{way.by}; whether {pin.label} keeps it in that run is not known"
        variables = (pin.variable, *way.trial_variables)
        hint = way.hint or f"{pin.variable} in the environment of its submission"
        return replace(way, means=ResumeMeans.UNKNOWN, by=by, trial_variables=variables, hint=hint)
    return replace(way, variable=pin.variable, pins=True, by=by, home_made=True)


def _code(script: str) -> str:
    return "\n".join(line for line in script.splitlines() if not line.lstrip().startswith("#"))


def _settable(job: Job, names: Sequence[str]) -> list[str]:
    """Return the names that a restart may set and that the submission did not."""
    spec = job.spec
    settable = [name for name in dict.fromkeys(names) if _may_be_set(name) and spec is not None and exports_plainly(spec, name)]
    return [name for name in settable if spec is not None and not spec.environment.get(name)][:MOST_NAMES]


def _may_be_set(name: str) -> bool:
    refused = (NEVER_SET, LOADS_CODE, OPTIONS_IN_DISGUISE, OF_SYSTEM, OF_LAUNCHERS)
    return NAME.fullmatch(name) is not None and not any(rule.fullmatch(form) for rule in refused for form in (name, name.upper()))


def _stays(start: AnotherStart, words: Sequence[tuple[str, ...]], old_texts: Sequence[OldText]) -> bool:
    """Tell whether a start with these words names the folder as the attempt did, and differs in nothing else that counts.

    A word that is made anew and names no part of that folder, as that of a log, may stay so; one by the job's id may not.
    """
    old_words: Mapping[str, str] = {item.word: item.old_word for item in old_texts}
    if [len(command) for command in words] != [len(command) for command in start.words]:
        return False
    pairs = [pair for command, new in zip(start.words, words, strict=True) for pair in zip(command, new, strict=True)]
    return all(new == old_words.get(word, word) and (word in old_words or not start.is_by_id(word)) for word, new in pairs)


def _pin_by_program(job: Job, programs: Sequence[JobProgram], part: str) -> FolderPin:
    """Return the variable by which a program may be given the name that it makes at its start."""
    names = [name for program in programs for source in program.sources for name in variables_in_source(source)]
    names = [name for name in _settable(job, names) if NAMES_A_RUN.search(name)]
    if not names or NOT_SAFE.search(part):
        return FolderPin(made_name=part)
    return FolderPin(f"{names[0]}={part}", proven=False, made_name=part)


def _is_stated(job: Job) -> bool:
    """Tell whether the script says itself how it goes on."""
    return job.spec is not None and bool(read_directives(job.spec.script).resumes)
