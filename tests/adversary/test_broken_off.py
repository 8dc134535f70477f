"""A change of several steps that is refused or interrupted between two of them: what was made is told and can be taken back."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from assistant.errors import Denied, Fenced, Parked, ToolError
from assistant.records import Call, CallStatus, Event, EventKind, Outcome, Risk, Verdict
from assistant.recover.checkpoints import second_names
from assistant.tools import aside
from assistant.tui.about_incident import CallEntry
from tests.adversary.frozen_scene import (
    files_of,
)
from tests.adversary.last_look import (
    EDITS,
    MIDDLE,
    SLOW_S,
    Bench,
    after,
    bench_of,
    lifted,
    of_three_ranks,
    two_saves,
)

NOW = datetime(2026, 3, 1, 6, tzinfo=UTC)


@pytest.mark.parametrize("edit", MIDDLE)
def test_of_two_renames_the_second_is_not_made_and_the_first_is_told_and_can_be_taken_back(
    edit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = two_saves(tmp_path, monkeypatch)
    before = files_of(bench.scene)
    after(bench, aside, "move", monkeypatch, edit)
    outcome = bench.call()
    first, second = map(Path, bench.arguments["paths"])
    assert not outcome.ok
    assert EDITS[edit][1] in outcome.error
    place = first.parent / "nightshift-refused" / first.name
    assert f"not put back: {place}; nightshift undo {outcome.call} takes back" in outcome.error
    assert outcome.value["paths"] == [str(place)]
    assert (place.is_dir(), first.exists(), second.is_dir()) == (True, False, True)
    refusals = [decision for decision in bench.scene.store.decisions(outcome.call) if decision.verdict is not Verdict.ALLOW]
    assert (
        [decision.rule for decision in refusals if decision.rule.startswith(EDITS[edit][1])]
        == [decision.rule for decision in refusals]
        != []
    )
    assert len(refusals) == 1, "the same refusal is written once"
    with pytest.raises(Denied):
        bench.gate().undo(outcome.call, "playbook:x")
    lifted(bench)
    undone = bench.gate().undo(outcome.call, "playbook:x")
    assert undone.ok, undone.error
    assert {name: text for name, text in files_of(bench.scene).items() if name != "nightshift-refused"} == before
    assert bench.scene.store.call(outcome.call).status is CallStatus.UNDONE


def test_a_watch_that_leads_no_more_makes_no_second_rename_and_takes_none_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = two_saves(tmp_path, monkeypatch)
    after(bench, aside, "move", monkeypatch, "another leads")
    with pytest.raises(Fenced):
        bench.call()
    first, second = map(Path, bench.arguments["paths"])
    assert (first.exists(), second.is_dir()) == (False, True)
    (call,) = bench.scene.store.calls(status=CallStatus.INTENT)
    assert call.tool == bench.tool, "whoever leads now finds out"


def test_a_rename_that_the_storage_refuses_takes_the_first_back_only_while_it_may(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = two_saves(tmp_path, monkeypatch)
    before, real, stops = files_of(bench.scene), vars(aside)["move"], [False, True]
    stop = stops.pop(0)

    def move(change: Any, account: str) -> bool:
        if change.source == Path(bench.arguments["paths"][1]):
            if stop:
                EDITS["the kill switch"][0](bench)
            raise ToolError("the place is taken")
        return bool(real(change, account))

    monkeypatch.setattr(aside, "move", move)
    assert not bench.call().ok
    assert {name: text for name, text in files_of(bench.scene).items() if name != "nightshift-refused"} == before
    stop = stops.pop(0)
    outcome = bench.call()
    assert not outcome.ok
    assert "the place is taken; renamed before it, and not put back" in outcome.error
    assert not Path(bench.arguments["paths"][0]).exists()


@pytest.mark.parametrize("edit", MIDDLE)
@pytest.mark.parametrize("set_links", [1, 2])
def test_of_the_links_of_ranks_no_more_is_set_and_those_that_were_can_be_set_back(
    set_links: int, edit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = bench_of("set tracker", tmp_path, monkeypatch)
    folder = bench.scene.checkpoints
    of_three_ranks(bench)
    bench.arguments |= {"tracker": str(folder / "latest-rank0.pt"), "text": "ep0-ba20-rank0.pt"}
    before = files_of(bench.scene)
    after(bench, aside, "write_tracker", monkeypatch, edit, times=set_links)
    outcome = bench.call()
    assert not outcome.ok
    links = {str((folder / f"latest-rank{rank}.pt").readlink()).partition("-rank")[0] for rank in range(1, 1 + set_links)}
    assert links == {"ep0-ba20"}
    assert str((folder / "latest-rank0.pt").readlink()) == "ep0-ba40-rank0.pt"
    assert "not set back: latest-rank1.pt" in outcome.error
    lifted(bench)
    undone = bench.gate().undo(outcome.call, "playbook:x")
    assert undone.ok, undone.error
    assert files_of(bench.scene) == before


@pytest.mark.parametrize("edit", [*MIDDLE, "another leads"])
@pytest.mark.parametrize("times", [1, 2, 3])
def test_second_names_are_put_in_place_all_or_none(times: int, edit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Between two links, and between the last one and the rename that puts all of them in place."""
    bench = bench_of("secure", tmp_path, monkeypatch)
    folder = bench.scene.checkpoints
    of_three_ranks(bench)
    bench.arguments["path"] = str(folder / "ep0-ba40-rank0.pt")
    before = files_of(bench.scene)
    real, steps = second_names._link_into, []

    def link_into(*positional: Any) -> None:
        real(*positional)
        steps.append(positional)

    monkeypatch.setattr(second_names, "_link_into", link_into)
    edits: list[str] = []
    # links are made in a thread that must not use the store: the edit comes right behind it
    real_step = vars(second_names)["as_owner"]

    def as_owner(*positional: Any) -> Any:
        result = real_step(*positional)
        if len(steps) == times and not edits:
            edits.append(edit)
            EDITS[edit][0](bench)
            bench.scene.clock.sleep(SLOW_S)
        return result

    monkeypatch.setattr(second_names, "as_owner", as_owner)
    if edit == "another leads":
        with pytest.raises(Fenced):
            bench.call()
        names = [name for name in files_of(bench.scene) if "nightshift-secured/" in name and "/of-" in name]
        assert names == [], "what is not in place does not look whole"
        return
    outcome = bench.call()
    assert edits
    assert not outcome.ok
    assert EDITS[edit][1] in outcome.error
    assert "before it: cp -alT" in outcome.error
    assert files_of(bench.scene) == before


