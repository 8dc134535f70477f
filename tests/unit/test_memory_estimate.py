"""The memory model as a whole: what more of a thing does to memory, and what papers say of it."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assistant.memory_plan.estimate import (
    MemoryPart,
    estimate,
    estimate_stage,
    kept_activations,
    layer_activations,
    stage_weights,
)
from assistant.memory_plan.setup import GIB, ModelShape, Optimizer, ParallelLayout, Precision, Recompute, TrainingSetup

SHAPES = st.builds(
    ModelShape,
    layers=st.integers(1, 96),
    hidden=st.sampled_from((128, 768, 4096, 12288)),
    heads=st.sampled_from((4, 16, 32)),
    vocabulary=st.sampled_from((1000, 32000, 128256)),
    gated=st.booleans(),
    tied=st.booleans(),
    dropout=st.booleans(),
    experts=st.sampled_from((0, 8)),
    experts_per_token=st.just(2),
)
LAYOUTS = st.builds(
    ParallelLayout,
    data=st.sampled_from((1, 2, 8, 64)),
    tensor=st.sampled_from((1, 2, 4)),
    pipeline=st.sampled_from((1, 2, 4)),
    context=st.sampled_from((1, 2)),
    sequence_parallel=st.booleans(),
    zero=st.integers(0, 3),
)
SETUPS = st.builds(
    TrainingSetup,
    model=SHAPES,
    layout=LAYOUTS,
    sequence=st.sampled_from((128, 2048, 8192)),
    micro_batch=st.integers(1, 16),
    accumulation=st.integers(1, 16),
    precision=st.sampled_from(Precision),
    optimizer=st.sampled_from(Optimizer),
    recompute=st.sampled_from(Recompute),
    flash=st.booleans(),
    fused=st.booleans(),
    foreach=st.booleans(),
    offload_optimizer=st.booleans(),
    lora_rank=st.sampled_from((0, 16)),
)
STATES = (MemoryPart.WEIGHTS, MemoryPart.GRADIENTS, MemoryPart.STATES)


def states(setup: TrainingSetup) -> float:
    guess = estimate_stage(setup, 0)
    return sum(guess.parts[part] for part in (MemoryPart.WEIGHTS, MemoryPart.STATES))


@given(SETUPS)
@settings(max_examples=150, deadline=None)
def test_bytes_are_never_negative_and_add_up(setup: TrainingSetup) -> None:
    guess = estimate(setup)
    assert all(size >= 0 for size in guess.parts.values())
    assert guess.total == pytest.approx(sum(guess.parts.values()))
    assert max(guess.by_moment.values()) == pytest.approx(guess.allocated)


@given(SETUPS, st.integers(2, 4))
@settings(max_examples=150, deadline=None)
def test_a_larger_micro_batch_never_takes_less(setup: TrainingSetup, times: int) -> None:
    larger = replace(setup, micro_batch=setup.micro_batch * times)
    assert estimate(larger).total >= estimate(setup).total
    assert kept_activations(larger, 0)[0] >= kept_activations(setup, 0)[0]


@given(SETUPS)
@settings(max_examples=100, deadline=None)
def test_longer_samples_never_take_less(setup: TrainingSetup) -> None:
    assert estimate(replace(setup, sequence=2 * setup.sequence)).total >= estimate(setup).total


@given(SETUPS, st.integers(0, 2))
@settings(max_examples=150, deadline=None)
def test_more_sharding_never_holds_more_states(setup: TrainingSetup, zero: int) -> None:
    less = replace(setup, layout=replace(setup.layout, zero=zero))
    more = replace(setup, layout=replace(setup.layout, zero=zero + 1))
    # a copy for autocast is no state; FSDP gathers it layer by layer
    assert states(more) <= states(less)


@given(SETUPS)
@settings(max_examples=150, deadline=None)
def test_more_ranks_never_hold_more_states(setup: TrainingSetup) -> None:
    twice = replace(setup, layout=replace(setup.layout, data=2 * setup.layout.data))
    assert states(twice) <= states(setup)
    tensor = replace(setup, layout=replace(setup.layout, tensor=2 * setup.layout.tensor))
    assert states(tensor) <= states(setup)


@given(SETUPS)
@settings(max_examples=150, deadline=None)
def test_recomputation_never_keeps_more(setup: TrainingSetup) -> None:
    saved = [kept_activations(replace(setup, recompute=mode), 0)[0] for mode in (Recompute.FULL, Recompute.NONE)]
    assert saved == sorted(saved)
    selective = kept_activations(replace(setup, recompute=Recompute.SELECTIVE), 0)[0]
    assert selective <= saved[1] * (1 + 1e-9)


@given(SETUPS)
@settings(max_examples=100, deadline=None)
def test_smaller_options_never_take_more(setup: TrainingSetup) -> None:
    total = estimate(replace(setup, offload_optimizer=False, chunked_logits=False)).total
    plain = replace(setup, offload_optimizer=False, chunked_logits=False)
    for smaller in (replace(plain, offload_optimizer=True), replace(plain, chunked_logits=True)):
        assert estimate(smaller).total <= total * (1 + 1e-9)


@given(SETUPS)
@settings(max_examples=100, deadline=None)
def test_stages_have_all_weights_together(setup: TrainingSetup) -> None:
    layout = replace(setup.layout, tensor=1, expert=1)
    stages = [stage_weights(replace(setup, layout=layout), stage) for stage in range(layout.pipeline)]
    norms = setup.model.norm_weights
    twice = setup.model.embedding if setup.model.tied and layout.pipeline > 1 else 0
    assert sum(stage.total for stage in stages) == pytest.approx(setup.model.parameters + twice, rel=0.02, abs=norms)


def megatron(model: ModelShape, layout: ParallelLayout, **values: object) -> TrainingSetup:
    base = TrainingSetup(
        model, layout, 2048, 1, precision=Precision.MIXED, fused=True, main_grads=True, grads_persist=True, foreach=False,
        separate_projections=False, flash=False,
    )  # fmt: skip
    return replace(base, **values)  # type: ignore[arg-type]


GPT3 = ModelShape(layers=96, hidden=12288, heads=96, vocabulary=51200, bias=True, norm_bias=True, tied=True, dropout=True)


@pytest.mark.parametrize(("tensor", "split", "factor"), [(1, False, 34.0), (8, False, 10 + 24 / 8), (8, True, 34 / 8)])
def test_activations_of_a_layer_are_those_of_korthikanti(tensor: int, split: bool, factor: float) -> None:
    """Source: arXiv 2205.05198, table 2: `34`, `10 + 24 / t` and `34 / t` times s b h, without the attention matrix."""
    setup = megatron(GPT3, ParallelLayout(tensor=tensor, sequence_parallel=split))
    kind = layer_activations(setup)
    matrix = kind.matrix + GPT3.heads * setup.sequence / tensor  # with the mask of its dropout
    assert (kind.total - matrix) / GPT3.hidden == pytest.approx(factor, rel=0.001)


def test_the_attention_matrix_is_that_of_korthikanti() -> None:
    """Source: arXiv 2205.05198, section 4.1: 5 a s / h, which is 80 for GPT-3 of 175 billion weights."""
    kind = layer_activations(megatron(GPT3, ParallelLayout()))
    assert (kind.matrix + GPT3.heads * 2048) / GPT3.hidden == pytest.approx(80, rel=0.001)


@pytest.mark.parametrize(("zero", "data", "per_weight"), [(0, 1, 18.0), (1, 4, 6 + 12 / 4), (1, 64, 6 + 12 / 64)])
def test_states_are_those_of_megatron(zero: int, data: int, per_weight: float) -> None:
    """Source: Megatron-LM, megatron/training/theoretical_memory_usage.py: 18, or 6 + 12 / d bytes for a weight."""
    setup = megatron(GPT3, ParallelLayout(data=data, zero=zero))
    parts = estimate_stage(setup, 0).parts
    assert sum(parts[part] for part in STATES) / GPT3.parameters == pytest.approx(per_weight, rel=0.01)


@pytest.mark.parametrize(("zero", "published"), [(0, 120.0), (1, 31.4), (2, 16.6), (3, 1.9)])
def test_states_are_those_of_the_zero_paper(zero: int, published: float) -> None:
    """Source: arXiv 1910.02054, figure 1: 7.5 billion weights on 64 GPUs, mixed precision, GB."""
    model = ModelShape(layers=40, hidden=3968, heads=31, vocabulary=1000, tied=True)
    setup = TrainingSetup(
        model, ParallelLayout(data=64, zero=zero), 1024, 1, precision=Precision.MIXED, grads_persist=True, foreach=False
    )
    parts = estimate_stage(setup, 0).parts
    scale = 7.5e9 / model.parameters
    assert sum(parts[part] for part in STATES) * scale / 1e9 == pytest.approx(published, rel=0.03)


def test_an_estimate_takes_no_time() -> None:
    setup = megatron(GPT3, ParallelLayout(data=8, tensor=8, pipeline=8))
    assert estimate(setup).total > GIB


@pytest.mark.parametrize(("name", "value"), [("layers", 0), ("hidden", -1), ("heads", 0), ("vocabulary", 0)])
def test_a_shape_without_size_is_refused(name: str, value: int) -> None:
    with pytest.raises(ValueError, match=name):
        replace(GPT3, **{name: value})  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["sequence", "micro_batch", "accumulation"])
def test_a_setup_without_size_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match=name):
        megatron(GPT3, ParallelLayout(), **{name: 0})
