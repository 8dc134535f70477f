"""Checkpoints that the libraries themselves wrote, whole and damaged: the verdict is the one of the library."""

from __future__ import annotations

import tarfile
import tomllib
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from assistant.recover.checkpoints.files import crc32c
from assistant.recover.checkpoints.inventory import examined, inventory, last_healthy
from assistant.recover.checkpoints.streams import zstd_problem

FOLDER = Path(__file__).parents[1] / "cases" / "checkpoints"
CASES: list[dict[str, Any]] = tomllib.loads((FOLDER / "real.toml").read_text("utf-8"))["case"]
NOW = datetime(2030, 3, 1, 3, 0, tzinfo=UTC)
STEPS = [10, 20]


def unpacked(archive: str, folder: Path) -> Path:
    with tarfile.open(FOLDER / "real" / f"{archive}.tar.gz") as packed:
        packed.extractall(folder, filter="data")
    return folder / archive


def damaged(content: bytes, how: str) -> bytes:
    """Return a file's content as a bad disk or a killed writer leaves it."""
    middle = len(content) // 2
    match how:
        case "cut":
            return content[:middle]
        case "flip":
            return content[:middle] + bytes([content[middle] ^ 0xFF]) + content[middle + 1 :]
        case "empty":
            return b""
        case "zero":
            return bytes(len(content))
        case "content":  # in a tensor: 64 floats of the step
            return content.replace(b"\x00\x00\xa0\x41" * 64, b"\x00\x00\xa0\x41" * 63 + b"\x00\x00\xa1\x41")
        case "text":
            return content.replace(b"model.w", b"mod\xffl.w")
    raise ValueError(how)


@pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case['archive']}-{case.get('file', '')}-{case.get('damage', '')}")
def test_a_checkpoint_of_a_library_is_judged_as_the_library_does(case: dict[str, Any], tmp_path: Path) -> None:
    root = unpacked(case["archive"], tmp_path)
    if "text" in case:
        (root / case["file"]).write_text(case["text"])
    elif case.get("damage") == "gone":
        (root / case["file"]).unlink()
    elif "damage" in case:
        before = (root / case["file"]).read_bytes()
        after = damaged(before, case["damage"])
        assert after != before
        (root / case["file"]).write_bytes(after)
    held = inventory(root, now=NOW)
    assert [one.step for one in held.checkpoints] == STEPS
    newest = examined(held, held.checkpoints[-1], now=NOW)
    assert newest.path.name == case["name"]
    assert newest.healthy == case.get("whole", False), newest.problems
    if "problem" in case:
        assert any(case["problem"] in problem for problem in newest.problems), newest.problems
    chosen = last_healthy(held, now=NOW).checkpoint
    assert chosen is not None
    assert chosen.step == (20 if newest.healthy else 10)


def test_a_job_that_goes_on_with_fewer_ranks_writes_fewer_shards(tmp_path: Path) -> None:
    root = unpacked("dcp", tmp_path)
    for step in STEPS:  # as if more ranks had written before
        (root / f"step-{step}" / "__1_0.distcp").write_bytes(b"x" * 9000)
    third = root / "step-30"
    third.mkdir()
    for name in (".metadata", "__0_0.distcp"):
        (third / name).write_bytes((root / "step-20" / name).read_bytes())
    newest = last_healthy(inventory(root, now=NOW), now=NOW).checkpoint
    assert newest is not None
    assert newest.step == 30


def test_the_castagnoli_polynomial() -> None:
    assert crc32c(b"123456789") == 0xE3069283  # RFC 3720, appendix B.4


def test_frames_of_zstandard_are_walked_to_their_end(tmp_path: Path) -> None:
    frame = b"\x28\xb5\x2f\xfd\x20\x03\x19\x00\x00abc"  # one raw block of three bytes, the last
    for content, problem in (
        (frame, None),
        (frame * 2, None),
        (frame[:-1], "cut short"),
        (frame[:7], "cut short"),
        (b"x", "begins"),
    ):
        path = tmp_path / "chunk"
        path.write_bytes(content)
        with path.open("rb", buffering=0) as file:
            told = zstd_problem(file, len(content))
        assert (told is None) if problem is None else problem in str(told), (content, told)
