"""By which argument a program that would begin anew goes on from a chosen checkpoint: `--resume PATH`, `ckpt_path=PATH`.

The script is read once more as a restart would run it, with the argument behind its launch command. It counts where the program
then has it and its source hands it to what restores a training: `fit(ckpt_path=…)`, `train(resume_from_checkpoint=…)`, or a load
whose file gives back a step or an epoch as well. What only looks so is named to people and not done.

A script may also hand on the variables of a restart. One that is only printed, overwritten or given to another program resumes
nothing, and `NIGHTSHIFT_ARGS` is empty where no template fills it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from assistant.records import Job
from assistant.recover.job_program import FileReader, JobProgram, configured_keys, normalised, programs_of
from assistant.recover.launch_arguments import ARGS, RESUME_FROM, STEP, with_words
from assistant.recover.resume.joint_settings import load_branch
from assistant.recover.resume.means import NO, ResumeMeans, ResumeWay
from assistant.recover.resume.number import NUMBER, NUMBERED, number_proof
from assistant.recover.shell.folders import UNRESOLVED
from assistant.recover.source.file_uses import file_uses
from assistant.recover.source.load_calls import SAVES
from assistant.recover.source.load_proof import WHOLE, ArgumentProof, argued, imports, proof_of_load
from assistant.recover.source.start_files import removed_by
from assistant.recover.source.trainer_source import SourceCall, TrainerSource, dotted, syntax_tree

OWN_VARIABLES = re.compile(r"\bNIGHTSHIFT_(?:RESUME_FROM|ARGS|STEP)\b")
_PATH_VARIABLES = re.compile(rf"\b(?:{RESUME_FROM}|{STEP})\b")
_PROBE, _PROBE_STEP = "/nightshift-probe/step_7654321", "7654321"
"""A checkpoint and its step that no script has of its own."""


def is_handed_on(job: Job, programs: Sequence[JobProgram]) -> bool:
    """Return whether what a script trains with is given the checkpoint by which a restart goes on; True where that cannot be told.

    Args:
        job: With its spec, whose script names one of the variables and no template that fills `NIGHTSHIFT_ARGS`.
        programs: What the script starts, from `programs_of`.
    """
    if any(_PATH_VARIABLES.search(source.text) for program in programs for source in program.sources):
        return True
    spec = job.spec
    code = "\n".join(line for line in spec.script.splitlines() if not line.lstrip().startswith("#")) if spec is not None else ""
    if spec is None or not _PATH_VARIABLES.search(code):
        return False
    environment = {**spec.environment, RESUME_FROM: _PROBE, STEP: _PROBE_STEP}
    environment.pop(ARGS, None)
    started = programs_of(replace(job, spec=replace(spec, environment=environment)))
    trainers = [program for program in started if may_save(program)]
    if any(_PROBE_STEP in word for program in trainers for word in program.launch.words):
        return True
    return not started or any(UNRESOLVED in word for program in trainers for word in program.launch.words)


def may_save(program: JobProgram) -> bool:
    """Return whether a program leaves checkpoints behind, or cannot be read."""
    read = [source for source in program.sources if source.parsed]
    return not read or any(True for source in read for _ in source.called(*SAVES)) or bool(file_uses(program).saves)


RESUMING = re.compile(
    r"(?:auto_?)?(?:resum|restor|restart|continu)\w{0,30}|ckpt_path|checkpoint_path|load_(?:ckpt|checkpoint)\w{0,12}"
)
"""Names of options and keys by which programs go on; whether they do is for their source to prove."""
NO_PATH = re.compile(
    r"step|epoch|iter|every|interval|optim|sched|strict|only|mode|type|policy|fork|id$|num|count|_if_|wandb|run|name", re.IGNORECASE
)
"""In such a name: something else about going on than the checkpoint."""
PROBE = "/nightshift-probe/epoch_7/step_7654321.ckpt"
"""A checkpoint that no script has of its own."""
PROBE_PLACES = {"checkpoint": PROBE, "name": "step_7654321.ckpt", "step": NUMBER, "folder": "/nightshift-probe/epoch_7"}
MOST_CANDIDATES = 3
OWN_WORDS = re.compile(r"\bsys\.argv\[\d:\]")
"""The words of the command line in a program of Python."""


class Candidate(NamedTuple):
    """An argument by which a program may go on."""

    key: str
    """As its source calls it: `resume`, `trainer.ckpt_path`."""
    template: str
    """With `{checkpoint}`."""
    named: bool = True
    """Whether its name speaks of going on; one that only a load takes has to give the number that the training counts on from."""


def argued_way(job: Job, way: ResumeWay, programs: Sequence[JobProgram], way_of: Callable[[JobProgram], ResumeWay]) -> ResumeWay:
    """Return that a script goes on by an argument which a restart hands to its program, where that is proven; else the way.

    Args:
        job: With its spec.
        way: How it resumes without: of NONE and UNKNOWN alone something better is looked for.
        programs: What its script starts, from `programs_of`.
        way_of: Tells how one program resumes.

    Raises:
        Unavailable: The storage did not answer.
    """
    nanogpt_way = argued(way, job.spec.script if job.spec is not None else "", programs)
    if nanogpt_way.argument and _started_with(job, programs[0], nanogpt_way.argument, FileReader(job.account)) is not None:
        return nanogpt_way
    trainers = [program for program in programs if saves(program)]
    unsure = way.means in (ResumeMeans.NONE, ResumeMeans.UNKNOWN) and not way.destroys and not way.repeats
    if job.spec is None or not unsure or len(trainers) != 1 or trainers[0].source is None or trainers[0].unread_behind:
        return way
    program = trainers[0]
    read = FileReader(job.account)
    configured = list(configured_keys(program, read))
    candidates = [*_candidates(program, configured)][:MOST_CANDIDATES]
    settings = dict(reversed([(name.rpartition(".")[2], value) for name, value in configured]))
    for candidate in candidates:
        started = _started_with(job, program, candidate.template.format(checkpoint=PROBE), read)
        proof = _proof(started, candidate, settings, way_of) if started is not None else None
        if proof is not None:
            example = candidate.template.format(checkpoint="PATH")
            by = f"{example}, which Nightshift puts behind the command line of {program.name}: {proof.call}"
            spared = {*removed_by(program)} - {*removed_by(started)} if started is not None else set()
            return replace(
                way,
                means=ResumeMeans.ARGUMENT,
                by=by,
                argument=candidate.template,
                takes_files=proof.files,
                removed=tuple(path for path in way.removed if path not in spared),
            )
    by_number = _numbered_way(job, way, program, read, way_of)
    if by_number is not None:
        return by_number
    hint = next((item.template for item in candidates if _is_loaded_somewhere(program, item.key.rpartition(".")[2])), "")
    way = replace(way, trial_arguments=tuple(item.template for item in candidates))
    branch = load_branch(program, read)
    if branch is not None:
        arguments = branch.templates if not branch.by_variables else ()
        passable = [text for text in arguments if _started_with(job, program, text.format(**PROBE_PLACES), read) is not None]
        templates = (*passable, *way.trial_arguments) if branch.switches else (*way.trial_arguments, *passable)
        way = replace(way, branch=branch, loads_nothing="", trial_arguments=tuple(dict.fromkeys(templates)))
        hint = next(iter(arguments), "") if branch.switches or not hint else hint
    return replace(way, hint=f"{hint} behind the command line of {program.name}") if hint else way


def _numbered_way(
    job: Job, way: ResumeWay, program: JobProgram, read: FileReader, way_of: Callable[[JobProgram], ResumeWay]
) -> ResumeWay | None:
    """Return that a program goes on by the number of a checkpoint that it is given, where that is proven; else None."""
    numbers = {key: flag for source in program.sources for key, flag in source.numbers.items()}
    if any(True for source in program.sources for _ in source.called("add_subparsers")):
        return None  # which of them takes it is not known
    keys = [key for key in numbers if NUMBERED.fullmatch(key) and numbers[key].startswith("--") and _is_unset(program, key)]
    for key in keys[:MOST_CANDIDATES]:
        started = _started_with(job, program, f"{numbers[key]}={NUMBER}", read)
        if started is None:
            continue
        otherwise = way_of(started)
        loads_it = otherwise.means in (ResumeMeans.FIXED, ResumeMeans.UNKNOWN) or NUMBER in otherwise.prefix
        proof = number_proof(started, program, key) if loads_it and not otherwise.destroys else ""
        if isinstance(proof, str):
            continue
        argument = f"{numbers[key]}={{step}}"
        example = argument.format(step="STEP")
        by = f"{example}, which Nightshift puts behind the command line of {program.name}: {proof.call}"
        return replace(way, means=ResumeMeans.ARGUMENT, by=by, argument=argument, path=proof.path)
    return None


def by_setting(program: JobProgram) -> ResumeWay | None:
    """Return that a program loads what a key of its configuration names, which names nothing now; None where no load does so.

    It is for people: a restart hands no other configuration to a script.
    """
    keys = {normalised(key) for key in file_uses(program).named_in_loads()}
    option = next((item for item in program.settings if item.last in keys and item.value.lower() in NO), None)
    if option is None:
        return None
    by = f"{program.name} loads what {option.where} names, and that is {option.value or 'empty'}"
    return ResumeWay(ResumeMeans.UNKNOWN, by, hint=f"{option.name}: {{checkpoint}} in a copy of {option.where.rpartition(' ')[2]}")


def _is_loaded_somewhere(program: JobProgram, key: str) -> bool:
    """Tell whether a call that loads or trains names an option at all."""
    call_pattern = re.compile(rf"\b\w*(?:load|restore|fit|train)\w*\([^()]{{0,200}}\b{re.escape(key)}\b")
    return any(call_pattern.search(source.text) for source in program.sources)


def saves(program: JobProgram) -> bool:
    """Tell whether a program leaves checkpoints behind, also where the trainer of a library does it, or cannot be read.

    A script of a shell does not itself: what it starts is read with the rest.
    """
    if not program.launch.program and any(word.endswith(".sh") for word in program.launch.words):
        return False
    trains = any(call.method in WHOLE for call in program.calls) and any(imports(program, item) for item in ("transformers", "trl"))
    return trains or "LightningCLI(" in "".join(source.text for source in program.sources) or may_save(program)


def _candidates(program: JobProgram, configured: Sequence[tuple[str, str]]) -> Iterator[Candidate]:
    """Yield the arguments that a program takes and that are called so, those that are not set."""
    declared = [call for source in program.sources for call in source.called("add_argument")]
    if any(True for source in program.sources for _ in source.called("add_subparsers")):
        declared = []  # which of them takes it is not known
    for call in declared:
        key, name = _key_and_name(call)
        if _is_free(key, call) and _is_unset(program, key):
            yield Candidate(key, f"{name}={{checkpoint}}")
    loaded = set(file_uses(program).named_in_loads())
    for call in declared:
        key, name = _key_and_name(call)
        if key in loaded and not is_named_so(key) and _takes_text(call) and name and _is_unset(program, key):
            yield Candidate(key, f"{name}={{checkpoint}}", named=False)
    texts = "\n".join(source.text for source in program.sources)
    key = "resume_from_checkpoint"
    if re.search(r"\b(?:HfArgumentParser|TrlParser)\b", texts) and "TrainingArguments" in texts and _is_unset(program, key):
        yield Candidate(key, f"--{key}={{checkpoint}}")
    if "LightningCLI(" in texts and program.launch.arguments[:1] == ("fit",) and _is_unset(program, "ckpt_path"):
        yield Candidate("ckpt_path", "--ckpt_path={checkpoint}")
    for key, value in configured:
        if not is_named_so(key.rpartition(".")[2]) or value.lower() not in NO or not _is_unset(program, key):
            continue
        if (quote := _quote(program, key)) is not None:
            yield Candidate(key, f"{key}={quote}{{checkpoint}}{quote}")
        elif option := _settings_option(program, key, declared):
            yield Candidate(key, f"{option} {key}={{checkpoint}}")


def is_named_so(key: str) -> bool:
    """Tell whether the name of an option or a key speaks of going on from a checkpoint."""
    return RESUMING.fullmatch(key) is not None and NO_PATH.search(key.replace("resume_from_checkpoint", "")) is None


def _key_and_name(call: SourceCall) -> tuple[str, str]:
    """Return the name of an option as the source reads it, and as the command line writes it."""
    names = [item.value for item in call.positional if isinstance(item, ast.Constant) and isinstance(item.value, str)]
    name = next((item for item in names if item.startswith("--")), "")
    return name.lstrip("-").replace("-", "_"), name


def _is_free(key: str, call: SourceCall) -> bool:
    """Tell whether an option of argparse takes any text, and is called so."""
    return bool(key) and is_named_so(key) and _takes_text(call)


def _takes_text(call: SourceCall) -> bool:
    plain = not {"action", "choices", "nargs", "dest"} & set(call.keywords)
    kind = call.keywords.get("type")
    texts = kind is None or (isinstance(kind, ast.Name | ast.Attribute) and dotted(kind) in ("str", "Path", "pathlib.Path"))
    return plain and texts


def _is_unset(program: JobProgram, key: str) -> bool:
    assigned = next(
        (item for item in program.options if item.name == key.lower() and item.where.endswith("on the command line")), None
    )
    return assigned is None or assigned.value.lower() in NO


def _quote(program: JobProgram, key: str) -> str | None:
    """Return in which quotes a value stands in a setting `key=value` on a program's command line; None where it takes no settings.

    Hydra and YAML read an `=` in a bare value as something else, and names of Lightning hold one.
    """
    for source in program.sources:
        if any(call.name in ("OmegaConf.from_cli", "omegaconf.OmegaConf.from_cli") for call in source.calls):
            return "'"
        if any(dotted(node) == "hydra.main" for node in _decorators(source)):
            return None if {"-m", "--multirun"} & set(program.launch.arguments) else "'"  # each run of a sweep would go on from it
        if (loop := _settings_loop(program, source)) is not None:
            if not _nests(source, key):
                return None
            return "'" if re.search(r"\b(?:yaml\.\w*load|literal_eval|OmegaConf)\b", ast.unparse(loop)) else ""
    return None


def override_forms(program: JobProgram, key: str) -> tuple[tuple[str, ...], ...]:
    """Return by which arguments a program takes a key of its configuration, with `{checkpoint}`; none where that is not told."""
    if (quote := _quote(program, key)) is not None:
        return ((f"{key}={quote}{{checkpoint}}{quote}",),)
    option = _settings_option(program, key, [call for source in program.sources for call in source.called("add_argument")])
    return ((option, f"{key}={{checkpoint}}"),) if option else ()


def _settings_loop(program: JobProgram, source: TrainerSource, words: re.Pattern[str] = OWN_WORDS) -> ast.For | None:
    """Return the loop in which a program takes each word of its command line apart at `=` and sets what it names; else None.

    Args:
        program: That is started.
        source: In which the loop stands.
        words: What it goes through, as text: the words of the command line, or those of an option.
    """
    tree = syntax_tree(source.text) if source.parsed else None
    handed = {name for node in (ast.walk(tree) if tree is not None else ()) for name in _handed_words(program, node, words)}
    for node in ast.walk(tree) if tree is not None else ():
        if not isinstance(node, ast.For) or not isinstance(node.target, ast.Name):
            continue
        if not words.search(source.text_of(node.iter)) and not (isinstance(node.iter, ast.Name) and node.iter.id in handed):
            continue
        inner = [item for statement in node.body for item in ast.walk(statement)]
        apart = any(
            isinstance(item, ast.Call)
            and dotted(item.func) in (f"{node.target.id}.split", f"{node.target.id}.partition")
            and item.args
            and isinstance(item.args[0], ast.Constant)
            and item.args[0].value == "="
            for item in inner
        )
        is_set = any(
            (isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Subscript))
            or (isinstance(item, ast.Call) and isinstance(item.func, ast.Attribute) and item.func.attr == "set")
            for item in inner
        )
        if apart and is_set:
            return node
    return None


def _handed_words(program: JobProgram, node: ast.AST, words: re.Pattern[str]) -> Iterator[str]:
    """Yield the first parameter of a function that is called with the words of the command line."""
    if isinstance(node, ast.FunctionDef) and node.args.args:
        calls = (call for source in program.sources for call in source.calls if call.method == node.name and call.positional)
        if any(words.search(ast.unparse(call.positional[0])) for call in calls):
            yield node.args.args[0].arg


def _settings_option(program: JobProgram, key: str, declared: Sequence[SourceCall]) -> str:
    """Return the option behind which a program takes settings `key=value`, one more of them at each; empty where it has none."""
    for call in declared:
        names = [item.value for item in call.positional if isinstance(item, ast.Constant) and isinstance(item.value, str)]
        kinds = {name: getattr(call.keywords.get(name), "value", None) for name in ("action", "nargs", "dest")}
        long_name = next((name for name in names if name.startswith("--")), names[0] if names else "")
        dest = str(kinds["dest"] or long_name.lstrip("-").replace("-", "_"))
        adds = kinds["action"] in ("append", "extend")
        several = kinds["nargs"] in ("*", "+") and not any(word.partition("=")[0] in names for word in program.launch.arguments)
        if not names or not names[0].startswith("-") or not (adds or several):
            continue
        for source in program.sources:
            if _settings_loop(program, source, re.compile(rf"\b\w+\.{re.escape(dest)}\b")) is not None and _nests(source, key):
                return names[0]
    return ""


def _nests(source: TrainerSource, key: str) -> bool:
    """Tell whether a program takes the name of a key apart at its dots, where it has some."""
    return "." not in key or any(
        call.method in ("split", "partition", "rpartition", "rsplit") and _first_text(call) == "." for call in source.calls
    )


def _decorators(source: TrainerSource) -> Iterator[ast.expr]:
    for nodes in source.functions.values():
        for node in nodes:
            yield from (item.func if isinstance(item, ast.Call) else item for item in node.decorator_list)


def _first_text(call: SourceCall) -> str:
    first = call.positional[0] if call.positional else None
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""


def _started_with(job: Job, program: JobProgram, words: str, read: FileReader) -> JobProgram | None:
    """Return a program as a restart would start it, with arguments more and all else the same; else None."""
    spec = job.spec
    script = with_words(spec.script, words.replace("'", "\\'")) if spec is not None else None
    if spec is None or script is None:
        return None
    started = [item for item in programs_of(replace(job, spec=replace(spec, script=script)), read) if saves(item)]
    if len(started) != 1 or started[0].launch.program != program.launch.program:
        return None
    arguments = list(started[0].launch.arguments)
    return started[0] if arguments == [*program.launch.arguments, *words.split(" ")] else None


def _proof(
    program: JobProgram, candidate: Candidate, settings: Mapping[str, str], way_of: Callable[[JobProgram], ResumeWay]
) -> ArgumentProof | None:
    """Return what proves that a program, started with an argument, goes on from what that names; None where nothing does."""
    key = candidate.key.rpartition(".")[2]
    way = way_of(program)
    if way.means not in (ResumeMeans.FIXED, ResumeMeans.UNKNOWN) or (
        way.means is ResumeMeans.FIXED and way.path.strip("'") != PROBE
    ):
        return None
    if "LightningCLI(" in "".join(source.text for source in program.sources) and candidate.template.startswith("--ckpt_path"):
        return ArgumentProof(f"LightningCLI in {program.name}", files=False)
    return proof_of_load(program, key, settings, counted_on=not candidate.named)
