"""How far the memory model is from what torch allocates, over small language models of many shapes and settings.

    .venv-torch/bin/python -m bench.memory_model [--every 1] [--all]

Each setting trains a model for two steps on the CPU while the profiler records each allocation of torch's CPU allocator; its peak
in the last step is compared with the prediction. The bytes that autograd keeps (`saved_tensors_hooks`) are compared as well.
What a GPU adds (CUDA context, NCCL, fragmentation) is no part of it, and neither are parallel layouts.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace
from itertools import product
from typing import Any

from assistant.memory_plan.estimate import MemoryMoment, MemoryPart, StageEstimate, estimate_stage
from assistant.memory_plan.setup import MIB, ModelShape, Optimizer, ParallelLayout, Precision, Recompute, TrainingSetup

MEDIAN_LIMIT, WORST_LIMIT = 0.05, 0.15
STEPS = 2
"""The first one makes the optimiser's states."""
GPT = ModelShape(layers=3, hidden=128, heads=4, vocabulary=1024, bias=True, norm_bias=True, positions=1024, tied=True)
LLAMA = ModelShape(layers=3, hidden=128, heads=8, kv_heads=2, vocabulary=1024, ffn=352, gated=True)
BASE = TrainingSetup(
    GPT, ParallelLayout(), 128, 2, precision=Precision.FP32, foreach=False, separate_projections=False, fused_norms=True
)


