"""Every key of every screen and widget of the chat does what `cases/chat/keys.toml` says; a key without a case is a failure."""

from __future__ import annotations

import importlib
import pkgutil
import tomllib
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from textual.app import App
from textual.binding import Binding
from textual.containers import VerticalScroll
from textual.css.query import NoMatches
from textual.dom import DOMNode
from textual.pilot import Pilot

import assistant.tui
from assistant.errors import NightshiftError
from assistant.records import CallStatus, Event, EventKind, Verdict
from assistant.tui.curves import CurvesView, Plot
from assistant.tui.logs.rows import LogCitation
from assistant.tui.logs.view import LogView
from assistant.tui.messages import OpenIncident, OpenJob, OpenNodes, OpenPlaybook
from assistant.tui.screens.changes import LiftScreen
from assistant.tui.screens.consent import ConsentScreen
from assistant.tui.screens.log import RankHistogram
from assistant.tui.screens.records import HealthTable
from assistant.tui.screens.text import TextScreen
from assistant.tui.widgets.conversation import Conversation
from assistant.tui.widgets.exchange import Exchange
from assistant.tui.widgets.news import NewsView
from assistant.tui.widgets.panels import NodeTree
from assistant.tui.widgets.prompt import Prompt
from assistant.tui.widgets.tables import Completion, Rows
from tests.scenarios.scene import Scene
from tests.tui.conftest import opened
from tests.tui.log_world import LogApp, ready
from tests.tui.test_news import park
from tests.tui.waiting import PAUSE_S, seen, until

pytestmark = pytest.mark.slow

Step = tuple[str, Mapping[str, Any], Sequence[str]]
WALKS = tomllib.loads((Path(__file__).parents[1] / "cases" / "chat" / "keys.toml").read_text(encoding="utf-8"))["walk"]


def keys_of_the_chat() -> dict[str, set[str]]:
    """Return the keys that each class of the chat binds itself."""
    found: dict[str, set[str]] = {}
    for module in pkgutil.walk_packages(assistant.tui.__path__, "assistant.tui."):
        for one in vars(importlib.import_module(module.name)).values():
            if isinstance(one, type) and issubclass(one, DOMNode) and one.__module__ == module.name and "BINDINGS" in vars(one):
                bound = [key.key if isinstance(key, Binding) else key[0] for key in one.BINDINGS]
                found[one.__name__] = {key for keys in bound for key in keys.split(",")}
    return found


def test_every_key_has_a_case() -> None:
    cases: dict[str, set[str]] = {}
    for walk in WALKS:
        cases.setdefault(walk["of"], set()).update(step[0] for step in walk["steps"])
    bound = keys_of_the_chat()
    assert len(bound) > 20
    assert {name: keys - cases.get(name, set()) for name, keys in bound.items() if keys - cases.get(name, set())} == {}
    assert set(cases) <= set(bound)


# --- worlds


@asynccontextmanager
async def chat(scene: Scene, *keys: str, message: object = None, size: tuple[int, int] = (120, 40)) -> AsyncIterator[Any]:
    async with opened(scene, size) as (app, pilot):
        app.animation_level = "none"
        await until(pilot, lambda: app.talk.answers and app.playbooks())
        if message is not None:
            app.post_message(message)  # type: ignore[arg-type]
            await until(pilot, lambda: app.screen is not app.main and _is_read(app))
        for key in keys:
            await pressed(pilot, key)
        yield scene, app, pilot


@asynccontextmanager
async def plotted(scene: Scene) -> AsyncIterator[Any]:
    async with chat(broken(scene), "c", message=OpenIncident(1)) as (_, app, pilot):
        await until(pilot, lambda: app.screen.query_one(CurvesView).snapshot, "the curves")
        plot = app.screen.query(Plot).first()
        await until(pilot, lambda: plot._x_max > 40, "the drawing")
        plot.focus()
        await until(pilot, lambda: plot.has_focus)
        WHOLE[app] = (plot._x_min, plot._x_max)
        yield scene, app, pilot
        del WHOLE[app]


