"""How training frameworks resume, each as rows of one table that `installed_trainers` reads: told by commands and options alone.

Each row was read in the source of the framework (2024 to September 2026); `source` names file and function. What differs between
versions, and what only a run decides, is UNKNOWN, and an unknown way is never started unasked.

A row is taken when all its conditions hold, the first of a framework that does. A condition is `name` (an option is given, and not
false, null or empty), `=a|b` (one of these is given, whatever its value), `name=a|b` (with one of these values), `name!=a` (given,
and another value), `name#` (its path ends in a number), `$NAME` (a variable of the shell is set), `/text` (its command line or
source holds that text), or one of these behind `!`. A name without a dot is also the last part of a nested one.
"""

from __future__ import annotations

from dataclasses import dataclass

from assistant.recover.resume.means import ResumeMeans

FIXED, NEWEST, NONE, TRACKER, UNKNOWN = (
    ResumeMeans.FIXED, ResumeMeans.NEWEST, ResumeMeans.NONE, ResumeMeans.TRACKER, ResumeMeans.UNKNOWN,
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Row:
    """One case of a framework's rule."""

    when: tuple[str, ...]
    """Conditions, which all have to hold; empty: in every other case."""
    means: ResumeMeans | None
    """None: what the value of the first condition's option means (`latest`, a path, `false`)."""
    by: str
    """For people; `{where}` is where the first option of the conditions was given."""
    path: str = ""
    """As `ResumeWay.path`; `{a|b}` is the value of the first of these options that is given."""
    prefix: str = ""
    destroys: str = ""
    """What the start deletes or writes over, in words."""
    steered: bool = True
    """Whether renaming checkpoints and writing the tracker makes it load another one than it would by itself."""


@dataclass(frozen=True, slots=True)
class FrameworkRule:
    """How one framework is recognised and how it goes on."""

    name: str
    source: str
    rows: tuple[Row, ...]
    runs: str = ""
    """Pattern in its command line, as far as the program's name; where empty `options` or `imports` alone tell it."""
    options: tuple[str, ...] = ()
    """Conditions that hold for it only, without which nothing is said; `=imports` is that its program imports the library."""
    imports: str = ""
    """Library that its program imports, where the program can be read."""
    own_configs: str = ""
    """Pattern of configuration files that come with the framework and hold its defaults."""
    folders: tuple[str, ...] = ()
    """Where it saves, the first template whose options are given, where no option alone names it: `{a|b:default}`, `{$NAME}`, and
    `{@NAME}` for a setting that stands as two words."""


RULES: tuple[FrameworkRule, ...] = (
    FrameworkRule(
        "LLaMA-Factory", "hiyouga/LLaMA-Factory, hparams/parser.py, get_train_args(); train/ppo/trainer.py",
        runs=r"[ /](?:llamafactory-cli|lmf) train ",
        options=("output_dir",),
        rows=(
            Row(("stage=rm|ppo", "finetuning_type=full|freeze"), NONE,
                "LLaMA-Factory resumes neither reward models nor PPO in full"),
            Row(("stage=ppo",), UNKNOWN, "LLaMA-Factory's PPO stops where it finds a checkpoint to resume from"),
            Row(("resume_from_checkpoint",), None, "{where}"),
            Row(("overwrite_output_dir",), NONE, "{where}: it begins anew", destroys="its old checkpoints are written over"),
            Row(("$USE_V1",), UNKNOWN, "USE_V1 takes another trainer, which resumes by resume_from_checkpoint only"),
            Row((), NEWEST, "LLaMA-Factory, without overwrite_output_dir"),
        ),
    ),
    FrameworkRule(
        "Axolotl", "axolotl-ai-cloud/axolotl, utils/train.py, determine_last_checkpoint()",
        runs=r"[ /]axolotl train |axolotl[./]cli[./]train",
        options=("base_model",),
        rows=(
            Row(("resume_from_checkpoint",), None, "{where}"),
            Row(("auto_resume_from_checkpoints",), NEWEST, "{where}"),
            Row((), NONE, "auto_resume_from_checkpoints is not set for Axolotl"),
        ),
    ),
    FrameworkRule(
        "TRL", "huggingface/trl, scripts/*.py and examples/scripts/*.py: trainer.train() is given nothing",
        runs=r"[ /]trl (?:sft|dpo|grpo|kto|reward|rloo) |[ ./]trl[./](?:examples/)?scripts[./]\w",
        rows=(Row((), NONE, "TRL's own scripts call train() without a checkpoint, also where --resume_from_checkpoint is given"),),
    ),
    FrameworkRule(
        "ms-swift", "modelscope/ms-swift, arguments/sft_args.py, _add_version(); pipelines/train/sft.py, _get_resume_checkpoint()",
        runs=r"[ /]swift (?:sft|pt|rlhf) |swift[./](?:llm[./])?cli[./](?:sft|pt|rlhf)",
        rows=(
            Row(("resume_only_model",), NONE, "{where}: the weights alone are loaded"),
            Row(("resume_from_checkpoint",), None, "{where}"),
            Row(("use_flash_ckpt",), UNKNOWN, "{where} resumes from a folder of its own"),
            Row(("add_version=false",), NONE, "no --resume_from_checkpoint for swift",
                destroys="its old checkpoints are written over"),
            Row((), NONE, "no --resume_from_checkpoint for swift, which makes a new folder vN-DATE at each start"),
        ),
    ),
    FrameworkRule(
        "Megatron-SWIFT", "modelscope/ms-swift, megatron/arguments/megatron_args.py and trainers/base.py, _load_checkpoint()",
        runs=r"[ /]megatron (?:sft|pt|rlhf) |swift[./]cli[./]_megatron[./](?:sft|pt|rlhf)",
        rows=(
            Row(("finetune=false",), UNKNOWN, "which folder Megatron-SWIFT goes on from differs between its versions"),
            Row((), NONE, "--finetune is true by default for Megatron-SWIFT: the weights alone are loaded"),
        ),
    ),
    FrameworkRule(
        "litgpt",
        "Lightning-AI/litgpt, utils.py, find_resume_path(); pretrain.py, finetune/full.py; the others have no option to resume",
        runs=r"[ /]litgpt (?:pretrain|finetune_full) ",
        rows=(
            Row(("resume",), None, "{where}"),
            Row((), NONE, "litgpt without --resume", destroys="its old steps are written over"),
        ),
    ),
    FrameworkRule(
        "litgpt", "Lightning-AI/litgpt, finetune/lora.py and adapter.py",
        runs=r"[ /]litgpt finetune",
        rows=(Row((), NONE, "litgpt resumes `pretrain` and `finetune_full` only", destroys="its old steps are written over"),),
    ),
    FrameworkRule(
        "OLMo-core", "allenai/OLMo-core, train/trainer.py, Trainer.fit(); train/checkpoint.py, latest_checkpoint(), _prepare_dir()",
        imports="olmo_core",
        options=("=imports",),
        rows=(
            Row(("load_strategy=never",), NONE, "{where} is never"),
            Row(("/LoadStrategy.never",), UNKNOWN, "load_strategy may be never"),
            Row(("no_checkpoints",), NONE, "{where}"),
            Row((), NEWEST, "OLMo-core loads the newest whole step of its save_folder"),
        ),
    ),
    FrameworkRule(
        "OLMo",
        "allenai/OLMo, scripts/train.py, main(); olmo/util.py, find_latest_checkpoint(); olmo/checkpoint.py, _temporary_wd()",
        imports="olmo",
        options=("save_folder", "=try_load_latest_save|save_overwrite", "!autoresume"),
        rows=(
            Row(("try_load_latest_save",), NEWEST, "{where}"),
            Row(("load_path", "save_overwrite"), FIXED, "{where}", "{load_path}",
                destroys="folders of steps that it saves again are deleted"),
            Row(("load_path",), FIXED, "{where}", "{load_path}"),
            Row(("save_overwrite",), NONE, "{where}, without try_load_latest_save",
                destroys="each step's folder is deleted when it is saved again"),
            Row((), NONE, "try_load_latest_save is not set for OLMo, which then refuses a folder that is in use"),
        ),
    ),
    FrameworkRule(
        "nanotron", "huggingface/nanotron, serialize/main.py, parse_ckpt_path(); trainer.py, save_checkpoint()",
        imports="nanotron",
        options=("=checkpoints.checkpoints_path",),
        rows=(
            Row(("checkpoints.resume_checkpoint_path#",), FIXED, "{where}", "{checkpoints.resume_checkpoint_path}"),
            Row(("checkpoints.resume_checkpoint_path",), TRACKER,
                "{where}: latest.txt in it", "{checkpoints.resume_checkpoint_path}"),
            Row((), NONE, "resume_checkpoint_path of nanotron is not set",
                destroys="its old steps and latest.txt are written over"),
        ),
    ),
    FrameworkRule(
        "picotron", "huggingface/picotron, train.py; checkpoint.py, CheckpointManager: one file a rank below save_dir/STEP",
        imports="picotron",
        options=("=checkpoint.save_dir", "=checkpoint.load_path"),
        rows=(
            Row(("checkpoint.load_path",), FIXED, "{where}", "{checkpoint.load_path}"),
            Row((), NONE, "checkpoint.load_path of picotron is not set", destroys="its old steps are written over"),
        ),
    ),
    FrameworkRule(
        "fairseq2",
        "facebookresearch/fairseq2, recipe/internal/train_model.py; checkpoint/manager.py: step_N.tmp is renamed to step_N",
        runs=r"[ /]fairseq2 \w+ train|fairseq2\.recipes?\.",
        rows=(Row((), NEWEST, "fairseq2 restores the last step of its output folder; other settings or ranks move that"),),
    ),
    FrameworkRule(
        "fairseq", "facebookresearch/fairseq, checkpoint_utils.py, load_checkpoint(), save_checkpoint(); dataclass/configs.py",
        runs=r"[ /]fairseq-(?:hydra-)?train |fairseq_cli[./](?:hydra_)?train",
        rows=(
            Row(("no_save",), NONE, "{where}"),
            Row(("restore_file!=checkpoint_last.pt",), FIXED, "{where}", "{restore_file}"),
            Row(("reset_optimizer",), NONE, "{where}: updates are counted from 0 again",
                destroys="its old checkpoints are written over"),
            Row(("no_last_checkpoints",), NONE, "{where}: there is no checkpoint_last.pt"),
            Row((), NEWEST, "fairseq restores checkpoint_last.pt of its --save-dir", prefix="checkpoint_last"),
        ),
        folders=("{save_dir:checkpoints}",),
    ),
    FrameworkRule(
        "verl", "verl-project/verl, trainer/ppo/ray_trainer.py, _load_checkpoint(); utils/checkpoint/checkpoint_handler.py",
        runs=r"verl[./](?:trainer|experimental)[./][\w./]*(?:main_ppo|sft_trainer|fully_async_main)",
        rows=(
            Row(("trainer.resume_mode=disable",), NONE, "{where} is disable", destroys="its old steps are written over"),
            Row(("trainer.resume_mode=resume_path", "trainer.del_local_ckpt_after_load"), FIXED,
                "{where}", "{trainer.resume_from_path}",
                destroys="the checkpoint is deleted after it was loaded"),
            Row(("trainer.resume_mode=resume_path",), FIXED, "{where}", "{trainer.resume_from_path}"),
            Row(("trainer.del_local_ckpt_after_load",), TRACKER, "{where}",
                destroys="the checkpoint is deleted after it was loaded"),
            Row(("/sft_trainer", "trainer.resume_from_path"), FIXED, "{where}", "{trainer.resume_from_path}"),
            Row(("/fsdp_sft_trainer", "!trainer.resume_mode"), UNKNOWN, "only newer versions of verl's fsdp_sft_trainer resume"),
            Row((), TRACKER, "verl's resume_mode is auto: latest_checkpointed_iteration.txt"),
        ),
        folders=("{trainer.default_local_dir}", "checkpoints/{trainer.project_name}/{trainer.experiment_name}"),
    ),
    FrameworkRule(
        "MaxText", "AI-Hypercomputer/maxtext, common/checkpointing.py, load_state_if_possible(); configs/types.py",
        runs=r"(?i:maxtext)[./](?:trainers[./]pre_train[./])?train(?: |\.py )",
        own_configs=r"base\.ya?ml",
        rows=(
            Row(("enable_checkpointing=false",), NONE, "{where}"),
            Row(("enable_emergency_checkpoint",), UNKNOWN, "{where}: newer ones may lie on the nodes"),
            Row(("enable_multi_tier_checkpointing",), UNKNOWN, "{where}: newer ones may lie on the nodes"),
            Row(("!run_name", "!$JOBSET_NAME"), UNKNOWN, "without a run_name MaxText makes one up by the time"),
            Row((), NEWEST, "MaxText restores the newest step of its run_name"),
        ),
        folders=("{base_output_directory}/{run_name}/checkpoints",),
    ),
    FrameworkRule(
        "OpenRLHF, PPO", "OpenRLHF/OpenRLHF, trainer/ray/ppo_actor.py and ppo_critic.py: CKPT/_actor and CKPT/_critic",
        runs=r"openrlhf[./]cli[./]train_ppo",
        rows=(
            Row(("!load_checkpoint", "!ckpt.load_enable"), NONE, "no --load_checkpoint (--ckpt.load_enable) for OpenRLHF",
                destroys="the oldest checkpoints are deleted, three are kept"),
            Row((), TRACKER, "OpenRLHF: the files latest of the actor and of the critic", steered=False),
        ),
        folders=("{ckpt_path|ckpt.path:./ckpt/checkpoints_ppo_ray}/_actor",),
    ),
    FrameworkRule(
        "OpenRLHF", "OpenRLHF/OpenRLHF, cli/train_*.py; utils/deepspeed/deepspeed.py, load_ckpt(), save_ckpt()",
        runs=r"openrlhf[./]cli[./]train_\w+",
        rows=(
            Row(("!load_checkpoint", "!ckpt.load_enable"), NONE, "no --load_checkpoint (--ckpt.load_enable) for OpenRLHF",
                destroys="the oldest checkpoints are deleted, three are kept"),
            Row((), TRACKER, "OpenRLHF: the file latest", "{ckpt_path|ckpt.path}"),
        ),
        folders=("{ckpt_path|ckpt.path}",),
    ),
    FrameworkRule(
        "OpenCLIP", "mlfoundations/open_clip, open_clip_train/main.py, main(), get_latest_checkpoint()",
        runs=r"[ /](?:open_clip_train|training)[./]main(?: |\.py )",
        rows=(
            Row(("resume=latest", "save_most_recent"), NEWEST, "{where} of OpenCLIP", prefix="epoch_latest"),
            Row(("resume=latest",), NEWEST, "{where} of OpenCLIP"),
            Row(("resume",), None, "{where}; OpenCLIP refuses a --name that is in use"),
            Row((), NONE, "no --resume for OpenCLIP, which then refuses a --name that is in use"),
        ),
        folders=("{logs:logs}/{name}/checkpoints",),
    ),
    FrameworkRule(
        "lm-engine", "open-lm-engine/lm-engine, checkpointing/__init__.py, load_checkpoint_for_training()",
        runs=r"(?:lm_engine|dolomite_engine)[./](?:pretrain|finetune|train|distill)(?: |\.py )",
        options=("=save_args.save_path",),
        rows=(
            Row(("load_args.load_path", "load_args.load_starting_iteration=false"), NONE,
                "load_starting_iteration is false: it counts from 0"),
            Row(("load_args.iteration",), FIXED, "{where}", "{load_args.load_path}/global_step{load_args.iteration}"),
            Row(("load_args.load_path",), TRACKER, "{where}: latest_checkpointed_iteration.json", "{load_args.load_path}"),
            Row((), NONE, "load_args of lm-engine is not set", destroys="its old steps and tracker are written over"),
        ),
    ),
    FrameworkRule(
        "levanter",
        "stanford-crfm/levanter, trainer.py, Trainer.initial_state(), TrainerConfig; checkpoint.py, discover_latest_checkpoint()",
        runs=r"levanter[./]main[./]\w+",
        rows=(
            Row(("trainer.load_checkpoint=false",), NONE, "{where}", destroys="its old steps are written over"),
            Row(("trainer.load_checkpoint_path",), UNKNOWN, "{where}: the newest of a folder that is not where it saves"),
            Row(("trainer.id",), NEWEST, "levanter loads the newest of its run id, {where}"),
            Row(("$RUN_ID",), NEWEST, "levanter loads the newest of its RUN_ID"),
            Row((), UNKNOWN, "levanter makes a new run id at each start unless trainer.id or RUN_ID says it"),
        ),
        folders=("{trainer.checkpointer.base_path}/{trainer.id|$RUN_ID}",),
    ),
    FrameworkRule(
        "EasyLM",
        "young-geng/EasyLM, models/llama/llama_train.py; checkpoint.py, save_all(): streaming_train_state is written over in place",
        runs=r"EasyLM[./]models[./]\w+[./]\w+_train",
        rows=(
            Row(("load_checkpoint",), FIXED, "{where}", "{load_checkpoint}"),
            Row((), NONE, "load_checkpoint of EasyLM is empty", destroys="streaming_train_state is written over in place"),
        ),
    ),
    FrameworkRule(
        "MMEngine", "open-mmlab/mmengine, runner/runner.py, load_or_resume(); runner/checkpoint.py, find_latest_checkpoint()",
        runs=r"[ /]tools/train\.py |[ /]mim train ",
        imports="mmengine",
        options=("=imports|resume|work_dir",),
        rows=(
            Row(("auto_resume",), TRACKER, "{where}: last_checkpoint of the work folder"),
            Row(("resume=true|auto", "load_from"), FIXED, "{where}", "{load_from}"),
            Row(("resume=true|auto",), TRACKER, "{where}: last_checkpoint of the work folder"),
            Row(("resume",), None, "{where}"),
            Row((), NONE, "no --resume for MMEngine", destroys="its old epochs are written over"),
        ),
    ),
    FrameworkRule(
        "XTuner", "InternLM/xtuner, tools/train.py; v1/train/trainer.py, XTunerMeta.build(), _resolve_load_checkpoint_cfg()",
        runs=r"[ /]xtuner train |xtuner[./]v1[./]train[./]cli[./]\w+|[ /]xtuner/tools/train\.py ",
        rows=(
            Row(("resume=true|auto",), TRACKER, "{where}: last_checkpoint of the work folder", steered=False),
            Row(("resume",), None, "{where}"),
            Row(("auto_resume",), NEWEST, "{where}: the newest that .xtuner names", steered=False),
            Row((), NONE, "neither --resume nor auto_resume for XTuner"),
        ),
    ),
    FrameworkRule(
        "detectron2",
        "facebookresearch/detectron2, engine/defaults.py, resume_or_load(); fvcore, Checkpointer.tag_last_checkpoint()",
        runs=r"[ /](?:plain_|lazyconfig_)?train_net\.py ",
        imports="detectron2",
        rows=(
            Row(("resume",), TRACKER, "{where}: last_checkpoint of its folder"),
            Row((), NONE, "no --resume for detectron2", destroys="its old iterations and last_checkpoint are written over"),
        ),
        folders=("{@OUTPUT_DIR}", "{train.output_dir}", "{output_dir:output}"),
    ),
    FrameworkRule(
        "timm", "huggingface/pytorch-image-models, train.py; utils/checkpoint_saver.py, utils/summary.py, get_outdir()",
        imports="timm",
        options=("=checkpoint_hist|model_ema", "!output_dir"),
        rows=(
            Row(("resume",), None, "{where}"),
            Row(("experiment",), NONE, "no --resume for timm", destroys="last.pth.tar and its old epochs are written over"),
            Row((), NONE, "no --resume for timm, which makes a new folder by the time"),
        ),
        folders=("{output:output/train}/{experiment}",),
    ),
    FrameworkRule(
        "ESPnet", "espnet/espnet, espnet2/train/trainer.py, Trainer.run(): checkpoint.pth is replaced after each epoch",
        runs=r"espnet2[./]bin[./]\w+_train",
        rows=(
            Row(("resume",), NEWEST, "{where}: checkpoint.pth", prefix="checkpoint"),
            Row((), NONE, "no --resume true for ESPnet", destroys="checkpoint.pth and its old epochs are written over"),
        ),
    ),
    FrameworkRule(
        "LLM-Foundry", "mosaicml/llm-foundry, command_utils/train.py, train(); mosaicml/composer, trainer/trainer.py, Trainer()",
        runs=r"[ /](?:composer|llmfoundry) ",
        options=("save_folder", "!autoresume", "=save_overwrite|max_duration|save_interval"),
        rows=(
            Row(("save_overwrite",), NONE, "{where}, without autoresume", destroys="its old checkpoints are written over"),
            Row(("=autoresume",), NONE, "{where}"),
            Row((), UNKNOWN, "whether LLM-Foundry resumes without autoresume differs between its versions"),
        ),
    ),
    FrameworkRule(
        "torchtune", "pytorch/torchtune, training/checkpointing/_checkpoint_client.py; _utils.py, get_model_checkpoint_path()",
        runs=r"[ /]tune run ",
        rows=(
            Row(("resume_from_checkpoint", "enable_async_checkpointing"), NEWEST, "{where}, with enable_async_checkpointing"),
            Row(("resume_from_checkpoint",), UNKNOWN,
                "{where} loads what checkpoint_files and recipe_checkpoint name, and these are set by hand"),
            Row((), NONE, "resume_from_checkpoint of torchtune is not set", destroys="its old epochs are written over"),
        ),
    ),
    FrameworkRule(
        "Megatron-Bridge",
        "NVIDIA-NeMo/Megatron-Bridge, training/checkpointing.py, _resolve_checkpoint_iteration(): latest_train_state.pt first",
        runs=r"[ /]run_recipe\.py |megatron[./]bridge[./]",
        rows=(
            Row(("checkpoint.finetune",), NONE, "{where}: the weights alone are loaded"),
            Row(("checkpoint.ckpt_step",), FIXED, "{where}", "{checkpoint.load|load_dir}/iter_{checkpoint.ckpt_step}"),
            Row(("checkpoint.load",), TRACKER, "{where}: latest_train_state.pt", "{checkpoint.load}", steered=False),
            Row(("load_dir",), TRACKER, "{where}: latest_train_state.pt", "{load_dir}", steered=False),
            Row((), UNKNOWN, "where Megatron-Bridge loads from is said by its recipe"),
        ),
    ),
)  # fmt: skip
