"""By which variable of its own a script goes on from a chosen checkpoint: `RESUME=out/step_40 sbatch train.slurm`.

The script is read once more with the variable set. It counts where the program that trains, and nothing else, is started otherwise,
in its options of going on alone, whatever the tests answer that cannot be told, and where option, framework or source prove that
it loads that checkpoint. What only looks so is named to people and not done.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import zip_longest
from pathlib import PurePosixPath
from typing import NamedTuple

from assistant.records import Checkpoint, Job
from assistant.recover.checkpoints.save_options import save_folders
from assistant.recover.job_program import FileReader, JobProgram, job_launches, launched_program, programs_of
from assistant.recover.restart import NOT_SAFE
from assistant.recover.resume.argument import argued_way, saves
from assistant.recover.resume.documented import DocumentedWay, documented_way, owner_commands
from assistant.recover.resume.installed_trainers import installed_trainer
from assistant.recover.resume.means import ResumeMeans, ResumeWay
from assistant.recover.resume.number import harm, leads_to, number_proof, opens_to_write
from assistant.recover.resume.pinned_folder import folder_pin
from assistant.recover.resume.script_variable import (
    ON_A_NODE,
    SAYS_ITSELF,
    SAYS_SO,
    STEP_OPTIONS,
    Difference,
    Goal,
    VariableScript,
    imagined_goal,
    is_harmless,
    usage_line,
)
from assistant.recover.resume.shown_variables import shown_variables
from assistant.recover.script_removals import removed_by_command
from assistant.recover.shell.folders import UNRESOLVED, normal
from assistant.recover.source.load_calls import LOADS
from assistant.recover.source.load_proof import file_name, imports, megatron, proof_of_load, torchtitan
from assistant.recover.source.settings import requeue_words, value_templates
from assistant.recover.source.start_files import removed_by
from assistant.schedulers.slurm_spec import exports_plainly

WayOf = Callable[[JobProgram], ResumeWay]
WHOLE_CALLS = {
    "fit": ("lightning", "pytorch_lightning"),
    "train": ("transformers", "trl"),
    "load_state": ("accelerate",),
    "load_checkpoint": ("deepspeed",),
}
"""Calls of libraries that restore a training as a whole."""
OPEN = (ResumeMeans.NONE, ResumeMeans.UNKNOWN, ResumeMeans.FIXED)
"""Ways by which a script does not go on from what is chosen, as far as reading tells."""
MOST_NAMES = 6
TEMPLATES = ("{checkpoint}", "{name}", "{step}", "{folder}")


class _Going(NamedTuple):
    """How a program goes on with the variable set."""

    way: ResumeWay
    by: str
    """What proves it, for people."""
    files: bool = False
    folders: bool = False


def way_by_variable(job: Job, way: ResumeWay, programs: Sequence[JobProgram], way_of: WayOf, *, astray: bool = False) -> ResumeWay:
    """Return that a script goes on by a variable of its own or by an argument, where that is proven; else the way.

    Args:
        job: With its spec.
        way: How it resumes without.
        programs: What its script starts, from `programs_of`.
        way_of: Tells how one program resumes.
        astray: Whether the tracker file of its folder names a checkpoint that must not be loaded: a variable then changes less.

    Raises:
        Unavailable: The storage did not answer.
    """
    spec = job.spec
    documented = DocumentedWay()
    if spec is not None and (way.removed or way.means in OPEN):
        read = FileReader(job.account)
        documented = documented_way(job, read)
        commands = owner_commands(job, read) if way.means in OPEN else ()
        way = replace(
            way, usage="; ".join(filter(None, (requeue_words(job), usage_line(spec.script), documented.usage))), commands=commands
        )
    if way.removed:
        way = replace(way, removed=tuple(path for path in way.removed if path in _removed_by_start(job, programs)))
    is_settable = spec is not None and not (spec.doubt or spec.environment_lost or way.repeats)
    shown_texts = shown_variables(job, programs, FileReader(job.account)) if is_settable and _may_be_tried(way) else ()
    if way.means is ResumeMeans.NEWEST and shown_texts and spec is not None:
        way = replace(way, trial_variables=shown_texts, usage=way.usage or usage_line(spec.script))
    may_change = way.means not in (ResumeMeans.ARGUMENT, ResumeMeans.NEWEST) and not way.repeats
    trainers = [program for program in programs if saves(program)]
    if spec is None or spec.doubt or spec.environment_lost or not may_change or len(trainers) != 1 or trainers[0].unread_behind:
        return argued_way(job, way, programs, way_of)
    script = VariableScript(job, FileReader(job.account))
    names = script.names(programs)
    if way.means is ResumeMeans.TRACKER and not astray:  # by itself, unless the submission said from which folder or step
        names = [name for name in names if not way.path or _is_told(spec.environment.get(name, ""), way.path)]
    refusals: dict[str, str] = {}
    for name in names[:MOST_NAMES]:
        proven = _by_one(script, way, name, way_of, refusals, astray=astray)
        if proven is not None:
            _, _, value = proven.variable.partition("=")
            environment = {**spec.environment, name: imagined_goal(value, "folder").value}
            started = replace(job, spec=replace(spec, environment=environment))
            return replace(proven, removed=_removed_by_start(started, programs_of(started, script.read)))
    argued = argued_way(job, way, programs, way_of)
    if argued.argument or way.means not in OPEN:
        return argued
    saying = [name for name in names[:MOST_NAMES] if SAYS_SO.search(name) and not ON_A_NODE.search(name)]
    likely = dict.fromkeys([*script.shown_names(), *saying, *refusals])
    kinds = [[f"{name}={template}" for template in _templates_of(script, name, programs)] for name in likely]
    together = [text for text in _joint_variables(job, argued) if " " in text or not likely]
    kinds = [together, list(dict.fromkeys((*documented.variables, *shown_texts))), *kinds]
    trial_variables = dict.fromkeys(text for row in zip_longest(*kinds) for text in row if text is not None)
    argued = replace(argued, trial_variables=tuple(trial_variables))
    if together:
        return replace(argued, hint=f"{together[0]} in the environment of its submission")
    if not refusals or way.means is ResumeMeans.FIXED:
        return argued
    name, why = next(iter(refusals.items()))
    line = script.line_of(name)
    place = f"line {line} of its script" if line else "its program reads it"
    unset = way.means is ResumeMeans.NONE and not spec.environment.get(name)
    by = f"{way.by}; {name} ({place}) is not set" if unset else way.by
    template = next((text for text in trial_variables if text.startswith(f"{name}={{")), f"{name}={{checkpoint}}")
    hint = f"{template} in the environment of its submission ({place}; {why})"
    return replace(argued, by=by, hint=hint)


def _may_be_tried(way: ResumeWay) -> bool:
    """Tell whether a trial start may try variables of the submission: a known convention that takes the newest needs none."""
    return way.means in OPEN or (way.means is ResumeMeans.NEWEST and (way.home_made or bool(way.listed)))


def _joint_variables(job: Job, way: ResumeWay) -> tuple[str, ...]:
    """Return the assignments by which a program goes on that reads several variables, where a restart may set all of them."""
    branch, spec = way.branch, job.spec
    if branch is None or not branch.by_variables or spec is None:
        return ()
    settable = all(is_harmless(name) and exports_plainly(spec, name) for name in branch.flags)
    return branch.templates if settable else ()


def _removed_by_start(job: Job, programs: Sequence[JobProgram]) -> tuple[str, ...]:
    """Return what a script and its programs remove when they start; the tests of files before it count both ways.

    Raises:
        Unavailable: The storage did not answer.
    """
    launches = job_launches(job, FileReader(job.account), exists=lambda letter, path: None)
    by_script = [path for launch in launches for path in removed_by_command(launch)]
    return tuple(dict.fromkeys((*by_script, *(path for program in programs for path in removed_by(program)))))


def _is_told(text: str, folder: str) -> bool:
    """Tell whether a variable of the submission names the folder of a tracker, or a step."""
    return text.isdecimal() or normal(text) == normal(folder)


def variable_problem(job: Job, way: ResumeWay, checkpoint: Checkpoint, way_of: WayOf) -> str:
    """Return why a script, read with its variable set to a checkpoint that lies there, would not go on from it; empty if it would.

    Raises:
        Unavailable: The storage did not answer.
    """
    if not way.variable or job.spec is None:
        return ""
    if way.pins:
        same = folder_pin(job, programs_of(job, FileReader(job.account)), checkpoint.path.parent).variable == way.variable
        return "" if same else "another job would run other commands with it"
    name, _, template = way.variable.partition("=")
    goal = Goal(template, str(checkpoint.path), str(checkpoint.step))
    if NOT_SAFE.search(goal.value):
        return f"{name} cannot hold {goal.value!r}: it has characters that a shell would change"
    outcome = _examined(VariableScript(job, FileReader(job.account)), name, goal, way_of)
    return "" if isinstance(outcome, _Going) else outcome or f"with {name}={goal.value} nothing of it would change"


def _templates_of(script: VariableScript, name: str, programs: Sequence[JobProgram]) -> tuple[str, ...]:
    """Return what a variable may hold, the most likely first, by the option that it reaches or by what its program makes of it."""
    difference = script.difference(name, imagined_goal("{checkpoint}", "folder"))
    option = difference.option if isinstance(difference, Difference) else ""
    return value_templates(programs, option, name)


def _by_one(
    script: VariableScript, way: ResumeWay, name: str, way_of: WayOf, refusals: dict[str, str], *, astray: bool
) -> ResumeWay | None:
    """Return the way of a script with one variable set, where it is proven; what speaks against it goes into `refusals`."""
    numbered = script.job.spec is not None and script.job.spec.environment.get(name, "").isdecimal()
    of_tracker = ("{step}" if numbered else "{folder}", *(("{name}",) if astray else ()))
    for template in TEMPLATES if way.means is not ResumeMeans.TRACKER else of_tracker:
        as_kind = {kind: _examined(script, name, imagined_goal(template, kind), way_of) for kind in ("folder", "file")}
        proven = {kind: outcome for kind, outcome in as_kind.items() if isinstance(outcome, _Going)}
        if proven:
            going = next(iter(proven.values()))
            by = f"{name}={_example(template)}, a variable of its script, which Nightshift sets: {going.by}"
            means = going.way.means if going.way.means is ResumeMeans.TRACKER else ResumeMeans.ARGUMENT
            files = going.files or "folder" not in proven
            folders, path = going.folders or "file" not in proven, way.path if template == "{step}" else ""
            path = going.way.path if "{step}" in going.way.path else path
            return ResumeWay(
                means,
                by,
                path,
                takes_files=files,
                takes_folders=folders,
                variable=f"{name}={template}",
                home_made=going.way.home_made,
            )
        why = as_kind["folder"]
        if isinstance(why, str) and why:
            refusals.setdefault(name, why)
    for word in script.truths(name) if way.means in (ResumeMeans.NONE, ResumeMeans.UNKNOWN) else ():
        outcome = _examined(script, name, Goal(word, "/", ""), way_of)
        if isinstance(outcome, _Going):
            by = f"{name}={word}, a variable of its script, which Nightshift sets: {outcome.by}"
            return replace(outcome.way, by=by, variable=f"{name}={word}")
    return None


def _example(template: str) -> str:
    return {"{checkpoint}": "PATH", "{name}": "NAME", "{step}": "STEP", "{folder}": "FOLDER"}[template]


def _examined(script: VariableScript, name: str, goal: Goal, way_of: WayOf) -> _Going | str:
    """Return how the program goes on with the variable set; else what speaks against it, empty where nothing differs."""
    difference = script.difference(name, goal)
    if difference is None or isinstance(difference, str):
        return difference or ""
    started, base = (launched_program(launch, script.read) for launch in (difference.after, difference.before))
    if any(UNRESOLVED in word for word in difference.words):
        return f"what {started.name} is given cannot be told from the script"
    return _harm(started, base, name, goal) or _going(script, started, base, difference, name, goal, way_of)


def _harm(started: JobProgram, base: JobProgram, name: str, goal: Goal) -> str:
    """Return what else a program does with the variable set: save elsewhere, delete, write; empty where nothing is seen."""
    if problem := harm(started, base, name, goal.value if "{" in goal.template else ""):
        return problem
    if started.launch.container is not None and "/" in goal.value:
        places = [place.folder for place in save_folders([started])]
        if not places or any(started.launch.outside(str(place)) != place for place in places):
            return f"{started.name} runs in a container that may see the folder of the checkpoint by another name"
    return ""


def _going(
    script: VariableScript, started: JobProgram, base: JobProgram, difference: Difference, name: str, goal: Goal, way_of: WayOf
) -> _Going | str:
    """Return by what a program goes on with the variable set; else what is missing."""
    way, without = way_of(started), way_of(base)
    if way.destroys:
        return f"with {name} set {way.destroys}"
    option = (
        f"{name} of {started.name}"
        if not difference.words
        else f"{name} for {difference.option or 'an argument'} of {started.name}"
    )
    match goal.template:
        case "{folder}":
            return _by_folder(started, base, way, goal) or f"{option}: that it goes on from the newest of that folder is not proven"
        case "{step}":
            # `--ckpt-step` of Megatron-LM, also of a program that reads the tracker file by itself
            stepped = way.means is ResumeMeans.TRACKER and difference.option == "ckpt_step"
            numbered = way.means is ResumeMeans.FIXED and _is_known(started) and _is_numbered(started, way, goal, difference.option)
            if stepped or numbered:
                return _Going(way, way.by)
            return _by_number(started, base, difference, name, goal) or f"{option}: what its number means is not proven"
        case "{checkpoint}" | "{name}":
            takes_path = script.is_shown_with_path(name)
            return (
                _by_path(started, difference, way, name, goal, takes_path=takes_path)
                or f"{option}: that it goes on from there is not proven"
            )
    if goal.value in difference.words:
        return ""  # it is no more than the value of an option
    begins = without.means in (ResumeMeans.NONE, ResumeMeans.UNKNOWN)
    read = _is_known(started) or (started.source is not None and started.source.parsed)
    by_itself = way.means in (ResumeMeans.NEWEST, ResumeMeans.TRACKER) and begins and read
    return _Going(way, way.by) if by_itself else ""


def _by_number(started: JobProgram, base: JobProgram, difference: Difference, name: str, goal: Goal) -> _Going | None:
    """Return that a program loads the checkpoint of the number that it is given, by its source."""
    proof = number_proof(started, base, difference.option or name, goal.step)
    if isinstance(proof, str) or not (goal.imagined or leads_to(proof.path, int(goal.step), goal.checkpoint)):
        return None
    return _Going(ResumeWay(ResumeMeans.ARGUMENT, proof.call, proof.path), proof.call)


def _is_known(program: JobProgram) -> bool:
    return any(way(program) is not None for way in (installed_trainer, torchtitan, megatron))


def _by_path(
    program: JobProgram, difference: Difference, way: ResumeWay, name: str, goal: Goal, *, takes_path: bool
) -> _Going | None:
    if way.means is ResumeMeans.FIXED and not _leads(program, way, goal):
        return None
    if way.means is ResumeMeans.FIXED and (_is_known(program) or _loads_tag(program, goal)):
        return _Going(way, way.by, folders=not _is_known(program))
    if program.source is None or not program.source.parsed:
        says_itself = takes_path and way.means is ResumeMeans.FIXED and difference.option in SAYS_ITSELF
        return _Going(way, way.by) if says_itself else None
    if way.means not in (ResumeMeans.FIXED, ResumeMeans.UNKNOWN):
        return None
    if way.means is ResumeMeans.FIXED and difference.option in SAYS_ITSELF and (place := _whole_call(program)):
        return _Going(way, place)
    keys = dict.fromkeys((difference.option, *_keys_holding(program, goal.value), name))
    proofs = (proof_of_load(program, key, folders=True) for key in keys if key)
    proof = next((proof for proof in proofs if proof is not None), None) if goal.value == goal.checkpoint else None
    return _Going(way, proof.call, proof.files, proof.folders) if proof is not None else None


def _loads_tag(program: JobProgram, goal: Goal) -> bool:
    """Tell whether a program hands the name of a checkpoint to DeepSpeed as the tag that it loads."""
    if goal.template != "{name}" or not imports(program, "deepspeed"):
        return False
    for source in program.sources:
        for call in source.called("load_checkpoint"):
            tag = call.keywords.get("tag") or (call.positional[1] if len(call.positional) > 1 else None)
            if tag is not None and source.value(tag) == goal.value:
                return True
    return False


def _leads(program: JobProgram, way: ResumeWay, goal: Goal) -> bool:
    """Tell whether what a program loads is the checkpoint; of one that is imagined and named by its name alone, in any folder."""
    path = way.path.strip("'\"")
    whole = program.launch.outside(path) if path else None
    if whole is None:
        return False
    if goal.imagined and goal.template == "{name}":
        return whole.name == PurePosixPath(goal.checkpoint).name and goal.folder not in str(whole)
    return normal(str(whole)) == normal(goal.checkpoint)


def _is_numbered(program: JobProgram, way: ResumeWay, goal: Goal, option: str) -> bool:
    """Tell whether what a program loads is the checkpoint, by its number; torchtitan and its kin name no folder."""
    if not goal.imagined and option not in STEP_OPTIONS:
        return _leads(program, way, goal)
    number = re.fullmatch(r"\D*0*(\d+)", PurePosixPath(way.path).name)
    whole = program.launch.outside(way.path)
    is_there = goal.imagined or "/" not in way.path or (whole is not None and normal(str(whole.parent)) == normal(goal.folder))
    return number is not None and number[1] == goal.step and bool(is_there)


def _by_folder(program: JobProgram, base: JobProgram, way: ResumeWay, goal: Goal) -> _Going | None:
    """Return that a program goes on from what the tracker file of a folder names, and without the variable not from its own."""
    if way.means is not ResumeMeans.TRACKER or any(_reads_tracker_in(base, str(place.folder)) for place in save_folders([base])):
        return None
    whole = program.launch.outside(way.path) if way.path else None
    led = whole is not None and normal(str(whole)) == normal(goal.folder)
    return _Going(way, way.by) if led or _reads_tracker_in(program, goal.folder) else None


def _reads_tracker_in(program: JobProgram, folder: str) -> bool:
    """Tell whether a program opens a file `latest…` of a folder for reading, and loads nothing from elsewhere that is known."""
    opened = False
    for source in program.sources:
        for call in source.calls:
            path = source.value(call.positional[0]) if call.positional else None
            if not isinstance(path, str):
                continue
            if call.method == "open" and not opens_to_write(source, call.positional, call.keywords):
                opened |= str(PurePosixPath(path).parent) == folder and PurePosixPath(path).name.startswith("latest")
            elif call.method in LOADS and path.startswith("/") and not path.startswith(f"{folder}/"):
                return False
    return opened


def _keys_holding(program: JobProgram, value: str) -> Iterator[str]:
    """Yield the options of a program that hold a value, also by their default."""
    for source in program.sources:
        yield from (key for key, text in source.options.items() if text == value)


def _whole_call(program: JobProgram) -> str:
    """Return the call of a library that restores a training as a whole; empty for none."""
    for source in program.sources:
        for call in source.calls:
            if any(imports(program, library) for library in WHOLE_CALLS.get(call.method, ())):
                return f"{call.method}() in {file_name(source)}, line {call.line}"
    return ""
