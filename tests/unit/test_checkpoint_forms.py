"""Checkpoints in forms of a program's own: verified where the form can be, else judged by their series, else not judged."""

from __future__ import annotations

import bz2
import gzip
import hashlib
import io
import json
import lzma
import os
import pickle
import random
import struct
import tarfile
import tomllib
import zipfile
import zlib
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from assistant.records import Checkpoint
from assistant.recover.checkpoints.forms import file_verdict
from assistant.recover.checkpoints.inventory import Inventory, examined, inventory, last_healthy, with_save_ends

FOLDER = Path(__file__).parents[1] / "cases" / "checkpoints"
CASES: list[dict[str, Any]] = tomllib.loads((FOLDER / "forms.toml").read_text("utf-8"))["case"]
NOW = datetime(2030, 3, 1, 3, 0, tzinfo=UTC)
SAVED = 1.9e9
READ = 1 << 24


def noise(size: int, seed: int) -> bytes:
    return random.Random(seed).randbytes(size)


def torch_zip(content: bytes) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
        archive.writestr("archive/data/0", content)
    return out.getvalue()


def tarred(content: bytes) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as archive:
        for name in ("model", "optimizer"):
            member = tarfile.TarInfo(name)
            member.size = len(content)
            archive.addfile(member, io.BytesIO(content))
    return out.getvalue()


def digest(name: str, content: bytes) -> bytes:
    return hashlib.new(name, content).hexdigest().encode()


WRITERS: dict[str, Callable[[bytes], bytes]] = {
    "gzip": gzip.compress,
    "gzip, two members": lambda content: gzip.compress(content[:100]) + gzip.compress(content),
    "bzip2": bz2.compress,
    "xz": lzma.compress,
    "zlib": zlib.compress,
    "zip": torch_zip,
    "pickle": pickle.dumps,
    "pickle 2": lambda content: pickle.dumps(list(content[:3000]), 2),
    "several pickles": lambda content: pickle.dumps(content) + pickle.dumps([content]),
    "json": lambda content: json.dumps({"weights": content.hex()}).encode(),
    "sha256 line": lambda content: digest("sha256", content) + b"\n" + content,
    "named md5 line": lambda content: b"md5:" + digest("md5", content) + b"\n" + content,
    "sha512 in front": lambda content: hashlib.sha512(content).digest() + content,
    "crc at the end": lambda content: b"OWNFORM" + content + struct.pack("<I", zlib.crc32(b"OWNFORM" + content)),
}
"""Each tells by itself where it ends."""
REAL = sorted(
    {
        member.name.split("/")[1]
        for member in tarfile.open(FOLDER / "real" / "forms.tar.gz").getmembers()  # noqa: SIM115 - closed with the process
    }
)


