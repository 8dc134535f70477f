"""Cases of AsyncCheckpointer with PyTorch in one process, run by test_async_checkpoints_torch in a Python that has torch.

Says `held_…: held` a line, or what did not hold.
"""

from __future__ import annotations

import collections
import contextlib
import datetime
import enum
import pickle
import random
import sys
import tempfile
import traceback
import warnings
from pathlib import Path
from typing import Any, NamedTuple

import torch
import torch.distributed.checkpoint as dcp

from assistant.training.checkpoints import AsyncCheckpointer, CheckpointError, OtherLayout, SaveFailed, UnsupportedState
from assistant.training.checkpoints.tensors import load_state
from assistant.training.checkpoints.torch_state import loadable

EXTRA: dict[str, Any] = {
    "half": torch.ones(3, dtype=torch.bfloat16),
    "empty": torch.empty(0, 2),
    "view": torch.arange(12).reshape(3, 4).t(),
    "number": torch.tensor(5),
    "flags": torch.tensor([True, False]),
    "rng": torch.get_rng_state(),
    "epoch": 3,
    "deep": {"list": [torch.zeros(2), {"a": (1, 2)}], "none": None},
    "nothing": {"in": [{}, [], ()], "of": {}, "deep": {3: {}, 4: [[{}]]}, "with": [{"tensor": (torch.ones(1), 2)}]},
    "numbers": {7: {"inner": 1.5}, 8: {2: torch.ones(1)}},
}


def made(width: int = 4) -> tuple[torch.nn.Linear, torch.optim.AdamW]:
    """Return a model and its optimiser after one step."""
    torch.manual_seed(1)
    model = torch.nn.Linear(width, 3)
    optimizer = torch.optim.AdamW(model.parameters())
    model(torch.ones(1, width)).sum().backward()
    optimizer.step()
    return model, optimizer


def refusal(call: Any, kind: type[CheckpointError]) -> str:
    """Return what a call is refused with; empty when it is not."""
    try:
        call()
    except kind as error:
        return str(error)
    return ""


def held_all_kinds_of_values_come_back(checkpoints: AsyncCheckpointer) -> bool:
    """A fresh optimiser gets its moments, too."""
    model, optimizer = made()
    checkpoints.save(1, {"model": model, "optimizer": optimizer, **EXTRA})
    fresh = torch.nn.Linear(4, 3)
    other = torch.optim.AdamW(fresh.parameters())
    loaded = checkpoints.load_latest({"model": fresh, "optimizer": other})
    assert loaded is not None
    state = loaded.state
    return (
        all(torch.equal(state[key], value) and state[key].dtype == value.dtype for key, value in list(EXTRA.items())[:6])
        and state["deep"]["list"][1] == {"a": (1, 2)}
        and state["deep"]["none"] is None
        and (state["nothing"]["in"], state["nothing"]["of"]) == ([{}, [], ()], {})
        and state["nothing"]["deep"] == {3: {}, 4: [[{}]]}
        and isinstance(state["nothing"]["with"][0]["tensor"], tuple)
        and state["numbers"][7] == {"inner": 1.5}
        and state["numbers"][8][2].item() == 1
        and torch.equal(fresh.weight, model.weight)
        and torch.equal(other.state[fresh.weight]["exp_avg"], optimizer.state[model.weight]["exp_avg"])
    )


def held_dcp_reads_what_is_written(checkpoints: AsyncCheckpointer) -> bool:
    """Without anything of ours."""
    weights = made()[0].state_dict()
    checkpoints.save(1, {"model": weights, **EXTRA})
    loaded = checkpoints.load_latest()
    assert loaded is not None
    state: Any = {
        "model": torch.nn.Linear(4, 3).state_dict(),
        "half": torch.zeros(3, dtype=torch.bfloat16),
        "view": torch.zeros(4, 3).long(),
    }
    dcp.load(state, checkpoint_id=next(loaded.path.glob("attempt-*")), no_dist=True)
    equal = all(torch.equal(value, weights[key]) for key, value in state["model"].items())
    return equal and torch.equal(state["view"], EXTRA["view"]) and torch.equal(state["half"], EXTRA["half"])


def held_a_snapshot_does_not_change_while_training_goes_on(checkpoints: AsyncCheckpointer) -> bool:
    """Save after save, in buffers that are used again."""
    state = {"a": torch.zeros(3_000_000), "b": torch.zeros(1000, 1000).t()}
    for step in (1, 2, 3):
        for tensor in state.values():
            tensor.fill_(step)
        checkpoints.save(step, state)
        for tensor in state.values():
            tensor.fill_(-1)
    loaded = checkpoints.load_latest()
    assert loaded is not None
    return loaded.step == 3 and all((loaded.state[key] == 3).all().item() for key in state)


