"""What the chat says by itself: each event once, many in one line, and at its start what happened while nobody was there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from assistant.policy import Mode
from assistant.records import (
    Call,
    CallStatus,
    Decision,
    Event,
    EventKind,
    Incident,
    IncidentState,
    Risk,
    Verdict,
)
from assistant.store import Approval
from assistant.tui.app import ChatApp
from assistant.tui.messages import OpenIncident
from assistant.tui.news import (
    NewsEvent,
    NewsKind,
    StoreMark,
    event_text,
    events_since,
    events_text,
    is_other_store,
    mark_of,
    since_text,
)
from assistant.tui.screens.changes import ApprovalScreen
from assistant.tui.screens.incident import IncidentScreen
from assistant.tui.sessions import LastUse, SessionEntry, SessionEntryKind, Talks, exported
from assistant.tui.snapshot import ApprovalEntry, IncidentEntry, StoreSnapshot
from assistant.tui.widgets.news import NewsView
from tests.scenarios.scene import START, Scene
from tests.tui.conftest import opened
from tests.tui.typing_in import answered, conversation, prompt, say, seen_text
from tests.tui.waiting import until


def incident(number: int, state: IncidentState, kind: EventKind = EventKind.JOB_ENDED, *, note: str = "") -> IncidentEntry:
    job = None if kind is EventKind.NODE_DOWN else str(4820 + number)
    node = "node07" if job is None else None
    record = Incident(number, state, job, 0, node, kind, START, START, None, None, None, None, None, note)
    return IncidentEntry(record, "ecc_error" if state is not IncidentState.OPEN else "")


def approval(number: int, *, node: str = "node07", by: str = "engine") -> ApprovalEntry:
    command = f"scontrol update NodeName={node} State=DRAIN Reason=fan"
    call = Call(number, 1, "cordon_node", {"node": node}, "its fan", by, START, CallStatus.PENDING, preview=command)
    question = Approval(number, number, "mode.propose", "policy", START, START + timedelta(days=1), None, None, None, "")
    return ApprovalEntry(question, call, Risk.CHANGE, "nightshift undo 1")


def snapshot(*entries: IncidentEntry, approvals: Sequence[ApprovalEntry] = (), at: datetime = START) -> StoreSnapshot:
    return StoreSnapshot(at, tuple(entries), tuple(approvals))


OPEN, RECOVERED, ESCALATED, CLOSED = (
    IncidentState.OPEN,
    IncidentState.RECOVERED,
    IncidentState.ESCALATED,
    IncidentState.CLOSED,
)
LOOKS: tuple[tuple[list[IncidentEntry], list[IncidentEntry], list[str]], ...] = (
    # what was there before, what is there now, what is said
    ([], [incident(1, OPEN)], ["failure"]),
    ([incident(1, OPEN)], [incident(1, IncidentState.WAITING)], []),
    ([incident(1, OPEN)], [incident(1, RECOVERED)], ["recovery"]),
    ([incident(1, OPEN)], [incident(1, ESCALATED)], ["escalation"]),
    ([incident(1, ESCALATED)], [incident(1, ESCALATED, note="again")], []),
    ([incident(1, RECOVERED)], [incident(1, RECOVERED), incident(2, OPEN)], ["failure"]),
    ([], [incident(1, RECOVERED)], ["failure", "recovery"]),
    ([], [incident(1, CLOSED)], []),
    ([], [incident(1, OPEN, EventKind.REQUESTED)], []),
    ([incident(1, OPEN, EventKind.REQUESTED)], [incident(1, RECOVERED, EventKind.REQUESTED)], ["recovery"]),
)


@pytest.mark.parametrize(("before", "now", "kinds"), LOOKS, ids=[str(number) for number in range(len(LOOKS))])
def test_the_difference_of_two_looks_is_what_happened(
    before: list[IncidentEntry], now: list[IncidentEntry], kinds: list[str]
) -> None:
    mark = mark_of(snapshot(*before))
    assert [str(event.kind) for event in events_since(mark, snapshot(*now))] == kinds
    assert events_since(mark_of(snapshot(*now), mark), snapshot(*now)) == [], "each event once"


def test_a_lease_that_changes_hands_is_no_event() -> None:
    claimed = incident(1, OPEN)
    released = replace(claimed, incident=replace(claimed.incident, owner="watch@there", lease_until=START))
    assert events_since(mark_of(snapshot(claimed)), snapshot(released)) == []


def test_a_change_that_waits_is_said_once_and_not_when_another_is_answered() -> None:
    both = snapshot(approvals=[approval(1), approval(2)])
    mark = mark_of(both)
    later = mark_of(snapshot(approvals=[approval(1)]), mark)
    assert events_since(mark, snapshot(approvals=[approval(1)])) == []
    assert events_since(later, snapshot(approvals=[approval(1)])) == []
    (event,) = events_since(later, snapshot(approvals=[approval(1), approval(3, node="node09")]))
    assert (event.kind, event.subject, event.approval) == (NewsKind.APPROVAL, "node09", 3)


def test_another_store_is_told_from_an_older_one() -> None:
    mark = mark_of(snapshot(incident(7, OPEN)))
    assert is_other_store(mark, snapshot(incident(2, OPEN)))
    assert is_other_store(mark, snapshot())
    assert not is_other_store(mark, snapshot(incident(7, CLOSED), incident(8, OPEN)))
    assert not is_other_store(StoreMark(), snapshot())


NIGHT: tuple[tuple[list[IncidentEntry], list[ApprovalEntry], str], ...] = (
    ([incident(1, RECOVERED), incident(2, RECOVERED)], [approval(1)], "two jobs died, both are back, node07 waits for you"),
    ([incident(1, RECOVERED)], [], "job 4821 died, it is back"),
    ([incident(1, OPEN)], [], "job 4821 died"),
    ([incident(1, RECOVERED), incident(2, ESCALATED)], [], "two jobs died, job 4821 is back, job 4822 needs a person"),
    (
        [incident(number, RECOVERED if number > 4 else OPEN) for number in range(1, 15)],
        [approval(1), approval(2, node="node09")],
        "14 jobs died, ten are back, two changes wait for you (node07, node09)",
    ),
    (
        [incident(1, OPEN, EventKind.HANG), incident(2, OPEN, EventKind.NODE_DOWN)],
        [],
        "job 4821 makes no steps, node node07 went down",
    ),
)


@pytest.mark.parametrize(("entries", "approvals", "text"), NIGHT, ids=[text for _, _, text in NIGHT])
def test_a_night_is_one_sentence(entries: list[IncidentEntry], approvals: list[ApprovalEntry], text: str) -> None:
    assert events_text(events_since(StoreMark(), snapshot(*entries, approvals=approvals))) == text


def test_a_failure_is_said_with_the_reason_that_is_found_later() -> None:
    (event,) = events_since(StoreMark(), snapshot(incident(1, OPEN)))
    assert event_text(event) == "job 4821 died"
    assert event_text(event, snapshot(incident(1, IncidentState.DIAGNOSED))) == "job 4821 died: ecc_error"


def test_a_question_that_is_answered_meanwhile_is_marked() -> None:
    (event,) = events_since(StoreMark(), snapshot(approvals=[approval(1)]))
    assert event_text(event, snapshot(approvals=[approval(1)])) == (
        "waits for you: scontrol update NodeName=node07 State=DRAIN Reason=fan"
    )
    assert event_text(event, snapshot()).endswith("(waits no more)")


def test_since_when_has_a_date_once_it_is_long_ago() -> None:
    local = START.astimezone()
    assert since_text(START, START + timedelta(hours=8)) == f"since {local:%H:%M}"
    assert since_text(START, START + timedelta(days=2)) == f"since {local:%Y-%m-%d %H:%M}"


def test_what_others_wrote_is_shown_as_it_is() -> None:
    event = NewsEvent(NewsKind.ESCALATION, "job 1\x1b[2J", 1, why="a \u202etrap\nof two lines")
    text = event_text(event)
    assert not [sign for sign in text if sign in "\x1b\u202e\n"]


def test_events_and_the_time_of_the_last_use_are_kept(tmp_path: Path) -> None:
    talks = Talks(tmp_path / "conversations")
    assert talks.last_use() is None
    use = LastUse(START, StoreMark(7, 3, frozenset({5, 7})))
    talks.save_last_use(LastUse(START, StoreMark()))
    talks.save_last_use(use)
    assert talks.last_use() == use
    events = tuple(events_since(StoreMark(), snapshot(incident(1, ESCALATED, note="no spare node"), approvals=[approval(1)])))
    entry = SessionEntry(START, SessionEntryKind.NEWS, 1, event_text(events[0]), events=events)
    talks.add("night", entry)
    assert talks.entries("night") == [entry]
    assert "**News** (2026-01-05 02:00:00 UTC): job 4821 died" in exported("night", [entry], {})
    assert [session.name for session in talks.names()] == ["night"]


@pytest.mark.parametrize(
    "rubbish", [b"", b"[]", b"{}", b'{"at": 1}', b"\xff", b'{"at":"x","incident":1,"approval":1,"unfinished":[]}']
)
def test_a_time_of_the_last_use_that_cannot_be_read_is_not_known(tmp_path: Path, rubbish: bytes) -> None:
    talks = Talks(tmp_path)
    (tmp_path / ".last-use").write_bytes(rubbish)
    assert talks.last_use() is None


# In the chat.


def views(app: ChatApp) -> list[NewsView]:
    return list(conversation(app).query(NewsView))


def news_of(app: ChatApp) -> str:
    return "\n".join(str(view.render()) for view in views(app))


def park(scene: Scene, node: str, *, by: str = "engine") -> int:
    """Let a change wait for a person, and return its approval."""
    store, now = scene.engine.store, scene.clock.now()
    preview = f"scontrol update NodeName={node} State=DRAIN"
    call = Call(0, None, "cordon_node", {"node": node}, "its fan", by, now, CallStatus.PENDING, preview=preview)
    written = store.write_call(call, kind="cordon_node")
    return store.park(written.id, Decision(Verdict.ASK, "mode.propose", "policy", now), now + timedelta(days=30))


@pytest.mark.slow
async def test_a_failure_and_what_waits_are_said_with_links_once(scene: Scene) -> None:
    talks = Talks(scene.folder / "conversations")
    async with opened(scene, talks=talks, thread="night") as (app, pilot):
        await until(pilot, lambda: app.news._is_open, "the conversation")
        scene.cluster.submit(scene.spec)
        scene.watch(120)
        await until(pilot, lambda: "waits for you: scontrol" in news_of(app), f"what waits; {news_of(app)}")
        text = news_of(app)
        assert "job 1 died: ecc_error" in text
        assert "incident 1" in text
        assert "approval 1" in text
        for _ in range(3):  # leases and readings are written on and on
            scene.watch(20)
            app.backend.look_again()
            await pilot.pause(0.6)
        assert news_of(app).count("job 1 died") == 1
        views(app)[0].action_incident(1)
        await until(pilot, lambda: isinstance(app.screen, IncidentScreen), "the incident")
        await pilot.press("escape")
        views(app)[0].focus()
        await pilot.press("enter")
        await until(pilot, lambda: isinstance(app.screen, ApprovalScreen), "the question")
        await pilot.press("escape")
    announced = [event.kind for entry in talks.entries("night") for event in entry.events]
    assert sorted(announced) == ["approval", "failure"]
    async with opened(scene, talks=talks, thread="night") as (app, pilot):
        await until(pilot, lambda: app.news._mark is not None, "the first look")
        await until(pilot, lambda: "job 1 died: ecc_error" in news_of(app), "what was said before")
        assert len(views(app)) == 1
    assert [event.kind for entry in talks.entries("night") for event in entry.events] == announced


@pytest.mark.slow
async def test_what_happens_while_another_screen_is_open_is_there_on_the_way_back(broken: Scene) -> None:
    async with opened(broken) as (app, pilot):
        await until(pilot, lambda: app.news._mark is not None, "the first look")
        app.post_message(OpenIncident(1))
        await until(pilot, lambda: isinstance(app.screen, IncidentScreen), "the incident")
        park(broken, "node07")
        await until(pilot, lambda: views(app) and views(app)[0].events, "the news below it")
        await pilot.press("escape")
        await until(pilot, lambda: "NodeName=node07" in news_of(app), "the line")


@pytest.mark.slow
async def test_many_at_once_are_one_line(scene: Scene) -> None:
    async with opened(scene) as (app, pilot):
        await until(pilot, lambda: app.news._mark is not None, "the first look")
        for number in range(6):
            park(scene, f"node0{number}")
        await until(pilot, lambda: "six changes wait for you" in news_of(app), f"one line; {news_of(app)}")
        assert len(views(app)) == 1
        assert "\n" not in news_of(app)
        assert "all that waits" in news_of(app)
        views(app)[0].action_panel("approvals")
        await until(pilot, lambda: app.main.focused and app.main.focused.parent.id == "panel-approvals", "the panel")  # type: ignore[union-attr]


@pytest.mark.slow
async def test_what_the_agent_proposes_here_is_on_its_card_and_no_news(broken: Scene) -> None:
    async with opened(broken) as (app, pilot):
        await until(pilot, lambda: app.news._mark is not None, "the first look")
        await say(pilot, "cordon node03")
        await answered(pilot, 1)
        await until(pilot, lambda: app.store_snapshot and len(app.store_snapshot.approvals) == 2, "both")
        park(broken, "node04", by="agent")
        await until(pilot, lambda: "node04" in news_of(app), "what another agent proposes")
        assert "node03" not in news_of(app)


@pytest.mark.slow
async def test_a_number_still_answers_below_news(scene: Scene) -> None:
    async with opened(scene) as (app, pilot):
        await until(pilot, lambda: app.news._mark is not None, "the first look")
        park(scene, "node04")
        await until(pilot, lambda: views(app), "the news")
        await until(pilot, lambda: app.main.query_one("Welcome").examples[0] == "what waits for me?", "the examples")  # type: ignore[attr-defined]
        await say(pilot, "1")
        await until(pilot, lambda: "› what waits for me?" in seen_text(app), "the first example")


@pytest.mark.slow
async def test_what_happened_while_nobody_was_there_is_summed_up_at_the_start(tmp_path: Path) -> None:
    scene = Scene(tmp_path, mode=Mode.ACT)
    talks = Talks(scene.folder / "conversations")
    async with opened(scene, talks=talks, thread="evening") as (app, pilot):
        await until(pilot, lambda: app.news._mark is not None, "the first look")
        assert views(app) == []
        await pilot.press("a")
        evening_end = scene.clock.now()
    scene.clock.sleep(3600)
    scene.cluster.submit(scene.spec)
    scene.watch(2_000)
    park(scene, "node07")
    async with opened(scene, talks=talks, thread="morning") as (app, pilot):
        sentence = f"since {evening_end.astimezone():%H:%M}: job 1 died, it is back, node07 waits for you"
        await until(pilot, lambda: sentence in news_of(app), f"{sentence}; {news_of(app)}")
        assert prompt(app).has_focus
        await pilot.press("a")
    async with opened(scene, talks=talks, thread="noon") as (app, pilot):
        await until(pilot, lambda: app.news._mark is not None, "the first look")
        assert views(app) == []


@pytest.mark.slow
async def test_who_leaves_without_a_key_is_told_at_the_next_start(scene: Scene) -> None:
    talks = Talks(scene.folder / "conversations")
    async with opened(scene, talks=talks, thread="evening") as (app, pilot):
        await until(pilot, lambda: app.news._mark is not None, "the first look")
        await pilot.press("a")
        park(scene, "node07")
        await until(pilot, lambda: "node07" in news_of(app), "the news that nobody reads")
    async with opened(scene, talks=talks, thread="morning") as (app, pilot):
        await until(pilot, lambda: "node07 waits for you" in news_of(app), "the same, summed up")


@pytest.mark.slow
async def test_an_escalation_is_said_with_its_reason(scene: Scene) -> None:
    async with opened(scene) as (app, pilot):
        await until(pilot, lambda: app.news._mark is not None, "the first look")
        record = scene.engine.open(Event(EventKind.JOB_ENDED, "77", None, scene.clock.now()))
        scene.engine.store.set_state(record.id, IncidentState.ESCALATED, note="no spare node")
        await until(pilot, lambda: "job 77 needs a person: no spare node" in news_of(app), f"the escalation; {news_of(app)}")
