"""By what a script goes on after a restart, in words and as a value. Pure."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from enum import StrEnum
from pathlib import PurePosixPath
from typing import NamedTuple

from assistant.recover.job_program import JobProgram
from assistant.recover.shell.folders import UNRESOLVED
from assistant.recover.source.declared_settings import UNKNOWN
from assistant.recover.source.load_calls import LOADS, known_at_run_only
from assistant.recover.source.trainer_source import TrainerSource

NO = frozenset(("", "false", "none", "null", "no", "0", "scratch", "never"))
NEWEST_WORDS = frozenset(("true", "yes", "1", "auto", "last", "latest", "newest", "resume", "hpc", "allow", "must"))

RESUME_OPTIONS = tuple(
    (
        "resume_from_checkpoint resume_from resume auto_resume autoresume resume_path resume_ckpt load load_dir "
        "load_checkpoint load_path load_from restore_from restore ckpt_path checkpoint_to_load start_from init_from"
    ).split()
)
SAYS_NEWEST = frozenset(("latest", "last", "newest", "auto", "auto_resume", "autoresume", "resume_from_checkpoint"))
"""Options and values that say themselves what they mean, also of a program that nobody knows; the last is transformers'."""

SWITCH = re.compile(
    r"resum|restart|restore|continue|reload|auto_?load|enable_(?:ckpt|checkpoint)|load_(?:ckpt|checkpoint|latest|last)|from_(?:ckpt|checkpoint|latest)",
    re.IGNORECASE,
)
"""Names of options that make a program go on."""


class ResumeMeans(StrEnum):
    """By what a script goes on."""

    ARGUMENT = "argument"
    """By what Nightshift hands it: a `resume=` directive or `$NIGHTSHIFT_RESUME_FROM`."""
    TRACKER = "tracker"
    """By a file in the folder that names the checkpoint."""
    NEWEST = "newest"
    """From the newest checkpoint in its folder."""
    FIXED = "fixed"
    """From one checkpoint that the script names, at each start the same."""
    NONE = "none"
    """It begins at the start."""
    UNKNOWN = "unknown"


class LoadBranch(NamedTuple):
    """A place of a program that loads what settings name which a start as it is does not give it."""

    place: str
    """`train.py:70`."""
    flags: tuple[str, ...]
    """The settings, as the command line writes them: those that switch it on, then the one that names what is loaded."""
    switches: str
    """The arguments that switch it on, without the choice; empty for none."""
    templates: tuple[str, ...] = ()
    """All arguments, with `{checkpoint}`, `{name}` or `{step}`, the most likely first; none where nothing chooses what it loads."""
    passed: tuple[str, ...] = ()
    """Those of the settings that the script gives another value, as it passes them."""
    by_variables: bool = False
    """Whether the settings are variables of the environment."""

    @property
    def sentence(self) -> str:
        """For people."""
        together = f"{', '.join(self.flags[:-1])} and {self.flags[-1]}" if len(self.flags) > 1 else self.flags[0]
        passed = "it is not" if len(self.flags) == 1 else "neither is" if len(self.flags) == 2 else "none of them is"
        if self.passed:
            return f"its program resumes by {together} ({self.place}); the script passes {' '.join(self.passed)}"
        how = "set as it was submitted" if self.by_variables else "passed by the script as it is"
        return f"its program resumes by {together} ({self.place}); {passed} {how}"


class OwnerCommand(NamedTuple):
    """A command of a job's owner that carries its run on."""

    words: tuple[str, ...]
    place: str
    """The file and line that name it."""
    program: str
    """Path of the file that it runs."""


class ScriptArguments(NamedTuple):
    """Arguments of a job's own script by which its run may go on, given behind those of its submission."""

    words: tuple[str, ...]
    """With `{checkpoint}`, `{name}` or `{step}`."""
    place: str
    """What speaks for them, for people: `NOTES.txt:3`, `line 2 of its script`, `resume in cfg.yaml`."""
    command: str = ""
    """How its owner documents the submission: `sbatch run.sh`; empty where nothing does and they are likely only."""


