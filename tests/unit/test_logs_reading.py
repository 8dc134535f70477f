"""Opening logs of every kind, and refusing what is none."""

from __future__ import annotations

import gzip
import io
import pickle
import random
import zlib
from array import array
from pathlib import Path
from typing import Any

import pytest

from assistant.errors import InputError
from assistant.logs.lines import Lines, clean
from assistant.logs.reading import blocks, open_log, rotated
from assistant.logs.tail import last_lines, search, typed_search

TEXT = b"".join(b"line %d\n" % number for number in range(1, 3001))


def read(path: Path) -> bytes:
    with open_log(path) as stream:
        return b"".join(blocks(stream, 1000))


@pytest.mark.parametrize(
    "content",
    [
        TEXT,
        gzip.compress(TEXT),
        gzip.compress(TEXT[:5000]) + gzip.compress(TEXT[5000:]),
        gzip.compress(TEXT) + b"\0" * 512,
        TEXT.decode().encode("utf-16"),
    ],
    ids=["plain", "gzip", "two members", "padded gzip", "utf-16"],
)
def test_all_of_a_log_is_read(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(content)
    assert read(path) == TEXT


@pytest.mark.parametrize("damage", ["short", "flipped"])
def test_of_a_damaged_gzip_what_can_be_read_is_kept_and_said(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "job.log.gz"
    text = b"".join(b"line %d\n" % (number * 7919 % 10_007) for number in range(100_000))
    packed = bytearray(gzip.compress(text))
    if damage == "short":
        del packed[len(packed) // 2 :]
    else:
        packed[len(packed) // 2] ^= 0xFF
    path.write_bytes(packed)
    with open_log(path) as stream:
        got = b"".join(blocks(stream))
        assert stream.truncated
    assert got.startswith(b"line 0\nline 7919\n")


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "is empty"),
        (b"\x7fELF\x02\x01\x01", "is no log but a program"),
        (b"PK\x03\x04rest", "zip archive"),
        (b"\x28\xb5\x2f\xfdxxx", "zstdcat"),
        (bytes(range(256)) * 50, "binary data"),
        (gzip.compress(b"\x93NUMPY", mtime=0), "NumPy"),
        (gzip.compress(TEXT, mtime=0)[:15], "ends before its first byte"),
    ],
)
def test_what_is_no_log_is_refused_by_name(tmp_path: Path, content: bytes, message: str) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        open_log(path)


@pytest.mark.parametrize(
    ("words", "encoding"),
    [
        ("第 3 轮 训练损失 0.31\n正在加载模型 model.bin\n", "gbk"),
        ("学習を開始します epoch 3 loss 0.31\n", "shift_jis"),
        ("モデルを保存しました out/model.pt\n", "euc_jp"),
        ("Эпоха 3 потери 0.31\n", "koi8-r"),
        ("Эпоха 3 потери 0.31\n", "cp1251"),
        ("\r 9%|ÛÛÛÛÛÛÛÛÛÛÛÛÛÛÛÛÛÛÛÛÛÛÛÛÛÛÛÛÛÛÛÛÛÛ| 9/90 [00:01<00:09, 3.1it/s]\n", "latin-1"),
        ("에폭 3 손실 0.31 저장 완료\n", "euc_kr"),
        ("época 3 pérdida 0.31 ─────────────\n", "cp850"),
    ],
)
def test_a_log_in_another_encoding_is_read(tmp_path: Path, words: str, encoding: str) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(words.encode(encoding) * 300)
    assert read(path).count(b"\n") == 300 * words.count("\n")


@pytest.mark.parametrize(
    "content",
    [
        random.Random(1).randbytes(60_000),
        array("f", (1.5 + 0.001 * at for at in range(16_000))).tobytes(),
        array("i", range(16_000)).tobytes(),
        pickle.dumps([1.0 / at for at in range(1, 7_000)]),
        zlib.compress(random.Random(2).randbytes(60_000)),
        bytes(random.Random(3).choices(range(128, 256), k=60_000)),
        bytes(random.Random(4).choices((0x3F, 0xBF, 0x80, 0xA1, 0xE3), k=60_000)),
        b"\xff\xd8\xff\xe0" + random.Random(5).randbytes(30_000),
    ],
    ids=["noise", "floats", "integers", "pickle", "zlib", "high bytes", "half floats", "picture"],
)
def test_data_are_no_text_of_another_encoding(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(content)
    with pytest.raises(InputError, match="binary data"):
        open_log(path)


def test_a_missing_file_and_a_folder_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        open_log(tmp_path / "none")
    with pytest.raises(InputError, match="is a folder"):
        open_log(tmp_path)


def test_a_hole_at_the_start_is_no_binary_file(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(b"\0" * 200_000 + TEXT)
    assert read(path).endswith(b"line 3000\n")


def test_blocks_end_with_lines() -> None:
    assert all(block.endswith(b"\n") for block in blocks(io.BytesIO(TEXT), 100))


def test_rotated_siblings_come_oldest_first(tmp_path: Path) -> None:
    for name in ("job.log", "job.log.1", "job.log.2.gz", "job.log.10", "job.log-20260101", "job.log.bak", "other.log.1"):
        (tmp_path / name).touch()
    assert [path.name for path in rotated(tmp_path / "job.log")] == [
        "job.log-20260101",
        "job.log.10",
        "job.log.2.gz",
        "job.log.1",
        "job.log",
    ]


@pytest.mark.parametrize(
    ("raw", "text"),
    [
        (b"\x1b[1;31mred\x1b[0m", "red"),
        (b" 1%|a| 1/9\r 2%|a| 2/9", " 2%|a| 2/9"),
        (b" 1%|a| 1/9\rTraceback (most", "Traceback (most"),
        (b"RuntimeError: lost\r 2%|a| 2/9", "RuntimeError: lost  2%|a| 2/9"),
        (b"windows\r", "windows"),
        (b"\xff\x00ok\xe2\x80\xae", "\ufffdok"),
        (b"\ttab", "\ttab"),
    ],
)
def test_a_line_is_what_a_person_would_see(raw: bytes, text: str) -> None:
    assert clean(raw) == text


def test_lines_with_gaps_are_found_by_number() -> None:
    lines = Lines([(1, b"a\nb\n"), (10, b"j\nk\nl")])
    assert [line.number for line in lines] == [1, 2, 10, 11, 12]
    assert (lines.get(11), lines.get(5), lines.get(13)) == ((11, "k"), None, None)
    assert [line.text for line in lines.window(2, 10)] == ["b", "j"]
    assert [line.text for line in lines.tail(2)] == ["k", "l"]
    assert lines[-1].number == 12


@pytest.mark.parametrize("packed", [False, True])
def test_the_last_lines_are_read_from_the_end(tmp_path: Path, packed: bool) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(gzip.compress(TEXT) if packed else TEXT)
    assert [line.text for line in last_lines(path, 2)] == ["line 2999", "line 3000"]


def test_a_search_counts_all_and_shows_both_ends(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(TEXT)
    found = search(path, typed_search(r"LINE 2\d\d\d$", caseless=True), most=4)
    assert found.total == 1000
    assert [line.number for line in found.lines] == [2000, 2001, 2998, 2999]


def test_a_wide_log_lets_go_of_its_file(tmp_path: Path) -> None:
    path = tmp_path / "wide.log"
    path.write_text("erste\nzweite\n", encoding="utf-16")
    stream = open_log(path)
    source: Any = stream.raw
    while hasattr(source, "_source") or hasattr(source, "_stream"):
        source = source._source if hasattr(source, "_source") else source._stream
    assert not source.closed
    stream.close()
    assert source.closed


def test_holes_between_the_last_lines_are_passed_over(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    with path.open("wb") as file:
        for begin in (0, 40 << 30, (40 << 30) + (3 << 20)):
            file.seek(begin)
            file.write(b"".join(b"line %d of %d\n" % (number, begin) for number in range(3)))
    lines = [line.text for line in last_lines(path, 8)]
    assert lines == [f"line {number} of {begin}" for begin in (0, 40 << 30, (40 << 30) + (3 << 20)) for number in range(3)][1:]


def test_a_log_that_begins_with_a_hole_begins_with_its_first_line(tmp_path: Path) -> None:
    """As after a rotation by copying, while the job goes on writing where it was."""
    path = tmp_path / "job.log"
    with path.open("wb") as file:
        file.seek(5 << 20)
        file.write(b"first\nsecond\n")
    assert [line.text for line in last_lines(path, 10)] == ["first", "second"]
