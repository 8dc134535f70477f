"""How the frameworks resume whose training programs are installed and cannot be read beside the job: by their options alone.

Told from the command (`axolotl train`, `fairseq-train`, `python -m verl.trainer.main_ppo`) and from options that only one
framework has. Where the configuration that decides cannot be read, nothing is said.

Source: the programs named in each function, versions of 2024 to 2026.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import PurePosixPath

from assistant.recover.job_program import JobProgram, Option
from assistant.recover.resume_means import NO, ResumeMeans, ResumeWay, by_text

COMMAND_WORDS = 14
"""Words of a launch among which its command stands: `srun` and `torchrun` come with options of their own."""


def installed_trainer(program: JobProgram) -> ResumeWay | None:
    """Return how the program of a framework resumes; None where it is none of these or its options do not tell."""
    for known in (_llama_factory, _axolotl, _litgpt, _olmo, _nanotron, _fairseq, _verl, _maxtext, _openrlhf):
        way = known(program)
        if way is not None:
            return way
    return None


def installed_folders(program: JobProgram) -> Iterator[Option]:
    """Yield the folders that frameworks make up from several options."""
    base, run = program.option("base_output_directory"), program.option("run_name")
    if base is not None and run is not None:
        yield Option("base_output_directory", f"{base.value}/{run.value}/checkpoints", f"{base.where}, run_name, MaxText's form")
    logs, name = program.option("logs"), program.option("name")
    open_clip = _runs(program, r"open_clip_train\.main|training\.main|(?:\S*/)?(?:open_clip_train|training)/main\.py")
    if name is not None and open_clip:
        above, where = (logs.value, logs.where) if logs is not None else ("logs", name.where)
        yield Option("logs", f"{above}/{name.value}/checkpoints", f"{where}, --name, OpenCLIP's form")
    path = program.option("ckpt_path")
    if path is not None and _runs(program, r"openrlhf\.cli\.\w+"):
        yield path


def _runs(program: JobProgram, pattern: str) -> bool:
    """Tell whether a launch runs a command, a module or a script of this name."""
    words = [program.launch.program, *program.launch.words[:COMMAND_WORDS]]
    return any(re.fullmatch(pattern, name) for word in words for name in (word, PurePosixPath(word).name))


def _given(program: JobProgram, *names: str) -> Option | None:
    """Return an option that has a value: not null, not false."""
    option = program.option(*names)
    return option if option is not None and option.value.strip().lower() not in NO else None


def _llama_factory(program: JobProgram) -> ResumeWay | None:
    """Source: hiyouga/LLaMA-Factory, hparams/parser.py: get_last_checkpoint() unless overwrite_output_dir."""
    if not _runs(program, r"llamafactory-cli|lmf") or program.option("output_dir") is None:
        return None
    stage, kind = program.option("stage"), program.option("finetuning_type")
    if stage is not None and stage.value in ("rm", "ppo") and kind is not None and kind.value in ("full", "freeze"):
        return ResumeWay(ResumeMeans.NONE, f"LLaMA-Factory does not resume stage {stage.value} with {kind.value}")
    if (named := _given(program, "resume_from_checkpoint")) is not None:
        return by_text(named.value, named.where)
    if (over := _given(program, "overwrite_output_dir")) is not None:
        return ResumeWay(ResumeMeans.NONE, f"{over.where}: it begins anew, over what is there")
    return ResumeWay(ResumeMeans.NEWEST, "LLaMA-Factory, without overwrite_output_dir")


def _axolotl(program: JobProgram) -> ResumeWay | None:
    """Source: axolotl-ai-cloud/axolotl, utils/train.py, determine_last_checkpoint()."""
    if not _runs(program, r"axolotl|axolotl\.cli\.train") or program.option("base_model") is None:
        return None
    if (named := _given(program, "resume_from_checkpoint")) is not None:
        return by_text(named.value, named.where)
    if (auto := _given(program, "auto_resume_from_checkpoints")) is not None:
        return ResumeWay(ResumeMeans.NEWEST, auto.where)
    return ResumeWay(ResumeMeans.NONE, "auto_resume_from_checkpoints is not set for Axolotl")


def _litgpt(program: JobProgram) -> ResumeWay | None:
    """Source: Lightning-AI/litgpt, pretrain.py (newest lit_model.pth), finetune/*.py (only `final/`, written at the end)."""
    words = [PurePosixPath(word).name for word in program.launch.words[:COMMAND_WORDS]]
    if "litgpt" not in words or words[-1] == "litgpt":
        return None
    command = words[words.index("litgpt") + 1]
    resume = _given(program, "resume")
    if command.startswith("finetune"):
        return ResumeWay(ResumeMeans.NONE, f"litgpt {command} loads only the state that a finished run leaves in final/")
    if command != "pretrain":
        return None
    if resume is None and program.option("config") is not None and program.unread("config"):
        return None
    return by_text(resume.value, resume.where) if resume else ResumeWay(ResumeMeans.NONE, "litgpt pretrain without --resume")


def _olmo(program: JobProgram) -> ResumeWay | None:
    """Source: allenai/OLMo, scripts/train.py and config.py."""
    newest, over = program.option("try_load_latest_save"), program.option("save_overwrite")
    if program.option("save_folder") is None or (newest is None and over is None) or program.option("autoresume") is not None:
        return None
    if newest is not None and newest.value.lower() not in NO:
        return ResumeWay(ResumeMeans.NEWEST, newest.where)
    if (load := _given(program, "load_path")) is not None:
        return ResumeWay(ResumeMeans.FIXED, load.where, load.value)
    return ResumeWay(ResumeMeans.NONE, f"{(over or newest or program.options[0]).where}, without try_load_latest_save")


def _nanotron(program: JobProgram) -> ResumeWay | None:
    """Source: huggingface/nanotron, serialize/main.py, parse_ckpt_path(): a folder with latest.txt, or one checkpoint."""
    if program.option("checkpoints.checkpoints_path") is None:
        return None
    load = _given(program, "checkpoints.resume_checkpoint_path")
    if load is None:
        return ResumeWay(ResumeMeans.NONE, "resume_checkpoint_path of nanotron is not set")
    if PurePosixPath(load.value).name.isdecimal():
        return ResumeWay(ResumeMeans.FIXED, load.where, load.value)
    return ResumeWay(ResumeMeans.TRACKER, f"{load.where}: latest.txt in it", load.value)


def _fairseq(program: JobProgram) -> ResumeWay | None:
    """Source: facebookresearch/fairseq, checkpoint_utils.py, load_checkpoint(): checkpoint_last.pt in --save-dir by default."""
    if not _runs(program, r"fairseq-train|fairseq_cli\.train"):
        return None
    restore = program.option("restore_file")
    if restore is None or restore.value == "checkpoint_last.pt":
        return ResumeWay(ResumeMeans.NEWEST, "fairseq restores checkpoint_last.pt of its --save-dir", prefix="checkpoint_last")
    return ResumeWay(ResumeMeans.FIXED, restore.where, restore.value)


def _verl(program: JobProgram) -> ResumeWay | None:
    """Source: volcengine/verl, trainer/ppo/ray_trainer.py, _load_checkpoint(): trainer.resume_mode, `auto` by default."""
    if not _runs(program, r"verl\.trainer\.\w+"):
        return None
    mode = program.option("trainer.resume_mode")
    if mode is None or mode.value == "auto":
        return ResumeWay(ResumeMeans.TRACKER, "verl's resume_mode is auto: latest_checkpointed_iteration.txt")
    if mode.value == "disable":
        return ResumeWay(ResumeMeans.NONE, f"{mode.where} is disable")
    path = program.option("trainer.resume_from_path")
    return ResumeWay(ResumeMeans.FIXED, path.where, path.value) if path is not None else None


def _maxtext(program: JobProgram) -> ResumeWay | None:
    """Source: AI-Hypercomputer/maxtext, checkpointing.py: Orbax's newest step in base_output_directory/run_name/checkpoints."""
    if not _runs(program, r"(?i:maxtext)\.(?:trainers\.pre_train\.)?train"):
        return None
    enabled = program.option("enable_checkpointing")
    if enabled is not None and enabled.value.lower() in NO:
        return ResumeWay(ResumeMeans.NONE, f"{enabled.where} is {enabled.value}")
    return ResumeWay(ResumeMeans.NEWEST, "MaxText restores the newest step of its run_name")


def _openrlhf(program: JobProgram) -> ResumeWay | None:
    """Source: OpenRLHF/OpenRLHF, utils/deepspeed: load_checkpoint of DeepSpeed's file `latest` in --ckpt_path."""
    if not _runs(program, r"openrlhf\.cli\.train_\w+"):
        return None
    load, path = _given(program, "load_checkpoint"), program.option("ckpt_path")
    if load is None:
        return ResumeWay(ResumeMeans.NONE, f"no --load_checkpoint on the command line of {program.name}")
    return ResumeWay(ResumeMeans.TRACKER, f"{load.where} of {program.name}: the file latest", path.value if path else "")
