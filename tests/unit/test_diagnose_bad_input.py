"""Bad, partial and strange input is answered or refused by name, never by a traceback."""

from __future__ import annotations

import gzip
import json
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from assistant.diagnose.answer import answer
from assistant.diagnose.case import Case
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.verdict import diagnose
from assistant.errors import InputError
from assistant.records import Action, Event, EventKind, Job, JobState

ECC = "[rank3]: RuntimeError: CUDA error: uncorrectable ECC error encountered"


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    return Knowledge.load()


def job(state: JobState) -> Job:
    return Job("7", "train", "ann", state, "gpu", ("n1", "n2"), None, None, None, None, None, 1, None)


def event(kind: EventKind) -> Event:
    return Event(kind, "7", None, datetime(2025, 3, 1, 10, tzinfo=UTC))


def metric_lines(count: int) -> str:
    return "".join(f"step {i} loss {2.5 - i / 1000:.4f} grad_norm 0.3\n" for i in range(count))


def test_an_empty_folder_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(InputError, match=r"holds nothing to diagnose; wanted job\.log"):
        Case.from_path(tmp_path)


@pytest.mark.parametrize("content", [b"", b"\x7fELF\x02\x01\x01" + bytes(4000)], ids=["empty", "binary"])
def test_what_is_no_log_is_refused_by_name(tmp_path: Path, content: bytes, knowledge: Knowledge) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(content)
    with pytest.raises(InputError, match=r"job\.log"):
        diagnose(Case.from_path(path), knowledge)


def test_a_missing_path_is_refused_by_name(tmp_path: Path, knowledge: Knowledge) -> None:
    with pytest.raises(InputError, match="no such file"):
        diagnose(Case.from_path(tmp_path / "gone.log"), knowledge)


