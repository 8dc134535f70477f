"""`nightshift evaluate`, from the command line to the scores: real jobs, each of them by way of the gate."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from assistant.cli.output import Exit
from assistant.evaluation.files import locked
from assistant.ports import SystemClock
from assistant.records import CallStatus
from assistant.schedulers.local import LocalScheduler
from assistant.store import Store

Run = Callable[..., Any]
SUITE = """
title = "nightly"
model = "model"

[defaults]
infer = "/bin/sh infer.sh {model} {dataset} {first} {last} {out}"
metric = "/bin/sh metric.sh {out} {score}"

[[dataset]]
name = "easy"
items = 12
infer_s = 0.1
metric_s = 0.1
prepare_s = 0

[[dataset]]
name = "hard"
items = 8
infer_s = 0.1
metric_s = 0.1
prepare_s = 0
"""


@pytest.fixture
def suite(home: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Write a suite of two datasets, and settings that look often."""
    folder = home / "suite"
    (folder / "model").mkdir(parents=True)
    (folder / "model" / "weights").write_bytes(b"7b" * 1000)
    (folder / "infer.sh").write_text(f'test -e {folder}/bad.$2 && exit 3; test -e "$1/weights" && seq $3 $(($4 - 1)) > "$5"\n')
    (folder / "metric.sh").write_text('echo "{\\"score\\": $(wc -l < "$1")}" > "$2"\n')
    (folder / "suite.toml").write_text(SUITE.replace("/bin/sh ", f"/bin/sh {folder}/"))
    config = home / "xdg_config_home" / "nightshift" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'[evaluation]\npoll_s = 0.1\nload_s = 0\nfetch_s = 0\nmemory = "{home}/memory/{{node}}"\n')
    yield folder / "suite.toml"
    cluster = LocalScheduler(home / "xdg_state_home" / "nightshift" / "local", SystemClock())
    for job in cluster.jobs():
        cluster.cancel(job.id)
    deadline = time.monotonic() + 15
    while any(not job.state.ended for job in cluster.jobs()) and time.monotonic() < deadline:
        time.sleep(0.05)


def test_a_suite_is_scored_and_told_as_a_table_json_and_markdown(cli: Run, suite: Path, home: Path) -> None:
    said = cli("--quiet", "evaluate", "--suite", suite, "--nodes", 2, "--json", "--markdown", home / "out.md")
    assert said.code == 0, said.err
    (report,) = said.objects
    assert {one["dataset"]: one["score"] for one in report["results"]} == {"easy": 12.0, "hard": 8.0}
    assert (report["state"], report["title"]) == ("finished", "nightly")
    assert 0 < report["bound_s"] <= report["seconds"]
    assert "| easy | 12.0000 | 12 |" in (home / "out.md").read_text()
    assert not list((home / "memory").rglob("weights"))
    listed = cli("evaluate", "--runs")
    assert report["run"] in listed.out
    again = cli("--quiet", "evaluate", "--resume", report["run"])
    assert again.code == 0
    assert "2 of 2 datasets scored in " in again.out
    assert ", lower bound " in again.out


@pytest.mark.slow
def test_every_job_is_a_call_in_the_audit_and_counts_for_no_limit(cli: Run, suite: Path, store_path: Path) -> None:
    assert cli("--quiet", "evaluate", "--suite", suite).code == 0
    with Store(store_path, SystemClock()) as store:
        calls = [call for call in store.calls() if call.tool == "submit_evaluation_job"]
        assert len(calls) >= 5
        assert {call.status for call in calls} == {CallStatus.DONE}
        assert {call.by.partition(":")[0] for call in calls} == {"cli"}
        assert store.verify() is None
        assert {one.dataset for one in store.evaluations()} == {"easy", "hard"}
    assert "# evaluate-stage 1 of nightly" in cli("audit", "show").out


