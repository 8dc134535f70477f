"""A replay of history: every case is a small accounting with logs, what must be decided for each failure, and the figures."""

from __future__ import annotations

import gzip
import random
import time
import tomllib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as some

from assistant.content.reading import build
from assistant.engine.backtest import (
    Accounts,
    Kernels,
    NodeEvents,
    Replay,
    Replayed,
    Tally,
    Traces,
    markdown,
    read_accounts,
    read_events,
    sections,
    tally,
)
from assistant.engine.backtest.traces import by_node
from assistant.errors import InputError
from assistant.policy import Mode, Policy, load_policy
from assistant.reports.reading import ReadRequest, opened_jobs
from assistant.reports.workload_types import type_rules
from assistant.schedulers.slurm_text import gpus_of

CASES = Path(__file__).parents[1] / "cases" / "backtest"
NAMES = sorted(path.stem for path in CASES.glob("*.toml"))
HEAD = "JobID|JobName|User|Partition|State|ExitCode|Submit|Start|End|NodeList|AllocTRES|WorkDir"
ROW = "1|llm|ada|gpu|FAILED|1:0|2026-03-02T08:00:00|2026-03-02T08:00:10|2026-03-02T10:00:00|gpu001|gres/gpu=8|/home/ada"


@pytest.fixture(autouse=True)
def _utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Let sacct's times, which have no zone, be UTC."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


def written(folder: Path, files: Mapping[str, str]) -> Path:
    folder.mkdir()
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text.lstrip("\n"), encoding="utf-8")
    return folder


def table(folder: Path, text: str) -> Accounts:
    path = folder / "sacct.txt"
    path.write_text(text.lstrip("\n"), encoding="utf-8")
    return read_accounts(path)


def policy_of(case: Mapping[str, Any], path: Path) -> Policy:
    if "policy" in case:
        return build(Policy, case["policy"], path)
    return replace(load_policy(), mode=Mode(case.get("mode", "act")), kill_switch=())


def replayed(case: Mapping[str, Any], folder: Path) -> tuple[Accounts, list[Replayed], Tally]:
    accounts = table(folder, case["sacct"])
    kernels = Kernels(written(folder / "kernel", case["kernel"])) if "kernel" in case else None
    traces = Traces(written(folder / "logs", case.get("logs", {})), kernels, accounts.attempts)
    events = NodeEvents()
    if "events" in case:
        (folder / "events.txt").write_text(case["events"].lstrip("\n"), encoding="utf-8")
        events = read_events(folder / "events.txt")
    found = list(Replay(accounts.attempts, traces, policy_of(case, folder), events=events).run())
    told = tally(accounts.attempts, found, jobs=accounts.attempts, notice_s=30, answer_s=1800, unknown={}, events=events)
    return accounts, found, told


def restart_of(one: Replayed) -> str:
    change = one.change("resubmit")
    if change is None:
        return ""
    if not change.done and (not change.rule or change.verdict != "deny"):
        return "not made"
    return str(change.verdict) if change.verdict == "allow" else f"{change.verdict} {change.rule}"


def seen(accounts: Accounts, one: Replayed) -> dict[str, Any]:
    return {
        "job": accounts.attempts[one.number].job.id,
        "reason": one.diagnosis.reason if one.diagnosis else None,
        "playbook": one.playbook,
        "state": str(one.state),
        "restart": restart_of(one),
        "drains": [node for change in one.decided if change.kind == "cordon" and change.done for node in change.nodes],
        "log": one.why_no_log,
        "next": str(one.after.starter) if one.after else None,
    }


def figure(told: Tally, path: str) -> Any:
    if path in ("bad_restarts", "bad_drains"):
        return sum(one.kind == {"bad_restarts": "resubmit", "bad_drains": "cordon"}[path] for one in told.suspects)
    name, _, rest = path.partition(".")
    value = getattr(told, name)
    if rest:
        value = value.get(rest, 0) if isinstance(value, Mapping) else getattr(value, rest)
    return value


@pytest.mark.parametrize("name", NAMES)
def test_a_case_is_decided_as_its_file_says(name: str, tmp_path: Path) -> None:
    case = tomllib.loads((CASES / f"{name}.toml").read_text(encoding="utf-8"))
    accounts, found, told = replayed(case, tmp_path)
    wanted = case.get("incident", [])
    assert len(found) == len(wanted)
    for one, want in zip(found, wanted, strict=True):
        assert want.pop("note", "") in one.note
        assert one.diagnosis is None or one.diagnosis.reason != want.pop("not_reason", None)
        shown = seen(accounts, one)
        assert {key: shown[key] for key in want} == want
    assert {path: figure(told, path) for path in case["figures"]} == case["figures"]


