"""What a restart needs first so that the job loads the chosen checkpoint, or why it must not be started. Pure."""

from __future__ import annotations

import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path, PurePosixPath

from assistant.records import Checkpoint
from assistant.recover.checkpoints.entry import Entry, Format
from assistant.recover.checkpoints.inventory import Inventory
from assistant.recover.checkpoints.layout import KERAS_WEIGHTS, UNKNOWN_STEP, step_in_name
from assistant.recover.checkpoints.secured import folder_of, is_secured
from assistant.recover.checkpoints.trackers import TENSORFLOW_TRACKER, state_naming
from assistant.recover.resume.lookups import (
    covers,
    entry_of_path,
    file_of_rank,
    is_one_file,
    is_prefix,
    step_of_target,
    within_folder,
)
from assistant.recover.resume.means import SETTLE, ResumeMeans, ResumeWay
from assistant.recover.resume.number import leads_to
from assistant.recover.resume.script_arguments import template_text

BY_PLACE = ("{name}", "{step}", "{folder}")
"""Places of a template that lead to a checkpoint among others of its folder."""
DEEPSPEED_TRACKER = "latest"
NEED_METADATA = (Format.TORCHTITAN,)
"""Formats whose program passes over a folder without `.metadata` by itself."""
LATEST_LINK = re.compile(r"latest|last|newest|current|resume", re.IGNORECASE)
"""Names of links that a program follows to go on; one named otherwise, as `best`, means something else."""
TRACKED = (Format.DEEPSPEED, Format.MEGATRON)
"""Formats that are loaded by the name of their folder, from what its tracker names."""
OWN_CHOICE = (Format.NIGHTSHIFT,)
"""Formats whose loader verifies what it loads and falls back by itself."""


@dataclass(frozen=True, slots=True)
class ResumePlan:
    """What a restart needs first."""

    refusal: str = ""
    """Why it must not be started; empty where it may."""
    set_aside: tuple[Path, ...] = ()
    """Checkpoints that would be loaded instead of the chosen one, or met when their step is saved again; newest first."""
    tracker: Path | None = None
    """The tracker file, or the link, that has to name the chosen one; None where it does or where none counts. One of a rank stands
    for those of all ranks."""
    tracker_text: str = ""
    """What has to stand in it."""

    @property
    def ready(self) -> bool:
        """Whether the job may be started as things are."""
        return not self.refusal and not self.set_aside and self.tracker is None


WHOLE_UNKNOWN = "is whole is not known"
TELLS_NO_STEP = "tells no step, and this script may load it instead of"
REMOVED_FIRST = "its script removes"
"""How a refusal begins where a start would take the checkpoints away before anything is loaded."""


