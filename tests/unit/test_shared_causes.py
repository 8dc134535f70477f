"""What counts as one cause of several failures, and what must not: lines as programs of strangers print them."""

from __future__ import annotations

import dataclasses
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assistant.engine.evidence.missing_data import relative_paths
from assistant.engine.outages import PROBED, _waits_for_the_first
from assistant.records import Event, EventKind, IncidentState
from assistant.watch.outages import (
    CauseKind,
    JobFailure,
    SharedCause,
    awaited_by,
    causes_of,
    files_missed,
    joins,
    outages,
    paths_of,
)
from tests.unit.logged_job import job_in

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


def failure(
    number: int,
    text: str,
    *,
    reason: str = "file_not_found_error",
    user: str = "",
    task: str = "",
    at_s: float = 0.0,
    nodes: tuple[str, ...] = (),
    error: str = "",
    gone: tuple[str, ...] = (),
    wording: str = "",
    emptied: tuple[str, ...] = (),
) -> JobFailure:
    user = user or f"user{number % 3}"
    at = NOON + timedelta(seconds=at_s or number)
    return JobFailure(number, str(number), task or f"{user}/run", at, reason, (text,), user, nodes, error, gone, wording, emptied)


ENOENT = "FileNotFoundError: [Errno 2] No such file or directory: '{}'"


@pytest.mark.parametrize(
    ("texts", "cause"),
    [
        ([ENOENT.format(f"/lustre/pile/shard_{n}.bin") for n in range(3)], "/lustre/pile"),
        ([ENOENT.format("/lustre/pile/shard_1.bin")] * 3, "/lustre/pile/shard_1.bin"),
        ([f"OSError: [Errno 116] Stale file handle: '/gpfs/proj/a{n}/b/c.bin'" for n in range(3)], "/gpfs/proj"),
        ([f"OSError: [Errno 5] Input/output error: '/data/{n}/x.bin'" for n in range(3)], "/data"),
        ([f"/var/spool/slurmd/job{n}/slurm_script: line 7: /apps/env/bin/python: No such file or directory" for n in range(3)],
         "/apps/env/bin/python"),
        ([f"[rank{n}]: RuntimeError: cannot open file </lustre/c/model.pt> in read mode" for n in range(3)], "/lustre/c/model.pt"),
        (["PermissionError: [Errno 13] Permission denied: '/proj/shared/vocab.json'"] * 3, "/proj/shared/vocab.json"),
        (["requests.exceptions.ConnectionError: HTTPSConnectionPool(host='huggingface.co', port=443): Max retries exceeded"] * 3,
         "huggingface.co:443"),
        (["redis.exceptions.ConnectionError: Error 111 connecting to 10.0.0.9:6379. Connection refused."] * 3, "10.0.0.9:6379"),
        (["wandb: ERROR Error while calling W&B API: could not resolve host: api.wandb.ai"] * 3, "api.wandb.ai"),
    ],
)  # fmt: skip
def test_lines_of_several_owners_that_name_one_thing_are_one_cause(texts: list[str], cause: str) -> None:
    (found,) = outages([failure(number, text) for number, text in enumerate(texts, 1)])
    assert found.cause.name == cause


@pytest.mark.parametrize(
    "texts",
    [
        ["Traceback (most recent call last):"] * 4,
        ["srun: error: node07: task 0: Exited with exit code 1"] * 4,
        ['  File "/shared/env/lib/python3.11/site-packages/torch/serialization.py", line 1230, in load'] * 4,
        ["OSError: /shared/env/lib/python3.11/site-packages/nvidia/cudnn/lib/libcudnn.so.9: cannot open shared object file"] * 4,
        ["/usr/bin/python3: No such file or directory"] * 4,
        ["RuntimeError: CUDA error: an illegal memory access. For debugging see https://pytorch.org/docs/stable/cuda.html"] * 4,
        ["ConnectionRefusedError: [Errno 111] connecting to localhost:29500 refused"] * 4,
        ["torch.distributed.DistNetworkError: failed to connect to 127.0.0.1:29500"] * 4,
        [ENOENT.format(f"/home/user{n}/data/train.bin") for n in range(4)],
        [ENOENT.format(f"/lustre/user{n}/data/train.bin") for n in range(4)],
        [f"saved checkpoint to /lustre/ckpt/step_{n}" for n in range(4)],
        ["loading shards from /lustre/pile"] * 4,
        ["Error: connection to worker lost, see /lustre/logs/worker.log for help"] * 4,
        ["error: no such file or directory: ''"] * 4,
        ["No such file or directory: ../data/train.bin"] * 4,
    ],
)
def test_lines_that_unrelated_jobs_print_alike_are_no_cause(texts: list[str]) -> None:
    assert outages([failure(number, text) for number, text in enumerate(texts, 1)]) == []