@dataclass(frozen=True, slots=True)
class ResumeWay:
    """How a script goes on, and how that is known."""

    means: ResumeMeans
    by: str
    """For people: `--load on the command line of pretrain.py`; what is missing with NONE and UNKNOWN."""
    path: str = ""
    """With TRACKER the folder of the tracker where the script names it, with FIXED the checkpoint; with ARGUMENT what is
    loaded by a number, with `{step}` in its place."""
    prefix: str = ""
    """With NEWEST: how the names begin among which it takes the newest; others it does not see."""
    picks: tuple[str, ...] = ()
    """With NEWEST: what the script itself would choose now, by its own order; the first is what it would load."""
    listed: tuple[str, ...] = ()
    """With NEWEST: the files that its program's listing finds now, in the order in which it would take them, from
    `source.listing_order`; empty where that is not known."""
    removed: tuple[str, ...] = ()
    """Absolute paths and patterns that the script deletes or moves away when it starts."""
    ending: str = ""
    """With NEWEST: how the names end, without `.ckpt`, among which NeMo takes the newest; others, and those that its marker calls
    unfinished, it does not see."""
    destroys: str = ""
    """What its framework deletes or writes over at such a start, in words; empty where nothing is known."""
    steered: bool = True
    """Whether renaming checkpoints and writing the tracker makes it load another one than it would by itself."""
    argument: str = ""
    """With ARGUMENT: what Nightshift puts behind the command line by itself, where the script says no template."""
    takes_files: bool = False
    """Whether that argument, or the variable, must name one file."""
    takes_folders: bool = False
    """Whether it must name a folder."""
    variable: str = ""
    """The assignments by which its own script goes on, which a restart makes in the environment of the submission:
    `RESUME={checkpoint}`, with `{step}`, `{name}` and `{folder}` besides; several by blanks, empty for none."""
    config: str = ""
    """The configuration of which a copy that names the checkpoint is given to its script as the argument; empty for none."""
    config_key: str = ""
    """The key of that copy which names it, dotted."""
    pins: bool = False
    """Whether that assignment, or those arguments, keep it in the folder of its run, which each start names anew otherwise."""
    pin_problem: str = ""
    """Why what would keep it in that folder is not set, in words; empty where nothing is known that would, or where it is set."""
    hint: str = ""
    """With NONE and UNKNOWN: an argument by which it seems to go on, with `{checkpoint}` and where it belongs; empty for none."""
    trial_variables: tuple[str, ...] = ()
    """With NONE and UNKNOWN: assignments, with `{checkpoint}`, by which it may go on: a trial start can prove it."""
    trial_arguments: tuple[str, ...] = ()
    """The same of arguments behind the command line of its program."""
    script_arguments: tuple[ScriptArguments, ...] = ()
    """With NONE, UNKNOWN, FIXED and what is home-made: arguments of its own script by which it may go on, the documented first."""
    branch: LoadBranch | None = None
    """With NONE and UNKNOWN: where its program loads what it is told to, with all that has to be told; None where it has no such
    place."""
    commands: tuple[OwnerCommand, ...] = ()
    """With NONE, UNKNOWN and FIXED: commands of its owner that may carry it on; a trial lets them say what they would submit."""
    arguments: tuple[str, ...] | None = None
    """With ARGUMENT: the arguments of its script as such a command would give them; None where they stay as they were."""
    bound: str = ""
    """With ARGUMENT: the one checkpoint for which that holds; empty for any."""
    tried: bool = False
    """Whether a trial start has proven it, and not reading alone."""
    home_made: bool = False
    """Whether it was read from source that follows no known convention: a trial start proves it where one is possible."""
    usage: str = ""
    """What its script and the files beside it say on how its run is continued, with the lines, for people; empty for nothing."""
    takes_unfinished: bool = False
    """With NEWEST: whether it may take a folder without the file that its layout's library writes last."""
    loads_nothing: str = ""
    """With NONE: the program whose sources were read and hold no call that loads; empty where another one may go on."""
    repeats: str = ""
    """What a restart would do to stages of a pipeline that are finished; empty where it harms none."""

    def sees(self, name: str) -> bool:
        """Tell whether it takes a checkpoint of this name into account."""
        return name.startswith(self.prefix) and name.removesuffix(".ckpt").endswith(self.ending)

    @property
    def sentence(self) -> str:
        """One sentence for plans, reports and checks."""
        match self.means:
            case ResumeMeans.ARGUMENT:
                return f"this script resumes from the checkpoint that it is given, by {self.by}"
            case ResumeMeans.TRACKER:
                return f"this script resumes by itself from the checkpoint that its tracker file names ({self.by})"
            case ResumeMeans.NEWEST if self.picks:
                return f"this script resumes by itself from what it looks for, now {self.picks[0]} ({self.by})"
            case ResumeMeans.NEWEST if self.prefix:
                return f"this script resumes by itself from the newest {self.prefix}* ({self.by})"
            case ResumeMeans.NEWEST if self.ending:
                return f"this script resumes by itself from the newest *{self.ending} ({self.by})"
            case ResumeMeans.NEWEST:
                now = f", now {PurePosixPath(self.listed[0]).name}" if self.listed else ""
                return f"this script resumes by itself from the newest ({self.by}{now})"
            case ResumeMeans.FIXED:
                return f"this script begins each time at {self.path} ({self.by})"
            case ResumeMeans.NONE:
                at_what_cost = f"; {self.destroys}" if self.destroys else ""
                if self.branch is not None:
                    return f"{self.branch.sentence}, and so it would start at 0 ({self.by}{at_what_cost})"
                return f"this script does not resume: it would start at 0 ({self.by}{at_what_cost})"
        if self.branch is not None:
            return f"{self.branch.sentence}, and whether it goes on without is not known ({self.by})"
        return f"whether this script resumes is not known ({self.by})"


