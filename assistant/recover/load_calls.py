"""What the calls of a training program load: checkpoints of its own or something else, one file or what a run chooses."""

from __future__ import annotations

import ast
import re
import sys
from pathlib import PurePosixPath

from assistant.recover.checkpoints.layout import could_be_checkpoint
from assistant.recover.job_program import JobProgram
from assistant.recover.shell_words import UNRESOLVED
from assistant.recover.trainer_source import UNKNOWN, SourceCall, TrainerSource

SAVED_NAMES = re.compile(
    r"ckpt|check_?point|step|iter|epoch|save|resume|latest|last|snapshot|state|get_last|\bout|model_\*|\.ckpt\b", re.IGNORECASE
)
BASE_NAMES = re.compile(r"pretrain|base_model|init_weights|teacher|vocab|token|dataset", re.IGNORECASE)

PLAIN_LIBRARIES = frozenset(
    "torch numpy torchvision torchaudio datasets tokenizers tqdm wandb tensorboard matplotlib pandas scipy yaml safetensors "
    "packaging psutil einops sentencepiece tiktoken transformers accelerate lightning pytorch_lightning peft deepspeed jax flax "
    "optax mpi4py rich omegaconf hydra absl sklearn PIL requests".split()
)
"""Libraries that resume nothing unless the program asks them to."""


def only_file(source: TrainerSource, call: SourceCall) -> str:
    """Return the name of the one file that a call loads at each start; empty where it is not known before the run."""
    value = source.value(call.positional[0]) if call.positional else UNKNOWN
    if not isinstance(value, str) or UNRESOLVED in value:
        return ""
    name = PurePosixPath(value).name
    return name if could_be_checkpoint(name, folder=False) else ""


def about_saves(source: TrainerSource, call: SourceCall) -> bool:
    """Tell whether a call is about checkpoints, by how its object and its arguments are written: not about data or base weights."""
    nodes: list[ast.expr] = [*call.positional, *call.keywords.values()]
    nodes += source.names.get(call.name.partition(".")[0], [])
    written = " ".join([call.name, *(source.text_of(node) for node in nodes), *(str(source.value(node)) for node in nodes)])
    return SAVED_NAMES.search(written) is not None and BASE_NAMES.search(written) is None


def has_another_source(source: TrainerSource, call: SourceCall) -> bool:
    """Tell whether what a call loads is an option's value or, without it, something that the program itself looks up."""
    node = call.positional[0] if call.positional else None
    values = source.names.get(node.id, []) if isinstance(node, ast.Name) else []
    options = [one for one in values if isinstance(one, ast.Attribute)]
    others = [one for one in values if not isinstance(one, ast.Attribute | ast.Constant | ast.Name)]
    return bool(options and others)


def enclosing_functions(source: TrainerSource, line: int) -> list[tuple[str, frozenset[str]]]:
    """Return the functions that a line stands in, outermost first, each with the names of its parameters."""
    functions = [
        node
        for node in ast.walk(ast.parse(source.text))
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.lineno <= line <= (node.end_lineno or node.lineno)
    ]
    parameters = [[*node.args.posonlyargs, *node.args.args, *node.args.kwonlyargs] for node in functions]
    return [(node.name, frozenset(one.arg for one in own)) for node, own in zip(functions, parameters, strict=True)]


def known_at_run_only(source: TrainerSource, call: SourceCall) -> bool:
    """Tell whether what a call loads is chosen while it runs; weights of a model that are put in place are no load of their own."""
    if call.method == "load_state_dict":
        return False
    values = [source.value(node) for node in call.positional[:1] or list(call.keywords.values())[:1]]
    return not values or values[0] is UNKNOWN or (isinstance(values[0], str) and UNRESOLVED in values[0])


def foreign_library(program: JobProgram) -> str:
    """Return a library that a program imports and that may resume by itself; empty where there is none."""
    own = {PurePosixPath(source.path).stem for source in program.sources}
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
