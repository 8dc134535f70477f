"""A checkpoint that does not fit the model of a job: with which settings it was made, and with which ones the job builds its model.

Frameworks keep the settings of a model beside its weights (`config.json`, `hparams.yaml`, `args.json`). Where one of them differs
from the job's own, that is the cause of a size mismatch, and it names what the owner has to change.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from functools import partial
from itertools import islice
from pathlib import Path
from typing import NamedTuple

from assistant.diagnose.answer import NO_HELP
from assistant.errors import InputError, NightshiftError
from assistant.records import Diagnosis, Job
from assistant.recover.failure_origins import line_of_option
from assistant.recover.job_program import FileReader, JobProgram, Option, config_values, programs_of
from assistant.recover.joblog import log_lines
from assistant.untrusted import LOOK_S, list_folder, status_of, within

REASONS = frozenset({"model_loading_error", "runtime_error", "value_error", "key_error"})
MISFIT = re.compile(
    r"size mismatch|state_dict|(?:missing|unexpected) key|shape mismatch|shapes? .{0,40}(?:differ|not match)", re.IGNORECASE
)
SETTINGS_NAME = re.compile(
    r"(?:[\w.-]{0,40}(?:config|args|hparam|hyper|param|model|settings|meta)[\w.-]{0,40}|neox|[\w-]{1,40}\.ya?ml)(?:\.(?:json|ya?ml|toml))?",
    re.IGNORECASE,
)
"""Names under which frameworks and people keep a model's settings beside its weights."""
OTHER_NAME = re.compile(r"tokenizer|special_tokens|generation|trainer_state|\.index\.|dataset|preprocessor", re.IGNORECASE)
SUFFIXES = frozenset((".json", ".yaml", ".yml", ".toml"))
SUBFOLDERS = ("", "configs", "config", "conf", ".hydra")
MOST_SETTINGS = 8
MOST_ABOVE = 2
"""Folders above a checkpoint that are looked into."""
MOST_CHECKPOINTS, MOST_BELOW, MOST_SHOWN = 8, 2, 4
MOST_ENTRIES = 2_000
MOST_LINES, MOST_WORDS, MOST_CHARACTERS = 400, 64, 1_000
_OF_A_MODEL = re.compile(
    r"(?:^|_)(?:size|dim|dims|width|depth|hidden|layer|layers|head|heads|embd|embed|embedding|vocab|ffn|inner|intermediate|channels?"
    r"|kernel|block|blocks|model|arch|architecture|variant|preset|backbone|rank|r|experts?|classes|labels|num_classes|num_labels"
    r"|context|ctx|positions?|patch|resolution|bins|codebook|latent|d_model|d_ff|n_embd|n_head|n_layer)(?:$|_)"
)
"""Words in the names of settings that give a model its shape."""
_OF_A_RUN = re.compile(
    r"batch|step|epoch|worker|thread|seed|rate|lr|decay|warmup|log|save|eval|path|dir|file|device|dtype|precision|version|time|world"
    r"|process|local|node|gpu|port|shard_size|chunk|buffer|cache|limit|_name_or_path|model_type|tokenizer"
)
"""Words in the names of settings that give it none."""
_VALUE = re.compile(r"[\w.+-]{1,40}")
_PATH = re.compile(r"(?<![\w:/])(/?(?:[\w.+=@-]{1,100}/){0,12}[\w.+=@-]{1,120})")
_SAVES_TO = re.compile(
    r"^(?:output|out|save|ckpt|checkpoint|work|run|exp|experiment|results?|log)_?(?:dir|path|folder|root)?$|_dir$"
)
_CHECKPOINT_NAME = re.compile(r"checkpoint|ckpt|step|iter|epoch|global|\.(?:pt|pth|ckpt|safetensors)$|^\d+$", re.IGNORECASE)
_NAMES_CHECKPOINT = re.compile(r"ckpt|checkpoint|resum|restor|load|weight|pretrain|init|model", re.IGNORECASE)


class SettingDifference(NamedTuple):
    """A setting of a model that has one value beside a checkpoint and another one in the job."""

    name: str
    saved: str
    option: Option
    """The job's."""


