"""A log is read anywhere, at any size, while it grows, is cut, rotated or replaced."""

from __future__ import annotations

import gzip
from collections.abc import Iterator
from pathlib import Path

import pytest

from assistant.errors import InputError
from assistant.logs.document import BLOCK, Document, DocumentGrowth
from assistant.logs.lines import clean


@pytest.fixture
def log(tmp_path: Path) -> Path:
    return tmp_path / "job.log"


@pytest.fixture
def opened() -> Iterator[list[Document]]:
    documents: list[Document] = []
    yield documents
    for document in documents:
        document.close()


def built(path: Path, opened: list[Document], step: int = 100_000) -> Document:
    document = Document(path)
    opened.append(document)
    while document.build(step):
        pass
    return document


def texts(document: Document, first: int = 1, count: int = 1_000_000) -> list[str]:
    return [line.text for line in document.lines(first, count)]


_SHAPES = {
    "one_line": b"only\n",
    "no_newline_at_the_end": b"a\nb",
    "blank_lines": b"\n\n\na\n\n",
    "newline_at_a_block_border": b"x" * (BLOCK - 1) + b"\n" + b"y\n",
    "line_starts_at_a_block_border": b"x" * (BLOCK - 2) + b"\n" + b"\nz\n",
    "line_over_three_blocks": b"a\n" + b"x" * (3 * BLOCK) + b"\nb\nc",
    "many_short_lines": b"".join(b"%d\n" % n for n in range(120_000)),
    "only_newlines": b"\n" * (BLOCK + 7),
}


