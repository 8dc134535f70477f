"""Kernel and job logs on one clock: printed zones, seconds since the boot, clocks that were never set or jump."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from assistant.diagnose.facts import foreign_lines, on_one_clock, zone_of
from assistant.diagnose.readers.kernel import read_kernel
from assistant.diagnose.readers.streams import span
from assistant.logs.lines import Line
from assistant.records import Job, JobState


def lines(*texts: str) -> list[Line]:
    return [Line(number, text) for number, text in enumerate(texts, 1)]


def at(kernel: list[str], job: list[str]) -> list[datetime | None]:
    read = lines(*job)
    when = span(job)
    return [line.at for line in on_one_clock(read_kernel(lines(*kernel), (), when.end.year if when.end else None), read, when)]


@pytest.mark.parametrize(
    ("text", "hours"),
    [
        ("2025-06-02T11:10:51.224101+00:00 n1 kernel: x", 0),
        ("2025-06-02T11:10:51Z step 1", 0),
        ("2025-06-02 11:10:51,204 +0530 x", 5.5),
        ("2025-06-02T11:10:51-07:00 x", -7),
        ("starting at Mon Jun  2 18:46:12 JST 2025", 9),
        ("starting at Mon Jun  2 18:46:12 CEST 2025", 2),
    ],
)
def test_a_zone_beside_a_stamp_is_read(text: str, hours: float) -> None:
    assert zone_of([text]) == timedelta(hours=hours)


@pytest.mark.parametrize("text", ["2025-06-02 11:10:51 INFO x", "Mon Jun  2 18:46:12 CST 2025", "no time"])
def test_what_names_no_zone_or_several_has_none(text: str) -> None:
    assert zone_of([text]) is None


def test_a_kernel_in_utc_is_shown_by_the_clock_of_a_job_in_japan() -> None:
    job = ["### started Mon Jun  2 18:46:12 JST 2025", "[2025-06-02 19:01:00] step 5 loss 2.0"]
    assert at(["2025-06-02T10:00:51.5+00:00 n1 kernel: x"], job) == [datetime(2025, 6, 2, 19, 0, 51)]


def test_where_one_side_names_no_zone_nothing_is_moved() -> None:
    assert at(["2025-06-02T10:00:51+00:00 n1 kernel: x"], ["[2025-06-02 19:01:00] step"]) == [datetime(2025, 6, 2, 10, 0, 51)]


def test_seconds_since_the_boot_become_times_where_the_kernel_notes_the_wall_clock() -> None:
    kernel = ["[    2.0] rtc_cmos 00:01: setting system clock to 2025-06-02T08:00:02 UTC (1748851202)", "[ 3600.0] mlx5_core: x"]
    assert at(kernel, ["2025-06-02T09:10:00Z step"])[1] == datetime(2025, 6, 2, 9, 0)


def test_seconds_since_the_boot_become_times_by_a_process_that_both_logs_name() -> None:
    kernel = ["[  100.0] NVRM: old", "[90000.0] Out of memory: Killed process 94041 (python)"]
    job = [
        "[2025-06-02 10:00:00] step 5",
        "E0602 11:02:14.104 api.py:874] failed (exitcode: -9) local_rank: 0 (pid: 94041) of binary: x",
    ]
    old, killed = at(kernel, job)
    assert killed == datetime(2025, 6, 2, 11, 2, 14)
    assert old is not None
    assert old < datetime(2025, 6, 1, 11)


def test_a_clock_that_was_never_set_tells_no_time() -> None:
    kernel = ["[Thu Jan  1 00:00:12 1970] x", "[Sun Mar  1 10:00:00 2037] x", "[Mon Jun  2 10:00:00 2025] x"]
    assert at(kernel, ["2025-06-02 11:00:00 step"]) == [None, None, datetime(2025, 6, 2, 10)]


def test_a_job_whose_clock_was_set_back_keeps_its_kernel() -> None:
    job = ["2025-06-02 11:00:00 step", "2024-01-01 00:00:00 step"]
    assert at(["[Mon Jun  2 11:00:00 2025] x"], job) == [datetime(2025, 6, 2, 11)]


def attempt(job: str = "7", *, first: int = 0, last: int | None = 60, nodes: tuple[str, ...] = ("gpu1",)) -> Job:
    """A job that ran from a minute to another one behind 08:00 UTC."""
    begin = datetime(2026, 3, 1, 8, 0, tzinfo=UTC)
    ended = begin + timedelta(minutes=last) if last is not None else None
    state = JobState.FAILED if last is not None else JobState.RUNNING
    return Job(
        job, "llm", "ada", state, "p", nodes, None, Path(), begin, begin + timedelta(minutes=first), ended, 1, None, dated_logs=True
    )


PROGRAM = "2026-03-01T{at}+00:00 NVRM: Xid (PCI:0000:07:00): 31, pid=1658, name=python, MMU Fault"
HARDWARE = "2026-03-01T{at}+00:00 NVRM: Xid (PCI:0000:07:00): 79, GPU has fallen off the bus."


@pytest.mark.parametrize(
    ("line", "at", "foreign"),
    [
        (PROGRAM, "07:55:00", True),  # a fault of the program before
        (PROGRAM, "08:30:00", False),
        (PROGRAM, "09:05:00", True),  # of the program behind
        (HARDWARE, "07:55:00", False),  # a GPU that is lost stays lost
        (HARDWARE, "06:00:00", True),
        (HARDWARE, "09:05:00", False),
        (HARDWARE, "09:30:00", True),
    ],
)
def test_a_fault_of_a_program_counts_only_while_that_program_ran(line: str, at: str, foreign: bool) -> None:
    read = read_kernel(lines("# gpu1", line.format(at=at)), ("gpu1",), 2026)
    assert bool(foreign_lines(read, attempt())) is foreign


def test_a_fault_of_a_program_on_a_shared_node_may_be_another_jobs() -> None:
    read = read_kernel(lines("# gpu1", PROGRAM.format(at="08:30:00"), HARDWARE.format(at="08:30:00")), ("gpu1",), 2026)
    assert foreign_lines(read, attempt(), [attempt("8", first=20, last=None)]) == {2}
    assert foreign_lines(read, attempt(), [attempt("8", first=40)]) == frozenset()
    assert foreign_lines(read, attempt(), [attempt("8", first=20, nodes=("gpu2",))]) == frozenset()


def test_a_living_attempt_has_no_end_and_a_line_without_a_time_is_nobodys() -> None:
    read = read_kernel(lines("# gpu1", PROGRAM.format(at="23:30:00"), "NVRM: Xid (PCI:0000:07:00): 31, pid=1"), ("gpu1",), 2026)
    assert foreign_lines(read, attempt(last=None)) == frozenset()
