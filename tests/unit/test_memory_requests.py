"""How much memory to ask for next: what was asked for and held, in the words of the submission, for one task of an array alone."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.engine.evidence.memory_requests import (
    HOST_LIMIT,
    is_of_host_alone,
    memory_request,
    next_amount,
    passed_limit,
    request_words,
)
from assistant.records import Job, JobSpec, JobState
from assistant.schedulers.slurm_history import peak_memory


@pytest.mark.parametrize(
    ("script", "options", "option", "mib", "words"),
    [
        ("#SBATCH --mem=160M", (), "--mem", 160, "160M"),
        ("#SBATCH --mem 3000", (), "--mem", 3000, "3000"),
        ("#SBATCH --mem=4G   # enough", (), "--mem", 4096, "4G"),
        ("#SBATCH --mem-per-cpu=2G", (), "--mem-per-cpu", 2048, "2G"),
        ("#SBATCH --mem=1G", ("--mem=2G",), "--mem", 2048, "2G"),
        ("#SBATCH --mem=1G", ("--mem", "512M"), "--mem", 512, "512M"),
    ],
)
def test_what_was_asked_for(script: str, options: tuple[str, ...], option: str, mib: float, words: str) -> None:
    request = memory_request(f"#!/bin/sh\n{script}\n", options)
    assert request is not None
    assert (request.option, request.mib, request.words) == (option, mib, words)


@pytest.mark.parametrize("script", ["#SBATCH --mem=0", "# --mem=4G", "python x.py --mem=4G", "#SBATCH --mem-bind=local"])
def test_nothing_was_asked_for(script: str) -> None:
    assert memory_request(f"#!/bin/sh\n{script}\n", ()) is None


@pytest.mark.parametrize(
    ("text", "limit", "mib"),
    [
        ("slurmstepd: error: StepId=1.0 exceeded memory limit (173084672 > 167772160), being killed", 160, 165.07),
        ("slurmstepd: error: Job 812 exceeded memory limit (4300000 > 4194304), being killed", 4096, 4199.2),
        ("slurmstepd: error: Job 812 exceeded memory limit (4300000 > 4194304), being killed", 77, None),
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=9.0.", 160, None),
    ],
)
def test_the_unit_is_that_of_the_limit(text: str, limit: float, mib: float | None) -> None:
    assert passed_limit([text], limit) == (pytest.approx(mib, abs=0.1) if mib is not None else None)


@pytest.mark.parametrize(
    ("asked", "peak", "amount"),
    [
        (160, 165, "320M"),
        (160, 400, "600M"),
        (3000, None, "6G"),
        (8192, None, "16G"),
        (65536, 65000, "96G"),
    ],
)
def test_the_next_amount(asked: float, peak: float | None, amount: str) -> None:
    assert next_amount(asked, peak) == amount


def job(job_id: str, script: str) -> Job:
    spec = JobSpec("a", f"#!/bin/sh\n{script}\n./solve\n", work_dir=Path("/w"))
    return Job(job_id, "a", "ada", JobState.FAILED, "p", ("n1",), None, None, None, None, None, None, 9, spec=spec)


LINE = "slurmstepd: error: StepId=1.0 exceeded memory limit (173084672 > 167772160), being killed"


@pytest.mark.parametrize(
    ("job_id", "script", "texts", "peak", "says"),
    [
        ("1_3", "#SBATCH --mem=160M", [LINE], None, "--mem=160M; it held 165 MiB as far as was measured: try --array=3 --mem=320M"),
        ("7", "#SBATCH --mem=160M", [LINE], None, "try --mem=320M. Whether that is enough is not known"),
        ("7", "#SBATCH --mem-per-cpu=2G", ["oom_kill event"], 8000, "It had asked for --mem-per-cpu=2G: try --mem-per-cpu=4G."),
        ("7", "#SBATCH --mem=64G", ["oom_kill event"], 65500, "it held 64.0 GiB as far as was measured: try --mem=96G"),
        ("1_12", "", ["oom_kill event"], 1900, "It held 1.9 GiB at most (MaxRSS)"),
        ("1_12", "", ["oom_kill event"], 1900, "--array=12 --mem=3800M, for this task of the array alone"),
    ],
)
def test_the_words_for_its_owner(job_id: str, script: str, texts: list[str], peak: float | None, says: str) -> None:
    assert says in request_words(job(job_id, script), texts, peak)


def test_nothing_is_said_where_nothing_is_known() -> None:
    assert request_words(job("7", ""), ["oom_kill event"], None) == ""


@pytest.mark.parametrize(
    ("line", "is_host"),
    [
        ("slurmstepd: error: Detected 1 oom_kill event in StepId=88.batch. Some of the step tasks have been OOM Killed.", True),
        ("srun: error: n7: task 0: Out Of Memory", True),
        ("Memory cgroup out of memory: Killed process 118 (python3)", True),
        (LINE, True),
        ("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB", False),
        ("MemoryError: Unable to allocate 3.1 GiB", False),
    ],
)
def test_only_a_limit_of_the_host_is_meant(line: str, is_host: bool) -> None:
    assert (HOST_LIMIT.search(line) is not None) is is_host


@pytest.mark.parametrize(
    ("table", "size"),
    [
        ("1_3|\n1_3.batch|1024K\n1_3.0|169024K\n", 169024 * 1024),
        ("7|\n7.batch|1.5G\n7.extern|0\n", 3 * 2**29),
        ("7|\n7.batch|0\n", None),
        ("", None),
        ("7|\n7.batch|\n", None),
    ],
)
def test_the_peak_is_the_largest_of_all_steps(table: str, size: int | None) -> None:
    assert peak_memory(table) == size


@pytest.mark.parametrize(
    ("lines", "is_of_host"),
    [
        (["Out of memory: Killed process 245 (python3) total-vm:17220kB, anon-rss:9120kB"], True),
        (["[31.5] oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=/,global_oom,task=python3,pid=245"], True),
        (["Out of memory: Kill process 245 (python3) score 901 or sacrifice child"], True),
        (["Memory cgroup out of memory: Killed process 245 (python3) total-vm:17220kB"], False),
        (
            ["oom-kill:constraint=CONSTRAINT_MEMCG,oom_memcg=/slurm/job_7", "Out of memory: Killed process 245 (python3)"],
            False,
        ),
        (["slurmstepd: error: Detected 1 oom_kill event in StepId=9.0. Some of the step tasks have been OOM Killed."], False),
        (
            ["Out of memory: Killed process 9 (x)", "slurmstepd: error: Job 812 exceeded memory limit (43 > 41), being killed"],
            False,
        ),
        (["step 7 done"], False),
    ],
)
def test_memory_of_a_whole_host_is_no_limit_of_a_job(lines: list[str], is_of_host: bool) -> None:
    assert is_of_host_alone(lines) is is_of_host
