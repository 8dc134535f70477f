"""Logs in other encodings are read, and what is no text is still refused: bytes above 127 are no sign of binary data."""

from __future__ import annotations

import random
import struct
import zlib
from pathlib import Path

import pytest

from assistant.errors import InputError
from assistant.logs.reading import open_log

LINES = "开始训练模型 第{0}轮 损失 0.5\n进度 ████████ 完成\n"
CHINESE = "".join(LINES.format(number) for number in range(40))
PLAIN = "".join(f"epoch {number} loss 0.{number:02}\n" for number in range(40))
BOXES = bytes([0xC9, *[0xCD] * 40, 0xBB, 0x0A]) * 20 + b"ready\n"

READ = [
    ("Chinese in GBK", CHINESE.replace("█", "#").encode("gbk"), "开始训练模型 第3轮"),
    ("Chinese in GB18030", CHINESE.encode("gb18030"), "损失 0.5"),
    ("Japanese in Shift JIS", "学習を開始します 損失 0.5\n".encode("cp932") * 30, " 0.5\n"),
    ("Korean in EUC-KR", "학습을 시작합니다 손실 0.5\n".encode("euc_kr") * 30, "0.5"),
    ("a code page of boxes", BOXES * 3, "ready"),
    ("UTF-16 with a mark", b"\xff\xfe" + PLAIN.encode("utf-16-le"), "epoch 7 loss 0.07"),
    ("UTF-16 without one, little end first", PLAIN.encode("utf-16-le"), "epoch 7 loss 0.07"),
    ("UTF-16 without one, big end first", PLAIN.encode("utf-16-be"), "epoch 7 loss 0.07"),
    ("accents in Latin-1", "époque àâçéèêëîïôûùü ÀÂÇÉÈ\n".encode("latin-1") * 30 + b"end\n", "end"),
    ("UTF-8", CHINESE.encode(), "████████"),
]
_RANDOM = random.Random(7)
REFUSED = [
    ("random bytes", _RANDOM.randbytes(8000)),
    ("packed text", zlib.compress(PLAIN.encode() * 50 + _RANDOM.randbytes(4000))),
    ("weights in 32 bits", struct.pack("<2000f", *(_RANDOM.gauss(0, 0.02) for _ in range(2000)))),
    ("whole numbers in 16 bits", struct.pack("<2000H", *(_RANDOM.randrange(300, 60000) for _ in range(2000)))),
    ("labels in 64 bits", struct.pack("<1000q", *(_RANDOM.randrange(10) for _ in range(1000)))),
    ("a bright picture without lines", bytes(_RANDOM.randrange(128, 256) for _ in range(6000))),
    ("tokens in 16 bits that look like letters", struct.pack("<2000H", *(_RANDOM.randrange(1, 128) for _ in range(2000)))),
    ("a program", b"\x7fELF\x02\x01\x01" + bytes(4000)),
]


@pytest.mark.parametrize(("content", "words"), [case[1:] for case in READ], ids=[case[0] for case in READ])
def test_a_log_in_another_encoding_is_read(tmp_path: Path, content: bytes, words: str) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(content)
    with open_log(path) as stream:
        assert words in stream.read().decode("utf-8", "replace")


@pytest.mark.parametrize("content", [case[1] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_what_is_no_text_is_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(content)
    with pytest.raises(InputError, match="is no log but"):
        open_log(path)
