"""Shipped playbooks from end to end: real tools, gate, policy and store; only the cluster is simulated."""

from __future__ import annotations

from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from assistant.config import Settings
from assistant.content.playbooks import choose_playbook, playbooks
from assistant.engine import Engine
from assistant.policy import Mode, load_policy
from assistant.ports import JumpingClock
from assistant.records import (
    Action,
    Category,
    Citation,
    DecidedBy,
    Diagnosis,
    Event,
    EventKind,
    IncidentState,
    JobSpec,
    JobState,
    NodeFinding,
    NodeState,
)
from assistant.recover.playbook import LOOK_S, Ended, run_playbook
from assistant.recover.rehearsal import PROOF
from assistant.recover.situation import situation
from assistant.schedulers.simulated import SimulatedCluster
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.wiring import build

START = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)


@dataclass(frozen=True)
class Case:
    """What happens to a job, what was diagnosed, and what must come of it."""

    reason: str
    action: Action
    runs: tuple[SimulatedRun, ...]
    changes: tuple[str, ...]
    """What may change on the cluster after the first submission, in order."""
    ends: IncidentState = IncidentState.RECOVERED
    faulty: tuple[str, ...] = ()
    step: int | None = 50
    spike: int | None = None
    directives: str = ""
    after_s: float = 70
    note: str = ""
    down_s: float = 0
    """How long storage stays away."""
    category: Category = Category.INFRASTRUCTURE
    mode: Mode = Mode.ACT


FAILS = SimulatedRun(fails_at=50)
RESTART = ("submit 2",)
CASES = {
    "ecc": Case("ecc_error", Action.CORDON_AND_RESTART, (FAILS, SimulatedRun()), ("cordon node02", "submit 2"), faulty=("node02",)),
    "ecc with a cut checkpoint": Case(
        "ecc_error",
        Action.CORDON_AND_RESTART,
        (replace(FAILS, cut=(40,)), SimulatedRun()),
        ("cordon node02", "submit 2"),
        faulty=("node02",),
    ),
    "nothing named": Case("nvlink_error", Action.CORDON_AND_RESTART, (FAILS, SimulatedRun()), RESTART),
    "timeout": Case("nccl_timeout_error", Action.RESTART_SAME_NODES, (FAILS, SimulatedRun()), RESTART),
    "data worker": Case(
        "dataloader_killed", Action.RESTART_SAME_NODES, (FAILS, SimulatedRun()), RESTART, category=Category.FRAMEWORK
    ),
    "storage": Case("s3_storage_error", Action.WAIT_AND_RETRY, (FAILS, SimulatedRun()), RESTART, down_s=600),
    "storage never": Case(
        "s3_storage_error",
        Action.WAIT_AND_RETRY,
        (FAILS,),
        (),
        IncidentState.ESCALATED,
        down_s=90_000,
        note="not storage_answers within",
    ),
    "script bug": Case(
        "type_error",
        Action.FIX_AND_RESUBMIT,
        (FAILS,),
        (),
        IncidentState.ESCALATED,
        category=Category.SCRIPT,
        note="ada must act: mend it",
    ),
    "memory early": Case(
        "out_of_memory_error", Action.FIX_AND_RESUBMIT, (FAILS,), (), IncidentState.ESCALATED, note="ada must act"
    ),
    "memory late": Case("out_of_memory_error", Action.FIX_AND_RESUBMIT, (FAILS, SimulatedRun()), RESTART, step=4_000),
    "hang": Case(
        "hang", Action.RESTART_SAME_NODES, (SimulatedRun(hangs_at=50), SimulatedRun()), ("cancel 1", "submit 2"), after_s=900
    ),
    "spike": Case(
        "loss_spike",
        Action.ROLLBACK_AND_SKIP_DATA,
        (SimulatedRun(spikes_at=67),),
        ("cancel 1", "submit 2"),
        spike=67,
        after_s=95,
        step=90,
    ),
    "broken load": Case(
        "model_loading_error",
        Action.FIX_AND_RESUBMIT,
        (replace(FAILS, cut=(40,)), SimulatedRun()),
        RESTART,
        category=Category.FRAMEWORK,
    ),
    "foreign model": Case(
        "model_loading_error", Action.FIX_AND_RESUBMIT, (FAILS,), (), IncidentState.ESCALATED, note="ada must act"
    ),
    "time limit": Case("time_limit", Action.RESTART_SAME_NODES, (FAILS, SimulatedRun()), RESTART),
    "time limit before the first save": Case(
        "time_limit", Action.RESTART_SAME_NODES, (replace(FAILS, save_every=80),), (), IncidentState.ESCALATED, note="ada must act"
    ),
    "time limit of a run whose owner wants to be asked": Case(
        "time_limit", Action.RESTART_SAME_NODES, (FAILS,), (), IncidentState.ESCALATED, note="ada must act", directives="act=ask"
    ),
    "chained run": Case("time_limit", Action.RESTART_SAME_NODES, (FAILS, SimulatedRun()), RESTART, directives="act=auto"),
    "preempted": Case("preempted", Action.WAIT_AND_RETRY, (replace(FAILS, state=JobState.PREEMPTED), SimulatedRun()), RESTART),
    "cancelled": Case("cancelled", Action.NONE, (FAILS,), (), IncidentState.CLOSED, category=Category.NONE),
    "unknown": Case("unknown", Action.NONE, (FAILS,), (), IncidentState.ESCALATED, note="nothing explains why job 1 ended"),
    "fails again": Case(
        "nccl_remote_error",
        Action.RESTART_SAME_NODES,
        (FAILS, SimulatedRun(fails_at=40)),
        RESTART,
        IncidentState.ESCALATED,
        note="job 2 failed",
    ),
    "only watched": Case(
        "ecc_error",
        Action.CORDON_AND_RESTART,
        (FAILS,),
        (),
        IncidentState.ESCALATED,
        ("node02",),
        mode=Mode.OBSERVE,
        note="was refused",
    ),
}


