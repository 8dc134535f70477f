"""How a job's script goes on after a restart: by an argument, a tracker file, the newest checkpoint in the folder, or not at all.

Told from the script, the options of its programs and their source. A program that cannot be read is UNKNOWN: it is never assumed to
resume.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Sequence
from dataclasses import replace
from itertools import takewhile
from pathlib import Path, PurePosixPath

from assistant.records import Job
from assistant.recover.batch_script import absolute
from assistant.recover.checkpoints.inventory import Inventory
from assistant.recover.checkpoints.save_options import save_folders
from assistant.recover.directives import read_directives
from assistant.recover.job_program import JobProgram, script_removals
from assistant.recover.loaded import LoadedCheckpoint, LoadLine, own_load
from assistant.recover.resume.argument import OWN_VARIABLES, argued_way, by_setting, is_handed_on
from assistant.recover.resume.config import config_way
from assistant.recover.resume.installed_trainers import installed_trainer
from assistant.recover.resume.means import (
    NO,
    RESUME_OPTIONS,
    SAYS_NEWEST,
    SWITCH,
    ResumeMeans,
    ResumeWay,
    by_text,
    loads_states,
    name_without_option,
    shell_looks_for_newest,
    way_by_own_option,
    way_left_out,
)
from assistant.recover.resume.pinned_folder import with_pinned_folder
from assistant.recover.resume.plan import leads_astray
from assistant.recover.resume.script_arguments import with_script_arguments
from assistant.recover.resume.stages import Stage, Stages, begins_anew, deciding_way
from assistant.recover.resume.variable import OPEN, way_by_variable
from assistant.recover.shell.folders import UNRESOLVED, normal
from assistant.recover.source.declared_settings import UNKNOWN
from assistant.recover.source.file_uses import file_uses
from assistant.recover.source.listing_order import listed_files
from assistant.recover.source.load_calls import (
    PRESENT,
    SAVES,
    TRAINS,
    about_saves,
    enclosing_functions,
    free_words,
    has_another_source,
    is_after_training,
    known_at_run_only,
    only_file,
    only_if_there,
    reads_settings,
    training_functions,
)
from assistant.recover.source.load_proof import (
    file_name,
    foreign_library,
    imports,
    keras,
    megatron,
    nanogpt,
    nemo_or_composer,
    torchtitan,
    trainer_calls,
)
from assistant.recover.source.newest_choice import LISTS, newest_choice, newest_picks
from assistant.recover.source.start_files import looks_for_saves, reads_tracker, removed_by, restores_latest
from assistant.recover.source.trainer_source import SourceCall, TrainerSource

Found = tuple[TrainerSource, SourceCall]
METADATA = ".metadata"
"""The file that torch.distributed.checkpoint writes last; a program that never names it does not look for it."""
LATEST = re.compile(
    r"get_last_checkpoint|latest|last_?(?:ckpt|checkpoint|step)|\bglob\b|listdir|iterdir|scandir|rglob|find_(?:last|latest|newest)",
    re.IGNORECASE,
)
"""Words by which a program looks for the newest checkpoint."""
LISTING = re.compile(r"\b(?:r?glob|listdir|iterdir|scandir)\b")
"""Words that only list: which of a listing is taken has to be proven."""
MOST_PASSES = 3
"""Functions through which a value is followed to where it comes from."""
FILE_READS = frozenset(("open", "read_text", "read_bytes", "loadtxt", "fromfile", "memmap"))
"""Calls that read a file of any kind."""


def resume_way(
    job: Job,
    programs: Sequence[JobProgram],
    loaded: LoadedCheckpoint | None = None,
    stages: Stages | None = None,
    *,
    saved: Inventory | None = None,
) -> ResumeWay:
    """Return how a job's script resumes.

    Args:
        job: With its spec.
        programs: What its script starts, from `programs_of`.
        loaded: What its last attempt says that it loaded: a script that went on from its own checkpoint once does so again.
        stages: Of a script that trains several times, with what lies in their folders; None of any other.
        saved: What lies in the folder of its run; None where nothing does or that is not known.
    """
    if job.spec is None:
        return ResumeWay(ResumeMeans.UNKNOWN, "the scheduler does not keep its script")
    directives = read_directives(job.spec.script)
    if directives.resumes:
        return ResumeWay(ResumeMeans(directives.resumes if directives.resumes != "no" else "none"), "its #NIGHTSHIFT line says so")
    code = "\n".join(line for line in job.spec.script.splitlines() if not line.lstrip().startswith("#"))
    way = _given(directives.resume, code, programs)
    if way is not None and not directives.resume and stages is None:
        # of a restart of ours: the script was given the variable with the argument
        own = argued_way(job, _unaided(code, programs, None), programs, program_way)
        way = replace(own, removed=_all_removed(job, programs)) if own.argument else way if is_handed_on(job, programs) else None
    if way is None and (unread := next((program.unread_behind for program in programs if program.unread_behind), "")):
        return ResumeWay(ResumeMeans.UNKNOWN, f"{unread}; what its script does behind that is not known")
    if stages is not None:
        stage = stages.stages[stages.resumed if stages.resumed is not None else -1]
        return replace(
            way or _unaided(code, stage.programs, None),
            removed=_all_removed(job, programs),
            repeats=_repeats(code, [one for one in stages.stages if one is not stage]),
        )
    load = _own_load(job, programs, loaded, saved) if loaded is not None and not way else None
    stepped = loaded is not None and loaded.first_step is not None
    way = way or replace(_unaided(code, programs, load, stepped=stepped), removed=_all_removed(job, programs))
    way = _with_listing(job, way, programs)
    way = way_by_variable(job, way, programs, program_way, astray=saved is not None and leads_astray(saved))
    way = config_way(job, way, programs, program_way) if way.means in OPEN and not way.variable else way
    way = with_script_arguments(job, way, programs)
    return with_pinned_folder(job, way, programs, saved.folder if saved is not None else None)


def _with_listing(job: Job, way: ResumeWay, programs: Sequence[JobProgram]) -> ResumeWay:
    """Return how a script goes on that takes the newest, with the files that its program's own listing finds now."""
    listed = listed_files(programs, job.account) if way.means is ResumeMeans.NEWEST and not way.picks else None
    if listed is None:
        return way
    return replace(way, by=f"{way.by}: {listed.words}", listed=tuple(map(str, listed.paths)))


