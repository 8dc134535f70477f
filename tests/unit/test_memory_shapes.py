"""Shapes of models: published ones by name, those of `config.json` whose type is known, and why the others are not read."""

from __future__ import annotations

import json
import tomllib
from pathlib import Path
from typing import Any

import pytest

from assistant.memory_plan import intake
from assistant.memory_plan.plan import make_plan
from assistant.memory_plan.problems import MemoryReading
from assistant.memory_plan.setup import GIB, ModelShape
from assistant.memory_plan.shapes import FAMILIES, published_shapes, shape_named

CASES = Path(__file__).parents[1] / "cases" / "memory_plan"
NOTHING = MemoryReading((), None, 0, (), 0)


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
        '{"model_type": "llama", "num_hidden_layers": 10, "hidden_size": 640,'
        ' "num_attention_heads": 10, "vocab_size": 1000, "intermediate_size": 1700,'
        ' "max_position_embeddings": 4096, "tie_word_embeddings": true}'
    )
    words = "python train.py --model_name_or_path /m/own --per_device_train_batch_size 2 --max_length 128 --bf16"
    run = intake.run_of_command(words, {"/m/own/config.json": config}.get, folder="/work")
    assert run.setup is not None
    assert (run.setup.model.layers, run.setup.model.ffn, run.setup.model.tied) == (10, 1700, True)


SHAPES = tomllib.loads((CASES / "shapes.toml").read_text(encoding="utf-8"))["model"]


@pytest.mark.parametrize("case", SHAPES, ids=lambda case: case["name"])
def test_a_configuration_gives_the_weights_that_its_authors_state_or_says_why_not(case: dict[str, Any]) -> None:
    words = f"python train.py --model_name_or_path /m/{case['name']} --per_device_train_batch_size 2 --max_length 128 --bf16"
    run = intake.run_of_command(words, {f"/m/{case['name']}/config.json": case["config"]}.get, folder="/work")
    plan = make_plan(NOTHING, run, gpu_memory=80 * GIB)
    if "unread" in case:
        assert run.setup is None
        assert any(note.startswith("the shape of the model is not known") and case["unread"] in note for note in plan.notes)
    else:
        assert run.setup is not None
        assert run.setup.model.parameters == pytest.approx(case["parameters"], rel=1e-4)


def test_each_family_has_a_configuration_among_the_cases_or_is_built_as_one_that_has() -> None:
    kinds = {json.loads(case["config"]).get("model_type") for case in SHAPES if "parameters" in case}
    assert {FAMILIES[kind] for kind in kinds} | {FAMILIES["phi"]} == set(FAMILIES.values())


def test_every_shape_can_be_named() -> None:
    assert all(shape_named(name) is not None for name in published_shapes())
