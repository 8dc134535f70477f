"""Hosts of kernel lines, ranks and Slurm lists; times; launcher blocks."""

from __future__ import annotations

from datetime import datetime

import pytest

from assistant.diagnose.readers.kernel import KernelLine, event_of, named_gpu, read_kernel
from assistant.diagnose.readers.places import Places, read_places
from assistant.diagnose.readers.progress import Progress
from assistant.diagnose.readers.streams import Streams, expand, read_exits, read_tasks, stamp
from assistant.logs.lines import Line


def xid_of(line: KernelLine) -> str | None:
    return line.event.code if line.event is not None and line.event.family == "xid" else None


def places_of(*texts: str) -> Places:
    read = lines(*texts)
    streams = Streams(texts)
    return read_places(read, streams, read_exits(read, streams), read_tasks(read))


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
    assert xid_of(read[-1]) == "79"


@pytest.mark.parametrize(
    "line",
    [
        "Mar  1 10:00:00 gpu-12 kernel: [1.0] NVRM: Xid (PCI:0000:05:00): 48, x",
        "gpu-12: [Sat Mar  1 10:00:00 2025] NVRM: Xid (PCI:0000:05:00): 48, x",
    ],
)
def test_a_kernel_line_may_name_its_host_itself(line: str) -> None:
    (read,) = read_kernel(lines(line), year=2025)
    assert (read.host, read.at, xid_of(read)) == ("gpu-12", datetime(2025, 3, 1, 10), "48")


ISO = "2026-11-27T08:18:16,305537+00:00"


@pytest.mark.parametrize(
    "line",
    [
        f"{ISO} mlx5_core 0000:14:00.0: Port module event: module 0, Cable unplugged",
        f"{ISO} nvme nvme0: I/O 12 QID 4 timeout, aborting",
        f"{ISO} sd 0:0:0:0: [sda] tag#3 FAILED Result: hostbyte=DID_OK",
        f"{ISO} usb 1-1: reset high-speed USB device number 2",
    ],
)
def test_a_driver_that_stands_where_syslog_writes_the_host_takes_no_line_from_its_node(line: str) -> None:
    assert read_kernel(lines("# gpu002", line), ("gpu001", "gpu002"))[-1].host == "gpu002"


def test_a_driver_before_the_address_of_its_device_is_no_host() -> None:
    assert read_kernel(lines(f"{ISO} mlx5_core 0000:14:00.0: Port module event: module 0, Cable unplugged"))[0].host is None
    assert read_kernel(lines("# gpu1", f"{ISO} gpu002 kernel: mlx5_core 0000:14:00.0: Cable unplugged"))[-1].host == "gpu002"


def test_a_kernel_line_without_any_host_has_none() -> None:
    assert read_kernel(lines("[ 12.4] mlx5_core 0000:a1:00.0: link down"))[0].host is None


def test_an_sxid_is_no_xid() -> None:
    event = event_of("nvidia-nvswitch0: SXid (PCI:0000:00:00.0): 20034, Fatal")
    assert event is not None
    assert (event.family, event.code, event.fatal) == ("sxid", "20034", True)


@pytest.mark.parametrize(
    ("text", "gpu"),
    [
        ("NVRM: Xid (PCI:0000:3b:00): 48, pid=1, An uncorrectable double bit error (DBE) has been detected on GPU 3.", 3),
        ("nvidia-smi: GPU 5: XID error 79 seen", 5),
        ("dcgm: GPU[2] Xid 63", 2),
        ("NVRM: Xid (PCI:0000:3b:00): 79, GPU has fallen off the bus.", None),
        ("NVRM: GPU at PCI:0000:3b:00: GPU-1f2e3d4c Xid 79", None),
        ("GPU 0000:3b:00.0: Detected Critical Xid Error", None),
        ("GPU 00:1b.0 Xid 79", None),
        ("loss on GPU 3 is 2.1", None),
    ],
)
def test_a_line_with_an_xid_may_name_the_index_of_its_gpu(text: str, gpu: int | None) -> None:
    assert named_gpu(text) == gpu


