"""Pictures of screens, compared with those that are kept: `NIGHTSHIFT_PICTURES=write pytest …` keeps what is seen now."""

from __future__ import annotations

import os
import re
from importlib.metadata import version
from pathlib import Path

from textual.app import App

KEPT = Path(__file__).parent / "pictures"
MADE_WITH = KEPT / "made_with.txt"
"""What drew the pictures: another version may draw the same screen otherwise, and then they say nothing."""
_CHANCE = re.compile(r"terminal-\d+-")
"""Textual names styles and clips after a checksum of the whole picture: a small change would touch every line."""


def drawn_by() -> str:
    """Return what draws here."""
    return "".join(f"{name} {version(name)}\n" for name in ("rich", "textual"))


def other_drawer() -> str:
    """Return why the kept pictures cannot be compared with what is drawn here; empty when they can."""
    if os.environ.get("NIGHTSHIFT_PICTURES") == "write" or not MADE_WITH.exists():
        return ""
    made, here = MADE_WITH.read_text(encoding="utf-8"), drawn_by()
    return "" if made == here else f"the pictures are of {made.split()}, here is {here.split()}: make pictures"


def picture_of(app: App[int]) -> str:
    """Return what is on the screen as SVG, without what is different by chance."""
    return _CHANCE.sub("terminal-", app.export_screenshot()).strip() + "\n"


def compare(app: App[int], name: str, seen_in: Path) -> None:
    """Compare the screen with the kept picture of a name.

    Args:
        app: As it stands.
        name: Of the file, without `.svg`.
        seen_in: Where to leave what is seen, when it differs.

    Raises:
        AssertionError: They differ, or there is none; the message says where both are.
    """
    seen, path = picture_of(app), KEPT / f"{name}.svg"
    if os.environ.get("NIGHTSHIFT_PICTURES") == "write":
        path.parent.mkdir(exist_ok=True)
        MADE_WITH.write_text(drawn_by(), encoding="utf-8")
        path.write_text(seen, encoding="utf-8")
        return
    if not path.exists() or path.read_text(encoding="utf-8") != seen:
        left = seen_in / f"{name}.svg"
        left.write_text(seen, encoding="utf-8")
        raise AssertionError(f"the screen is not as in {path}; it is in {left}. When it is right: make pictures")
