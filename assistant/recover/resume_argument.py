"""By which argument a program that would begin anew goes on from a chosen checkpoint: `--resume PATH`, `ckpt_path=PATH`.

The script is read once more as a restart would run it, with the argument behind its launch command. It counts where the program
then has it and its source hands it to what restores a training: `fit(ckpt_path=…)`, `train(resume_from_checkpoint=…)`, or a load
whose file gives back a step or an epoch as well. What only looks so is named to people and not done.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

from assistant.records import Job
from assistant.recover.checkpoints.pickles import EPOCH_KEYS, STEP_KEYS
from assistant.recover.handed_on import may_save
from assistant.recover.job_program import FileReader, JobProgram, configured_keys, programs_of
from assistant.recover.load_calls import enclosing_functions
from assistant.recover.restart import with_words
from assistant.recover.resume_means import NO, ResumeMeans, ResumeWay
from assistant.recover.trainer_options import argued, file_name, imports
from assistant.recover.trainer_source import SourceCall, TrainerSource, dotted, syntax_tree

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
WHOLE = {"fit": "ckpt_path", "train": "resume_from_checkpoint"}
"""Calls that restore a training as a whole, with their argument."""
WHOLE_METHODS = (*WHOLE, "load_state")
MOST_CANDIDATES = 3
MOST_PASSES = 4
PASSED_ON = frozenset(("Path", "str", "abspath", "expanduser", "realpath", "to_absolute_path", "resolve", "expandvars", "fspath"))
TESTED = frozenset("os path exists isfile isdir is_file is_dir Path len str lower strip not None".split())
"""Names in a test that asks whether there is a checkpoint to load."""


class Candidate(NamedTuple):
    """An argument by which a program may go on."""

    key: str
    """As its source calls it: `resume`, `trainer.ckpt_path`."""
    template: str
    """With `{checkpoint}`."""


class ArgumentProof(NamedTuple):
    """That a program goes on by an argument."""

    call: str
    """For people: `fit() in train.py, line 12`."""
    files: bool
    """Whether what it loads must be one file."""
    folders: bool = False
    """Whether it must be a folder, of which the program loads files."""


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
    if nanogpt_way.argument:
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
        started = _started_with(job, program, candidate, read)
        proof = _proof(started, candidate, settings, way_of) if started is not None else None
        if proof is not None:
            example = candidate.template.format(checkpoint="PATH")
            by = f"{example}, which Nightshift puts behind the command line of {program.name}: {proof.call}"
            return replace(
                way,
                means=ResumeMeans.ARGUMENT,
                by=by,
                argument=candidate.template,
                takes_files=proof.files,
            )
    hint = next((item.template for item in candidates if _is_loaded_somewhere(program, item.key.rpartition(".")[2])), "")
    return replace(way, hint=f"{hint} behind the command line of {program.name}") if hint else way


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
        names = [item.value for item in call.positional if isinstance(item, ast.Constant) and isinstance(item.value, str)]
        name = next((item for item in names if item.startswith("--")), "")
        key = name.lstrip("-").replace("-", "_")
        if _is_free(key, call) and _is_unset(program, key):
            yield Candidate(key, f"{name}={{checkpoint}}")
    texts = "\n".join(source.text for source in program.sources)
    key = "resume_from_checkpoint"
    if re.search(r"\b(?:HfArgumentParser|TrlParser)\b", texts) and "TrainingArguments" in texts and _is_unset(program, key):
        yield Candidate(key, f"--{key}={{checkpoint}}")
    if "LightningCLI(" in texts and program.launch.arguments[:1] == ("fit",) and _is_unset(program, "ckpt_path"):
        yield Candidate("ckpt_path", "--ckpt_path={checkpoint}")
    for key, value in configured:
        if not _is_named_so(key.rpartition(".")[2]) or value.lower() not in NO or not _is_unset(program, key):
            continue
        if (quote := _quote(program, key)) is not None:
            yield Candidate(key, f"{key}={quote}{{checkpoint}}{quote}")


def _is_named_so(key: str) -> bool:
    return RESUMING.fullmatch(key) is not None and NO_PATH.search(key.replace("resume_from_checkpoint", "")) is None


def _is_free(key: str, call: SourceCall) -> bool:
    """Tell whether an option of argparse takes any text, and is called so."""
    plain = not {"action", "choices", "nargs", "dest"} & set(call.keywords)
    kind = call.keywords.get("type")
    texts = kind is None or (isinstance(kind, ast.Name | ast.Attribute) and dotted(kind) in ("str", "Path", "pathlib.Path"))
    return bool(key) and _is_named_so(key) and plain and texts


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
        if (loop := _settings_loop(source)) is not None:
            nests = any(call.method == "split" and _first_text(call) == "." for call in source.calls)
            if "." in key and not nests:
                return None
            return "'" if re.search(r"\b(?:yaml\.\w*load|literal_eval|OmegaConf)\b", ast.unparse(loop)) else ""
    return None


def _settings_loop(source: TrainerSource) -> ast.For | None:
    """Return the loop in which a program takes each word of its command line apart at `=` and sets what it names; else None."""
    for node in ast.walk(syntax_tree(source.text)) if source.parsed else ():
        if not isinstance(node, ast.For) or not isinstance(node.target, ast.Name):
            continue
        if not re.search(r"\bsys\.argv\[\d:\]", source.text_of(node.iter)):
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
        if apart and any(isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Subscript) for item in inner):
            return node
    return None


def _decorators(source: TrainerSource) -> Iterator[ast.expr]:
    for nodes in source.functions.values():
        for node in nodes:
            yield from (item.func if isinstance(item, ast.Call) else item for item in node.decorator_list)


def _first_text(call: SourceCall) -> str:
    first = call.positional[0] if call.positional else None
    return first.value if isinstance(first, ast.Constant) and isinstance(first.value, str) else ""


def _started_with(job: Job, program: JobProgram, candidate: Candidate, read: FileReader) -> JobProgram | None:
    """Return a program as a restart would start it, with an argument more and all else the same; else None."""
    word = candidate.template.format(checkpoint=PROBE)
    spec = job.spec
    script = with_words(spec.script, word.replace("'", "\\'")) if spec is not None else None
    if spec is None or script is None:
        return None
    started = [item for item in programs_of(replace(job, spec=replace(spec, script=script)), read) if saves(item)]
    if len(started) != 1 or started[0].launch.program != program.launch.program:
        return None
    arguments = list(started[0].launch.arguments)
    return started[0] if arguments == [*program.launch.arguments, word] else None


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
    return proof_of_load(program, key, settings)


def proof_of_load(
    program: JobProgram, key: str, settings: Mapping[str, str] | None = None, *, folders: bool = False
) -> ArgumentProof | None:
    """Return the call of a program's source that restores a training from what an option, a key or a variable names; else None.

    Args:
        program: Started with it.
        key: Name of the option as the source reads it, or of the variable.
        settings: Of its configurations, by the last part of their keys.
        folders: Whether files of a folder that it names count as well.
    """
    settings = settings or {}
    if any(_is_set_again(source, key) for source in program.sources):
        return None
    for source in program.sources:
        for call in source.calls:
            node = _loaded(program, source, call)
            if node is None:
                continue
            folder = _folder_of(source, node) if folders else None
            if not _comes_from(program, source, folder or node, key):
                continue
            if not _only_if_given(program, source, call, key, settings):
                continue
            place = f"{call.method}() in {file_name(source)}, line {call.line}"
            if call.method in WHOLE_METHODS:
                return ArgumentProof(place, files=False)
            if _gives_back_a_count(source, call) or (folder is not None and _counts_by_name(program, key)):
                return ArgumentProof(place, files=folder is None, folders=folder is not None)
    return None


def _loaded(program: JobProgram, source: TrainerSource, call: SourceCall) -> ast.expr | None:
    """Return the argument of a call that names what it loads; None of a call that loads no checkpoint."""
    if call.method == "fit" and any(imports(program, item) for item in ("lightning", "pytorch_lightning")):
        return call.keywords.get("ckpt_path")
    if call.method == "train" and any(imports(program, item) for item in ("transformers", "trl")):
        return call.keywords.get("resume_from_checkpoint")
    if call.method == "load_state" and imports(program, "accelerate"):
        return call.keywords.get("input_dir") or (call.positional[0] if call.positional else None)
    if call.name in ("torch.load", "paddle.load", "joblib.load"):
        return call.positional[0] if call.positional else call.keywords.get("f")
    return None


def _folder_of(source: TrainerSource, node: ast.expr) -> ast.expr | None:
    """Return the folder of which an expression names a file: `os.path.join(X, "a.pt")`, `X / "a.pt"`, `f"{X}/a.pt"`; else None."""
    while isinstance(node, ast.Name) and len(source.names.get(node.id, ())) == 1 and node.id not in source.rebound:
        node = source.names[node.id][0]
        if not isinstance(node, ast.Name):
            break
    tail: Sequence[ast.expr] = ()
    first: ast.expr | None = None
    if isinstance(node, ast.Call) and dotted(node.func) in ("os.path.join", "path.join", "osp.join", "join") and len(node.args) > 1:
        first, tail = node.args[0], node.args[1:]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        first, tail = node.left, (node.right,)
    elif isinstance(node, ast.JoinedStr) and node.values and isinstance(node.values[0], ast.FormattedValue):
        first, tail = node.values[0].value, node.values[1:]
        if not tail or not (isinstance(tail[0], ast.Constant) and str(tail[0].value).startswith("/")):
            return None
    inside = [item.value for item in tail if isinstance(item, ast.Constant)]
    is_file_name = bool(inside) and all(isinstance(item, ast.Constant | ast.JoinedStr | ast.FormattedValue) for item in tail)
    return (
        first
        if is_file_name and not any(str(item).startswith("/") for item in inside if not isinstance(node, ast.JoinedStr))
        else None
    )


def _counts_by_name(program: JobProgram, key: str) -> bool:
    """Tell whether a program takes the step out of the name of what it goes on from: `int(X.rpartition("_")[2])`."""
    for source in program.sources:
        for node in ast.walk(syntax_tree(source.text)) if source.parsed else ():
            if not isinstance(node, ast.Assign | ast.AnnAssign) or node.value is None:
                continue
            for inner in ast.walk(node.value):
                if not isinstance(inner, ast.Call) or dotted(inner.func) != "int" or not inner.args:
                    continue
                parts = (part for part in ast.walk(inner.args[0]) if isinstance(part, ast.expr))
                if any(_comes_from(program, source, part, key) for part in parts):
                    return True
    return False


def _comes_from(program: JobProgram, source: TrainerSource, node: ast.expr, key: str, depth: int = 0) -> bool:
    """Tell whether an expression is the value of an option or a key and of nothing else, wherever it is given a value."""
    if depth > MOST_PASSES:
        return False
    if isinstance(node, ast.Attribute):
        return node.attr == key
    if isinstance(node, ast.Subscript):
        return isinstance(node.slice, ast.Constant) and node.slice.value == key
    if isinstance(node, ast.Call):
        method = dotted(node.func).rpartition(".")[2]
        if method == "getenv":
            return bool(node.args) and isinstance(node.args[0], ast.Constant) and node.args[0].value == key
        if method in ("get", "getattr"):
            return any(isinstance(item, ast.Constant) and item.value == key for item in node.args[: 1 + (method == "getattr")])
        inner = node.args[-1] if node.args and method in (PASSED_ON | {"join"}) else None
        return inner is not None and _comes_from(program, source, inner, key, depth + 1)
    if isinstance(node, ast.IfExp):
        values = [node.body, node.orelse]
        assigned = [item for item in values if not (isinstance(item, ast.Constant) and item.value is None)]
        return len(assigned) == 1 and _comes_from(program, source, assigned[0], key, depth + 1)
    if isinstance(node, ast.BoolOp):
        return isinstance(node.op, ast.Or) and _comes_from(program, source, node.values[0], key, depth + 1)
    if not isinstance(node, ast.Name) or node.id in source.rebound:
        return False
    assigned = [item for item in source.names.get(node.id, []) if not (isinstance(item, ast.Constant) and item.value in (None, ""))]
    if assigned:
        return all(_comes_from(program, source, item, key, depth + 1) for item in assigned)
    return _is_passed(program, node.id, source, key, depth)


def _is_passed(program: JobProgram, name: str, source: TrainerSource, key: str, depth: int) -> bool:
    """Tell whether all that call the function of a parameter hand it the value of an option."""
    functions = [function for function, nodes in source.functions.items() for node in nodes if name in _parameters(node)]
    if len(functions) != 1:
        return False
    parameters = _parameters(source.functions[functions[0]][0])
    place = parameters.index(name) - (parameters[:1] == ["self"])
    uses = [(item, call) for item in program.sources for call in item.called(functions[0])]
    values = [call.keywords.get(name) or (call.positional[place] if place < len(call.positional) else None) for _, call in uses]
    return bool(uses) and all(
        value is not None and _comes_from(program, item, value, key, depth + 1)
        for (item, _), value in zip(uses, values, strict=True)
    )


def _parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    return [item.arg for item in (*node.args.posonlyargs, *node.args.args)]


def _only_if_given(
    program: JobProgram, source: TrainerSource, call: SourceCall, key: str, settings: Mapping[str, str], depth: int = 0
) -> bool:
    """Tell whether a call is made wherever the option is given: the tests around it, and around its function, ask nothing else."""
    if depth > MOST_PASSES or not all(_asks_only(program, source, test, key, settings) for test in call.conditions):
        return False
    functions = [name for name, _ in enclosing_functions(source, call.line)]
    if not functions:
        return True
    uses = [(item, use) for item in program.sources for use in item.called(functions[-1])]
    if functions[-1] == "main" or any(node.decorator_list for node in source.functions.get(functions[-1], [])):
        return True
    return any(_only_if_given(program, item, use, key, settings, depth + 1) for item, use in uses)


def _asks_only(program: JobProgram, source: TrainerSource, test: ast.expr, key: str, settings: Mapping[str, str]) -> bool:
    """Tell whether a test asks for an option alone, whether it is given and there, or for a setting that is known to hold."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return all(_asks_only(program, source, item, key, settings) for item in test.values)
    roots = {
        node.value.id
        for node in ast.walk(test)
        if isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.value, ast.Name)
    }
    names = []
    for node in ast.walk(test):
        if isinstance(node, ast.Attribute):
            names.append(node.attr)
        elif isinstance(node, ast.Name) and node.id not in roots:
            names.append(node.id)
        elif isinstance(node, ast.Constant) and node.value not in (None, ""):
            names.append(str(node.value))
    foreign_names = [name for name in names if name not in TESTED and name != key and name not in ("get", "getattr")]
    if len(foreign_names) == 1 and key not in names and settings.get(foreign_names[0], "").lower() == "true":
        return not isinstance(test, ast.UnaryOp | ast.Compare)
    return all(_comes_from(program, source, ast.Name(name, ast.Load()), key) for name in foreign_names)


