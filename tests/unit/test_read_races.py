"""Lines of a file that was read half written, tasks that ran beside one, and who removed a missing one; cases as files."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from assistant.engine import Engine
from assistant.engine.evidence.changed_files import is_half_read, own_file, ran_beside
from assistant.engine.evidence.removed_saves import with_remover
from assistant.records import Action, Category, Citation, DecidedBy, Diagnosis, Job, JobState

LINES = tomllib.loads((Path(__file__).parents[1] / "cases" / "read_races" / "lines.toml").read_text())["case"]
BEGAN = datetime(2026, 3, 1, 4, 0, tzinfo=UTC)


@pytest.mark.parametrize("case", LINES, ids=lambda case: case["name"])
def test_a_line_may_tell_of_a_file_that_was_not_whole(case: dict[str, Any]) -> None:
    assert is_half_read([case["line"]]) is case["half"]


def task(name: str, began_s: float, ended_s: float | None, *, user: str = "ada", state: JobState = JobState.RUNNING) -> Job:
    ended = BEGAN + timedelta(seconds=ended_s) if ended_s is not None else None
    return Job(
        name, "sweep", user, state, "gpu", ("n1",), None, Path("/w"), None, BEGAN + timedelta(seconds=began_s), ended, None, None
    )


@pytest.mark.parametrize(
    ("sibling", "counts"),
    [
        (task("7_2", 0, None), True),
        (task("7_2", -80, None), True),
        (task("7_2", -10, 1, state=JobState.COMPLETED), True),
        (task("7_2", -600, None), False),  # it had filled its caches long before
        (task("7_2", 30, None), False),  # it began when the other one had failed
        (task("7_2", -60, -30, state=JobState.COMPLETED), False),
        (task("8_2", 0, None), False),
        (task("7", 0, None, user="bob"), False),
        (task("7_2", 0, None, user="bob"), False),
        (task("7_1", 0, None), False),
    ],
)
def test_only_tasks_that_started_together_fill_one_cache_together(sibling: Job, counts: bool) -> None:
    failed = task("7_1", 0, 2, state=JobState.FAILED)
    assert ran_beside(failed, [failed, sibling]) == ([sibling] if counts else [])
    assert ran_beside(task("7", 0, 2, state=JobState.FAILED), [sibling]) == []


@pytest.mark.parametrize(
    ("log", "others", "path"),
    [
        (["tokenizing raw/shard_05.jsonl.gz", "EOFError"], [["tokenizing raw/shard_01.jsonl.gz"]], "raw/shard_05.jsonl.gz"),
        (["loading cache/vocabulary.json", "JSONDecodeError"], [["loading cache/vocabulary.json"]], None),
        (["reading raw/shard_05.jsonl.gz"], [[]], None),  # nothing is known of the others
        (["step 1 loss 2.0"], [["step 1 loss 2.0"]], None),
    ],
)
def test_a_file_that_one_task_alone_reads_is_its_own(log: list[str], others: list[list[str]], path: str | None) -> None:
    own = own_file(log, others)
    assert (own[0] if own is not None else None) == path


MISSING = "FileNotFoundError: [Errno 2] No such file or directory: 'checkpoints/step_120/model.pt'"


@pytest.mark.parametrize(
    ("line", "user", "ended_s", "removed"),
    [
        ("INFO removed checkpoints/step_120 (keep_last 3)", "ada", None, True),
        ("INFO saved checkpoints/step_120", "ada", None, False),
        ("INFO removed checkpoints/step_1200", "ada", None, False),
        ("INFO removed checkpoints/step_120", "bob", None, True),  # the very path
        ("INFO removed step_120", "bob", None, False),
        ("INFO removed old/checkpoints/step_120", "ada", None, False),  # of another folder
        ("INFO removed checkpoints/step_120", "ada", -200, False),  # it had ended before
    ],
)
def test_who_removed_a_missing_file_is_named_by_its_own_log(
    line: str, user: str, ended_s: float | None, removed: bool, tmp_path: Path
) -> None:
    (tmp_path / "train.out").write_text(f"step 200 loss 2.0\n{line}\nstep 210 loss 1.9\n")
    trainer = replace(task("8", -600, ended_s, user=user), name="base-mini", log=tmp_path / "train.out")
    watcher = task("9", -100, 0, state=JobState.FAILED)
    scheduler = SimpleNamespace(jobs=lambda: [watcher, trainer], job=lambda _: trainer)
    cited = Citation("job.log", 38, MISSING, "root")
    missing = Diagnosis(
        "file_not_found_error",
        Category.SCRIPT,
        Action.FIX_AND_RESUBMIT,
        0.9,
        DecidedBy.RULE,
        (cited,),
        (),
        (),
        "Missing.",
        "Make it.",
    )
    diagnosed = with_remover(cast(Engine, SimpleNamespace(scheduler=scheduler)), missing, watcher)
    assert diagnosed.advice.startswith(f"It was there, and job 8 (base-mini) of {user} removed step_120: `INFO removed") is removed
    assert (diagnosed == missing) is not removed
