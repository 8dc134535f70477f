"""Which shortage a log shows, what is read of a run's arguments, and plans: frozen, with arguments of the run's own framework."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

import pytest

from assistant.errors import InputError
from assistant.logs.lines import Line
from assistant.memory_plan import intake
from assistant.memory_plan.arguments import RunArguments
from assistant.memory_plan.estimate import MemoryPart
from assistant.memory_plan.ladder import TrainingEffect
from assistant.memory_plan.plan import MemoryPlan, make_plan
from assistant.memory_plan.problems import MemoryReading, read_problems
from assistant.memory_plan.setup import GIB
from assistant.memory_plan.spelling import ChangedArgument
from assistant.records import Job, JobSpec, JobState

CASES = Path(__file__).parents[1] / "cases" / "memory_plan"
LOGS = tomllib.loads((CASES / "logs.toml").read_text(encoding="utf-8"))["log"]
RUNS = tomllib.loads((CASES / "runs.toml").read_text(encoding="utf-8"))["run"]
NOTHING = MemoryReading((), None, 0, (), 0)


def lines_of(text: str) -> list[Line]:
    return [Line(number, line) for number, line in enumerate(text.strip("\n").split("\n"), 1)]


def run_of(case: dict[str, Any]) -> RunArguments:
    if "command" in case:
        return intake.run_of_command(case["command"], lambda _: None, folder="/work", gpus=case.get("gpus", 0))
    return intake.run_of_configs([(Path(case["file"]), case["text"])], lambda _: None, gpus=case.get("gpus", 0))


def run_named(name: str) -> RunArguments:
    return run_of(next(case for case in RUNS if case["name"] == name))


@pytest.mark.parametrize("case", LOGS, ids=lambda case: case["name"])
def test_a_log_tells_its_shortage(case: dict[str, Any]) -> None:
    reading = read_problems(lines_of(case["text"]))
    kinds = [str(problem.kind) for problem in reading.problems]
    assert kinds[:1] == ([case["kind"]] if case["kind"] else [])
    if not kinds:
        return
    first = reading.problems[0]
    assert (first.place, first.cause) == (case.get("spot"), case.get("cause", first.cause))
    assert set(case.get("also", ())) <= set(kinds)
    assert set(case.get("lines", ())) <= {proof.line for proof in first.proof}
    texts = {line.number: line.text for line in lines_of(case["text"])}
    for problem in reading.problems:
        assert problem.proof
        assert all(proof.line in texts for proof in problem.proof)
        assert problem.decides or problem.confidence >= 0.3


@pytest.mark.parametrize("case", RUNS, ids=lambda case: case["name"])
def test_arguments_are_read(case: dict[str, Any]) -> None:
    run = run_of(case)
    assert run.framework == case["framework"]
    assert list(run.missing) == case.get("missing", [])
    assert case.get("conflict", "") in run.conflict
    assert bool(run.conflict) == ("conflict" in case)
    assert [case.get("remark", "") in remark for remark in run.remarks] == [True] * ("remark" in case)
    for part in ("setup", "layout", "model"):
        record = run.setup if part == "setup" else getattr(run.setup, part, None)
        assert {name: getattr(record, name) for name in case.get(part, {})} == case.get(part, {})


ACCELERATE = """
distributed_type: FSDP
fsdp_config:
  fsdp_sharding_strategy: {strategy}
  fsdp_version: 1