class Misfit(NamedTuple):
    """A checkpoint that was made with other settings than the job has."""

    checkpoint: Path
    settings: Path
    """The file beside it that says with which."""
    differences: tuple[SettingDifference, ...]
    saved_at: datetime


def with_checkpoint_settings(diagnosis: Diagnosis, job: Job | None) -> Diagnosis:
    """Return the diagnosis of a checkpoint that does not fit with the settings that differ; as it is where none is proven to.

    To be called while reading with the rights of the job's owner.
    """
    error = " ".join(cited.text for cited in diagnosis.root_cause)
    if job is None or diagnosis.reason not in REASONS or not MISFIT.search(f"{error} {diagnosis.advice}"):
        return diagnosis
    read = FileReader(job.account)
    try:
        programs = programs_of(job, read)
        misfit = misfit_of(job, programs, [line.text for line in log_lines(job)], read)
    except (NightshiftError, OSError):
        return diagnosis  # nothing is said of what cannot be read now
    if misfit is None:
        return diagnosis
    cause, remedy = cause_words(misfit, job, read), remedy_words(misfit, job, programs, read)
    return replace(diagnosis, summary=f"{diagnosis.summary} {cause}", advice=f"{cause} {remedy} {NO_HELP}")


def misfit_of(job: Job, programs: Sequence[JobProgram], texts: Sequence[str], read: FileReader) -> Misfit | None:
    """Return the first checkpoint that a job names whose settings differ from the job's; None where none is known to.

    Args:
        job: The attempt that failed.
        programs: What its script starts.
        texts: Lines of its log, in order.
        read: Reads files with the rights of its owner.
    """
    own_files = {option.file for program in programs for option in program.settings if option.file}
    own_folders = {Path(file).parent for file in own_files} | ({job.work_dir} if job.work_dir is not None else set())
    for checkpoint in dict.fromkeys(_named_paths(job, programs, texts)):
        # where the job's own configurations lie, others lie as well: they are no settings of a checkpoint
        folders = [
            folder
            for folder in [checkpoint, *checkpoint.parents][: MOST_ABOVE + 1]
            if not any(own.is_relative_to(folder) for own in own_folders)
        ]
        for path in (path for folder in folders for path in _settings_in(folder)):
            if str(path) in own_files:
                continue
            written = _written(path)
            text = read(str(path)) if written is not None else None
            differences = differing(config_values(path, text), programs) if text else ()
            if differences and written is not None:
                return Misfit(checkpoint, path, differences, written)
    return None


def _settings_in(folder: Path) -> Iterator[Path]:
    """Yield the files of a folder, and of its folders for configurations, that may hold settings of a model."""
    for name in SUBFOLDERS:
        try:
            entries = within(LOOK_S, partial(list_folder, folder / name), str(folder / name))
        except (OSError, InputError):
            continue
        fitting = [
            entry
            for entry in entries
            if entry.suffix in SUFFIXES and SETTINGS_NAME.fullmatch(entry.name) and not OTHER_NAME.search(entry.name)
        ]
        yield from fitting[:MOST_SETTINGS]


def differing(saved: Iterable[tuple[str, str]], programs: Sequence[JobProgram]) -> tuple[SettingDifference, ...]:
    """Return the settings of a model's shape that a job has under the same name with another value. Pure.

    A name that the job has several times differs only where none of its values is the saved one.
    """
    differences: list[SettingDifference] = []
    options = [option for program in programs for option in (*program.options, *program.settings)]
    for name, value in saved:
        last = name.rpartition(".")[2]
        if not _OF_A_MODEL.search(last) or _OF_A_RUN.search(last) or not _VALUE.fullmatch(value):
            continue
        same = [option for option in options if option.last == last and _VALUE.fullmatch(option.value)]
        nested = [option for option in same if option.name == name]
        matching = nested or same
        if matching and all(_differs(option.value, value) for option in matching):
            differences.append(SettingDifference(last, value, matching[0]))
    return tuple(dict.fromkeys(differences))


def _differs(value: str, saved: str) -> bool:
    try:
        return float(value) != float(saved)
    except ValueError:
        return value.casefold() != saved.casefold() and "null" not in (value, saved)


