"""Ranks are told apart, merged by time, counted, and what they say alike is folded."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from assistant.logs.combined import LinePlace, Merged
from assistant.logs.compress import BLANK, Fold, FoldRun, KeyedLine, Sheet, key_of, repeat_folds, routine_folds
from assistant.logs.covering import Covering
from assistant.logs.document import Document
from assistant.logs.passes import RankCounts, by_silence
from assistant.logs.prefix import NO_RANK, file_ranks, rank_mark, ranks_of, siblings, times_of
from assistant.rules.loading import load_patterns


def merged(folder: Path, *logs: Sequence[str], most: int = 1000) -> Merged:
    documents = []
    for number, lines in enumerate(logs):
        path = folder / f"job_{number}.out"
        path.write_text("".join(f"{line}\n" for line in lines))
        documents.append(Document(path))
    result = Merged(documents, most)
    while result.build():
        pass
    return result


def shown(order: Merged) -> list[str]:
    return [order.documents[place.source].lines(place.number, 1)[0].text for place in order.places(0, order.count)]


def close(order: Merged) -> None:
    for document in order.documents:
        document.close()


_AT = "2026-02-11 07:00:0"


@pytest.mark.parametrize(
    ("logs", "wanted"),
    [
        pytest.param([[f"{_AT}1 a", f"{_AT}3 c"], [f"{_AT}2 b", f"{_AT}4 d"]], "abcd", id="by_time"),
        pytest.param([[f"{_AT}1 a", f"{_AT}1 b"], [f"{_AT}1 c"]], "abc", id="same_time_by_file"),
        pytest.param([[f"{_AT}1 a", "Traceback b", f"{_AT}5 d"], [f"{_AT}2 c"]], "abcd", id="no_time_stays_behind"),
        pytest.param([["banner c", f"{_AT}3 d"], [f"{_AT}1 a", f"{_AT}2 b"]], "abcd", id="before_the_first_time"),
        pytest.param([[f"{_AT}3 b", f"{_AT}1 c"], [f"{_AT}2 a"]], "abc", id="a_clock_that_goes_back"),
        pytest.param([["no time a", "at all b"], [f"{_AT}1 c"]], "abc", id="a_file_without_times_first"),
        pytest.param([[f"{_AT}1,500 b"], [f"{_AT}1.25 a"]], "ab", id="fractions"),
        pytest.param([["[02/11/2026 07:00:02] b"], [f"[rank1]: {_AT}1 a"]], "ab", id="other_forms"),
        pytest.param([["Feb 11 07:00:02 n1 kernel: b"], [f"{_AT}1 a", f"{_AT}3 c"]], "abc", id="a_time_without_year"),
        pytest.param([["2026-02-11T09:00:01+02:00 a"], [f"{_AT}2 b"]], "ab", id="another_zone"),
    ],
)
def test_lines_of_several_files_stand_in_order_of_time(tmp_path: Path, logs: list[list[str]], wanted: str) -> None:
    order = merged(tmp_path, *logs)
    assert "".join(text[-1] for text in shown(order)) == wanted
    close(order)


def test_each_line_is_found_where_it_stands(tmp_path: Path) -> None:
    order = merged(tmp_path, [f"{_AT}1 a", f"{_AT}4 d"], [f"{_AT}2 b", f"{_AT}3 c"])
    assert [order.position(place) for place in order.places(0, 4)] == [0, 1, 2, 3]
    assert order.places(1, 2) == [LinePlace(1, 1), LinePlace(1, 2)]
    assert order.position(LinePlace(0, 3)) is None
    close(order)


def test_what_is_appended_comes_behind_what_was_merged(tmp_path: Path) -> None:
    order = merged(tmp_path, [f"{_AT}1 a"], [f"{_AT}2 b"])
    for number, text in ((0, f"{_AT}4 d\n"), (1, f"{_AT}3 c\n")):
        with order.documents[number].path.open("a") as file:
            file.write(text)
        order.documents[number].grow()
        order.documents[number].build()
    assert order.extend() == 2
    assert "".join(text[-1] for text in shown(order)) == "abcd"
    assert order.extend() == 0
    close(order)


def test_of_too_many_lines_the_last_of_each_file_are_merged(tmp_path: Path) -> None:
    order = merged(tmp_path, [f"{_AT}{n} a{n}" for n in range(9)], [f"{_AT}{n} b{n}" for n in range(9)], most=4)
    assert order.limited
    assert [text[-2:] for text in shown(order)] == ["a7", "b7", "a8", "b8"]
    assert order.position(LinePlace(0, 9)) == 2
    assert order.position(LinePlace(0, 3)) is None
    close(order)


@pytest.mark.parametrize(
    ("text", "rank", "rest"),
    [
        ("[rank3]: loss", 3, "loss"),
        ("[rank12]:   File", 12, "  File"),
        ("3: loss", 3, "loss"),
        ("  7: loss", 7, "loss"),
        ("0: [rank5]: loss", 5, "loss"),
        ("[default4]:loss", 4, "loss"),
        ("[1,9]<stderr>: loss", 9, "loss"),
        ("[2]: loss", 2, "loss"),
        ("loss 3: x", None, "loss 3: x"),
        ("[2026-02-11 07:00:00] [rank2]: loss", 2, "[2026-02-11 07:00:00] [rank2]: loss"),
        ("12:30:55 started", None, "12:30:55 started"),
        ("", None, ""),
    ],
)
def test_the_rank_before_a_line_is_read(text: str, rank: int | None, rest: str) -> None:
    mark = rank_mark(text)
    assert (mark.rank, text[mark.size :]) == (rank, rest)
    block = f"{text}\n".encode()
    assert ranks_of(block, np.array([len(block) - 1])).tolist() == [NO_RANK if rank is None else rank]


def test_times_that_are_none_are_no_times() -> None:
    assert times_of([b"2026-99-11 07:00:00 x", b"x", b"", b"loss 2026-02-11"]).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize(
    ("names", "wanted"),
    [
        (["job_0.out", "job_1.out", "job_10.out"], [0, 1, 10]),
        (["a/attempt_0/0/stdout.log", "a/attempt_0/1/stdout.log"], [0, 1]),
        (["x/rank3/stderr.log"], [3]),
        (["a_1.log", "b_2.log"], [None, None]),
        (["job-4821.out"], [None]),
        (["r0/x0.log", "r1/x1.log"], [None, None]),
    ],
)
def test_the_rank_of_a_file_is_the_number_in_which_paths_differ(names: list[str], wanted: list[int | None]) -> None:
    assert file_ranks([Path(name) for name in names]) == wanted


def test_the_logs_of_the_other_ranks_are_found(tmp_path: Path) -> None:
    flat = [tmp_path / f"job_{n}.out" for n in (0, 1, 2, 10)]
    deep = [tmp_path / "attempt_0" / str(n) / "stdout.log" for n in (0, 1)]
    for path in [*flat, *deep, tmp_path / "job_1.err", tmp_path / "lone.log"]:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x\n")
    assert siblings(flat[1]) == flat
    assert siblings(deep[0]) == deep
    assert siblings(tmp_path / "lone.log") == [tmp_path / "lone.log"]


def counted(text: str, **of: int) -> RankCounts:
    counts, covering = RankCounts(), Covering(load_patterns())
    block = covering.take(text.encode())
    assert block is not None
    counts.take(block, **of)
    return counts


def test_lines_and_errors_are_counted_per_rank() -> None:
    counts = counted("[rank0]: hello\n[rank1]: RuntimeError: CUDA error: device-side assert triggered\n[rank0]: there\nnobody\n")
    assert [(t.rank, t.lines, t.errors) for t in counts.tallies()] == [(NO_RANK, 1, 0), (0, 2, 0), (1, 1, 1)]


def test_lines_of_a_ranks_own_file_are_that_ranks() -> None:
    assert [(t.rank, t.lines, t.last) for t in counted("a\nb\n", rank=7).tallies()] == [(7, 2, 2)]


def test_the_rank_that_fell_silent_first_comes_first() -> None:
    timed = counted("[rank0]: 2026-02-11 07:00:09 x\n[rank1]: 2026-02-11 07:00:03 x\n[rank2]: 2026-02-11 07:00:05 x\n")
    assert [tally.rank for tally in by_silence(timed.tallies())] == [1, 2, 0]
    assert [tally.rank for tally in by_silence(counted("0: x\n1: x\n0: y\n").tallies())] == [1, 0]


def test_ranks_of_several_files_without_times_have_no_order() -> None:
    counts, covering = RankCounts(), Covering(load_patterns())
    for source in (0, 1):
        block = covering.take(b"x\n")
        assert block is not None
        counts.take(block, source=source, rank=source)
    assert by_silence(counts.tallies()) == []


ITERATIONS = "… 4 lines: iteration records"
_NAMES = {4: "iteration records", 5: "timers", 6: "warnings"}


@pytest.mark.parametrize(
    ("runs", "apart", "wanted"),
    [
        pytest.param([FoldRun(2, 5, 4)], [], [Fold(2, 5, "… 4 lines: iteration records")], id="a_run"),
        pytest.param([FoldRun(2, 3, 4)], [], [], id="too_few"),
        pytest.param([FoldRun(0, 1, 4), FoldRun(2, 8, 5)], [], [Fold(0, 8, "… 9 lines: timers, iteration records")], id="two"),
        pytest.param([FoldRun(0, 3, 4), FoldRun(5, 8, 4)], [], [Fold(0, 3, ITERATIONS), Fold(5, 8, ITERATIONS)], id="a_gap"),
        pytest.param([FoldRun(0, 9, 4)], [2], [Fold(3, 9, "… 7 lines: iteration records")], id="a_cited_line_stays"),
        pytest.param([FoldRun(0, 2, BLANK)], [], [Fold(0, 2, "… 3 blank lines")], id="blank"),
    ],
)  # fmt: skip
def test_routine_lines_fold(runs: list[FoldRun], apart: list[int], wanted: list[Fold]) -> None:
    assert routine_folds(runs, _NAMES, apart) == wanted


def said(texts: Sequence[str]) -> list[KeyedLine]:
    return [
        KeyedLine(n, key_of(text), NO_RANK if (rank := rank_mark(text).rank) is None else rank)
        for n, text in enumerate(texts)
        if text
    ]


_DIED = "[rank{}]: RuntimeError: NCCL communicator was aborted on cuda:{}"


@pytest.mark.parametrize(
    ("texts", "apart", "wanted"),
    [
        pytest.param([_DIED.format(n, n) for n in range(128)], [], [Fold(0, 127, "× 128 ranks [0-127]", True)], id="ranks"),
        pytest.param(["start", *["again"] * 3, "end"], [], [Fold(1, 3, "× 3", True)], id="one_after_the_other"),
        pytest.param(["Xid 79 on n1", "Xid 31 on n1"], [], [], id="other_numbers_are_other_lines"),
        pytest.param(
            [f"[rank{r}]: {text}" for r in (0, 1, 2) for text in ("Traceback", "File x", "Error y")],
            [],
            [Fold(3, 8, "… 6 lines as above, of ranks 1-2")],
            id="blocks_of_lines",
        ),
        pytest.param(["a", "a", "a", "a"], [1], [Fold(1, 3, "× 3", True)], id="a_cited_line_stays"),
        pytest.param(["a", "b", "a", "b"], [], [], id="nobody_else_said_it"),
        pytest.param([], [], [], id="nothing"),
    ],
)  # fmt: skip
def test_repeats_fold(texts: list[str], apart: list[int], wanted: list[Fold]) -> None:
    assert repeat_folds(said(texts), apart) == wanted


def test_rows_and_positions_are_each_others_inverse() -> None:
    sheet = Sheet(20, [Fold(2, 5, "x"), Fold(6, 8, "y"), Fold(15, 19, "z"), Fold(18, 30, "beyond the end")])
    assert sheet.rows == 20 - 3 - 2 - 4
    assert sheet.hidden == 9
    for row in range(sheet.rows):
        position, _ = sheet.at(row)
        assert sheet.row_of(position) == row
    assert [sheet.row_of(position) for position in range(9)] == [0, 1, 2, 2, 2, 2, 3, 3, 3]
    assert sheet.at(2) == (2, Fold(2, 5, "x"))
    assert sheet.at(4) == (9, None)