def _own_load(job: Job, programs: Sequence[JobProgram], loaded: LoadedCheckpoint, saved: Inventory | None) -> LoadLine | None:
    """Return the line that proves that an attempt went on from a checkpoint of the folder that its run saves to."""
    work_dir = job.work_dir or (job.spec.work_dir if job.spec is not None else Path())

    def folder_of(path: str) -> set[Path]:
        if "/" not in path:
            return set()
        paths = {absolute(path, str(work_dir)), *(program.launch.outside(path) for program in programs)}
        return {Path(normal(str(path))) for path in paths if path is not None}

    folders = [saved.folder] if saved is not None else [folder.folder for folder in save_folders(programs)]
    steps = {checkpoint.step for checkpoint in saved.checkpoints} if saved is not None else set()
    return own_load(loaded, folder_of, {Path(normal(str(folder))) for folder in folders}, steps)


def _given(template: str, code: str, programs: Sequence[JobProgram]) -> ResumeWay | None:
    """Return that a script takes its checkpoint from Nightshift; None where it does not."""
    if template:
        return ResumeWay(ResumeMeans.ARGUMENT, f'resume="{template}" of its #NIGHTSHIFT line')
    variable = OWN_VARIABLES.search(code) or next(
        (m for p in programs for s in p.sources if (m := OWN_VARIABLES.search(s.text))), None
    )
    return ResumeWay(ResumeMeans.ARGUMENT, f"${variable.group()}") if variable is not None else None


def _all_removed(job: Job, programs: Sequence[JobProgram]) -> tuple[str, ...]:
    paths = [path for program in programs for path in (*program.removed, *removed_by(program))]
    return tuple(dict.fromkeys([*paths, *script_removals(job, programs)]))


def stage_way(code: str, stage: Stage) -> ResumeWay:
    """Return how one stage of a script goes on by itself."""
    return _unaided(code, stage.programs, None)


