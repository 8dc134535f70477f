"""A secret at every way in is followed to every way out; with redaction switched off every one of them lets it through.

The world is planted while redaction is off, so that the store holds the secrets as one of an old version might: each door must
redact by itself. A second world, planted with redaction on, shows what lies on the disk. A door that shows no secret even without
redaction proves nothing, and fails.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler
from io import StringIO
from pathlib import Path
from typing import Any, ClassVar, NamedTuple
from urllib.request import urlopen

import pytest
from langchain_core.messages import AIMessage
from textual.message import Message
from textual.pilot import Pilot

from assistant.agent.conversation import ModelAgent
from assistant.cli import ask, reference
from assistant.cli.context import Invocation
from assistant.cli.main import crashed, main
from assistant.cli.measure import evaluate
from assistant.cli.output import narrate, print_block
from assistant.daemon.delivery import Services
from assistant.daemon.journal import JsonLines, PriorityLines, status_line
from assistant.daemon.metrics import MetricsServer, WatchStanding
from assistant.daemon.notifications import notices
from assistant.daemon.pass_result import PassResult
from assistant.display import line
from assistant.engine import Engine
from assistant.engine.dry_runs import rehearsal
from assistant.engine.report import report
from assistant.errors import Unavailable
from assistant.evaluation.results import DatasetResult, EvaluationReport, markdown
from assistant.records import IncidentState
from assistant.tui.app import ChatApp
from assistant.tui.commands import COMMANDS as CHAT_COMMANDS
from assistant.tui.messages import OpenApproval, OpenIncident, OpenJob, OpenNodes
from assistant.tui.sessions import Talks
from tests.adversary.canaries import WAYS, canary, planted, planted_text, redaction_off, ways_in, ways_near
from tests.adversary.test_text import drawn
from tests.daemon.http_here import HttpHere
from tests.scenarios.scene import Scene
from tests.scripted_models import ScriptedChat, calls
from tests.tui.conftest import opened
from tests.tui.typing_in import answered, say, seen_text
from tests.tui.waiting import until

pytestmark = pytest.mark.usefixtures("quiet")


class World(NamedTuple):
    """A cluster with a secret at every way in."""

    scene: Scene
    log: str


@pytest.fixture(scope="module")
def world(tmp_path_factory: pytest.TempPathFactory) -> World:
    with redaction_off():
        scene = planted(tmp_path_factory.mktemp("planted"))
    return World(scene, str(scene.cluster.job("1").log))


def judged(shown: str, leaked: str, door: str) -> set[str]:
    """Fail when a door shows a secret, or could not have shown one; return the ways in that it leaked without redaction.

    Args:
        shown: What it shows.
        leaked: What it shows with redaction switched off.
        door: Its name.
    """
    ways = ways_in(leaked)
    assert ways, f"{door} shows no secret even without redaction: it proves nothing"
    assert ways_in(shown) == set(), door
    assert "[redacted]" in shown, door
    assert ways_near(shown) & ways, f"{door} shows nothing of what surrounds the secrets"
    return ways


# the command line

COMMANDS = """
jobs|job show 1|incidents|incident show 1|incident report 1|explain 1 --no-model|approvals|audit show --limit 500
logs tail LOG|logs tail 1|logs search LOG near|logs compress LOG|logs compress LOG --tokens 2000|diagnose LOG
jobs --json|job show 1 --json|incidents --json|incident show 1 --json|approvals --json|audit show --limit 500 --json|nodes --json
jobs --json --spec|job show 1 --json --spec|logs tail LOG --json|logs search LOG near --json|logs compress LOG --json
diagnose LOG --json|nodes|nodes check -w QUESTION|recover --incident 1 --dry-run|recover --incident 1 --dry-run --json
checkpoints list 1|checkpoints list 1 --json|rules show ecc_error.learned-1|rules show ecc_error.learned-1 --json
ask --no-model QUESTION|ask --no-model --json QUESTION|ask --no-model --sources LISTS|ask --no-model --json LISTS|job show QUESTION
deny PENDING --why WHY|incident close OPEN --why WHY|recover 1 --dry-run
job check 1|job check 1 --json|checkpoints verify 1|checkpoints advise --job 1|rules export|nodes cordon node03 --why WHY
nodes uncordon node08
"""
WORDS = [door.strip() for row in COMMANDS.strip().split("\n") for door in row.split("|")]

NUMBERS = "prints numbers, times, names of nodes and reasons, and ids of ours"
OURS = "prints what Nightshift's administrator wrote: content, settings, models"
SAME = "prints by the function of a command that is driven"
NAMES = (
    "shows names of jobs, users and nodes, redacted and escaped: tests/cli/test_cli_report_failures.py, unit/test_reports_page.py"
)
ANSWER = "answers with a number of ours, or an error that names what was typed"
ELSEWHERE: dict[str, str] = {
    "chat": "driven below, screen by screen",
    "status": "driven as a door of the watch",
    "watch": "what it writes and sends is driven as doors of the watch",
    "incident confirm": "prints the line that it remembers, as the store keeps it: redacted when it was written",
    "approve": SAME + ": approvals",
    "undo": SAME + ": nodes uncordon",
    "resume": SAME + ": recover",
    "rules test": SAME + ": logs search",
    "rules learn": SAME + ": rules show",
    **dict.fromkeys(("incident ack", "incident correct", "incident forget", "rules activate", "rules retire", "learn"), ANSWER),
    "rules list": SAME + ": rules show; cut to the width of a table",
    "evaluate": "its tables, JSON, lines and Markdown are driven as a door of evaluations",
    "backtest": "reads files that the operator names; its report is made of reasons, counts and ids",
    "memory plan": "shows lines of an allocator, and arguments, redacted and escaped: tests/cli/test_cli_memory.py",
    **dict.fromkeys(map("report {}".format, "failures reliability job cost cluster user node week".split()), NAMES),
    "stop": "prints where the switch is; why it was set is shown by status",
    **dict.fromkeys(("nodes renew", "nodes leases", "nodes ledger", "breaker show", "breaker reset", "breaker open"), NUMBERS),
    **dict.fromkeys("audit head|audit anchor|audit verify|audit accept".split("|"), NUMBERS),
    **dict.fromkeys("bench agent|bench calibration|bench speed".split("|"), NUMBERS),
    **dict.fromkeys(
        "playbooks list|playbooks show|playbooks try|config show|config check|config policy|doctor|notify".split("|"), OURS
    ),
    **dict.fromkeys(
        ("model list", "model use", "model info", "model test", "model pull", "model train-ranker", "model show"), OURS
    ),
}
"""Commands that are not driven here: where what they show is, or why none of it was written by somebody else."""

SLASH_ELSEWHERE: dict[str, str] = {
    **dict.fromkeys(("incidents", "waiting", "happened", "jobs", "nodes"), "opens a panel, all of which are driven"),
    **dict.fromkeys(
        ("incident", "job", "node", "approve", "undo", "recover", "deny"), "opens a screen or card of those that are driven"
    ),
    **dict.fromkeys(("log",), "shows the lines that `logs tail` shows"),
    "explain": "prints the report, which is driven as a door of the watch",
    "export": "driven with the conversation",
    **dict.fromkeys(("ack", "stop"), ANSWER),
    **dict.fromkeys(("model", "mode", "theme", "help", "quit", "clear", "new"), OURS),
    "resume": "shows a conversation as its files keep it, which are driven",
}


def test_every_command_is_driven_or_listed_with_its_reason() -> None:
    commands = {found.path.removeprefix("nightshift ") for found in reference.live() if not found.is_group}
    driven = {command for command in commands for words in WORDS if f"{words} ".startswith(f"{command} ")}
    assert commands - driven == set(ELSEWHERE), "drive a new command, or say in ELSEWHERE why it shows nothing of others"
    assert len(driven) > 20


def test_every_command_of_the_chat_is_driven_or_listed_with_its_reason() -> None:
    assert {command.name for command in CHAT_COMMANDS} == set(SLASH_ELSEWHERE)


@contextmanager
def on_engine(engine: Engine) -> Iterator[None]:
    """Let commands open this engine instead of one of their own."""

    @contextmanager
    def rehearsed(_: Invocation) -> Iterator[Engine]:
        with rehearsal(engine) as rehearsing:
            yield rehearsing

    def opened(*_: Any, **__: Any) -> Engine:
        return engine

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Invocation, "engine", opened)
        patch.setattr(Invocation, "rehearsal", rehearsed)
        patch.setattr(ask, "_engine", opened)
        yield


def printed(world: World, words: str) -> str:
    """Return what a command writes to stdout and stderr."""
    store = world.scene.engine.store
    texts = {"LOG": world.log, "WHY": planted_text("question"), "LISTS": "list all jobs"}
    texts |= {"QUESTION": f"what is the playbook for '{planted_text('question')}'"}
    waiting = max(approval.id for approval in store.approvals())
    texts |= {"PENDING": str(waiting), "OPEN": next(str(i.id) for i in store.incidents() if i.state is IncidentState.OPEN)}
    out = StringIO()
    with on_engine(world.scene.engine), redirect_stdout(out), redirect_stderr(out), suppress(SystemExit):
        main(["-v", "--store", str(world.scene.folder / "nightshift.db"), *(texts.get(word, word) for word in words.split())])
    return out.getvalue()


@pytest.mark.slow
@pytest.mark.parametrize("words", WORDS)
def test_no_command_shows_a_secret(world: World, words: str) -> None:
    shown = printed(world, words)
    with redaction_off():
        leaked = printed(world, words)
    judged(shown, leaked, words)


# what the watch writes and sends


class Answering(BaseHTTPRequestHandler):
    """A service that takes messages, or refuses them with a secret in its answer."""

    taken: ClassVar[list[str]] = []
    status = 200

    def do_POST(self) -> None:
        self.taken.append(self.rfile.read(int(self.headers["Content-Length"])).decode())
        body = planted_text("sink").encode()
        self.send_response(self.status, planted_text("sink"))
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        pass


def sent(world: World, status: int = 200) -> str:
    """Return what a service is sent of the notices, and what is logged and raised when it refuses them."""
    found = {str(notice.about): notice for notice in notices(world.scene.engine.store.audit(limit=500), world.scene.engine.store)}
    handler = type("Handler", (Answering,), {"taken": [], "status": status})
    server, log = HttpHere(handler), StringIO()
    stream = logging.StreamHandler(log)
    stream.setFormatter(PriorityLines(numbered=False))
    loggers = [logging.getLogger("assistant"), logging.getLogger("apprise")]
    for logger in loggers:
        logger.addHandler(stream)
    try:
        for notice in found.values():
            with suppress(Unavailable):
                Services("oncall", [f"json://127.0.0.1:{server.port}/"], cluster="c1", timeout_s=5).send(notice)
    finally:
        server.close()
        for logger in loggers:
            logger.removeHandler(stream)
    return "\n".join([*handler.taken, log.getvalue()])  # type: ignore[attr-defined]


def logged(_: World) -> str:
    """Return lines of the journal, plain and as JSON, with a message, an argument and a traceback that hold secrets."""
    error = RuntimeError(planted_text("exception"))
    record = logging.LogRecord("assistant.x", logging.ERROR, "x.py", 1, "job=7 %s", (planted_text("comment"),), None)
    broken = logging.LogRecord("assistant.x", logging.ERROR, "x.py", 1, "job=7 broke", None, (RuntimeError, error, None))
    forms = (PriorityLines(numbered=True), PriorityLines(numbered=False), JsonLines())
    return "\n".join(form.format(one) for form in forms for one in (record, broken))


def scraped(world: World) -> str:
    """Return the page of metrics as a scrape reads it, and the file for node_exporter."""
    scene = world.scene
    metrics = MetricsServer(
        scene.engine.store, lambda: WatchStanding("1", "act", planted_text("audit"), (planted_text("sink"),)), listen="127.0.0.1:0"
    )
    try:
        metrics.report(PassResult(scene.clock.now(), 0.1, True, (planted_text("exception"),)))
        with urlopen(f"http://127.0.0.1:{metrics.port}/metrics", timeout=10) as answer:
            return str(answer.read().decode())
    finally:
        metrics.close()


def crash_log(_: World) -> str:
    """Return what a bug prints, and the file that keeps its traceback."""
    out = StringIO()
    with redirect_stderr(out):
        try:
            raise RuntimeError(planted_text("exception"))
        except RuntimeError as error:
            crashed(type(error), error, error.__traceback__)
    path = Path(os.environ["XDG_STATE_HOME"]) / "nightshift" / "crashes.log"
    kept = path.read_text(encoding="utf-8")
    path.unlink()
    return out.getvalue() + kept


def evaluated(_: World) -> str:
    """Return what an evaluation prints, as a table, as JSON and as it goes on, and the Markdown that it writes."""
    why = planted_text("evaluation")
    result = DatasetResult(f"data {why}", "given up", None, 3, 1.0, None, ("node01",), f"exit status 3: {why}", (why,))
    found = EvaluationReport("run1", f"title {why}", f"/models/{why}", "unfinished", 1.0, 1.0, (result,))
    out = StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        for as_json in (False, True):
            evaluate._print(found, as_json)
            evaluate._list_runs([found], as_json)
        narrate(f"1 given up: {why}")
    return out.getvalue() + markdown(found)


def in_status(world: World) -> str:
    """Return what systemd, `status` and Nagios show of a pass that met troubles."""
    store, now = world.scene.engine.store, datetime.now(UTC)
    store.keep_pass("watch@here", at=now, seconds=0.1, leads=True, whole=False, trouble=(planted_text("exception"),))
    told = status_line(PassResult(now, 0.1, True, (planted_text("exception"),)))
    return "\n".join([told, printed(world, "status"), printed(world, "status --json")])


DOORS: dict[str, Callable[[World], str]] = {
    "report": lambda world: report(world.scene.engine.store, 1),
    "a message that is taken": sent,
    "a message that is refused": lambda world: sent(world, 500),
    "journal": logged,
    "metrics": scraped,
    "crash log": crash_log,
    "status": in_status,
    "evaluation": evaluated,
}


@pytest.mark.parametrize("door", [pytest.param(door, marks=[pytest.mark.slow] if "message" in door else []) for door in DOORS])
def test_no_door_of_the_watch_shows_a_secret(world: World, door: str) -> None:
    shown = DOORS[door](world)
    with redaction_off():
        leaked = DOORS[door](world)
    judged(shown, leaked, door)


# models and conversations


def prompted(world: World) -> str:
    """Return every message that a language model is given while it asks for all that its tools tell."""
    script = [calls(tool, **arguments) for tool, arguments in ASKED]
    model = ScriptedChat(script=[*script, f"Job 1 failed [1]. {planted_text('model')}", "No more."])
    agent = ModelAgent(world.scene.engine.gate, world.scene.clock, model, name="scripted")
    agent.ask(f"why did job 1 fail? {planted_text('question')}")
    agent.ask("and now?")
    return "\n".join(str(message) for messages, _ in model.requests for message in messages)


ASKED: tuple[tuple[str, dict[str, Any]], ...] = (
    ("explain_job", {"job": "1"}),
    ("show_job", {"job": "1"}),
    ("tail_log", {"job": "1"}),
    ("show_node", {"node": "node08"}),
)


def conversed(world: World) -> str:
    """Return what a model's answer shows, and what is kept of the conversation for the next process."""
    folder = Path(os.environ["XDG_STATE_HOME"])
    folder.mkdir(parents=True, exist_ok=True)
    talks = folder / "talks.db"
    talks.unlink(missing_ok=True)
    model = ScriptedChat(script=[calls("tail_log", job="1"), f"Job 1 failed [1]. {planted_text('model')}"])
    agent = ModelAgent(world.scene.engine.gate, world.scene.clock, model, name="scripted", talks=talks)
    answer = agent.ask(f"why did job 1 fail? {planted_text('question')}")
    shown = StringIO()
    with redirect_stdout(shown):
        print_block(answer.text)
    kept = b"".join(path.read_bytes() for path in folder.glob("talks.db*")).decode("utf-8", "replace")
    return f"{shown.getvalue()}{kept}"


