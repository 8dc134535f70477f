"""The prompt as a shell's: names are completed, what was typed is searched, other programs get the terminal."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest

from assistant.agent.answer import MOST_CHARACTERS
from assistant.errors import UsageError
from assistant.tui.app import ChatApp
from assistant.tui.commands import ArgumentValue, Takes
from assistant.tui.messages import OpenIncident
from assistant.tui.outside_programs import program_words
from assistant.tui.screens.main import ReportScreen
from assistant.tui.widgets.prompt import common_beginning, history_offers, name_offers
from assistant.tui.widgets.tables import Completion
from tests.scenarios.scene import Scene
from tests.tui.conftest import opened
from tests.tui.typing_in import answered, prompt, say
from tests.tui.waiting import until

NAMES = {
    Takes.JOB: ("4821", "4830", "77"),
    Takes.JOB_NAME: ("llm-pretrain", "llm-eval", "llm-pretrain"),
    Takes.NODE: ("node02", "node03", "gpu01"),
    Takes.USER: ("alice", "albert"),
    Takes.INCIDENT: ("3", "12"),
    Takes.APPROVAL: ("7",),
}


def existing(kind: Takes) -> Iterable[ArgumentValue]:
    return (ArgumentValue(name) for name in NAMES[kind])


OFFERS: tuple[tuple[str, list[str]], ...] = (
    ("why did 48", ["why did 4821", "why did 4830"]),
    ("is node", ["is node02", "is node03"]),
    ("is NODE02", ["is node02"]),
    ("what does al", ["what does alice", "what does albert"]),
    ("how far is llm-p", ["how far is llm-pretrain"]),
    ("explain incident 1", ["explain incident 12"]),
    ("what of 3", []),  # a number alone is not taken for an incident
    ("explain incident ", ["explain incident 3", "explain incident 12"]),
    ("allow approval ", ["allow approval 7"]),
    ("why did ", []),
    ("", []),
    ("is node02", []),  # it is whole
    ("zzz", []),
    ("compare 77 with gp", ["compare 77 with gpu01"]),
    ("is the log (node0", ["is the log (node02", "is the log (node03"]),
)


@pytest.mark.parametrize(("text", "lines"), OFFERS, ids=[text for text, _ in OFFERS])
def test_the_last_word_is_completed_by_what_exists(text: str, lines: list[str]) -> None:
    offers = [offer.line for offer in name_offers(text, existing)]
    assert offers == (lines if text != "is NODE02" else ["is node02"])


def test_the_common_beginning_is_what_is_certain() -> None:
    assert common_beginning(["is node02", "is node03"]) == "is node0"
    assert common_beginning(["a"]) == "a"
    assert common_beginning(["a", "b"]) == ""
    assert common_beginning(["ab", "a"]) == "a"


def test_the_history_is_searched_by_words_newest_first_and_each_line_once() -> None:
    lines = ["why did 1 die?", "cordon node02", "why did 2 die?", "cordon node02"]
    assert [offer.line for offer in history_offers("", lines)] == ["cordon node02", "why did 2 die?", "why did 1 die?"]
    assert [offer.line for offer in history_offers("DIE why", lines)] == ["why did 2 die?", "why did 1 die?"]
    assert history_offers("nothing", lines) == []


def test_the_editor_is_that_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("VISUAL", raising=False)
    monkeypatch.setenv("EDITOR", "emacs -nw")
    assert program_words(("VISUAL", "EDITOR"), "vi") == ["emacs", "-nw"]
    monkeypatch.setenv("VISUAL", "nano")
    assert program_words(("VISUAL", "EDITOR"), "vi") == ["nano"]
    monkeypatch.setenv("VISUAL", " ")
    monkeypatch.delenv("EDITOR")
    assert program_words(("VISUAL", "EDITOR"), "vi") == ["vi"]
    monkeypatch.setenv("VISUAL", "'")
    with pytest.raises(UsageError, match="VISUAL cannot be read"):
        program_words(("VISUAL", "EDITOR"), "vi")


# In the chat.


def notices(app: ChatApp) -> str:
    return "\n".join(notice.message for notice in app._notifications)


@pytest.fixture
def program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A program that keeps what it is given and, as an editor, writes what `types` holds."""
    script, types = tmp_path / "program", tmp_path / "types"
    script.write_text(f'#!/bin/sh\ncat "$1" > {tmp_path}/read\nif [ -e {types} ]; then cat {types} > "$1"; fi\n')
    script.chmod(0o755)
    for name in ("VISUAL", "EDITOR", "PAGER"):
        monkeypatch.setenv(name, str(script))
    return tmp_path