def settings() -> Iterator[tuple[str, TrainingSetup]]:
    """Yield at least 60 settings with a name each: one thing after the other is changed, in both families of models."""
    for family, shape in (("gpt", GPT), ("llama", LLAMA)):
        base = replace(BASE, model=shape, separate_projections=family == "llama", fused_norms=family == "gpt")
        yield f"{family} base", base
        for field, values in (("layers", (1, 2, 6)), ("hidden", (64, 192, 256)), ("vocabulary", (256, 4096, 16000))):
            for value in values:
                sizes: dict[str, Any] = {field: value, **({"ffn": value * 11 // 4} if field == "hidden" and shape.gated else {})}
                yield f"{family} {field} {value}", replace(base, model=replace(shape, **sizes))
        yield f"{family} heads 16", replace(base, model=replace(shape, heads=16, kv_heads=shape.kv_heads and 4))
        for sequence in (32, 256, 512):
            yield f"{family} sequence {sequence}", replace(base, sequence=sequence)
        for batch in (1, 4, 8):
            yield f"{family} micro-batch {batch}", replace(base, micro_batch=batch)
        yield f"{family} accumulation 3", replace(base, accumulation=3)
        for optimizer in (Optimizer.SGD, Optimizer.MOMENTUM):
            yield f"{family} {optimizer}", replace(base, optimizer=optimizer)
        yield f"{family} foreach", replace(base, foreach=True)
        yield f"{family} wide foreach", replace(base, foreach=True, micro_batch=1, model=replace(shape, hidden=256))
        for precision in (Precision.PURE16, Precision.AUTOCAST):
            narrow = replace(base, precision=precision, fp32_logits=precision is Precision.AUTOCAST)
            yield f"{family} {precision}", narrow
            yield f"{family} {precision} long", replace(narrow, sequence=192, model=replace(shape, layers=4))
            yield f"{family} {precision} recompute", replace(narrow, recompute=Recompute.FULL, model=replace(shape, layers=5))
        for layers, sequence in ((3, 128), (5, 256), (8, 64)):
            deep = replace(shape, layers=layers)
            full = replace(base, recompute=Recompute.FULL, sequence=sequence, model=deep)
            yield f"{family} recompute {layers} layers {sequence} tokens", full
        yield f"{family} attention matrix", replace(base, flash=False)
        yield f"{family} attention matrix, 256 tokens", replace(base, flash=False, sequence=256, micro_batch=1)
        yield f"{family} logits held", replace(base, logits_held=True, model=replace(shape, vocabulary=4096))
        mixed = replace(shape, layers=4, hidden=192, ffn=512, vocabulary=6000)
        yield f"{family} mixed", replace(base, model=mixed, sequence=192, micro_batch=2, optimizer=Optimizer.ADAM)
        yield (
            f"{family} mixed bf16",
            replace(
                base,
                model=mixed,
                sequence=128,
                micro_batch=3,
                precision=Precision.PURE16,
                fp32_logits=True,
                recompute=Recompute.FULL,
            ),
        )


def build(setup: TrainingSetup) -> Any:
    """Return a torch module of a setup's shape: pre-norm, causal, with the operations that a plain program uses."""
    import torch
    from torch import nn
    from torch.nn import functional
    from torch.utils.checkpoint import checkpoint

    shape = setup.model
    size = shape.head_size or shape.hidden // shape.heads

    class Attention(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            widths = [shape.query, shape.key, shape.key]
            widths = widths if setup.separate_projections else [sum(widths)]
            self.inputs = nn.ModuleList(nn.Linear(shape.hidden, width, bias=shape.bias) for width in widths)
            self.output = nn.Linear(shape.query, shape.hidden, bias=shape.bias)

        def forward(self, hidden: Any) -> Any:
            batch, length, _ = hidden.shape
            projections = [layer(hidden) for layer in self.inputs]
            if len(projections) == 1:
                projections = list(projections[0].split([shape.query, shape.key, shape.key], dim=-1))
            query, key, value = (part.view(batch, length, -1, size).transpose(1, 2) for part in projections)
            if setup.flash:
                mixed = functional.scaled_dot_product_attention(query, key, value, is_causal=True, enable_gqa=shape.kv_heads > 0)
            else:
                groups = shape.query // shape.key
                scores = query.unflatten(1, (-1, groups)) @ key.unsqueeze(2).transpose(-2, -1) * size**-0.5
                hidden_future = torch.ones(length, length, dtype=torch.bool).triu(1)
                weights = scores.masked_fill(hidden_future, float("-inf")).softmax(-1)
                mixed = (weights @ value.unsqueeze(2)).flatten(1, 2)
            return self.output(mixed.transpose(1, 2).reshape(batch, length, shape.query))

    class Feed(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.up = nn.Linear(shape.hidden, shape.inner, bias=shape.bias)
            self.gate = nn.Linear(shape.hidden, shape.inner, bias=shape.bias) if shape.gated else None
            self.down = nn.Linear(shape.inner, shape.hidden, bias=shape.bias)

        def forward(self, hidden: Any) -> Any:
            if self.gate is None:
                return self.down(functional.gelu(self.up(hidden)))
            return self.down(functional.silu(self.gate(hidden)) * self.up(hidden))

    def norm() -> Any:
        return nn.LayerNorm(shape.hidden) if shape.norm_bias else nn.RMSNorm(shape.hidden)

    class Block(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.attention, self.second, self.feed = norm(), Attention(), norm(), Feed()

        def forward(self, hidden: Any) -> Any:
            hidden = hidden + self.attention(self.first(hidden))
            return hidden + self.feed(self.second(hidden))

    class Language(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(shape.vocabulary, shape.hidden)
            self.places = nn.Embedding(shape.positions, shape.hidden) if shape.positions else None
            self.blocks = nn.ModuleList(Block() for _ in range(shape.layers))
            self.last = norm()
            self.head = nn.Linear(shape.hidden, shape.vocabulary, bias=False)
            if shape.tied:
                self.head.weight = self.tokens.weight

        def forward(self, tokens: Any) -> Any:
            hidden = self.tokens(tokens)
            if self.places is not None:
                hidden = hidden + self.places.weight[: tokens.shape[1]]
            for block in self.blocks:
                full = setup.recompute is Recompute.FULL
                hidden = checkpoint(block, hidden, use_reentrant=False) if full else block(hidden)
            return self.head(self.last(hidden))

    return Language()


def build_encoder(setup: TrainingSetup) -> Any:
    """Return a model made of torch's own `TransformerEncoder`, whose operations the formulas were not fitted to."""
    import torch
    from torch import nn

    shape = setup.model

    class Encoder(nn.Module):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.tokens = nn.Embedding(shape.vocabulary, shape.hidden)
            layer = nn.TransformerEncoderLayer(
                shape.hidden, shape.heads, shape.inner, 0.0, torch.nn.functional.gelu, batch_first=True, norm_first=True
            )
            self.blocks = nn.TransformerEncoder(layer, shape.layers, nn.LayerNorm(shape.hidden), enable_nested_tensor=False)
            self.head = nn.Linear(shape.hidden, shape.vocabulary, bias=False)

        def forward(self, tokens: Any) -> Any:
            mask = nn.Transformer.generate_square_subsequent_mask(tokens.shape[1])
            return self.head(self.blocks(self.tokens(tokens), mask=mask, is_causal=True))

    return Encoder()


def unseen_settings() -> Iterator[TrainingSetup]:
    """Yield settings for `build_encoder`."""
    shape = replace(GPT, tied=False, positions=0)
    for layers, hidden, sequence, batch, vocabulary in product((2, 4), (128, 192), (96, 192), (1, 3), (512, 4096)):
        yield replace(
            BASE, model=replace(shape, layers=layers, hidden=hidden, vocabulary=vocabulary), sequence=sequence, micro_batch=batch
        )


def measured(setup: TrainingSetup, build_model: Callable[[TrainingSetup], Any] = build) -> tuple[int, int]:
    """Train two steps; return the peak of the allocator in the last one and what autograd keeps of one forward pass, in bytes."""
    import torch
    from torch.autograd.graph import saved_tensors_hooks
    from torch.nn import functional
    from torch.profiler import ProfilerActivity, profile, record_function

    torch.manual_seed(0)
    saved_bytes: dict[int, int] = {}

    def keep(tensor: Any) -> Any:
        storage = tensor.untyped_storage()
        if storage.data_ptr() not in weights:
            saved_bytes[storage.data_ptr()] = storage.nbytes()
        return tensor

    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        model = build_model(setup)
        if setup.precision is Precision.PURE16:
            model = model.to(torch.bfloat16)
        weights = {weight.untyped_storage().data_ptr() for weight in model.parameters()}
        optimizer = _optimizer(setup, model.parameters())
        for step in range(STEPS):
            with record_function(f"step {step}"):
                for micro in range(setup.accumulation):
                    text = torch.randint(setup.model.vocabulary, (setup.micro_batch, setup.sequence + 1))
                    watched = step == 0 and micro == 0
                    with torch.autocast("cpu", torch.bfloat16, enabled=setup.precision is Precision.AUTOCAST):
                        if watched and setup.recompute is Recompute.NONE:
                            with saved_tensors_hooks(keep, lambda tensor: tensor):
                                logits = model(text[:, :-1])
                        else:
                            logits = model(text[:, :-1])
                        flat, target = logits.flatten(0, 1), text[:, 1:].flatten()
                        if not setup.logits_held:
                            del logits
                        if setup.fp32_logits:
                            flat = flat.float()
                        loss = functional.cross_entropy(flat, target)
                        if not setup.logits_held:
                            del flat
                    loss.backward()
                optimizer.step()
                optimizer.zero_grad()
    return _peak(profiler, f"step {STEPS - 1}"), sum(saved_bytes.values())


def _optimizer(setup: TrainingSetup, weights: Iterable[Any]) -> Any:
    import torch

    if setup.optimizer is Optimizer.ADAM:
        return torch.optim.AdamW(weights, foreach=setup.foreach)
    momentum = 0.9 if setup.optimizer is Optimizer.MOMENTUM else 0.0
    return torch.optim.SGD(weights, lr=0.01, momentum=momentum, foreach=setup.foreach)


def _peak(profiler: Any, section: str) -> int:
    """Return the highest count of allocated bytes within a section of a profile."""
    waiting = list(profiler.profiler.kineto_results.experimental_event_tree())
    events: list[tuple[int, int, int]] = []
    begin = end = 0
    while waiting:
        event = waiting.pop()
        waiting.extend(event.children)
        if event.name == section:
            begin, end = event.start_time_ns, event.end_time_ns
        elif hasattr(event.extra_fields, "total_allocated"):
            events.append((event.start_time_ns, event.extra_fields.total_allocated, event.extra_fields.alloc_size))
    _, before, size = min(events)  # the counter goes on from what an earlier profile did not see freed
    return max(count for at, count, _ in events if begin <= at <= end) - before + size


def predicted(setup: TrainingSetup) -> StageEstimate:
    """Return the estimate of a setup; its `allocated` is what a CPU allocator shows as well."""
    return estimate_stage(setup, 0)


def main() -> int:
    """Measure, print, and return 1 when the median or the worst error is over its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--every", type=int, default=1, metavar="N", help="measure each Nth setting only")
    parser.add_argument("--all", action="store_true", help="print each setting, and not the worst ten only")
    options = parser.parse_args()
    try:
        import torch
    except ModuleNotFoundError:
        print("bench.memory_model: skipped, torch is not installed here (make deps-torch; .venv-torch/bin/python)")
        return 0
    torch.set_num_threads(1)
    begin = time.perf_counter()
    rows, saved = [], []
    for name, setup in list(settings())[:: options.every]:
        peak, saved_bytes = measured(setup)
        guess = predicted(setup)
        rows.append((guess.allocated / peak - 1, name, peak, guess))
        if saved_bytes and guess.moment is MemoryMoment.LOSS:
            casts = guess.parts[MemoryPart.CASTS]
            saved.append(((guess.parts[MemoryPart.ACTIVATIONS] + casts) / saved_bytes - 1, name))
    errors = sorted(abs(row[0]) for row in rows)
    for error, name, peak, guess in sorted(rows, key=lambda row: -abs(row[0]))[: None if options.all else 10]:
        print(
            f"{error:+7.1%}  {name:36} measured {peak / MIB:8.1f} MiB, predicted {guess.allocated / MIB:8.1f}, at the "
            f"{guess.moment}"
        )
    saved_errors = sorted(abs(error) for error, _ in saved)
    print(f"torch {torch.__version__}: {len(rows)} settings in {time.perf_counter() - begin:.0f} s")
    print(f"peak: median error {statistics.median(errors):.1%}, worst {errors[-1]:.1%}")
    print(f"kept for the backward pass: {len(saved)} settings, median error {statistics.median(saved_errors):.1%}, "
          f"worst {saved_errors[-1]:.1%} ({max(saved, key=lambda row: abs(row[0]))[1]})")  # fmt: skip
    unseen = [predicted(setup).allocated / measured(setup, build_encoder)[0] - 1 for setup in unseen_settings()]
    magnitudes = sorted(abs(error) for error in unseen)
    print(
        f"torch's TransformerEncoder, to which nothing was fitted: {len(unseen)} settings, median error "
        f"{statistics.median(magnitudes):.1%}, worst {max(unseen, key=abs):+.1%}"
    )
    return int(statistics.median(errors) > MEDIAN_LIMIT or errors[-1] > WORST_LIMIT)


if __name__ == "__main__":
    sys.exit(main())
