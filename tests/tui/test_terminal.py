"""What the terminal is told beside the screen: its title, and by choice a bell and a notification."""

from __future__ import annotations

from dataclasses import replace

import pytest

from assistant.config import ChatSettings
from assistant.overall_state import SchedulerFacts, StoreFacts, SystemFacts, judge, longest_gap
from assistant.tui.news import NewsEvent, NewsKind
from assistant.tui.terminal import BELL, TerminalSignals, notification_sequence, title_of, title_sequence
from tests.scenarios.scene import START, Scene
from tests.tui.conftest import opened
from tests.tui.test_news import park
from tests.tui.waiting import until

NOW, GAP = START, longest_gap(30.0)
WATCHED = StoreFacts(leader="watch@here", watch="watch@here", since=START, last_look=START, last_whole_look=START, mode="act")
HANDED_OVER = replace(WATCHED, unacknowledged=2, open_incidents=1)
ANSWERS, SILENT = SchedulerFacts(START), SchedulerFacts(START, "slurmctld does not answer")
TITLES = (
    (SystemFacts(NOW, GAP), "Nightshift"),
    (SystemFacts(NOW, GAP, WATCHED, "", ANSWERS), "Nightshift: nothing is wrong"),
    (SystemFacts(NOW, GAP, StoreFacts(), "", ANSWERS), "Nightshift: no watch"),
    (SystemFacts(NOW, GAP, replace(WATCHED, kill_switch="/etc/nightshift/stop"), "", ANSWERS), "Nightshift: stopped"),
    (SystemFacts(NOW, GAP, WATCHED, "it is locked", ANSWERS), "Nightshift: it is locked"),
    (SystemFacts(NOW, GAP, replace(WATCHED, approvals=1), "", ANSWERS), "Nightshift: 1 waits for you"),
    (
        SystemFacts(NOW, GAP, replace(WATCHED, unacknowledged=2, open_incidents=1), "", ANSWERS),
        "Nightshift: 2 handed over, 1 incident",
    ),
)


@pytest.mark.parametrize(("facts", "title"), TITLES, ids=[case[-1] for case in TITLES])
def test_the_title_is_the_state_and_never_calm_while_something_is_unknown(facts: SystemFacts, title: str) -> None:
    assert title_of(judge(facts)) == title


def test_a_silent_scheduler_is_in_the_title() -> None:
    title = title_of(judge(SystemFacts(NOW, GAP, WATCHED, "", SILENT)))
    assert title.startswith("Nightshift: scheduler silent")


@pytest.mark.parametrize("text", ["\x1b]0;evil\a", "a\nb\x9cc", "\u202etxt", "x" * 5000])
def test_no_text_leaves_its_sequence(text: str) -> None:
    sequences = [title_sequence(text), *(notification_sequence(form, text, in_tmux=False) for form in ("osc9", "osc777"))]
    for sequence in sequences:
        assert sequence.startswith("\x1b]")
        assert sequence.endswith("\a")
        assert not [sign for sign in sequence[1:-1] if not sign.isprintable()]
        assert len(sequence) < 300


def test_a_notification_has_the_form_of_the_terminal() -> None:
    assert notification_sequence("osc9", "node07 waits", in_tmux=False) == "\x1b]9;Nightshift: node07 waits\a"
    assert notification_sequence("osc777", "a; b", in_tmux=False) == "\x1b]777;notify;Nightshift;a, b\a"
    assert notification_sequence("none", "node07 waits", in_tmux=False) == ""
    assert notification_sequence("osc9", "x", in_tmux=True) == "\x1bPtmux;\x1b\x1b]9;Nightshift: x\a\x1b\\"


def test_bell_and_notification_are_off_until_the_settings_say_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TMUX", raising=False)
    event = NewsEvent(NewsKind.APPROVAL, "node07", 1, 2, why="scontrol")
    written: list[str] = []
    TerminalSignals(ChatSettings(), written.append).alarm([event])
    assert written == []
    TerminalSignals(ChatSettings(bell=True, notify="osc9"), written.append).alarm([event])
    assert written == [f"{BELL}\x1b]9;Nightshift: node07 waits for you\a"]


def test_a_form_that_no_terminal_has_is_refused() -> None:
    with pytest.raises(ValueError, match=r"chat\.notify: 'osc7' is unknown; did you mean"):
        ChatSettings(notify="osc7")


@pytest.mark.slow
async def test_title_and_bell_follow_what_waits(scene: Scene) -> None:
    written: list[str] = []
    async with opened(scene, settings=ChatSettings(bell=True)) as (app, pilot):
        await until(pilot, lambda: app.news._mark is not None, "the first look")
        await until(pilot, lambda: app._signals._title == "Nightshift: nothing is wrong", "the title")
        assert app._driver is not None
        app._driver.write = written.append  # type: ignore[method-assign, assignment]
        park(scene, "node07")
        await until(pilot, lambda: title_sequence("Nightshift: 1 waits for you") in written, f"the title; {written}")
        await until(pilot, lambda: BELL in written, "the bell")
        park(scene, "node08")
        await until(pilot, lambda: title_sequence("Nightshift: 2 wait for you") in written, f"the title; {written}")
        assert written.count(BELL) == 1, "a storm rings once"
        scene.clock.sleep(60)
        park(scene, "node09")
        await until(pilot, lambda: written.count(BELL) == 2, "the bell of later")