def test_a_fault_that_names_no_node_is_told_as_a_drain_that_nobody_knows_of(tmp_path: Path) -> None:
    log = "[rank3]: torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered\n"
    _, found, told = replayed({"sacct": f"{HEAD}\n{ROW}\n".replace("gpu001", "gpu[001-004]"), "logs": {"1.out": log}}, tmp_path)
    assert found[0].unasked == ("check_nodes",)
    unknown = "failures whose playbook tests the nodes, which the past cannot answer: drains may be more"
    assert (told.drains.count, told.unknown[unknown]) == (0, 1)


@pytest.mark.parametrize(
    ("saves", "lost"),
    [([40], 20 * 6.0), ([20, 60], 0.0), ([], None)],
    ids=["twenty_steps_since", "saved_at_the_end", "no_save_told"],
)
def test_training_since_the_last_save_is_told_where_the_log_tells_it(saves: list[int], lost: float | None, tmp_path: Path) -> None:
    lines = []
    for step in range(10, 61, 10):
        lines.append(f" iteration {step:8d}/  1000 | elapsed time per iteration (ms): 6000.0 | lm loss: 2.5E+00 | grad norm: 1.2 |")
        lines += [f"  successfully saved checkpoint at iteration {step:7d} to /ckpt"] * (step in saves)
    log = "\n".join([*lines, "CUDA error: uncorrectable ECC error encountered", ""])
    _, found, told = replayed({"sacct": f"{HEAD}\n{ROW}\n", "logs": {"1.out": log}}, tmp_path)
    assert found[0].lost_s == lost
    assert told.waiting.progress_gpu_hours == round((lost or 0) * 8 / 3600, 1)


def test_the_page_has_every_section_and_says_what_it_assumes(tmp_path: Path) -> None:
    case = tomllib.loads((CASES / "ecc_answered_next_morning.toml").read_text(encoding="utf-8"))
    _, _, told = replayed(case, tmp_path)
    page = markdown(told, source="sacct.txt", mode="act", notice_s=30, answer_s=1800, notes={"rows": "4"})
    assert all(f"## {section.title[:1].upper()}{section.title[1:]}" in page for section in sections(told))
    assert "| saved alone | 191.7 GPU-hours; restarts without a question: 1 |" in page
    assert "A failure is noticed 30 s after" in page


def test_rows_that_cannot_be_read_are_named_with_their_line_and_left_out(tmp_path: Path) -> None:
    rows = [
        HEAD,
        ROW,
        ROW,  # twice, as when two files were put together
        HEAD,
        ROW.replace("1|llm", "2|two|parts"),
        "3|a name",
        "with a newline" + ROW[len("1|llm") :],
        "4|cut short",
        ROW.replace("1|llm", "5|llm").replace("2026-03-02T10:00:00", "Unknown"),
        ROW.replace("1|llm", "6|llm").replace("2026-03-02T10:00:00", "2026-03-01T10:00:00"),
        ROW.replace("1|llm", "seven|llm"),
        ROW.replace("1|llm", "8|llm"),
    ]
    found = table(tmp_path, "\n".join(rows))
    assert [one.job.id for one in found.attempts] == ["1", "3", "8"]
    assert found.attempts[1].job.name == "a name\nwith a newline"
    assert (found.twice, found.broken) == (1, 5)
    assert [problem.partition(":")[0] for problem in found.problems] == ["line 5", "line 8", "line 9", "line 10", "line 11"]


def test_a_name_that_holds_whole_rows_makes_no_attempt(tmp_path: Path) -> None:
    """The owner of job 9 wrote a row of job 666 into its name, between two newlines."""
    begin, end = "9|evil", "rest of the name" + ROW[len("1|llm") :]
    forged = ROW.replace("1|llm", "666|forged")
    found = table(tmp_path, "\n".join([HEAD, ROW, begin, forged, end, ROW.replace("1|llm", "10|llm")]))
    assert [attempt.job.id for attempt in found.attempts] == ["1", "10"]
    assert (found.broken, found.rows) == (3, 5)
    assert "a newline in a text of a job" in found.problems[0]