class World:
    """A cluster, an engine, and an incident about job 1."""

    def __init__(self, folder: Path, case: Case) -> None:
        self.case = case
        self.clock = JumpingClock(START)
        self.cluster = SimulatedCluster(self.clock, folder, nodes=8)
        self.saved = folder / "ckpt"
        self.saved.mkdir()
        self.cluster.plan("llm", *(replace(run, checkpoints=self.saved) for run in case.runs))
        stated = f'checkpoints={self.saved} skip="--skip {{from}}:{{to}}" {case.directives}'
        script = f"#NIGHTSHIFT {stated}\npython t.py $NIGHTSHIFT_RESUME_FROM $NIGHTSHIFT_ARGS\n"
        spec = JobSpec("llm", script, nodes=2, work_dir=folder, user="ada", log="job-%j.log")
        self.job = self.cluster.submit(spec)
        self.clock.sleep(case.after_s)
        self.cluster.jobs()
        if case.down_s:
            (self.saved / "storage_down_until").write_text(str(self.clock.now().timestamp() + case.down_s))
        policy = replace(load_policy(), mode=case.mode, kill_switch=(folder / "stop",))
        settings = Settings(state_folder=folder, store=folder / "nightshift.db", commands={"kernel_log": ("dmesg",)})
        self.engine: Engine = build(settings, clock=self.clock, scheduler=self.cluster, transport=self.cluster, policy=policy)
        self.incident, _ = self.engine.store.open_incident(Event(EventKind.JOB_ENDED, self.job, None, self.clock.now()))

    def recover(self, look_s: float = LOOK_S, patience_s: float | None = None) -> Ended:
        case = self.case
        root = (Citation("job.log", 12, "the line that proves it", f"{case.reason}.x"),)
        nodes = tuple(NodeFinding(node, "named", PROOF) for node in case.faulty)
        found = Diagnosis(
            case.reason,
            case.category,
            case.action,
            0.9,
            DecidedBy.RULE,
            root,
            nodes,
            (),
            "it broke",
            "mend it",
            case.step,
            case.spike,
        )
        playbook = choose_playbook(found, playbooks())
        assert playbook is not None
        values = situation(self.incident, found, self.cluster.job(self.job), now=self.clock.now())
        return run_playbook(self.incident, playbook, values, self.engine.gate, self.clock, look_s=look_s, patience_s=patience_s)


@pytest.mark.parametrize("case", CASES.values(), ids=CASES.keys())
def test_a_failure_ends_as_its_playbook_says(case: Case, tmp_path: Path) -> None:
    world = World(tmp_path, case)
    ended = world.recover()
    assert (ended.state, tuple(world.cluster.changes[1:])) == (case.ends, case.changes), ended.note
    assert case.note in ended.note


@pytest.mark.parametrize("name", ["ecc", "storage", "hang", "spike", "preempted"])
def test_it_ends_the_same_in_many_short_looks(name: str, tmp_path: Path) -> None:
    world = World(tmp_path, CASES[name])
    ended = world.recover(look_s=0, patience_s=0)
    for _ in range(2_000):
        if ended.state.ended:
            break
        world.clock.sleep(10)
        ended = world.recover(look_s=0, patience_s=0)
    assert (ended.state, tuple(world.cluster.changes[1:])) == (CASES[name].ends, CASES[name].changes), ended.note


def test_the_node_stays_out_and_the_job_completes_elsewhere(tmp_path: Path) -> None:
    world = World(tmp_path, CASES["ecc with a cut checkpoint"])
    ended = world.recover()
    assert "from step 20" in ended.values["again"]["note"]
    world.clock.sleep(600)
    again = world.cluster.job("2")
    assert (again.state, "node02" in again.nodes) == (JobState.COMPLETED, False)
    assert {node.name: node.state for node in world.cluster.nodes()}["node02"] is NodeState.DRAINED


def test_after_a_spike_the_data_is_left_out_and_the_loss_is_as_before(tmp_path: Path) -> None:
    ended = World(tmp_path, CASES["spike"]).recover()
    assert ended.values["again"]["step"] == 60
    assert ended.values["again"]["skipped_steps"][0] == 61
    assert "median loss" in ended.note