mixed_precision: bf16
num_machines: 2
num_processes: 16
"""
OF_8B = " train.py --model_name_or_path meta-llama/Llama-3.1-8B --per_device_train_batch_size 2 --max_length 2048"


@pytest.mark.parametrize(("strategy", "zero"), [("FULL_SHARD", 3), ("SHARD_GRAD_OP", 2), ("NO_SHARD", 0), ("1", 3), ("2", 2)])
def test_the_configuration_of_accelerate_is_read(strategy: str, zero: int) -> None:
    files = {"/work/acc.yaml": ACCELERATE.format(strategy=strategy)}
    run = intake.run_of_command(f"accelerate launch --config_file acc.yaml{OF_8B}", files.get, folder="/work")
    assert run.setup is not None
    assert (run.setup.layout.gpus, run.setup.layout.zero) == (16, zero)
    assert run.setup.precision != "fp32"
    assert run.remarks == ()


def test_what_accelerate_hands_to_deepspeed_is_read() -> None:
    files = {
        "/work/acc.yaml": "distributed_type: DEEPSPEED\ndeepspeed_config:\n  deepspeed_config_file: ds.json\nnum_processes: 8\n",
        "/work/ds.json": '{"bf16": {"enabled": true}, "zero_optimization": {"stage": 2}}',
    }
    run = intake.run_of_command(f"accelerate launch --config_file acc.yaml{OF_8B}", files.get, folder="/work")
    assert run.setup is not None
    assert run.setup.layout.zero == 2


@pytest.mark.parametrize(
    "command",
    [
        f"accelerate launch --config_file gone.yaml{OF_8B}",
        f"torchrun --nproc_per_node 8{OF_8B} --deepspeed gone.yaml",
        f"torchrun --nproc_per_node 8{OF_8B} --config=gone.yaml",
    ],
)
def test_a_file_that_is_named_and_cannot_be_read_is_noted(command: str) -> None:
    plan = make_plan(NOTHING, intake.run_of_command(command, lambda _: None, folder="/work"), gpu_memory=80 * GIB)
    assert "gone.yaml" in plan.notes[0]
    assert "does not count" in plan.notes[0]


@pytest.mark.parametrize("name", ["LOMO", "GaLore"])
def test_no_way_out_that_keeps_the_training_swaps_the_optimiser(name: str) -> None:
    plan = plan_for(name, 40)
    same = [rung for rung in (*plan.ladder, *([plan.proposal] if plan.proposal else [])) if rung.effect is TrainingEffect.SAME]
    assert same
    assert not any("optim" in argument.name for rung in same for argument in rung.arguments)


def test_megatron_offloads_its_optimiser_only_with_what_it_asserts() -> None:
    plan = plan_for("Megatron with torch's FSDP", 40)
    rung = next(rung for rung in plan.ladder if rung.name == "optimiser states in host memory")
    names = [argument.name for argument in rung.arguments]
    assert names == ["--optimizer-cpu-offload", "--use-distributed-optimizer", "--use-precision-aware-optimizer"]


@pytest.mark.parametrize("reserved", [45.0, 55.2, 80.0])
def test_a_reserved_peak_that_was_logged_is_met(reserved: float) -> None:
    row = "[rank0]:[titan] 2026-06-01 10:00:0{} - root - INFO - step:  {}  loss: 9.2  memory: {:.2f}GiB(58.13%)  tps: 5,000"
    reading = read_problems(lines_of("\n".join(row.format(step, step, reserved) for step in range(1, 6))))
    plan = make_plan(reading, TITAN, gpu_memory=95 * GIB)
    assert plan.peak is not None
    assert plan.peak / GIB == pytest.approx(reserved, rel=0.03)
    assert "reserved peak" in plan.calibration.source


def test_the_memory_of_the_log_is_not_put_aside_in_silence() -> None:
    plan = make_plan(out_of_memory(77.0, 0.5), run_named("Megatron"), gpu_memory=141 * GIB)
    assert any("the log tells of a GPU with" in note for note in plan.notes)


def test_figures_that_cannot_be_true_are_said_to_be_and_not_used() -> None:
    reading = read_problems(
        lines_of(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB of "
            "which 1.21 GiB is free. Including non-PyTorch memory, this process has 77.89 GiB memory in use. Of the allocated "
            "memory 120.20 GiB is allocated by PyTorch, and 412.50 MiB is reserved by PyTorch but unallocated."
        )
    )
    assert "not to be trusted" in reading.problems[0].summary
    plan = make_plan(reading, run_named("Megatron"))
    assert plan.calibration.source == ""
    assert any("cannot all be true" in note for note in plan.notes)


TITAN = run_named("torchtitan")


PEAKS = tomllib.loads((CASES / "torchtitan_peaks.toml").read_text(encoding="utf-8"))["peak"]
SETTINGS = """
[model]
name = "llama3"
flavor = "{flavor}"
[training]
local_batch_size = {batch}
seq_len = {tokens}
[activation_checkpoint]
mode = "{recompute}"
[parallelism]
data_parallel_shard_degree = -1
tensor_parallel_degree = {tensor}
pipeline_parallel_degree = {pipeline}
context_parallel_degree = {context}
pipeline_parallel_schedule = "{schedule}"
"""


@pytest.mark.parametrize("case", PEAKS, ids=lambda case: f"{case['flavor']}-{case['gpus']}-{case['tokens']}-{case['schedule']}")
def test_published_peaks_of_torchtitan_are_met_as_far_as_the_documentation_says(case: dict[str, Any]) -> None:
    run = intake.run_of_configs([(Path("titan.toml"), SETTINGS.format(**case))], lambda _: None, gpus=case["gpus"])
    plan = make_plan(NOTHING, run, gpu_memory=96 * GIB)
    assert plan.peak is not None
    error = plan.peak / GIB / case["gib"] - 1
    alone = case["tensor"] == case["pipeline"] == case["context"] == 1
    assert (-0.10 if alone else -0.22) < error < 0.01
    assert any("torchtitan" in note for note in plan.notes) != alone


def plan_for(name: str, gib: float) -> MemoryPlan:
    return make_plan(NOTHING, run_named(name), gpu_memory=gib * GIB)


WITH_MODEL = [case["name"] for case in RUNS if "missing" not in case and "conflict" not in case]


@pytest.mark.parametrize("name", WITH_MODEL)
def test_a_plan_keeps_the_global_batch_and_spells_each_change(name: str) -> None:
    plan = plan_for(name, 80)
    full = plan_for(name, max(1.0, (plan.peak or 0) / GIB * 0.7))
    assert full.ladder
    for rung in full.ladder:
        assert (rung.fits is None) == (rung.peak is None)
        assert rung.relative_time > 0
        if rung.arguments:
            assert all(argument.name and argument.new != argument.old for argument in rung.arguments if argument.old)
    proposal = full.proposal
    if proposal is not None:
        assert proposal.fits
        assert proposal.effect is TrainingEffect.SAME
        assert proposal.arguments
        assert proposal.peak is not None
        assert proposal.peak < full.capacity
    effects = [rung.effect for rung in full.ladder if rung.arguments]
    assert effects == sorted(effects), "what keeps the training the same stands first"


def test_a_smaller_micro_batch_is_spelled_with_its_accumulation() -> None:
    plan = plan_for("Transformers with FSDP", 40)
    rung = next(rung for rung in plan.ladder if rung.name.startswith("micro-batch 4 to 2"))
    assert [(argument.name, argument.old, argument.new) for argument in rung.arguments] == [
        ("--per_device_train_batch_size", "4", "2"),
        ("--gradient_accumulation_steps", "2", "4"),
    ]


def test_megatron_keeps_its_global_batch_by_itself() -> None:
    plan = plan_for("Megatron", 40)
    rung = next(rung for rung in plan.ladder if rung.name.startswith("micro-batch 2 to 1"))
    assert [(argument.name, argument.new) for argument in rung.arguments] == [("--micro-batch-size", "1")]


def test_torchtitan_is_told_the_global_batch() -> None:
    rung = next(rung for rung in plan_for("torchtitan", 40).ladder if rung.name.startswith("micro-batch 2 to 1"))
    assert [(argument.name, argument.new, argument.origin) for argument in rung.arguments] == [
        ("training.local_batch_size", "1", "training.local_batch_size in llama3_8b.toml"),
        ("training.global_batch_size", "16", "to be added to the configuration"),
    ]


def test_a_run_that_fits_gets_no_proposal() -> None:
    plan = plan_for("TRL with LoRA on a quantised model", 500)
    assert plan.proposal is None
    assert plan.notes[-1] == "the run fits as it is"


def log_named(name: str) -> MemoryReading:
    return read_problems(lines_of(next(case["text"] for case in LOGS if case["name"] == name)))


@pytest.mark.parametrize("name", ["a leak of allocated memory", "staging of a checkpoint", "a leak of host memory"])
def test_no_setting_is_proposed_where_none_helps(name: str) -> None:
    plan = make_plan(log_named(name), TITAN, gpu_memory=80 * GIB)
    assert plan.proposal is None
    assert plan.measures


def test_a_run_that_died_is_predicted_not_to_fit() -> None:
    case = next(case for case in RUNS if case["name"] == "TRL with LoRA on a quantised model")
    plan = make_plan(log_named("memory that settles is no leak"), run_of(case))
    assert plan.problem is not None
    assert plan.peak is not None
    assert plan.peak >= plan.capacity
    assert plan.proposal is None or plan.proposal.fits


def test_without_a_model_measures_are_named_all_the_same() -> None:
    plan = make_plan(log_named("evaluation"), run_named("plain PyTorch, no model said"))
    assert (plan.estimate, plan.ladder, plan.proposal) == (None, (), None)
    assert plan.measures
    assert "no figures are predicted" in plan.notes[-1]


def test_a_plan_is_frozen_all_the_way_down() -> None:
    plan = make_plan(log_named("uneven ranks"), TITAN)
    for record in (plan, plan.problem, plan.ladder[0], plan.run, plan.run.setup):
        assert dataclasses.is_dataclass(record)
        name = dataclasses.fields(record)[0].name
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(record, name, None)


def test_transformers_with_deepspeed_is_told_to_offload_in_its_configuration() -> None:
    words = "deepspeed --num_gpus 8 t.py --model_name_or_path llama-2-13b --per_device_train_batch_size 1 --max_length 512 --bf16"
    run = intake.run_of_command(f"{words} --zero_stage 2", lambda _: None, folder="/work")
    rung = next(rung for rung in make_plan(NOTHING, run, gpu_memory=24 * GIB).ladder if "optimiser states in host" in rung.name)
    assert [(argument.name, argument.new) for argument in rung.arguments] == [("zero_optimization.offload_optimizer.device", "cpu")]
    assert rung.host > 0


def out_of_memory(allocated: float, unused: float, total: float = 79.1) -> MemoryReading:
    """Return the reading of PyTorch's message for 2 GiB that were wanted; sizes in GiB."""
    own = allocated + unused + 0.5
    return read_problems(
        lines_of(
            "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of "
            f"{total:.2f} GiB of which {total - own:.2f} GiB is free. Including non-PyTorch memory, this process has {own:.2f} GiB "
            f"memory in use. Of the allocated memory {allocated:.2f} GiB is allocated by PyTorch, and {unused:.2f} GiB is reserved "
            "by PyTorch but unallocated."
        )
    )