def test_rows_are_broken_alike_for_backtests_and_reports(tmp_path: Path) -> None:
    dice = random.Random(5)
    for _ in range(60):
        pieces = [ROW.replace("1|llm", f"{number}|llm{number}") for number in range(1, 9)]
        broken = dice.choice(pieces)
        cut = broken.index("|") + dice.randrange(1, 6)  # within the name, or at its end
        inside = dice.choice(["", f"{ROW.replace('1|llm', '666|x')}\n", "7|\n", "||\n", "name\n"])
        text = "\n".join([HEAD, *pieces]).replace(broken, f"{broken[:cut]}\n{inside}{broken[cut:]}", 1)
        (tmp_path / "rows.txt").write_text(text + "\n")
        request = ReadRequest(str(tmp_path / "rows.txt"), type_rules(None), "UTC", datetime(2026, 6, 1, tzinfo=UTC))
        with opened_jobs(request, folder=tmp_path) as opened:
            counted = opened.connection.execute("SELECT id FROM counted").fetchall()
        assert {attempt.job.id for attempt in table(tmp_path, text).attempts} == {job for (job,) in counted}, text


@pytest.mark.parametrize("between", [",", ";", "\t", "^", "||"], ids=["comma", "semicolon", "tab", "caret", "two_bars"])
def test_any_separator_is_read(between: str, tmp_path: Path) -> None:
    found = table(tmp_path, f"{HEAD}\n{ROW}\n".replace("|", between))
    assert [(one.job.id, one.gpus, one.job.name) for one in found.attempts] == [("1", 8, "llm")]


