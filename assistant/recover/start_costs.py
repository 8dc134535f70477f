"""What a start of a script as it is costs where it does not go on: steps, checkpoints and files, for people who start it.

Read are the settings of its programs, the commands of the script and the sources of its programs; of each place only names and
sizes are looked at, and whether a small file holds nothing but an address, with the rights of the job's owner. Each loss is named
with the line that causes it.
"""

from __future__ import annotations

import re
import stat
from collections.abc import Iterator, Sequence
from dataclasses import replace
from datetime import datetime
from fnmatch import fnmatchcase
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from assistant.errors import InputError
from assistant.records import Action, Checkpoint, Diagnosis, Job
from assistant.recover.checkpoints.inventory import Inventory
from assistant.recover.job_program import JobProgram, Option, script_removals
from assistant.recover.job_reading import framework_of
from assistant.recover.resume.means import NO, ResumeMeans, ResumeWay
from assistant.recover.source.reruns import is_log, skips_what_is_there
from assistant.recover.source.start_files import removals_of
from assistant.untrusted import LOOK_S, list_folder, read_whole, reading_as, status_of, within

LIMITS = frozenset(
    "save_total_limit checkpoints_total_limit total_limit save_top_k keep_last_n keep_last keep_last_k max_to_keep "
    "max_keep_ckpts keep_latest_k save_num_checkpoints_to_keep num_checkpoints_to_keep keep_checkpoints".split()
)
"""Settings of trainers that say how many checkpoints stay."""
OVERWRITES = frozenset("overwrite_output_dir overwrite save_overwrite allow_overwrite".split())
"""Settings of trainers that let a run save into a folder that holds something."""
MOST_NAMED = 3


def plain_start_words(
    way: ResumeWay, programs: Sequence[JobProgram], folder: Inventory, checkpoint: Checkpoint, reached: int | None
) -> str:
    """Return what a start without the chosen checkpoint costs, as sentences; empty where a script goes on by itself.

    Args:
        way: How it resumes.
        programs: What its script starts.
        folder: What lies where it saves.
        checkpoint: The chosen one.
        reached: The step that the attempt came to; None where no log tells it.
    """
    if way.means not in (ResumeMeans.NONE, ResumeMeans.UNKNOWN):
        return ""
    words: list[str] = []
    if reached is not None and reached >= checkpoint.step:
        lost = reached - checkpoint.step
        words.append(f"it came to step {reached}: from {checkpoint.path.name} {lost} steps are lost, without it all {reached}")
    names = [save.path.name for save in folder.checkpoints]
    examples = names if len(names) <= MOST_NAMED else [*names[:1], "…", names[-1]]
    words.append(f"a start as it is may begin at step 0 and write over {', '.join(examples)} when it comes to their steps")
    settings = [option for program in programs for option in (*program.options, *program.settings)]
    overwrites = next((option for option in settings if option.last in OVERWRITES and option.value.lower() not in NO), None)
    if overwrites is not None:
        words.append(f"{_setting_text(overwrites)} lets it")
    limit = next((option for option in settings if option.last in LIMITS and option.value.isdecimal() and int(option.value)), None)
    if limit is not None:
        words.append(f"with {_setting_text(limit)} its own saves rotate them away")
    return "; ".join(words)


def _setting_text(option: Option) -> str:
    """Return a setting as it stands where it is set."""
    return f"{option.where} ({option.value})" if option.value else option.where