SMALL = "num_layers: 2\nhidden_size: 64\nnum_attention_heads: 8\nseq_length: 128\nmicro_batch_size: 2\n"


def run_of_yaml(text: str, gpus: int = 1) -> RunArguments:
    return intake.run_of_configs([(Path("run.yaml"), text)], lambda _: None, gpus=gpus)


@pytest.mark.parametrize(("allocated", "unused", "kind"), [(77.0, 0.5, "true need"), (71.5, 6.0, "fragmentation")])
def test_arguments_of_another_program_give_no_ways_out(allocated: float, unused: float, kind: str) -> None:
    plan = make_plan(out_of_memory(allocated, unused), run_of_yaml(SMALL))
    assert plan.problem is not None
    assert plan.problem.kind == kind
    assert (plan.peak, plan.ladder, plan.proposal) == (None, (), None)
    assert plan.estimate is not None
    assert "the arguments do not describe the program" in plan.notes[-1]
    assert not any("taken to need" in note for note in plan.notes)


def test_a_larger_gpu_than_that_of_the_log_may_suffice() -> None:
    case = next(case for case in RUNS if case["name"] == "TRL with LoRA on a quantised model")
    plan = make_plan(log_named("memory that settles is no leak"), run_of(case), gpu_memory=500 * GIB)
    assert plan.peak is not None
    assert 43.1 * GIB < plan.peak < 60 * GIB, "34.1 GiB were allocated and 9 wanted"
    assert plan.ladder