def give_terminal(app: ChatApp, monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the headless application leave its terminal, which it has none of."""

    @contextmanager
    def left() -> Iterator[None]:
        yield

    monkeypatch.setattr(app, "suspend", left)


@pytest.mark.slow
async def test_tab_completes_a_name_in_a_question(broken: Scene) -> None:
    async with opened(broken) as (app, pilot):
        completion = app.main.query_one(Completion)
        await pilot.press(*"is nod", "tab")
        await pilot.pause()
        assert prompt(app).text == "is node0"
        assert [offer.label for offer in completion.offers][:2] == ["node01", "node02"]
        await pilot.press("down", "tab")
        await pilot.pause()
        assert prompt(app).text == "is node02"
        assert not completion.is_open
        await pilot.press(*" ok and ll", "tab")
        assert prompt(app).text == "is node02 ok and llm"
        await pilot.press("enter")
        await answered(pilot, 1)


@pytest.mark.slow
async def test_enter_hands_over_what_was_typed_while_names_are_offered(broken: Scene) -> None:
    async with opened(broken) as (app, pilot):
        await pilot.press(*"node", "tab")
        await until(pilot, lambda: app.main.query_one(Completion).is_open, "the names")
        await pilot.press("enter")
        await until(pilot, lambda: app.talk._last_typed == "node0", "the line as it stood")


@pytest.mark.slow
async def test_tab_without_a_name_leads_on(broken: Scene) -> None:
    async with opened(broken) as (app, pilot):
        await pilot.press(*"zzz", "tab")
        assert not prompt(app).has_focus


@pytest.mark.slow
async def test_ctrl_r_searches_what_was_typed(broken: Scene) -> None:
    async with opened(broken) as (app, pilot):
        for text in ("what is wrong now?", "which jobs failed?", "which nodes are out of service?"):
            await say(pilot, text)
        await answered(pilot, 3)
        completion, entries = app.main.query_one(Completion), len(app.talk._conversation.entries)
        await pilot.press("ctrl+r", *"which")
        await until(pilot, lambda: len(completion.offers) == 2, "the lines")
        await pilot.press("ctrl+r", "enter")
        assert prompt(app).text == "which jobs failed?"
        assert not completion.is_open
        assert len(app.talk._conversation.entries) == entries, "nothing is handed over by taking a line"
        await pilot.press("ctrl+c", *"dra", "ctrl+r")
        await pilot.press("escape")
        assert prompt(app).text == "dra"
        assert prompt(app).has_focus


@pytest.mark.slow
async def test_a_question_is_written_in_the_editor_and_not_handed_over(
    broken: Scene, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (program / "types").write_text("why did\njob 1 \x1b[31mdie?\n\n")
    async with opened(broken) as (app, pilot):
        await pilot.press(*"why", "ctrl+g")
        await until(pilot, lambda: "cannot be left" in notices(app), "that there is no terminal to leave")
        give_terminal(app, monkeypatch)
        await pilot.press("ctrl+g")
        await until(pilot, lambda: prompt(app).text == "why did\njob 1 die?", "what was written")
        assert (program / "read").read_text() == "why"
        assert not app.talk._conversation.entries
        (program / "types").write_text("x" * (MOST_CHARACTERS + 1))
        await pilot.press("ctrl+g")
        await until(pilot, lambda: "nightshift diagnose FILE" in notices(app), "what to do with a log")
        assert prompt(app).text == "why did\njob 1 die?"


@pytest.mark.slow
async def test_an_editor_that_is_missing_or_fails_is_said(broken: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    async with opened(broken) as (app, pilot):
        give_terminal(app, monkeypatch)
        monkeypatch.delenv("VISUAL", raising=False)
        for editor, sentence in (("no-such-editor", "no-such-editor cannot be started"), ("false", "false ended with code 1")):
            monkeypatch.setenv("EDITOR", editor)
            await pilot.press("ctrl+g")
            await until(pilot, lambda sentence=sentence: sentence in notices(app), sentence)  # type: ignore[misc]
        assert app.is_running


@pytest.mark.slow
async def test_an_answer_a_report_and_a_log_are_read_in_the_pager(
    broken: Scene, program: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with opened(broken) as (app, pilot):
        give_terminal(app, monkeypatch)
        await pilot.press("ctrl+o")
        await until(pilot, lambda: "Nothing here is a text" in notices(app), "that there is nothing yet")
        await say(pilot, "why did job 1 die?")
        await answered(pilot, 1)
        await pilot.press("ctrl+o")
        await until(pilot, (program / "read").exists, "the answer")
        assert '"reason": "ecc_error"' in (program / "read").read_text(), "with its sources"
        app.post_message(OpenIncident(1))
        await until(pilot, lambda: getattr(app.screen, "snapshot", None), "the incident")
        await pilot.press("o")
        await until(pilot, lambda: isinstance(app.screen, ReportScreen), "the report")
        await pilot.press("ctrl+o")
        assert "Incident 1: ecc_error" in (program / "read").read_text()
        await pilot.press("escape", "l")
        await until(pilot, lambda: type(app.screen).__name__ == "LogScreen", "the log")
        await pilot.press("ctrl+o")
        log = broken.cluster.jobs()[0].log
        assert log is not None
        assert (program / "read").read_text() == log.read_text()


@pytest.mark.slow
async def test_ctrl_z_suspends_where_the_terminal_can(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    signals: list[int] = []
    async with opened(scene) as (app, pilot):
        await pilot.press("ctrl+z")
        await until(pilot, lambda: "cannot be suspended" in notices(app), "that it cannot")
        monkeypatch.setattr("textual.app.os", SimpleNamespace(kill=lambda _, number: signals.append(number), getpid=lambda: 0))
        monkeypatch.setattr(type(app._driver), "can_suspend", property(lambda _: True))
        await pilot.press("ctrl+z")
        await until(pilot, lambda: signals, "the signal")


@pytest.mark.slow
async def test_ctrl_underscore_takes_back_what_was_typed(scene: Scene) -> None:
    async with opened(scene) as (app, pilot):
        await pilot.press(*"one two", "ctrl+w")
        assert prompt(app).text == "one "
        await pilot.press("ctrl+underscore")
        assert prompt(app).text == "one two"


@pytest.mark.slow
async def test_the_palette_has_the_commands(broken: Scene) -> None:
    from assistant.tui.screens.palette import Commands

    async with opened(broken) as (app, pilot):
        finds = {find.text: find for find in Commands(app.screen).finds(app)}
        assert finds["/jobs"].help == "the jobs"
        finds["/incident N"].open()
        await until(pilot, lambda: prompt(app).text == "/incident ", "the command in the prompt")
        finds["/stop [WHY]"].open()
        await until(pilot, lambda: prompt(app).text == "/stop ", "the command in the prompt")
        assert not (broken.folder / "stop").exists()
        finds["/jobs"].open()
        await until(pilot, lambda: app.main.focused and app.main.focused.parent.id == "panel-jobs", "the panel")  # type: ignore[union-attr]