def resume_plan(way: ResumeWay, inventory: Inventory | None, checkpoint: Checkpoint | None, *, moves: str = "") -> ResumePlan:
    """Return what is needed before a job may be started again.

    Args:
        way: How its script resumes.
        inventory: What its checkpoint folder holds; None where it proved to hold nothing.
        checkpoint: Where it is to go on; None to begin at the start.
        moves: Why a new job would look in another folder, from `folder_moves`; empty where it would not.
    """
    checkpoints = inventory.checkpoints if inventory is not None else ()
    if way.repeats:
        return ResumePlan(way.repeats)
    if checkpoint is None:
        if not checkpoints:
            return ResumePlan()
        folder = inventory.folder if inventory is not None else ""
        return ResumePlan(
            f"it would start at 0 over the {len(checkpoints)} checkpoints in {folder}; move them away first if that is meant"
        )
    lost = next((path for path in way.removed if covers(path, checkpoint.path)), None)
    if lost is not None and not way.tried:
        out = f"{REMOVED_FIRST} {lost} when it starts, and {checkpoint.path.name} lies there"
        if (dead_end := _dead_end(way, checkpoint)) is not None:
            return ResumePlan(f"{out}: move it away before any start; {dead_end}")
        return ResumePlan(f"{out}: take that line out; where it does not run on a restart, {SETTLE}")
    if is_secured(checkpoint.path):
        if not _is_given_path(way):
            return ResumePlan(_out_of_sight(way, checkpoint))
    elif inventory is not None:
        # a program neither sees nor meets what has only a second name
        inventory = _in_its_folder(inventory)
    by_itself = way.means in (ResumeMeans.TRACKER, ResumeMeans.NEWEST)
    if way.destroys and (by_itself or way.means is ResumeMeans.FIXED):
        return ResumePlan(f"{way.sentence}, and then {way.destroys}: take that option out, or {SETTLE}")
    if by_itself and moves and not (way.pins or way.tried) and "{folder}" not in way.variable:
        obstacle = way.pin_problem or "nothing that can be set for another start gives it the old name"
        return ResumePlan(f"{moves}: a new job would look elsewhere and start at 0; {obstacle}")
    match way.means:
        case ResumeMeans.ARGUMENT if way.bound and way.bound != str(checkpoint.path):
            return ResumePlan(f"{way.sentence}, which was tried for {way.bound}, and {checkpoint.path} was chosen; {SETTLE}")
        case ResumeMeans.ARGUMENT if inventory is not None and (later := inventory.later_untold(checkpoint)):
            return ResumePlan(
                f"{way.sentence}; but {later} was written later than {checkpoint.path.name} and tells no step; {SETTLE}"
            )
        case ResumeMeans.ARGUMENT:
            if "{step}" in way.path and not leads_to(way.path, checkpoint.step, str(checkpoint.path)):
                loaded = way.path.replace("{step}", str(checkpoint.step))
                return ResumePlan(f"{way.sentence}, and that would be {loaded}; {checkpoint.path} was chosen; {SETTLE}")
            if way.takes_files and not is_one_file(checkpoint, inventory):
                return ResumePlan(f"{way.sentence}, which must be one file, and {checkpoint.path.name} is not; {SETTLE}")
            if way.takes_folders and is_one_file(checkpoint, inventory):
                return ResumePlan(f"{way.sentence}, which must be a folder, and {checkpoint.path.name} is a file; {SETTLE}")
            return _prefixed(way, inventory, checkpoint) if way.prefix else ResumePlan()
        case ResumeMeans.NONE if (dead_end := _dead_end(way, checkpoint)) is not None:
            return ResumePlan(
                f"{dead_end}, over the checkpoints in {checkpoint.path.parent}: move them away first if that is meant"
            )
        case ResumeMeans.NONE:
            return ResumePlan(
                f"{way.sentence}, over the checkpoints in {checkpoint.path.parent}; {_settled_by(way, inventory, checkpoint)}"
            )
        case ResumeMeans.UNKNOWN:
            return ResumePlan(
                f"{way.sentence}, and it might start at 0 over those in {checkpoint.path.parent}; "
                f"{_settled_by(way, inventory, checkpoint)}"
            )
        case ResumeMeans.FIXED:
            path = PurePosixPath(way.path)
            if (
                inventory is not None
                and inventory.tracker is not None
                and Path(path) == checkpoint.path.parent
                and checkpoint.format in TRACKED
            ):
                return _tracked(way, inventory, checkpoint)  # a folder is no checkpoint: what its tracker names is loaded
            names = {
                checkpoint.path.name,
                inventory.own_name(PurePosixPath(checkpoint.path)).name if inventory is not None else checkpoint.path.name,
            }
            parts = {*path.parts, *(inventory.own_name(path) if inventory is not None else path).parts}
            same = bool(names & parts)
            return ResumePlan() if same else ResumePlan(f"{way.sentence}, and {checkpoint.path.name} was chosen; {SETTLE}")
        case ResumeMeans.NEWEST if way.prefix == KERAS_WEIGHTS and is_prefix(checkpoint, inventory):
            # before Keras 3 the backup is a checkpoint of TensorFlow with its tracker
            return _as_it_is(way, _tracked(way, inventory, checkpoint), checkpoint)
        case ResumeMeans.TRACKER:
            plan = _as_it_is(way, _tracked(way, inventory, checkpoint), checkpoint)
            return plan if plan.ready else _beside_others(way, inventory, checkpoint) or plan
    return _of_newest(way, inventory, checkpoint)