def test_a_dataset_that_is_given_up_is_named_with_its_reason_and_the_exit_code_is_one(cli: Run, suite: Path) -> None:
    (suite.parent / "bad.hard").touch()
    said = cli("--quiet", "evaluate", "--suite", suite, "--retries", 0)
    assert said.code == Exit.ERROR
    assert "1 of 2 datasets scored, 1 given up" in said.out
    assert "exit status 3" in said.out


def test_the_kill_switch_stops_an_evaluation_before_its_first_job(cli: Run, suite: Path, home: Path) -> None:
    switch = home / "xdg_config_home" / "stop"
    content = home / "site" / "knowledge"
    content.mkdir(parents=True)
    (content / "policy.toml").write_text(f'kill_switch = ["{switch}"]\n[end]\n')
    config = home / "xdg_config_home" / "nightshift" / "config.toml"
    config.write_text(f'content = "{home}/site"\n{config.read_text()}')
    switch.touch()
    said = cli("--quiet", "evaluate", "--suite", suite)
    assert said.code == Exit.REFUSED, said.err
    cluster = LocalScheduler(home / "xdg_state_home" / "nightshift" / "local", SystemClock())
    assert cluster.jobs() == []


@pytest.mark.slow
def test_two_coordinators_never_work_on_one_run(cli: Run, suite: Path, home: Path) -> None:
    (suite.parent / "bad.hard").touch()
    begun = cli("--quiet", "evaluate", "--suite", suite, "--retries", 0, "--json").objects[0]["run"]
    folder = home / "xdg_state_home" / "nightshift" / "evaluations" / begun
    events = [line for line in (folder / "journal.jsonl").read_text().splitlines() if '"finished"' not in line]
    (folder / "journal.jsonl").write_text("\n".join(events) + "\n")
    with locked(folder / "coordinator.lock"):
        said = cli("evaluate", "--resume", begun)
    assert said.code == Exit.TRY_AGAIN
    assert "another nightshift evaluate is at work on run" in said.err


@contextmanager
def at_work(suite: Path, home: Path) -> Iterator[subprocess.Popen[str]]:
    """Run the command in a process of its own until a trial has begun; `let_on` lets the trial end."""
    infer = suite.parent / "infer.sh"
    infer.write_text(f"touch {home}/begun; until test -e {home}/let_on; do sleep 0.1; done\n{infer.read_text()}")
    words = [sys.executable, "-m", "assistant", "evaluate", "--suite", str(suite)]
    with subprocess.Popen(words, cwd=Path(__file__).parents[2], stderr=subprocess.PIPE, text=True) as process:
        deadline = time.monotonic() + 60
        while not (home / "begun").exists():
            assert time.monotonic() < deadline
            time.sleep(0.05)
        yield process


@pytest.mark.slow
def test_after_a_killed_coordinator_clean_ends_its_jobs_and_frees_the_memory(cli: Run, suite: Path, home: Path) -> None:
    with at_work(suite, home) as process:
        process.kill()
    assert list((home / "memory").rglob("weights"))
    said = cli("evaluate", "--clean")
    assert said.code == 0, said.err
    assert "memory of its nodes was given back" in said.err
    assert not list((home / "memory").rglob("weights"))
    cluster = LocalScheduler(home / "xdg_state_home" / "nightshift" / "local", SystemClock())
    assert all(job.state.ended for job in cluster.jobs())


def test_after_a_killed_coordinator_resume_submits_nothing_again_and_leaves_no_call_open(
    cli: Run, suite: Path, home: Path, store_path: Path
) -> None:
    with at_work(suite, home) as process:
        process.kill()
    (home / "let_on").touch()
    run = cli("evaluate", "--runs", "--json").objects[0]["run"]
    said = cli("--quiet", "evaluate", "--resume", run, "--json")
    assert said.code == 0, said.err
    assert [one["score"] for one in said.objects[0]["results"]] == [12.0, 8.0]
    cluster = LocalScheduler(home / "xdg_state_home" / "nightshift" / "local", SystemClock())
    numbers = [job.comment.split()[0] for job in cluster.jobs()]
    assert len(numbers) == len(set(numbers))
    with Store(store_path, SystemClock()) as store:
        assert store.calls(status=CallStatus.INTENT) == []