INTERVALS = (
    "save_interval",
    "save_steps",
    "save_every",
    "save_freq",
    "checkpoint_interval",
    "ckpt_interval",
    "checkpoint.interval",
)
"""Options that say after how many steps a program saves."""
ONE_PIECE_LOST = "A restart does only what is missing, and loses the piece that it was at."
"""Of a job that is proven to pass over finished pieces."""
_HOW_TO_SAVE = {
    "megatron": "--save FOLDER --save-interval STEPS",
    "torchtitan": "--checkpoint.enable --checkpoint.interval STEPS",
    "huggingface": "--save_strategy steps --save_steps STEPS",
    "accelerate": "--checkpointing_steps STEPS, where the program knows it, else accelerator.save_state(FOLDER) in its loop",
    "lightning": "callbacks=[ModelCheckpoint(dirpath=FOLDER, every_n_train_steps=STEPS, save_top_k=-1)]",
    "deepspeed": "model_engine.save_checkpoint(FOLDER) every STEPS steps",
    "composer": "--save_folder FOLDER --save_interval STEPSba",
    "nemo": "exp_manager.create_checkpoint_callback=True",
    "litgpt": "--train.save_interval STEPS",
    "nanogpt": "--always_save_checkpoint=True --eval_interval=STEPS",
}
_ANY = "a call such as torch.save(state, FOLDER/step_N.pt) every STEPS steps"
_FROM_CHECKPOINT = re.compile(
    r"\bfrom (?:the|a) (?:last|newest|previous|latest) (?:healthy |complete )?checkpoint\b", re.IGNORECASE
)
_COMES_AGAIN = {
    Action.FIX_AND_RESUBMIT: "Unless its owner changes something it fails the same way again.",
    Action.ROLLBACK_AND_SKIP_DATA: "It meets the same data again.",
}


def cost_of_beginning(
    job: Job, reached: int | None, gpu_hours: float | None, programs: Sequence[JobProgram], action: Action | None = None
) -> str:
    """Return what a restart from step 0 costs, whether the failure comes again, and which line makes the job save.

    Args:
        job: The attempt that ended.
        reached: The last step that it showed; None where its log shows none.
        gpu_hours: What it has used; None where its GPUs are not known.
        programs: What its script starts.
        action: Of the diagnosis; None where there is none.
    """
    hours = f", {gpu_hours:.1f} GPU hours" if gpu_hours is not None else ""
    skips = skips_what_is_there(programs) if not reached else ""
    if skips:
        repeat_words = f" {_COMES_AGAIN[action]}" if action in _COMES_AGAIN else ""
        return f"A restart passes over the pieces that are there ({skips}), and loses only the one that it was at.{repeat_words}"
    if reached:
        sentences = [f"A restart begins at step 0 and makes the {reached} steps again that it had made{hours}."]
    else:
        sentences = [f"A restart begins anew{hours and f' after{hours[1:]}'}; its log shows no step."]
    if action in _COMES_AGAIN:
        sentences.append(_COMES_AGAIN[action])
    interval = next((option for program in programs if (option := program.option(*INTERVALS)) is not None), None)
    if interval is not None and interval.value.isdecimal() and reached is not None and int(interval.value) > reached:
        sentences.append(f"It was to save first at step {interval.value} ({interval.where}): a smaller number saves earlier.")
    else:
        script = job.spec.script if job.spec is not None else ""
        words = [*(word for program in programs for word in program.launch.words), script]
        words += [name for program in programs for source in program.sources for name in source.modules]
        sentences.append(f"It saves with: {_HOW_TO_SAVE.get(framework_of(chr(10).join(words)), _ANY)}.")
    return " ".join(sentences)


def without_checkpoint(diagnosis: Diagnosis, words: str) -> Diagnosis:
    """Return a diagnosis whose advice rests on no checkpoint: clauses about one are left out, words about a restart are added."""
    advice_text = _FROM_CHECKPOINT.sub("from the start", diagnosis.advice)
    sentences = []
    for sentence in re.split(r"(?<=\.) ", advice_text):
        parts = [part for part in sentence.rstrip(".").split("; ") if "checkpoint" not in part.lower()]
        if parts:
            text = "; ".join(parts)
            sentences.append(f"{text[0].upper()}{text[1:]}.")
    return replace(diagnosis, advice=" ".join([*dict.fromkeys(sentences), words]))


