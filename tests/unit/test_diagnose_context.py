"""What surrounds a line decides what it means: boots, OOM records of data workers, restarts, and who tells of a lost node."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.diagnose.case import Case
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.verdict import diagnose
from assistant.records import Action, Diagnosis

STEPS = [f"2026-03-04 10:{minute:02d}:00 step {minute} loss 2.{minute:02d} gnorm 0.4" for minute in range(30)]
RESET = "RuntimeError: [gloo/transport/tcp/pair.cc:598] Connection closed by peer [10.0.0.7]:4411"
KILLED = "RuntimeError: DataLoader worker (pid 812) is killed by signal: Killed."
BANNER = "Linux version 5.15.0-105-generic (buildd@lcy02) (gcc 11.4.0) #115-Ubuntu SMP"


def told(folder: Path, job: list[str], kernel: list[str]) -> Diagnosis:
    (folder / "job.log").write_text("\n".join(job) + "\n")
    (folder / "dmesg.log").write_text("\n".join(["# gpu-07", *kernel]) + "\n")
    return diagnose(Case.from_path(folder), Knowledge.load())


@pytest.mark.parametrize(("when", "reason"), [("08:00:00", "connection_error"), ("10:31:00", "node_failure")])
def test_a_boot_counts_only_after_the_first_output_of_the_job(tmp_path: Path, when: str, reason: str) -> None:
    kernel = ["[Wed Mar  4 07:30:00 2026] docker0: port 1 entered blocking state", f"[Wed Mar  4 {when} 2026] {BANNER}"]
    found = told(tmp_path, [*STEPS, RESET], kernel)
    assert found.reason == reason
    assert (found.action is Action.CORDON_AND_RESTART) == (reason == "node_failure")


def oom(pid: int, name: str) -> str:
    return f"[Wed Mar  4 10:29:50 2026] Memory cgroup out of memory: Killed process {pid} ({name}) total-vm:9kB, anon-rss:8kB"


@pytest.mark.parametrize(
    ("record", "reason"),
    [
        (oom(812, "python"), "dataloader_killed"),
        (oom(99, "pt_data_worker"), "dataloader_killed"),
        (oom(700, "python"), "out_of_memory_error"),
    ],
)
def test_the_oom_killer_confirms_a_killed_data_worker_where_it_took_nothing_else(tmp_path: Path, record: str, reason: str) -> None:
    found = told(tmp_path, [*STEPS, KILLED], [record])
    assert found.reason == reason
    if reason == "dataloader_killed":
        assert found.action is Action.RESTART_SAME_NODES
        assert {cited.file for cited in found.root_cause} == {"job.log", "dmesg.log"}


def test_a_fault_before_a_restart_in_the_same_log_is_history(tmp_path: Path) -> None:
    job = [*STEPS[:10], "RuntimeError: CUDA error: uncorrectable ECC error encountered", "[wrapper] attempt 2 of 3", *STEPS[10:]]
    found = told(tmp_path, [*job, "KeyError: 'prompt'"], [])
    assert (found.reason, found.nodes) == ("key_error", ())


def test_a_pod_that_tells_of_a_lost_node_is_not_that_node(tmp_path: Path) -> None:
    line = "[pod/trainer-0/main] [event] Warning NodeStatusUnknown node/ip-10-0-0-9 Kubelet stopped posting node status."
    found = told(tmp_path, [*STEPS, line], [])
    assert [node.node for node in found.nodes] == ["ip-10-0-0-9"]


@pytest.mark.parametrize(("steps", "reason"), [(STEPS, "loss_spike"), (STEPS[:2], "runtime_error")])
def test_a_loss_scale_at_its_floor_is_divergence_only_after_healthy_steps(tmp_path: Path, steps: list[str], reason: str) -> None:
    end = "Exception: Current loss scale already at minimum - cannot decrease scale anymore. Exiting run."
    assert told(tmp_path, [*steps, end], []).reason == reason


def test_words_about_another_matter_before_a_traceback_do_not_make_it_handled(tmp_path: Path) -> None:
    end = ["INFO skipping the optional fused kernel", "Traceback (most recent call last):"]
    end += [
        '  File "train.py", line 9, in main',
        "    fmt(row)",
        "KeyError: 'prompt'",
        "srun: error: gpu-07: task 0: Exited with exit code 1",
    ]
    assert told(tmp_path, [*STEPS, *end], []).reason == "key_error"