def _of_newest(way: ResumeWay, inventory: Inventory | None, checkpoint: Checkpoint) -> ResumePlan:
    """Return what is needed where a program takes the newest: what a trial start died of is out of its way in any case."""
    torn = tuple(path for path in (inventory.torn if inventory is not None else ()) if path != checkpoint.path)
    if torn and inventory is not None:
        entries = tuple(entry for entry in inventory.entries if entry.path not in torn)
        saves = tuple(save for save in inventory.checkpoints if save.path not in torn)
        inventory = replace(inventory, entries=entries, checkpoints=saves)
    plan = _by_listing(way, inventory, checkpoint, _by_rule(way, inventory, checkpoint), torn)
    return plan if plan.refusal or not torn else replace(plan, set_aside=(*torn, *plan.set_aside))


def _by_listing(
    way: ResumeWay, inventory: Inventory | None, checkpoint: Checkpoint, plan: ResumePlan, torn: Sequence[Path]
) -> ResumePlan:
    """Return a plan that is held against the files which the program lists now: what would be taken before the chosen one goes."""
    listed = [path for path in map(Path, way.listed) if path not in torn]
    is_own = bool(listed) and listed[0].parent == checkpoint.path.parent
    if not is_own or plan.tracker is not None or (plan.refusal and TELLS_NO_STEP not in plan.refusal):
        return plan
    first = next((path for path in listed if path not in plan.set_aside), None)
    entry = entry_of_path(PurePosixPath(first), inventory) if first is not None else None
    if first == checkpoint.path or (entry is not None and entry.path == checkpoint.path):
        return plan
    open_saves = {save.path for save in (inventory.checkpoints if inventory is not None else ()) if save.undecided}
    before = listed[: listed.index(checkpoint.path)] if checkpoint.path in listed else listed
    if unjudged := next((path.name for path in before if path in open_saves), ""):
        doubt = f"whether {unjudged} {WHOLE_UNKNOWN}, and {checkpoint.path.name} was chosen"
        return plan if plan.refusal else ResumePlan(f"{way.sentence}; {doubt}; {SETTLE}")
    return _picked(replace(way, picks=tuple(map(str, listed))), inventory, checkpoint)


def _by_rule(way: ResumeWay, inventory: Inventory | None, checkpoint: Checkpoint) -> ResumePlan:
    """Return what is needed by the rule alone that the program takes the newest."""
    if way.picks:
        return _picked(way, inventory, checkpoint)
    foreign_problem = _beside_others(way, inventory, checkpoint)
    if foreign_problem is not None:
        return foreign_problem
    if way.prefix or way.ending:
        return _prefixed(way, inventory, checkpoint)
    is_first = way.listed[:1] == (str(checkpoint.path),)
    if inventory is not None and checkpoint.path in inventory.placed_by and not is_first:
        return ResumePlan(f"{way.sentence}: whether that is {checkpoint.path.name}, which tells no step, is not known; {SETTLE}")
    unknown_step = _untold(inventory, checkpoint)
    if unknown_step is not None:
        return ResumePlan(f"{unknown_step} {TELLS_NO_STEP} {checkpoint.path.name}; {SETTLE}")
    newer = _newer(way, inventory, checkpoint)
    return _as_it_is(way, _linked(inventory, checkpoint, newer, exact=False) or ResumePlan(set_aside=newer), checkpoint)


def _is_given_path(way: ResumeWay) -> bool:
    """Tell whether a script is given the path of a checkpoint, and no name, number or folder by which it looks among others."""
    words = " ".join((way.by, way.argument, way.variable, way.path, *(way.arguments or ())))
    return way.means is ResumeMeans.ARGUMENT and not way.prefix and not any(place in words for place in BY_PLACE)


def _out_of_sight(way: ResumeWay, checkpoint: Checkpoint) -> str:
    """Return that a script does not come to a checkpoint that has only its second name, and how a person puts it back."""
    folder = folder_of(checkpoint.path)
    back = f"cp -al {shlex.quote(str(checkpoint.path))} {shlex.quote(f'{folder}/')}"
    return (
        f"{way.sentence}; {checkpoint.path.name} is gone from {folder} and lies at {checkpoint.path} alone, where nothing proves "
        f"that it looks. A person puts it back ({back}), moves the newer ones away and starts it, or gives it that path: {SETTLE}"
    )


