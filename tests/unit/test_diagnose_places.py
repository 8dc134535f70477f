"""Hosts of kernel lines, ranks and Slurm lists; times; launcher blocks."""

from __future__ import annotations

from datetime import datetime

import pytest

from assistant.diagnose.kernel import read_kernel, xid_of
from assistant.diagnose.places import expand, read_places
from assistant.diagnose.progress import Progress
from assistant.diagnose.streams import Streams
from assistant.diagnose.times import stamp
from assistant.diagnose.torchrun import read_exits, read_tasks
from assistant.logs.lines import Line


def lines(*texts: str) -> list[Line]:
    return [Line(number, text) for number, text in enumerate(texts, 1)]


@pytest.mark.parametrize(
    "header",
    [
        "===== gpu-12 =====",
        "# gpu-12",
        "==> gpu-12 <==",
        "gpu-12:",
        "---- dmesg -T of gpu-12 ----",
        "$ ssh gpu-12 dmesg -T",
        "[gpu-12]",
        "Host: gpu-12",
    ],
)
def test_a_section_of_a_kernel_log_belongs_to_the_host_of_its_header(header: str) -> None:
    read = read_kernel(lines(header, "[Sat Mar  1 10:00:00 2025] NVRM: Xid (PCI:0000:05:00): 79, GPU has fallen off the bus."))
    assert read[-1].host == "gpu-12"
    assert read[-1].xid == 79


@pytest.mark.parametrize(
    "line",
    [
        "Mar  1 10:00:00 gpu-12 kernel: [1.0] NVRM: Xid (PCI:0000:05:00): 48, x",
        "gpu-12: [Sat Mar  1 10:00:00 2025] NVRM: Xid (PCI:0000:05:00): 48, x",
    ],
)
def test_a_kernel_line_may_name_its_host_itself(line: str) -> None:
    (read,) = read_kernel(lines(line), year=2025)
    assert (read.host, read.at, read.xid) == ("gpu-12", datetime(2025, 3, 1, 10), 48)


def test_a_kernel_line_without_any_host_has_none() -> None:
    assert read_kernel(lines("[ 12.4] mlx5_core 0000:a1:00.0: link down"))[0].host is None


def test_an_sxid_is_no_xid() -> None:
    assert xid_of("nvidia-nvswitch0: SXid (PCI:0000:00:00.0): 20034, Fatal") == (None, None)


def test_a_build_date_further_right_is_no_time_of_the_line() -> None:
    text = "Feb 17 23:11:21 n1 kernel: NVRM: loading NVIDIA UNIX Kernel Module 535  Thu Oct 19 18:56:32 UTC 2023"
    assert stamp(text, 2023) == datetime(2023, 2, 17, 23, 11, 21)


def test_slurm_lists_are_spread() -> None:
    assert expand("cn[01-03,7],login1") == ["cn01", "cn02", "cn03", "cn7", "login1"]


BLOCK = (
    "Failures:", "[1]:", "  time      : 2025-01-30_18:04:47", "  host      : g171", "  rank      : 9 (local_rank: 1)",
    "  exitcode  : -15 (pid: 2)", "Root Cause (first observed failure):", "[0]:", "  host      : g171",
    "  rank      : 12 (local_rank: 4)", "  exitcode  : 1 (pid: 3)",
)  # fmt: skip


def test_the_first_observed_failure_of_torchrun_is_read() -> None:
    victim, first = read_exits(lines(*BLOCK), Streams())
    assert (victim.rank, victim.victim, victim.first) == (9, True, False)
    assert (first.host, first.rank, first.local_rank, first.code, first.first) == ("g171", 12, 4, 1, True)


def test_a_rank_is_placed_beside_its_neighbours() -> None:
    read = lines(*BLOCK, "srun: error: g170: task 0: Terminated")
    streams = Streams()
    places = read_places(read, streams, read_exits(read, streams), read_tasks(read))
    assert places.host_of(rank=10, task=None) == "g171"
    assert places.host_of(rank=3, task=None) in (None, "g170")
    assert places.host_of(rank=None, task=0) == "g170"


def test_nccl_tells_where_ranks_run() -> None:
    read = lines("n5:11:12 [0] NCCL INFO ncclCommInitRank comm 0x1 rank 40 nranks 64 cudaDev 0 busId 1000 - Init COMPLETE")
    assert read_places(read, Streams(), [], []).host_of(rank=40, task=None) == "n5"


def test_a_counter_that_falls_back_after_a_start_up_begins_a_leg() -> None:
    progress = Progress((1, 2, 3, 40, 41), (100.0, 110.0, 120.0, 105.0, 115.0))
    assert progress.leg == 40
    assert progress.after(3) == 2
    assert Progress((1, 2, 3), (5.0, 4.0, 5.0)).leg == 0