def _gives_back_a_count(source: TrainerSource, call: SourceCall) -> bool:
    """Tell whether a step or an epoch is taken out of what a call loads, to go on from."""
    names = {
        name
        for name, values in source.names.items()
        if any(isinstance(item, ast.Call) and item.lineno == call.line and dotted(item.func) == call.name for item in values)
    }
    values = (
        node.value for node in ast.walk(syntax_tree(source.text)) if isinstance(node, ast.Assign | ast.AnnAssign | ast.Return)
    )
    return any(_is_count_of(inner, names) for value in values if value is not None for inner in ast.walk(value))


def _is_count_of(node: ast.AST, names: Collection[str]) -> bool:
    """Tell whether an expression takes a step or an epoch out of one of some names."""
    base, key = None, None
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        base, key = node.value, node.slice.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop") and node.args:
        first = node.args[0]
        base, key = node.func.value, first.value if isinstance(first, ast.Constant) else None
    is_key = isinstance(base, ast.Name) and base.id in names
    return is_key and isinstance(key, str) and key.lower() in (*STEP_KEYS, *EPOCH_KEYS)


def _is_set_again(source: TrainerSource, key: str) -> bool:
    """Tell whether a program gives the option or the key a value of its own: it may load something else then."""
    if not source.parsed:
        return True
    for node in ast.walk(syntax_tree(source.text)):
        targets = (
            node.targets
            if isinstance(node, ast.Assign)
            else [node.target]
            if isinstance(node, ast.AugAssign | ast.AnnAssign)
            else []
        )
        for target in targets:
            if isinstance(target, ast.Attribute) and target.attr == key:
                return True
            if isinstance(target, ast.Subscript) and isinstance(target.slice, ast.Constant) and target.slice.value == key:
                return True
    return False