def held_another_model_is_refused_and_left_as_it_is(checkpoints: AsyncCheckpointer) -> bool:
    """By shape and by name."""
    checkpoints.save(1, {"model": made()[0]})
    other = made(5)[0]
    before = other.weight.clone()
    shape = refusal(lambda: checkpoints.load_latest({"model": other}), OtherLayout)
    name = refusal(lambda: checkpoints.load_latest({"net": other}), OtherLayout)
    same = torch.equal(other.weight, before)
    return same and "model.weight of shape (3, 4), this program of (3, 5)" in shape and "it has no net.weight" in name


def held_a_flipped_bit_is_passed_over(checkpoints: AsyncCheckpointer) -> bool:
    """In the data of a tensor."""
    model, _ = made()
    for step in (1, 2):
        checkpoints.save(step, {"model": model, "step": step})
    checkpoints.flush()
    path = next((checkpoints.root / "iter_0000002").rglob("__0_0.distcp"))
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)
    loaded = checkpoints.load_latest({"model": model})
    assert loaded is not None
    return loaded.step == 1 and "is damaged" in loaded.refused[0].reason


def held_what_cannot_be_saved_names_its_place(checkpoints: AsyncCheckpointer) -> bool:
    """And the next save works."""
    cases: list[tuple[dict[str, Any], str]] = [
        ({"f": print}, "f is a builtins.builtin_function_or_method"),
        ({"deep": {"x": [object()]}}, "deep.x.0 is a builtins.object"),
        ({"s": torch.eye(3).to_sparse()}, "s is a tensor of layout torch.sparse_coo"),
        ({"m": torch.empty(2, device="meta")}, "m is on the meta device"),
        ({"d": {(1, 2): torch.ones(1)}}, "d has the key (1, 2)"),
        ({"d": {1: 2, "one": 2}}, "d has keys of text and numbers at once"),
    ]
    model, _ = made()
    for bad, says in cases:
        if not refusal(lambda bad=bad: checkpoints.save(1, {"model": model, **bad}), UnsupportedState).startswith(says):
            return False
    checkpoints.save(2, {"model": model})
    checkpoints.flush()
    return [path.name for path in checkpoints.root.glob("iter_*")] == ["iter_0000002"]


def held_a_state_of_another_shape_is_laid_out_anew(checkpoints: AsyncCheckpointer) -> bool:
    """Larger, smaller, with more names, of another kind altogether."""
    for step, state in enumerate(
        ({"a": torch.ones(3)}, {"a": torch.ones(400_000)}, {"a": torch.ones(2), "b": torch.ones(1)}, {"a": 5}), 1
    ):
        checkpoints.save(step, state)
        loaded = checkpoints.load_latest()
        assert loaded is not None
        equal = torch.equal(torch.as_tensor(loaded.state["a"]), torch.as_tensor(state["a"]))
        if not equal or loaded.step != step or loaded.state.keys() != state.keys():
            return False
    return True


def held_a_copy_beside_the_training_is_of_the_step_that_was_saved(checkpoints: AsyncCheckpointer) -> bool:
    """The optimiser's next step waits for it, and what no optimiser owns is copied at once."""
    model = torch.nn.Linear(6000, 4000)
    optimizer = torch.optim.SGD(model.parameters(), lr=1.0, momentum=0.9)
    buffer = torch.zeros(5)
    with AsyncCheckpointer(checkpoints.root / "overlap", metrics=None, overlap=True, keep=None) as overlapping:
        kept = []
        for step in range(1, 4):
            model(torch.ones(1, 6000)).sum().backward()
            optimizer.step()
            buffer.fill_(step)
            kept.append((model.weight.sum(dtype=torch.float64), step))
            overlapping.save(step, {"model": model, "optimizer": optimizer, "buffer": buffer})
            buffer.fill_(-1)
        waited = overlapping.blocked_s - overlapping.saves.blocked_s
        for total, step in kept:
            loaded = overlapping.load_latest(before=step + 1)
            if loaded is None or loaded.step != step or loaded.state["model"]["weight"].sum(dtype=torch.float64) != total:
                return False
            if set(loaded.state["buffer"].tolist()) != {step}:
                return False
    return waited > 0


def held_a_tensor_that_is_changed_while_it_is_copied_spoils_the_snapshot(checkpoints: AsyncCheckpointer) -> bool:
    """And says so; the next save works."""
    model = torch.nn.Linear(8000, 6000)
    optimizer = torch.optim.SGD(model.parameters())
    with AsyncCheckpointer(checkpoints.root / "overlap", metrics=None, overlap=True) as overlapping:
        overlapping.save(1, {"model": model, "optimizer": optimizer})
        with torch.no_grad():
            model.bias.add_(1)
        told = refusal(overlapping.flush, SaveFailed)
        overlapping.save(2, {"model": model, "optimizer": optimizer})
        loaded = overlapping.load_latest()
    return "step 1 was not saved: 1 tensors were changed by something else" in told and loaded is not None and loaded.step == 2