def test_a_trailing_separator_and_gzip_are_read(tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt.gz"
    path.write_bytes(gzip.compress(f"{HEAD}|\n{ROW}|\n".encode()))
    assert [one.job.id for one in read_accounts(path).attempts] == ["1"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "empty"),
        ("\n\n", "empty"),
        ("hello\nworld\n", "no header of sacct"),
        ("JobID|State|ExitCode\n1|FAILED|1:0\n", "has no column Start, End"),
        ("JobID           JobName  Partition      State\n------------ ---------- ----------\n1 a b FAILED\n", "for people"),
        ('{"jobs": 3}', "not what sacct --json prints"),
        ('{"jobs": [', "not what sacct --json prints"),
    ],
    ids=["empty", "blank", "prose", "no_times", "for_people", "json_without_jobs", "json_cut_short"],
)
def test_what_is_no_table_of_sacct_is_refused_with_what_to_ask_for(text: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(InputError, match=said):
        table(tmp_path, text)


def test_json_of_old_and_new_versions_says_the_same(tmp_path: Path) -> None:
    times = {"submission": 1772438400, "start": 1772438410, "end": 1772445600}
    common = {"job_id": 1, "name": "llm", "nodes": "gpu001", "partition": "gpu", "working_directory": "/home/ada"}
    tres = {"allocated": [{"type": "gres", "name": "gpu", "count": 8}]}
    old = {
        **common,
        "user": "ada",
        "state": {"current": "FAILED"},
        "exit_code": {"status": "ERROR", "return_code": 1},
        "time": times,
    }
    number = {"set": True, "infinite": False, "number": 1}
    new = {
        **common,
        "association": {"user": "ada"},
        "state": {"current": ["FAILED"], "reason": "None"},
        "exit_code": {"status": ["ERROR"], "return_code": number, "signal": {"id": {"set": False, "number": 0}}},
        "time": times,
        "array": {"job_id": 0, "task_id": {"set": False, "number": 0}},
    }
    import json

    listed = [table(tmp_path, json.dumps({"jobs": [{**one, "tres": tres}]})).attempts[0] for one in (old, new)]
    plain = table(tmp_path, f"{HEAD}\n{ROW}\n").attempts[0]
    assert listed[0] == listed[1]
    assert (listed[0].job.ended, listed[0].gpus, listed[0].run) == (plain.job.ended, plain.gpus, plain.run)
    assert (listed[0].job.exit_code, listed[0].job.user) == (1, "ada")


@pytest.mark.parametrize(
    ("text", "nodes", "gpus"),
    [
        ("billing=8,cpu=8,gres/gpu:a100=32,gres/gpu=32,mem=1G,node=4", 4, 32),
        ("cpu=8,gres/gpu:a100=16,gres/gpu:h100=8", 3, 24),
        ("gpu:a100:8(IDX:0-7)", 2, 16),
        ("gpu:4", 2, 8),
        ("cpu=8,mem=1G", 2, 0),
        ("", 2, None),
        ("gpu:1g.5gb:3", 2, 6),
        ("gres/gpu=-8", 2, None),
        ("gres/gpu=1.5,node=1", 2, None),
        ("gres/gpu:a100=8,gres/gpu:h100=x", 2, None),
        ("gpu:-8", 2, None),
        ("gres/gpu=" + "9" * 5000, 2, None),
        ("gpu:a100:" + "9" * 5000, 2, None),
    ],
)
def test_gpus_are_counted_from_tres_and_gres(text: str, nodes: int, gpus: int | None) -> None:
    assert gpus_of(text, nodes) == gpus


@pytest.mark.parametrize("text", ["", "Cluster|State\n", "hello\n"], ids=["empty", "no_node", "prose"])
def test_events_without_their_columns_are_refused(text: str, tmp_path: Path) -> None:
    path = tmp_path / "events.txt"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(InputError, match="events"):
        read_events(path)


def test_decisions_do_not_depend_on_what_came_later(tmp_path: Path) -> None:
    case = tomllib.loads((CASES / "many_at_once.toml").read_text(encoding="utf-8"))
    (tmp_path / "whole").mkdir()
    accounts, whole, _ = replayed(case, tmp_path / "whole")
    ended = accounts.attempts[5].job.ended
    assert ended is not None
    (tmp_path / "part").mkdir()
    lines = case["sacct"].splitlines()
    case["sacct"] = "\n".join(line for line in lines if not line.startswith(("46|", "47|", "48|")))
    later, part, _ = replayed(case, tmp_path / "part")
    assert [seen(later, one) for one in part] == [seen(accounts, one) for one in whole[: len(part)]]


def test_kernel_lines_of_several_nodes_go_to_the_node_that_they_name() -> None:
    text = (
        "no host\n# gpu001\n[Mon Mar  2 09:59:48 2026] one\nMar  2 09:59:48 gpu002 kernel: two\n"
        "2026-03-03T01:59:48+00:00 gpu003.site.org kernel: three"
    )
    found = by_node(text, ("gpu001", "gpu002", "gpu003"))
    assert {node: lines[-5:].split()[-1] for node, lines in found.items()} == {
        "unnamed": "host",
        "gpu001": "one",
        "gpu002": "two",
        "gpu003": "three",
    }
    assert by_node("no host", ("gpu007",)) == {"gpu007": "no host"}


@given(
    rows=some.lists(
        some.tuples(
            some.sampled_from(["1", "18_3", "20+1", "18_[1-4]", "9.batch", "x", "", "٣", "9" * 40]),
            some.sampled_from(["FAILED", "CANCELLED by 0", "NODE_FAIL", "REQUEUED", "OUT_OF_ME+", "RUNNING", "", "WEIRD"]),
            some.sampled_from(["1:0", "0:15", "", "::", "9" * 30, "a:b"]),
            some.sampled_from(
                ["2026-03-02T08:00:00", "Unknown", "", "0001-01-01T00:00:00", "9999-12-31T23:59:59", "9" * 30, "-5", "1"]
            ),
            some.sampled_from(["2026-03-02T09:00:00", "Unknown", "", "soon", "1772445600"]),
            some.sampled_from(["gpu[001-004]", "gpu001,gpu002", "None assigned", "gpu[", "gpu[9-1]", "a[0-1]b[0-1]", ""]),
            some.sampled_from(["gres/gpu=8", "gpu:8", "", "gres/gpu=x", "gres/gpu:a=1,gres/gpu:b=2"]),
            some.sampled_from(["", "3", "9" * 30]),
        ),
        max_size=8,
    )
)
@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_a_row_holds_it_is_read_or_named(rows: list[tuple[str, ...]], tmp_path: Path) -> None:
    head = "JobID|State|ExitCode|Start|End|NodeList|AllocTRES|Restarts"
    found = table(tmp_path, "\n".join([head, *map("|".join, rows)]))
    assert found.rows == len(rows)
    assert len(found.attempts) + found.steps + found.broken + found.twice <= len(rows)
    runs = list(Replay(found.attempts, Traces(None, None, found.attempts), load_policy()).run()) if len(rows) < 3 else []
    assert all(one.state is not None for one in runs)


@given(raw=some.binary(max_size=300))
@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_whatever_a_file_holds_it_is_read_or_refused(raw: bytes, tmp_path: Path) -> None:
    path = tmp_path / "sacct.txt"
    for text in (raw, HEAD.encode() + b"\n" + raw, b'{"jobs": [' + raw):
        path.write_bytes(text)
        with suppress(InputError):
            read_accounts(path)
