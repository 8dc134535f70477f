"""Whether a program proves that it resumes from what an option, a key or a variable of it names.

It counts where that is handed to what restores a training: `fit(ckpt_path=…)`, `train(resume_from_checkpoint=…)`, or a load whose
file gives back a step or an epoch as well, wherever the option is given. Megatron-LM and its kin, torchtitan, NeMo, Composer and
nanoGPT have known options and calls.
"""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import PurePosixPath
from typing import NamedTuple

from assistant.recover.checkpoints.inner_counts import EPOCH_KEYS, STEP_KEYS
from assistant.recover.checkpoints.layout import KERAS_WEIGHTS
from assistant.recover.checkpoints.save_options import is_torchtitan
from assistant.recover.job_program import JobProgram
from assistant.recover.launch_arguments import takes_arguments
from assistant.recover.resume.means import NO, SAYS_NEWEST, ResumeMeans, ResumeWay
from assistant.recover.shell.folders import UNRESOLVED
from assistant.recover.source.declared_settings import UNKNOWN
from assistant.recover.source.file_uses import LOADERS, file_uses
from assistant.recover.source.load_calls import branch_of_a_path, enclosing_functions, in_loop
from assistant.recover.source.trainer_source import SourceCall, TrainerSource, dotted, syntax_tree

MEGATRON_PROGRAM = re.compile(r"pretrain_(?:gpt|bert|t5|mamba|vlm|retro|ict|vision_\w+)\.py")
"""Training programs that Megatron-LM ships."""
COUNTS_ANEW = ("finetune", "reset_iteration")
"""Options with which Megatron-LM, Megatron-DeepSpeed and GPT-NeoX count from 0 at each start, also over their own checkpoints.

Source: NVIDIA/Megatron-LM, training/checkpointing.py, load_checkpoint(): `if args.finetune or release: iteration = 0`.
"""
PLAIN_LIBRARIES = frozenset(
    "torch numpy torchvision torchaudio datasets tokenizers tqdm wandb tensorboard matplotlib pandas scipy yaml safetensors "
    "packaging psutil einops sentencepiece tiktoken transformers accelerate lightning pytorch_lightning peft deepspeed jax flax "
    "optax mpi4py rich omegaconf hydra absl sklearn PIL requests".split()
)
"""Libraries that resume nothing unless the program asks them to."""
RESUMES_NANOGPT = "--init_from=resume"
OVER_ITSELF = "its old checkpoints and the tracker are written over"


def torchtitan(program: JobProgram) -> ResumeWay | None:
    """Return how torchtitan goes on; None where a program is none of its."""
    if not is_torchtitan(program) or (program.source is not None and not imports(program, "torchtitan")):
        return None
    step = program.option("checkpoint.load_step")
    if step is not None and step.value not in ("-1", "null"):
        return ResumeWay(ResumeMeans.FIXED, step.where, f"step-{step.value}")
    switch = program.option("checkpoint.enable", "checkpoint.enable_checkpoint")
    if switch is None and (file := program.unread("job.config_file")):
        return ResumeWay(ResumeMeans.UNKNOWN, f"{file} cannot be read, and may set checkpoint.enable")
    if switch is None and (recipe := program.option("config")) is not None and program.option("checkpoint.no_enable") is None:
        # pytorch/torchtitan, config/manager.py: since 2026 `--module llama3 --config NAME` is a function in Python
        return ResumeWay(ResumeMeans.UNKNOWN, f"{recipe.where} may set checkpoint.enable")
    if switch is not None and switch.value != "false":
        return ResumeWay(ResumeMeans.NEWEST, f"torchtitan loads the newest step-N with .metadata; {switch.where}")
    return ResumeWay(ResumeMeans.NONE, "checkpoint.enable is not set")