def _in_its_folder(inventory: Inventory) -> Inventory:
    """Return what lies in the folder of the run itself, without what has only a second name elsewhere."""
    if not any(is_secured(entry.path) for entry in inventory.entries):
        return inventory
    return replace(
        inventory,
        entries=tuple(entry for entry in inventory.entries if not is_secured(entry.path)),
        checkpoints=tuple(save for save in inventory.checkpoints if not is_secured(save.path)),
    )


def leads_astray(folder: Inventory) -> bool:
    """Tell whether the tracker of a folder names a checkpoint that must not be loaded, or that is not there."""
    tracker = folder.tracker
    return tracker is not None and not any(save.healthy for save in folder.checkpoints if save.step == tracker.step)


def _dead_end(way: ResumeWay, checkpoint: Checkpoint) -> str | None:
    """Return that a program saves and holds nothing that loads, so that no option or line makes it go on; None where one may."""
    if way.means is not ResumeMeans.NONE or not way.loads_nothing or way.hint or way.usage:
        return None
    why = f" ({way.by})" if way.loads_nothing not in way.by.split(" ")[:1] else ""
    return f"{way.loads_nothing} saves {checkpoint.path.name} and has no way to go on from it{why}: a start begins at step 0"


def _settled_by(way: ResumeWay, folder: Inventory | None, checkpoint: Checkpoint) -> str:
    """Return what settles how a script goes on: the argument that it seems to take, and what its owner may write into it."""
    seems = f"it seems to go on with {hint}, which is not proven" if (hint := _filled_for_people(way.hint, checkpoint)) else ""
    warning = _switch_warning(way, folder, checkpoint)
    later = folder.later_untold(checkpoint) if folder is not None else ""
    doubts = (f"{later} was written later and tells no step" if later else "", warning)
    return "; ".join(part for part in (seems, way.usage, _documented(way, checkpoint), *doubts, SETTLE) if part)


def _documented(way: ResumeWay, checkpoint: Checkpoint) -> str:
    """Return what a person types by the line that documents how a run goes on; empty where none does."""
    template = next((item for item in way.script_arguments if item.command), None)
    if template is None:
        return ""
    return f"{template.place} with the chosen checkpoint is `{template_text(template, checkpoint)}`, which is not proven"


def _filled_for_people(template: str, checkpoint: Checkpoint) -> str:
    """Return a template with its places filled, as a person types it."""
    path = checkpoint.path
    places = {"checkpoint": str(path), "name": path.name, "step": str(checkpoint.step), "folder": str(path.parent)}
    return re.sub(r"\{(\w+)\}", lambda match: shlex.quote(places[match[1]]) if match[1] in places else match[0], template)


def _switch_warning(way: ResumeWay, folder: Inventory | None, checkpoint: Checkpoint) -> str:
    """Return that the switch by which a program goes on, alone, would load what must not be loaded; empty if not so."""
    branch = way.branch
    newest = max(folder.checkpoints, key=lambda save: save.step, default=None) if folder is not None else None
    if branch is None or not branch.switches or newest is None or newest.healthy or newest.step <= checkpoint.step:
        return ""
    why = f" ({newest.problems[0]})" if newest.problems else ""
    refused = f"{newest.path.name}, which must not be loaded{why}"
    return f"{branch.switches} alone may load {refused}: pass it with the choice, or not at all"


def _beside_others(way: ResumeWay, inventory: Inventory | None, checkpoint: Checkpoint) -> ResumePlan | None:
    """Return a refusal where a script may load another run's checkpoint: those are not ours to move; None where it sees none."""
    foreign = (
        next((one for one in reversed(inventory.foreign) if _may_be_taken(way, inventory, one, checkpoint)), None)
        if inventory is not None
        else None
    )
    return _of_another(way, inventory, foreign, checkpoint) if inventory is not None and foreign is not None else None


