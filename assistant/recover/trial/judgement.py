"""What the sandbox saw of a trial start, and what that proves about how a script goes on. Pure.

Two witnesses prove that it goes on from the chosen checkpoint: a file of that checkpoint was read, and the log of the trial, or the
step of the first checkpoint that it saved, goes on behind its step. A start that went on from something else, or that died of an
error of its own, is refuted; one that came to nothing is neither.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path, PurePosixPath
from typing import Any

from assistant.errors import MalformedContent
from assistant.logs.lines import Lines
from assistant.ports import Reply
from assistant.records import Checkpoint
from assistant.recover.checkpoints.inventory import Inventory
from assistant.recover.checkpoints.layout import step_in_name
from assistant.recover.checkpoints.secured import folder_of
from assistant.recover.loaded import LoadedCheckpoint, LoadVerdict, compare_loaded, loaded_checkpoint
from assistant.recover.trial.deaths import ERROR_LINE, TrialDeath, death_of, error_line
from assistant.redact import head_of, tail_of
from assistant.untrusted import parse_json

MARK = "NIGHTSHIFT-TRIAL "
NEVER_BEGAN = "never got past its imports or waiting for its peers: it read no checkpoint and logged no step"
NOT_KNOWN = "so whether it goes on is not known"
LEFTOVER = re.compile(r"/__pycache__(?:/|$)|(?:\.tmp|\.part|\.lock|\.pid|\.pyc|\.sock|~)$")


@dataclass(frozen=True, slots=True)
class TrialAnswer:
    """What the sandbox saw."""

    problem: str
    """Why nothing was started; empty where it was."""
    exit_code: int | None = None
    """Of the script; None where it was ended by the trial."""
    seconds: float = 0.0
    read: tuple[str, ...] = ()
    """Files of the checkpoint folder that were read."""
    saved: tuple[str, ...] = ()
    """Files that were written and had not been there."""
    changed: tuple[str, ...] = ()
    """Files that were there and were written over or removed."""
    texts: tuple[str, ...] = ()
    """Output and logs, each by itself."""
    removed: tuple[str, ...] = ()
    """Those of `changed` that were there and are no more."""
    cpu_seconds: float = 0.0
    """Processor time of all its processes, as far as the node showed it."""


REFUSES = re.compile(
    r"already exists?\b|not empty|non-?empty|--?(?:overwrite|resume|force|restart|continue)[\w-]*|\brefus", re.IGNORECASE
)
"""Last words of a program that does not begin beside what an earlier start of it left: it says the same to a restart."""


@dataclass(frozen=True, slots=True)
class TrialVerdict:
    """Whether a trial has proven that the script goes on from the chosen checkpoint."""

    proven: bool
    note: str
    """For people: what it read and where it went on, or what is missing."""
    refuted: bool = False
    """Whether it went on from something else, harmed the chosen one, or died of its own error: it is not submitted in that way."""
    output: str = ""
    """What it printed."""
    started: bool = True
    """Whether anything was started: what reading refuses is not."""
    cut_off: bool = False
    """Whether its time was over before it showed anything: that speaks neither for the way nor against it."""
    death: TrialDeath | None = None
    """How it died of an error of its own; None where it did not."""


def trial_answer(reply: Reply) -> TrialAnswer:
    """Return what the sandbox saw, from what the node answered; what cannot be read is a problem."""
    line = next((line for line in reversed(reply.out.splitlines()) if line.startswith(MARK)), "")
    if not line:
        return TrialAnswer(tail_of(reply.err.strip(), 300) or "the node gave no answer")
    try:
        value = parse_json(line.removeprefix(MARK))
    except (MalformedContent, ValueError) as error:
        return TrialAnswer(f"the answer of the node cannot be read: {error}")
    if not isinstance(value, Mapping) or value.get("status") != "ran":
        return TrialAnswer(head_of(str(value.get("why", "")), 300) if isinstance(value, Mapping) else "the answer is no object")
    changes = [item for item in _list(value.get("changed")) if isinstance(item, Mapping)]
    logs = value.get("logs")
    texts = [value.get("output"), *(logs.values() if isinstance(logs, Mapping) else ())]
    return TrialAnswer(
        "",
        code if isinstance(code := value.get("exit"), int) else None,
        float(value["seconds"]) if isinstance(value.get("seconds"), int | float) else 0.0,
        tuple(str(path) for path in _list(value.get("opened"))),
        tuple(str(item.get("path")) for item in changes if item.get("was") is None),
        (*(str(item.get("path")) for item in changes if item.get("was") is not None), *map(str, _list(value.get("removed")))),
        tuple(text for text in texts if isinstance(text, str) and text.strip()),
        tuple(map(str, _list(value.get("removed")))),
        float(value["cpu_seconds"]) if isinstance(value.get("cpu_seconds"), int | float) else 0.0,
    )


def _list(value: Any) -> Sequence[Any]:
    return value if isinstance(value, list) else ()


def judge_trial(answer: TrialAnswer, checkpoint: Checkpoint, inventory: Inventory | None, *, fewer: bool = False) -> TrialVerdict:
    """Return whether a trial proves that the script goes on from the chosen checkpoint.

    Args:
        answer: Of the sandbox.
        checkpoint: The one that a restart is to go on from.
        inventory: What its folder holds.
        fewer: Whether the trial had fewer ranks or devices than the job: then its death tells nothing.
    """
    if answer.problem:
        return TrialVerdict(False, answer.problem)
    outcome = "ended by itself" if answer.exit_code is not None else f"ran for {answer.seconds:.0f} s"
    loads = [loaded_checkpoint(Lines.of(text.splitlines())) for text in answer.texts]
    comparisons = [compare_loaded(checkpoint, load) for load in loads]
    death = death_of(answer.exit_code, answer.texts, answer.read, _names(inventory)) if not fewer else None
    is_own = death is not None and death.is_sure
    otherwise = next((item for item in comparisons if item.differs), None)
    if otherwise is not None:
        return TrialVerdict(False, otherwise.note, refuted=True, death=death)
    same = _same(checkpoint, inventory)
    read = next((path for path in answer.read if any(Path(path).is_relative_to(item) for item in same)), "")
    began = answer.read or answer.saved or any(not load.silent for load in loads)
    is_cut = answer.exit_code is None
    if not began and is_cut:
        working = f", with {answer.cpu_seconds:.0f} s of processor time," if answer.cpu_seconds >= 1 else ""
        return TrialVerdict(
            False, f"it was cut off after {answer.seconds:.0f} s{working} and {NEVER_BEGAN}, {NOT_KNOWN}", cut_off=True
        )
    if not read:
        nothing = not began and bool(answer.exit_code)
        words = (
            "it ended before it read a checkpoint or logged a step"
            if nothing
            else f"it {outcome} and read no file of {checkpoint.path.name}"
        )
        end = _end(answer)
        refuses = bool(answer.exit_code) and not fewer and REFUSES.search(end) is not None and "onnection" not in end
        words = death.words if death is not None and death.file else f"{words}{end}"
        return TrialVerdict(False, words, refuted=refuses or is_own, death=death)
    saved = _first_save(answer, checkpoint, inventory)
    steps = [item.step for item in inventory.checkpoints] if inventory is not None else []
    gap = max((after - before for before, after in pairwise(sorted({*steps, 0})) if after > before), default=0)
    evidence = next((item.note for item in comparisons if item.verdict is LoadVerdict.CHOSEN), "")
    if evidence and saved is None and not any(_went_on(answer, text, load) for text, load in zip(answer.texts, loads, strict=True)):
        note = f"it read {read} and failed while it loaded {checkpoint.path.name}{_end(answer)}"
        return TrialVerdict(False, note, refuted=is_own, death=death)
    if saved is not None and (saved <= checkpoint.step or (saved > checkpoint.step + max(gap, 1) and not evidence)):
        return TrialVerdict(False, f"it read {read} and then saved step {saved}; chosen was step {checkpoint.step}", refuted=True)
    if _is_lost(answer, checkpoint) and saved is None:
        if evidence and _is_saved_over(answer, checkpoint):
            return TrialVerdict(True, f"it read {read}; {evidence}; then it saved over {checkpoint.path.name}, as each save does")
        lost = f"it read {read} and then removed or wrote over {checkpoint.path.name} before it saved anything"
        return TrialVerdict(False, lost, refuted=True)
    if saved is None and (lost_name := _lost_beside(answer, inventory)):
        return TrialVerdict(False, f"it read {read} and removed {lost_name} before it saved anything", refuted=True)
    if evidence and answer.exit_code and death is not None and death.error and saved is None:
        return TrialVerdict(False, f"it read {read}; {evidence}; and then it died: {death.error!r}", refuted=is_own)
    if evidence:
        return TrialVerdict(True, f"it read {read}; {evidence}")
    if rival := _other_read(answer, inventory, read, same):
        note = f"it read {read} and {rival}, and its log does not tell from which it went on{_end(answer)}"
        return TrialVerdict(False, note, refuted=is_own, death=death)
    if saved is not None and checkpoint.step > 0:
        return TrialVerdict(True, f"it read {read}, and the first that it saved is step {saved}")
    cut = f" before it was cut off after {answer.seconds:.0f} s, {NOT_KNOWN}" if is_cut and saved is None else ""
    note = f"it read {read}, and nothing tells at which step it went on{cut}{_end(answer)}"
    return TrialVerdict(False, note, refuted=is_own, cut_off=bool(cut), death=death)


def _same(checkpoint: Checkpoint, inventory: Inventory | None) -> set[Path]:
    """Return the chosen checkpoint and what else is of its very step; what must not be loaded, or was only placed there, is not."""
    if inventory is None:
        return {checkpoint.path}
    unsound = {save.path for save in inventory.checkpoints if not (save.healthy or save.undecided)} | {*inventory.placed_by}
    alike = (entry.path for entry in inventory.entries if entry.step == checkpoint.step and entry.path not in unsound)
    return {checkpoint.path, *alike}


def _names(inventory: Inventory | None) -> list[str]:
    """Return the paths of checkpoints that are one file: an empty one is never seen to be read."""
    return [str(entry.path) for entry in (inventory.entries if inventory is not None else ()) if entry.path.name in entry.files]


def _first_save(answer: TrialAnswer, checkpoint: Checkpoint, inventory: Inventory | None) -> int | None:
    """Return the lowest step of the checkpoints that a trial saved beside the chosen one; None where their names tell none.

    What it writes over of another checkpoint is saved as well: a run saves again the steps that the attempt before it had saved.
    """
    folder = folder_of(checkpoint.path)
    names = [PurePosixPath(path).relative_to(folder).parts[0] for path in answer.saved if Path(path).is_relative_to(folder)]
    steps = [step for name in names if name != checkpoint.path.name and (step := step_in_name(name)) is not None and step >= 0]
    rivals = [item for item in (inventory.entries if inventory is not None else ()) if item.step != checkpoint.step]
    written = [Path(path) for path in answer.changed if path not in answer.removed]
    return min([*steps, *(item.step for item in rivals if any(path.is_relative_to(item.path) for path in written))], default=None)


def _other_read(answer: TrialAnswer, inventory: Inventory | None, read: str, same: Collection[Path]) -> str:
    """Return a file of another checkpoint that a trial read and that bears the name of the one it read; empty for none.

    What only lists or counts checkpoints reads a record of them, and no file that a load reads.
    """
    rivals = [item.path for item in (inventory.entries if inventory is not None else ()) if item.path not in same]
    name = next((Path(read).relative_to(path) for path in same if Path(read).is_relative_to(path)), Path(read))
    return next((str(path / name) for path in rivals if str(path / name) in answer.read), "")


def _lost_beside(answer: TrialAnswer, inventory: Inventory | None) -> str:
    """Return the name of another checkpoint that a trial removed; empty for none."""
    entries = [item.path for item in (inventory.entries if inventory is not None else ()) if not item.temporary]
    return next((path.name for path in entries if any(path.is_relative_to(lost) for lost in answer.removed)), "")


def removed_besides(answer: TrialAnswer, folder: Path) -> str:
    """Return what a trial removed outside the folder of its checkpoints that is no leftover of a program; empty for nothing.

    A variable that a script was never seen to be given may mean more than going on: `CLEAN=1`.
    """
    lost = (
        path for path in answer.removed if not Path(path).is_relative_to(folder) and not path.startswith(("/tmp/", "/var/tmp/"))
    )
    return next((path for path in lost if not LEFTOVER.search(path)), "")


def changed_of_saves(answer: TrialAnswer, checkpoint: Checkpoint, inventory: Inventory, *, slots: bool) -> str:
    """Return the chosen checkpoint or another healthy one that a trial changed in any way; empty for none.

    A variable that its owner only shows may mean something else: a log that is written into a checkpoint.

    Args:
        answer: Of the sandbox.
        checkpoint: The one that a restart is to go on from.
        inventory: What its folder holds.
        slots: Whether a file without a step in its name may be written over once a later step was saved: files in turn.
    """
    paths = [checkpoint.path, *(save.path for save in inventory.checkpoints if save.healthy)]
    saved = _first_save(answer, checkpoint, inventory)
    has_saved = slots and saved is not None and saved > checkpoint.step
    changed = [
        Path(path)
        for path in answer.changed
        if path in answer.removed or not has_saved or step_in_name(PurePosixPath(path).name) is not None
    ]
    within = [path for path in changed if any(path.is_relative_to(save) or save.is_relative_to(path) for save in paths)]
    written = [Path(path) for path in answer.saved if any(Path(path).is_relative_to(save) for save in paths)]
    return next((str(path) for path in (*within, *written)), "")


def _is_lost(answer: TrialAnswer, checkpoint: Checkpoint) -> bool:
    return any(Path(path).is_relative_to(checkpoint.path) or checkpoint.path.is_relative_to(path) for path in answer.changed)


def _is_saved_over(answer: TrialAnswer, checkpoint: Checkpoint) -> bool:
    """Tell whether a checkpoint is a file that each save replaces (its name tells no step), and was written anew and is there."""
    is_removed = any(checkpoint.path.is_relative_to(lost) for lost in answer.removed)
    return str(checkpoint.path) in answer.changed and not is_removed and step_in_name(checkpoint.path.name) is None


def _went_on(answer: TrialAnswer, text: str, load: LoadedCheckpoint) -> bool:
    """Tell whether a script got past its load: "Loading ..." is said before it, and what follows may be how that failed."""
    if not answer.exit_code or load.first_step is not None:
        return True
    lines_after = text.splitlines()[load.loads[-1].number :] if load.loads else []
    first = next((line.strip() for line in lines_after if line.strip()), "Traceback")
    return not (first.startswith("Traceback") or ERROR_LINE.match(first))


def _end(answer: TrialAnswer) -> str:
    """Return by which line a script that ended badly by itself tells why."""
    if not answer.exit_code or not answer.texts:
        return ""
    line = error_line(answer.texts)
    return f"; it ended with {answer.exit_code}: {line!r}" if line else f"; it ended with {answer.exit_code}"
