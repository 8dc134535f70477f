"""Root cause from all evidence: one clock, ranks on hosts, the peer that died first, what a person reacted to."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.diagnose.case import Case
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.verdict import diagnose
from assistant.records import Diagnosis

ECC = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
DBE = "NVRM: Xid (PCI:0000:3b:00): 48, pid=811, An uncorrectable double bit error (DBE) has been detected on GPU"
WATCHDOG = (
    "[rank{rank}]:[E ProcessGroupNCCL.cpp:629] [Rank {rank}] Watchdog caught collective operation timeout: "
    "WorkNCCL(SeqNum={seq}, OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000)"
    " ran for 600021 milliseconds before timing out."
)


def steps(count: int = 30, hour: str = "10", loss: float = 2.5, tail: float | None = None) -> str:
    values = [loss - i / 100 if tail is None or i < count - 10 else tail + i / 50 for i in range(count)]
    return "".join(f"[2025-03-01 {hour}:{i:02d}:00] step {i} loss {value:.3f} grad_norm 0.3\n" for i, value in enumerate(values))


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    return Knowledge.load()


def told(tmp_path: Path, knowledge: Knowledge, job: str, kernel: str = "", scheduler: str = "") -> Diagnosis:
    (tmp_path / "job.log").write_text(job)
    return diagnose(Case.from_parts(tmp_path / "job.log", kernel, scheduler, None, None, None), knowledge)


@pytest.mark.parametrize(
    "job",
    [
        "gpu-a:1:1 [0] NCCL INFO x\ngpu-b1:77:81 [1] NCCL INFO ncclCommInitRank comm 0x1 rank 9 nranks 16 cudaDev 1 busId 1000\n"
        f"{steps()}[rank9]: {ECC}\n",
        f"{steps()}[rank9]: {ECC}\nRoot Cause (first observed failure):\n[0]:\n  time      : 2025-03-01_10:30:00\n"
        "  host      : gpu-b1\n  rank      : 9 (local_rank: 1)\n  exitcode  : 1 (pid: 3)\n",
        f"{steps()}[rank12]: {ECC}\nRoot Cause (first observed failure):\n[0]:\n  time      : 2025-03-01_10:30:00\n"
        "  host      : gpu-b1\n  rank      : 9 (local_rank: 1)\n  exitcode  : 1 (pid: 3)\n",
        f"{steps()}9: {ECC}\nsrun: error: gpu-b1: task 9: Exited with exit code 1\nsrun: error: gpu-a1: task 0: Terminated\n",
        f"{steps()}[gpu-b1:77] {ECC}\n[gpu-a1:78] step\n",
        f'{steps()}gpu-b1: Traceback (most recent call last):\ngpu-b1:   File "x.py", line 1, in f\ngpu-b1:     y\ngpu-b1: {ECC}\n',
        f"rank 9 on gpu-b1 ready\nrank 0 on gpu-a1 ready\n{steps()}[rank9]: {ECC}\n",
    ],
    ids=["nccl", "torchrun", "torchrun neighbour", "srun -l", "bracket", "host prefix", "told"],
)
def test_the_host_of_a_rank_is_known_however_it_is_told(job: str, tmp_path: Path, knowledge: Knowledge) -> None:
    found = told(tmp_path, knowledge, job)
    assert found.reason == "ecc_error"
    assert found.faulty_nodes == ("gpu-b1",)


def test_a_pod_is_a_place_and_no_node(tmp_path: Path, knowledge: Knowledge) -> None:
    found = told(tmp_path, knowledge, f"{steps()}[pod/train-worker-1/pytorch] {ECC}\n[pod/train-worker-0/pytorch] step\n")
    assert (found.reason, found.faulty_nodes) == ("ecc_error", ())
    assert "train-worker-1" in " ".join(place.sentence for place in found.where)


@pytest.mark.parametrize(
    ("started", "stamp", "faulty"),
    [
        ("Sat Mar  1 10:00:00 JST 2025", "2025-03-01T01:29:30+00:00", ("gpu-b1",)),
        ("Sat Mar  1 10:00:00 JST 2025", "2025-02-28T20:29:30+00:00", ()),
        ("Sat Mar  1 10:00:00 UTC 2025", "2025-03-01T05:29:30-05:00", ("gpu-b1",)),
        ("Sat Mar  1 10:00:00 UTC 2025", "2025-03-01T05:29:30+00:00", ()),
        ("Sat Mar  1 10:00:00 2025", "Mar  1 10:29:30", ("gpu-b1",)),
        ("Sat Mar  1 10:00:00 2025", "Feb 27 10:29:30", ()),
    ],
    ids=["utc and japan", "hours before, japan", "new york", "hours before", "no year", "days before, no year"],
)
def test_a_kernels_fault_counts_when_it_lies_in_the_attempt_by_one_clock(
    started: str, stamp: str, faulty: tuple[str, ...], tmp_path: Path, knowledge: Knowledge
) -> None:
    later = stamp.replace("29:30", "30:10")
    kernel = f"{stamp} gpu-b1 kernel: {DBE}\n{later} gpu-b1 kernel: docker0: port 1(veth) entered forwarding state\n"
    died = "RuntimeError: CUDA error: unspecified launch failure" if faulty else "KeyError: 'x'"
    found = told(tmp_path, knowledge, f"started at {started}\n{steps()}[rank9]: {died}\n", kernel)
    assert found.faulty_nodes == faulty
    assert found.reason == ("ecc_error" if faulty else "key_error")


def test_seconds_since_the_boot_are_placed_by_a_process_that_both_name(tmp_path: Path, knowledge: Knowledge) -> None:
    job = (
        f"SLURM_JOB_NODELIST=gpu-b[1-2]\n{steps()}"
        "[2025-03-01 10:30:00] [E] failed (exitcode: -9) local_rank: 0 (pid: 94041) of binary: /usr/bin/python\n"
    )
    kernel = f"# gpu-b1\n[  90.0] {DBE}\n[90000.0] Out of memory: Killed process 94041 (python) total-vm:1kB, anon-rss:1kB\n"
    found = told(tmp_path, knowledge, job, kernel)
    assert (found.reason, found.faulty_nodes) == ("out_of_memory_error", ())


def test_hardware_evidence_explains_what_nccl_and_cuda_print(tmp_path: Path, knowledge: Knowledge) -> None:
    job = f"SLURM_JOB_NODELIST=gpu-b[1-2]\n{steps()}{WATCHDOG.format(rank=3, seq=77)}\n"
    kernel = f"# gpu-b2\n[Sat Mar  1 10:29:30 2025] {DBE}\n"
    found = told(tmp_path, knowledge, job, kernel)
    assert (found.reason, found.faulty_nodes) == ("ecc_error", ("gpu-b2",))
    assert "nccl_timeout_error" in {rival.reason for rival in found.rivals}


def test_the_rank_that_is_behind_is_told(tmp_path: Path, knowledge: Knowledge) -> None:
    behind = "".join(f"{WATCHDOG.format(rank=rank, seq=401 if rank != 5 else 399)}\n" for rank in range(8))
    found = told(tmp_path, knowledge, steps() + behind)
    assert found.reason == "nccl_timeout_error"
    assert "Rank 5 alone is behind" in found.summary
    assert "[Rank 5]" in found.root_cause[1].text


def test_a_closed_connection_points_at_the_peer_that_died_first(tmp_path: Path, knowledge: Knowledge) -> None:
    job = (
        f"{steps()}9: python: malloc.c:2617: sysmalloc: Assertion failed.\n"
        "srun: error: gpu-b2: task 9: Segmentation fault (core dumped)\n"
        "gpu-b1:912:1044 [1] misc/socket.cc:484 NCCL WARN socketProgress: Connection closed by remote peer gpu-b2.ib<51120>\n"
        "[rank1]: torch.distributed.DistBackendError: NCCL error: remote process exited or there was a network error\n"
    )
    found = told(tmp_path, knowledge, job)
    text = " ".join([found.summary, *(cited.text for cited in found.root_cause), *(rival.speaks_for for rival in found.rivals)])
    assert "gpu-b2" in text


SURVIVED = {
    "caught": 'Traceback (most recent call last):\n  File "/w/x.py", line 1, in log\n    push()\n'
    "ConnectionError: no metrics server\nignored, going on\n",
    "quoted in a warning": "WARNING: could not write cache (OSError: [Errno 28] No space left on device), going on without\n",
    "elastic restart": "[rank3]: RuntimeError: CUDA error: an illegal memory access was encountered\n"
    "[default] Worker group FAILED. 2/3 attempts left; will restart worker group\nrestart_count=1 loading checkpoint\n",
    "teardown": "Exception ignored in: <function Pool.__del__ at 0x7f>\nAttributeError: 'NoneType' object has no attribute 'x'\n",
}


@pytest.mark.parametrize("after", SURVIVED.values(), ids=SURVIVED)
def test_what_was_survived_is_no_cause(after: str, tmp_path: Path, knowledge: Knowledge) -> None:
    more = steps(30, "11").replace("step ", "step 1")
    assert told(tmp_path, knowledge, steps() + after + more).reason == "no_failure"


KILLED = "/var/spool/slurmd/job9/slurm_script: line 41: 88123 Killed                  python sft.py\n"
OOM_RECORD = "# gpu-b1\n[Sat Mar  1 10:29:58 2025] Memory cgroup out of memory: Killed process 88123 (python)\n"
PREEMPTION = "[2025-03-01T10:29:30.1] preempted JobId=900 has been requeued to reclaim resources for JobId=901\n"
TIME_LIMIT = "slurmstepd: error: *** JOB 900 ON gpu-b1 CANCELLED AT 2025-03-01T10:30:10 DUE TO TIME LIMIT ***\n"
SCANCEL = "slurmstepd: error: *** JOB 900 ON gpu-b1 CANCELLED AT 2025-03-01T{time} ***\n"


@pytest.mark.parametrize(
    ("job", "kernel", "scheduler", "reason"),
    [
        (steps() + KILLED, OOM_RECORD, "", "out_of_memory_error"),
        ("SLURM_JOB_ID=900\n" + steps() + KILLED, "", PREEMPTION, "preempted"),
        ("SLURM_JOB_ID=900\n" + steps() + SCANCEL.format(time="10:30:10"), "", "", "cancelled"),
        ("SLURM_JOB_ID=900\n" + steps(60, "10", 2.0, 7.0) + SCANCEL.format(time="11:00:10"), "", "", "loss_spike"),
        ("SLURM_JOB_ID=900\n" + steps() + SCANCEL.format(time="12:40:10"), "", "", "hang"),
        ("SLURM_JOB_ID=900\n" + steps() + TIME_LIMIT, "", "", "time_limit"),
        (steps() + "training finished, max_steps=30 reached\n", "", "", "no_failure"),
    ],
    ids=["oom record", "preemption record", "by a person", "after a spike", "after a hang", "time limit", "finished"],
)
def test_an_end_without_an_error_is_told_by_what_stands_behind_it(
    job: str, kernel: str, scheduler: str, reason: str, tmp_path: Path, knowledge: Knowledge
) -> None:
    assert told(tmp_path, knowledge, job, kernel, scheduler).reason == reason


AGAIN = 'Traceback (most recent call last):\n  File "/w/x.py", line 2, in g\n    h()\n'
HANDLING = (
    "KeyError: 'cached'\n\nDuring handling of the above exception, another exception occurred:\n\n"
    f"{AGAIN}TypeError: h() missing 1 required positional argument: 'k'\n"
)
CAUSED = (
    "FileNotFoundError: [Errno 2] No such file or directory: '/data/a.yaml'\n\n"
    f"The above exception was the direct cause of the following exception:\n\n{AGAIN}RunSetupError: cannot set up\n"
)


@pytest.mark.parametrize(
    ("chain", "reason"), [(HANDLING, "type_error"), (CAUSED, "file_not_found_error")], ids=["during handling", "direct cause"]
)
def test_wrapped_exceptions_resolve_to_what_an_expert_would_name(
    chain: str, reason: str, tmp_path: Path, knowledge: Knowledge
) -> None:
    trace = f'Traceback (most recent call last):\n  File "/w/x.py", line 1, in f\n    y()\n{chain}'
    assert told(tmp_path, knowledge, steps() + trace).reason == reason
