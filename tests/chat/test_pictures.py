"""What the main screens look like, compared with kept pictures: three sizes, dark, light, no colour. See `make pictures`."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from textual.pilot import Pilot
from textual.widgets import Input, TextArea

from assistant.doors.chat.app import ChatApp
from assistant.doors.chat.themes import DARK, LIGHT
from tests.chat.conftest import opened
from tests.chat.pictures import compare, other_drawer
from tests.chat.waiting import until
from tests.scenarios.scene import Scene

TRIES = 3
SIZES = ((80, 24), (120, 40), (200, 60))
SCREENS = {
    "main": (),
    "wrong": ("f2",),
    "approval": ("f3", "enter"),
    "incident": ("f2", "enter"),
    "playbook": ("f2", "enter", "5"),
    "log": ("f2", "enter", "l"),
    "keys": ("f1",),
}
"""Keys that lead to a screen."""


pytestmark = pytest.mark.skipif(bool(other_drawer()), reason=other_drawer())


@pytest.fixture(autouse=True)
def _same_everywhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Take out what differs from machine to machine and from moment to moment."""
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.delenv("NO_COLOR", raising=False)
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


async def still(app: ChatApp, pilot: Pilot[int]) -> None:
    """Wait until two looks in a row show the same."""
    for blinking in (*app.screen.query(Input), *app.screen.query(TextArea)):
        blinking.cursor_blink = False
    before = ""
    for _ in range(200):
        await pilot.pause(0.15)
        now = app.export_screenshot()
        if now == before:
            return
        before = now
    raise AssertionError("the screen never comes to rest")


async def taken(scene: Scene, screen: str, size: tuple[int, int], name: str, seen_in: Path, theme: str = DARK.name) -> None:
    colour = os.environ.get("NO_COLOR")
    for more in range(TRIES - 1, -1, -1):
        if colour is not None:
            os.environ["NO_COLOR"] = colour  # Textual takes it out of the environment when an application begins
        try:
            await taken_once(scene, screen, size, name, seen_in, theme)
        except AssertionError:
            # on a busy machine a table may be measured before its last row has come
            if not more:
                raise
        else:
            return


async def taken_once(scene: Scene, screen: str, size: tuple[int, int], name: str, seen_in: Path, theme: str) -> None:
    async with opened(scene, size) as (app, pilot):
        app.theme = theme
        app.animation_level = "none"
        await until(pilot, lambda: "words" in str(app.main.query_one("#status").render()) or size[0] < 100, "who answers")
        for key in SCREENS[screen]:
            await pilot.press(key)
            await still(app, pilot)
        await still(app, pilot)
        compare(app, name, seen_in)


@pytest.mark.parametrize("screen", SCREENS)
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
async def test_screens_look_as_they_did(broken: Scene, screen: str, size: tuple[int, int], tmp_path: Path) -> None:
    await taken(broken, screen, size, f"{screen}-{size[0]}x{size[1]}", tmp_path)


@pytest.mark.parametrize("screen", ["main", "approval", "incident", "log"])
async def test_screens_look_as_they_did_in_the_light(broken: Scene, screen: str, tmp_path: Path) -> None:
    await taken(broken, screen, (120, 40), f"{screen}-light", tmp_path, LIGHT.name)


@pytest.mark.parametrize("screen", ["main", "approval", "incident", "log"])
async def test_screens_look_as_they_did_without_colour(
    broken: Scene, screen: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    await taken(broken, screen, (120, 40), f"{screen}-no-colour", tmp_path)


async def test_a_quiet_night_looks_as_it_did(scene: Scene, tmp_path: Path) -> None:
    await taken(scene, "main", (120, 40), "calm-120x40", tmp_path)
