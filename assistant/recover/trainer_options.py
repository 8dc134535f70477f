"""How Megatron-LM and its kin, torchtitan, NeMo, Composer and nanoGPT resume: by options, and by calls in their source."""

from __future__ import annotations

import ast
import re
import sys
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import PurePosixPath

from assistant.recover.checkpoints.layout import KERAS_WEIGHTS
from assistant.recover.checkpoints.save_options import is_torchtitan
from assistant.recover.declared_options import UNKNOWN
from assistant.recover.job_program import JobProgram
from assistant.recover.load_calls import in_loop
from assistant.recover.restart import takes_arguments
from assistant.recover.resume_means import NO, ResumeMeans, ResumeWay
from assistant.recover.shell.folders import UNRESOLVED
from assistant.recover.trainer_source import SourceCall, TrainerSource

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
        given = program.option(option)
        value = given.value if given is not None else None
        where = given.where if given is not None else option
        for call in program.calls:
            if call.method in calls and option in call.keywords and (source := _source_of(program, call)) is not None:
                found = source.value(call.keywords[option])
                value, where = str(found).lower(), f"{option}= in {file_name(source)}, line {call.line}"
        if value is not None:
            if value.lower() != "true":
                return ResumeWay(ResumeMeans.NONE, f"{where} is {value}")
            # NVIDIA/NeMo, lightning/resume.py and utils/exp_manager.py: only `*last`, and 0 or an error where there is none
            return ResumeWay(ResumeMeans.NEWEST, where, ending="last" if option == "resume_if_exists" else "")
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
    named = program.source.named("init_from") if program.source is not None else UNKNOWN
    value = option.value if option is not None else named if isinstance(named, str) else None
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
        where = f"{backup.method}() in {file_name(source)}, line {backup.line}"
        handed = any(backup.method in source.text_of(call.keywords["callbacks"]) for call in fits)
        folder = source.value(backup.keywords.get("backup_dir") or next(iter(backup.positional), None))
        several = len(list(source.called("fit", "BackupAndRestore"))) > 2 or any(in_loop(source, call.line) for call in fits)
        if backup.conditions or not handed or several or not isinstance(folder, str) or UNRESOLVED in folder:
            return ResumeWay(ResumeMeans.UNKNOWN, f"{where}, and whether each fit() takes it is known only when it runs")
        return ResumeWay(ResumeMeans.NEWEST, where, prefix=KERAS_WEIGHTS)
    return None


def trainer_calls(program: JobProgram, method: str, *libraries: str) -> Iterator[tuple[TrainerSource, SourceCall]]:
    """Yield the calls of a trainer's method, not those of a model: `trainer.train()` and not `model.train()`."""
    if not any(imports(program, library) for library in libraries):
        return
    for source in program.sources:
        for call in source.called(method):
            base = call.name.rpartition(".")[0]
            made = [one for one in source.names.get(base, ()) if isinstance(one, ast.Call)]
            if "trainer" in base.lower() or any("Trainer" in ast.unparse(one.func) for one in made):
                yield source, call
