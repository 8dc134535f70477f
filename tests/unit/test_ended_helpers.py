"""A helper of a living job that the kernel ended: the job is ended for it only where all of its proofs agree."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from assistant.engine.evidence.ended_helpers import started_program, with_ended_helper
from assistant.engine.retry_policy import AWAITS_ITSELF, unproven_hang
from assistant.records import (
    Action,
    Category,
    DecidedBy,
    Diagnosis,
    Event,
    EventKind,
    Incident,
    Job,
    JobSpec,
    JobState,
)
from assistant.records.jobs import NONE_THERE
from assistant.watch.hang import WAITS
from tests.unit.test_ended_servers import LOST, job

SCRIPT = "#!/bin/bash\nsrun --ntasks-per-node=1 bash rank.sh\n"
RANK = "#!/bin/bash\n# prefetch_tiles.sh copies what comes next\n./prefetch_tiles.sh /data/tiles &\npython3 fit.py\n"
OOM = (
    "[Sun Mar  1 11:58:00 2026] Out of memory: Killed process 811 (prefetch_tiles.) total-vm:9000kB, anon-rss:3000kB, file-rss:0kB"
)
BEFORE = Diagnosis(
    "out_of_memory_error", Category.FRAMEWORK, Action.FIX_AND_RESUBMIT, 0.99, DecidedBy.RULE, (), (), (), "memory", "hold less"
)
INCIDENT = cast("Incident", SimpleNamespace(id=5, job="9", kind=EventKind.HANG, attempt=0, opened=LOST))
WITNESS = "unknown, 2 of 2 GPUs idle; py-spy is not there"


def running(folder: Path, script: str = SCRIPT, rank: str = RANK) -> Job:
    made = job("9", folder, ended=None, log="step 40\n", nodes=("node03", "node07"))
    (folder / "rank.sh").write_text(rank)
    return replace(made, state=JobState.RUNNING, spec=JobSpec("fit", script, work_dir=folder), work_dir=folder)


def engine_of(
    of: Job,
    *,
    kernel: str = OOM,
    left: tuple[str, ...] = ("bash", "python3.11 fit.py"),
    scripts: tuple[str, ...] | None = ("rank.sh",),
    **detail: object,
) -> Any:
    event = Event(EventKind.HANG, "9", None, LOST, {"step": 40, "witness": WITNESS, **detail})
    stages: list[str] = []
    values = {
        "kernel_log": {"text": {"node07": kernel}, "unknown": {}},
        "job_processes": {
            "programs": {"node03": ["bash", "python3.11 fit.py"]} | ({"node07": list(left)} if left else {}),
            "scripts": {"node03": ["prefetch_tiles.sh", "rank.sh"]} | ({"node07": list(scripts)} if scripts is not None else {}),
            "unknown": {} if left else {"node07": NONE_THERE},
        },
    }
    store = SimpleNamespace(
        events=lambda _: [event],
        stages=lambda _: stages,
        mark_stage=lambda _, stage: stages.append(stage),
        add_evidence=lambda *_: None,
        evidence=lambda _: [],
        calls=lambda _: [],
    )
    gate = SimpleNamespace(call=lambda tool, *_, **__: SimpleNamespace(ok=True, value=values[tool], error=""))
    return SimpleNamespace(store=store, stages=stages, gate=gate, scheduler=SimpleNamespace(job=lambda _: of))


def test_a_job_that_waits_for_its_dead_helper_is_ended_and_started_again(tmp_path: Path) -> None:
    waiting = running(tmp_path)
    engine = engine_of(waiting)
    after = with_ended_helper(engine, INCIDENT, BEFORE, waiting)
    assert (after.reason, after.action) == ("hang", Action.RESTART_SAME_NODES)
    assert "the kernel of node07 ended prefetch_tiles.sh, which the job starts itself" in after.summary
    assert "It held 3 MiB alone: others used up the memory of node07." in after.summary
    assert "hold less" not in after.advice
    assert engine.stages == [AWAITS_ITSELF]
    assert unproven_hang(engine.store, INCIDENT, after, waiting) == ""


@pytest.mark.parametrize(
    "changes",
    [
        {"scripts": ("prefetch_tiles.sh", "rank.sh")},  # it lives: another copy, or started again
        {"left": ("bash", "prefetch_tiles.sh", "python3.11 fit.py")},
        {"scripts": ("", "rank.sh")},  # a shell of which nobody can tell what it runs
        {"left": ("python3.11", "bash")},
        {"left": ()},  # nobody can tell
        {"scripts": None},
        {"kernel": ""},
        {"kernel": OOM.replace("prefetch_tiles.", "python3.11")},  # which program that was is not told
        {"kernel": OOM.replace("prefetch_tiles.", "backup_agent")},  # no script of the job starts it
        {"witness": "a process of the job works on the CPU of node03"},
        {WAITS: "waiting for the server"},
    ],
)
def test_without_one_of_the_proofs_nothing_changes(tmp_path: Path, changes: dict[str, Any]) -> None:
    waiting = running(tmp_path)
    engine = engine_of(waiting, **changes)
    assert with_ended_helper(engine, INCIDENT, BEFORE, waiting) == BEFORE
    assert engine.stages == []


def test_another_incident_is_left_as_it_is(tmp_path: Path) -> None:
    waiting = running(tmp_path)
    engine = engine_of(waiting)
    ended = cast("Incident", SimpleNamespace(id=5, job="9", kind=EventKind.JOB_ENDED, attempt=0, opened=LOST))
    assert with_ended_helper(engine, ended, BEFORE, waiting) == BEFORE
    assert with_ended_helper(engine, INCIDENT, replace(BEFORE, reason="cuda_error"), waiting).reason == "cuda_error"
    assert with_ended_helper(engine, INCIDENT, BEFORE, None) == BEFORE


@pytest.mark.parametrize(
    ("name", "text", "program"),
    [
        ("copyer", "./bin/copyer --all &", "copyer"),
        ("copyer", "# ./bin/copyer --all &", ""),
        ("copyer", "run copyer2", ""),
        ("prefetch_tiles.", "prefetch_tiles.sh x", "prefetch_tiles.sh"),
        ("python3.11", "python3.11 fit.py", ""),
        ("bash", "bash rank.sh", ""),
    ],
)
def test_the_name_of_a_process_is_that_of_a_program_of_the_script(name: str, text: str, program: str) -> None:
    assert started_program(name, [text]) == program