def megatron(program: JobProgram) -> ResumeWay | None:
    """Return how Megatron-LM, Megatron-DeepSpeed or GPT-NeoX go on; None where a program is none of theirs."""
    shape = program.option("num_layers", "tensor_model_parallel_size", "micro_batch_size", "save_interval", "ckpt_format")
    save = program.option("save")
    if save is None or "." in save.name or (shape is None and MEGATRON_PROGRAM.fullmatch(program.name) is None):
        return None
    if program.source is not None and not imports(program, "megatron"):
        return None
    load, step = program.option("load"), program.option("ckpt_step")
    if load is None or load.value in NO:
        return ResumeWay(ResumeMeans.NONE, f"no --load on the command line of {program.name}")
    for name in COUNTS_ANEW:
        if (anew := program.option(name)) is not None and anew.value.lower() not in NO:
            return ResumeWay(ResumeMeans.NONE, f"{anew.where}: the weights of --load alone are taken", destroys=OVER_ITSELF)
    if (local := program.option("non_persistent_ckpt_type", "non_persistent_save_interval")) is not None:
        return ResumeWay(ResumeMeans.UNKNOWN, f"{local.where}: a checkpoint that is not kept may be newer, and is then loaded")
    if (tag := program.option("load_tag")) is not None:
        return ResumeWay(ResumeMeans.FIXED, tag.where, f"{load.value}/{tag.value}")
    if step is not None:
        return ResumeWay(ResumeMeans.FIXED, step.where, f"{load.value}/iter_{step.value:0>7}")
    return ResumeWay(ResumeMeans.TRACKER, f"{load.where} of {program.name}, latest_checkpointed_iteration.txt", load.value)


def nemo_or_composer(program: JobProgram) -> ResumeWay | None:
    """Return what `resume_if_exists` or `autoresume` say; None where neither is given."""
    for option, calls in (("resume_if_exists", ("AutoResume", "exp_manager")), ("autoresume", ("Trainer",))):
        option_set = program.option(option)
        value = option_set.value if option_set is not None else None
        call_place = option_set.where if option_set is not None else option
        for call in program.calls:
            if call.method in calls and option in call.keywords and (source := _source_of(program, call)) is not None:
                call_value = source.value(call.keywords[option])
                value, call_place = str(call_value).lower(), f"{option}= in {file_name(source)}, line {call.line}"
        if value is not None:
            if value.lower() != "true":
                return ResumeWay(ResumeMeans.NONE, f"{call_place} is {value}")
            # NVIDIA/NeMo, lightning/resume.py and utils/exp_manager.py: only `*last`, and 0 or an error where there is none
            return ResumeWay(ResumeMeans.NEWEST, call_place, ending="last" if option == "resume_if_exists" else "")
    return None


def imports(program: JobProgram, library: str) -> bool:
    """Tell whether a program, or a module beside it, imports a library."""
    return any(module.partition(".")[0] == library for source in program.sources for module in source.modules)


def _source_of(program: JobProgram, call: SourceCall) -> TrainerSource | None:
    return next((source for source in program.sources if call in source.calls), None)


def file_name(source: TrainerSource) -> str:
    """Return the name of a program's file, for people."""
    return PurePosixPath(source.path).name


def argued(way: ResumeWay, script: str, programs: Sequence[JobProgram]) -> ResumeWay:
    """Return that a program which begins anew goes on by one argument, where its source proves that and the script passes it on.

    Source: karpathy/nanoGPT, train.py and configurator.py: `--init_from=resume` behind all else decides, and loads `ckpt.pt`.
    """
    program = programs[0] if len(programs) == 1 else None
    if way.means is not ResumeMeans.NONE or program is None or program.source is None or not nanogpt(program):
        return way
    text = program.source.text
    configured = re.search(r"exec\(open\(['\"]configurator\.py['\"]\)", text) or "init_from" in program.source.options
    loads = re.search(r"init_from\s*==\s*['\"]resume['\"]", text) and re.search(r"['\"/]ckpt\.pt['\"]", text)
    if not configured or not loads or not takes_arguments(script, program.launch.program):
        return way
    by = f"{RESUMES_NANOGPT}, which Nightshift puts behind its command line: {way.by}"
    return replace(way, means=ResumeMeans.ARGUMENT, by=by, prefix="ckpt.pt", argument=RESUMES_NANOGPT, destroys="")


def nanogpt(program: JobProgram) -> ResumeWay | None:
    """Return what `init_from` of nanoGPT and its kin says; None where a program has none."""
    option = program.option("init_from")
    init_value = program.source.named("init_from") if program.source is not None else UNKNOWN
    value = option.value if option is not None else init_value if isinstance(init_value, str) else None
    if value is None or not re.fullmatch(r"scratch|resume|gpt2[\w-]*", value):
        return None
    by = option.where if option is not None else f"init_from in {program.name}"
    return ResumeWay(ResumeMeans.NEWEST if value == "resume" else ResumeMeans.NONE, f"{by} is {value}")