@asynccontextmanager
async def log(scene: Scene, *sources: Path, cited: Sequence[LogCitation] = (), keys: Sequence[str] = ()) -> AsyncIterator[Any]:
    app = LogApp(*sources, cited=cited)
    async with app.run_test(size=(120, 23)) as pilot:
        await ready(pilot, app)
        if len(sources) > 1:
            await until(pilot, lambda: app.log_screen.has_class("-ranks"), "the ranks, which several logs show by themselves")
        for key in keys:
            await pressed(pilot, key)
        yield scene, app, pilot


def numbered(scene: Scene) -> Path:
    path = scene.folder / "numbered.log"
    path.write_text("".join(f"line number {n}\n" for n in range(1, 201)))
    return path


def died(scene: Scene) -> Path:
    path = scene.folder / "died.log"
    routine = (
        " [2026-02-11 07:00:00] iteration {n:8}/ 5000000 | consumed samples: {n:12} | elapsed time per iteration (ms): 2300.1 | "
    )
    routine += (
        "learning rate: 3.000000E-04 | global batch size:  1024 | lm loss: 2.100000E+00 | loss scale: 1.0 | grad norm: 0.300 | "
    )
    routine += "number of skipped iterations:   0 | number of nan iterations:   0 |"
    lines = [routine.format(n=n) for n in range(1, 1001)]
    lines += [f"[rank{rank}]: RuntimeError: NCCL communicator was aborted on rank {rank}" for rank in range(8)]
    lines += [routine.format(n=n) for n in range(1001, 1201)]
    path.write_text("".join(f"{line}\n" for line in lines))
    return path


def of_ranks(scene: Scene, count: int) -> list[Path]:
    paths = [scene.folder / f"job_{rank}.out" for rank in range(count)]
    for rank, path in enumerate(paths):
        path.write_text("".join(f"2026-02-11 07:00:{n:02} rank {rank} step {n}\n" for n in range(3)))
    return paths


def broken(scene: Scene) -> Scene:
    scene.cluster.submit(scene.spec)
    scene.watch(120)
    return scene


def recovered(scene: Scene) -> Scene:
    made = Scene(scene.folder / "recovered")
    made.cluster.submit(made.spec)
    made.watch(2_000)
    return made


def failed(scene: Scene) -> Scene:
    made = Scene(scene.folder / "failed")
    made.cluster.submit(made.spec)
    made.clock.sleep(120)
    made.engine.open(Event(EventKind.JOB_ENDED, "1", None, made.clock.now()))
    return made


def cordoned(scene: Scene) -> Scene:
    scene.cluster.cordon("node05", "bad fan")
    return scene


@asynccontextmanager
async def talked(scene: Scene) -> AsyncIterator[Any]:
    async with chat(scene, size=(80, 10)) as (_, app, pilot):
        app.talk.typed("what is wrong now?")
        await until(pilot, lambda: any(one.reply.answer for one in app.main.query(Exchange)), "the answer")
        await until(pilot, lambda: READS["conversation"](scene, app) == "end")
        yield scene, app, pilot


@asynccontextmanager
async def lifting(scene: Scene) -> AsyncIterator[Any]:
    (scene.folder / "stop").write_text("2026-01-05T02:00:00Z cli:root: maintenance\n")
    async with chat(broken(scene)) as (_, app, pilot):
        app.talk.typed("/stop --lift")
        await until(pilot, lambda: isinstance(app.screen, LiftScreen), "the question")
        yield scene, app, pilot


@asynccontextmanager
async def announced(scene: Scene) -> AsyncIterator[Any]:
    async with chat(scene) as (_, app, pilot):
        await until(pilot, lambda: app.news._mark is not None, "the first look")
        broken(scene)
        await until(pilot, lambda: "approval 1" in " ".join(str(view.render()) for view in app.main.query(NewsView)), "the news")
        app.main.query(NewsView).first().focus()
        yield scene, app, pilot


@asynccontextmanager
async def whole_row(scene: Scene) -> AsyncIterator[Any]:
    number = park(scene, f"node07 Reason='{'a long reason ' * 600}'")
    assert scene.engine.store.answer(number, Verdict.DENY, "cli:bob", why="no")
    async with chat(scene, "f4", "enter") as (_, app, pilot):
        await until(pilot, lambda: isinstance(app.screen, TextScreen), "the whole row")
        yield scene, app, pilot