def _may_be_taken(way: ResumeWay, inventory: Inventory, foreign: Checkpoint, checkpoint: Checkpoint) -> bool:
    """Tell whether a script may load another run's checkpoint; one of the same form of name that is older in both ways is not."""
    older = foreign.step < checkpoint.step and foreign.saved_at < checkpoint.saved_at
    return way.sees(foreign.path.name) and not (older and foreign.path in inventory.strange)


def _of_another(way: ResumeWay, inventory: Inventory, foreign: Checkpoint, checkpoint: Checkpoint) -> ResumePlan:
    why = f" (it {inventory.strange[foreign.path]})" if foreign.path in inventory.strange else ""
    settle = f"give one of the two runs a folder of its own, or {SETTLE}"
    return ResumePlan(
        f"{way.sentence}, {foreign.path.name} there is another run's{why}, and {checkpoint.path.name} was chosen; {settle}"
    )


def _as_it_is(way: ResumeWay, plan: ResumePlan, checkpoint: Checkpoint) -> ResumePlan:
    """Return a plan, refused where a framework that cannot be led to another checkpoint would load one."""
    if way.steered or plan.ready or plan.refusal:
        return plan
    return ResumePlan(
        f"{way.sentence}, which is not {checkpoint.path.name}: somebody who knows the framework leads it there; {SETTLE}"
    )


def _linked(inventory: Inventory | None, checkpoint: Checkpoint, later: tuple[Path, ...], *, exact: bool) -> ResumePlan | None:
    """Return what a link of the folder that leads elsewhere than to the chosen one needs; None where no link does.

    Args:
        inventory: What the folder holds.
        checkpoint: Where the job is to go on.
        later: What is set aside in any case.
        exact: Whether the script follows the link, so that an older one is wrong, too.
    """
    steps = [(link, target, step_of_target(target, inventory)) for link, target in inventory.links] if inventory is not None else []
    due = [(link, target) for link, target, step in steps if step is not None and step > checkpoint.step]
    if exact and not due:
        due = [(link, target) for link, target, step in steps if LATEST_LINK.search(link.name) and step != checkpoint.step]
    if not due:
        return None
    link, target = due[0]
    text = file_of_rank(link, [path for path, _ in due], inventory, checkpoint)
    if not text or not LATEST_LINK.search(link.name) or link.parent != checkpoint.path.parent:
        return ResumePlan(f"the link {link} leads to {target.name}, and {checkpoint.path.name} was chosen: point it there by hand")
    return ResumePlan(set_aside=later, tracker=link, tracker_text=text)


def _picked(way: ResumeWay, inventory: Inventory | None, checkpoint: Checkpoint) -> ResumePlan:
    """Return what is needed where the script itself looks for what to load: all that it would take before the chosen one goes."""
    aside: list[Path] = []
    for pick in way.picks:
        path = PurePosixPath(pick)
        own = inventory.own_name(path) if inventory is not None else path
        if checkpoint.path.name in own.parts and (
            not own.is_absolute() or Path(own) in (checkpoint.path, *within_folder(checkpoint.path, own))
        ):
            return ResumePlan(set_aside=tuple(aside))
        entry = entry_of_path(path, inventory)
        foreign = next((one for one in inventory.foreign if one.path.name in path.parts), None) if inventory is not None else None
        if entry is None and inventory is not None and foreign is not None:
            return _of_another(way, inventory, foreign, checkpoint)
        if entry is None:
            return ResumePlan(
                f"{way.sentence}, and that is no checkpoint that is known; {checkpoint.path.name} was chosen; {SETTLE}"
            )
        refused = any(
            one.path == entry.path and not one.healthy for one in (inventory.checkpoints if inventory is not None else ())
        )
        if not refused and entry.step <= checkpoint.step:
            return ResumePlan(f"{way.sentence}, of an older step than {checkpoint.path.name}, which was chosen: {way.by}; {SETTLE}")
        aside.append(entry.path)
    return ResumePlan(f"{way.sentence}, and never {checkpoint.path.name}, which was chosen; {SETTLE}")