def test_a_build_date_further_right_is_no_time_of_the_line() -> None:
    text = "Feb 17 23:11:21 n1 kernel: NVRM: loading NVIDIA UNIX Kernel Module 535  Thu Oct 19 18:56:32 UTC 2023"
    assert stamp(text, 2023) == datetime(2023, 2, 17, 23, 11, 21)


@pytest.mark.parametrize(
    ("text", "fatal"),
    [
        ("NVRM: Xid (PCI:0018:01:00): 149, NETIR_LINK_EVT Fatal XC0 i0 Link 08 (0x004505c6)", True),
        ("NVRM: Xid (PCI:0018:01:00): 149, NETIR_BER_EVENT Nonfatal XC0 i0 Link 08 (0x00400003)", False),
        ("nvidia-nvswitch2: SXid (PCI:0000:c4:00.0): 22013, Severity 0 Engine instance 46", False),
        ("nvidia-nvswitch2: SXid (PCI:0000:c4:00.0): 22013, Severity 1 Engine instance 46", True),
        ("nvidia-nvswitch2: SXid (PCI:0000:c4:00.0): 20001, Non-fatal, Link 33 TX Replay Error (First)", False),
        ("NVRM: Xid (PCI:0000:4f:00): 79, pid=3312, name=python, GPU has fallen off the bus.", None),
    ],
)
def test_a_line_states_its_severity(text: str, fatal: bool | None) -> None:
    event = event_of(text)
    assert event is not None
    assert event.fatal is fatal


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("NPU function error: HBM MULTI BIT ECC ERROR., error code is 507054", "507054"),
        ("ACL stream synchronize failed, error code:507018", "507018"),
        ("EI0006: Getting socket times out.", "EI0006"),
        ("retCode=0x7110001, drv 507011 items", None),
        ("step 107022 of 507054", None),
    ],
)
def test_ascend_codes_are_read_where_they_are_called_codes(text: str, code: str | None) -> None:
    event = event_of(text)
    assert (event.code if event is not None else None) == code


def test_slurm_lists_are_spread() -> None:
    assert expand("cn[01-03,7],login1") == ["cn01", "cn02", "cn03", "cn7", "login1"]
    assert expand("r[1-2]n[01-02]") == ["r1n01", "r1n02", "r2n01", "r2n02"]


@pytest.mark.parametrize("text", ["cn[01-03", "cn[1-999999999]", "cn[a-c]", "the nodes", "", "cn01,,cn02"])
def test_what_is_no_list_names_no_machine(text: str) -> None:
    assert expand(text) == []


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


NCCL = (
    "{host}:11:12 [{gpu}] NCCL INFO ncclCommInitRank comm 0x1 rank {rank} nranks {size} cudaDev {gpu} busId {bus} - Init COMPLETE"
)


def nccl(host: str, rank: int, size: int, gpu: int = 0, bus: str = "1a000") -> str:
    return NCCL.format(host=host, rank=rank, size=size, gpu=gpu, bus=bus)


def test_ranks_of_a_group_are_no_ranks_of_the_job() -> None:
    places = places_of(nccl("n1", 0, 2), nccl("n2", 0, 2), nccl("n1", 0, 4), nccl("n1", 1, 4), nccl("n2", 2, 4), nccl("n2", 3, 4))
    assert [places.host_of(rank=rank, task=None) for rank in range(4)] == ["n1", "n1", "n2", "n2"]


def test_a_communicator_that_is_too_small_for_the_ranks_that_speak_places_nobody() -> None:
    places = places_of(nccl("n1", 0, 2), nccl("n2", 1, 2), "[rank5]: RuntimeError: x")
    assert places.host_of(rank=1, task=None) is None


def test_hosts_that_claim_the_same_rank_place_it_nowhere() -> None:
    places = places_of("rank 3 on n1", "rank 3 on n2", "rank 4 on n2")
    assert places.host_of(rank=3, task=None) is None
    assert places.host_of(rank=4, task=None) == "n2"