def values_of_all_kinds() -> dict[str, Any]:
    """Return what is no tensor and may stand in a state, as programs keep it: states of generators, arguments, counters."""
    kinds: dict[str, Any] = {
        "python random": random.getstate(),
        "set": {1, 2},
        "frozen": frozenset([3]),
        "complex": [1j, 2.5, True, None, b"x", 10**300],
        "time": datetime.timedelta(hours=3),
        "torch": [torch.float16, torch.device("cpu"), (torch.Size([3]),)],
        "in a list": [({"ordered": collections.OrderedDict(a=1), "count": collections.Counter("aab")},)],
    }
    with contextlib.suppress(ImportError):
        import numpy as np

        kinds |= {
            "numpy random": np.random.get_state(),
            "arrays": [np.arange(5.0), np.array(["a", "bb"]), np.array(["2026"], "M8[D]")],
            "rows": [np.zeros(2, dtype=[("a", "i4"), ("b", "f8")])],
            "scalars": [np.float32(3), np.float64(4), np.int64(5), np.bool_(True), np.str_("x"), np.bytes_(b"y")],
            "complex arrays": np.ones((2, 3), dtype=np.complex64, order="F"),
        }
    return kinds


def held_whatever_can_be_saved_loads_without_running_code(checkpoints: AsyncCheckpointer) -> bool:
    """And is of the same kind and content."""
    kinds = values_of_all_kinds()
    checkpoints.save(1, {"model": made()[0], **kinds})
    loaded = checkpoints.load_latest()
    assert loaded is not None
    for name, value in kinds.items():
        if repr(loaded.state[name]) != repr(value):
            raise AssertionError(f"{name}: saved {value!r}, loaded {loaded.state[name]!r}")
    return not set(torch.serialization.get_safe_globals()) & set(loadable())


class Row(NamedTuple):
    """A tuple with a class of its own."""

    number: int


class Colour(enum.IntEnum):
    """A number with a class of its own."""

    RED = 1


def held_a_class_that_could_not_be_loaded_is_refused_by_the_save(checkpoints: AsyncCheckpointer) -> bool:
    """Until the program says that the class may be loaded."""
    for value in ([Row(1)], Colour.RED, {"a": [{1, Row(2)}]}, [[1, (Row(3),)]]):
        if not refusal(lambda value=value: checkpoints.save(1, {"a": torch.ones(1), "x": value}), UnsupportedState):
            raise AssertionError(f"{value!r} was saved")
    with torch.serialization.safe_globals([Colour]):
        checkpoints.save(2, {"a": torch.ones(1), "x": Colour.RED})
        loaded = checkpoints.load_latest()
    assert loaded is not None
    told = refusal(checkpoints.load_latest, OtherLayout)
    return loaded.state["x"] is Colour.RED and "Colour, which only running code" in told and "add_safe_globals" in told


class Runs:
    """Runs code when it is unpickled."""

    def __reduce__(self) -> Any:
        return Path.touch, (Path("ran"),)


def held_code_in_a_checkpoint_is_not_run(checkpoints: AsyncCheckpointer) -> bool:
    """As a value, written by DCP itself, and in place of its metadata."""
    dcp.save({"a": torch.ones(2), "x": Runs()}, checkpoint_id=checkpoints.root / "value", no_dist=True)
    Path("ran").unlink(missing_ok=True)  # DCP copies values by pickling
    value = refusal(lambda: load_state(checkpoints.root / "value", None, None), OtherLayout)
    (checkpoints.root / "value" / ".metadata").write_bytes(pickle.dumps(Runs()))
    metadata = refusal(lambda: load_state(checkpoints.root / "value", None, None), OtherLayout)
    return not Path("ran").exists() and "x holds an object of" in value and "pathlib" in metadata


def main() -> None:
    """Run all cases."""
    warnings.simplefilter("ignore")
    for name, case in list(globals().items()):
        if name.startswith("held_"):
            with tempfile.TemporaryDirectory() as folder:
                try:
                    with AsyncCheckpointer(Path(folder) / "c", metrics=None) as checkpoints:
                        told = "held" if case(checkpoints) else "did not hold"
                except Exception:  # noqa: BLE001 - told to the test, which fails
                    told = traceback.format_exc().replace("\n", " | ")
            sys.stdout.write(f"{name}: {told}\n")


if __name__ == "__main__":
    main()