@pytest.mark.parametrize("raw", _SHAPES.values(), ids=list(_SHAPES))
def test_every_line_is_found_by_its_number(log: Path, opened: list[Document], raw: bytes) -> None:
    log.write_bytes(raw)
    wanted = [clean(piece) for piece in raw.removesuffix(b"\n").split(b"\n")]
    document = built(log, opened)
    assert document.count == len(wanted)
    assert texts(document) == wanted
    for number in {1, 2, len(wanted) // 2, len(wanted) - 1, len(wanted)} & set(range(1, len(wanted) + 1)):
        assert texts(document, number, 1) == [wanted[number - 1]]


@pytest.mark.parametrize("raw", _SHAPES.values(), ids=list(_SHAPES))
def test_blocks_give_every_line_with_its_number(log: Path, opened: list[Document], raw: bytes) -> None:
    log.write_bytes(raw)
    document = built(log, opened)
    number, read = 1, b""
    for first, block in document.blocks(size=10_000):
        assert first == number
        number += max(block.count(b"\n"), 1)
        read += block
    assert read == raw


@pytest.mark.parametrize("raw", _SHAPES.values(), ids=list(_SHAPES))
def test_the_end_is_read_before_anything_was_counted(log: Path, opened: list[Document], raw: bytes) -> None:
    log.write_bytes(raw)
    document = Document(log)
    opened.append(document)
    tail = document.tail(5)
    while document.build():
        pass
    assert tail.texts == texts(document)[-5:]
    assert document.number_at(tail.start) == document.count - len(tail.texts) + 1


def test_lines_asked_for_before_they_are_counted_are_left_out(log: Path, opened: list[Document]) -> None:
    log.write_bytes(b"0123456789\n" * 100_000)
    document = Document(log)
    opened.append(document)
    assert document.lines(1, 5) == []
    assert document.build(BLOCK)
    assert 20_000 < document.count < 30_000
    assert 0 < document.share < 1
    assert [line.number for line in document.lines(document.count, 50)] == [document.count]


def test_a_log_that_grows_gets_more_lines(log: Path, opened: list[Document]) -> None:
    log.write_bytes(b"a\nb")
    document = built(log, opened)
    assert document.grow() is DocumentGrowth.NONE
    assert texts(document) == ["a", "b"]
    with log.open("ab") as file:
        file.write(b"c\nd\n")
    assert document.grow() is DocumentGrowth.GREW
    document.build()
    assert texts(document) == ["a", "bc", "d"]


def test_growth_over_a_block_border_keeps_the_numbers(log: Path, opened: list[Document]) -> None:
    log.write_bytes(b"first\n")
    document = built(log, opened)
    for _ in range(5):
        with log.open("ab") as file:
            file.write(b"0123456789abcdef\n" * 7_000)
        assert document.grow() is DocumentGrowth.GREW
        while document.build(30_000):
            pass
    assert document.count == 35_001
    assert texts(document, 35_001, 3) == ["0123456789abcdef"]
    assert texts(document, 1, 1) == ["first"]


@pytest.mark.parametrize("after", [b"new\n", b"new and longer than what was there before\nand more\n"], ids=["shorter", "longer"])
def test_a_log_truncated_under_the_reader_starts_again(log: Path, opened: list[Document], after: bytes) -> None:
    log.write_bytes(b"old one\nold two\n")
    document = built(log, opened)
    log.write_bytes(after)
    assert document.grow() is DocumentGrowth.RESTARTED
    document.build()
    assert texts(document) == after.decode().splitlines()
    assert document.restarts == 1


def test_a_rotated_log_is_read_on_until_its_successor_has_text(log: Path, opened: list[Document]) -> None:
    log.write_bytes(b"old\n")
    document = built(log, opened)
    log.rename(log.with_suffix(".log.1"))
    assert document.grow() is DocumentGrowth.GONE
    assert texts(document) == ["old"]
    log.touch()
    assert document.grow() is DocumentGrowth.NONE
    log.write_bytes(b"new\n")
    assert document.grow() is DocumentGrowth.RESTARTED
    document.build()
    assert texts(document) == ["new"]


def test_what_was_appended_to_a_log_that_lost_its_name_is_shown(log: Path, opened: list[Document]) -> None:
    log.write_bytes(b"old\n")
    document = built(log, opened)
    with log.open("ab") as file:
        log.unlink()
        file.write(b"last words\n")
    assert document.grow() is DocumentGrowth.GREW
    document.build()
    assert texts(document) == ["old", "last words"]
    assert document.grow() is DocumentGrowth.GONE


def test_a_document_that_holds_no_descriptor_reads_and_follows(log: Path) -> None:
    log.write_bytes(b"a\n")
    document = Document(log, hold=False)
    document.build()
    with log.open("ab") as file:
        file.write(b"b\n")
    assert document.grow() is DocumentGrowth.GREW
    document.build()
    assert texts(document) == ["a", "b"]
    log.unlink()
    assert document.grow() is DocumentGrowth.GONE
    log.write_bytes(b"c\n")
    assert document.grow() is DocumentGrowth.RESTARTED
    document.build()
    assert texts(document) == ["c"]


def test_text_is_cleaned(log: Path, opened: list[Document]) -> None:
    log.write_bytes("\x1b[31mred\x1b[0m\nab\u202ecd\u2066ef\x07\n 1%|#\r50%|##\r99%|###\nplain\n".encode())
    assert texts(built(log, opened)) == ["red", "abcdef", "99%|###", "plain"]


def test_of_a_line_of_a_megabyte_both_ends_are_shown(log: Path, opened: list[Document]) -> None:
    log.write_bytes(b"before\n" + b"S" + b"x" * 999_998 + b"E\nafter\n")
    before, long, after = texts(built(log, opened))
    assert (before, after) == ("before", "after")
    assert long.startswith("Sx")
    assert long.endswith("xE")
    assert len(long) < 20_000


def test_a_line_longer_than_is_read_keeps_the_numbers_right(log: Path, opened: list[Document]) -> None:
    log.write_bytes(b"before\n" + b"x" * 5_000_000 + b"\nafter\n")
    document = built(log, opened)
    assert document.count == 3
    assert texts(document, 3, 1) == ["after"]


def test_gzip_is_read_at_any_line(tmp_path: Path, opened: list[Document]) -> None:
    path = tmp_path / "job.log.gz"
    path.write_bytes(gzip.compress(b"".join(b"line %d\n" % n for n in range(1, 50_001))) + gzip.compress(b"last\n"))
    document = built(path, opened)
    assert document.count == 50_001
    assert texts(document, 40_000, 1) == ["line 40000"]
    assert document.tail(1).texts == ["last"]
    assert document.grow() is DocumentGrowth.NONE
    assert not document.truncated


def test_of_a_gzip_that_ends_early_the_rest_is_read_and_said(tmp_path: Path, opened: list[Document]) -> None:
    path = tmp_path / "job.log.gz"
    whole = gzip.compress(b"".join(b"line %d %d\n" % (n, n * n) for n in range(1, 50_001)))
    path.write_bytes(whole[: len(whole) // 2])
    document = built(path, opened)
    assert document.truncated
    assert 100 < document.count < 50_000


def test_utf16_is_read(log: Path, opened: list[Document]) -> None:
    log.write_text("erste\nzweite ä\n", encoding="utf-16")
    assert texts(built(log, opened)) == ["erste", "zweite ä"]


@pytest.mark.parametrize(
    ("raw", "wanted"), [(b"", "is empty"), (b"\x7fELF" + bytes(500), "a program"), (bytes(range(256)) * 40, "binary")]
)
def test_what_is_no_log_is_refused_by_name(log: Path, raw: bytes, wanted: str) -> None:
    log.write_bytes(raw)
    with pytest.raises(InputError, match=wanted) as caught:
        Document(log)
    assert str(log) in str(caught.value)


def test_a_missing_log_and_a_folder_are_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="no such file"):
        Document(tmp_path / "none.log")
    with pytest.raises(InputError, match="is a folder"):
        Document(tmp_path)