def test_what_is_missing_tells_typing_errors_below_one_folder_apart() -> None:
    own = [
        failure(n, ENOENT.format(f"/scratch/team/name{n}.yaml"), gone=(f"/scratch/team/name{n}.yaml",), user="ada")
        for n in range(1, 5)
    ]
    assert outages(own) == []
    lost = [failure(n, ENOENT.format(f"/scratch/team/{n}/x.bin"), gone=("/scratch/team",)) for n in range(1, 5)]
    assert [one.cause.name for one in outages(lost)] == ["/scratch/team"]


def test_two_causes_at_once_share_no_job() -> None:
    both = [failure(n, ENOENT.format("/lustre/pile/x.bin")) for n in range(1, 5)]
    both += [
        failure(n, "Could not connect to the endpoint URL: https://minio:9000/b", reason="s3_storage_error") for n in range(5, 9)
    ]
    found = outages(both)
    assert [one.cause.name for one in found] == ["/lustre/pile/x.bin", "minio:9000"]
    assert [[member.incident for member in one.members] for one in found] == [[1, 2, 3, 4], [5, 6, 7, 8]]


def test_jobs_of_one_task_count_as_one_cause_only_at_once() -> None:
    text = ENOENT.format("/lustre/pile/x.bin")
    assert len(outages([failure(n, text, task="ada/sweep") for n in range(1, 31)])) == 1
    assert outages([failure(n, text, task="ada/sweep", at_s=n * 100) for n in range(1, 31)]) == []


def test_one_error_line_counts_only_from_several_owners_and_not_where_the_wording_is_everybodys() -> None:
    line = "ImportError: libcublas so cannot open shared object file no matching driver"
    same = [failure(n, line, reason="import_error", error=line) for n in range(1, 4)]
    assert [one.cause.kind for one in outages(same)] == [CauseKind.ERROR]
    assert outages([failure(n, line, reason="import_error", error=line, user="ada") for n in range(1, 4)]) == []
    assert outages([failure(n, line, reason="type_error", error=line) for n in range(1, 4)]) == []
    assert outages([failure(n, line, reason="out_of_memory_error", error=line) for n in range(1, 4)]) == []


def test_one_line_word_by_word_is_one_cause_in_jobs_of_one_owner_whatever_it_says() -> None:
    line = "KeyError: 'tokenizer'"
    mine = [failure(n, line, reason="key_error", user="ada", wording=line) for n in range(1, 5)]
    assert [one.cause.name for one in outages(mine)] == ["KeyError: 'tokenizer' (jobs of ada)"]
    assert SharedCause.of_title(outages(mine)[0].service).kind is CauseKind.ERROR
    assert outages([failure(n, line, reason="key_error", user=f"user{n}", wording=line) for n in range(1, 5)]) == []
    other = [failure(n, line, reason="key_error", user="ada", wording=f"KeyError: {n}") for n in range(1, 5)]
    assert outages(other) == []
    late = [failure(n, line, reason="key_error", user="ada", wording=line, at_s=n * 100) for n in range(1, 5)]
    assert outages(late) == []


def test_two_jobs_that_blame_one_node_are_one_cause() -> None:
    (found,) = outages([failure(n, "NODE_FAIL", reason="node_failure", nodes=("gpu07",)) for n in (1, 2)])
    assert (found.cause, found.service) == (SharedCause(CauseKind.NODE, "gpu07"), "node gpu07")


