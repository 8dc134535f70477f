"""What a pass did not see: when that keeps it from being a sign of life, when people are told, and that it stays visible."""

from __future__ import annotations

import configparser
from datetime import timedelta
from pathlib import Path

import pytest

from assistant.config.settings import About, NotifySettings
from assistant.daemon.journal import status_line
from assistant.daemon.notifications import Notice, notices
from assistant.daemon.pass_reports import PassRecorder
from assistant.daemon.pass_result import TOLD_AFTER, PassResult, TroubleJudge
from assistant.errors import StoreError
from assistant.ports import JumpingClock
from assistant.store import Store
from assistant.store.watches import KEPT_FOR, KEPT_REMARKS
from assistant.watch.attempts import Extent, Remark, Trouble

LOG = Trouble("the log of job 7", "job 7: its log cannot be read: Input/output error")
MOUNT = Trouble("/lustre/project", "/lustre/project does not answer: 4 logs were not read")
SCHEDULER = Trouble("the scheduler", "squeue did not answer within 30 s", Extent.ALL)
PRIVATE = Trouble("logs shown to nobody", "2 logs may not be read", Extent.SET_ASIDE)
MINUTE = timedelta(minutes=1)
OWNER = "watch@login1:1.2"


def passes(store: Store, clock: JumpingClock, *troubles: Trouble, minutes: int = 1, owner: str = OWNER) -> list[PassResult]:
    """A pass each minute in which the same was not seen."""
    sight, kept, made = TroubleJudge(store, owner), PassRecorder(store, owner, frozenset), []
    for _ in range(minutes):
        found = sight.judge(troubles, clock.now())
        made.append(PassResult(clock.now(), 0.1, leads=True, trouble=found.trouble, announced=found.announced))
        kept.report(made[-1])
        clock.sleep(60)
    return made


def told(store: Store) -> list[Notice]:
    return [one for one in notices(store.audit_after(0, 1_000), store) if one.about is About.BLIND]


def test_a_log_that_can_never_be_read_stops_the_sign_of_life_until_people_are_told(store: Store, clock: JumpingClock) -> None:
    made = passes(store, clock, LOG, minutes=60)
    assert [one.whole for one in made] == [False] * 5 + [True] * 55
    (notice,) = told(store)
    assert (notice.title, LOG.text in notice.text) == ("the watch does not see everything", True)
    # it is visible for as long as it lasts
    assert made[-1].announced == (f"{LOG.text} (since 2026-03-10 12:00Z)",)
    assert status_line(made[-1]).endswith(f"degraded: {made[-1].announced[0]}")
    (watch,) = store.watches()
    assert watch.trouble == made[-1].announced
    assert store.counts() != {}
    assert {value for count, value in store.counts().items() if dict(count.labels).get("result") == "degraded"} == {60}


def test_a_scheduler_that_is_not_seen_is_never_known_well_enough(store: Store, clock: JumpingClock) -> None:
    made = passes(store, clock, SCHEDULER, LOG, minutes=60)
    assert not any(one.whole for one in made)
    assert [notice.title for notice in told(store)] == ["the watch does not see everything", "the watch is blind"]


def test_what_is_new_stops_the_sign_of_life_although_people_know_of_something_else(store: Store, clock: JumpingClock) -> None:
    passes(store, clock, LOG, minutes=10)
    made = passes(store, clock, LOG, MOUNT, minutes=10)
    assert [one.whole for one in made] == [False] * 5 + [True] * 5
    assert made[0].trouble == (MOUNT.text,)
    assert made[0].troubles[0] == MOUNT.text, "what nobody knows of comes first"
    assert [MOUNT.text in notice.text for notice in told(store)] == [False, True]


def test_what_comes_back_soon_is_told_to_nobody(store: Store, clock: JumpingClock) -> None:
    for _ in range(10):
        passes(store, clock, MOUNT, minutes=3)
        assert passes(store, clock)[0].whole
    assert told(store) == []


def test_people_hear_when_all_is_seen_again(store: Store, clock: JumpingClock) -> None:
    passes(store, clock, LOG, MOUNT, minutes=10)
    passes(store, clock, LOG, minutes=2)
    assert [notice.title for notice in told(store)] == ["the watch does not see everything"]
    passes(store, clock)
    assert [notice.title for notice in told(store)] == ["the watch does not see everything", "the watch sees everything again"]
    assert store.unseen() == []


def test_neither_a_restart_nor_another_leader_begins_to_count_anew(store: Store, clock: JumpingClock) -> None:
    made = [passes(store, clock, LOG, owner=f"watch@login{number}:1.{number}")[0].whole for number in range(8)]
    assert made == [False] * 5 + [True] * 3
    assert len(told(store)) == 1


def test_counts_in_the_words_of_a_trouble_make_no_new_one(store: Store, clock: JumpingClock) -> None:
    for many in range(8):
        made = passes(store, clock, Trouble(MOUNT.about, f"/lustre/project does not answer: {many} logs were not read"))
    assert made[0].whole
    assert "7 logs were not read" in made[0].announced[0]


def test_what_the_site_keeps_from_the_watch_is_no_trouble_and_can_be_read(store: Store, clock: JumpingClock) -> None:
    (made,) = passes(store, clock, PRIVATE)
    assert (made.whole, made.troubles, store.aside()) == (True, (), [PRIVATE.text])
    passes(store, clock)
    assert store.aside() == []


def test_where_it_cannot_be_written_down_nobody_knows_of_it(
    store: Store, clock: JumpingClock, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise StoreError("the disk is full")

    passes(store, clock, LOG, minutes=10)
    monkeypatch.setattr(store, "unseen", full)
    found = TroubleJudge(store, OWNER).judge([LOG], clock.now())
    assert (found.trouble, found.announced) == ((LOG.text,), ())


def test_systemd_starts_no_watch_anew_for_a_part_that_is_not_seen() -> None:
    unit = configparser.ConfigParser(strict=False, interpolation=None)
    unit.optionxform = str  # type: ignore[assignment,method-assign]
    unit.read(Path(__file__).parents[2] / "packaging" / "systemd" / "nightshift-watch.service")
    assert unit["Service"]["WatchdogSec"] == "10min"
    assert timedelta(minutes=10) >= 2 * TOLD_AFTER
    assert timedelta(minutes=NotifySettings().blind_min) > TOLD_AFTER, "a part is told as a part, not as blindness"


def test_remarks_are_kept_for_a_night_and_not_without_end(store: Store, clock: JumpingClock) -> None:
    sight = TroubleJudge(store, OWNER)
    for number in range(30):
        sight.keep([Remark("a", f"remark {number}")], clock.now())
        clock.sleep(60)
    assert [one.text for one in store.remarks()][:2] == ["remark 29", "remark 28"]
    assert len(store.remarks()) == KEPT_REMARKS
    clock.sleep(KEPT_FOR.total_seconds())
    sight.keep([Remark("a", "a new night")], clock.now())
    assert [one.text for one in store.remarks()] == ["a new night"]