# an interrupted call


def killed_between(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Bench, int, int]:
    """Return a bench whose process died behind the first step of a call, the call, and its incident."""
    if name == "set aside":
        bench = two_saves(folder, monkeypatch)
    else:
        bench = bench_of(name, folder, monkeypatch)
        of_three_ranks(bench)
        bench.arguments |= {"tracker": str(bench.scene.checkpoints / "latest-rank0.pt"), "text": "ep0-ba20-rank0.pt"}
    function = "move" if name == "set aside" else "write_tracker"
    real = getattr(aside, function)

    def step(*positional: Any, **named: Any) -> None:
        real(*positional, **named)
        raise KeyboardInterrupt

    event = Event(EventKind.JOB_ENDED, bench.scene.jobs["failed"], None, bench.scene.clock.now())
    incident = bench.scene.store.open_incident(event)[0].id
    monkeypatch.setattr(aside, function, step)
    with pytest.raises(KeyboardInterrupt):
        bench.call(incident=incident, step="move")
    monkeypatch.setattr(aside, function, real)
    (call,) = bench.scene.store.calls(status=CallStatus.INTENT)
    return bench, call.id, incident


@pytest.mark.parametrize("name", ["set aside", "set tracker"])
@pytest.mark.parametrize("edit", [*MIDDLE, ""])
def test_a_call_that_was_interrupted_and_may_not_go_on_tells_what_was_made_of_it(
    name: str, edit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        bench, number, incident = killed_between(name, tmp_path, patched)
    half = files_of(bench.scene)
    store, gate = bench.scene.store, bench.gate()
    if edit:
        EDITS[edit][0](bench)
        with pytest.raises((Denied, Parked)):
            bench.call(incident=incident, step="move")
        assert files_of(bench.scene) == half
    else:
        gate.give_up(store.call(number))
    outcome = store.outcome(number)
    if outcome is None:  # a policy that is not whole, or a question: the step comes again, and is finished then
        assert store.call(number).status is CallStatus.PENDING
        return
    assert store.call(number).status is CallStatus.FAILED
    assert "interrupted" in outcome.error
    assert "and not put back" in outcome.error or "and not set back" in outcome.error
    lifted(bench)
    undone = gate.undo(number, "playbook:x")
    assert undone.ok, undone.error
    assert "nightshift-refused/" not in "".join(files_of(bench.scene))
    assert not [path for path in bench.scene.checkpoints.iterdir() if path.is_symlink() and "ba20" in str(path.readlink())]


@pytest.mark.parametrize("name", ["set aside", "set tracker"])
def test_an_interrupted_call_whose_step_comes_again_is_made_to_its_end(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with monkeypatch.context() as patched:
        bench, number, incident = killed_between(name, tmp_path, patched)
    outcome = bench.call(incident=incident, step="move")
    assert outcome.ok, outcome.error
    assert outcome.call == number
    places = {path.name for path in (bench.scene.checkpoints / "nightshift-refused").glob("*")}
    links = {str(path.readlink()) for path in bench.scene.checkpoints.iterdir() if path.is_symlink()}
    assert places == {Path(path).name for path in bench.arguments["paths"]} if name == "set aside" else len(links) == 3
    assert not any("ba40" in link for link in links)


@pytest.mark.parametrize(
    ("status", "ok", "value", "undo", "offered"),
    [
        (CallStatus.DONE, True, None, "put_back_checkpoints", True),
        (CallStatus.FAILED, False, {"paths": ["/s/step-1"]}, "put_back_checkpoints", True),
        (CallStatus.FAILED, False, None, "put_back_checkpoints", False),
        (CallStatus.UNDONE, True, {"paths": ["/s/step-1"]}, "put_back_checkpoints", False),
        (CallStatus.DONE, True, None, "", False),
    ],
)
def test_the_chat_offers_to_take_back_what_stands(status: CallStatus, ok: bool, value: Any, undo: str, offered: bool) -> None:
    call = Call(7, None, "set_aside_checkpoints", {}, "asked for", "agent", NOW, status, preview="mv -nT /s/step-1 /s/aside/step-1")
    entry = CallEntry(call, Risk.CHANGE, None, Outcome(7, ok, value, "", NOW), undo)
    assert entry.can_be_undone is offered
    assert not CallEntry(call, Risk.CHANGE, None, None, undo).can_be_undone