def _repeats(code: str, other_stages: Sequence[Stage]) -> str:
    """Return what a restart would do to the stages that did not fail; empty where it harms none."""
    for stage in other_stages:
        if not stage.runs or not (stage.held or stage.problem):
            continue
        way = stage_way(code, stage)
        contents = f"the {stage.held} checkpoints in {stage.folder}" if stage.held else f"what lies in {stage.folder}"
        test_words = f"[ -f {stage.folder}/done ] || …"
        if way.means not in (ResumeMeans.NEWEST, ResumeMeans.TRACKER):
            return (
                f"a restart runs {stage.name} again over {contents}, and {way.sentence}; let the script pass over it: {test_words}"
            )
        if stage.problem:
            return f"a restart runs {stage.name} again, and it would load what must not be loaded: {stage.problem}"
    return ""


def _unaided(code: str, programs: Sequence[JobProgram], load: LoadLine | None, *, stepped: bool = False) -> ResumeWay:
    """Return how a script resumes that says nothing about it to Nightshift.

    Args:
        code: The script.
        programs: What it starts.
        load: The line that proves that its last attempt went on from its own checkpoint; None where none does.
        stepped: Whether that attempt came to a step, so that its counter agrees with the line; a script that is known to begin anew
            is believed otherwise.
    """
    ways = [program_way(program) for program in reversed(programs)]
    ways_known = [way for way in ways if way.means is not ResumeMeans.UNKNOWN]
    decisive = deciding_way(ways, programs[::-1])
    if decisive is not None:
        proven_by_log = load is not None and stepped
        return begins_anew(ways, programs[::-1]) or replace(decisive, home_made=decisive.home_made and not proven_by_log)
    if load is not None and (stepped or not ways or len(ways_known) < len(ways)):
        return ResumeWay(ResumeMeans.NEWEST, f"its last attempt did: {load.text!r}")
    if ways and len(ways_known) == len(ways):
        return ways_known[0]
    if not programs and shell_looks_for_newest(code):
        return ResumeWay(ResumeMeans.NEWEST, "its script looks for the newest", home_made=True)
    unknown = next((way for way in ways if way.means is ResumeMeans.UNKNOWN), None)
    return unknown or ResumeWay(ResumeMeans.UNKNOWN, "it starts no program that can be read")


def program_way(program: JobProgram) -> ResumeWay:
    """Return how one program of a script resumes; what that chose by looking into folders is no fixed checkpoint."""
    way = _seen_on_host(program, _way_now(program))
    fed = PurePosixPath(program.launch.words[0]).name in ("xargs", "parallel")  # its last arguments come from elsewhere
    if way.means is ResumeMeans.NONE and (fed or any(word.startswith(UNRESOLVED) for word in free_words(program))):
        return ResumeWay(ResumeMeans.UNKNOWN, f"the command line of {program.name} holds what only a run can tell")
    if way.means is not ResumeMeans.FIXED or not program.rounds:
        return way
    later = [_seen_on_host(one, _way_now(one)) for one in program.rounds]
    fixed = list(takewhile(lambda round_way: round_way.means is ResumeMeans.FIXED, later))
    paths = tuple(dict.fromkeys([way.path, *(round_way.path for round_way in fixed)]))
    if len(paths) == 1 and len(fixed) == len(later):
        return way
    picks = tuple(_on_host(program, path) for path in paths)
    return ResumeWay(ResumeMeans.NEWEST, f"{way.by}, found by its script", picks=picks, home_made=way.home_made)


def _on_host(program: JobProgram, path: str) -> str:
    if program.launch.container is not None:
        return path  # `_seen_on_host` has followed it
    return str(program.launch.outside(path) or path)


def _seen_on_host(program: JobProgram, way: ResumeWay) -> ResumeWay:
    """Return a way whose path a program in a container names, with the path on the host, where it is known."""
    if not way.path or program.launch.container is None:
        return way
    return replace(way, path=str(program.launch.outside(way.path) or way.path))