SETTLE = (
    'say how it resumes in the script: #NIGHTSHIFT resume="--OPTION {checkpoint}", or #NIGHTSHIFT resumes=newest where it does so '
    "by itself"
)


def by_text(value: str, by: str) -> ResumeWay:
    """Return what the value of a resume option means."""
    word = value.strip().lower()
    if word in NO:
        return ResumeWay(ResumeMeans.NONE, f"{by} is {value or 'empty'}")
    if word in NEWEST_WORDS:
        return ResumeWay(ResumeMeans.NEWEST, by)
    if UNRESOLVED in value:
        return ResumeWay(ResumeMeans.UNKNOWN, f"{by}: its value is known only when it runs")
    return ResumeWay(ResumeMeans.FIXED, by, value)


def shell_looks_for_newest(code: str) -> bool:
    """Tell whether a script that starts no program that can be read looks for the newest checkpoint or reads a tracker."""
    return (
        re.search(r"\bls\b[^\n|]*\|[^\n]*\b(?:tail|head|sort)\b|latest_checkpointed_iteration|\bcat\b[^\n]*/latest\b", code)
        is not None
    )


def resume_option(programs: Sequence[JobProgram]) -> str:
    """Return an option by which a program goes on from a checkpoint, as its source names it; empty where it names none."""
    for program in programs:
        for source in program.sources:
            for name in RESUME_OPTIONS:
                pattern = rf"['\"]--{name.replace('_', '[_-]')}['\"]|\bargs\.{name}\b"
                if match := re.search(pattern, source.text):
                    return match[0].strip("'\"") if match[0][0] in "'\"" else f"--{name}"
    return ""


def name_without_option(program: JobProgram) -> str:
    """Return the name of a program that names no option by which it might go on; empty where it does."""
    return "" if resume_option((program,)) or program.option(*RESUME_OPTIONS) is not None else program.name


OF_DATA = frozenset("np numpy jnp json yaml toml tomllib tomli csv pd pandas cv2 sf librosa soundfile h5py".split())
"""Libraries that load arrays and texts; no state of accelerate or DeepSpeed is restored by them."""


def way_by_own_option(source: TrainerSource) -> ResumeWay | None:
    """Return what the program's own option says that makes it resume; None where it declares none."""
    for name in RESUME_OPTIONS:
        if name in source.options:
            value = source.options[name]
            by = f"--{name} of {PurePosixPath(source.path).name}"
            if value is UNKNOWN:
                return ResumeWay(ResumeMeans.UNKNOWN, f"{by} holds what only a run can tell")
            return by_text("" if value is None else str(value), by if value else f"{by}: not given; it")
    return None


def loads_states(program: JobProgram) -> bool:
    """Tell whether a call that a run comes to loads what only the run tells and may be a state: no array or text of its data."""
    return any(
        call.method in LOADS and known_at_run_only(source, call) and call.name.partition(".")[0] not in OF_DATA
        for source in program.sources
        for call in source.calls
    )


def way_left_out(program: JobProgram, method: str) -> ResumeWay | None:
    """Return that a run does not come to the call by which a program restores its training; None where it has no such call.

    `accelerator.load_state(path)` under `if args.resume_from_checkpoint:` is there, and this start leaves it out.
    """
    calls = ((source, call) for source in program.sources for call in source.unreached if call.method == method)
    source, call = next(calls, (None, None))
    if source is None or call is None or loads_states(program):
        return None
    guard = way_by_own_option(source)
    place = f"{method}() in {PurePosixPath(source.path).name}, line {call.line}"
    if guard is not None:
        return guard if guard.means is ResumeMeans.NONE else ResumeWay(ResumeMeans.UNKNOWN, f"{guard.by}, and {place} is left out")
    return ResumeWay(ResumeMeans.NONE, f"{place} is left out with the arguments that it is given")