MODELS: dict[str, Callable[[World], str]] = {"prompt": prompted, "answer and conversation": conversed}


@pytest.mark.slow
@pytest.mark.parametrize("door", MODELS)
def test_no_model_is_given_a_secret_and_no_conversation_keeps_one(world: World, door: str) -> None:
    shown = MODELS[door](world)
    with redaction_off():
        leaked = MODELS[door](world)
    ways = judged(shown, leaked, door)
    assert {"question", "bearer"} <= ways


# the chat

SCREENS = {"job": "1234", "incident": "1234", "nodes": "", "approval": ""}
"""The screens that open over the conversation, and the keys of their views."""


PANELS = ("incidents", "approvals", "jobs", "nodes", "happened")


async def drawn_at_rest(pilot: Pilot[int], app: ChatApp) -> str:
    """Return what is drawn once nothing has changed for some looks: what is read for a panel comes later than the panel."""
    before, same = "", 0
    for _ in range(200):
        await pilot.pause(0.05)
        now = drawn(app)
        before, same = now, same + 1 if now == before else 0
        if same == 6:
            return now
    raise AssertionError("the screen never comes to rest")


async def chatted(world: World, folder: Path, part: str) -> dict[str, str]:
    """Return what a part of the running chat draws; of the conversation also its export and the files that it keeps."""
    scene, store = world.scene, world.scene.engine.store
    messages: dict[str, Callable[[], Message]] = {
        "job": lambda: OpenJob("1"),
        "incident": lambda: OpenIncident(1),
        "nodes": lambda: OpenNodes("node08"),
        "approval": lambda: OpenApproval(max(approval.id for approval in store.approvals())),
    }
    views: dict[str, str] = {}

    def says(*_: object) -> AIMessage:
        return AIMessage(f"Job 1 failed. {planted_text('model')}")

    def agent(engine: Engine) -> ModelAgent:
        return ModelAgent(engine.gate, engine.clock, ScriptedChat(says=says), name="scripted")

    talks = Talks(folder)
    async with opened(scene, size=(180, 44), thread="night", talks=talks, agent=agent) as (app, pilot):
        await until(pilot, lambda: "job_ended" in drawn(app) and "scontrol" in drawn(app), "the first look")
        for panel in PANELS if part == "panels" else ():
            app.action_panel(panel)
            await until(pilot, lambda: ways_in(text := drawn(app)) or "[redacted]" in text, f"what stands in panel {panel}")
            views[f"panel {panel}"] = await drawn_at_rest(pilot, app)
        for title, keys in SCREENS.items() if part == "screens" else ():
            before = app.screen
            app.post_message(messages[title]())
            await until(pilot, lambda before=before: app.screen is not before, title)  # type: ignore[misc]
            views[f"screen {title}"] = await drawn_at_rest(pilot, app)
            for key in keys:
                await pilot.press(key)
                await pilot.pause()
                views[f"screen {title}"] += drawn(app)
            await pilot.press("escape")
            await until(pilot, lambda before=before: app.screen is before, f"back from {title}")  # type: ignore[misc]
        if part == "conversation":
            await say(pilot, f"why did job 1 die? {planted_text('typed')}")
            await answered(pilot, 1)
            views["conversation"] = seen_text(app) + drawn(app)
            await say(pilot, f"/export {folder / 'shared.md'}")
            await until(pilot, (folder / "shared.md").exists, "the export")
            views["export"] = (folder / "shared.md").read_text(encoding="utf-8")
            (folder / "shared.md").unlink()
            paths = [path for path in folder.rglob("*") if path.is_file()]
            views["files of the conversation"] = "".join(path.read_text(encoding="utf-8") for path in paths)
    return views