WORLDS: Mapping[str, Callable[[Scene], AbstractAsyncContextManager[Any]]] = {
    "main": lambda scene: chat(broken(scene)),
    "long talk": talked,
    "news": lambda scene: announced(scene),
    "whole row": lambda scene: whole_row(scene),
    "happened": lambda scene: chat(broken(scene), "f4"),
    "nodes panel": lambda scene: chat(cordoned(scene), "f6"),
    "approval": lambda scene: chat(broken(scene), "f3", "enter"),
    "lift": lambda scene: lifting(scene),
    "keys": lambda scene: chat(broken(scene), "f1", size=(80, 24)),
    "playbook": lambda scene: chat(scene, message=OpenPlaybook("faulty_node"), size=(80, 24)),
    "incident": lambda scene: chat(broken(scene), message=OpenIncident(1)),
    "undo": lambda scene: chat(recovered(scene), "d", "u", message=OpenIncident(1)),
    "recovery": lambda scene: chat(failed(scene), "r", message=OpenIncident(1), size=(80, 24)),
    "report": lambda scene: chat(broken(scene), "o", message=OpenIncident(1), size=(80, 12)),
    "curves": lambda scene: chat(broken(scene), "c", message=OpenIncident(1)),
    "plot": plotted,
    "job": lambda scene: chat(broken(scene), message=OpenJob("1")),
    "node": lambda scene: chat(broken(scene), message=OpenNodes("node02")),
    "log": lambda scene: log(scene, numbered(scene)),
    "died": lambda scene: log(scene, died(scene), cited=[LogCitation(1003, "root"), LogCitation(500, "cascade")]),
    "ranks": lambda scene: log(scene, *of_ranks(scene, 3)),
    "histogram": lambda scene: log(scene, *of_ranks(scene, 24), keys=["p", "p"]),
}


# --- what is read


def _focused(app: App[Any]) -> Any:
    return app.screen.focused


def _scrolled(app: App[Any]) -> VerticalScroll:
    return app.screen.query(VerticalScroll).first()


def _where(box: Any) -> str:
    return "top" if box.scroll_y <= 0 else "end" if box.is_vertical_scroll_end else "within"


def _panel(app: Any) -> str:
    found = [one.id for one in _focused(app).ancestors if (one.id or "").startswith("panel-")] if _focused(app) else []
    return found[0].removeprefix("panel-") if found else ""


def _item(app: App[Any]) -> int:
    """Return how many things that can be opened stand above the cursor; -1 for the last one."""
    found = _focused(app)
    able = [at for at in range(found.option_count) if not found.get_option_at_index(at).disabled]
    place = able.index(found.highlighted)
    return -1 if place == len(able) - 1 else place


def _view(app: App[Any]) -> LogView:
    return app.screen.query_one(LogView)


def _zoom(app: App[Any]) -> float:
    """Return which share of all steps the plot shows."""
    shown, (low, high) = _focused(app), WHOLE[app]
    return float((shown._x_max - shown._x_min) / (high - low))


def _off_centre(app: App[Any]) -> bool:
    shown, (low, high) = _focused(app), WHOLE[app]
    return bool(abs((shown._x_max + shown._x_min) - (low + high)) > 0.02 * (high - low))