def write(path: Path, content: bytes, place: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    os.utime(path, (SAVED + 60 * place,) * 2)


def newest(held: Inventory) -> Checkpoint:
    return examined(held, held.checkpoints[-1], now=NOW)


def verdict_of(checkpoint: Checkpoint) -> str:
    if checkpoint.healthy:
        return "stands" if checkpoint.unread else "whole"
    return "undecided" if checkpoint.undecided else "refused"


def torn(content: bytes) -> list[bytes]:
    size = len(content)
    return [content[:cut] for cut in sorted({3, size // 10, size // 2, size * 9 // 10, size - 100, size - 1})]


@pytest.mark.parametrize("form", WRITERS)
@pytest.mark.parametrize("suffix", [".pt", ".ckpt", ".pth"])
def test_a_form_that_tells_its_own_end_is_verified_whatever_the_suffix_says(form: str, suffix: str, tmp_path: Path) -> None:
    content = WRITERS[form](noise(20_000, 1))
    write(tmp_path / f"step_10{suffix}", content, 0)
    assert verdict_of(newest(inventory(tmp_path, now=NOW))) == "whole"
    for cut in torn(content):
        write(tmp_path / f"step_10{suffix}", cut, 0)
        assert verdict_of(newest(inventory(tmp_path, now=NOW))) in ("refused", "undecided"), len(cut)


@pytest.mark.parametrize("form", REAL)
def test_what_the_libraries_write_is_judged_whole_and_torn(form: str, tmp_path: Path) -> None:
    with tarfile.open(FOLDER / "real" / "forms.tar.gz") as packed:
        packed.extractall(tmp_path, filter="data")
    folder = tmp_path / "forms" / form
    for place, path in enumerate(sorted(folder.iterdir())):
        os.utime(path, (SAVED + 60 * place,) * 2)
    last = folder / "step_30.pt"
    content = last.read_bytes()
    assert verdict_of(newest(inventory(folder, now=NOW))) == "whole"
    for cut in torn(content):
        write(last, cut, 5)
        held = with_save_ends(inventory(folder, now=NOW), {last: "the job went on"}, now=NOW)
        assert verdict_of(newest(held)) in ("refused", "undecided"), len(cut)
        choice = last_healthy(held, now=NOW)
        assert choice.checkpoint is not None
        assert choice.checkpoint.step == 20


def content_of(word: str, size: int, place: int) -> bytes:
    """Return the content that a case names: of each checkpoint another one, in the same form."""
    body = noise(size, place)
    match word:
        case "own":
            return b"OWNFORM\x01" + body
        case "closed":
            return b"OWNFORM\x01" + body + b"END!"
        case "torch":
            return torch_zip(body)
        case "random":
            return body
        case "zeros":
            return bytes(size)
        case "hollow":
            return (b"OWNFORM\x01" + body)[: size // 2] + bytes(size // 2 + 8)
        case "holed":
            return (b"OWNFORM\x01" + body)[:20480] + bytes(40960) + body[-(size + 8 - 61440) :]
        case "html":
            return b"<!DOCTYPE html>\n<html><title>502 Bad Gateway</title></html>"
        case "denied":
            return b'<?xml version="1.0" encoding="UTF-8"?>\n<Error><Code>AccessDenied</Code></Error>'
        case "failed":
            return b'{"error": "Repository not found"}'
        case "lfs":
            return b"version https://git-lfs.github.com/spec/v1\noid sha256:" + b"a" * 64 + b"\nsize 123456\n"
        case "empty":
            return b""
        case "sha256":
            return digest("sha256", body) + b"\n" + body
        case "sha256_torn":
            return (digest("sha256", body) + b"\n" + body)[: size // 2]
        case "commit":
            return digest("sha1", b"commit") + b"\n" + body
        case "tail_digest":
            return b"OWNFORM\x01" + body + hashlib.md5(b"OWNFORM\x01" + body).digest()
        case "header":
            return b"HDR1" + struct.pack("<IQ", place, size) + body
        case "header_torn":
            return (b"HDR1" + struct.pack("<IQ", place, size) + body)[:-120]
    raise ValueError(word)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_form_of_its_own_is_judged_by_its_series(case: dict[str, Any], tmp_path: Path) -> None:
    names = case.get("names") or [f"epoch_{place:02}.pt" for place in range(len(case["files"]))]
    for place, (name, words) in enumerate(zip(names, case["files"], strict=True)):
        word, size = words.split()
        write(tmp_path / name, content_of(word, int(size), place), place)
    if "tracker" in case:
        write(tmp_path / case["tracker"], names[-1].encode(), len(names))
    held = inventory(tmp_path, now=NOW)
    if case.get("end"):
        held = with_save_ends(held, {tmp_path / names[-1]: "the job went on behind it"}, now=NOW)
    judged = newest(held)
    assert verdict_of(judged) == case["verdict"], judged
    said = "; ".join((*judged.problems, judged.unread, *judged.grounds))
    assert case.get("words", "") in said
    assert judged.undecided == said.startswith("cannot be judged")
    chosen = last_healthy(held, now=NOW).checkpoint
    expected = len(names) - 1 if judged.healthy else case.get("chosen")
    if expected is not None:
        assert chosen is not None
        assert chosen.path.name == names[expected]
    elif len(names) == 1:
        assert chosen is None


def test_a_digest_beside_a_file_is_compared_with_it(tmp_path: Path) -> None:
    content = torch_zip(noise(9000, 1))
    write(tmp_path / "step_10.pt", content, 0)
    (tmp_path / "step_10.pt.sha256").write_text(f"{digest('sha256', content).decode()}  step_10.pt\n")
    assert file_verdict(tmp_path / "step_10.pt", read_bytes=READ).problem == ""
    (tmp_path / "step_10.pt.sha256").write_text(f"{digest('sha256', content[:-1]).decode()}  step_10.pt\n")
    assert "another digest" in file_verdict(tmp_path / "step_10.pt", read_bytes=READ).problem


def test_no_more_comes_out_of_a_stream_than_may(tmp_path: Path) -> None:
    write(tmp_path / "step_10.pt", gzip.compress(bytes(1 << 26)), 0)
    assert "too long" in file_verdict(tmp_path / "step_10.pt", read_bytes=READ).unread


def test_nothing_of_a_pickle_is_run(tmp_path: Path) -> None:
    class Trap:
        def __reduce__(self) -> tuple[Callable[[str], None], tuple[str]]:
            return os.mkdir, (str(tmp_path / "ran"),)

    write(tmp_path / "step_10.pt", pickle.dumps(Trap()), 0)
    assert file_verdict(tmp_path / "step_10.pt", read_bytes=READ).problem == ""
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize(("name", "pack"), [("bread.json.gz", gzip.compress), ("bread.xz", lzma.compress), ("bread", bz2.compress)])
def test_a_stream_of_any_name_that_does_not_end_is_cut_short(name: str, pack: Callable[[bytes], bytes], tmp_path: Path) -> None:
    path = tmp_path / name
    content = pack(noise(9000, 1))
    path.write_bytes(content)
    assert file_verdict(path, read_bytes=READ).problem == ""
    path.write_bytes(content[: len(content) * 2 // 3])
    assert "was cut short" in file_verdict(path, read_bytes=READ).problem
    assert file_verdict(path).problem == ""


def test_a_file_beside_a_checkpoint_that_is_no_stream_says_nothing(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("rye")
    os.mkfifo(tmp_path / "pipe")
    assert file_verdict(tmp_path / "notes.txt", read_bytes=READ).problem == ""
    assert file_verdict(tmp_path / "pipe", read_bytes=READ).problem == ""
