"""Weights that are no numbers are no checkpoint to go on from, whatever the log says of the step."""

from __future__ import annotations

import io
import json
import os
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assistant.recover.checkpoints.arrays import MOST_BYTES, number_problem
from assistant.recover.checkpoints.inventory import inventory, last_healthy, without_lost_numbers

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
GOOD, LOST = np.linspace(-1, 1, 200, dtype="<f4"), np.full(200, np.nan, "<f4")


def as_npz(path: Path, **arrays: Any) -> None:
    np.savez(path, **arrays)


def as_safetensors(path: Path, **arrays: Any) -> None:
    """Write arrays as bfloat16, whose upper halves are those of 32 bits."""
    header, body = {}, b""
    for name, values in arrays.items():
        raw = (values.astype("<f4").view("<u4") >> 16).astype("<u2").tobytes()
        header[name] = {"dtype": "BF16", "shape": [values.size], "data_offsets": [len(body), len(body) + len(raw)]}
        body += raw
    text = json.dumps(header).encode()
    path.write_bytes(len(text).to_bytes(8, "little") + text + body)


def as_torch(path: Path, **arrays: Any) -> None:
    """Write arrays as `torch.save` does: a pickle that names the storages, and their bytes beside it."""

    def text(value: str) -> bytes:
        return b"X" + len(value).to_bytes(4, "little") + value.encode()

    pickle = b"\x80\x02("
    for place, _ in enumerate(arrays):
        storage = b"ctorch\nFloatStorage\nq\x02" if not place else b"h\x02"
        word = text("storage") + b"q\x01" if not place else b"h\x01"
        pickle += b"(" + word + storage + text(str(place)) + text("cpu") + b"K\xc8tQ"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("run/data.pkl", pickle + b"t.")
        archive.writestr("run/version", "3\n")
        for place, values in enumerate(arrays.values()):
            archive.writestr(f"run/data/{place}", values.astype("<f4").tobytes())


WRITERS = {"net_{:06}.npz": as_npz, "net-step{}.safetensors": as_safetensors, "net_step{}.pt": as_torch}


@pytest.mark.parametrize("form", WRITERS)
def test_the_newest_checkpoint_of_numbers_is_chosen(form: str, tmp_path: Path) -> None:
    for step in (20, 40, 60, 80):
        WRITERS[form](tmp_path / form.format(step), w=GOOD if step < 60 else LOST, b=GOOD)
        os.utime(tmp_path / form.format(step), (1_700_000_000 + step,) * 2)
    held = inventory(tmp_path, now=NOW)
    choice = last_healthy(held, now=NOW)
    assert choice.checkpoint is not None
    assert choice.checkpoint.step == 40
    assert [one.step for one in choice.refused] == [80, 60]
    assert "holds NaN in 1 of 2 arrays" in choice.refused[0].problems[0]
    assert [one.healthy for one in without_lost_numbers(held).checkpoints] == [True, True, False, False]


def of(path: Path) -> str:
    (entry,) = inventory(path.parent, now=NOW).entries
    return number_problem(entry)


def test_a_history_a_score_and_a_mask_are_no_weights(tmp_path: Path) -> None:
    mask = np.full(400, -np.inf, "<f4")
    as_npz(tmp_path / "net_000020.npz", w=GOOD, loss_history=LOST, best=np.float32("nan"), causal=mask)
    assert of(tmp_path / "net_000020.npz") == ""


def test_one_small_array_among_many_is_no_loss_of_the_weights(tmp_path: Path) -> None:
    as_npz(tmp_path / "net_000020.npz", w=np.tile(GOOD, 5), v=GOOD, u=GOOD, running=LOST[:20])
    assert of(tmp_path / "net_000020.npz") == ""


def test_objects_are_never_unpickled_and_what_is_malformed_says_nothing(tmp_path: Path) -> None:
    class Bomb:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "was_run"),)

    np.savez(tmp_path / "net_000020.npz", w=np.array([Bomb()] * 20, dtype=object), allow_pickle=True)
    assert of(tmp_path / "net_000020.npz") == ""
    assert not (tmp_path / "was_run").exists()
    (tmp_path / "net_000020.npz").unlink()
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:
        archive.writestr("w.npy", b"\x93NUMPY\x01\x00\xff\xff{'descr': '<f4', 'shape': (" + b"9" * 300)
        archive.writestr("v.npy", b"\x93NUMPY\x07\x00")
    (tmp_path / "net_000040.npz").write_bytes(stream.getvalue())
    assert of(tmp_path / "net_000040.npz") == ""


def test_of_a_file_with_holes_and_of_many_arrays_only_so_much_is_read(tmp_path: Path) -> None:
    path = tmp_path / "net-step20.safetensors"
    size = 1 << 40
    text = json.dumps({"w": {"dtype": "F32", "shape": [size // 4], "data_offsets": [0, size]}}).encode()
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.truncate(8 + len(text) + size)
    assert of(path) == ""
    path.unlink()
    as_npz(tmp_path / "net_000020.npz", **{f"w{place:03}": GOOD if place < 200 else LOST for place in range(300)})
    (entry,) = inventory(tmp_path, now=NOW).entries
    assert number_problem(entry, 100 * GOOD.nbytes) == ""
    assert number_problem(entry, MOST_BYTES) == "" or "100 of 300" in number_problem(entry, MOST_BYTES)