@pytest.mark.slow
@pytest.mark.timeout(300)
@pytest.mark.parametrize("part", ["panels", "screens", "conversation"])
async def test_no_screen_of_the_running_chat_shows_a_secret(world: World, tmp_path: Path, part: str) -> None:
    shown = await chatted(world, tmp_path / "on", part)
    with redaction_off():
        leaked = await chatted(world, tmp_path / "off", part)
    assert shown.keys() == leaked.keys()
    for door, text in leaked.items():
        judged(shown[door], text, door)


# the disk


def on_disk(folder: Path) -> str:
    """Return all bytes of the store and of what lies beside it, without the job's own files."""
    own = ("job-", "checkpoints", "iter_")
    paths = [
        path for path in folder.rglob("*") if path.is_file() and not any(name in str(path.relative_to(folder)) for name in own)
    ]
    assert any(path.name.startswith("nightshift.db") for path in paths)
    return "".join(path.read_bytes().decode("utf-8", "replace") for path in paths)


QUICK = (
    "jobs",
    "jobs --json --spec",
    "job show 1",
    "incident show 1 --json",
    "approvals",
    "nodes",
    "logs tail LOG",
    "audit show --limit 500",
)
"""Doors of the command line that are also opened in the fast tests; `test_no_command_shows_a_secret` opens all."""


def test_no_door_shows_a_secret_and_the_store_holds_none(world: World, tmp_path: Path) -> None:
    for words in QUICK:
        shown = printed(world, words)
        with redaction_off():
            leaked = printed(world, words)
        judged(shown, leaked, words)
    scene = planted(tmp_path / "clean")
    ways = judged(on_disk(scene.folder), on_disk(world.scene.folder), "the store")
    assert {"approval", "audit", "evidence", "figure", "memory", "rule", "tool", "bearer", "kernel"} <= ways


def test_every_secret_is_one_that_redaction_knows() -> None:
    with redaction_off():
        assert all(canary(way) in line(planted_text(way)) for way in WAYS)
    assert ways_in("".join(line(planted_text(way)) for way in WAYS)) == set()
