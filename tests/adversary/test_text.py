"""Hostile text planted wherever users may write, then every door is opened: nothing steers, forges a line, hides or acts."""

from __future__ import annotations

import dataclasses
import json
import logging
import tomllib
import unicodedata
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from _pytest.mark import ParameterSet
from prometheus_client import generate_latest
from prometheus_client.parser import text_string_to_metric_families
from textual.command import CommandPalette
from textual.pilot import Pilot
from textual.widgets import Input

from assistant.cli import ask
from assistant.cli.context import Invocation
from assistant.cli.main import main
from assistant.daemon.journal import JsonLines, PriorityLines, fields_of, status_line
from assistant.daemon.metrics import MetricsServer, WatchStanding
from assistant.daemon.notifications import notices
from assistant.daemon.pass_result import PassResult
from assistant.display import line
from assistant.engine import Engine
from assistant.engine.dry_runs import rehearsal
from assistant.policy import Mode
from assistant.records import Call, CallStatus, Decision, JobSpec, Verdict
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.store import Count
from assistant.tui.app import ChatApp
from assistant.tui.messages import OpenApproval, OpenIncident, OpenJob, OpenNodes
from tests.scenarios.scene import ECC, XID, Scene
from tests.tui.conftest import opened
from tests.tui.waiting import until

CORPUS = tomllib.loads((Path(__file__).parent / "text" / "hostile.toml").read_text(encoding="utf-8"))
HOSTILE: dict[str, str] = {one["name"]: one["text"] for one in CORPUS["hostile"]}


def some(*fast: str) -> list[ParameterSet]:
    """Return all names of the corpus; those that are not named run with the slow tests."""
    return [pytest.param(name, marks=[] if name in fast else pytest.mark.slow) for name in HOSTILE]


pytestmark = pytest.mark.usefixtures("quiet")

IN_EMOJI = "\u200d\ufe0f"
COMMANDS: list[list[str]] = [
    ["jobs"],
    ["jobs", "--json"],
    ["job", "show", "1"],
    ["job", "show", "1", "--json"],
    ["nodes"],
    ["nodes", "--json"],
    ["nodes", "leases"],
    ["incidents"],
    ["incidents", "--json"],
    ["incident", "show", "1"],
    ["incident", "show", "1", "--json"],
    ["incident", "report", "1"],
    ["explain", "1", "--no-model"],
    ["approvals"],
    ["approvals", "--json"],
    ["audit", "show", "--limit", "500"],
    ["audit", "show", "--limit", "500", "--json"],
    ["status"],
    ["status", "--json"],
    ["recover", "--incident", "1", "--dry-run"],
    ["recover", "--incident", "1", "--dry-run", "--json"],
    ["logs", "tail", "LOG"],
    ["logs", "tail", "LOG", "--json"],
    ["logs", "compress", "LOG"],
    ["logs", "search", "LOG", "."],
    ["diagnose", "LOG"],
    ["diagnose", "LOG", "--json"],
    ["checkpoints", "list", "--job", "1"],
    ["ask", "--no-model", "list all jobs", "why did job 1 fail?", "which nodes are out of service?"],
    ["ask", "--no-model", "--sources", "what is wrong now?", "show job 1", "is node08 healthy?"],
    ["ask", "--no-model", "--json", "what waits for an approval?"],
    ["approve", "99"],
    ["job", "show", "HOSTILE"],
    ["nodes", "check", "-w", "HOSTILE"],
    ["deny", "1", "--why", "HOSTILE"],
    ["incident", "close", "1", "--why", "HOSTILE"],
]


def hidden(text: str) -> list[str]:
    """Return what may not come out, by Unicode's own tables."""
    kinds = ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
    return [f"U+{ord(sign):04X}" for sign in text if sign not in "\n\t" + IN_EMOJI and unicodedata.category(sign) in kinds]


def forged(text: str) -> list[str]:
    return [row for row in text.splitlines() if row.strip(" \t│|>*-#`").startswith("FORGED")]