def foreign_library(program: JobProgram) -> str:
    """Return a library that a program imports and that may resume by itself; empty where there is none."""
    own = {PurePosixPath(source.path).stem for source in program.sources}
    own |= {PurePosixPath(module.path).parent.name for module in program.modules}
    for source in program.sources:
        for module in source.modules:
            top = module.lstrip(".").partition(".")[0]
            if (
                top
                and top not in own
                and top not in PLAIN_LIBRARIES
                and top not in sys.stdlib_module_names
                and not module.startswith(".")
            ):
                return top
    return ""


def keras(program: JobProgram) -> ResumeWay | None:
    """Return that Keras goes on from its backup; None where `fit()` is not handed one.

    Source: keras-team/keras, callbacks/backup_and_restore.py, on_train_begin(): it loads weights and epoch that lie in backup_dir.
    """
    if not any(imports(program, library) for library in ("keras", "tensorflow", "tf_keras")):
        return None
    for source in program.sources:
        backup = next(source.called("BackupAndRestore"), None)
        fits = [call for call in source.called("fit") if "callbacks" in call.keywords]
        if backup is None or not fits:
            continue
        call_place = f"{backup.method}() in {file_name(source)}, line {backup.line}"
        handed = any(backup.method in source.text_of(call.keywords["callbacks"]) for call in fits)
        folder = source.value(backup.keywords.get("backup_dir") or next(iter(backup.positional), None))
        several = len(list(source.called("fit", "BackupAndRestore"))) > 2 or any(in_loop(source, call.line) for call in fits)
        if backup.conditions or not handed or several or not isinstance(folder, str) or UNRESOLVED in folder:
            return ResumeWay(ResumeMeans.UNKNOWN, f"{call_place}, and whether each fit() takes it is known only when it runs")
        return ResumeWay(ResumeMeans.NEWEST, call_place, prefix=KERAS_WEIGHTS)
    return None


def trainer_calls(program: JobProgram, method: str, *libraries: str) -> Iterator[tuple[TrainerSource, SourceCall]]:
    """Yield the calls of a trainer's method, not those of a model: `trainer.train()` and not `model.train()`."""
    if not any(imports(program, library) for library in libraries):
        return
    for source in program.sources:
        for call in source.called(method):
            base = call.name.rpartition(".")[0]
            constructor_calls = [
                assigned_value for assigned_value in source.names.get(base, ()) if isinstance(assigned_value, ast.Call)
            ]
            if "trainer" in base.lower() or any(
                "Trainer" in ast.unparse(assigned_call.func) for assigned_call in constructor_calls
            ):
                yield source, call


WHOLE = {"fit": "ckpt_path", "train": "resume_from_checkpoint"}
"""Calls that restore a training as a whole, with their argument."""
WHOLE_METHODS = (*WHOLE, "load_state")
HAS_WEIGHTS = frozenset(("state_dict", "parameters", "backward", "zero_grad", "load_state_dict"))
"""Calls of a program that has weights, which a load has to give back as well."""
MOST_PASSES = 4
PASSED_ON = frozenset(("Path", "str", "abspath", "expanduser", "realpath", "to_absolute_path", "resolve", "expandvars", "fspath"))
TESTED = frozenset("os path exists isfile isdir is_file is_dir Path len str lower strip not None".split())
"""Names in a test that asks whether there is a checkpoint to load."""


class ArgumentProof(NamedTuple):
    """That a program goes on by an argument."""

    call: str
    """For people: `fit() in train.py, line 12`."""
    files: bool
    """Whether what it loads must be one file."""
    folders: bool = False
    """Whether it must be a folder, of which the program loads files."""


