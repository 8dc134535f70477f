"""`nightshift backtest`: a report for people, JSON for machines, a page of Markdown, and nothing changed anywhere."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.conftest import Run

HEAD = "JobID|JobName|User|Partition|State|ExitCode|Submit|Start|End|NodeList|AllocTRES|WorkDir"
TABLE = f"""{HEAD}
1|llm|ada|gpu|FAILED|1:0|2026-03-02T20:00:00|2026-03-02T20:00:10|2026-03-03T02:00:00|gpu[001-004]|gres/gpu=32|/home/ada
2|llm|ada|gpu|COMPLETED|0:0|2026-03-03T08:00:00|2026-03-03T08:05:00|2026-03-03T20:00:00|gpu[005-008]|gres/gpu=32|/home/ada
3|bug|eve|gpu|FAILED|1:0|2026-03-04T20:00:00|2026-03-04T20:00:10|2026-03-04T21:00:00|gpu001|gres/gpu=8|/home/eve
4|cut short
"""
TIMEOUT = (
    "[rank0]:[E303 01:59:51 ProcessGroupNCCL.cpp:632] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=991, "
    "OpType=ALLREDUCE, NumelIn=1, NumelOut=1, Timeout(ms)=600000) ran for 600021 milliseconds before timing out.\n"
)


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture
def sacct(tmp_path: Path) -> Path:
    path = tmp_path / "sacct.txt"
    path.write_text(TABLE, encoding="utf-8")
    return path


@pytest.fixture
def logs(tmp_path: Path) -> Path:
    folder = tmp_path / "logs"
    folder.mkdir()
    (folder / "llm-1.out").write_text(TIMEOUT, encoding="utf-8")
    return folder


def test_the_report_for_people_has_what_would_have_been_done_and_what_is_unknown(cli: Run, sacct: Path, logs: Path) -> None:
    said = cli("backtest", "--sacct", sacct, "--logs", logs)
    assert said.code == 0
    assert "restarts            1: " in said.out
    assert "191.7 GPU-hours; restarts without a question: 1" in said.out
    assert "logs not read: no file in --logs has the id in its name" in said.out
    assert "rows not read" in said.out
    assert "line 5: 2 fields instead of 12" in said.out


def test_json_has_each_failure_when_asked_for_and_the_figures_last(cli: Run, sacct: Path, logs: Path) -> None:
    *failures, figures = cli("backtest", "--sacct", sacct, "--logs", logs, "--json", "--details").objects
    assert [(one["job"], one["reason"], one["playbook"]) for one in failures] == [
        ("1", "nccl_timeout_error", "restart"),
        ("3", "unknown", "unknown"),
    ]
    assert failures[0]["next"]["job"] == "2"
    assert failures[0]["changes"][0]["kind"] == "resubmit"
    assert (figures["jobs"], figures["failed"], figures["restarts"]["count"]) == (3, 2, 1)
    assert figures["waiting"]["saved_alone"] == 191.7
    assert figures["policy"] == "of this site, mode act"
    assert len(figures["assumptions"]) > 5


def test_the_page_is_written_where_it_is_asked_for(cli: Run, sacct: Path, logs: Path, tmp_path: Path) -> None:
    page = tmp_path / "backtest.md"
    assert cli("backtest", "--sacct", sacct, "--logs", logs, "--report", page).code == 0
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# What Nightshift would have done\n")
    assert "## What this assumes" in text


def test_details_list_every_failure(cli: Run, sacct: Path, logs: Path) -> None:
    out = cli("backtest", "--sacct", sacct, "--logs", logs, "--details").out
    rows = [line.split()[2:6] for line in out.splitlines() if line.startswith("2026-03-0")]
    assert rows == [["1", "failed", "nccl_timeout_error", "restart"], ["3", "failed", "unknown", "unknown"]]


@pytest.mark.parametrize(
    ("mode", "restarts", "asked", "rule"),
    [("act", 1, 0, None), ("propose", 1, 1, None), ("observe", 0, 0, "mode.observe")],
)
def test_the_policy_is_the_one_that_is_asked_for(
    mode: str, restarts: int, asked: int, rule: str | None, cli: Run, sacct: Path, logs: Path
) -> None:
    figures = cli("backtest", "--sacct", sacct, "--logs", logs, "--policy", mode, "--json").objects[-1]
    assert (figures["restarts"]["count"], figures["asked"]["count"]) == (restarts, asked)
    assert figures["refused_by"] == ({rule: 1} if rule else {})


def test_a_policy_file_is_replayed(cli: Run, sacct: Path, logs: Path, tmp_path: Path) -> None:
    policy = tmp_path / "mine.toml"
    policy.write_text(
        'extends = "shipped"\nreplace = ["protected"]\nmode = "act"\n[[protected]]\nusers = ["ada"]\nwhy = "asks for it"\n[end]\n',
        encoding="utf-8",
    )
    figures = cli("backtest", "--sacct", sacct, "--logs", logs, "--policy", policy, "--json").objects[-1]
    assert figures["refused_by"] == {"protected.1": 1}


def test_only_failures_of_the_time_that_is_asked_for_are_replayed(cli: Run, sacct: Path, logs: Path) -> None:
    words = ("backtest", "--sacct", sacct, "--logs", logs, "--json")
    assert cli(*words, "--since", "2026-03-04").objects[-1]["replayed"] == 1
    assert cli(*words, "--until", "2026-03-04").objects[-1]["replayed"] == 1


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--policy", "bold"], "neither one of observe, propose, act nor a file"),
        (["--logs", "nowhere"], "is no folder"),
        (["--kernel", "nowhere"], "is no folder"),
        (["--events", "nowhere"], "no such file"),
        (["--since", "2027-01-01"], "no job ended in that time"),
        (["--since", "soon"], "--since 'soon': neither a span"),
        (["--until", "soon"], "--until 'soon': neither a span"),
        (["--report", "/proc/none/report.md"], "cannot be written"),
    ],
    ids=lambda value: value[0].strip("-") if isinstance(value, list) else None,
)
def test_what_cannot_be_is_refused_in_one_line(words: list[str], said: str, cli: Run, sacct: Path) -> None:
    found = cli("backtest", "--sacct", sacct, *words)
    assert found.code == 2
    assert said in found.err
    assert "Traceback" not in found.err


def test_a_missing_file_of_the_accounting_is_refused(cli: Run, tmp_path: Path) -> None:
    found = cli("backtest", "--sacct", tmp_path / "none.txt")
    assert (found.code, "there is no such file" in found.err) == (2, True)


def test_without_any_logs_it_says_so(cli: Run, sacct: Path) -> None:
    assert "logs not read: no --logs were given" in cli("backtest", "--sacct", sacct).out


def test_the_store_of_the_site_is_not_touched(cli: Run, sacct: Path, logs: Path, store_path: Path) -> None:
    assert cli("backtest", "--sacct", sacct, "--logs", logs).code == 0
    assert not store_path.exists()