def test_two_names_of_one_host_do_not_contradict_each_other() -> None:
    places = places_of("rank 3 on n1", "rank=3 host=n1.cluster.example")
    assert places.host_of(rank=3, task=None) == "n1"


def test_a_local_rank_is_no_rank() -> None:
    assert places_of("local rank 1, host n5", "local_rank=2 host=n5").host_of(rank=1, task=None) is None


def test_a_line_about_two_ranks_places_none() -> None:
    places = places_of("rank 3 lost rank 5 on n7")
    assert places.host_of(rank=3, task=None) is places.host_of(rank=5, task=None) is None


def test_ranks_that_are_dealt_out_in_turn_are_not_reckoned_in_blocks() -> None:
    texts = ["ntasks-per-node=4", "rank 0 on n1", "rank 1 on n2", "rank 2 on n1"]
    assert places_of(*texts).host_of(rank=3, task=None) is None


def test_blocks_are_reckoned_where_neighbours_prove_them() -> None:
    texts = ["ntasks-per-node=4", "rank 4 on n2", "rank 5 on n2"]
    assert places_of(*texts).host_of(rank=7, task=None) == "n2"
    assert places_of(*texts).host_of(rank=3, task=None) is None


def test_one_known_neighbour_proves_no_block() -> None:
    assert places_of("ntasks-per-node=4", "rank 4 on n2").host_of(rank=5, task=None) is None


@pytest.mark.parametrize(
    "texts",
    [
        ("10.0.0.7 n7 n7.example", "n1:3:3 [0] NCCL INFO x"),
        ("n7:3:3 [0] NCCL INFO Bootstrap : Using ib0:10.0.0.7<0>",),
        ("n7:3:3 [0] NCCL INFO NET/IB : Using [0]mlx5_0:1/RoCE ; OOB ib0:10.0.0.7<0>",),
        ("NAME   READY   IP         NODE   NOMINATED NODE", "pod-a  1/1     10.0.0.7   n7     <none>"),
        ("Name:   pod-a", "Node:   n7/10.0.0.7"),
    ],
)
def test_an_address_is_the_node_that_a_line_or_table_gives_it_to(texts: tuple[str, ...]) -> None:
    assert places_of(*texts).node_of("10.0.0.7") == "n7"


def test_a_name_that_two_nodes_have_is_neither() -> None:
    assert places_of("10.0.0.7 n7", "10.0.0.7 n8").node_of("10.0.0.7") == "10.0.0.7"


def test_a_world_of_deepspeed_numbers_the_ranks_in_its_order() -> None:
    places = places_of("x WORLD INFO DICT: {'n9': [0, 1], 'n3': [0, 1]}")
    assert [places.host_of(rank=rank, task=None) for rank in range(4)] == ["n9", "n9", "n3", "n3"]


def test_lists_of_gpus_are_no_ranks() -> None:
    assert places_of("ranks by host {'n9': [0, 1], 'n3': [0, 1]}").host_of(rank=1, task=None) is None


def test_only_slurm_s_own_list_proves_that_a_node_is_foreign() -> None:
    assert places_of("SLURM_JOB_NODELIST=n[1-2]").foreign("n3")
    assert not places_of("SLURM_JOB_NODELIST=n[1-2]").foreign("n2.cluster.example")
    assert not places_of("SLURM_STEP_NODELIST=n1").foreign("n3")
    assert not places_of("rank 3 on n1").foreign("n3")


def test_a_device_is_one_node_s_only_where_all_nodes_tell_theirs() -> None:
    told = [nccl("n1", 0, 2, bus="1a000"), nccl("n2", 1, 2, bus="5e000")]
    assert places_of(*told).host_with("0000:5e:00") == "n2"
    assert places_of(*told, "hosts=n1,n2,n3").host_with("0000:5e:00") is None


def test_a_counter_that_falls_back_after_a_start_up_begins_a_leg() -> None:
    progress = Progress((1, 2, 3, 40, 41), (100.0, 110.0, 120.0, 105.0, 115.0))
    assert progress.leg == 40
    assert progress.after(3) == 2
    assert Progress((1, 2, 3), (5.0, 4.0, 5.0)).leg == 0