def test_who_ended_by_itself_shares_nothing() -> None:
    text = ENOENT.format("/lustre/pile/x.bin")
    for reason in ("cancelled", "preempted", "time_limit", "no_failure"):
        assert causes_of(failure(1, text, reason=reason)) == ()


def test_a_late_failure_joins_by_its_path_and_by_nothing_else() -> None:
    cause = SharedCause(CauseKind.PATH, "/lustre/pile")
    assert joins(cause, failure(9, ENOENT.format("/lustre/pile/deep/er/x.bin")))
    assert not joins(cause, failure(9, ENOENT.format("/lustre/pile2/x.bin")))
    assert not joins(cause, failure(9, "loading /lustre/pile/x.bin took long"))


TITLES = [
    (CauseKind.SERVICE, "minio.local:9000"),
    (CauseKind.PATH, "/lustre/pile"),
    (CauseKind.NODE, "gpu07"),
    (CauseKind.ERROR, "a b c"),
]


@pytest.mark.parametrize("cause", [SharedCause(kind, name) for kind, name in TITLES])
def test_a_title_names_its_cause_again(cause: SharedCause) -> None:
    assert SharedCause.of_title(cause.title) == cause


def test_a_line_of_a_megabyte_is_read_in_no_time() -> None:
    text = "No such file or directory: " + "/a" * 500_000 + " connect " + "https://" * 10_000
    assert len(paths_of("os_error", [text])) <= 8
    assert outages([failure(n, text, reason="os_error") for n in range(1, 4)]) is not None


@pytest.mark.parametrize(
    ("first", "stages", "closed_s", "waits"),
    [
        (IncidentState.DIAGNOSED, {}, 0, ""),  # nobody has tried yet
        (IncidentState.RECOVERING, {"planned": NOON}, 0, "waits for job 1"),
        (IncidentState.VERIFYING, {"planned": NOON, "restarted": NOON}, 0, "waits for job 1"),
        (IncidentState.VERIFYING, {"planned": NOON, "restarted": NOON, "passed": NOON}, 0, ""),
        (IncidentState.RECOVERED, {"planned": NOON, "restarted": NOON}, 10, ""),
        (IncidentState.ESCALATED, {"planned": NOON, "restarted": NOON}, 10, "was not over at the last restart"),
        (IncidentState.ESCALATED, {"planned": NOON, "restarted": NOON}, -70, ""),  # a minute later the next one tries
        (IncidentState.ESCALATED, {"planned": NOON}, 10, ""),  # a person has it, and it never restarted: it shows nothing
    ],
)
def test_of_a_cause_that_nobody_can_ask_about_one_member_restarts_first(
    first: IncidentState, stages: dict[str, datetime], closed_s: int, waits: str
) -> None:
    members = [{"incidents": [1, 2, 3], "jobs": ["1", "2", "3"]}]
    events = [Event(EventKind.OUTAGE, None, None, NOON, detail, service="error refused") for detail in members]
    incident = SimpleNamespace(state=first, job="1", closed=NOON + timedelta(seconds=closed_s) if closed_s else None)
    other = SimpleNamespace(state=IncidentState.DIAGNOSED, job="2", closed=None)
    store = SimpleNamespace(
        events=lambda _: events,
        incident=lambda number: incident if number == 1 else other,
        stages=lambda number: stages if number == 1 else {},
        evidence=lambda _: probes,
    )
    probes: list[SimpleNamespace] = []
    engine: Any = SimpleNamespace(store=store)
    parent: Any = SimpleNamespace(id=9, service="error refused", subject="error refused")
    said = _waits_for_the_first(engine, parent, NOON + timedelta(seconds=20))
    assert (waits in said) if waits else said == ""
    service: Any = SimpleNamespace(id=9, service="minio:9000", subject="minio:9000")
    assert _waits_for_the_first(engine, service, NOON) == ""
    probes.append(SimpleNamespace(source=PROBED, facts={"answers": True, "unasked": True}))
    said = _waits_for_the_first(engine, service, NOON + timedelta(seconds=20))
    assert (waits.replace("error refused", "minio:9000") in said) if waits else said == ""


