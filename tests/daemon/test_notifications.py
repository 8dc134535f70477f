"""Notifications: what is told, to whom, how often; nothing is lost in a crash, nothing is told again and again."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from assistant.config.settings import About, NotifySettings, Severity, SinkSettings
from assistant.daemon.delivery import DeliveryWorker, Notifier
from assistant.daemon.notifications import Notice, notices
from assistant.engine.retry_policy import unproven_hang
from assistant.ports import JumpingClock
from assistant.records import Call, CallStatus, Decision, Event, EventKind, IncidentState, Job, JobState, Outcome, Verdict
from assistant.store import Store
from tests.daemon.night import EVERYTHING, NO_WAIT, NOON, Night, Place, courier, diagnosis, passed


@pytest.fixture
def night(store: Store, clock: JumpingClock) -> Night:
    return Night(store, clock)


def _told(store: Store) -> list[Notice]:
    return list(notices(store.audit(), store))


def test_a_new_place_is_not_told_what_happened_before(store: Store, night: Night) -> None:
    night.fails("1")
    place = Place()
    told = courier(store, place)
    assert told.deliver()
    assert place.took == []
    night.fails("2")
    told.deliver()
    assert place.titles == ["job 2 (llm-7b): ecc_error (incident 2)"]


def test_an_incident_is_told_with_its_reason_its_line_and_the_next_step(store: Store, night: Night) -> None:
    night.fails("1")
    (told,) = _told(store)
    assert (told.about, told.severity) == (About.OPENED, Severity.WARNING)
    lines = told.text.splitlines()
    assert lines[0] == "ecc_error on node042"
    assert "nodes: node042" in lines
    assert lines[2].startswith("line: job.log:17: node042: uncorrectable ECC error")
    assert lines[-1] == "more: nightshift incident show 1"
    assert "hunter2" not in told.text


def test_an_incident_that_is_being_diagnosed_is_told_once_that_is_known(store: Store, night: Night, clock: JumpingClock) -> None:
    place = Place()
    told = courier(store, place)
    incident, _ = store.open_incident(Event(EventKind.HANG, "4", None, clock.now(), {"name": "ppo"}))
    assert store.claim(incident.id, "watch", 600)
    told.deliver()
    assert place.titles == []
    store.add_diagnosis(incident.id, diagnosis("nccl_timeout_error", "node042"))
    store.set_state(incident.id, IncidentState.DIAGNOSED, note="it waits")
    told.deliver()
    assert place.titles == ["job 4 (ppo): hang, nccl_timeout_error (incident 1)"]


def test_a_failure_that_nobody_has_taken_up_yet_is_told_with_its_diagnosis_or_after_90_s(
    store: Store, night: Night, clock: JumpingClock
) -> None:
    place = Place()
    told = courier(store, place)
    for job, kind in (("4", EventKind.JOB_ENDED), ("5", EventKind.LOSS_SPIKE)):
        store.open_incident(Event(kind, job, None, clock.now(), {"name": "ppo"}))
    told.deliver()
    assert place.titles == []
    clock.sleep(91)
    told.deliver()
    assert place.titles == [f"job {job} (ppo): not diagnosed yet (incident {number})" for number, job in ((1, "4"), (2, "5"))]


def test_a_shared_cause_is_told_to_the_end_of_its_instructions_with_the_names_of_its_jobs(
    store: Store, clock: JumpingClock
) -> None:
    for job in ("4", "5"):
        store.open_incident(Event(EventKind.JOB_ENDED, job, None, clock.now(), {"name": f"ev-{job}"}))
    detail = {"jobs": ["4", "5"], "incidents": [1, 2], "owners": ["ada"], "line": "RuntimeError: size mismatch"}
    shared, _ = store.open_incident(Event(EventKind.OUTAGE, None, None, clock.now(), detail, service="error size mismatch"))
    note = "ada must act: " + "Give the model the width that the checkpoint has. " * 12 + "44 waits for job 4: scancel 44"
    store.set_state(shared.id, IncidentState.ESCALATED, note=note)
    told = next(notice for notice in _told(store) if notice.about is About.ESCALATED)
    assert " ".join(line.strip() for line in told.text.splitlines()).startswith(note)
    assert "jobs: 4 (ev-4), 5 (ev-5)" in told.text.splitlines()


@pytest.mark.parametrize(
    ("seen", "title", "told"),
    [
        (
            "4 of 4 GPUs idle; n1: py-spy is not there, a process of the job works on the CPU of n[1-2]",
            "job 4 (ppo) needs a person: no step, but its ranks work (incident 1)",
            "a process of the job works on the CPU of n[1-2], 4 of 4 GPUs idle",
        ),
        (
            "4 of 4 GPUs idle; n1: py-spy is not there",
            "job 4 (ppo) needs a person: hang (incident 1)",
            "that it hangs is not proven",
        ),
    ],
)
def test_a_silent_job_whose_ranks_work_is_no_hang_to_be_restarted(
    seen: str, title: str, told: str, store: Store, clock: JumpingClock
) -> None:
    detail = {"name": "ppo", "witness": seen, "unseen": "stacks (n1: py-spy is not there)", "phase": "evaluation", "proofs": []}
    incident, _ = store.open_incident(Event(EventKind.HANG, "4", None, clock.now(), detail))
    hang = replace(diagnosis("hang", "node042"), nodes=(), advice="Restart from the last healthy checkpoint.")
    store.add_diagnosis(incident.id, hang)
    job = Job("4", "ppo", "ada", JobState.RUNNING, "gpu", ("n1",), None, None, NOON, NOON, None, None, None)
    store.set_state(incident.id, IncidentState.ESCALATED, note=unproven_hang(store, incident, hang, job))
    (notice,) = [notice for notice in _told(store) if notice.about is About.ESCALATED]
    assert notice.title == title
    assert told in notice.text.replace("\n  ", " ")
    assert ("Restart" in notice.text) is ("works" not in seen)


def test_an_approval_is_told_with_the_command_why_and_how_to_take_it_back(store: Store, night: Night) -> None:
    approval = night.asks(night.fails("1"))
    (told,) = [one for one in _told(store) if one.about is About.APPROVAL]
    assert told.title == "approval 1 waits: cordon_node (incident 1)"
    assert told.text.splitlines() == [
        "would run: scontrol update NodeName=node042 State=DRAIN",
        "why: ECC error",
        "asks: mode.propose, cordon is in mode propose",
        f"allow: nightshift approve {approval}",
        f"refuse: nightshift deny {approval}",
        "undo, once done: nightshift undo 1",
        "until: 2026-03-11T12:00:00Z, then it is refused",
    ]


@pytest.mark.parametrize(
    ("step", "severity", "title"),
    [
        (
            "stop_restart#1",
            Severity.CRITICAL,
            "URGENT: job 2 is at a wrong start and may save over its run; approval 1 waits: stop_res",
        ),
        (None, Severity.WARNING, "approval 1 waits: stop_restart"),
    ],
    ids=["proven", "proposed by somebody"],
)
def test_the_question_whether_a_restart_is_to_be_stopped_is_critical_where_a_wrong_start_is_proven(
    store: Store, night: Night, step: str | None, severity: Severity, title: str
) -> None:
    incident = night.fails("1")
    call = Call(0, incident, "stop_restart", {"job": "2", "attempt": 0}, "slow", "playbook:p", NOON, CallStatus.PENDING, step)
    written = store.write_call(call, kind="stop_restart")
    asked = Decision(Verdict.ASK, "mode.propose", "policy", store.clock.now(), "it is in mode propose")
    store.park(written.id, asked, store.clock.now() + timedelta(hours=24))
    (told,) = [one for one in _told(store) if one.about is About.APPROVAL]
    assert told.severity is severity
    assert told.title.startswith(title)


def test_an_approval_that_was_answered_meanwhile_is_not_told(store: Store, night: Night) -> None:
    store.answer(night.asks(night.fails("1")), Verdict.ALLOW, "cli:ada")
    assert About.APPROVAL not in {one.about for one in _told(store)}


@pytest.mark.parametrize(
    ("happens", "about", "severity", "title"),
    [
        (lambda n: n.ends(n.fails("1"), IncidentState.ESCALATED), About.ESCALATED, Severity.CRITICAL, "needs a person: ecc_error"),
        (lambda n: n.ends(n.fails("1"), IncidentState.RECOVERED), About.RECOVERED, Severity.INFO, "recovered: ecc_error"),
        (lambda n: n.cordons(n.fails("1")), About.ACTION, Severity.INFO, "cordon_node done (incident 1)"),
        (lambda n: n.cordons(n.fails("1"), ok=False), About.ACTION, Severity.WARNING, "cordon_node failed (incident 1)"),
        (lambda n: n.tells_owner(n.fails("7")), About.OWNER, Severity.WARNING, "your job 7 failed: type_error"),
        (lambda n: n.store.set_flag("blind", True, why="", by="w"), About.BLIND, Severity.CRITICAL, "the watch is blind"),
        (
            lambda n: n.store.set_flag("kill_switch", True, why="", by="w"),
            About.KILL_SWITCH,
            Severity.WARNING,
            "kill switch is set",
        ),
        (lambda n: n.store.set_flag("breaker", True, why="", by="w"), About.BREAKER, Severity.CRITICAL, "the breaker stopped"),
        (lambda n: n.store.record("breaker.reset", by="cli:ada"), About.BREAKER, Severity.INFO, "the breaker was reset"),
    ],
    ids=["escalated", "recovered", "done", "failed", "owner", "blind", "kill_switch", "breaker", "breaker_reset"],
)
def test_what_matters_is_told_by_how_much_it_matters(
    store: Store, night: Night, happens: Callable[[Night], object], about: About, severity: Severity, title: str
) -> None:
    happens(night)
    told = _told(store)[-1]
    assert (told.about, told.severity) == (about, severity)
    assert title in told.title


def test_a_takeover_matters_only_when_the_watch_before_was_lost(store: Store, clock: JumpingClock) -> None:
    first = store.lead("watch@login1:1.2", 30)
    assert first is not None
    clock.sleep(31)
    second = store.lead("watch@login2:1.2", 30)
    assert second is not None
    store.resign(second)
    assert store.lead("watch@login1:9.9", 30) is not None
    told = [(one.title, one.severity) for one in _told(store)]
    assert told == [("watch@login2:1.2 leads now", Severity.WARNING), ("watch@login1:9.9 leads now", Severity.INFO)]


def test_nothing_in_a_message_calls_a_channel_or_moves_a_terminal(store: Store, night: Night) -> None:
    store.open_incident(Event(EventKind.JOB_ENDED, "1", None, NOON, {"name": "<!channel> @here \x1b[2J\u202e"}))
    (told,) = _told(store)
    assert "<!" not in told.title
    assert "@here" not in told.title
    assert told.title.isprintable()


def test_how_an_incident_ended_stands_for_its_opening_when_both_are_news(store: Store, night: Night) -> None:
    place = Place()
    to = courier(store, place)
    night.ends(night.fails("1"), IncidentState.ESCALATED)
    to.deliver()
    assert place.titles == ["job 1 (llm-7b) needs a person: ecc_error (incident 1)"]


def test_who_heard_of_a_failure_hears_that_it_is_settled_elsewhere(store: Store, night: Night) -> None:
    incident = night.fails("1")
    (opened,) = _told(store)
    night.ends(incident, IncidentState.CLOSED, "settled elsewhere: the run of job 1 goes on as job 2 (running), submitted before")
    (settled,) = _told(store)
    assert (opened.about, settled.about, settled.severity) == (About.OPENED, About.RECOVERED, Severity.INFO)
    assert settled.title == "job 1 (llm-7b) settled elsewhere: ecc_error (incident 1)"
    assert settled.text.startswith("settled elsewhere: the run of job 1 goes on as job 2")
    night.ends(night.fails("3"), IncidentState.CLOSED, "nothing had to be done")
    assert len(_told(store)) == 2


def test_a_place_hears_only_what_matters_enough_and_what_it_asked_for(store: Store, night: Night) -> None:
    critical, approvals = Place(), Place()
    couriers = [
        DeliveryWorker("a", SinkSettings(Path("x"), severity=Severity.CRITICAL), NO_WAIT, store, critical),
        DeliveryWorker("b", SinkSettings(Path("x"), about=(About.APPROVAL,)), NO_WAIT, store, approvals),
    ]
    for one in couriers:
        one.begin()
    night.asks(night.fails("1"))
    night.ends(night.fails("2"), IncidentState.ESCALATED)
    for one in couriers:
        one.deliver()
    assert [one.about for one in critical.took] == [About.ESCALATED]
    assert [one.about for one in approvals.took] == [About.APPROVAL]


def test_an_owner_hears_what_they_must_do_and_nothing_else(store: Store, night: Night) -> None:
    ada, everybody, operators = Place(), Place(), Place()
    sinks = {"ada": ("ada", "#llm-*"), "all": ("*",), "ops": ()}
    couriers = [
        DeliveryWorker(name, SinkSettings(Path("x"), owners=owners), NO_WAIT, store, place)
        for (name, owners), place in zip(sinks.items(), (ada, everybody, operators), strict=True)
    ]
    for one in couriers:
        one.begin()
    incident = night.fails("7", reason="type_error")
    for owner in ("ada", "bob", "#llm-oncall"):
        night.tells_owner(incident, owner)
    for one in couriers:
        one.deliver()
    assert [one.owner for one in ada.took] == ["ada", "#llm-oncall"]
    assert [one.owner for one in everybody.took] == ["ada", "bob", "#llm-oncall"]
    assert ada.took[0].text.splitlines()[:2] == ["ada: job 7 (llm-7b) failed: type_error.", "fix line 3"]
    assert {one.about for one in operators.took} == {About.OPENED}


def test_a_run_that_fails_again_and_again_is_told_once_until_the_cooldown_ends(
    store: Store, night: Night, clock: JumpingClock
) -> None:
    place = Place()
    to = courier(store, place)
    last = night.fails("1")
    for again in range(3):
        to.deliver()
        clock.sleep(60)
        last = night.fails(str(again + 2), parent=last)
    to.deliver()
    assert len(place.took) == 1
    clock.sleep(3600)
    last = night.fails("9", parent=last)
    to.deliver()
    assert len(place.took) == 2
    assert "held back since 12:00: 3 of the same" in place.took[-1].text
    night.fails("10", parent=last, reason="nvlink_error")
    to.deliver()
    assert len(place.took) == 3, "another reason is other news"


def test_many_at_once_become_one_message_with_the_worst_first(store: Store, night: Night) -> None:
    place = Place()
    to = courier(store, place)
    approval = 0
    for number in range(40):
        incident = night.fails(str(number))
        if number == 20:
            approval = night.asks(incident)
        if number == 30:
            night.ends(incident, IncidentState.ESCALATED)
    to.deliver()
    (told,) = place.took
    lone = "job 30 (llm-7b) needs a person: ecc_error (incident 31)"
    assert told.title == f"{lone}; 41 things at once: 39 opened, 1 need a person, 1 wait for an approval"
    assert told.severity is Severity.CRITICAL
    lines = told.text.splitlines()
    assert (lines[0], "more: nightshift incident show 31" in lines) == ("it is over", True)
    assert lines[lines.index("more: nightshift incident show 31") + 1].startswith(f"approval {approval} waits")
    assert lines[-2] == "and 16 more"
    to.deliver()
    assert len(place.took) == 1


def test_more_is_waited_for_so_that_a_storm_becomes_one_message(store: Store, night: Night, clock: JumpingClock) -> None:
    place = Place()
    to = courier(store, place, terms=NotifySettings(group_s=15))
    for number in range(5):
        night.fails(str(number))
        assert not to.deliver()
        clock.sleep(2)
    clock.sleep(10)
    assert to.deliver()
    assert len(place.took) == 1


def test_what_was_not_taken_is_told_later_and_nothing_twice(store: Store, night: Night) -> None:
    place = Place()
    to = courier(store, place)
    night.fails("1")
    place.refuses = True
    pauses = [to.attempt() for _ in range(12)]
    assert pauses[:4] == [5, 10, 20, 40]
    assert pauses[-1] == 900
    place.refuses = False
    to.attempt()
    to.attempt()
    assert place.titles == ["job 1 (llm-7b): ecc_error (incident 1)"]
    counts = {dict(one.labels)["outcome"]: value for one, value in store.counts().items() if one.name == "notices"}
    assert counts == {"sent": 1, "failed": 12}
    assert to.failures == 0


@pytest.mark.parametrize("dies_after", range(4))
def test_a_crash_at_any_moment_loses_no_notice(tmp_path: Path, night: Night, store: Store, dies_after: int) -> None:
    class Dies(Exception):
        pass

    place, sent = Place(), 0

    def send(notice: Notice) -> None:
        nonlocal sent
        if sent == dies_after:
            raise Dies
        sent += 1
        place(notice)

    dying = DeliveryWorker("ops", EVERYTHING, NO_WAIT, store, send)
    dying.begin()
    for number in range(3):
        night.fails(str(number))
    try:
        dying.deliver()
    except Dies:
        with Store(store.path, store.clock) as reopened:
            DeliveryWorker("ops", EVERYTHING, NO_WAIT, reopened, place).deliver()
    assert place.titles == [f"job {number} (llm-7b): ecc_error (incident {number + 1})" for number in range(3)]


def test_only_the_leader_tells(store: Store, night: Night, clock: JumpingClock) -> None:
    place = Place()
    notifier = Notifier([courier(store, place)])
    night.fails("1")
    notifier.report(passed(clock, leads=False))
    notifier.close()
    assert place.took == []
    again = Notifier([courier(store, place, terms=NotifySettings(group_s=900))])
    again.report(passed(clock))
    again.close()
    assert len(place.took) == 1, "what is waited for is told at the end"


def test_a_place_that_hangs_holds_up_neither_a_pass_nor_the_end(store: Store, night: Night, clock: JumpingClock) -> None:
    import threading
    import time

    freed, place = threading.Event(), Place()

    def hangs(_: Notice) -> None:
        freed.wait(60)

    hanging = DeliveryWorker("hangs", EVERYTHING, NotifySettings(group_s=0, timeout_s=0.2), store, hangs)
    fine = DeliveryWorker("fine", EVERYTHING, NotifySettings(group_s=0, timeout_s=0.2), store, place)
    for one in (hanging, fine):
        one.begin()
    notifier = Notifier([hanging, fine])
    night.fails("1")
    began = time.monotonic()
    notifier.report(passed(clock))
    notifier.close()
    took = time.monotonic() - began
    freed.set()
    assert took < 5
    assert len(place.took) == 1


def test_a_watch_that_was_fenced_off_tells_nothing(store: Store, night: Night, clock: JumpingClock) -> None:
    led = store.lead("a", 30)
    assert led is not None
    store.fence_off(led)
    place = Place()
    to = courier(store, place)
    night.fails("1")
    cursor = store.cursor("notify:ops")
    clock.sleep(31)
    with Store(store.path, clock) as other:
        assert other.lead("b", 30) is not None
    to.attempt()
    assert place.took == []
    assert store.cursor("notify:ops") == cursor


def test_old_rows_about_what_is_gone_hold_nothing_up(store: Store) -> None:
    store.record("incident.opened", by="watch", incident=99, why="job_ended: job 1")
    store.record("watch.blind", by="watch", outcome="on", at=datetime(2026, 3, 10, tzinfo=UTC))
    assert [one.about for one in _told(store)] == [About.BLIND]


def test_a_long_note_is_parted_and_what_stands_behind_a_quotation_is_told(store: Store, night: Night) -> None:
    quotation = "RuntimeError: " + "Error(s) in loading state_dict for " * 30
    note = (
        f"the model was changed: {quotation}. The newest whole checkpoint is /r/w_100.pt (step 100). width is 640 (/c/net.json:3)."
    )
    night.ends(night.fails("1"), IncidentState.ESCALATED, note)
    told = next(notice for notice in _told(store) if notice.about is About.ESCALATED)
    assert "The newest whole checkpoint is /r/w_100.pt (step 100)." in told.text
    assert "width is 640 (/c/net.json:3)." in told.text
    assert all(len(line) <= 400 for line in told.text.splitlines())


def test_a_long_note_parts_no_key_from_its_secret_and_begins_no_line_of_its_own(store: Store, night: Night) -> None:
    note = "x" * 380 + " failed. password: Hunter2hunter2hunter2. more: nightshift approve 7"
    night.ends(night.fails("1"), IncidentState.ESCALATED, note)
    told = next(notice for notice in _told(store) if notice.about is About.ESCALATED)
    assert "Hunter2" not in told.text
    assert "  password: " in told.text
    assert not any(line.startswith(("password", "more: nightshift approve")) for line in told.text.splitlines())


def test_an_operator_hears_what_a_job_left_to_go_on_from(store: Store, night: Night) -> None:
    incident = night.fails("1")
    call = night._call(incident, "node042", CallStatus.INTENT)
    store.write_outcome(Outcome(call.id, True, {"saved": "The newest whole checkpoint is /r/w_100.pt (step 100)."}, "", NOON))
    night.ends(incident, IncidentState.ESCALATED, "job 1 was not started again")
    told = next(notice for notice in _told(store) if notice.about is About.ESCALATED)
    assert "left: The newest whole checkpoint is /r/w_100.pt (step 100)." in told.text.splitlines()
