"""Pictures of screens, compared with those that are kept: `NIGHTSHIFT_PICTURES=write pytest …` keeps what is seen now."""

from __future__ import annotations

import os
import re
from importlib.metadata import version
from pathlib import Path

from textual.app import App
from textual.pilot import Pilot

KEPT = Path(__file__).parent / "pictures"
MADE_WITH = KEPT / "made_with.txt"
"""What drew the pictures: another version may draw the same screen otherwise, and then they say nothing."""
WRITES = os.environ.get("NIGHTSHIFT_PICTURES") == "write"
PATIENCE_S, LOOK_S = 10.0, 0.05
STILL = 8
"""Looks in a row that must show the same before a picture is kept."""
_CHANCE = re.compile(r"terminal-\d+-")
"""Textual names styles and clips after a checksum of the whole picture: a small change would touch every line."""


_DIGEST = re.compile(r"(?<=sha256:)[0-9a-f]{32}|(?<=policy&#160;)[0-9a-f]{8}")
"""Digests of texts in which temporary paths stand, the policy's among them."""


def drawn_by() -> str:
    """Return what draws here."""
    return "".join(f"{name} {version(name)}\n" for name in ("rich", "textual"))


def other_drawer() -> str:
    """Return why the kept pictures cannot be compared with what is drawn here; empty when they can."""
    if WRITES or not MADE_WITH.exists():
        return ""
    made, here = MADE_WITH.read_text(encoding="utf-8"), drawn_by()
    return "" if made == here else f"the pictures are of {made.split()}, here is {here.split()}: make pictures"


def picture_of(app: App[int], by_chance: str = "") -> str:
    """Return what is on the screen as SVG, without what is different by chance, such as a random name."""
    drawn = _DIGEST.sub(lambda match: "0" * len(match.group()), _CHANCE.sub("terminal-", app.export_screenshot()).strip() + "\n")
    return drawn.replace(by_chance, "0" * len(by_chance)) if by_chance else drawn


async def compare(pilot: Pilot[int], name: str, seen_in: Path, by_chance: str = "") -> None:
    """Wait until the screen looks as the kept picture of a name.

    Args:
        pilot: Of the application.
        name: Of the file, without `.svg`.
        seen_in: Where to leave what is seen, when it stays different.
        by_chance: A name of always the same length that differs from run to run.

    Raises:
        AssertionError: It does, or there is no picture; the message says where both are.
    """
    path = KEPT / f"{name}.svg"
    if WRITES:
        path.parent.mkdir(exist_ok=True)
        MADE_WITH.write_text(drawn_by(), encoding="utf-8")
        path.write_text(await _still(pilot, by_chance), encoding="utf-8")
        return
    kept = path.read_text(encoding="utf-8") if path.exists() else ""
    seen = picture_of(pilot.app, by_chance)
    for _ in range(int(PATIENCE_S / LOOK_S)):
        if seen == kept:
            return
        await pilot.pause(LOOK_S)
        seen = picture_of(pilot.app, by_chance)
    left = seen_in / f"{name}.svg"
    left.write_text(seen, encoding="utf-8")
    raise AssertionError(f"the screen is not as in {path}; it is in {left}. When it is right: make pictures")


async def _still(pilot: Pilot[int], by_chance: str) -> str:
    """Return the picture once nothing moves any more."""
    same, before = 0, ""
    for _ in range(int(PATIENCE_S / LOOK_S)):
        await pilot.pause(LOOK_S)
        now = picture_of(pilot.app, by_chance)
        same, before = (same + 1 if now == before else 0), now
        if same == STILL:
            return now
    raise AssertionError("the screen never comes to rest")