def test_different_files_of_an_emptied_folder_are_one_cause() -> None:
    files = ("train/a.idx", "vocab.json", "shard_07.bin")
    lost = [
        failure(n, ENOENT.format(f"/data/pile/{name}"), gone=(f"/data/pile/{name.partition('/')[0]}",), emptied=("/data/pile",))
        for n, name in enumerate(files, 1)
    ]
    assert [one.cause.name for one in outages(lost)] == ["/data/pile"]
    assert outages([dataclasses.replace(one, emptied=()) for one in lost]) == []


@pytest.mark.parametrize(("users", "causes"), [(("ann", "ben", "cy"), ["/data/pile"]), (("ann", "ann", "ann"), [])])
def test_a_series_of_files_counts_as_one_cause_from_several_owners(users: tuple[str, ...], causes: list[str]) -> None:
    names = [f"/data/pile/shard_{n:04}.bin" for n in range(1, 4)]
    lost = [
        failure(n, ENOENT.format(name), gone=(name,), user=user) for n, (name, user) in enumerate(zip(names, users, strict=True), 1)
    ]
    assert [one.cause.name for one in outages(lost)] == causes


def test_an_emptied_folder_that_holds_unrelated_mounts_is_no_cause() -> None:
    lost = [failure(n, ENOENT.format(f"/mnt/{n}/x"), gone=(f"/mnt/{n}",), emptied=("/mnt",)) for n in range(1, 4)]
    assert outages(lost) == []


def test_a_file_that_was_missing_in_a_folder_that_stands_must_be_back_and_one_below_a_lost_folder_need_not() -> None:
    stands = failure(1, ENOENT.format("/data/pile/a.bin"), gone=("/data/pile/a.bin",))
    below = failure(2, ENOENT.format("/data/out/log.txt"), gone=("/data/out",))
    written = failure(3, "OSError: [Errno 116] Stale file handle: '/data/pile/b.tmp'")
    assert files_missed([stands, below, written]) == ["/data/pile/a.bin"]


AS_JSON = (
    '{"event": "exit", "step": 84, "trace": "Traceback (most recent call last):\\n'
    '  File \\"/shared/x/train.py\\", line 45, in main\\n'
    "    data.batch(step)\\nFileNotFoundError: [Errno 2] No such file or directory: 'DATA/part-14.txt'\\n\"}"
)


def test_of_a_traceback_in_one_line_of_json_the_path_of_the_error_counts_and_none_of_a_source_file() -> None:
    assert paths_of("file_not_found_error", [AS_JSON.replace("DATA", "/shared/corpus")]) == ("/shared/corpus/part-14.txt",)
    assert paths_of("file_not_found_error", [AS_JSON.replace("DATA", "corpus")]) == ()
    job = job_in(Path("/shared/x"), "srun python train.py")
    assert relative_paths(job, [AS_JSON.replace("DATA", "corpus")]) == ("/shared/x/corpus/part-14.txt",)


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        ("OSError: [Errno 28] No space left on device: '/tmp/part' -> '/scratch/run/part.7'", ("/scratch/run/part.7",)),
        ("OSError: [Errno 30] Read-only file system: '/data/a/x' -> '/mirror/b/x'", ("/mirror/b/x",)),
        # either of them may be the one that is not there
        (
            "FileNotFoundError: [Errno 2] No such file or directory: '/data/a/x' -> '/mirror/b/x'",
            ("/data/a/x", "/mirror/b/x"),
        ),
        ("OSError: [Errno 28] No space left on device: '/scratch/run/part.7'", ("/scratch/run/part.7",)),
    ],
)
def test_what_was_copied_is_not_where_space_was_wanted(text: str, paths: tuple[str, ...]) -> None:
    assert paths_of("os_error", [text]) == paths


def test_nobody_waits_for_a_temporary_file_of_a_program_that_has_ended() -> None:
    awaited = awaited_by("os_error", ["OSError: [Errno 28] No space left on device: '/tmp/tmpq1'"])
    assert awaited.cause == "/tmp"
    assert awaited_by("os_error", ["OSError: [Errno 5] Input/output error: '/corpus/a.bin'"]).cause == "/corpus/a.bin"