MOST_ENTRIES = 2_000
MOST_PLACES = 40
MOST_LOOKED_AT = 200
"""Entries of a place whose times are looked at."""
DESTROYS = "A start destroys what lies there:"
"""How the warning begins."""
PASSING = re.compile(r"^/(?:dev|proc|run)/|/(?:__pycache__|\.?cache|core(?:\.\d+)?)(?:/|$)|\.(?:pid|lock|sock|tmp)$", re.IGNORECASE)
"""Places whose loss harms nobody."""
ADDRESS = re.compile(rb"\s*(?:[a-z]{2,10}://)?(?:\[[0-9a-fA-F:]+\]|[\w.-]+):\d{2,5}(?:/[^\s]*)?\s*")
LONGEST_ADDRESS = 300
"""What a server leaves behind so that others find it: of one that has ended it is stale, and its next start writes it anew."""
REMOVING = re.compile(r"(?:^|[\s;&|({])(?:rm|mv|unlink|shred|truncate)\s|\bfind\s.*(?:-delete\b|-exec)|--delete\b|\bgit clean\b")
"""Lines of a script that may take something away."""
OF_A_NODE = ("/tmp", "/var/tmp")
"""Folders that each node has for itself: what lies there here is another machine's, unless the job works there."""


class StartLoss(NamedTuple):
    """A place that a start removes or moves away, and that holds something now."""

    path: str
    """Absolute; a folder, a file, or a pattern."""
    origin: str
    """The line that does it: `train.py:14`, `line 9 of its script`; `its script` where the line is not known."""
    names: tuple[str, ...]
    """Names that lie there, sorted."""
    is_file: bool = False
    """Whether the place itself is one file."""

    @property
    def sentence(self) -> str:
        """What is destroyed, as part of a sentence."""
        if self.is_file:
            return f"{self.origin} removes {self.path} when it starts"
        examples = self.names if len(self.names) <= MOST_NAMED else (*self.names[: MOST_NAMED - 1], "…", self.names[-1])
        count = f"{len(self.names)}{' or more' if len(self.names) >= MOST_ENTRIES else ''}"
        entries = f"{count} {'entries lie' if len(self.names) != 1 else 'entry lies'} there now: {', '.join(examples)}"
        return f"{self.origin} removes {self.path} when it starts ({entries})"


def start_losses(job: Job, programs: Sequence[JobProgram]) -> list[StartLoss]:
    """Return what a start of a job's script would remove of what is there now, each place once, in the order of the script.

    Args:
        job: With its spec.
        programs: What its script would start, from `programs_of` or `programs_now`.
    """
    losses: dict[str, StartLoss] = {}
    for path, origin in list(dict.fromkeys(_removed(job, programs)))[:MOST_PLACES]:
        if path in losses or PASSING.search(path) or len(PurePosixPath(path).parts) < 3 or _is_of_node(job, path):
            continue
        loss = _loss(job.account, path, origin)
        if loss is not None:
            losses[path] = loss
    inner = [path for path in losses if any(str(parent) in losses for parent in PurePosixPath(path).parents)]
    return [loss for path, loss in losses.items() if path not in inner]


def results_lost(job: Job, losses: Sequence[StartLoss]) -> str:
    """Return that a start removes what the last attempt has written, as a sentence; empty where it removes none of that.

    Logs and metrics by their name are none of it, nor what lay there before the attempt began: it has begun over that itself.
    """
    if job.started is None or not job.dated_logs:
        return ""
    for loss in losses:
        folder = Path(loss.path) if not any(letter in loss.path for letter in "*?[") else Path(loss.path).parent
        paths = [folder] if loss.is_file else [folder / name for name in loss.names]
        written = [path for path in paths[:MOST_LOOKED_AT] if not is_log(str(path)) and _written_since(job, path, job.started)]
        if written:
            names = ", ".join(path.name for path in written[:MOST_NAMED]) + (", …" if len(written) > MOST_NAMED else "")
            return f"{loss.origin} removes {loss.path} when it starts, and its last attempt has written {names} there"
    return ""


