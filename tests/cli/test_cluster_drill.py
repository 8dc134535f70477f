"""A drill on a cluster: the site's policy is asked before each of its own steps, and acts only with brakes."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest

from assistant.config import Settings
from assistant.content.faults import Drill
from assistant.demo import cluster_drill
from assistant.demo.cluster_drill import ClusterDrill, acting
from assistant.errors import Denied
from assistant.policy import Mode, Policy, PolicyInForce
from assistant.records import Job, JobState
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.wiring import build
from tests.scenarios.scene import Scene


def site(home: Path, text: str) -> Path:
    """Write a site's policy and return its content folder."""
    path = home / "site" / "knowledge" / "policy.toml"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(f"{text}\n[end]\n", encoding="utf-8")
    return home / "site"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('mode = "observe"', "add kill_switch = "),
        ('kill_switch = ["{home}/stop"]', "add per_hour and per_day there"),
        ('kill_switch = ["{home}/stop"]\nhard = {{ per_hour = 3 }}', "add per_hour and per_day there"),
        ("hard = {{ per_hour = 3, per_day = 9 }}", "add kill_switch = "),
        ('kill_switch = ["{home}/shared/stop"]\nhard = {{ per_hour = 3, per_day = 9 }}', "others may write it"),
    ],
)
def test_a_drill_does_not_make_a_policy_without_brakes_act(
    home: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    monkeypatch.setenv("HOME", str(home / "elsewhere"))
    (home / "shared").mkdir()
    (home / "shared").chmod(0o1777)
    in_force = PolicyInForce(site(home, text.format(home=home)))
    assert in_force.look().problem == ""
    with pytest.raises(Denied, match=message):
        acting(in_force)
    raised = in_force.amended(lambda policy: dataclasses.replace(policy, mode=Mode.ACT)).amended(lambda policy: policy)
    assert message in raised.look().problem
    assert raised.look().digest == ""


def test_an_amended_policy_in_memory_needs_brakes_too() -> None:
    raised = PolicyInForce.of(Policy()).amended(lambda policy: dataclasses.replace(policy, mode=Mode.ACT))
    assert "needs a kill switch" in raised.look().problem
    assert raised.look().policy.mode is Mode.OBSERVE


def test_a_drill_refuses_to_begin_while_changes_are_stopped(home: Path) -> None:
    (home / "stop").touch()
    with pytest.raises(Denied, match="kill switch"):
        acting(PolicyInForce.of(Policy(kill_switch=(home / "stop",))))
    with pytest.raises(Denied, match="no policy is in force"):
        acting(PolicyInForce(home / "no-such-site"))


def test_a_drill_puts_back_only_what_it_took_out_itself(home: Path) -> None:
    from assistant.demo.cluster_drill import ClusterDrill
    from tests.scenarios.scene import Scene

    (home / "scene").mkdir()
    scene = Scene(home / "scene", nodes=40)
    scene.cluster.cordon("node07", "nightshift:3:9 until=2026-02-01T00:00Z another watch's")
    for node in ("node03", "node04"):
        scene.engine.gate.call("cordon_node", {"node": node, "reason": "a drill"}, why="", by="cli:ada", approved_by="ada")
    scene.cluster.uncordon("node04")
    scene.cluster.cordon("node04", "nightshift:5:1 until=2026-02-01T00:00Z taken out by another watch since")
    own = next(node.reason for node in scene.cluster.nodes() if node.name == "node03")
    scene.cluster.set_cordon("node03", f"{own} (was: Not responding)")
    scene.cluster.changes.clear()
    drill = ClusterDrill.__new__(ClusterDrill)
    drill.engine, drill.cluster, drill.by, drill.name, drill.leftovers = scene.engine, scene.cluster, "cli:ada", "drill-x", []
    drill.close()
    assert scene.cluster.changes == ["uncordon node03"]


BRAKES = 'kill_switch = ["{home}/stop"]\nhard = {{ per_hour = 40, per_day = 90 }}\n'
LINK = Drill("link_cut", "cut", at_step=30, rig=(("fail-node", "{node}"),), heal=(("heal-node", "{node}"),))


class FakeRig:
    """Keeps what it was told to do."""

    slurm_conf = ssh_config = Path("/nowhere")

    def __init__(self) -> None:
        self.commands: list[str] = []

    def do(self, words: Sequence[str], names: dict[str, str]) -> None:
        """Keep a command."""
        self.commands.append(words[0])


class Playground:
    """A drill on a simulated cluster, whose time goes on with each pass."""

    def __init__(self, home: Path, monkeypatch: pytest.MonkeyPatch, drill: Drill = LINK) -> None:
        self.home, self.rig = home, FakeRig()
        for folder in ("scene", "drill-1/work"):
            (home / folder).mkdir(parents=True)
        self.scene = Scene(home / "scene")
        self.scene.cluster.plan(f"drill-{drill.name}-1", SimulatedRun())
        self.edit("")
        monkeypatch.setattr(cluster_drill, "POLL_S", 0.001)

        def engine(settings: Settings, *, policy: PolicyInForce, **_: Any) -> Any:
            scene, cluster = self.scene, self.scene.cluster
            settings = Settings(state_folder=settings.state_folder, store=settings.store)
            return build(settings, clock=scene.clock, scheduler=cluster, transport=cluster, policy=policy)

        monkeypatch.setattr(cluster_drill, "build", engine)
        in_force = PolicyInForce(home / "site")
        self.drill = ClusterDrill(drill, self.rig, home / "drill-1" / "work", in_force, by="cli:ada")  # type: ignore[arg-type]
        self.passes = 0

    def edit(self, text: str) -> None:
        """Give the site another policy."""
        site(self.home, BRAKES.format(home=self.home) + text)

    def run(self, at: dict[int, Callable[[], object]]) -> None:
        """Run the drill; at some passes something happens."""

        def show(_: ClusterDrill) -> None:
            self.passes += 1
            at.get(self.passes, lambda: None)()
            self.scene.clock.sleep(5)
            if self.passes > 200:
                raise KeyboardInterrupt

        try:
            self.drill.run(show)
        finally:
            self.drill.close()

    @property
    def jobs(self) -> list[Job]:
        """The drill's jobs."""
        return [job for job in self.scene.cluster.jobs() if job.name == self.drill.name]

    @property
    def states(self) -> list[JobState]:
        """Their states."""
        return [job.state for job in self.jobs]


@pytest.fixture
def playground(home: Path, monkeypatch: pytest.MonkeyPatch) -> Playground:
    """A drill that cuts a node off."""
    return Playground(home, monkeypatch)


def test_a_drill_that_is_interrupted_heals_the_node_and_ends_its_job(playground: Playground) -> None:
    def interrupt_once_struck() -> None:
        if playground.drill.struck:
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        playground.run(dict.fromkeys(range(200), interrupt_once_struck))
    assert playground.rig.commands == ["fail-node", "heal-node"]
    assert playground.states == [JobState.CANCELLED]
    assert playground.drill.leftovers == []


def test_a_stop_in_the_middle_of_a_drill_stops_it_and_what_it_made_is_named(
    playground: Playground, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Denied, match="kill_switch"):
        playground.run({2: (playground.home / "stop").touch})
    assert playground.rig.commands == []
    assert playground.states == [JobState.RUNNING]
    assert "scancel" in playground.drill.leftovers[0]
    assert playground.drill.leftovers[0] in capsys.readouterr().err


def test_a_stop_after_the_strike_leaves_the_node_hurt_and_says_how_to_heal_it(playground: Playground) -> None:
    def stop_once_struck() -> None:
        if playground.drill.struck:
            (playground.home / "stop").touch()

    with pytest.raises(Denied, match="kill_switch"):
        playground.run(dict.fromkeys(range(200), stop_once_struck))
    assert playground.rig.commands == ["fail-node"]
    assert any("heal-node node02" in text for text in playground.drill.leftovers)


@pytest.mark.parametrize(
    "text",
    [
        '[[protected]]\nnodes = ["node02"]\nkinds = ["cordon"]\nwhy = "on loan"\n',
        '[[window]]\nname = "move"\nstart = 2026-01-01T00:00:00Z\nend = 2027-01-01T00:00:00Z\n',
        '[[window]]\nname = "move"\nnodes = ["node02"]\nstart = 2026-01-01T00:00:00Z\nend = 2027-01-01T00:00:00Z\n',
        '[[protected]]\nusers = ["ada"]\nwhy = "left alone"\n',
        "mode = 3\n",
    ],
)
def test_an_edit_of_the_policy_in_the_middle_of_a_drill_holds_at_its_next_step(playground: Playground, text: str) -> None:
    with pytest.raises(Denied, match="the drill did not"):
        playground.run({2: lambda: playground.edit(text)})
    assert playground.rig.commands == []


def test_no_fault_is_armed_before_the_policy_was_asked(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    drill = Drill("hung_rank", "hang", at_step=30, fault="hang", cancel=True)
    playground = Playground(home, monkeypatch, drill)
    armed = playground.drill.folder / "faults"
    with pytest.raises(Denied, match="kill_switch"):
        playground.run({2: (home / "stop").touch})
    assert list(armed.iterdir()) == []
    assert playground.states == [JobState.RUNNING]


def test_the_job_of_a_drill_stays_off_protected_nodes(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    playground = Playground(home, monkeypatch)
    playground.edit('[[protected]]\nnodes = ["node01"]\nwhy = "on loan"\n')
    playground.run({})
    assert [job.nodes for job in playground.jobs] == [("node02", "node03", "node04", "node05")]
