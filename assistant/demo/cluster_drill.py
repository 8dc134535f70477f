"""One drill on a real Slurm cluster: a real job over real nodes, hurt for real, looked after by the engine.

The cluster is hurt and healed through a rig, a program that is called from outside. It must know `env` (prints `export NAME=value`
lines: SLURM_CONF, DEVCLUSTER_SSH_CONFIG, DEVCLUSTER_SHARED), `fail-node`, `heal-node`, `inject` and `exec`. The folder that all
nodes share must be reachable here under the name that the nodes use.
"""

from __future__ import annotations

import dataclasses
import getpass
import json
import shlex
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path

from assistant import processes
from assistant.accounts import both_names
from assistant.config import Settings, SlurmSettings, SshSettings, WatchSettings
from assistant.content.faults import Drill, cluster_faults
from assistant.demo.job import armed
from assistant.demo.rehearsal import RehearsalResult, differences
from assistant.display import line
from assistant.engine import Engine
from assistant.engine.ownership import owner_name
from assistant.engine.report import times_of
from assistant.errors import ConfigError, Denied, NightshiftError, Unavailable
from assistant.gate.stops import stopped_by
from assistant.logs.metrics import metric_points
from assistant.logs.tail import LogFollower
from assistant.policy import Mode, PolicyInForce, Request, Situation, Targets, decide
from assistant.ports import Scheduler, SystemClock
from assistant.records import CallStatus, Decision, Job, JobSpec, JobState, Node, NodeState, Outcome, Risk, Verdict
from assistant.wiring import build

SHARED = Path("/shared")
"""What the nodes call the folder that they share."""
DEADLINE_S = 60.0


class Rig:
    """A test cluster's own tool."""

    def __init__(self, program: Path, home: Path | None) -> None:
        """Ask the tool what its cluster is called.

        Raises:
            ConfigError: The tool is not there, or its cluster is not up.
        """
        self._words = [str(program), *(["--home", str(home)] if home else [])]
        if not program.is_file():
            raise ConfigError(f"--rig {program}: there is no such program; it starts and hurts the test cluster")
        self.variables = self._variables()
        self._linked = False

    @property
    def slurm_conf(self) -> Path:
        """The slurm.conf of the cluster."""
        return Path(self.variables["SLURM_CONF"])

    @property
    def ssh_config(self) -> Path:
        """The ssh_config that reaches its nodes."""
        return Path(self.variables["DEVCLUSTER_SSH_CONFIG"])

    def do(self, words: Sequence[str], names: Mapping[str, str]) -> None:
        """Run one command of the tool, with `{node}` and the like filled in.

        Raises:
            Unavailable: It failed; the message has its words.
        """
        filled = [_filled(word, names) for word in words]
        process = processes.run(
            [*self._words, *filled],
            environment=processes.own_environment(),
            capture_output=True,
            text=True,
            timeout=DEADLINE_S,
            stdin=subprocess.DEVNULL,
        )
        if process.returncode:
            raise Unavailable(f"{shlex.join(filled)}: {process.stderr.strip() or process.stdout.strip()}")

    def share(self, folder: Path | None = None) -> Path:
        """Return a folder that has the same name here and on the nodes.

        Args:
            folder: One that is known to; without it the rig's own shared folder is made reachable here by a link.

        Raises:
            ConfigError: The folder is not there, or something else has the name of the nodes' shared folder on this machine.
        """
        if folder is not None:
            if not folder.is_dir():
                raise ConfigError(
                    f"--shared {folder}: there is no such folder; it must lie at the same path here and on every node"
                )
            return folder
        local_folder = Path(self.variables["DEVCLUSTER_SHARED"])
        if SHARED.is_symlink() and SHARED.resolve() == local_folder.resolve():
            return SHARED
        if SHARED.exists() or SHARED.is_symlink():
            raise ConfigError(
                f"{SHARED} on this machine is not the cluster's shared folder {local_folder}; move it away for the drill"
            )
        SHARED.symlink_to(local_folder)
        self._linked = True
        return SHARED

    def close(self) -> None:
        """Take the link away again."""
        if self._linked:
            with suppress(FileNotFoundError):
                SHARED.unlink()

    def _variables(self) -> dict[str, str]:
        process = processes.run(
            [*self._words, "env"], environment=processes.own_environment(), capture_output=True, text=True, timeout=DEADLINE_S
        )
        exports = [line.removeprefix("export ") for line in process.stdout.splitlines() if line.startswith("export ")]
        variables = dict(word.partition("=")[::2] for line in exports for word in shlex.split(line))
        if process.returncode or "SLURM_CONF" not in variables:
            raise ConfigError(
                f"{shlex.join(self._words)}: its cluster is not up ({process.stderr.strip()}); start it with `up --nodes 6`"
            )
        return variables