def proof_of_load(
    program: JobProgram,
    key: str,
    settings: Mapping[str, str] | None = None,
    *,
    folders: bool = False,
    counted_on: bool = False,
) -> ArgumentProof | None:
    """Return the call of a program's source that restores a training from what an option, a key or a variable names; else None.

    Args:
        program: Started with it.
        key: Name of the option as the source reads it, or of the variable.
        settings: Of its configurations, by the last part of their keys.
        folders: Whether files of a folder that it names count as well.
        counted_on: Whether the step that the file gives back must be the one that is counted on from: a teacher has one, too.
    """
    settings = settings or {}
    has_no_weights = HAS_WEIGHTS.isdisjoint(call.method for call in program.calls)
    if any(is_set_again(source, key) for source in program.sources):
        return None
    for source in program.sources:
        for call in source.calls:
            node = checkpoint_argument(program, source, call)
            if node is None:
                continue
            folder = _folder_of(source, node) if folders else None
            if not comes_from(program, source, folder or node, key):
                continue
            if not _only_if_given(program, source, call, key, settings):
                continue
            place = f"{call.method}() in {file_name(source)}, line {call.line}"
            if call.method in WHOLE_METHODS:
                return ArgumentProof(place, files=False)
            if counted_on and not _is_counted_on(source, call):
                continue
            if gives_back_a_count(source, call, alone=has_no_weights and call.name not in LOADERS) or (
                folder is not None and _counts_by_name(program, key)
            ):
                return ArgumentProof(place, files=folder is None, folders=folder is not None)
    return None


def checkpoint_argument(program: JobProgram, source: TrainerSource, call: SourceCall) -> ast.expr | None:
    """Return the argument of a call that names what it loads; None of a call that loads no checkpoint."""
    if call.method == "fit" and any(imports(program, item) for item in ("lightning", "pytorch_lightning")):
        return call.keywords.get("ckpt_path")
    if call.method == "train" and any(imports(program, item) for item in ("transformers", "trl")):
        return call.keywords.get("resume_from_checkpoint")
    if call.method == "load_state" and imports(program, "accelerate"):
        return call.keywords.get("input_dir") or (call.positional[0] if call.positional else None)
    if call.name in ("torch.load", "paddle.load", "joblib.load"):
        return call.positional[0] if call.positional else call.keywords.get("f")
    own = (load for load in file_uses(program).loads if load.source is source and load.call is call)
    return next((load.node for load in own), None)


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
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        right = node.right.left if isinstance(node.right, ast.BinOp) else node.right  # `X + "/part_%d.bin" % rank`
        if isinstance(right, ast.Constant) and str(right.value).startswith("/"):
            return node.left
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
                if any(comes_from(program, source, part, key) for part in parts):
                    return True
    return False


def comes_from(program: JobProgram, source: TrainerSource, node: ast.expr, key: str, depth: int = 0) -> bool:
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
        return inner is not None and comes_from(program, source, inner, key, depth + 1)
    if isinstance(node, ast.IfExp):
        needed = [item for item in branch_of_a_path(node, SAYS_NEWEST) if item is not None]
        return bool(needed) and all(comes_from(program, source, item, key, depth + 1) for item in needed)
    if isinstance(node, ast.BoolOp):
        return isinstance(node.op, ast.Or) and comes_from(program, source, node.values[0], key, depth + 1)
    if not isinstance(node, ast.Name) or node.id in source.rebound:
        return False
    assigned = [item for item in source.names.get(node.id, []) if not (isinstance(item, ast.Constant) and item.value in (None, ""))]
    if assigned:
        return all(comes_from(program, source, item, key, depth + 1) for item in assigned)
    return _is_passed(program, node.id, source, key, depth)


def _is_passed(program: JobProgram, name: str, source: TrainerSource, key: str, depth: int) -> bool:
    """Tell whether all that call the function of a parameter hand it the value of an option."""
    functions = [function for function, nodes in source.functions.items() for node in nodes if name in parameters_of(node)]
    if len(functions) != 1:
        return False
    parameters = parameters_of(source.functions[functions[0]][0])
    place = parameters.index(name) - (parameters[:1] == ["self"])
    uses = [(item, call) for item in program.sources for call in item.called(functions[0])]
    values = [call.keywords.get(name) or (call.positional[place] if place < len(call.positional) else None) for _, call in uses]
    return bool(uses) and all(
        value is not None and comes_from(program, item, value, key, depth + 1)
        for (item, _), value in zip(uses, values, strict=True)
    )


def parameters_of(node: ast.FunctionDef | ast.AsyncFunctionDef) -> list[str]:
    """Return the names of a function's parameters, in their order."""
    return [item.arg for item in (*node.args.posonlyargs, *node.args.args)]