def _way_now(program: JobProgram) -> ResumeWay:
    """Return how one program resumes: by what its framework is known for, else by what its source does."""
    for way_reader in (
        installed_trainer,
        torchtitan,
        megatron,
        nemo_or_composer,
        _huggingface,
        _lightning,
        _accelerate,
        _deepspeed,
        keras,
        nanogpt,
    ):
        way = way_reader(program)
        if way is not None:
            return way
    if program.source is None or not program.source.parsed:
        option = program.option(*RESUME_OPTIONS)
        if option is not None:
            way = by_text(option.value, f"{option.where} of {program.name}")
            if way.means is ResumeMeans.NEWEST and not SAYS_NEWEST & {option.value.strip().lower(), option.last}:
                return ResumeWay(ResumeMeans.UNKNOWN, f"{program.name} cannot be read, and {way.by} alone does not say from what")
            lightning = option.last == "ckpt_path" and option.value == "last"  # LightningCLI hands it to fit()
            return replace(way, prefix="last") if lightning else way
        return _overwrites(program) or ResumeWay(ResumeMeans.UNKNOWN, f"{program.name} cannot be read")
    return replace(_by_source(program), home_made=True)


def _huggingface(program: JobProgram) -> ResumeWay | None:
    for source, call in trainer_calls(program, "train", "transformers", "trl", "peft"):
        node = call.keywords.get("resume_from_checkpoint") or (call.positional[0] if call.positional else None)
        call_place = f"train() in {file_name(source)}, line {call.line}"
        if node is None:
            by = f"{call_place} is not given resume_from_checkpoint"
            return ResumeWay(ResumeMeans.NONE, by, loads_nothing=name_without_option(program))
        if any("overwrite_output_dir" in source.text for source in program.sources) and (over := _overwrites(program)) is not None:
            return over
        return _by_value(program, source, node, f"resume_from_checkpoint of {call_place}")
    return None


def _overwrites(program: JobProgram) -> ResumeWay | None:
    """Return that a program of transformers is told to begin anew; None where it is not.

    Source: the example scripts of transformers look for the last checkpoint only without `--overwrite_output_dir`.
    """
    over = program.option("overwrite_output_dir")
    if over is None or over.value.lower() in NO or program.option("resume_from_checkpoint") is not None:
        return None
    by = f"{over.where}, without --resume_from_checkpoint"
    return ResumeWay(ResumeMeans.NONE, by, destroys="its old checkpoints are written over")


def _lightning(program: JobProgram) -> ResumeWay | None:
    for source, call in trainer_calls(program, "fit", "lightning", "pytorch_lightning"):
        node = call.keywords.get("ckpt_path") or (call.positional[4] if len(call.positional) > 4 else None)
        call_place = f"fit() in {file_name(source)}, line {call.line}"
        if node is None:
            return ResumeWay(ResumeMeans.NONE, f"{call_place} is not given ckpt_path", loads_nothing=name_without_option(program))
        if source.value(node) == "last":  # ModelCheckpoint looks for names that begin so, and starts at 0 where there is none
            return ResumeWay(ResumeMeans.NEWEST, f"ckpt_path of {call_place}", prefix="last")
        return _by_value(program, source, node, f"ckpt_path of {call_place}")
    return None


def _accelerate(program: JobProgram) -> ResumeWay | None:
    if not imports(program, "accelerate") or not any(call.method == "save_state" for call in program.calls):
        return None
    for source in program.sources:
        for call in source.called("load_state"):
            node = call.keywords.get("input_dir") or (call.positional[0] if call.positional else None)
            call_place = f"load_state() in {file_name(source)}, line {call.line}"
            guard = way_by_own_option(source)
            if (way := guard or _switched(program, source, call)) is not None:
                return way
            return ResumeWay(ResumeMeans.NEWEST, call_place) if node is None else _by_value(program, source, node, call_place)
    if (way := way_left_out(program, "load_state")) is not None:
        return way
    if loads_states(program):
        return ResumeWay(ResumeMeans.UNKNOWN, f"{program.name} saves by save_state() and loads something else than by load_state()")
    return ResumeWay(ResumeMeans.NONE, f"{program.name} never calls load_state()")