def _filled(word: str, names: Mapping[str, str]) -> str:
    for name, value in names.items():
        word = word.replace(f"{{{name}}}", value)
    return word


NODES, SAVE_EVERY, STEP_MS = 4, 20, 100.0
POLL_S = 1.0
NODES_BACK_S = 90.0
SCRIPT = """\
#!/bin/bash
#SBATCH --no-requeue --mem={memory_mb}M
#NIGHTSHIFT checkpoints={folder}/checkpoints format=nightshift
#NIGHTSHIFT resume="--load {{checkpoint}}"
export NIGHTSHIFT_RENDEZVOUS={folder}/meet-$SLURM_JOB_ID NIGHTSHIFT_SCRATCH=/scratch
mkdir -p "$NIGHTSHIFT_RENDEZVOUS"
srun --kill-on-bad-exit=1 --mem={memory_mb}M bash -c '
  export RANK=$SLURM_PROCID WORLD_SIZE=$SLURM_NTASKS LOCAL_RANK=$SLURM_LOCALID PYTHONPATH={source}
  export NIGHTSHIFT_ADDRESS=$(hostname -i | cut -d" " -f1)
  exec {python} -m assistant.training.numpy_lm --checkpoints {folder}/checkpoints \\
    --steps {steps} --save-interval {save_every} --step-ms {step_ms:g}{timeout} \\
    ${{NIGHTSHIFT_RESUME_FROM:+--load "$NIGHTSHIFT_RESUME_FROM"}}'
"""
MEMORY_MB = 1024