def planted(folder: Path, text: str) -> Scene:
    """Return a cluster on which the text stands in every place that somebody else may write to."""
    scene = Scene(folder, mode=Mode.PROPOSE)
    scene.cluster.partition = text
    checkpoints = folder / "checkpoints"
    run = SimulatedRun(fails_at=50, lines=(text, *ECC, f"RuntimeError: {text}"), kernel={"node02": (*XID, text)}, only_on="node02")
    scene.cluster.plan(text, dataclasses.replace(run, checkpoints=checkpoints, cut=(40,)))
    scene.cluster.submit(dataclasses.replace(scene.spec, name=text, user=text, comment=text))
    scene.cluster.submit(JobSpec(text, f"#!/bin/sh\n#{text}\n", nodes=1, work_dir=folder, user=text))
    scene.cluster.set_cordon("node08", text)
    scene.cluster.controller.append(f"JobId=1 {text}")
    scene.watch(90)
    store, now = scene.engine.store, scene.clock.now()
    incident = store.incidents()[-1].id
    call = Call(0, incident, "cordon_node", {"node": text}, text, "playbook:x", now, CallStatus.PENDING, "aside", f"cordon {text}")
    parked = store.write_call(call, kind="cordon")
    store.park(parked.id, Decision(Verdict.ASK, "mode", "policy", now, text), now + timedelta(days=90_000))
    store.add_evidence(incident, text, text)
    store.record("watch.blind", by=text, why=text, outcome="on")
    return scene


@pytest.fixture(params=HOSTILE, ids=str)
def text(request: pytest.FixtureRequest) -> str:
    return HOSTILE[str(request.param)]


