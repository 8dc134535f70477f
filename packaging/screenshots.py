"""Write the pictures of docs/chat.md from a real night: `python packaging/screenshots.py docs/pictures`.

A real job dies beside it, as in `nightshift demo --chat`; the application is the real one, without a terminal.
"""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path

from textual.pilot import Pilot

from assistant.content.faults import find_fault
from assistant.demo import job
from assistant.tui.app import ChatApp
from assistant.tui.launch import app_on
from assistant.tui.screens.incident import IncidentScreen

PATIENCE_S = 120.0
SIZE = (120, 36)
HERE = str(Path(__file__).parents[1])
"""Stands in tracebacks; a picture shows a path of the same length that is nobody's."""
ELSEWHERE = "/opt/nightshift".ljust(len(HERE), "/")[: len(HERE)]


async def until(pilot: Pilot[int], holds: Callable[[], object]) -> None:
    """Let the application work until something holds."""
    for _ in range(int(PATIENCE_S / 0.1)):
        if holds():
            await pilot.pause(0.4)
            return
        await pilot.pause(0.1)
    raise TimeoutError("the night did not come that far; see watch.log in its folder")


async def take(app: ChatApp, out: Path) -> None:
    """Go through the night and take a picture of each screen."""

    def picture(name: str) -> None:
        seen = app.export_screenshot(title="nightshift chat").replace(HERE, ELSEWHERE)
        (out / f"{name}.svg").write_text(seen, encoding="utf-8")

    def approvals() -> int:
        return len(app.store_snapshot.approvals) if app.store_snapshot is not None else 0

    async with app.run_test(size=SIZE) as pilot:
        await until(pilot, lambda: app.cluster_snapshot is not None and any(job.started for job in app.cluster_snapshot.jobs))
        picture("calm")
        await until(pilot, approvals)
        for sign in "why did job 1 die?":
            await pilot.press({" ": "space", "?": "question_mark"}.get(sign, sign))
        await pilot.press("enter")
        await pilot.pause(3)
        picture("failure")
        await pilot.press("f2", "enter")
        await until(pilot, lambda: isinstance(app.screen, IncidentScreen))
        await pilot.pause(1.5)
        picture("incident")
        await pilot.press("4")
        await pilot.pause(1.5)
        picture("curves")
        await pilot.press("l")
        await pilot.pause(2)
        picture("log")
        await pilot.press("escape", "escape", "f3", "enter")
        await pilot.pause(1)
        picture("approval")
        await pilot.pause(1.0)  # an answer counts only where it stands alone
        await pilot.press("y")
        await pilot.pause(1.0)
        await until(
            pilot, lambda: approvals() and app.store_snapshot is not None and app.store_snapshot.approvals[0].approval.id == 2
        )
        await pilot.press("f3", "enter")
        await pilot.pause(0.5)
        await pilot.pause(1.0)  # an answer counts only where it stands alone
        await pilot.press("y")
        await pilot.pause(1.0)
        await until(pilot, lambda: app.store_snapshot is not None and not app.store_snapshot.unfinished)
        await pilot.press("ctrl+t")
        await pilot.pause(0.5)
        picture("light")


def main(out: Path) -> int:
    """Write them all."""
    out.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="nightshift-night-") as name:
        folder, fault = Path(name), find_fault("ecc")
        settings = job.prepare(folder)
        with job.watched(fault, folder):
            asyncio.run(take(app_on(settings), out))
    return 0


if __name__ == "__main__":
    raise SystemExit(main(Path(sys.argv[1])))