def test_ctrl_c_leaves_the_jobs_and_says_how_to_go_on(suite: Path, home: Path) -> None:
    with at_work(suite, home) as process:
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=60)
    assert process.returncode == Exit.INTERRUPTED
    assert "nightshift evaluate --resume nightly-" in said
    cluster = LocalScheduler(home / "xdg_state_home" / "nightshift" / "local", SystemClock())
    assert any(not job.state.ended for job in cluster.jobs())


def test_a_job_is_ended_by_taking_its_call_back(cli: Run, suite: Path, home: Path, store_path: Path) -> None:
    with at_work(suite, home) as process:
        process.kill()
    with Store(store_path, SystemClock()) as store:
        last = [call for call in store.calls() if call.tool == "submit_evaluation_job"][-1]
    said = cli("undo", last.id, "--yes")
    assert said.code == 0, said.err
    cluster = LocalScheduler(home / "xdg_state_home" / "nightshift" / "local", SystemClock())
    deadline = time.monotonic() + 20
    while any(not job.state.ended for job in cluster.jobs()):
        assert time.monotonic() < deadline
        time.sleep(0.05)


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--suite", "none.toml"], "none.toml"),
        ([], "name a suite with --suite FILE"),
        (["--suite", "SUITE", "--model", "/no/such/model"], "model /no/such/model cannot be read"),
        (["--suite", "SUITE", "--nodes", "9"], "--nodes 9: the scheduler has 4"),
        (["--resume", "nobody"], "there is no evaluation 'nobody'"),
        (["--resume", "x", "--suite", "SUITE"], "--resume goes on with a run as it was asked for"),
        (["--demo", "--runs"], "are different things"),
        (["--suite", "SUITE", "--svg", "x.svg"], "give both"),
        (["--suite", "GREEDY"], "hard needs 4 GPUs of one node"),
        (["--suite", "NOMODEL"], "names no model"),
    ],
)
def test_bad_input_is_one_line_and_submits_nothing(cli: Run, suite: Path, home: Path, words: list[str], said: str) -> None:
    text = suite.read_text()
    (suite.parent / "greedy.toml").write_text(f"{text}gpus = 4\n")
    (suite.parent / "nomodel.toml").write_text(text.replace('model = "model"\n', ""))
    paths = {"SUITE": suite, "GREEDY": suite.parent / "greedy.toml", "NOMODEL": suite.parent / "nomodel.toml"}
    done = cli("evaluate", *(str(paths.get(word, word)) for word in words))
    assert done.code == Exit.USAGE
    assert said in done.err
    assert done.err.count("\n") == 1
    assert not list((home / "xdg_state_home").glob("nightshift/local/jobs/*"))


def test_a_model_larger_than_the_memory_of_all_nodes_ends_with_its_size(cli: Run, suite: Path, home: Path) -> None:
    config = home / "xdg_config_home" / "nightshift" / "config.toml"
    config.write_text(f"{config.read_text()}memory_limit_gib = 0.25\n")
    said = cli("--quiet", "evaluate", "--suite", suite)
    assert said.code == Exit.ERROR
    assert "does not fit into the memory of this node: the limit given leaves 256.0 MiB" in said.err
    assert json.dumps(sorted(path.name for path in (home / "memory").rglob("*"))) == "[]"


@pytest.mark.slow
def test_the_demo_evaluates_a_real_model_and_keeps_nothing(cli: Run, home: Path) -> None:
    said = cli("--quiet", "evaluate", "--demo", "--json")
    assert said.code == 0, said.err
    scores = {one["dataset"]: one["score"] for one in said.objects[0]["results"]}
    assert len(scores) == 10
    assert min(scores.values()) > 0.85
    assert not list(home.glob("xdg_state_home/nightshift/evaluations/*"))
