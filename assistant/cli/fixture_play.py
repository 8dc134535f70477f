"""Play a playbook's cluster fixtures: the whole engine at work, only the cluster is simulated and time jumps.

Log lines, diagnosis, choice of the playbook, policy, gate, tools and store are the real ones, so a fixture also shows that its
lines lead to its playbook.
"""

from __future__ import annotations

import dataclasses
import shutil
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from assistant.config import Settings, WatchSettings
from assistant.content.playbooks import ClusterFixture, Fixture, Happening, Playbook, choose_playbook, playbooks
from assistant.engine.untold import untold
from assistant.errors import Unavailable
from assistant.policy import Mode, load_policy
from assistant.ports import JumpingClock
from assistant.records import Event, EventKind, Incident, IncidentState, Job, JobSpec
from assistant.recover.directives import read_directives
from assistant.recover.playbook import STATES
from assistant.recover.restart import SKIP_STEPS, STEP
from assistant.schedulers.simulated import SimulatedCluster
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.wiring import build

if TYPE_CHECKING:
    from assistant.diagnose.knowledge import Knowledge

START = datetime(2026, 1, 5, 2, 0, tzinfo=UTC)
OUTAGE = "storage_down_until"
"""The file by which our trainer and `wait_storage` are told that the storage is away."""
PATIENCE_S = 900.0
"""Without any change for so long nothing more will come of a job that hangs or waits."""
PACES_S = (10.0, 60.0)
"""Between two passes of the watch: while things change, and once nothing has changed for some minutes."""
LONGEST_S = 30 * 3600.0
"""More than the longest verify of a shipped playbook."""


@dataclass(frozen=True, slots=True)
class Played:
    """What came of a job on the simulated cluster."""

    fixture: str
    changes: tuple[str, ...]
    """What Nightshift changed on the cluster, in order."""
    incidents: tuple[Incident, ...]
    """Oldest first."""
    problems: tuple[str, ...]
    """Where it differs from what the fixture says; empty when it passed."""


def play_fixture(playbook: Playbook, fixture: Fixture, *, site: Path | None = None, knowledge: Knowledge | None = None) -> Played:
    """Play a fixture that has a `cluster` and return what came of it.

    Args:
        playbook: The fixture's own.
        fixture: Its name, reason and `cluster` count.
        site: Folder of the site's content.
        knowledge: What is known of failures, where it is loaded already.
    """
    if fixture.cluster is None:
        raise ValueError(f"fixture {fixture.name!r} has no cluster to be played on")
    with tempfile.TemporaryDirectory(prefix="nightshift-play-") as folder, untold():
        stage = _Stage(Path(folder), playbook, fixture.cluster, site, knowledge)
        stage.play()
        incidents = tuple(reversed(stage.engine.store.incidents()))
        problems = (*_outcome_problems(stage, fixture, incidents), *_restart_problems(stage))
        return Played(fixture.name, stage.changes, incidents, problems)


