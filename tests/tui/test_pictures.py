"""What the screens look like, compared with kept pictures: each size dark, light and without colour. See `make pictures`."""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, TextArea

from assistant.policy import Mode
from assistant.records import Event, EventKind
from assistant.tui.app import ChatApp
from assistant.tui.frame import DARK, LIGHT
from assistant.tui.logs.view import LogView
from assistant.tui.screens.changes import RecoveryScreen
from assistant.tui.screens.log import LogScreen
from assistant.tui.screens.records import TabbedScreen
from tests.scenarios.scene import Scene
from tests.tui.conftest import opened
from tests.tui.pictures import compare, other_drawer
from tests.tui.waiting import until

SIZES = ((80, 24), (120, 40), (200, 60))
LOOKS = ("dark", "light", "no-colour")
TOUR = (
    ("main", (), False),
    ("wrong", ("f2",), True),
    ("inbox", ("escape", "f3", "f3"), True),
    ("approval", ("escape", "f3", "enter"), False),
    ("incident", ("escape", "escape", "f2", "enter"), False),
    ("playbook", ("5",), True),
    ("log", ("1", "l"), False),
    ("keys", ("escape", "escape", "escape", "f1"), True),
)
"""Screens one after the other: the keys that lead from one to the next, and whether one look is enough."""


pytestmark = [pytest.mark.slow, pytest.mark.skipif(bool(other_drawer()), reason=other_drawer())]


@pytest.fixture(autouse=True)
def _same_everywhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Take out what differs from machine to machine and from moment to moment."""
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.delenv("NO_COLOR", raising=False)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture(params=SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def size(request: pytest.FixtureRequest) -> tuple[int, int]:
    """Columns and rows of the terminal."""
    found: tuple[int, int] = request.param
    return found


@pytest.fixture(params=LOOKS)
def look(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """How the terminal is coloured."""
    found: str = request.param
    if found == "no-colour":
        monkeypatch.setenv("NO_COLOR", "1")
    return found


@pytest.fixture
def short_folder() -> Iterator[Path]:
    """A folder whose path, which the screen shows, is everywhere of the same length."""
    with tempfile.TemporaryDirectory(prefix="scene-", dir="/tmp") as name:
        yield Path(name)


def at_rest(app: ChatApp) -> bool:
    """Tell whether all that the screen reads is there."""
    for blinking in (*app.screen.query(Input), *app.screen.query(TextArea)):
        blinking.cursor_blink = False
    if isinstance(app.screen, LogScreen):
        view = app.screen.query_one(LogView)
        return view.row is not None and view.state.numbered and not view.state.doing
    return not isinstance(app.screen, TabbedScreen) or getattr(app.screen, "snapshot", None) is not None


def _put_on(app: ChatApp, look: str) -> None:
    app.theme, app.animation_level = LIGHT.name if look == "light" else DARK.name, "none"


async def walked(app: ChatApp, pilot: Pilot[int], keys: tuple[str, ...]) -> None:
    for key in keys:
        await until(pilot, lambda: at_rest(app), "all that is read")
        await pilot.press(key)
        await pilot.pause()
    await until(pilot, lambda: at_rest(app), "all that is read")


async def test_screens_look_as_they_did(broken: Scene, size: tuple[int, int], look: str, tmp_path: Path) -> None:
    async with opened(broken, size) as (app, pilot):
        _put_on(app, look)
        await until(pilot, lambda: app.talk.answers, "who answers")
        for screen, keys, once in TOUR:
            await walked(app, pilot, keys)
            if look == "dark" or not once:
                await compare(pilot, f"{screen}-{size[0]}x{size[1]}-{look}", tmp_path)


async def test_the_plan_of_a_recovery_looks_as_it_did(short_folder: Path, size: tuple[int, int], look: str, tmp_path: Path) -> None:
    scene = Scene(short_folder, mode=Mode.PROPOSE)
    scene.cluster.submit(scene.spec)
    scene.clock.sleep(120)
    scene.engine.open(Event(EventKind.JOB_ENDED, "1", None, scene.clock.now()))
    async with opened(scene, size) as (app, pilot):
        _put_on(app, look)
        await walked(app, pilot, ("f2", "enter", "r"))
        await until(pilot, lambda: isinstance(app.screen, RecoveryScreen), "the plan")
        await compare(pilot, f"recovery-{size[0]}x{size[1]}-{look}", tmp_path, short_folder.name)


async def test_a_quiet_night_looks_as_it_did(scene: Scene, tmp_path: Path) -> None:
    async with opened(scene) as (app, pilot):
        await until(pilot, lambda: app.talk.answers, "who answers")
        await walked(app, pilot, ())
        await compare(pilot, "calm-120x40-dark", tmp_path)