@pytest.mark.parametrize("name", some("newlines", "terminal"))
def test_no_command_hands_it_on(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    text = HOSTILE[name]
    scene = planted(tmp_path, text)

    @contextmanager
    def rehearsed(_: Invocation) -> Iterator[Engine]:
        with rehearsal(scene.engine) as engine:
            yield engine

    def engine(*_: Any, **__: Any) -> Engine:
        return scene.engine

    monkeypatch.setattr(Invocation, "engine", engine)
    monkeypatch.setattr(Invocation, "rehearsal", rehearsed)
    monkeypatch.setattr(ask, "_engine", engine)
    log = str(scene.cluster.job("1").log)
    failed = []
    for words in COMMANDS:
        swapped = [log if word == "LOG" else text if word == "HOSTILE" else word for word in words]
        with suppress(SystemExit):
            main(["-v", "--store", str(tmp_path / "nightshift.db"), *swapped])
        out, err = capsys.readouterr()
        assert out + err, f"{words} prints nothing: it proves nothing"
        if "--json" in words and out:
            [json.loads(row) for row in out.splitlines()]
        # the lines of a log are its own
        lines = [] if words[0] == "logs" else forged(out)
        failed.append((words, hidden(out + err), lines + forged(err)))
    assert [one for one in failed if one[1] or one[2]] == []


def test_reports_are_pages_without_active_parts(text: str, tmp_path: Path) -> None:
    from markdown_it import MarkdownIt

    from assistant.engine.report import report

    scene = planted(tmp_path, text)
    page = report(scene.engine.store, 1)
    tokens = MarkdownIt("commonmark", {"html": True}).enable("table").parse(page)
    kinds = {child.type for token in tokens for child in token.children or ()} | {token.type for token in tokens}
    assert not kinds & {"html_block", "html_inline", "image", "link_open", "table_open", "fence"}
    assert [token.content for token in tokens if token.type == "inline" and token.content.startswith("FORGED")] == []


def test_notices_ping_nobody_and_have_no_forged_lines(text: str, tmp_path: Path) -> None:
    scene = planted(tmp_path, text)
    told = list(notices(scene.engine.store.audit(limit=500), scene.engine.store))
    assert {"approval", "opened", "blind"} <= {str(one.about) for one in told}
    for one in told:
        assert "\n" not in one.title
        assert (hidden(one.title + one.text), forged(one.title + "\n" + one.text)) == ([], [])
        for mark in ("<!", "@everyone", "](", "```", "<img", "<script"):
            assert mark not in one.title + one.text


def test_the_page_of_metrics_stays_a_page_of_metrics(text: str, tmp_path: Path) -> None:
    scene = planted(tmp_path, text)
    store = scene.engine.store
    store.add_counts({Count("incidents", (("by", text), ("reason", text))): 1})
    metrics = MetricsServer(store, lambda: WatchStanding("1", text, None, (text,)))
    metrics.report(PassResult(scene.clock.now(), 0.1, True))
    page = generate_latest(metrics.registry).decode()
    families = {family.name: family for family in text_string_to_metric_families(page)}
    assert "nightshift_incidents" in families
    assert hidden(page) == []
    assert not any(name.startswith("FORGED") for name in families)
    assert len([row for row in page.splitlines() if row.startswith("nightshift_kill_switch")]) == 1


def test_the_log_of_the_watch_has_one_line_a_message_and_true_fields(text: str) -> None:
    error = RuntimeError(text)
    record = logging.LogRecord("assistant.x", logging.ERROR, "x.py", 1, "job=%s named %s", ("7", f"{text} node=FORGED"), None)
    broken = logging.LogRecord("assistant.x", logging.ERROR, "x.py", 1, "job=7 broke", None, (RuntimeError, error, None))
    for one in (record, broken):
        for form in (PriorityLines(numbered=True), PriorityLines(numbered=False), JsonLines()):
            told = form.format(one)
            # a traceback follows its message, indented
            assert (hidden(told), [row for row in told.splitlines() if row.startswith("FORGED")]) == ([], [])
    assert len(PriorityLines(numbered=False).format(record).splitlines()) == 1
    assert json.loads(JsonLines().format(record))["job"] == "7"
    assert fields_of(PriorityLines(numbered=False).format(record).partition("ERROR   ")[2]) == {"JOB": "7"}


def test_systemd_is_told_one_line(text: str, tmp_path: Path) -> None:
    scene = planted(tmp_path, text)
    told = status_line(PassResult(scene.clock.now(), 0.1, True, (text,)))
    assert (hidden(told), "\n" in told) == ([], False)


def drawn(app: ChatApp) -> str:
    return "\n".join("".join(segment.text for segment in strip) for strip in app.screen._compositor.render_strips())


def clicks(app: ChatApp) -> set[str]:
    strips = app.screen._compositor.render_strips()
    return {str(segment.style.meta.get("@click")) for strip in strips for segment in strip if segment.style and segment.style.meta}


async def look(pilot: Pilot[int], app: ChatApp, name: str) -> None:
    await pilot.pause()
    shown = drawn(app)
    assert (name, hidden(shown), forged(shown)) == (name, [], [])
    assert not any("app.quit" in one for one in clicks(app)), name


@pytest.mark.parametrize("name", some("textual_markup"))
async def test_no_screen_of_the_chat_hands_it_on(name: str, tmp_path: Path) -> None:
    scene = planted(tmp_path, HOSTILE[name])
    approval = scene.engine.store.approvals()[-1].id
    screens: list[tuple[str, Callable[[], object]]] = [
        ("job", lambda: OpenJob("1")),
        ("incident", lambda: OpenIncident(1)),
        ("nodes", lambda: OpenNodes("node08")),
        ("approval", lambda: OpenApproval(approval)),
    ]
    async with opened(scene, size=(200, 60)) as (app, pilot):
        await look(pilot, app, "main")
        for panel in ("incidents", "approvals", "jobs", "nodes", "happened"):
            app.action_panel(panel)
            await look(pilot, app, panel)
        for title, message in screens:
            before = app.screen
            app.post_message(message())  # type: ignore[arg-type]
            await until(pilot, lambda before=before: app.screen is not before, title)  # type: ignore[misc]
            await pilot.pause(0.1)
            await look(pilot, app, title)
            for key in "123456" if title in ("job", "incident") else "":
                await pilot.press(key)
                await look(pilot, app, f"{title} {key}")
            await pilot.press("escape")
            await until(pilot, lambda before=before: app.screen is before, f"back from {title}")  # type: ignore[misc]
        await pilot.press("ctrl+p")
        await until(pilot, lambda: isinstance(app.screen, CommandPalette), "the palette")
        app.screen.query_one(Input).value = "job 1"
        begun = line(HOSTILE[name])[:12]
        await until(pilot, lambda: f"job 1 {begun}" in drawn(app), "the job in the palette, as it is called")
        await look(pilot, app, "palette")
