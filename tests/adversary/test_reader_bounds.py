"""Bounds of readers, beyond those of test_files: TOML, growing logs, gzip bombs, numbers in scripts, mounts that die in a read."""

from __future__ import annotations

import gzip
import hashlib
import logging
import re
import struct
import threading
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant.cli import diagnose
from assistant.content.reading import read_toml
from assistant.diagnose.case import read_labels
from assistant.errors import InputError, MalformedContent, NightshiftError, Unavailable
from assistant.evaluation.suite import load_suite
from assistant.llm.gguf import read_gguf
from assistant.logs import reading
from assistant.logs.reading import blocks, open_log
from assistant.logs.tail import typed_search
from assistant.ports import JumpingClock
from assistant.records import JobSpec
from assistant.recover.checkpoints.files import zip_problem
from assistant.recover.directives import read_directives
from assistant.recover.restart import attempt_of
from assistant.store import Store
from assistant.tui.logs import reader as log_reader
from assistant.tui.logs.browser import LogBrowser
from assistant.tui.logs.rows import LogState, News
from assistant.untrusted import each_within, parse_toml
from tests.adversary.shown import NOON
from tests.adversary.test_files import HOSTILE

logger = logging.getLogger(__name__)


def test_a_log_that_grows_faster_than_it_is_read_ends(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(b"x\n" * 100_000)
    with open_log(path) as stream, path.open("ab") as writer:
        taken = 0
        for number, block in enumerate(blocks(stream, 4096)):
            assert number < 200, "the reader follows the writer"
            taken += len(block)
            writer.write(b"y\n" * 50_000)
            writer.flush()
    assert taken == 200_000


def test_a_file_that_says_it_is_empty_and_is_not_is_read() -> None:
    with open_log("/proc/self/status") as stream:
        assert b"Name:" in stream.read()


@pytest.mark.slow
def test_a_gzip_that_repeats_too_much_is_cut(tmp_path: Path) -> None:
    path = tmp_path / "job.log.gz"
    with gzip.open(path, "wb", 9) as file:
        for _ in range(400):
            file.write(b"a" * (1 << 20))
        file.write(b"\nthe end\n")
    with open_log(path) as stream:
        sizes = [(len(block), block[-9:]) for block in blocks(stream)]
        assert 160 << 20 <= sum(size for size, _ in sizes) < 162 << 20
        assert sizes[-1][1].endswith(b"the end\n")
        assert stream.truncated


def packed(folder: Path, *members: bytes, cut: int = 0) -> Path:
    path = folder / "job.log.gz"
    raw = b"".join(gzip.compress(member, 9) for member in members)
    path.write_bytes(raw[: len(raw) - cut])
    return path


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make the bounds of a gzip small: 4 KiB of its head, 1 KiB of its end, 64 KiB unpacked."""
    for name, value in {"GZIP_HEAD_BYTES": 4096, "GZIP_TAIL_BYTES": 1024, "_UNPACKED_BYTES": 65_536, "BLOCK": 256}.items():
        monkeypatch.setattr(reading, name, value)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize(
    ("members", "cut", "note", "last"),
    [
        ((b"x" * 40_000 + b"\nlast\n",), 0, r"\[nightshift: 34,\d{3} bytes are left out here", "last"),
        ((b"y\n" * 20, b"x" * 40_000, b"z\n" * 20), 0, r"\[nightshift: 3\d,\d{3} bytes are left out here", "z"),
        (
            (b"x\n" * 100_000,),
            0,
            r"\[nightshift: 5\d,\d{3} bytes and all that follows are left out here",
            "not read whole]",
        ),
        ((b"x\n" * 20_000,), 30, r"\[nightshift: [\d,]+ bytes are left out here", "x"),
    ],
    ids=["one member", "several", "more than is unpacked", "cut off"],
)
def test_of_a_gzip_head_and_end_are_read_and_what_is_left_out_is_said(
    tmp_path: Path, members: tuple[bytes, ...], cut: int, note: str, last: str
) -> None:
    with open_log(packed(tmp_path, *members, cut=cut)) as stream:
        text = stream.read().decode()
        assert stream.truncated
    assert len(text) < 6_000
    assert re.search(note, text)
    assert text.splitlines()[-1].endswith(last)


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("size", [0, 1, 4095, 4096, 4097, 5100, 6000])
def test_a_gzip_within_its_bounds_is_read_whole(tmp_path: Path, size: int) -> None:
    with open_log(packed(tmp_path, b"a" * size + b"\n")) as stream:
        assert stream.read() == b"a" * size + b"\n" or (size == 6000 and stream.truncated)
        assert stream.truncated is (size == 6000)


@pytest.mark.usefixtures("small")
def test_what_no_gzip_packs_so_small_is_read_whole(tmp_path: Path) -> None:
    text = "".join(f"{hashlib.sha256(str(n).encode()).hexdigest()}\n" for n in range(500)).encode()
    with open_log(packed(tmp_path, text)) as stream:
        assert stream.read() == text
        assert not stream.truncated


@pytest.mark.timeout(30)
def test_a_gzip_of_empty_members_and_one_in_another_are_no_logs(tmp_path: Path) -> None:
    path = tmp_path / "job.log.gz"
    path.write_bytes(gzip.compress(b"") * 20_000 + gzip.compress(b"end\n"))
    with open_log(path) as stream:
        assert stream.read() == b"end\n"
    path.write_bytes(gzip.compress(gzip.compress(b"a\n" * 1000)))
    with pytest.raises(InputError, match="a gzip in a gzip"):
        open_log(path)


@pytest.mark.parametrize("claimed", [1, 1 << 20, (1 << 32) - 2])
def test_a_member_of_a_zip_that_lies_about_its_size_is_damaged(tmp_path: Path, claimed: int) -> None:
    path = tmp_path / "model.pt"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("archive/data.pkl", b"a" * 100_000)
    raw = bytearray(path.read_bytes())
    at = raw.rfind(b"PK\x01\x02")
    raw[at + 24 : at + 28] = claimed.to_bytes(4, "little")
    path.write_bytes(raw)
    problem = zip_problem(path, 1 << 20)
    assert (problem is None) is (claimed > 1 << 20)  # of what is larger than may be read, nothing is said


def test_a_zip_with_more_members_than_any_checkpoint_is_refused_before_they_are_read(tmp_path: Path) -> None:
    path = tmp_path / "model.pt"
    size = 17 << 20
    end = struct.pack("<4s4H2LH", b"PK\x05\x06", 0, 0, 65_535, 65_535, size, 0, 0)
    path.write_bytes(b"PK\x03\x04" + b"\0" * size + end)
    assert "was cut short" in (zip_problem(path, 0) or "")


@pytest.mark.parametrize(
    "text",
    [
        *("a" + ".a" * 100_000 + " = 1", "[" + "a." * 100_000 + "a]", "x = {" + '"a" . ' * 50_000 + "b = 1}"),
        *("x = " + "[" * 100_000, "x = " + "[" * 200 + "]" * 200, "x = " + "{a=" * 5_000, "x = " + "9" * 5_000),
        *("a = 1\na = 2", "a = 1\0", "\ud800", "x = " + '"' * 100_000, "'" * 100_001, "[" * 100_000),
    ],
    ids=lambda text: ascii(text[:12]),
)
@pytest.mark.timeout(10)
def test_hostile_toml_is_refused_at_once(tmp_path: Path, text: str) -> None:
    with pytest.raises(MalformedContent):
        parse_toml(text.encode("utf-8", "surrogatepass"))
    (tmp_path / "case.toml").write_bytes(text.encode("utf-8", "surrogatepass"))
    with pytest.raises(InputError, match=r"case\.toml: is no label"):
        read_labels(tmp_path)


@pytest.mark.parametrize(
    "line",
    [
        *("[]", "5", "null", '{"id": 5}', '{"id": "x-1\\u0000", "reason": "ecc_error"}', "[" * 5_000),
        '{"id": "x-' + "1" * 5_000 + '", "reason": "ecc_error"}',
        *(f'{{"id": "x-1", "reason": "ecc_error", "{key}": 7}}' for key in ("root_cause_lines", "faulty_nodes", "also_acceptable")),
        '{"id": "x-1", "reason": 7}',
    ],
    ids=lambda line: ascii(line[-30:]),
)
def test_a_label_of_a_wrong_form_is_named(tmp_path: Path, line: str) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "labels.jsonl").write_text(line + "\n")
    with pytest.raises(InputError, match=r"labels\.jsonl"):
        read_labels(tmp_path)


def test_keys_of_usual_depth_and_dots_in_texts_are_read() -> None:
    assert parse_toml('a.b."c.d".e = "x.y.z"\nt = """' + "a." * 500 + '\n"""')["a"]["b"] == {"c.d": {"e": "x.y.z"}}


@given(st.binary(max_size=300) | st.text(alphabet="[]{}=.,\"'\n#ax19 -", max_size=200).map(str.encode))
def test_no_bytes_break_the_reader_of_toml(raw: bytes) -> None:
    try:
        parse_toml(raw)
    except MalformedContent as error:
        logger.debug("refused: %s", error)


@pytest.mark.parametrize("made", ["pipe", "zeros", "30 GB of nothing", "no UTF-8", "folder"])
def test_what_an_operator_names_is_read_within_bounds_too(tmp_path: Path, made: str) -> None:
    case = tmp_path / "cases" / "1"
    case.mkdir(parents=True)
    HOSTILE[made](case / "label.toml")
    HOSTILE[made](tmp_path / "any")
    for read in (
        lambda: read_labels(tmp_path / "cases"),
        lambda: read_toml(tmp_path / "any"),
        lambda: load_suite(tmp_path / "any", {}),
        lambda: read_gguf(tmp_path / "any"),
        lambda: Store(tmp_path / "any", JumpingClock(NOON)),
    ):
        with pytest.raises((NightshiftError, OSError)):
            read()


@pytest.mark.parametrize("number", ["9" * 5_000, "9" * 21, "-5", "1e400", "\u00b2", "\u0663" * 5_000, "", "0x10"])
def test_a_number_in_a_script_or_an_environment_is_one_or_a_problem(number: str) -> None:
    said = read_directives(f"#NIGHTSHIFT act=auto restarts={number} owner=ada")
    assert said.restarts is None
    assert len(said.problems) == 1
    assert (said.act, said.owner) == ("auto", "ada"), "the other words count"
    assert attempt_of(JobSpec("run", "", work_dir=Path("/"), environment={"NIGHTSHIFT_ATTEMPT": number})) == 0


# a mount that dies in the middle of a read


@pytest.fixture
def dead() -> Iterator[threading.Event]:
    """What a read of a dead mount waits for; it comes back when the test ends."""
    back = threading.Event()
    yield back
    back.set()


def test_items_come_in_order_and_errors_where_they_happen() -> None:
    def items() -> Iterator[int]:
        yield from range(1000)
        raise OSError(5, "Input/output error")

    taken: list[int] = []
    with pytest.raises(OSError, match="Input/output"):
        taken.extend(each_within(5, items, "it"))
    assert taken == list(range(1000))


def test_a_reader_ends_and_closes_its_file_when_nobody_wants_more() -> None:
    closed = threading.Event()

    def items() -> Iterator[bytes]:
        with ExitStack() as stack:
            stack.callback(closed.set)
            while True:
                yield b"x"

    some = each_within(5, items, "it")
    assert next(some) == b"x"
    some.close()  # type: ignore[attr-defined]
    assert closed.wait(5)


@pytest.mark.parametrize("command", ["_lines", "_matching"])
def test_a_mount_that_dies_after_the_first_block_ends_the_command(
    tmp_path: Path, dead: threading.Event, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    log = tmp_path / "job.log"
    log.write_bytes(b"one\n" * 10)

    def dying(stream: Any) -> Iterator[bytes]:
        yield stream.read()
        dead.wait()

    monkeypatch.setattr(reading, "blocks", dying)
    monkeypatch.setattr(diagnose, "LOOK_S", 0.2)
    lines = (
        diagnose.open_lines(str(log)) if command == "_lines" else diagnose._matching(str(log), typed_search("one", caseless=False))
    )
    taken = [next(lines).text for _ in range(10)]
    assert taken == ["one"] * 10
    with pytest.raises(Unavailable, match=r"did not answer within 0\.2 s: its file system hangs"):
        next(lines)


@pytest.mark.timeout(30)
def test_the_log_viewer_says_that_a_mount_hangs_and_goes_on_when_it_is_back(
    tmp_path: Path, dead: threading.Event, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = tmp_path / "job.log"
    log.write_text("one\n" * 10)
    hung, told_hang, told_again = threading.Event(), threading.Event(), threading.Event()
    step = LogBrowser.step

    def dying(browser: LogBrowser, **words: Any) -> bool:
        hung.set()
        dead.wait()
        return step(browser, **words)

    def post(news: News) -> None:
        if isinstance(news, LogState):
            hangs = "its file system hangs; Esc leaves" in news.trouble
            if hangs:
                told_hang.set()
            elif told_hang.is_set():
                told_again.set()

    monkeypatch.setattr(LogBrowser, "step", dying)
    monkeypatch.setattr(log_reader, "HANG_S", 0.1)
    monkeypatch.setattr(log_reader, "HANG_LOOK_S", 0.02)
    reader = log_reader.LogReader([log], post)
    reader.start()
    try:
        assert hung.wait(10)
        assert told_hang.wait(10), "nobody was told"
        assert not told_again.is_set()
        dead.set()
        assert told_again.wait(10), "the word about the hang stays"
    finally:
        reader.close()