def _deepspeed(program: JobProgram) -> ResumeWay | None:
    if not imports(program, "deepspeed"):
        return None
    for source in program.sources:
        for call in source.called("load_checkpoint"):
            guard = way_by_own_option(source)
            tag = call.keywords.get("tag") or (call.positional[1] if len(call.positional) > 1 else None)
            node = call.keywords.get("load_dir") or (call.positional[0] if call.positional else None)
            folder = source.value(node) if node is not None else UNKNOWN
            folder_known = folder if isinstance(folder, str) and UNRESOLVED not in folder else ""
            if guard is not None and (guard.means is not ResumeMeans.FIXED or guard.path != folder_known):
                return guard  # a folder of tags is no checkpoint yet
            call_place = f"load_checkpoint() in {file_name(source)}, line {call.line}"
            value = source.value(tag)
            if tag is None or value is None:
                return ResumeWay(ResumeMeans.TRACKER, f"{call_place}: the file latest", folder_known)
            if folder_known and isinstance(value, str) and value and UNRESOLVED not in value:
                return ResumeWay(ResumeMeans.FIXED, call_place, str(PurePosixPath(folder_known) / value))
            return _by_value(program, source, tag, call_place)
    return way_left_out(program, "load_checkpoint")


def _by_source(program: JobProgram) -> ResumeWay:
    """Return what the source of a plain training loop does: list, choose and load, or none of it."""
    training = training_functions(program)

    def before_training(calls: Iterable[Found]) -> list[Found]:
        return [(source, call) for source, call in calls if not is_after_training(program, source, call.line, training)]

    uses = file_uses(program)
    loads = before_training(uses.starting_loads)
    picks = before_training(newest_picks(program))
    looks = before_training((source, call) for source in program.sources for call in source.called(*LISTS))
    lists = [(source, call) for source, call in looks if looks_for_saves(program, source, call)] + picks
    switched_way = next((way for source, call in [*lists, *loads] if (way := _switched(program, source, call)) is not None), None)
    if switched_way is not None:
        return switched_way
    free = [call for source, call in loads if known_at_run_only(source, call) and not reads_settings(source, call)]
    tracker = next((file for file in program.sources if reads_tracker(file) or restores_latest(program, file, training)), None)
    guard = next((way for source in program.sources if (way := way_by_own_option(source)) is not None), None)
    if guard is not None and (loads or tracker is not None or guard.means is ResumeMeans.NONE) and not lists:
        elsewhere = next(((source, call) for source, call in loads if has_another_source(source, call)), None)
        if guard.means is ResumeMeans.NONE and elsewhere is not None:
            call_place = f"{elsewhere[1].method}() in {file_name(elsewhere[0])}, line {elsewhere[1].line}"
            by = f"{call_place}, also loads what {program.name} looks up"
            return ResumeWay(ResumeMeans.UNKNOWN, by)
        if tracker is None or guard.means in (ResumeMeans.NONE, ResumeMeans.UNKNOWN):
            return guard
        return ResumeWay(ResumeMeans.TRACKER, f"{guard.by}: it reads a tracker file", guard.path)
    if tracker is not None:
        return ResumeWay(ResumeMeans.TRACKER, f"{file_name(tracker)} reads a tracker file")
    if picks or (lists and (free or (not loads and any(call.method in FILE_READS for call in program.calls)))):
        source, call = lists[-1]
        by = f"{call.method}() in {file_name(source)}, line {call.line}"
        return ResumeWay(ResumeMeans.NEWEST, by, takes_unfinished=METADATA not in source.text)
    present = next(
        (
            (source, call)
            for source, call in loads
            if (about_saves(source, call) or uses.loads_own_file(source, call)) and only_if_there(source, call)
        ),
        None,
    )
    if present is not None and not uses.saves and not any(call.method in TRAINS | SAVES for call in program.calls):
        return ResumeWay(ResumeMeans.UNKNOWN, f"{program.name} loads a checkpoint, and nothing of it that can be read trains")
    if present is not None:
        by = f"{file_name(present[0])} loads a checkpoint that is there"
        unsafe = METADATA not in present[0].text
        return ResumeWay(ResumeMeans.NEWEST, by, prefix=only_file(*present), takes_unfinished=unsafe)
    if loads or any(re.search(r"\bresum(?:e|ed|es|ing)\b", source.text, re.IGNORECASE) for source in program.sources):
        by = f"{program.name} loads something, and what is known only when it runs"
        return by_setting(program) or ResumeWay(ResumeMeans.UNKNOWN, by)
    if program.starts_others:
        return ResumeWay(ResumeMeans.UNKNOWN, f"{program.name} starts other programs, which cannot be read")
    foreign = foreign_library(program)
    if foreign:
        return ResumeWay(ResumeMeans.UNKNOWN, f"{program.name} leaves its training to {foreign}")
    return ResumeWay(ResumeMeans.NONE, f"{program.name} loads nothing", loads_nothing=program.name)