def cause_words(misfit: Misfit, job: Job, read: FileReader) -> str:
    """Return with which settings a checkpoint was made, and which ones the job has instead, in a sentence or two."""
    differences = misfit.differences[:MOST_SHOWN]
    saved = " and ".join(f"{difference.name} {difference.saved}" for difference in differences)
    options = [difference.option for difference in differences]
    own = " and ".join(f"{option.last} {option.value} ({_place(option, read)})" for option in options)
    sentence = (
        f"The checkpoint {misfit.checkpoint} was made with {saved} ({misfit.settings}), and this job builds its model with {own}."
    )
    if job.submitted is not None and misfit.saved_at < job.submitted - timedelta(seconds=1):
        sentence += f" It was saved at {misfit.saved_at:%Y-%m-%d %H:%M:%S} UTC, before this job was submitted: an earlier run's."
    return sentence


def remedy_words(misfit: Misfit, job: Job, programs: Sequence[JobProgram], read: FileReader) -> str:
    """Return what the owner has to change so that the model is the checkpoint's, or so that the job leaves the checkpoint alone."""
    changes = []
    for difference in misfit.differences[:MOST_SHOWN]:
        option = difference.option
        place = f" in {option.file}" if option.file else " on the command line"
        changes.append(f"{option.name} to {difference.saved}{place}")
    sentence = f"Where it is to go on from that checkpoint, or to evaluate it, set {' and '.join(changes)}."
    folder = next(
        (
            option
            for program in programs
            for option in (*program.options, *program.settings)
            if _SAVES_TO.search(option.last) and _absolute(option.value, job) in misfit.checkpoint.parents
        ),
        None,
    )
    if folder is not None:
        sentence += (
            f" Where the new model is meant, give this run a folder of its own ({folder.name} is {folder.value}, "
            f"{_place(folder, read)}): there it begins at step 0, and the checkpoints of the other model stay."
        )
    return sentence


def _place(option: Option, read: FileReader) -> str:
    line = line_of_option(read(option.file) or "", option) if option.file else 0
    return f"{option.file}:{line}" if line else option.file or "on the command line"


def _named_paths(job: Job, programs: Sequence[JobProgram], texts: Sequence[str]) -> Iterator[Path]:
    """Yield the checkpoints that a job names: in its log, the last first, then in its options, and below folders of either."""
    lines = [text for text in texts[-MOST_LINES:] if _NAMES_CHECKPOINT.search(text)]
    words = (match[1] for text in reversed(lines) for match in _PATH.finditer(text[:MOST_CHARACTERS]) if "/" in match[1])
    paths = [path for word in islice(words, MOST_WORDS) if (path := _absolute(word, job)) is not None]
    options = [option for program in programs for option in (*program.options, *program.settings)]
    path_options = [option for option in options if _NAMES_CHECKPOINT.search(option.last) or _SAVES_TO.search(option.last)]
    paths += [path for option in path_options if (path := _absolute(option.value, job)) is not None]
    for path in list(dict.fromkeys(paths))[:MOST_CHECKPOINTS]:
        try:
            is_folder = stat.S_ISDIR(within(LOOK_S, partial(status_of, path), str(path)).st_mode)
            entries = within(LOOK_S, partial(_folders_in, path), str(path)) if is_folder else []
        except (OSError, InputError, ValueError):
            continue
        yield from entries
        yield path


def _folders_in(folder: Path) -> list[Path]:
    """Return the checkpoints of a folder, the newest first."""
    entries = [entry for entry in list_folder(folder)[:MOST_ENTRIES] if _CHECKPOINT_NAME.search(entry.name)]
    entries.sort(key=lambda entry: status_of(entry).st_mtime, reverse=True)
    return entries[:MOST_BELOW]


def _absolute(text: str, job: Job) -> Path | None:
    folder = job.work_dir
    if not text or len(text) > MOST_CHARACTERS or "\0" in text or "$" in text or folder is None:
        return None
    path = Path(os.path.normpath(folder / text))
    return path if path.is_absolute() and len(path.parts) > 2 else None


def _written(path: Path) -> datetime | None:
    try:
        return datetime.fromtimestamp(within(LOOK_S, partial(status_of, path), str(path)).st_mtime, UTC)
    except (OSError, InputError, ValueError, OverflowError):
        return None