@pytest.mark.parametrize(("options", "least", "most"), [("", 46, 50), (" --bnb_4bit_use_double_quant", 43, 47)])
def test_a_quantised_model_with_adapters_has_no_16_bit_copy_of_itself(options: str, least: float, most: float) -> None:
    """Source: arXiv 2305.14314 (QLoRA), abstract: 65 billion weights on a GPU of 48 GB."""
    words = "python train.py --model_name_or_path meta-llama/Llama-3.1-70B --load_in_4bit --use_peft --lora_r 16 --bf16"
    words += f" --per_device_train_batch_size 1 --max_length 1024 --gradient_checkpointing{options}"
    plan = make_plan(NOTHING, intake.run_of_command(words, lambda _: None, folder="/work"), gpu_memory=48 * GIB)
    assert plan.peak is not None
    assert least * GIB < plan.peak < most * GIB
    assert plan.estimate is not None
    assert plan.estimate.parts[MemoryPart.CASTS] < 1.5 * GIB


LLAMA = "torchrun --nproc_per_node {} t.py --max_length 4096 --model_name_or_path meta-llama/Llama-3.1-8B --bf16 {}"


@pytest.mark.parametrize(("gpus", "proposed"), [(1, False), (32, True)])
def test_fragmentation_that_the_model_refutes_gets_what_fits(gpus: int, proposed: bool) -> None:
    words = LLAMA.format(gpus, "--per_device_train_batch_size 8")
    run = intake.run_of_command(words, lambda _: None, folder="/work")
    plan = make_plan(out_of_memory(72, 5), run)
    assert plan.problem is not None
    assert plan.problem.kind == "fragmentation"
    assert [rung.arguments[0].name for rung in plan.measures] == ["PYTORCH_CUDA_ALLOC_CONF"]
    assert (plan.proposal is not None) == proposed
    if plan.proposal is not None:
        assert plan.proposal.fits
        assert (plan.proposal.margin or 0) > 0
    assert any("the message and the model disagree" in note for note in plan.notes)