READS: Mapping[str, Callable[[Scene, Any], Any]] = {
    "screen": lambda _, app: type(app.screen).__name__,
    "focus": lambda _, app: type(_focused(app)).__name__,
    "panel": lambda _, app: _panel(app),
    "theme": lambda _, app: app.theme,
    "left": lambda _, app: app._exit,
    "clipboard": lambda _, app: app.clipboard,
    "notified": lambda _, app: "\n".join(notice.message for notice in app._notifications),
    "edge": lambda _, app: str(_focused(app).border_subtitle),
    "prompt": lambda _, app: app.main.query_one(Prompt).text,
    "offered": lambda _, app: app.main.query_one(Completion).is_open,
    "offer": lambda _, app: app.main.query_one(Completion).highlighted,
    "asked": lambda _, app: len(app.main.query(Exchange)),
    "conversation": lambda _, app: _where(app.main.query_one(Conversation)),
    "row": lambda _, app: app.main.query_one("#panel-happened").query_one(Rows).cursor_row,
    "branch": lambda _, app: app.main.query_one(NodeTree).cursor_line,
    "open": lambda _, app: app.main.query_one(NodeTree).root.children[0].is_expanded,
    "verdict": lambda scene, _: str(scene.engine.store.approval(1).verdict or ""),
    "scrolled": lambda _, app: round(_scrolled(app).scroll_y),
    "scroll": lambda _, app: _where(_scrolled(app)),
    "tab": lambda _, app: app.screen.current_tab,
    "item": lambda _, app: _item(app),
    "further": lambda _, app: _item(app) not in (0, 1),
    "stopped": lambda scene, _: (scene.folder / "stop").exists(),
    "undone": lambda scene, _: any(one.status is CallStatus.UNDONE for one in scene.engine.store.calls(1)),
    "changed": lambda scene, _: len(scene.cluster.changes) > 1,
    "logarithmic": lambda _, app: app.screen.query_one(CurvesView).logarithmic,
    "curve": lambda _, app: app.screen.query_one(CurvesView).current_metric,
    "zoomed": lambda _, app: _zoom(app) < 0.97,
    "moved": lambda _, app: _off_centre(app),
    "health": lambda _, app: app.screen.query_one(HealthTable).table.row_count > 0,
    "line": lambda _, app: app.number,
    "rows": lambda _, app: _view(app).state.rows,
    "following": lambda _, app: _view(app).following,
    "left_by": lambda _, app: _view(app)._first_column,
    "wrap": lambda _, app: _view(app).wrap,
    "merged": lambda _, app: _view(app).state.merged,
    "asks": lambda _, app: app.screen._asking,
    "bar": lambda _, app: app.screen.query_one(RankHistogram).cursor,
    "only": lambda _, app: sorted(_view(app).state.ranks),
}
"""What a case names, read from the application and the scene."""
WHOLE: dict[Any, tuple[float, float]] = {}
"""The first and the last step that a plot shows by itself."""


def reads(scene: Scene, app: Any, wanted: Mapping[str, Any]) -> dict[str, Any]:
    """Return what is so now of what is wanted; what cannot be read on this screen is left out."""
    found = {}
    for name in wanted:
        try:
            found[name] = READS[name](scene, app)
        except (NightshiftError, NoMatches, AttributeError, LookupError) as error:  # another screen than the one that is wanted
            found[name] = f"cannot be read: {type(error).__name__}"
    return found


def fits(found: Mapping[str, Any], wanted: Mapping[str, Any]) -> bool:
    return all(
        value[1:] in str(found[name]) if isinstance(value, str) and value.startswith("~") else found[name] == value
        for name, value in wanted.items()
    )


def _is_read(app: Any) -> bool:
    counted = all(one.bars for one in app.screen.query(RankHistogram) if one.has_focus)
    return counted and getattr(app.screen, "snapshot", True) is not None


async def press(pilot: Pilot[Any], key: str) -> None:
    """Press a key; in a dialog that leads to a change as somebody does who means it: alone, after a look."""
    dialog = pilot.app.screen
    clock = pilot.app.backend.clock if isinstance(dialog, ConsentScreen) else None  # type: ignore[attr-defined]
    if isinstance(dialog, ConsentScreen) and clock is not None:
        await seen(pilot, type(dialog), clock)
    await pilot.press(key)
    await pilot.pause()
    if clock is not None:
        clock.sleep(PAUSE_S)


async def pressed(pilot: Pilot[Any], key: str) -> None:
    """Press a key and wait until what it opened is there."""
    await press(pilot, key)
    await pilot.pause()
    await until(pilot, lambda: _is_read(pilot.app))


@pytest.mark.parametrize("walk", WALKS, ids=[f"{walk['of']}-{number}" for number, walk in enumerate(WALKS)])
async def test_every_key_does_what_its_case_says(walk: Mapping[str, Any], scene: Scene) -> None:
    async with WORLDS[walk["world"]](scene) as (world, app, pilot):
        for key, wanted, *before in walk["steps"]:
            for one in " ".join(before).split():
                await pressed(pilot, one)
            await until(
                pilot,
                lambda wanted=wanted: not fits(reads(world, app, wanted), wanted),  # type: ignore[misc]
                f"anything but {wanted} before {key}",
            )
            await press(pilot, key)
            await until(
                pilot,
                lambda wanted=wanted: fits(reads(world, app, wanted), wanted),  # type: ignore[misc]
                f"{key}: {wanted}, found {reads(world, app, wanted)}",
            )
            if app._exit:
                return
            await until(pilot, lambda: _is_read(app))