class ClusterDrill:
    """A job on the cluster, with a drill in wait."""

    def __init__(self, drill: Drill, rig: Rig, folder: Path, in_force: PolicyInForce, *, by: str) -> None:
        """Prepare; nothing runs yet.

        Args:
            drill: Which.
            rig: Of the cluster, shared already.
            folder: An empty folder on the cluster's shared file system, under the nodes' name for it.
            in_force: The site's policy. Its mode is raised to act, since a person asked for the drill; all its kill switches,
                protections, windows and limits hold, for what the drill itself does, too.
            by: The person who asked for it, `cli:alice`.

        Raises:
            Denied: A kill switch is set, the site's policy is not whole, or has no kill switch or no hard limits.
        """
        self.drill, self.rig, self.folder, self.steps = drill, rig, folder, drill.steps
        self.title = drill.title
        self.name = f"drill-{drill.name}-{folder.parent.name.rpartition('-')[2]}"
        clock = SystemClock()
        self.settings = cluster_settings(rig, folder / "state")
        self.by = by

        policy = acting(in_force)
        self.engine: Engine = build(self.settings, clock=clock, policy=policy, since=clock.now())
        self.cluster: Scheduler = self.engine.scheduler
        self.struck = ""
        self._fleet: Sequence[Node] = ()
        self._nodes: tuple[str, ...] = ()
        self._outage_ends: float | None = None
        self.leftovers: list[str] = []
        """What the drill made and did not put back, each with the reason."""

    def run(self, show: Callable[[ClusterDrill], None]) -> RehearsalResult:
        """Submit the job, strike, and look after it until everything has ended.

        Raises:
            Denied: The site's policy, as it is right before a step of the drill, refuses the step; or a stop was set.
        """
        _ = self.engine.knowledge
        self._wait_for_nodes()
        began, owner = time.monotonic(), owner_name("drill")
        spec = self._spec()
        self._must_be_allowed("submit its job")
        job_id = self.cluster.submit(spec)
        log = LogFollower(self.folder / f"job-{job_id}.log")
        try:
            while time.monotonic() - began < self.drill.seconds:
                self._must_be_allowed("go on", job=job_id)
                self._strike_when_due(job_id, log)
                self._end_outage()
                try:
                    self.engine.tick(owner=owner)
                    show(self)
                    if self._over(job_id):
                        break
                except Unavailable as error:
                    # a blind pass: nothing may be concluded from it
                    print(line(f"            {error}"), file=sys.stderr)  # noqa: T201
                time.sleep(POLL_S)
        finally:
            self._heal_or_say()
        return self._result(time.monotonic() - began)

    def _must_be_allowed(self, step: str, *, node: str = "", job: str = "") -> None:
        """Ask the site's policy, as it is now, about a step of the drill itself, which is no call of the gate.

        Raises:
            Denied: A kill switch is set, no policy is in force, or a protection or window covers the node or job.
        """
        decision = self._decision(node=node, job=job)
        if decision.verdict is not Verdict.ALLOW:
            raise Denied(f"the drill did not {step}: {decision.rule}: {decision.why}")

    def _decision(self, *, node: str = "", job: str = "") -> Decision:
        standing = self.engine.gate.in_force.look()
        # to hurt something is none of the action classes that a protection may name, and worse than each of them
        protected = tuple(dataclasses.replace(entry, kinds=("*",)) for entry in standing.policy.protected)
        policy = dataclasses.replace(standing.policy, protected=protected)
        places = {node, *(self._nodes if job else ())}
        partitions = tuple(name for member in self._fleet if member.name in places for name in member.partitions)
        targets = Targets(
            (*filter(None, [job]), self.name), tuple(filter(None, [node])), (both_names(self.by.partition(":")[2]),), partitions
        )
        now, switch = self.engine.store.clock.now(), stopped_by(policy.kill_switch)
        situation = Situation(now, self._fleet, stopped_by=switch, policy_problem=standing.problem)
        return decide(Request(Risk.DISRUPT, "drill", self.by, targets, self.by), policy, situation)

    def close(self) -> None:
        """Put back what this drill has made, as far as the policy allows now, and close the store; `leftovers` has the rest.

        Its jobs that still run are ended; the nodes that its own calls took out are put back through the gate. A node stays out
        where its reason is no longer the one that the drill wrote.
        """
        try:
            self._end_jobs()
            for intent in self.engine.store.calls(status=CallStatus.INTENT):
                self._or_narrated(partial(self.engine.gate.resolve, intent))
            for node, call in self.engine.store.nodes_out().items():
                undo = partial(self.engine.gate.undo, call, self.by, why="the drill is over", approved_by=self.by)
                try:
                    outcome = undo()
                except NightshiftError as error:
                    self._leave(f"{node} stays out: {error}")
                    continue
                if not outcome.ok:
                    self._leave(f"{node} stays out: {outcome.error}")
        finally:
            self.engine.store.close()

    def _leave(self, text: str) -> None:
        """Keep and say what stays as the drill made it."""
        self.leftovers.append(text)
        print(f"            {line(text)}", file=sys.stderr)  # noqa: T201

    def _end_jobs(self) -> None:
        try:
            jobs = [job for job in self.jobs() if not job.state.ended and job.user in ("", getpass.getuser())]
        except NightshiftError as error:
            self._leave(f"whether jobs named {self.name} still run is not known: {error}")
            return
        for job in jobs:
            try:
                self._must_be_allowed(f"end job {job.id}", job=job.id)
                self.cluster.cancel(job.id)
            except NightshiftError as error:
                self._leave(f"job {job.id} goes on: {error}; by hand: scancel {job.id}")

    def _or_narrated(self, change: Callable[[], Outcome | None]) -> Outcome | None:
        """Make a change; what refuses it is told, and keeps nothing else from being put back."""
        try:
            return change()
        except NightshiftError as error:
            print(f"            {line(error)}", file=sys.stderr)  # noqa: T201
            return None

    def _wait_for_nodes(self) -> None:
        """Wait for all nodes: those that the drill before has healed need a while, and the policy counts healthy ones.

        Raises:
            Unavailable: The job and one spare node do not fit, even after a while.
        """
        deadline = time.monotonic() + NODES_BACK_S
        while True:
            nodes = self._fleet = self.cluster.nodes()
            open_nodes = [node for node in nodes if self._decision(node=node.name).verdict is Verdict.ALLOW]
            idle = sum(node.state is NodeState.IDLE for node in open_nodes)
            late = time.monotonic() > deadline
            if idle == len(open_nodes) > NODES or (late and idle > NODES):
                return
            self._must_be_allowed("begin")
            if late:
                states = ", ".join(f"{node.name} {node.state} {node.reason}".strip() for node in nodes)
                raise Unavailable(f"a drill needs {NODES + 1} idle nodes that the policy leaves to it, found {idle}: {states}")
            time.sleep(POLL_S)

    def _spec(self) -> JobSpec:
        source = Path(__file__).resolve().parents[2]
        # the fault is armed while the job runs: too late for its ranks to learn how long a collective may wait
        timeout_s = cluster_faults()[self.drill.fault].collective_timeout_s if self.drill.fault else None
        script = SCRIPT.format(
            folder=self.folder,
            source=shlex.quote(str(source)),
            python=shlex.quote(sys.executable),
            steps=self.steps,
            save_every=SAVE_EVERY,
            step_ms=STEP_MS,
            memory_mb=MEMORY_MB,
            timeout=f" --collective-timeout {timeout_s:g}" if timeout_s else "",
        )
        self._faults.mkdir()
        closed = (node.name for node in self._fleet if self._decision(node=node.name).verdict is not Verdict.ALLOW)
        return JobSpec(
            name=self.name,
            script=script,
            nodes=NODES,
            ranks_per_node=1,
            work_dir=self.folder,
            log=str(self.folder / "job-%j.log"),
            environment={"NIGHTSHIFT_FAULT_DIR": str(self._faults)},
            exclude=tuple(closed),
        )

    @property
    def _faults(self) -> Path:
        return self.folder / "faults"

    def _arm(self) -> None:
        """Let the fault strike in the job: its ranks look at the folder in each step."""
        fault = dataclasses.replace(cluster_faults()[self.drill.fault], at_step=self.drill.at_step, rank=self.drill.rank)
        path = self._faults / f"{fault.name}.json"
        path.with_suffix(".new").write_text(json.dumps(armed(fault)), encoding="utf-8")
        path.with_suffix(".new").replace(path)

    def _strike_when_due(self, job_id: str, log: LogFollower) -> None:
        if self.struck:
            return
        points = metric_points(log.news().lines)
        if len(self._nodes) < NODES:
            # asked while it trains: of a job that ends Slurm shows only the nodes that are not cleared yet
            self._nodes = self.cluster.job(job_id).nodes
        # a fault strikes at its step by itself once it is armed; the rig must be ready just before
        early = 3 if self.drill.fault else 0
        if len(self._nodes) < NODES or not points or points[-1].step < self.drill.at_step - early:
            return
        node = self._nodes[self.drill.rank]
        if self.drill.cancel:
            self._must_be_allowed(f"cancel job {job_id}", job=job_id)
            self.cluster.cancel(job_id)
        for words in self.drill.rig:
            self._must_be_allowed(f"hurt {node}", node=node, job=job_id)
            self.struck = node
            self.rig.do(words, {"node": node, "job": job_id})
        if self.drill.fault:
            self._must_be_allowed(f"let {self.drill.fault} happen on {node}", node=node, job=job_id)
            self._arm()
        self.struck = node
        if self.drill.outage_s:
            self._outage_ends = time.monotonic() + self.drill.outage_s

    def _end_outage(self) -> None:
        if self._outage_ends is not None and time.monotonic() >= self._outage_ends:
            self._outage_ends = None
            self._heal()

    def _heal(self) -> None:
        for words in self.drill.heal if self.struck else ():
            self._must_be_allowed(f"heal {self.struck}", node=self.struck)
            self.rig.do(words, {"node": self.struck})

    def _heal_or_say(self) -> None:
        for unfired in self._faults.glob("*.json"):
            unfired.unlink(missing_ok=True)
        try:
            self._heal()
        except Denied as error:
            commands = "; ".join(shlex.join(_filled(word, {"node": self.struck}) for word in words) for words in self.drill.heal)
            self._leave(f"{self.struck} stays hurt: {error}; by hand, with the rig: {commands}")

    def _over(self, job_id: str) -> bool:
        incidents = self.engine.store.incidents()
        mine = self.jobs()
        if any(not job.state.ended for job in mine) or not all(incident.state.ended for incident in incidents):
            return False
        return bool(incidents) or self.drill.expect is None or self.cluster.job(job_id).state is JobState.COMPLETED

    def jobs(self) -> Sequence[Job]:
        """Return its jobs, oldest first."""
        return [job for job in self.cluster.jobs() if job.name == self.name]

    def _result(self, seconds: float) -> RehearsalResult:
        store, jobs = self.engine.store, tuple(self.jobs())
        incidents = store.incidents()
        first = incidents[-1] if incidents else None
        diagnosis = store.diagnosis(first.id) if first is not None else None
        if self.drill.expect is None:
            problems = [f"an incident was opened: {incidents[0].note}"] if incidents else []
            problems += [f"{len(jobs)} jobs were submitted"] if len(jobs) != 1 else []
        else:
            problems = differences(self.drill.expect, self.struck, incidents, diagnosis, jobs)
        times = times_of(store, first.id) if first is not None else None
        return RehearsalResult(self.drill.name, first, diagnosis, times, jobs, seconds, tuple(problems))


