"""What is no command of the scheduler is allowed once more right before it happens, as each of its commands is.

Renames, hard links, trackers, copied configurations, trials and tests on nodes: CHANGES; what comes in between: EDITS.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from assistant.errors import CommandRefused, Denied, Fenced, Parked, ToolError, Unavailable
from assistant.gate import Gate, Park
from assistant.policy import PolicyInForce
from assistant.ports import Reply
from assistant.records import CallStatus, Event, EventKind, Outcome, Risk, Verdict
from assistant.recover.checkpoints import second_names
from assistant.recover.collective.executor import kept_free
from assistant.recover.resume.config import ConfigCopy
from assistant.rendering import RenderedChange
from assistant.schedulers.simulated import SimulatedCluster
from assistant.store import Store
from assistant.store.standing_decisions import open_breaker
from assistant.tooling import Context, Tool, find_tool, tool
from assistant.tools import aside
from assistant.tools.restarts import copy_lines, make_copy
from tests.adversary.conftest import write
from tests.adversary.frozen_scene import (
    BY,
    CHANGES,
    ON_FILES,
    START,
    Recorder,
    Scene,
    file_arguments_of,
    files_of,
    scene_of,
    tree_of,
)

OBSERVE = 'extends = "shipped"\n[end]\n'
SLOW_S = 300
"""How long a tool works between the decision and its change."""


def acting(scene: Scene, more: str = "") -> str:
    stop = f'replace = ["kill_switch"]\nkill_switch = ["{scene.folder / "stop"}"]\n'
    return f'extends = "shipped"\nmode = "act"\nmin_healthy_share = 0\ncooldown_min = 0\n{stop}{more}[end]\n'


@tool(risk=Risk.CHANGE, kind="resubmit")
def copy_config(context: Context, job: str) -> str:
    """Write the copied configuration of a restart, and no more.

    Args:
        job: Its id.
    """
    make_copy(context, context.scheduler.job(job), _copy(context, job))
    return job


@copy_config.preview
def copying(context: Context, job: str) -> RenderedChange:
    return RenderedChange(copy_lines(_copy(context, job)))


def _copy(context: Context, job: str) -> ConfigCopy:
    folder = context.scheduler.job(job).work_dir or Path()
    return ConfigCopy(folder / "train.yaml", "load", "/c/40", folder / "ckpt/train.nightshift.yaml", "load: /c/40\n", 0o644)


def found(name: str) -> Tool:
    return copy_config if name == copy_config.name else find_tool(name)


@dataclass
class Bench:
    """A scene behind a policy in files, and what reached nodes."""

    scene: Scene
    tool: str
    arguments: dict[str, Any]
    context: Callable[[int | None, str], Context]
    on_nodes: list[str] = field(default_factory=list)

    @property
    def site(self) -> Path:
        return self.scene.folder / "site"

    def gate(self) -> Gate:
        policy = PolicyInForce(self.site)
        return Gate(self.scene.store, self.context, policy, Park(self.scene.store, expires_after_s=1), find=found)

    def call(self, **more: Any) -> Outcome:
        return self.gate().call(self.tool, self.arguments, why="test", by="playbook:x", **more)

    def edited_late(self, edit: Callable[[], object]) -> None:
        """Let something happen between the decision and what the tool does, which takes its time."""
        plain, edits = self.context, []

        def context(incident: int | None, tag: str) -> Context:
            if not edits and self.scene.store.calls(status=CallStatus.INTENT):
                edits.append(edit())
                self.scene.clock.sleep(SLOW_S)
            return plain(incident, tag)

        self.context = context

    def changed(self) -> tuple[dict[str, str], list[str], list[str]]:
        return files_of(self.scene), self.scene.ran(), list(self.on_nodes)


def bench_of(name: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    scene = scene_of("simulated", folder)
    if name in ON_FILES:
        tool_name, arguments = file_arguments_of(scene, name)
    elif name == "copy":
        tool_name, arguments = copy_config.name, {"job": scene.jobs["failed"]}
    else:
        tool_name, given = CHANGES[name]
        arguments = {key: text.format(**scene.jobs) if isinstance(text, str) else text for key, text in given.items()}
    if name == "trial":  # a script of which nobody can tell how it goes on
        arguments["exclude"] = ["node01", "node02", "node03"]
        job = scene.transport._jobs[scene.jobs["failed"]]
        assert job.spec is not None
        script = f"#!/bin/sh\n#NIGHTSHIFT checkpoints={scene.checkpoints}\nsrun python train.py\n"
        scene.transport._jobs[job.id] = replace(job, spec=replace(job.spec, script=script, environment={}))
    bench = Bench(scene, tool_name, dict(arguments), scene.context)
    write(bench.site, acting(scene))
    real = scene.transport.run

    def run(nodes: Any, command: Any, **named: Any) -> Mapping[str, Reply]:
        bench.on_nodes += nodes
        return real(nodes, command, **named)

    monkeypatch.setattr(scene.transport, "run", run)
    return bench


def protection(names: str) -> Callable[[Bench], object]:
    return lambda bench: write(bench.site, acting(bench.scene, f'[[protected]]\n{names}\nwhy = "asked for"\n'))


def window(opens_after: timedelta) -> Callable[[Bench], object]:
    times = f"start = {(START + opens_after).isoformat()}\nend = {(START + timedelta(days=9)).isoformat()}\n"
    return lambda bench: write(bench.site, acting(bench.scene, f'[[window]]\nname = "upgrade"\n{times}'))


def another_leads(bench: Bench) -> None:
    led = bench.scene.store.lead("watch@login1:1.1", 30)
    assert led is not None
    bench.scene.store.fence_off(led)
    bench.scene.clock.sleep(60)
    with Store(bench.scene.folder / "s.db", bench.scene.clock) as other:
        assert other.lead("watch@login2:2.2", 30) is not None


EDITS: dict[str, tuple[Callable[[Bench], object], str]] = {
    "the kill switch": (lambda bench: (bench.scene.folder / "stop").touch(), "kill_switch"),
    "another kill switch": (
        lambda bench: write(bench.site, acting(bench.scene).replace(str(bench.scene.folder / "stop"), "/proc/self/status")),
        "kill_switch",
    ),
    "observe": (lambda bench: write(bench.site, OBSERVE), "mode.observe"),
    "propose": (lambda bench: write(bench.site, acting(bench.scene).replace('"act"', '"propose"')), "mode.propose"),
    "a window": (window(timedelta(0)), "window.upgrade"),
    "a window that opens meanwhile": (window(timedelta(seconds=SLOW_S)), "window.upgrade"),
    "a protection": (protection('jobs = ["llm"]\nnodes = ["*"]'), "protected."),
    "a protected user": (protection('users = ["root"]\nnodes = ["*"]'), "protected."),
    "a cap": (
        lambda bench: write(bench.site, acting(bench.scene, f"[kind.{found(bench.tool).kind}]\nhard = {{ per_hour = 0 }}\n")),
        "kind.",
    ),
    "the breaker": (lambda bench: open_breaker(bench.scene.store, why="three failed", by="test"), "breaker"),
    "cut off": (lambda bench: write(bench.site, acting(bench.scene)[:40]), "policy"),
    "gone": (lambda bench: shutil.rmtree(bench.site), "policy"),
    "another leads": (another_leads, ""),
}
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


# between two steps of one change


def after(bench: Bench, module: Any, function: str, monkeypatch: pytest.MonkeyPatch, edit: str, *, times: int = 1) -> None:
    """Let an edit come right behind a step that a change makes several of."""
    real, steps = getattr(module, function), []

    def step(*given: Any, **named: Any) -> Any:
        result = real(*given, **named)
        steps.append(function)
        if len(steps) == times:
            EDITS[edit][0](bench)
            bench.scene.clock.sleep(SLOW_S)
        return result

    monkeypatch.setattr(module, function, step)


def lifted(bench: Bench) -> None:
    (bench.scene.folder / "stop").unlink(missing_ok=True)
    write(bench.site, acting(bench.scene))


def of_three_ranks(bench: Bench) -> None:
    folder = bench.scene.checkpoints
    shutil.rmtree(folder)
    folder.mkdir()
    for rank in range(3):
        for step in (20, 40):
            (folder / f"ep0-ba{step}-rank{rank}.pt").write_bytes(b"\x80" + bytes(9000))
        (folder / f"latest-rank{rank}.pt").symlink_to(f"ep0-ba40-rank{rank}.pt")


def two_saves(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Bench:
    bench = bench_of("set aside", folder, monkeypatch)
    bench.arguments["paths"] = [str(bench.scene.checkpoints / f"iter_00000{step}") for step in (40, 20)]
    return bench


MIDDLE = ("the kill switch", "observe", "a window", "a protection", "a cap")


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
    assert f"not put back: {place}" in outcome.error
    assert outcome.value["paths"] == [str(place)]
    assert (place.is_dir(), first.exists(), second.is_dir()) == (True, False, True)
    refusals = [one for one in bench.scene.store.decisions(outcome.call) if one.verdict is not Verdict.ALLOW]
    assert [one.rule for one in refusals if one.rule.startswith(EDITS[edit][1])] == [one.rule for one in refusals] != []
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
    before, real, stops = files_of(bench.scene), aside.move, [False, True]
    stop = stops.pop(0)

    def move(change: Any, account: str) -> bool:
        if change.source == Path(bench.arguments["paths"][1]):
            if stop:
                EDITS["the kill switch"][0](bench)
            raise ToolError("the place is taken")
        return real(change, account)

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

    def link_into(*given: Any) -> None:
        real(*given)
        steps.append(given)

    monkeypatch.setattr(second_names, "_link_into", link_into)
    edits: list[str] = []
    real_step = second_names.as_owner  # links are made in a thread that must not use the store: the edit comes right behind it

    def as_owner(*given: Any) -> Any:
        result = real_step(*given)
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

    def two_ways(*given: Any) -> Any:
        made = plan(*given)
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

    def step(*given: Any, **named: Any) -> None:
        real(*given, **named)
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