def _switched(program: JobProgram, source: TrainerSource, call: SourceCall, depth: int = 0) -> ResumeWay | None:
    """Return that a call is made only with an option that is not set, or of which nothing is known; None where it is made."""
    for test in call.conditions:
        for node in ast.walk(test):
            name = (
                node.attr
                if isinstance(node, ast.Attribute)
                else source.value(node.slice)
                if isinstance(node, ast.Subscript)
                else None
            )
            name = name if name is not None else node.id if isinstance(node, ast.Name) and node.id not in source.names else None
            if not isinstance(name, str) or not SWITCH.search(name) or name in source.options:
                continue
            option = program.option(name)
            if option is None and isinstance(node, ast.Name) and (way := _passed(program, source, call, name, depth)) is not None:
                return way
            by = f"{call.method}() in {file_name(source)}, line {call.line}, only with {name}"
            if option is None:
                return ResumeWay(ResumeMeans.UNKNOWN, f"{by}, and whether that is set cannot be told")
            if option.value.strip().lower() in NO:
                return ResumeWay(ResumeMeans.NONE, f"{by}; {option.where} is {option.value or 'empty'}")
    return None


def _passed(program: JobProgram, source: TrainerSource, call: SourceCall, name: str, depth: int) -> ResumeWay | None:
    """Return what the program passes to the function that a call stands in, where it all means the same; else None."""
    functions = [name_of for name_of, parameters in enclosing_functions(source, call.line) if name in parameters]
    passes = [
        (source_passing, call_passing)
        for source_passing in program.sources
        for call_passing in source_passing.called(*functions[-1:])
        if name in call_passing.keywords
    ]
    trainer_calls = [
        trainer_call
        for source_passing in program.sources
        for trainer_call in source_passing.called(*functions[-1:])
        if "rainer" in trainer_call.name
    ]
    if any(name not in trainer_call.keywords and not trainer_call.conditions for trainer_call in trainer_calls):
        return None  # another run of it may begin at the start
    ways = []
    for one, other in passes if depth < MOST_PASSES else ():
        by = f"{name} of {other.method}() in {file_name(one)}, line {other.line}"
        if one.value(other.keywords[name]) is UNKNOWN and not LATEST.search(one.text_of(other.keywords[name])):
            return None
        ways.append(_switched(program, one, other, depth + 1) or _by_value(program, one, other.keywords[name], by))
    return ways[0] if len({(way.means, way.path) for way in ways}) == 1 else None


def _by_value(program: JobProgram, source: TrainerSource, node: ast.expr, by: str) -> ResumeWay:
    """Return what the value of a resume argument means: a constant, an option, or an expression that looks for the newest."""
    value = source.value(node)
    if value is None or value is False:
        return ResumeWay(ResumeMeans.NONE, f"{by} is {value}")
    if value is True:
        return ResumeWay(ResumeMeans.NEWEST, by)
    if isinstance(value, str) and UNRESOLVED not in value:
        return by_text(value, by)
    newest = newest_choice(program, source, node)
    written = source.text_of(node)
    if newest is not None and (newest.placed or LISTING.search(written)):
        return ResumeWay(ResumeMeans.NEWEST, by, prefix=newest.prefix)
    if LATEST.search(LISTING.sub("", written)) or PRESENT.search(written):
        return ResumeWay(ResumeMeans.NEWEST, by)
    option = program.option("resume_from_checkpoint", "resume", "ckpt_path")
    if option is not None:
        return by_text(option.value, option.where)
    if "get_last_checkpoint" in source.text:
        return ResumeWay(ResumeMeans.NEWEST, f"get_last_checkpoint() in {file_name(source)}")
    if "HfArgumentParser" in source.text and "resume_from_checkpoint" in written:
        return ResumeWay(ResumeMeans.NONE, "--resume_from_checkpoint is not given")
    return ResumeWay(ResumeMeans.UNKNOWN, f"{by}: its value is known only when it runs")