def acting(in_force: PolicyInForce) -> PolicyInForce:
    """Return the site's policy with its mode raised to act.

    Raises:
        Denied: It is not whole, a kill switch is set, or it lacks what a policy that acts must have; the message has what to add.
    """
    standing = in_force.look()
    if standing.problem:
        raise Denied(f"a drill changes the cluster, and no policy is in force: {standing.problem}")
    switch = stopped_by(standing.policy.kill_switch)
    if switch is not None:
        raise Denied(f"a drill changes the cluster, and the kill switch {switch} is set: nightshift stop --lift")
    raised = in_force.amended(lambda policy: dataclasses.replace(policy, mode=Mode.ACT))
    problem = raised.look().problem
    if problem:
        raise Denied(f"a drill acts by itself, and the site's policy has no brakes for that: {problem}")
    return raised


def cluster_settings(rig: Rig, state: Path) -> Settings:
    """Return the settings for the rig's cluster."""
    return Settings(
        scheduler="slurm",
        transport="ssh",
        state_folder=state,
        store=state / "nightshift.db",
        slurm=SlurmSettings(conf=rig.slurm_conf, users=("*",), timeout_s=10.0),
        ssh=SshSettings(config=rig.ssh_config, connect_timeout_s=3.0),
        command_timeout_s=8.0,
        watch=WatchSettings(poll_s=POLL_S, hang_after_s=15.0, hang_factor=6.0, spike_patience_steps=8),
    )
