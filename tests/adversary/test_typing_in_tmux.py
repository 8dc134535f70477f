"""The sentence that once drained a node, typed into a real terminal: `Allow...` on a card, Esc, Enter, "why node2"."""

from __future__ import annotations

import re
from pathlib import Path

from assistant.ports import SystemClock
from assistant.records import Verdict
from assistant.store import Store
from tests.tui.in_tmux import IN_TMUX, Screen, demo_screen  # noqa: F401 - the fixture

pytestmark = IN_TMUX


def test_a_question_typed_after_a_dialog_was_left_goes_to_the_prompt(screen: Screen, tmp_path: Path) -> None:
    screen.until("Nothing is wrong")
    screen.until(lambda text: re.search(r"waiting \(1\)\s+ecc_error", text))
    screen.keys(*"cordon", "Space", *"node03", "Enter")
    screen.until("Allow…")
    screen.keys("BTab", "BTab", "BTab", "Enter")
    screen.until("Approval 2")
    screen.keys("Escape")
    screen.until(lambda text: "Approval 2" not in text)
    screen.keys("Enter", *"why", "Space", *"node2")
    screen.until("why node2")
    screen.keys("Enter")
    # the same into the dialog itself, letter by letter and all at once
    screen.keys("F3", "Enter")
    screen.until("Approval 1")
    screen.keys(*"why", "Space", *"node2", "Enter")
    screen.keys("why node2y")
    screen.until("nothing was answered")
    screen.keys("Escape")
    stores = list((tmp_path / "night").rglob("nightshift.db"))
    assert stores
    with Store(stores[0], SystemClock()) as store:
        assert [one.verdict for one in store.approvals(pending_only=False)] == [None, None]
    # and what is meant is done
    screen.keys("F3", "Enter")
    screen.until("Approval 1")
    screen.answer("y")
    with Store(stores[0], SystemClock()) as store:
        assert store.approval(1).verdict is Verdict.ALLOW
    screen.keys("C-q")
    assert screen.left() == "0"