def _prefixed(way: ResumeWay, inventory: Inventory | None, checkpoint: Checkpoint) -> ResumePlan:
    """Return what is needed where a program sees only names of one form: with the last one moved away it starts at 0."""
    visible = (
        [
            entry_seen
            for entry_seen in inventory.entries
            if way.sees(entry_seen.path.name) and not (way.ending and entry_seen.marked)
        ]
        if inventory
        else []
    )
    files = [entry_seen.path.name for entry_seen in visible if way.ending and entry_seen.path.name in entry_seen.files]
    if len(files) > 1:  # NVIDIA/NeMo, utils/exp_manager.py, check_resume(): "Multiple checkpoints … that matches *last.ckpt"
        return ResumePlan(f"{way.sentence}, and stops where it finds several, now {' and '.join(files)}: move the others away")
    visible_checkpoints = (
        [candidate for candidate in inventory.checkpoints if candidate.path in {entry.path for entry in visible}]
        if inventory
        else []
    )
    newest = max(visible_checkpoints, key=lambda candidate: candidate.saved_at, default=None)
    if newest is not None and newest.healthy and newest.step == checkpoint.step:
        return ResumePlan()
    lies = f"that is {newest.path.name} of step {newest.step}" if newest is not None else "there is none: it would start at 0"
    if newest is not None and [entry.path.name for entry in visible] == [way.prefix] and is_one_file(checkpoint, inventory):
        why = f", which must not be loaded ({newest.problems[0]})" if newest.problems else ""
        old, name = shlex.quote(str(newest.path)), shlex.quote(str(checkpoint.path))
        return ResumePlan(
            f"{way.sentence}, {lies}{why}; {checkpoint.path.name} was chosen, and it goes on from that with a copy in its place: "
            f"mv {old} {shlex.quote(f'{newest.path}.refused')} && cp -p {name} {old}"
        )
    return ResumePlan(f"{way.sentence}, {lies}, and {checkpoint.path.name} was chosen; {SETTLE}")


def _newer(way: ResumeWay, inventory: Inventory | None, checkpoint: Checkpoint) -> tuple[Path, ...]:
    """Return the checkpoints that a program which takes the newest would take instead, newest first."""
    if inventory is None:
        return ()
    refused = {entry_judged.path for entry_judged in inventory.checkpoints if not entry_judged.healthy}
    entries_newest_first = [entry for entry in reversed(inventory.entries) if entry.path != checkpoint.path]
    return tuple(
        entry.path for entry in entries_newest_first if _taken_before(way, entry, checkpoint, refused=entry.path in refused)
    )


FREE_FORM = (Format.PLAIN, Format.EPOCHS, Format.PLACED, Format.NEMO, Format.TENSORFLOW, Format.SAVES)
"""Formats of programs whose own rule chooses among files of any name."""


def _untold(inventory: Inventory | None, checkpoint: Checkpoint) -> Path | None:
    """Return a file that is written again at each save and of which nobody knows the step: where a script loads it is not known."""
    if inventory is None or checkpoint.format not in FREE_FORM:
        return None
    rest_entries = [entry for entry in inventory.entries if entry.path != checkpoint.path and not entry.temporary]
    entries_elsewhere = [entry for entry in rest_entries if entry.step == UNKNOWN_STEP or entry.path in inventory.placed_by]
    refused = {entry_judged.path for entry_judged in inventory.checkpoints if not entry_judged.healthy}
    return next(
        (
            entry_other.path
            for entry_other in entries_elsewhere
            if step_in_name(entry_other.path.name) != UNKNOWN_STEP or entry_other.path in refused
        ),
        None,
    )


def _taken_before(way: ResumeWay, entry: Entry, checkpoint: Checkpoint, *, refused: bool) -> bool:
    if entry.temporary or (refused and entry.format in OWN_CHOICE):
        return False
    unfinished = entry.format in NEED_METADATA and ".metadata" not in entry.files and not entry.unreadable
    if unfinished and not way.takes_unfinished:
        return False
    return entry.step > checkpoint.step