@pytest.mark.parametrize(
    ("more", "gpus", "planned", "words"),
    [
        ("tensor_model_parallel_size: 8\n", 12, 8, "8 GPUs are used: 12 is no multiple of 8"),
        ("global_batch_size: 3\n", 1, 1, "a step has 2 samples"),
        ("global_batch_size: 16\ngradient_accumulation_steps: 4\n", 1, 1, "a step has 8 samples"),
        ("data_parallel_shard_degree: 4\n", 8, 8, "8 data-parallel ranks follow from 8 GPUs; the arguments say 4"),
        ("global_batch_size: 16\ntensor_model_parallel_size: 4\n", 8, 8, ""),
        ("data_parallel_shard_degree: 4\ndata_parallel_replicate_degree: 2\n", 8, 8, ""),
    ],
)
def test_a_layout_or_batch_that_does_not_divide_is_noted(more: str, gpus: int, planned: int, words: str) -> None:
    run = run_of_yaml(f"{SMALL}vocab_size: 1000\n{more}", gpus)
    assert run.setup is not None
    assert run.setup.layout.gpus == planned
    assert not run.conflict
    assert [words in sentence for sentence in run.assumed] == ([True] if words else [])


@pytest.mark.parametrize(
    "more", ["tensor_model_parallel_size: 8\n", "tensor_model_parallel_size: 9999999\npipeline_model_parallel_size: 9999999\n"]
)
def test_a_layout_for_more_gpus_than_there_are_gets_no_way_out(more: str) -> None:
    plan = make_plan(NOTHING, run_of_yaml(SMALL + more, 4), gpu_memory=0.5 * GIB)
    assert (plan.ladder, plan.proposal) == ((), None)
    assert "but the run has 4: it cannot start so" in plan.notes[-1]


