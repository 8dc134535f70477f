"""A log in the chat: looked through, searched, folded, followed, merged; whatever stands in it and happens to it."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from pathlib import Path

import pytest
from rich.style import Style

from assistant.logs.combined import LinePlace
from assistant.logs.passes import RankTally
from assistant.logs.prefix import NO_RANK
from assistant.tui.logs.paint import MOST_CACHED_ROWS, LogLook, LogStrips
from assistant.tui.logs.rows import LogCitation, LogRow, RankTallies, caseless, finder, highlighter
from assistant.tui.screens.log import RankHistogram, bars_of, shown_ranks
from tests.tui.log_world import LogApp, ready
from tests.tui.waiting import until

pytestmark = pytest.mark.slow

SIZE = (80, 24)
ROUTINE = (
    " [2026-02-11 07:00:00] iteration {n:8}/ 5000000 | consumed samples: {n:12} | elapsed time per iteration (ms): 2300.1 | "
    "learning rate: 3.000000E-04 | global batch size:  1024 | lm loss: 2.100000E+00 | loss scale: 1.0 | grad norm: 0.300 | "
    "number of skipped iterations:   0 | number of nan iterations:   0 |"
)


@pytest.fixture
def numbered(tmp_path: Path) -> Path:
    path = tmp_path / "job.log"
    path.write_text("".join(f"line number {n}\n" for n in range(1, 5001)))
    return path


@pytest.fixture
def died(tmp_path: Path) -> Path:
    """1,000 routine lines, what eight ranks said when they died, and 200 routine lines."""
    path = tmp_path / "job.log"
    lines = [ROUTINE.format(n=n) for n in range(1, 1001)]
    lines += [f"[rank{rank}]: RuntimeError: NCCL communicator was aborted on rank {rank}" for rank in range(8)]
    lines += [ROUTINE.format(n=n) for n in range(1001, 1201)]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


@pytest.fixture
def ranks(tmp_path: Path) -> list[Path]:
    paths = [tmp_path / f"job_{rank}.out" for rank in range(3)]
    for rank, path in enumerate(paths):
        path.write_text("".join(f"2026-02-11 07:00:{n:02} rank {rank} step {n}\n" for n in range(rank, 30, 3)))
    return paths


def on_line(app: LogApp, number: int) -> Callable[[], bool]:
    return lambda: app.number == number


def shows(app: LogApp, text: str) -> Callable[[], bool]:
    return lambda: any(row.endswith(text) for row in app.rows)


async def test_a_log_opens_at_its_end_and_follows(numbered: Path) -> None:
    app = LogApp(numbered)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot, app)
        assert app.number == 5000
        assert app.rows[-1].endswith("line number 5000")
        assert "following" in app.words("foot")
        with numbered.open("a") as file:
            file.write("one more\n")
        await until(pilot, lambda: app.number == 5001, "the appended line")
        assert app.rows[-1].endswith("one more")


async def test_keys_move_as_in_less_and_vi(numbered: Path) -> None:
    app = LogApp(numbered)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot, app)
        height = app.view.size.height
        for key, wanted in (
            ("k", 4999), ("g", 1), ("j", 2), ("down", 3), ("up", 2), ("ctrl+d", 2 + height // 2), ("ctrl+u", 2),
            ("pagedown", 2 + height), ("pageup", 2), ("G", 5000), ("home", 1), ("end", 5000),
        ):  # fmt: skip
            await pilot.press(key)
            await until(pilot, on_line(app, wanted), f"{key} to lead to {wanted}, not {app.number}")
            assert any(row.endswith(f"line number {wanted}") for row in app.rows)
        assert not app.view.following


async def test_pages_and_the_end_are_at_hand_before_a_key_leads_there(numbered: Path) -> None:
    app = LogApp(numbered, line=2500)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot, app)
        height = app.view.size.height
        for pages in (1, 1, -1, -1, -1):
            await until(pilot, lambda: app.view.pages_at_hand, "the rows around")
            at = app.number
            app.view.action_page(pages)
            assert app.number == at + pages * height, "without a wait"
        with numbered.open("a") as file:
            file.write("".join(f"line number {n}\n" for n in range(5001, 6001)))
        await until(pilot, lambda: app.view.state.rows == 6000, "the appended lines")
        app.view.action_bottom()
        assert app.number == 6000, "without a wait"
        assert app.rows[0].endswith(f"line number {6001 - height}")
        assert app.rows[-1].endswith("line number 6000")


def test_of_too_many_rows_those_near_stay() -> None:
    strips = LogStrips(lambda: LogLook(80, 4, 0, 0, wrap=False, pattern=None, style=lambda _: Style()), {})
    near = range(100, 160)
    strips.take(100, [LogRow(LinePlace(0, n), f"line {n}") for n in near], near=near)
    for first in range(5_000, 5_000 + 3 * MOST_CACHED_ROWS, 50):
        strips.take(first, [LogRow(LinePlace(0, first + n), "end") for n in range(50)], near=near)
        assert all(row in strips.rows for row in (*near, *range(first, first + 50)))
    assert len(strips.rows) <= MOST_CACHED_ROWS + 50 + len(near)


async def test_a_line_is_jumped_to_by_number(numbered: Path) -> None:
    app = LogApp(numbered)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot, app)
        await pilot.press("colon", *"2,500", "enter")
        await until(pilot, lambda: app.number == 2500, "line 2500")
        await pilot.press("colon", *"9999", "enter")
        await until(pilot, lambda: app.number == 5000, "the last line for a number beyond it")
        await pilot.press("colon", *"abc", "enter")
        await until(pilot, lambda: "'abc' is no line number" in app.words("foot"))
        await pilot.press("colon", *"7:1", "enter")
        await until(pilot, lambda: "there is no file 7" in app.words("foot"))


async def test_a_search_leads_from_match_to_match_and_round(numbered: Path) -> None:
    app = LogApp(numbered, line=1)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot, app)
        await pilot.press("slash", *"number .?999$", "enter")
        for key, wanted in (("", 999), ("n", 1999), ("n", 2999), ("n", 3999), ("n", 4999), ("n", 999), ("N", 4999), ("N", 3999)):
            if key:
                await pilot.press(key)
            await until(pilot, on_line(app, wanted), f"match {wanted}, not {app.number}")
        assert "5 lines" in app.words("foot")
        await pilot.press("escape")
        await until(pilot, lambda: not app.view.state.pattern)
        assert app.screen is app.log_screen


async def test_a_search_that_finds_nothing_says_so(numbered: Path) -> None:
    app = LogApp(numbered, line=7)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot, app)
        await pilot.press("slash", *"nowhere", "enter")
        await until(pilot, lambda: "no line matches nowhere" in app.words("foot"))
        assert app.number == 7


async def test_matches_are_marked(numbered: Path) -> None:
    app = LogApp(numbered, line=1)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot, app)
        await pilot.press("slash", *"NUMBER 2$", "enter")
        await until(pilot, lambda: "no line matches" in app.words("foot"), "capitals to matter")
        await pilot.press("slash", *"number 2$", "enter")
        await until(pilot, lambda: app.number == 2)
        marked = app.view.get_component_rich_style("log-view--match")
        shown = [segment.text for segment in app.view.render_line(1) if segment.style and segment.style.bgcolor == marked.bgcolor]
        assert shown == ["number 2"]


@pytest.mark.parametrize(
    ("pattern", "text", "found"),
    [("error", "An ERROR", True), ("Error", "error", False), ("a(b", "xa(bx", True), (r"a(?!b)", "ab", False), ("é", "café", True)],
)
def test_what_is_typed_is_a_pattern_or_text(pattern: str, text: str, found: bool) -> None:
    assert any(highlighter(pattern).spans(text)) is found
    assert bool(finder(pattern)[0](f"{text}\n".encode())) is found
    assert caseless(pattern) == (pattern != "Error")


async def test_routine_lines_and_repeats_of_ranks_fold(died: Path) -> None:
    app = LogApp(died, line=1)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot, app)
        assert app.view.state.rows == 1208
        await pilot.press("z")
        await until(pilot, lambda: app.view.state.rows == 3, "three rows")
        first, second, third = app.rows[:3]
        assert "… 1,000 lines: Megatron iteration records" in first
        assert "× 8 ranks [0-7] RuntimeError: NCCL communicator" in second
        assert "… 200 lines" in third
        await pilot.press("G", "k", "enter")
        await until(pilot, lambda: app.view.state.rows == 10, "the fold to open")
        assert app.number == 1001
        await pilot.press("enter")
        await until(pilot, lambda: app.view.state.rows == 3, "the fold to close")
        await pilot.press("z")
        await until(pilot, lambda: app.view.state.rows == 1208, "all lines")
        assert app.number == 1001


async def test_a_verdicts_lines_are_marked_in_sight_and_gone_to(died: Path) -> None:
    cited = [LogCitation(1003, "root", "nccl.aborted"), LogCitation(500, "cascade")]
    app = LogApp(died, cited=cited)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot, app)
        await until(pilot, lambda: app.view.state.hidden > 0, "folds")
        assert app.number == 1003
        assert " root  × 6 ranks [2-7] RuntimeError" in app.rows[app.view.cursor - round(app.view.scroll_y)]
        assert "root: nccl.aborted" in app.words("foot")
        await pilot.press("c")
        await until(pilot, lambda: app.number == 500, "the other cited line")
        assert any(" cascade " in row for row in app.rows)
        await pilot.press("C")
        await until(pilot, lambda: app.number == 1003, "the first one again")


async def test_a_line_inside_a_fold_is_shown_when_it_is_gone_to(died: Path) -> None:
    app = LogApp(died, line=1)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot, app)
        await pilot.press("z")
        await until(pilot, lambda: app.view.state.rows == 3)
        app.view.go_to(700)
        await until(pilot, lambda: app.number == 700, "line 700")
        assert app.view.state.rows == 1002


async def test_only_some_ranks_are_shown(died: Path) -> None:
    app = LogApp(died)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot, app)
        await pilot.press("r", *"2-3, 7", "enter")
        await until(pilot, lambda: app.view.state.rows == 3 and app.number > 0, "three lines")
        assert [row.split("▌")[0].split() for row in app.rows[:3]] == [["1003", "2"], ["1004", "3"], ["1008", "7"]]
        assert "only rank 2-3,7" in app.words("foot")
        with died.open("a") as file:
            file.write("[rank2]: more\n[rank4]: nothing\n")
        await until(pilot, lambda: app.view.state.rows == 4, "the appended line of rank 2")
        await pilot.press("r", "enter")
        await until(pilot, lambda: app.view.state.rows == 1210, "all lines")
        await pilot.press("r", *"x", "enter")
        await until(pilot, lambda: "'x' is no rank" in app.words("foot"))


async def test_files_of_ranks_are_merged_by_time(ranks: list[Path]) -> None:
    app = LogApp(*ranks)
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: app.view.state.merged, "the merge")
        await ready(pilot, app)
        await pilot.press("g")
        await until(pilot, lambda: app.rows[0].endswith("rank 0 step 0"), "the first row")
        assert [row.rsplit(" ", 1)[1] for row in app.rows[:20]] == [str(step) for step in range(20)]
        await pilot.press("j", "t")
        await until(pilot, lambda: not app.view.state.merged and app.view.state.rows == 10, "one file")
        assert all("rank 1" in row for row in app.rows[:10])
        assert "job_1.out" in app.words("head")
        await pilot.press("t")
        await until(pilot, lambda: app.view.state.merged and app.view.state.rows == 30, "all files")
        with ranks[2].open("a") as file:
            file.write("2026-02-11 07:01:00 rank 2 last words\n")
        await pilot.press("F")
        await until(pilot, lambda: app.rows[-1].endswith("last words") or "last words" in app.rows[30 % len(app.rows)], "growth")


async def test_the_histogram_counts_ranks_and_filters(ranks: list[Path]) -> None:
    app = LogApp(*ranks)
    async with app.run_test(size=(120, 30)) as pilot:
        await ready(pilot, app)
        bars = app.log_screen.query_one(RankHistogram)
        await until(pilot, lambda: [bar.lines for bar in bars.bars] == [10, 10, 10], "three bars")
        assert bars.display
        assert bars.border_subtitle == "silent first: 0 · last: 2"
        await pilot.press("p", "p")
        assert app.focused is bars
        await pilot.press("j", "enter")
        await until(pilot, lambda: app.view.state.ranks == {1} and app.view.state.rows == 10, "rank 1 alone")
        await pilot.press("enter")
        await until(pilot, lambda: app.view.state.rows == 30, "all ranks")


def test_many_ranks_share_bars() -> None:
    tallies = [RankTally(NO_RANK, 5), *(RankTally(rank, 10 + rank, errors=rank == 77) for rank in range(4096))]
    bars = bars_of(tallies)
    assert len(bars) == 65
    assert (bars[0].name, bars[1].name, bars[-1].name) == ("none", "0-63", "4032-4095")
    assert [bar.errors for bar in bars[1:4]] == [0, 1, 0]
    assert [bar.name for bar in bars_of(tallies[:3])] == ["none", "0", "1"]
    assert bars_of([]) == []


@pytest.mark.parametrize(
    ("ranks", "words"),
    [
        ({2, 3, 7}, "only rank 2-3,7"),
        ({NO_RANK}, "only lines without a rank"),
        ({NO_RANK, 3}, "only rank 3 and lines without a rank"),
    ],
)
def test_the_foot_says_in_words_which_lines_are_shown(ranks: set[int], words: str) -> None:
    assert shown_ranks(frozenset(ranks)) == words


async def test_a_bucket_of_ranks_is_looked_into(numbered: Path) -> None:
    app = LogApp(numbered)
    async with app.run_test(size=(120, 30)) as pilot:
        await ready(pilot, app)
        bars = app.log_screen.query_one(RankHistogram)
        await until(pilot, lambda: [bar.lines for bar in bars.bars] == [5000], "the count of this log")
        await pilot.press("p")
        bars.show(RankTallies(tuple(RankTally(rank, 1) for rank in range(128)), (), True))
        await pilot.press("j", "enter")
        assert [bar.name for bar in bars.bars] == ["2", "3"]
        await pilot.press("backspace")
        assert len(bars.bars) == 64


async def test_long_lines_are_moved_or_wrapped(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_text("short\n" + "".join(f"{n:07} " for n in range(40)) + "\nend\n")
    app = LogApp(path, line=1)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot, app)
        assert "0000039" not in "".join(app.rows)
        await pilot.press("right")
        assert "0000000" not in app.rows[1]
        assert "0000001" in app.rows[1]
        await pilot.press("w")
        await pilot.pause()
        text = "".join(row[2:] for row in app.rows)
        assert "0000039" in text
        await pilot.press("j", "j")
        assert app.number == 3


async def test_a_megabyte_line_binary_bits_bidi_and_bars_are_drawn_as_text(tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(
        b"a" * 1_000_000 + b"\n\x1b[2J\x1b[31mred\x1b[0m \xff\xfe bytes\n" + "ab\u202ecd\n".encode()
        + b" 1%\r50%\r99% done\n" + "wide \u5b57\u5b57 \U0001f600 tab\there\n".encode() + b"no newline"
    )  # fmt: skip
    app = LogApp(path, line=1)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot, app)
        assert app.view.state.rows == 6
        assert "red \ufffd\ufffd bytes" in app.rows[1]
        assert app.rows[2].endswith("abcd")
        assert app.rows[3].endswith("99% done")
        assert not any("\x1b" in row or "\u202e" in row for row in app.rows)
        await pilot.press("w")
        await pilot.press("G")
        await until(pilot, lambda: app.number == 6)
        assert any(row.endswith("no newline") for row in app.rows)


@pytest.mark.parametrize(
    ("raw", "wanted"),
    [(None, "no such file"), (b"", "is empty"), (b"\x7fELF" + bytes(900), "a program")],
    ids=["missing", "empty", "binary"],
)
async def test_what_is_no_log_is_said_and_opened_once_it_is_one(tmp_path: Path, raw: bytes | None, wanted: str) -> None:
    path = tmp_path / "job.log"
    if raw is not None:
        path.write_bytes(raw)
    app = LogApp(path)
    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: wanted in app.words("trouble"), wanted)
        await pilot.press("g", "G", "n", "z", "enter", "slash", "x", "enter")
        path.write_text("hello\n")
        await until(pilot, lambda: app.rows and app.rows[0].endswith("hello"), "the log")
        assert not app.log_screen.has_class("-trouble")


async def test_of_several_files_one_that_is_no_log_is_left_out(ranks: list[Path]) -> None:
    ranks[1].write_bytes(b"")
    app = LogApp(*ranks)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot, app)
        await until(pilot, lambda: app.view.state.merged and app.view.state.rows == 20, "two files")
        assert "left out" in app.words("foot")


async def test_a_log_that_is_truncated_or_rotated_is_shown_anew(numbered: Path) -> None:
    app = LogApp(numbered, cited=[LogCitation(1, "root")])
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot, app)
        numbered.write_text("after the cut\n")
        await until(pilot, lambda: app.view.state.rows == 1 and app.rows[0].endswith("after the cut"), "the new text")
        assert "began anew" in app.words("foot")
        assert "root" not in app.rows[0]  # another line stands there now
        numbered.rename(numbered.with_suffix(".log.1"))
        await until(pilot, lambda: "is gone" in app.words("foot"), "that it is gone")
        assert app.rows[0].endswith("after the cut")
        numbered.write_text("a new file\nwith two lines\n")
        await until(pilot, lambda: app.view.state.rows == 2 and app.rows[1].endswith("with two lines"), "the new file")


async def test_gzip_and_utf16_are_shown(tmp_path: Path) -> None:
    zipped, wide = tmp_path / "job.log.gz", tmp_path / "wide.log"
    zipped.write_bytes(gzip.compress(b"".join(b"line %d\n" % n for n in range(1, 3001))))
    wide.write_text("erste\nzweite ä\n", encoding="utf-16")
    for path, last in ((zipped, "line 3000"), (wide, "zweite ä")):
        app = LogApp(path)
        async with app.run_test(size=SIZE) as pilot:
            await ready(pilot, app)
            await until(pilot, shows(app, last), last)


async def test_every_size_is_drawn(died: Path) -> None:
    app = LogApp(died, cited=[LogCitation(1003, "root", "nccl.aborted")])
    async with app.run_test(size=(5, 3)) as pilot:
        await ready(pilot, app)
        await pilot.press("slash", *"nccl", "enter")
        for size in ((5, 3), (80, 24), (40, 10), (20, 5), (200, 60), (5, 3)):
            await pilot.resize_terminal(*size)
            await pilot.press("w", "p", "p", "n")
            await until(pilot, lambda: 1000 < app.number <= 1008, f"a match at {size}")
            assert app.log_screen.region.size == size


async def test_escape_leaves_the_prompt_then_the_log(numbered: Path) -> None:
    app = LogApp(numbered)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot, app)
        await pilot.press("slash", "escape")
        assert app.screen is app.log_screen
        assert app.focused is app.view
        await pilot.press("escape")
        await until(pilot, lambda: app.screen is not app.log_screen, "the log to be left")


async def test_the_wheel_moves_the_rows_and_the_cursor_stays_in_sight(numbered: Path) -> None:
    app = LogApp(numbered, line=1)
    async with app.run_test(size=SIZE) as pilot:
        await ready(pilot, app)
        app.view.scroll_to(y=1000, animate=False)
        await until(pilot, lambda: app.number == 1001, "the cursor to come along")
        await pilot.click("#log-view", offset=(20, 4))
        await until(pilot, lambda: app.number == 1005, "the clicked line")
        await pilot.press("y")
        assert app.clipboard == "line number 1005"
        assert "copied" in app.words("foot")
