"""Headers of models: what they say, and what is said of files that are none."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assistant.errors import InputError
from assistant.llm.gguf import parts_of, read_gguf
from assistant.llm.models import model_catalogue
from tests.unit.tiny_gguf import write_tiny


@pytest.fixture(scope="module")
def tiny(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tiny(tmp_path_factory.mktemp("gguf") / "tiny.gguf", {})


def test_a_header_says_what_the_model_is(tiny: Path) -> None:
    found = read_gguf(tiny)
    assert (found.architecture, found.name, found.context, found.quantisation) == ("llama", "tiny", 2048, "F32")
    assert found.parameters == 451_328
    assert found.values["tokenizer.ggml.tokens.count"] == 320
    assert "<|im_start|>" in found.template
    # 1 layer, 4 heads of 64 values, keys and values, 2 bytes each
    assert found.cache_bytes(1000) == 1000 * 4 * (64 + 64) * 2


@pytest.mark.parametrize("share", [0.0, 0.00001, 0.0001, 0.002, 0.004, 0.5, 0.99999])
def test_a_file_that_is_cut_says_so(tiny: Path, tmp_path: Path, share: float) -> None:
    whole = tiny.read_bytes()
    cut = tmp_path / "cut.gguf"
    cut.write_bytes(whole[: int(len(whole) * share)])
    with pytest.raises(InputError, match=r"cut short|begins with"):
        read_gguf(cut)


BROKEN = {
    "a web page": (b"<!DOCTYPE html>", "a web page"),
    "nothing": (b"", "nothing"),
    "a Git LFS pointer": (b"version https://git-lfs", "a pointer of Git LFS"),
    "an old version": (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "is of version 1"),
    "big-endian": (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "big-endian"),
    "a bomb of tensors": (b"GGUF" + struct.pack("<IQQ", 3, 1 << 60, 0), "claims 1,152,921,504,606,846,976 tensors"),
    "a bomb of texts": (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q1sIIQ", 1, b"k", 9, 8, 1 << 60), "cut short"),
    "a text without an end": (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q", 1 << 50), "a text of"),
    "an unknown type": (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q1sI", 1, b"k", 99), "unknown type 99"),
    "a list of lists": (b"GGUF" + struct.pack("<IQQ", 3, 0, 1) + struct.pack("<Q1sIIQ", 1, b"k", 9, 9, 1), "unknown type 9"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_file_that_is_no_model_says_what_it_is(name: str, tmp_path: Path) -> None:
    content, why = BROKEN[name]
    file = tmp_path / "bad.gguf"
    file.write_bytes(content)
    with pytest.raises(InputError, match=why):
        read_gguf(file)


@settings(max_examples=150, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 6000), st.integers(0, 255)), min_size=1, max_size=8))
def test_a_header_with_wrong_bytes_is_read_or_refused_never_more(tiny: Path, changes: list[tuple[int, int]]) -> None:
    content = bytearray(tiny.read_bytes())
    for place, byte in changes:
        content[place] = byte
    file = tiny.with_name("changed.gguf")
    file.write_bytes(bytes(content))
    with contextlib.suppress(InputError):
        assert read_gguf(file).size_bytes == len(content)


def test_a_folder_and_a_missing_file_are_named(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="found a folder"):
        read_gguf(tmp_path)
    with pytest.raises(InputError, match="No such file"):
        read_gguf(tmp_path / "nowhere.gguf")


def test_a_model_in_parts_wants_all_of_them(tmp_path: Path) -> None:
    names = [tmp_path / f"big-{n:05}-of-00002.gguf" for n in (1, 2)]
    names[0].touch()
    with pytest.raises(InputError, match=r"big-00002-of-00002\.gguf is missing"):
        parts_of(names[0])
    names[1].touch()
    assert parts_of(names[0]) == names
    with pytest.raises(InputError, match="is not the first"):
        parts_of(names[1])


@pytest.mark.parametrize(
    ("file", "family"),
    [
        ("Qwen3-4B-Instruct-2507-Q4_K_M.gguf", "Qwen3 Instruct"),
        ("Qwen3-8B-Q4_K_M.gguf", "Qwen3"),
        ("qwen2.5-7b-instruct-q4_k_m.gguf", "Qwen2.5"),
        ("Meta-Llama-3.1-8B-Instruct-Q4_K_M.gguf", "Llama 3"),
        ("Mistral-7B-Instruct-v0.3.Q5_K_M.gguf", "Mistral"),
        ("gemma-3-12b-it-q4_0.gguf", "Gemma"),
        ("Phi-4-mini-instruct-Q8_0.gguf", "Phi"),
        ("gpt-oss-20b-mxfp4.gguf", "gpt-oss"),
        ("something.gguf", "other"),
    ],
)
def test_a_model_is_known_by_the_name_of_its_file(file: str, family: str) -> None:
    assert model_catalogue().of(file).name == family


def test_the_largest_size_that_fits_is_named() -> None:
    sizes = model_catalogue()
    assert sizes.fitting(10**9) is None
    assert sizes.fitting(16 * 10**9) == next(one for one in sizes.size if one.parameters == "7B to 9B")
