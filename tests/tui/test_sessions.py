"""Conversations that are kept: written as they go, read again, gone on with, shared."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from assistant.agent.answer import Answer, AnswerKind, AnswerSource, Proposal
from assistant.errors import UsageError
from assistant.tui.launch import conversation_name
from assistant.tui.sessions import (
    MOST_SESSIONS,
    MOST_TYPED,
    MOST_VALUE,
    TYPED_KEPT,
    SessionEntry,
    SessionEntryKind,
    Talks,
    exported,
)
from tests.scenarios.scene import START, Scene
from tests.tui.conftest import opened
from tests.tui.typing_in import answered, conversation, say, seen_text
from tests.tui.waiting import until

SECRET = "AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMIK7MDENGbPxRfiCYEXAMPLEKEY"
ANSWER = Answer(
    "Job 1: ecc_error [1].\nWhat shows it:\n  ```[red]*bold*</b>\n  1. loss ![x](http://evil)",
    AnswerKind.PROPOSAL,
    "semantic",
    "explain_job",
    0.99,
    (AnswerSource(1, "show_job", {"job": "1"}, {"state": "failed"}), AnswerSource(2, "tail_log", {"job": "1"}, None, "no log yet")),
    (3, 4),
    (1,),
    (Proposal("cordon_node", {"node": "node02"}, "scontrol update NodeName=node02 State=DRAIN", 7),),
    ("status of job 1",),
    ("node03 did not answer",),
    begun="Job 1 died of an",
)


def entries() -> list[SessionEntry]:
    return [
        SessionEntry(START, SessionEntryKind.TYPED, 1, "why did job 1 die?"),
        SessionEntry(START, SessionEntryKind.ANSWERED, 1, answer=ANSWER),
        SessionEntry(START, SessionEntryKind.SETTLED, 1, "approval 7: refused by alice"),
        SessionEntry(START, SessionEntryKind.TYPED, 2, "what about the other?"),
        SessionEntry(START, SessionEntryKind.FAILED, 2, "the store is locked"),
        SessionEntry(START, SessionEntryKind.NOTED, 3, "# Incident 1\n\ntext"),
    ]


@pytest.fixture
def talks(tmp_path: Path) -> Talks:
    return Talks(tmp_path / "conversations")


def test_what_was_kept_is_read_again_as_it_was(talks: Talks) -> None:
    for entry in entries():
        talks.add("night", entry)
    assert talks.entries("night") == entries()


def test_files_are_for_their_owner_only(talks: Talks) -> None:
    talks.add("night", entries()[0])
    talks.add_typed("/jobs")
    assert stat.S_IMODE(talks.folder.stat().st_mode) == 0o700
    assert {stat.S_IMODE(path.stat().st_mode) for path in talks.folder.iterdir()} == {0o600}


def test_a_line_that_a_crash_cut_short_is_dropped_and_the_next_one_is_whole(talks: Talks) -> None:
    for entry in entries()[:2]:
        talks.add("night", entry)
    path = talks.folder / "night.jsonl"
    path.write_bytes(path.read_bytes()[:-40])
    assert talks.entries("night") == entries()[:1]
    talks.add("night", entries()[3])
    assert talks.entries("night") == [entries()[0], entries()[3]]


@pytest.mark.parametrize("rubbish", [b"\xff\xfe\x00", b"null", b"[]", b'{"at": 1}', b"\x00" * 100, b'{"at":"x","what":"said"}'])
def test_rubbish_between_lines_is_left_out(talks: Talks, rubbish: bytes) -> None:
    talks.add("night", entries()[0])
    with (talks.folder / "night.jsonl").open("ab") as file:
        file.write(rubbish + b"\n")
    talks.add("night", entries()[3])
    assert talks.entries("night") == [entries()[0], entries()[3]]


def test_no_secret_gets_into_a_file(talks: Talks) -> None:
    source = AnswerSource(1, "tail_log", {"job": "1"}, f"env: {SECRET}")
    talks.add("night", SessionEntry(START, SessionEntryKind.TYPED, 1, f"I set {SECRET}, why does it fail?"))
    talks.add("night", SessionEntry(START, SessionEntryKind.ANSWERED, 1, answer=replace(ANSWER, sources=(source,))))
    talks.add_typed(f"why {SECRET}")
    kept = b"".join(path.read_bytes() for path in talks.folder.iterdir())
    assert b"wJalrXUtnFEMI" not in kept
    assert b"[redacted]" in kept


def test_a_long_source_is_cut(talks: Talks) -> None:
    source = AnswerSource(1, "tail_log", {"job": "1"}, "line\n" * 100_000)
    talks.add("night", SessionEntry(START, SessionEntryKind.ANSWERED, 1, answer=replace(ANSWER, sources=(source,))))
    (kept,) = talks.entries("night")
    assert kept.answer is not None
    assert len(kept.answer.sources[0].value) < MOST_VALUE + 100


def test_only_the_newest_are_kept(talks: Talks) -> None:
    for number in range(MOST_SESSIONS + 5):
        talks.add(f"talk-{number:02}", entries()[0])
        os.utime(talks.folder / f"talk-{number:02}.jsonl", (number, number))
    talks.add("newest", entries()[0])
    names = [one.name for one in talks.names()]
    assert len(names) == MOST_SESSIONS
    assert names[0] == "newest"
    assert "talk-05" not in names


@pytest.mark.parametrize("name", ["../evil", "", ".typed", "a/b", "a b", "x" * 65, "näme", "-x"])
def test_a_name_cannot_lead_elsewhere(talks: Talks, name: str) -> None:
    with pytest.raises(UsageError, match="no name for a conversation"):
        talks.add(name, entries()[0])


def test_a_link_in_the_folder_is_not_followed(talks: Talks, tmp_path: Path) -> None:
    talks.folder.mkdir()
    (talks.folder / "night.jsonl").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(OSError, match="symbolic link"):
        talks.add("night", entries()[0])
    assert not (tmp_path / "elsewhere").exists()


def test_what_was_typed_is_cut_when_it_is_much(talks: Talks) -> None:
    for number in range(MOST_TYPED + 1):
        talks.add_typed(f"line {number}")
    assert talks.typed()[-1] == f"line {MOST_TYPED}"
    assert len(talks.typed()) == TYPED_KEPT


def test_a_new_conversation_is_named_by_the_time_and_never_takes_a_name_again(talks: Talks) -> None:
    name = conversation_name(talks, "", resume=False, now=START)
    talks.add(name, entries()[0])
    assert conversation_name(talks, "", resume=False, now=START) == f"{name}-2"
    with pytest.raises(UsageError, match=f"--resume {name}"):
        conversation_name(talks, name, resume=False, now=START)


def test_without_a_name_the_newest_is_gone_on_with(talks: Talks) -> None:
    with pytest.raises(UsageError, match="no conversation to go on with"):
        conversation_name(talks, "", resume=True, now=START)
    talks.add("old", entries()[0])
    os.utime(talks.folder / "old.jsonl", (1, 1))
    talks.add("new", entries()[0])
    assert conversation_name(talks, "", resume=True, now=START) == "new"
    assert conversation_name(talks, "old", resume=True, now=START) == "old"
    with pytest.raises(UsageError, match="the newest: new, old"):
        conversation_name(talks, "none", resume=True, now=START)


def test_an_export_can_be_shared() -> None:
    hostile = "\x1b[31mred\x1b[0m \u202eevil\u202c <script>alert(1)</script> " + SECRET
    page = exported(
        "night", [*entries(), SessionEntry(START + timedelta(hours=1), SessionEntryKind.TYPED, 4, hostile)], {7: "deny by chat:bob"}
    )
    assert "wJalrXUtnFEMI" not in page
    assert not [sign for sign in page if sign in "\x1b\u202e\u202c"]
    assert "\\<script>" in page
    for part in ("why did job 1 die?", "scontrol update NodeName=node02 State=DRAIN", "deny by chat:bob", "`show_job(job=1)`"):
        assert part in page
    assert "> Job 1 died of an\n" in page
    for part in ("no log yet", "node03 did not answer", "evidence 3, 4", "the store is locked", "2026-01-05 02:00:00 UTC"):
        assert part in page


def test_what_is_quoted_cannot_leave_its_block() -> None:
    page = exported("night", entries(), {})
    quoted = page[page.index("````text") : page.index("````", page.index("````text") + 4)]
    assert "```[red]*bold*</b>" in quoted
    assert "![x]" in quoted


def test_a_model_s_pictures_and_tags_are_tamed() -> None:
    said = replace(ANSWER, mode="model:x", text="**Bold** ![p](http://evil/p.png) <img src=x>", proposals=(), sources=())
    page = exported("night", [SessionEntry(START, SessionEntryKind.ANSWERED, 1, answer=said)], {})
    assert "**Bold**" in page
    assert "\\![p]" in page
    assert "<img" not in page


async def test_a_conversation_is_shown_again_and_gone_on_with(broken: Scene) -> None:
    talks = Talks(broken.folder / "conversations")
    async with opened(broken, talks=talks, thread="night") as (app, pilot):
        await say(pilot, "why did job 1 die?")
        await answered(pilot, 1)
        await say(pilot, "cordon node02")
        await answered(pilot, 2)
    async with opened(broken, talks=talks, thread="night") as (app, pilot):
        await until(pilot, lambda: len(conversation(app).entries) == 4, "what was kept")
        await until(pilot, lambda: "ecc_error" in seen_text(app), "the answer")
        assert "why did job 1 die?" in seen_text(app)
        await pilot.press("up")
        assert app.main.query_one("#prompt").text == "cordon node02"  # type: ignore[attr-defined]
        await pilot.press("ctrl+c")
        await say(pilot, "what is wrong now?")
        await answered(pilot, 3)
    assert [entry.question for entry in talks.entries("night")] == [1, 1, 2, 2, 3, 3]


async def test_one_leaves_a_conversation_for_a_new_one_and_comes_back(broken: Scene) -> None:
    talks = Talks(broken.folder / "conversations")
    async with opened(broken, talks=talks, thread="first") as (app, pilot):
        await say(pilot, "what is wrong now?")
        await answered(pilot, 1)
        await say(pilot, "/new second")
        await until(pilot, lambda: app.talk.name == "second" and not conversation(app).entries, "the new one")
        assert app.backend.thread == "second"
        await say(pilot, "which jobs failed?")
        await answered(pilot, 2)
        await say(pilot, "/resume")
        await until(pilot, lambda: app.talk.name == "first" and "what is wrong now?" in seen_text(app), "the first one")
        assert "which jobs failed?" not in [entry.text for entry in conversation(app).entries]
        await say(pilot, "/new first")
        await until(pilot, lambda: any("already" in one.message for one in app._notifications), "the refusal")
    assert {one.name for one in talks.names()} == {"first", "second"}


async def test_a_chat_whose_folder_cannot_be_written_goes_on_and_says_so_once(broken: Scene, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    async with opened(broken, talks=Talks(tmp_path / "file" / "conversations"), thread="night") as (app, pilot):
        for number, text in enumerate(("what is wrong now?", "which jobs failed?"), 1):
            await say(pilot, text)
            await answered(pilot, number)
        await until(pilot, lambda: any("may not be kept" in one.message for one in app._notifications), "what does not work")
        assert len([one for one in app._notifications if "may not be kept" in one.message]) == 1


async def test_an_export_is_written_beside_and_never_over_a_file(broken: Scene, tmp_path: Path) -> None:
    talks = Talks(broken.folder / "conversations")
    page = tmp_path / "page.md"
    async with opened(broken, talks=talks, thread="night") as (app, pilot):
        await say(pilot, f"/export {page}")
        await until(pilot, lambda: "nothing to export" in seen_text(app), "that there is nothing")
        await say(pilot, "cordon node03")
        await answered(pilot, 2)
        await until(pilot, lambda: app.store_snapshot and len(app.store_snapshot.approvals) == 2, "the question")
        await say(pilot, "/deny 2 not now")
        await until(pilot, lambda: app.store_snapshot and len(app.store_snapshot.approvals) == 1, "the refusal")
        await say(pilot, f"/export {page}")
        await until(pilot, page.exists, "the file")
        await until(pilot, lambda: "Written" in seen_text(app), "what was written")
        first = page.read_text()
        await say(pilot, f"/export {page}")
        await until(pilot, lambda: "there already" in seen_text(app), "the refusal to write over it")
    assert page.read_text() == first
    assert "deny by chat:alice (not now)" in first
    assert "cordon node03" in first