class _Stage:
    """A cluster, an engine on it, and job 1."""

    def __init__(
        self, folder: Path, playbook: Playbook, fixture: ClusterFixture, site: Path | None, knowledge: Knowledge | None
    ) -> None:
        self.playbook, self.told = playbook, fixture
        self.clock = JumpingClock(START)
        self.cluster = SimulatedCluster(self.clock, folder, nodes=fixture.node_names)
        self.saved = folder / "checkpoints"
        self.saved.mkdir()
        self.outage = self.saved / OUTAGE
        self.cluster.plan("llm", *(SimulatedRun(**vars(run), checkpoints=self.saved) for run in fixture.runs))
        self.site = _site_with(playbook, site, folder / "site")
        settings = Settings(
            state_folder=folder,
            store=folder / "nightshift.db",
            content=self.site,
            commands={"kernel_log": ("dmesg",)},
            watch=WatchSettings(poll_s=PACES_S[0], hang_after_s=300),
        )
        # the shipped policy: a fixture must mean the same at every site
        policy = dataclasses.replace(load_policy(), mode=Mode.ACT, kill_switch=())
        self.engine = build(settings, clock=self.clock, scheduler=self.cluster, transport=self.cluster, policy=policy)
        if knowledge is not None:
            self.engine.shipped = knowledge
        self.to_come = sorted(fixture.happens, key=lambda happening: happening.after_s)
        words = f'checkpoints={self.saved} skip="--skip {{from}}:{{to}}" {fixture.directives}'
        script = f"#NIGHTSHIFT {words}\nsrun python train.py ${{NIGHTSHIFT_RESUME_FROM:-}} ${{NIGHTSHIFT_ARGS:-}}\n"
        spec = JobSpec("llm", script, nodes=fixture.job_nodes, work_dir=folder, user="ada", log="job-%j.log")
        self.spec = dataclasses.replace(spec, time_limit_s=fixture.time_limit_s)
        self.cluster.submit(self.spec)

    @property
    def changes(self) -> tuple[str, ...]:
        """What Nightshift changed: all but the first submission."""
        return tuple(self.cluster.changes[1:])

    def play(self) -> None:
        """Let time pass until nothing more will come."""
        state, unchanged_since = self._observed_state(), START
        while (now := self.clock.now()) < START + timedelta(seconds=LONGEST_S):
            quiet_s = (now - unchanged_since).total_seconds()
            if self._over(quiet_s):
                return
            self._pass(PACES_S[quiet_s > PATIENCE_S / 2])
            try:
                self.engine.tick(owner="fixture")
            except Unavailable:
                continue
            if state != (state := self._observed_state()):
                unchanged_since = self.clock.now()

    def _over(self, quiet_s: float) -> bool:
        if self.to_come or self.cluster.outage:
            return False
        stuck = quiet_s > PATIENCE_S
        waits = any(
            not incident.state.ended and not (stuck and incident.state is IncidentState.WAITING)
            for incident in self.engine.store.incidents()
        )
        return not waits and (stuck or all(job.state.ended for job in self.cluster.jobs()))

    def _observed_state(self) -> object:
        """Return all by which one sees that something changed."""
        incidents = [(incident.id, incident.state) for incident in self.engine.store.incidents()]
        jobs = [] if self.cluster.outage else [(job.id, job.attempt, job.state) for job in self.cluster.jobs()]
        return incidents, jobs, self.changes, len(self.to_come)

    def _pass(self, seconds: float) -> None:
        """Let so much time pass; what happens meanwhile happens at its own moment."""
        end = self.clock.now() + timedelta(seconds=seconds)
        while self.to_come and (at := START + timedelta(seconds=self.to_come[0].after_s)) <= end:
            self.clock.sleep((at - self.clock.now()).total_seconds())
            self._happens(self.to_come.pop(0))
        self.clock.sleep((end - self.clock.now()).total_seconds())

    def _happens(self, happening: Happening) -> None:
        about = happening.about
        match happening.word:
            case "ask":
                self.engine.open_for(about, by="cli:ada")
            case "submit":
                spec = self.cluster.job(about).spec
                own = self.cluster.submit(spec if spec is not None else self.spec)
                self.cluster.changes.remove(f"submit {own}")
            case "slow":
                self.engine.open(Event(EventKind.SLOW_JOB, about, None, self.clock.now(), attempt=self.cluster.job(about).attempt))
            case "cancel":
                self.cluster.set_cancelled(about)
            case "requeue":
                self.cluster.set_requeued(about)
            case "cordon":
                self.cluster.set_cordon(about, "grace: replacing a fan")
            case "down":
                self.cluster.set_down(about)
            case "up":
                self.cluster.set_up(about)
            case "storage_away":
                self.outage.write_text(str((START + timedelta(days=365)).timestamp()), encoding="utf-8")
            case "storage_back":
                self.outage.unlink(missing_ok=True)
            case "scheduler_away" | "scheduler_back":
                self.cluster.outage = happening.word == "scheduler_away"
            case _:
                raise ValueError(f"{happening.what!r} cannot happen")