def _only_if_given(
    program: JobProgram, source: TrainerSource, call: SourceCall, key: str, settings: Mapping[str, str], depth: int = 0
) -> bool:
    """Tell whether a call is made wherever the option is given: the tests around it, and around its function, ask nothing else."""
    if depth > MOST_PASSES or not all(asks_only(program, source, test, key, settings) for test in call.conditions):
        return False
    functions = [name for name, _ in enclosing_functions(source, call.line)]
    if not functions:
        return True
    uses = [(item, use) for item in program.sources for use in item.called(functions[-1])]
    if functions[-1] == "main" or any(node.decorator_list for node in source.functions.get(functions[-1], [])):
        return True
    return any(_only_if_given(program, item, use, key, settings, depth + 1) for item, use in uses)


def asks_only(program: JobProgram, source: TrainerSource, test: ast.expr, key: str, settings: Mapping[str, str]) -> bool:
    """Tell whether a test asks for an option alone, whether it is given and there, or for a setting that is known to hold."""
    if isinstance(test, ast.BoolOp) and isinstance(test.op, ast.And):
        return all(asks_only(program, source, item, key, settings) for item in test.values)
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
    return all(comes_from(program, source, ast.Name(name, ast.Load()), key) for name in foreign_names)


def gives_back_a_count(source: TrainerSource, call: SourceCall, *, alone: bool = False) -> bool:
    """Tell whether a step or an epoch is taken out of what a call loads, to go on from.

    Args:
        source: That the call stands in.
        call: That loads.
        alone: Whether it counts also where all else of what is loaded is dropped at once: `load(path)["step"]`.
    """

    def is_call(node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and node.lineno == call.line and dotted(node.func) == call.name

    def is_dropped(node: ast.AST) -> bool:
        return alone and is_call(node)

    names = {name for name, values in source.names.items() if any(is_call(item) for item in values)}
    values = (
        node.value for node in ast.walk(syntax_tree(source.text)) if isinstance(node, ast.Assign | ast.AnnAssign | ast.Return)
    )
    return any(_is_count_of(inner, names, is_dropped) for value in values if value is not None for inner in ast.walk(value))


def _is_counted_on(source: TrainerSource, call: SourceCall) -> bool:
    """Tell whether a name to which what a call loads gives a step or an epoch is the one that the program counts on."""
    loaded = {
        name
        for name, values in source.names.items()
        if any(isinstance(item, ast.Call) and item.lineno == call.line and dotted(item.func) == call.name for item in values)
    }

    def is_load(node: ast.AST) -> bool:
        return isinstance(node, ast.Call) and node.lineno == call.line and dotted(node.func) == call.name

    counts = {
        name
        for name, values in source.names.items()
        if any(_is_count_of(inner, loaded, is_load) for value in values for inner in ast.walk(value))
    }
    for node in ast.walk(syntax_tree(source.text)):
        if isinstance(node, ast.AugAssign) and isinstance(node.target, ast.Name) and node.target.id in counts:
            return True
        first = node.args[:1] if isinstance(node, ast.Call) and dotted(node.func) == "range" and len(node.args) > 1 else []
        if any(isinstance(inner, ast.Name) and inner.id in counts for item in first for inner in ast.walk(item)):
            return True
    return False


COUNTS = re.compile(r"(?:cur(?:rent)?_|global_|train_|last_)?(?:batch_idx|step|iter|iteration|epoch|update)s?(?:_train|_num|_idx)?")
"""Other keys under which programs keep how far they have come."""


def _is_count_of(node: ast.AST, names: Collection[str], is_load: Callable[[ast.AST], bool]) -> bool:
    """Tell whether an expression takes a step or an epoch out of one of some names, or out of the call itself."""
    base, key = None, None
    if isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Constant):
        base, key = node.value, node.slice.value
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in ("get", "pop") and node.args:
        first = node.args[0]
        base, key = node.func.value, first.value if isinstance(first, ast.Constant) else None
    is_loaded = base is not None and ((isinstance(base, ast.Name) and base.id in names) or is_load(base))
    return (
        is_loaded
        and isinstance(key, str)
        and (key.lower() in (*STEP_KEYS, *EPOCH_KEYS) or COUNTS.fullmatch(key.lower()) is not None)
    )


def is_set_again(source: TrainerSource, key: str) -> bool:
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
