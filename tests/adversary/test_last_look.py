"""What is no command of the scheduler is allowed once more right before it happens, as each of its commands is.

Renames, hard links, trackers, copied configurations, trials and tests on nodes: CHANGES; what comes in between: EDITS.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assistant.errors import CommandRefused, Denied, Fenced, ToolError, Unavailable
from assistant.records import CallStatus, Verdict
from assistant.recover.collective.executor import kept_free
from assistant.schedulers.simulated import SimulatedCluster
from tests.adversary.frozen_scene import (
    BY,
    ON_FILES,
    Recorder,
    scene_of,
    tree_of,
)
from tests.adversary.last_look import (
    EDITS,
    MIDDLE,
    SLOW_S,
    after,
    bench_of,
    lifted,
)

NAMES = (*ON_FILES, "test", "trial", "copy")
FAST = {"the kill switch", "observe", "a window that opens meanwhile", "a protection", "another leads"}


@pytest.mark.parametrize("name", NAMES)
def test_the_change_is_made_where_nothing_comes_in_between(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_of(name, tmp_path, monkeypatch)
    bench.edited_late(lambda: None)
    before = bench.changed()
    outcome = bench.call()
    assert outcome.ok, outcome.error
    assert bench.changed() != before
    assert bench.on_nodes or name not in ("test", "trial")


@pytest.mark.parametrize(
    ("name", "edit"),
    [pytest.param(name, edit, marks=() if edit in FAST else pytest.mark.slow) for name in NAMES for edit in EDITS],
)
def test_an_edit_between_decision_and_change_is_obeyed(
    name: str, edit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = bench_of(name, tmp_path, monkeypatch)
    bench.edited_late(lambda: EDITS[edit][0](bench))
    before = bench.changed()
    with pytest.raises(Fenced if edit == "another leads" else Denied):
        bench.call()
    assert bench.changed() == before
    (call,) = [call for call in bench.scene.store.calls() if call.tool == bench.tool]
    assert call.status is (CallStatus.INTENT if edit == "another leads" else CallStatus.DENIED)
    last = bench.scene.store.decisions(call.id)[-1]
    assert last.verdict is Verdict.ALLOW if edit == "another leads" else last.verdict is not Verdict.ALLOW
    assert last.rule.startswith(EDITS[edit][1])


@pytest.mark.parametrize("edit", [*MIDDLE, "another leads"])
@pytest.mark.parametrize("program", ["auto", "ring"])
def test_no_further_round_of_a_test_is_started_on_nodes(
    program: str, edit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right behind the question which programs nodes have, and right behind the first round of a test with a faulty node."""
    bench = bench_of("test", tmp_path, monkeypatch)
    bench.scene.transport.unfit = {"node06"}
    edits: list[int] = []
    real = SimulatedCluster.nodes

    def nodes(cluster: SimulatedCluster) -> Any:
        if bench.on_nodes and not edits:
            edits.append(len(bench.on_nodes))
            EDITS[edit][0](bench)
            bench.scene.clock.sleep(SLOW_S)
        return real(cluster)

    bench.arguments = {"nodes": ["node03", "node04", "node06", "node01"], "program": program}
    monkeypatch.setattr(SimulatedCluster, "nodes", nodes)
    outcome = None
    with suppress(Fenced):
        outcome = bench.call()
    assert edits
    assert len(bench.on_nodes) == edits[0]
    assert (outcome is None) == (edit == "another leads")
    if outcome is not None:
        assert not outcome.ok
        assert EDITS[edit][1] in outcome.error
        assert "stands until it ends by itself" in outcome.error, "the reservation is a command, too"


@pytest.mark.parametrize("edit", [*MIDDLE, "another leads"])
def test_no_second_way_to_go_on_is_tried(edit: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from assistant.tools import trial

    bench = bench_of("trial", tmp_path, monkeypatch)
    plan = trial._plan

    def two_ways(*positional: Any) -> Any:
        made = plan(*positional)
        return made._replace(trials=(*made.trials, replace(made.trials[0], variable="RESUME=1")))

    monkeypatch.setattr(trial, "_plan", two_ways)
    after(bench, trial, "trial_answer", monkeypatch, edit)
    outcome = None
    with suppress(Fenced):
        outcome = bench.call()
    assert len(bench.on_nodes) == 1
    assert (outcome is None) == (edit == "another leads")
    assert outcome is None or (not outcome.ok and EDITS[edit][1] in outcome.error)


# a reservation


@pytest.mark.parametrize(
    ("error", "begins"),
    [
        (ToolError("only an operator may reserve nodes"), True),
        (Unavailable("slurmctld does not answer"), True),
        (CommandRefused("no longer allowed"), False),
        (Denied("no longer allowed"), False),
        (Fenced("another leads"), False),
    ],
    ids=lambda value: type(value).__name__,
)
def test_only_a_failing_scheduler_lets_a_test_begin_without_a_reservation(error: Exception, begins: bool, tmp_path: Path) -> None:
    scheduler = scene_of("simulated", tmp_path).scheduler
    assert isinstance(scheduler, Recorder)

    def reserve(*_: Any, **__: Any) -> None:
        raise error

    scheduler.reserve = reserve  # type: ignore[method-assign]
    begun = []
    with suppress(CommandRefused, Denied, Fenced), kept_free(scheduler, ["node01"], 60, name="nightshift-test-1"):
        begun.append(True)
    assert bool(begun) == begins


def test_a_copy_that_lies_there_already_is_compared_all_the_same(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    bench = bench_of("copy", tmp_path, monkeypatch)
    (bench.scene.checkpoints / "train.nightshift.yaml").write_text("load: /c/40\n")
    bench.edited_late(lambda: EDITS["the kill switch"][0](bench))
    before = tree_of(bench.scene.checkpoints)
    with pytest.raises(Denied):
        bench.call()
    lifted(bench)
    assert bench.gate().call(bench.tool, bench.arguments, why="test", by=BY).ok
    assert tree_of(bench.scene.checkpoints) == before