def _site_with(playbook: Playbook, site: Path | None, folder: Path) -> Path | None:
    """Return a folder of site content in which the playbook is the one of its name."""
    existing = playbooks(site).get(playbook.name)
    if existing is not None and existing.digest == playbook.digest:
        return site
    if site is not None and site.is_dir():
        shutil.copytree(site, folder)
    (folder / "playbooks").mkdir(parents=True, exist_ok=True)
    shutil.copyfile(playbook.path, folder / "playbooks" / f"{playbook.name}.toml")
    return folder


def _outcome_problems(stage: _Stage, fixture: Fixture, incidents: tuple[Incident, ...]) -> Iterator[str]:
    ending = stage.told
    yield from (f"directives: {problem}" for problem in read_directives(f"#NIGHTSHIFT {ending.directives}").problems)
    if stage.changes != ending.changes:
        yield f"changed {_listed(stage.changes)} instead of {_listed(ending.changes)}"
    if not incidents:
        yield "no incident was opened: nothing that a watch notices happened to the job"
        return
    first, *later = incidents
    if first.state is not STATES[fixture.ends]:
        yield f"ended {first.state} instead of {fixture.ends}: {first.note}"
    elif ending.note not in first.note:
        yield f"its note says {first.note!r}, not {ending.note!r}"
    states = tuple(incident.state for incident in later)
    if states != ending.later:
        notes = "".join(f"; incident {incident.id}: {incident.note}" for incident in later)
        yield f"later incidents ended {_listed(states)} instead of {_listed(ending.later)}{notes}"
    yield from _diagnosis_problems(stage, fixture, first)


def _diagnosis_problems(stage: _Stage, fixture: Fixture, incident: Incident) -> Iterator[str]:
    diagnosis = stage.engine.store.diagnosis(incident.id)
    if diagnosis is None:
        yield "the incident was not diagnosed"
        return
    if diagnosis.reason != fixture.reason:
        yield f"diagnosed {diagnosis.reason} instead of {fixture.reason}: {diagnosis.summary}"
    if fixture.action is not None and diagnosis.action is not fixture.action:
        yield f"advised {diagnosis.action} instead of {fixture.action}"
    if fixture.faulty_nodes and set(diagnosis.faulty_nodes) != set(fixture.faulty_nodes):
        yield f"blamed {_listed(diagnosis.faulty_nodes)} instead of {_listed(fixture.faulty_nodes)}"
    playbook = choose_playbook(diagnosis, stage.engine.playbooks)
    if playbook is None or playbook.name != stage.playbook.name:
        yield f"chose playbook {playbook.name if playbook else 'none'} for {diagnosis.reason} with {diagnosis.action}"


def _restart_problems(stage: _Stage) -> Iterator[str]:
    """Compare the last submission with what the fixture says of it."""
    fixture, last = stage.told, stage.cluster.jobs()[-1]
    environment = last.spec.environment if last.spec is not None else {}
    step = int(environment.get(STEP, "0") or 0)
    if fixture.restart_step is not None and step != fixture.restart_step:
        yield f"job {last.id} began with step {step} instead of {fixture.restart_step}"
    if fixture.excluded is not None and set(_excluded(last)) != set(fixture.excluded):
        yield f"job {last.id} stays away from {_listed(_excluded(last))} instead of {_listed(fixture.excluded)}"
    skipped = tuple(int(environment[name]) for name in SKIP_STEPS if name in environment)
    if fixture.skipped is not None and skipped != fixture.skipped:
        yield f"job {last.id} leaves out the data of steps {skipped} instead of {fixture.skipped}"


def _excluded(job: Job) -> tuple[str, ...]:
    return tuple(job.spec.exclude) if job.spec is not None else ()


def _listed(words: tuple[str, ...]) -> str:
    return ", ".join(words) or "nothing"