@pytest.mark.parametrize(
    ("argument", "words"),
    [
        (("--fsdp", "", "full_shard auto_wrap", "to be added to the command line"), "add --fsdp 'full_shard auto_wrap' ("),
        (("--fsdp", "a b", "c;d", "--fsdp on the command line"), "--fsdp 'a b' to 'c;d' ("),
        (("--use-distributed-optimizer", "", "", "to be added to the command line"), "add --use-distributed-optimizer ("),
        (("training.layers", "[1, 2]", "[1]", "training.layers in a.toml"), "training.layers [1, 2] to [1] ("),
    ],
)
def test_an_argument_can_be_pasted_into_a_shell(argument: tuple[str, str, str, str], words: str) -> None:
    assert str(ChangedArgument(*argument)).startswith(words)


def test_configurations_count_between_the_command_line_and_the_files_that_it_names() -> None:
    named = {"/work/named.yaml": "num_layers: 9\nseq_length: 999\nmicro_batch_size: 9\n"}
    run = intake.run_of_command(
        "python train.py --config named.yaml --micro-batch-size 4", named.get, folder="/work", files=[(Path("given.yaml"), SMALL)]
    )
    assert run.setup is not None
    assert (run.setup.micro_batch, run.setup.sequence, run.setup.model.layers) == (4, 128, 2)


@pytest.mark.parametrize("gpus", [0, 4])
def test_a_job_is_read_with_configurations_and_gpus(gpus: int) -> None:
    spec = JobSpec("sft", "#SBATCH --gpus=2\npython train.py --micro-batch-size 8\n", work_dir=Path("/work"))
    job = Job("7", "sft", "ada", JobState.FAILED, "gpu", ("n1",), None, None, None, None, None, 1, None, spec=spec)
    run = intake.run_of_job(job, lambda _: None, files=[(Path("given.yaml"), SMALL)], gpus=gpus)
    assert run.setup is not None
    assert (run.setup.micro_batch, run.setup.sequence, run.setup.layout.gpus) == (8, 128, gpus or 2)


@pytest.mark.parametrize("command", ["rm -rf /", "nvidia-smi", "echo done", "python --version"])
def test_a_line_that_trains_nothing_is_refused(command: str) -> None:
    with pytest.raises(InputError, match="no Python program"):
        intake.run_of_command(command, lambda _: None, folder="/work")
    run = intake.run_of_command(command, lambda _: None, folder="/work", lines=lines_of("CUDA out of memory"))
    assert "names no program that trains" in run.assumed[-1]


@pytest.mark.parametrize("command", ["echo 'unclosed", 'python t.py --batch_size 4 "x', "python t.py --batch_size 4 \\"])
def test_a_quote_that_is_not_closed_is_refused(command: str) -> None:
    with pytest.raises(InputError, match="not closed"):
        intake.run_of_command(command, lambda _: None, folder="/work")


@pytest.mark.parametrize(
    "command",
    ["./pretrain --num-layers 4", "trl sft --model_name_or_path gpt2", "python t.py # don't", "python t.py --name $'it\\'s'",
     "cat <<E\ndon't\nE\npython t.py", "srun python t.py"],
)  # fmt: skip
def test_a_line_that_trains_is_read(command: str) -> None:
    assert intake.run_of_command(command, lambda _: None, folder="/work").missing
