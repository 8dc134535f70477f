"""Which shortage a log shows, what is read of a run's arguments, and plans: frozen, with arguments of the run's own framework."""

from __future__ import annotations

import dataclasses
import tomllib
from pathlib import Path
from typing import Any

import pytest

from assistant.logs.lines import Line
from assistant.memory_plan import intake
from assistant.memory_plan.arguments import RunArguments, published_shapes, shape_named
from assistant.memory_plan.ladder import TrainingEffect
from assistant.memory_plan.plan import MemoryPlan, make_plan
from assistant.memory_plan.problems import MemoryReading, read_problems
from assistant.memory_plan.setup import GIB, ModelShape

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
    for part in ("setup", "layout", "model"):
        record = run.setup if part == "setup" else getattr(run.setup, part, None)
        assert {name: getattr(record, name) for name in case.get(part, {})} == case.get(part, {})


def test_published_models_have_the_weights_that_their_authors_state() -> None:
    table = tomllib.loads((Path(__file__).parents[2] / "knowledge" / "model_shapes.toml").read_text())["model"]
    assert len(table) >= 20
    for entry in table:
        assert ModelShape(**entry["shape"]).parameters == entry["parameters"], entry["names"]


@pytest.mark.parametrize(
    ("name", "layers"),
    [("meta-llama/Llama-3.1-8B-Instruct", 32), ("/models/Qwen2.5-72B", 80), ("gpt2", 12), ("mistralai/Mixtral-8x7B-v0.1", 32)],
)
def test_a_model_is_known_by_its_name(name: str, layers: int) -> None:
    shape = shape_named(name)
    assert shape is not None
    assert shape.layers == layers


@pytest.mark.parametrize("name", ["llama-3-80b", "my-model", "", "gpt22", "../../etc/passwd"])
def test_another_name_is_no_known_model(name: str) -> None:
    assert shape_named(name) is None


def test_the_shape_of_a_local_model_is_read_from_its_configuration() -> None:
    config = (
        '{"num_hidden_layers": 10, "hidden_size": 640, "num_attention_heads": 10, "vocab_size": 1000, "intermediate_size": 1700,'
        ' "max_position_embeddings": 4096, "tie_word_embeddings": true}'
    )
    words = "python train.py --model_name_or_path /m/own --per_device_train_batch_size 2 --max_length 128 --bf16"
    run = intake.run_of_command(words, {"/m/own/config.json": config}.get, folder="/work")
    assert run.setup is not None
    assert (run.setup.model.layers, run.setup.model.ffn, run.setup.model.tied) == (10, 1700, True)


TITAN = run_named("torchtitan")


@pytest.mark.parametrize(("gpus", "published"), [(8, 82.4), (128, 67.0)])
def test_published_peaks_of_torchtitan_are_met(gpus: int, published: float) -> None:
    """Source: torchtitan, benchmarks/llama3_h100_202412_torchtitan.md, tables 1 and 3, FSDP without compile, GiB."""
    case = next(case for case in RUNS if case["name"] == "torchtitan")
    plan = make_plan(NOTHING, run_of({**case, "gpus": gpus}), gpu_memory=96 * GIB)
    assert plan.peak is not None
    assert plan.peak / GIB == pytest.approx(published, rel=0.12)


def plan_for(name: str, gib: float) -> MemoryPlan:
    return make_plan(NOTHING, run_named(name), gpu_memory=gib * GIB)


WITH_MODEL = [case["name"] for case in RUNS if "missing" not in case]


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


def test_every_shape_can_be_named() -> None:
    assert all(shape_named(name) is not None for name in published_shapes())


def test_transformers_with_deepspeed_is_told_to_offload_in_its_configuration() -> None:
    words = "deepspeed --num_gpus 8 t.py --model_name_or_path llama-2-13b --per_device_train_batch_size 1 --max_length 512 --bf16"
    run = intake.run_of_command(f"{words} --zero_stage 2", lambda _: None, folder="/work")
    rung = next(rung for rung in make_plan(NOTHING, run, gpu_memory=24 * GIB).ladder if "optimiser states in host" in rung.name)
    assert [(argument.name, argument.new) for argument in rung.arguments] == [("zero_optimization.offload_optimizer.device", "cpu")]
    assert rung.host > 0