def test_a_gzip_that_ends_early_is_used_as_far_as_it_goes(tmp_path: Path, knowledge: Knowledge) -> None:
    path = tmp_path / "job.log.gz"
    packed = gzip.compress((f"{ECC}\n" + "".join(f"noise {i * 7919 % 10007}\n" for i in range(20_000))).encode())
    path.write_bytes(packed[: len(packed) // 2])
    found = diagnose(Case.from_path(path), knowledge)
    assert found.reason == "ecc_error"
    assert "ends early" in found.summary


def test_a_kernel_log_alone_is_a_case(tmp_path: Path, knowledge: Knowledge) -> None:
    (tmp_path / "dmesg.log").write_text(
        "# n7\n[Sat Mar  1 10:00:00 2025] NVRM: Xid (PCI:0000:05:00): 95, pid=1, Uncontained: LTC TAG\n"
    )
    found = diagnose(Case.from_path(tmp_path), knowledge)
    assert (found.reason, found.faulty_nodes) == ("ecc_error", ("n7",))


def test_a_log_of_noise_is_unknown(tmp_path: Path, knowledge: Knowledge) -> None:
    path = tmp_path / "job.log"
    path.write_bytes(b"\xff\xfe hello \xc3\x28\nworld\n" * 3)
    found = diagnose(Case.from_path(path), knowledge)
    assert found.reason == "unknown"
    assert found.confidence <= 0.2


def test_the_answer_is_one_json_object_with_the_fields_that_the_scorer_reads(tmp_path: Path, knowledge: Knowledge) -> None:
    path = tmp_path / "job.log"
    path.write_text(ECC)
    case = Case.from_path(path)
    found = json.loads(json.dumps(answer("as/given", case, diagnose(case, knowledge))))
    assert found["path"] == "as/given"
    assert {
        "reason",
        "category",
        "action",
        "root_cause",
        "faulty_nodes",
        "confidence",
        "by",
        "rivals",
        "advice",
        "summary",
        "nodes",
    } <= set(found)
    assert found["root_cause"][0] | {"rule": ""} == {"file": "job.log", "line": 1, "text": ECC, "rule": ""}
    assert {rival["for"].partition(": ")[0] for rival in found["rivals"]} == {"job.log:1"}


def test_a_node_is_not_named_where_nothing_tells_the_host(tmp_path: Path, knowledge: Knowledge) -> None:
    path = tmp_path / "job.log"
    path.write_text(f"n1:1:1 [0] NCCL INFO x\nn2:1:1 [0] NCCL INFO x\n{ECC}\n")
    found = diagnose(Case.from_path(path), knowledge)
    assert (found.action, found.faulty_nodes) == (Action.CORDON_AND_RESTART, ())


def parts(tmp_path: Path, text: str, **given: object) -> Case:
    path = tmp_path / "job.log"
    path.write_text(text)
    kernel, job_, event_ = given.get("kernel", ""), given.get("job"), given.get("event")
    assert isinstance(kernel, str)
    assert job_ is None or isinstance(job_, Job)
    assert event_ is None or isinstance(event_, Event)
    return Case.from_parts(path, kernel, "", None, job_, event_)


def test_a_hang_that_a_watch_saw_is_a_hang(tmp_path: Path, knowledge: Knowledge) -> None:
    case = parts(tmp_path, metric_lines(30), job=job(JobState.RUNNING), event=event(EventKind.HANG))
    assert diagnose(case, knowledge).reason == "hang"


DEAD = """Traceback (most recent call last):
  File "/w/train.py", line 20, in <module>
    main()
RuntimeError: NCCL error: remote process exited or there was a network error, NCCL version 2.19.3
"""
CAUGHT = """Traceback (most recent call last):
  File "/w/data.py", line 8, in read
    raise OSError(5, "Input/output error")
OSError: [Errno 5] Input/output error
"""
EXITED = "srun: error: n1: task 0: Exited with exit code 1\n"
DAEMONS = {"programs": {"n1": ["bash", "gcs_server", "python3.11", "python3.11 ray", "raylet", "srun"]}, "gone": ""}
FINISHED = "(TaskRunner pid=7) Final validation metrics: {'val-core/acc/mean@1': 0.71}\n"
WAITS = {"programs": {"n1": ["bash", "sleep"]}, "gone": "yes"}
WORKS = {"programs": {"n1": ["bash", "python3.11", "srun"]}, "gone": ""}


@pytest.mark.parametrize(
    ("end", "detail", "reason"),
    [
        (DEAD, {}, "nccl_remote_error"),  # nobody could look, and nothing follows the traceback
        (DEAD, WAITS, "nccl_remote_error"),
        (DEAD, WORKS, "hang"),  # a rank may have died, and others wait for it
        (DEAD, {"programs": {"n1": ["bash", "python3.11 train.py"]}, "gone": ""}, "hang"),
        (DEAD, {"programs": {"n1": ["bash", "python3.11 http.server"]}, "gone": ""}, "nccl_remote_error"),
        ("", WAITS, "unknown"),  # it is gone without a word
        ("", WORKS, "hang"),
        ("Training completed\n", WAITS, "no_failure"),
        (CAUGHT + metric_lines(33) + CAUGHT, WORKS, "hang"),  # it has caught that error before
        (CAUGHT + metric_lines(33) + CAUGHT, WAITS, "s3_storage_error"),
        (DEAD + EXITED, DAEMONS, "nccl_remote_error"),  # what is left keeps a cluster of its own up
        (DEAD + "ncclSystemError: socket\n" + EXITED, {"programs": {"n1": ["dask-worker", "srun"]}}, "nccl_remote_error"),
        (DEAD + EXITED, {"programs": {"n1": ["python3.11 train.py", "srun"]}}, "hang"),  # other ranks wait for the one that died
        (DEAD + EXITED, {"programs": {"n1": ["python3.11 exp.train", "srun"]}}, "hang"),  # the same, run as a module
        (DEAD + EXITED.replace("Exited with exit code 1", "Terminated"), DAEMONS, "hang"),
        (EXITED, DAEMONS, "hang"),  # no program has said why
        (DEAD + EXITED + metric_lines(33), DAEMONS, "hang"),  # it has trained on since
        (FINISHED, DAEMONS, "no_failure"),
        ("`Trainer.fit` stopped: `max_steps=30` reached.\n", WORKS, "no_failure"),
        ("step 30/30\nsaved checkpoint out/final.pt\n", WORKS, "no_failure"),
        ("step 29/30\nsaved checkpoint out/29.pt\n", WORKS, "hang"),
        ("".join(f"step {at}/40\n" for at in range(31, 41)) + "saved checkpoint out/final.pt\n", WORKS, "no_failure"),
        ("step 40/40\nsaved checkpoint out/1.pt\n" + "".join(f"step {at}/40\n" for at in range(1, 41)), WORKS, "hang"),
        ("step 30/30\n", WORKS, "hang"),  # its last step may be lost
        (FINISHED + metric_lines(33), DAEMONS, "hang"),  # the first fold is over
        (FINISHED + "reading shard\n" * 80, WORKS, "hang"),  # something else has begun
        (FINISHED + CAUGHT, WORKS, "s3_storage_error"),  # something failed behind it
    ],
)
def test_whether_a_silent_job_hangs_or_has_failed_is_told_by_what_runs_on_its_nodes(
    tmp_path: Path, knowledge: Knowledge, end: str, detail: dict[str, object], reason: str
) -> None:
    noticed = replace(event(EventKind.HANG), detail=detail)
    case = parts(tmp_path, metric_lines(30) + end, job=job(JobState.RUNNING), event=noticed)
    assert diagnose(case, knowledge).reason == reason


BEHIND = """Traceback (most recent call last):
  File "/w/eval.py", line 3, in <module>
    load("out/step_80.pt")
FileNotFoundError: [Errno 2] No such file or directory: 'out/step_80.pt'
"""


@pytest.mark.parametrize(("text", "reason"), [(DEAD + BEHIND, "nccl_remote_error"), (BEHIND, "file_not_found_error")])
def test_a_program_that_misses_the_output_of_a_dead_one_is_not_the_cause(
    tmp_path: Path, knowledge: Knowledge, text: str, reason: str
) -> None:
    case = parts(tmp_path, metric_lines(30) + text, job=job(JobState.FAILED))
    assert diagnose(case, knowledge).reason == reason


SYSTEM_ERROR = "RuntimeError: NCCL error in: ../ProcessGroupNCCL.cpp:1691, unhandled system error, NCCL version 2.19.3\n"


@pytest.mark.parametrize(
    ("before", "reason"),
    [
        ("", "nccl_remote_error"),
        ("NCCL WARN socketStartConnect: Connect to 10.0.3.4<51331> failed : aborted\n", "nccl_remote_error"),
        ("n1:1:2 [0] include/shm.h:27 NCCL WARN Call to shm_open failed : Permission denied\n", "os_error"),
        ("NCCL WARN Error: failed to extend /dev/shm/nccl-a, error: No space left on device (28)\n", "os_error"),
        ("n1:1:2 [0] include/alloc.h:48 NCCL WARN Failed to malloc 16777216 bytes\n", "out_of_memory_error"),
        ("n1:1:2 [0] bootstrap.cc:45 NCCL WARN Bootstrap : no socket interface found\n", "network_error"),
    ],
)  # fmt: skip
def test_an_unhandled_system_error_is_told_by_the_call_behind_it(
    tmp_path: Path, knowledge: Knowledge, before: str, reason: str
) -> None:
    case = parts(tmp_path, metric_lines(30) + before + SYSTEM_ERROR, job=job(JobState.FAILED))
    assert diagnose(case, knowledge).reason == reason


def test_a_hang_with_a_broken_gpu_is_the_gpu(tmp_path: Path, knowledge: Knowledge) -> None:
    kernel = "# n2\n[Sat Mar  1 10:00:00 2025] NVRM: Xid (PCI:0000:05:00): 79, GPU has fallen off the bus.\n"
    case = parts(tmp_path, metric_lines(30), kernel=kernel, job=job(JobState.RUNNING), event=event(EventKind.HANG))
    found = diagnose(case, knowledge)
    assert (found.reason, found.faulty_nodes) == ("cuda_error", ("n2",))


def test_a_completed_job_has_no_failure(tmp_path: Path, knowledge: Knowledge) -> None:
    case = parts(tmp_path, metric_lines(30), job=replace(job(JobState.COMPLETED), exit_code=0))
    assert diagnose(case, knowledge).reason == "no_failure"


def test_a_running_job_that_trains_has_no_failure(tmp_path: Path, knowledge: Knowledge) -> None:
    case = parts(tmp_path, metric_lines(30), job=job(JobState.RUNNING))
    assert diagnose(case, knowledge).reason == "no_failure"


@pytest.mark.parametrize(
    ("state", "reason"), [(JobState.CANCELLED, "cancelled"), (JobState.TIMEOUT, "time_limit"), (JobState.PREEMPTED, "preempted")]
)
def test_what_the_scheduler_says_counts_where_no_error_does(
    tmp_path: Path, state: JobState, reason: str, knowledge: Knowledge
) -> None:
    assert diagnose(parts(tmp_path, metric_lines(30), job=job(state)), knowledge).reason == reason


def test_a_job_log_that_is_not_there_is_no_job_log(tmp_path: Path) -> None:
    assert Case.from_parts(tmp_path / "none.log", "", "", None, None, None).job_log is None