def _by_state(folder: Inventory | None, checkpoint: Checkpoint, later: tuple[Path, ...]) -> ResumePlan:
    """Return what is needed so that TensorFlow's tracker names the chosen one."""
    tracker = folder.tracker if folder is not None else None
    tracker_path = checkpoint.path.parent / TENSORFLOW_TRACKER
    if tracker is not None and tracker.path != tracker_path:
        return ResumePlan(f"{tracker.path} is the tracker there, and {checkpoint.path} was chosen; {SETTLE}")
    if tracker is not None and PurePosixPath(tracker.text) in (PurePosixPath(checkpoint.path.name), PurePosixPath(checkpoint.path)):
        return ResumePlan(set_aside=later)
    text = state_naming(tracker, checkpoint.path, checkpoint.saved_at.timestamp(), moved_away={path.name for path in later})
    return ResumePlan(set_aside=later, tracker=tracker_path, tracker_text=text)


def _tracked(way: ResumeWay, inventory: Inventory | None, checkpoint: Checkpoint) -> ResumePlan:
    folder = checkpoint.path.parent
    if way.path and PurePosixPath(way.path).is_absolute() and Path(way.path) not in (folder, *folder.parents):
        return ResumePlan(f"{way.sentence}: it loads from {way.path}, and {checkpoint.path} was chosen; {SETTLE}")
    tracker = inventory.tracker if inventory is not None else None
    above = PurePosixPath(tracker.text).parent if tracker is not None and "\n" not in tracker.text else PurePosixPath()
    if tracker is not None and above.is_absolute() and Path(above) != folder:
        return ResumePlan(f"{tracker.path} names a checkpoint in {above}, and {checkpoint.path} was chosen; {SETTLE}")
    linked = any(LATEST_LINK.search(link.name) for link, _ in inventory.links) if inventory is not None else False
    # the job comes to these steps again: it would write over them, or fail because their folders are there
    later = (
        tuple(entry.path for entry in reversed(inventory.entries) if entry.step > checkpoint.step) if inventory is not None else ()
    )
    if is_prefix(checkpoint, inventory):
        return _by_state(inventory, checkpoint, later)
    plan = _linked(inventory, checkpoint, later, exact=tracker is None)
    if plan is not None and (plan.refusal or tracker is None or tracker.step == checkpoint.step):
        return plan
    if tracker is not None and plan is not None:
        return ResumePlan(f"{plan.tracker} and {tracker.path} both name another checkpoint than {checkpoint.path.name}; {SETTLE}")
    if checkpoint.format == Format.DEEPSPEED and tracker is not None and tracker.path.name != DEEPSPEED_TRACKER:
        # Megatron-DeepSpeed writes both, and DeepSpeed loads nothing where its own is missing
        return ResumePlan(set_aside=later, tracker=folder / DEEPSPEED_TRACKER, tracker_text=checkpoint.path.name)
    if (tracker is not None and tracker.step == checkpoint.step) or (tracker is None and linked):
        return ResumePlan(set_aside=later)
    names = {entry.path.name for entry in inventory.entries} if inventory is not None else set()
    if tracker is not None and (last := PurePosixPath(tracker.text).name) in names:
        text = tracker.text.removesuffix(last) + checkpoint.path.name
        return ResumePlan(set_aside=later, tracker=tracker.path, tracker_text=text)
    if tracker is not None:
        shaped = re.sub(r"\d+(?=\D*$)", str(checkpoint.step), tracker.text) if tracker.step is not None else ""
        text = shaped or (str(checkpoint.step) if tracker.path.name.endswith("iteration.txt") else checkpoint.path.name)
        return ResumePlan(set_aside=later, tracker=tracker.path, tracker_text=text)
    if checkpoint.format == Format.MEGATRON:
        return ResumePlan(set_aside=later, tracker=folder / "latest_checkpointed_iteration.txt", tracker_text=str(checkpoint.step))
    if checkpoint.format == Format.DEEPSPEED:
        return ResumePlan(set_aside=later, tracker=folder / DEEPSPEED_TRACKER, tracker_text=checkpoint.path.name)
    return ResumePlan(f"{way.sentence}, and there is no tracker file of a known form in {folder}; {SETTLE}")