def test_a_node_that_the_scheduler_lists_is_no_other_name_of_another_one() -> None:
    places = places_of("(WorkerDict pid=124, ip=gpu002) NCCL version 2.21.5+cuda12.4")
    places.also_called("gpu002", "gpu001", 1)
    places.name_all(("gpu001", "gpu002"))
    places.settle()
    assert not places.foreign("gpu002")
    assert places.node_of("gpu002") == "gpu002"
    assert places.foreign("gpu003")


NCCL_LINES = (
    "node-b17: joined",
    "node-b17: joined as worker",
    "node-b17: ready",
    "node-b17:5120:5377 [3] NCCL WARN NET/IB : Got async event : port error",
    "2: node-b17:5121:5380 [-1] NCCL INFO transport/net.cc:1185 -> 6",
)


def test_process_and_thread_of_nccl_are_no_task_and_its_host_counts() -> None:
    streams = Streams(NCCL_LINES)
    first, second = (streams.body(text) for text in NCCL_LINES[3:])
    assert (first.task, first.rank, first.host) == (None, None, "node-b17")
    assert first.text == NCCL_LINES[3]
    assert (second.task, second.host) == (2, "node-b17")


def test_a_host_and_a_task_of_srun_before_a_line_still_count() -> None:
    streams = Streams(NCCL_LINES)
    assert (streams.body("3: node-b17: loss 2.1").task, streams.body("node-b17: 3: loss 2.1").task) == (3, 3)


ENDS = (
    "srun: error: cn31: task 2: Exited with exit code 1",
    "srun: error: cn30: tasks 0-1: Terminated",
    "srun: error: cn31: task 3: Terminated",
)
TORCHRUN = ("torchrun --nnodes 2 --nproc_per_node 4 --node_rank $SLURM_NODEID fit.py",)


@pytest.mark.parametrize(
    ("texts", "rank", "node"),
    [
        (ENDS, 2, "cn31"),
        (ENDS, 1, "cn30"),
        (ENDS, 4, None),
        (("[rank7]: OSError: [Errno 28] No space left on device", *ENDS), 2, None),
        (("E0301 torch.distributed.elastic.multiprocessing.api: failed (exitcode: 1)", *ENDS), 2, None),
        ((ENDS[0], ENDS[2]), 3, None),
        (("srun: error: cn31: task 1: Exited with exit code 1", "srun: error: cn30: task 0: Terminated"), 1, "cn31"),
        (("srun: error: cn31: task 1: Exited with exit code 1", "srun: error: cn30: task 0: Terminated"), 0, None),
        (("cn30: NODE_RANK=0", "cn31: NODE_RANK=1", *TORCHRUN), 6, "cn31"),
        (("hostname=cn30 SLURM_NODEID=0 WORLD_SIZE=8", "hostname=cn31 SLURM_NODEID=1 WORLD_SIZE=8"), 3, "cn30"),
        (("hostname=cn30 SLURM_NODEID=0", "hostname=cn31 SLURM_NODEID=1"), 3, None),
        (("starting node rank 0 on cn30", "starting node rank 1 on cn31", "gpus_per_node=2"), 1, "cn30"),
        (("cn30: NODE_RANK=0", "cn31: NODE_RANK=1", *TORCHRUN, "--rdzv_backend=c10d"), 6, None),
        (("host cn30 group_rank=1", "host cn31 group_rank=0", *TORCHRUN, "--rdzv_backend=c10d"), 6, "cn30"),
        (("cn30: NODE_RANK=0", "cn31: NODE_RANK=0", *TORCHRUN), 1, None),
    ],
)  # fmt: skip
def test_a_rank_that_no_line_places_is_on_the_node_of_its_task_or_of_its_number(
    texts: tuple[str, ...], rank: int, node: str | None
) -> None:
    assert places_of(*texts).host_of(rank=rank, task=None) == node


def test_the_rank_of_a_node_is_no_rank() -> None:
    assert places_of("node rank 5 host=cn31", "gpus_per_node=8").host_of(rank=5, task=None) is None
