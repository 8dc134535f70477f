"""Where a job saves its checkpoints: said by the site, by the job's script or environment, else read off its log."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path

from assistant.records import Job
from assistant.recover.checkpoints.layout import DIRECTORY_STEPS, PLAIN_FOLDER, Format, names_step
from assistant.recover.checkpoints.save_options import SaveFolder, save_folders
from assistant.recover.directives import read_directives
from assistant.recover.job_program import JobProgram
from assistant.recover.shell.folders import UNRESOLVED
from assistant.watch.progress import tells_of_save

ENVIRONMENT = "NIGHTSHIFT_CHECKPOINTS"
SAVE_VARIABLES = ("CHECKPOINT_DIR", "CHECKPOINTS_DIR", "CHECKPOINT_PATH", "CKPT_DIR", "SAVE_DIR", "OUTPUT_DIR", "OUT_DIR")
"""Variables by which scripts name the folder to their programs."""

_PATH = r"[`'\"]?(?:local:|file://)?(?P<path>(?:/|\./|\.\./|[\w.-]+/)[^\s`'\",;\]]*)"
SAVED = (
    # Megatron-LM, Megatron-DeepSpeed, assistant.training
    re.compile(rf"(?:saving|saved) checkpoint (?:at|from) iteration\s+\d+ (?:to|in) {_PATH}", re.IGNORECASE),
    # DeepSpeed: [Torch] Saving /ckpt/global_step100/mp_rank_00_model_states.pt...
    re.compile(rf"\[Torch\] Sav(?:ing|ed) {_PATH}"),
    # Hugging Face Trainer, Accelerate, NeMo, InternEvo, torchtune: some form of "saving … checkpoint to PATH"
    re.compile(
        rf"(?:sav(?:ing|ed)|writing|wrote|stor(?:ing|ed))\b[^/\n]{{0,60}}?\b(?:to|in|at|into|as)\b:? {_PATH}", re.IGNORECASE
    ),
    # Lightning: …, saving model to '/runs/a/epoch=0-step=100.ckpt' as top 1
    re.compile(rf"saving model to {_PATH}", re.IGNORECASE),
    re.compile(rf"sav(?:ing|ed) (?:model |training )?(?:checkpoint|state)s?:? {_PATH}", re.IGNORECASE),
    # TensorFlow's guide, and loops after it: "Saved checkpoint for step 10: ./tf_ckpts/ckpt-1"
    re.compile(rf"sav(?:ing|ed) checkpoints? for (?:step|epoch|iteration) \d{{1,18}}:? {_PATH}", re.IGNORECASE),
)
SPOKE = re.compile(r"sav(?:ing|ed)|writ(?:ing|ten)|wrote|stor(?:ing|ed)", re.IGNORECASE)
ABOUT = re.compile(r"checkpoint|ckpt|\bmodel\b|\bstates?\b|global_step|\.(?:pt|pth|npz|safetensors)\b", re.IGNORECASE)
SAVES = re.compile(
    r"\bsav(?:e|es|ing|ed)\b.{0,80}?\b(?:check ?points?|ckpts?|(?:training |current )?states?|snapshots?)\b|"
    r"\b(?:check ?point|ckpt|snapshot)s?\b.{0,80}?\b(?:sav(?:ed|ing)|written|stored)\b|"
    r"(?:wrote|writing) (?:a )?(?:checkpoint|ckpt)",
    re.IGNORECASE,
)
NO_SAVE = re.compile(
    r"error|fail|cannot|could not|unable|not sav|no checkpoint|will be saved|saving is disabled|\bevery\b|--\w+", re.IGNORECASE
)
FAILED = re.compile(r"error|fail|cannot|could not|unable|traceback", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Place:
    """A checkpoint folder and how it was found."""

    folder: Path
    how: str
    """For people: `#NIGHTSHIFT checkpoints= in the script`."""
    stated: bool = False
    """Whether owner or site say so in as many words: then nothing else is looked for."""
    sure: bool = True
    """False where the program may put another folder before it: that nothing lies there proves nothing."""
    inode: int = 0
    """Of the witness, else of the folder, as a node saw it: what has another one here lies on a disk of that node; 0: not known."""
    witness: Path | None = None
    """The file that was seen open in the folder or below it; None for a folder that was seen itself."""
    forms: frozenset[str] = frozenset()
    """How its checkpoints are named, as `SaveFolder.forms`; empty where only known layouts count."""


def place_of(save: SaveFolder) -> Place:
    """Return a folder that programs save into as a place."""
    return Place(save.folder, save.how, sure=save.sure, forms=save.forms)


def checkpoint_place(
    job: Job, folders: Mapping[str, Path], log_lines: Iterable[str] = (), programs: Sequence[JobProgram] = ()
) -> Place | None:
    """Return the surest place where a job saves, or None when nothing tells one; nothing is looked at.

    Args: as `checkpoint_places`.
    """
    return next(iter(checkpoint_places(job, folders, log_lines, programs)), None)


def checkpoint_places(
    job: Job, folders: Mapping[str, Path], log_lines: Iterable[str] = (), programs: Sequence[JobProgram] = ()
) -> list[Place]:
    """Return the places where a job may save, the surest first, each once.

    The order: the directive in its script, the site's setting, `NIGHTSHIFT_CHECKPOINTS`, command line and configuration of its
    programs, its log, other variables of its environment.

    Args:
        job: With its spec, where the scheduler keeps it.
        folders: The site's settings: folder by job id, or by a glob of job names.
        log_lines: Of the job's log, in order.
        programs: What its script starts, from `programs_of`.
    """
    places: list[Place] = []
    spec = job.spec
    directives = read_directives(spec.script) if spec is not None else None
    if directives is not None and directives.checkpoints:
        places.append(Place(_absolute(directives.checkpoints, job), "#NIGHTSHIFT checkpoints= in the script", stated=True))
    setting = folders.get(job.id) or next((path for glob, path in folders.items() if fnmatchcase(job.name, glob)), None)
    if setting is not None:
        places.append(Place(setting, "said by the settings", stated=True))
    if spec is not None and spec.environment.get(ENVIRONMENT):
        places.append(Place(_absolute(spec.environment[ENVIRONMENT], job), f"{ENVIRONMENT} in the job's environment", stated=True))
    exported = next((text for one in programs if (text := one.launch.variables.get(ENVIRONMENT))), "")
    if not places and exported and UNRESOLVED not in exported:
        places.append(Place(_absolute(exported, job), f"{ENVIRONMENT} in the script", stated=True))
    if places:
        return places
    places += map(place_of, save_folders(programs))
    logged = last_saved(log_lines)
    if logged:
        boxed = (one.launch for one in programs if one.launch.container is not None)
        seen = (path for launch in boxed if (path := launch.outside(logged)) is not None)
        places.append(Place(next(seen, None) or _absolute(logged, job), "the job's log"))
    if spec is not None:
        named = [name for name in SAVE_VARIABLES if spec.environment.get(name)]
        places += [Place(_absolute(spec.environment[name], job), f"{name} in the job's environment") for name in named]
    return list({place.folder: place for place in reversed(places)}.values())[::-1]


def process_places(job: Job) -> list[Place]:
    """Return the folders where processes of a job were seen to write, the surest first, each once; nothing is looked at.

    The order: variables of their environment, working folders other than the job's, folders of files that they held open. A folder
    that holds the work folder of the job belongs to more than this job and is left out, as is one right below the root.
    """
    if job.processes is None:
        return []
    variables = [one for one in job.processes.folders if one.variable]
    working = [one for one in job.processes.folders if not one.variable]
    places = [Place(one.path, one.source) for one in variables]
    places += [Place(one.path, one.source, inode=one.inode) for one in working]
    for file in job.processes.files:
        name = file.path.parent.name
        inside = any(pattern.fullmatch(name) for layout, pattern in DIRECTORY_STEPS.items() if layout is not Format.INTERNEVO)
        folder = file.path.parent.parent if inside else file.path.parent
        places.append(Place(folder, file.source, witness=file.path, inode=file.inode))
    work = job.work_dir
    own = [one for one in places if len(one.folder.parts) > 2 and (work is None or one.folder not in (work, *work.parents))]
    return list({place.folder: place for place in reversed(own)}.values())[::-1]


def last_saved(log_lines: Iterable[str]) -> str | None:
    """Return the folder of the last checkpoint that a log says was saved; None when it tells of none with its path."""
    found = None
    for line in log_lines:
        if not SPOKE.search(line) or not ABOUT.search(line) or FAILED.search(line):
            continue
        path = next((match.group("path") for pattern in SAVED if (match := pattern.search(line))), None)
        if path is not None:
            found = _folder_of(path.rstrip("."))
    return found


def says_saved(texts: Iterable[str]) -> str:
    """Return the last line of a log that tells of a save; empty where none does."""
    last = ""
    for text in texts:
        if len(text) < 4000 and (tells_of_save(text) or (SAVES.search(text) and not NO_SAVE.search(text)) or last_saved([text])):
            last = text
    return last


def _folder_of(path: str) -> str:
    """Cut a path before the part that names one checkpoint; a file leaves its folder."""
    parts = path.rstrip("/").split("/")
    for place, part in enumerate(parts):
        if place and any(pattern.fullmatch(part) for layout, pattern in DIRECTORY_STEPS.items() if layout is not Format.INTERNEVO):
            return "/".join(parts[:place])
    if len(parts) > 1 and (parts[-1].isdecimal() or re.search(r"\.(?:ckpt|pt|pth|npz|bin|safetensors)$", parts[-1])):
        if names_step(parts[-1]):
            return "/".join(parts[:-1])  # the file is the checkpoint: `run/ckpt5/step_000010.npz` lies in `run/ckpt5`
        parts = parts[:-1]
    if len(parts) > 1 and PLAIN_FOLDER.fullmatch(parts[-1]):
        parts = parts[:-1]
    return "/".join(parts)


def _absolute(path: str, job: Job) -> Path:
    folder = Path(path).expanduser()
    return folder if folder.is_absolute() or job.work_dir is None else job.work_dir / folder