def _written_since(job: Job, path: Path, since: datetime) -> bool:
    """Tell whether a file, or one in a folder, was written since a time; what cannot be looked at counts as written."""

    def look() -> bool:
        status = status_of(path)
        if not stat.S_ISDIR(status.st_mode):
            return status.st_mtime >= since.timestamp()
        children = [child for child in list_folder(path, MOST_ENTRIES) if not is_log(str(child))]
        return any(status_of(child).st_mtime >= since.timestamp() for child in children[:MOST_LOOKED_AT])

    try:
        with reading_as(job.account):
            return within(LOOK_S, look, str(path))
    except FileNotFoundError:
        return False
    except (OSError, InputError, ValueError):
        return True


def loss_words(losses: Sequence[StartLoss]) -> str:
    """Return a warning for whoever may start a job again; empty where nothing would be lost."""
    if not losses:
        return ""
    more = f"; and {len(losses) - MOST_NAMED} places more" if len(losses) > MOST_NAMED else ""
    return f"{DESTROYS} {'; '.join(loss.sentence for loss in losses[:MOST_NAMED])}{more}. Move it away first."


def _is_of_node(job: Job, path: str) -> bool:
    work = job.work_dir or Path("/")
    return any(PurePosixPath(path).is_relative_to(top) and not work.is_relative_to(top) for top in OF_A_NODE)


def _removed(job: Job, programs: Sequence[JobProgram]) -> Iterator[tuple[str, str]]:
    script = job.spec.script if job.spec is not None else ""
    for path in script_removals(job, programs):
        yield path, _line_of_script(script, path)
    for program in programs:
        for path in program.removed:
            yield path, _line_of_script(script, path)
        for removal in removals_of(program):
            name = PurePosixPath(removal.source).name
            origin = f"{removal.source if removal.source.startswith('/') else name}:{removal.line}"
            yield removal.path, f"{origin}, if `{removal.condition}` says so," if removal.condition else origin


def _line_of_script(script: str, path: str) -> str:
    """Return where a script removes a path, by its words; the line is not known where several may be meant."""
    lines = [(number, line) for number, line in enumerate(script.splitlines(), 1) if REMOVING.search(line)]
    lines = [(number, line) for number, line in lines if not line.lstrip().startswith("#")]
    last = PurePosixPath(path).name.strip("*?")
    matching = [number for number, line in lines if last and last in line]
    numbers = matching if len(matching) == 1 else [number for number, _ in lines]
    return f"line {numbers[0]} of its script" if len(numbers) == 1 else "its script"


def _loss(account: str, path: str, origin: str) -> StartLoss | None:
    def look() -> StartLoss | None:
        pure = PurePosixPath(path)
        if any(letter in path for letter in "*?["):
            if any(letter in str(pure.parent) for letter in "*?["):
                return None
            children = list_folder(Path(pure.parent), MOST_ENTRIES)
            names = sorted(child.name for child in children if fnmatchcase(child.name, pure.name))
            return StartLoss(path, origin, tuple(names)) if names else None
        status = status_of(Path(path))
        mode = status.st_mode
        if stat.S_ISREG(mode) and status.st_size <= LONGEST_ADDRESS and ADDRESS.fullmatch(read_whole(path, LONGEST_ADDRESS)):
            return None
        if stat.S_ISDIR(mode):
            names = sorted(child.name for child in list_folder(Path(path), MOST_ENTRIES))
            return StartLoss(path, origin, tuple(names)) if names else None
        return StartLoss(path, origin, (), True) if stat.S_ISREG(mode) else None

    try:
        with reading_as(account):
            return within(LOOK_S, look, path)
    except (OSError, InputError, ValueError):
        return None
