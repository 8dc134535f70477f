"""Clusters that write down what runs on them, behind the real gate and tools: for the tests of frozen commands."""

from __future__ import annotations

import getpass
import json
import random
import shutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from assistant.config import SlurmSettings
from assistant.errors import Parked
from assistant.evaluation.files import RunFolder
from assistant.evaluation.stage import Model
from assistant.evaluation.suite import RunSpec
from assistant.gate import Gate, Park
from assistant.policy import Mode, Policy
from assistant.ports import Approver, JumpingClock, Scheduler
from assistant.records import Job, JobSpec, JobState, Reservation
from assistant.rendering import command_line, method_lines
from assistant.schedulers.local import LocalScheduler
from assistant.schedulers.simulated import SimulatedCluster
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.schedulers.slurm import SlurmScheduler
from assistant.store import Store
from assistant.tooling import Context, Tool, find_tool
from tests.own_cordons import earlier_cordon
from tests.unit.test_slurm_commands import CONFIG, program, squeue

START = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)
RESTARTED = START + timedelta(hours=2, minutes=2)
"""When a call that was asked for at once runs, two hours behind its question."""
BY = "cli:alice"


class Recorder(SimulatedCluster):
    """A cluster in memory with every optional port, which writes a command down at the moment at which it runs."""

    def __init__(self, clock: JumpingClock, folder: Path) -> None:
        super().__init__(clock, folder, nodes=6)
        self.ran: list[str] = []
        self.waiting: list[str] = []

    def submit(self, spec: JobSpec) -> str:
        self.ran += method_lines("submit", [spec], {})
        return super().submit(spec)

    def cancel(self, job_id: str) -> None:
        self.ran += method_lines("cancel", [job_id], {})
        super().cancel(job_id)

    def end_at_once(self, job_id: str) -> None:
        self.ran += method_lines("end_at_once", [job_id], {})
        super().cancel(job_id)

    def cordon(self, node: str, reason: str) -> None:
        self.ran += method_lines("cordon", [node, reason], {})
        super().cordon(node, reason)

    def uncordon(self, node: str) -> None:
        self.ran += method_lines("uncordon", [node], {})
        super().uncordon(node)

    def requeue(self, job_id: str, *, hold: bool = False, **named: Any) -> None:
        self.ran += method_lines("requeue", [job_id], {**({"hold": hold} if hold else {}), **named})
        super().set_cancelled(job_id)
        super().set_requeued(job_id, hold=hold)
        job = self.job(job_id)
        self._jobs[job_id] = replace(job, comment=named.get("comment") or job.comment, submitted=self.clock.now())  # as in Slurm

    def dependents(self, job_id: str) -> Sequence[Job]:
        return [self.job(waiting) for waiting in self.waiting]

    def lost_dependents(self, job_id: str) -> Sequence[Job]:
        return ()

    def move_dependent(self, dependent: str, old: str, new: str) -> None:
        self.ran += method_lines("move_dependent", [dependent, old, new], {})

    def reservations(self) -> Sequence[Reservation]:
        return ()

    def reserve(self, name: str, nodes: Sequence[str], *, minutes: int, users: Sequence[str] = ()) -> None:
        self.ran += method_lines("reserve", [name, nodes], {"minutes": minutes})

    def unreserve(self, name: str) -> None:
        self.ran += method_lines("unreserve", [name], {})


@dataclass
class Scene:
    """A cluster with a failed and a running job, a cordoned node, and an evaluation, behind the real gate and tools."""

    kind: str
    folder: Path
    clock: JumpingClock
    store: Store
    scheduler: Scheduler
    transport: SimulatedCluster
    ran: Callable[[], list[str]]
    jobs: dict[str, str]
    checkpoints: Path
    asked: list[str] = field(default_factory=list)

    def context(self, incident: int | None, tag: str) -> Context:
        return Context(self.scheduler, self.transport, self.clock, random.Random(1), self.store, incident=incident, tag=tag)

    def gate(self, mode: Mode = Mode.PROPOSE, approver: Approver | None = None, find: Callable[[str], Tool] = find_tool) -> Gate:
        return Gate(self.store, self.context, Policy(mode=mode), approver or Park(self.store, expires_after_s=86400), find=find)

    def asks(self, tool: str, arguments: Mapping[str, Any], **more: Any) -> int:
        """Call a tool and return the approval that it waits for."""
        with pytest.raises(Parked) as parked:
            self.gate().call(tool, arguments, why="test", by="playbook:x", **more)
        return parked.value.approval

    def shown(self, approval: int) -> str:
        return self.store.call(self.store.approval(approval).call).preview


def scene_of(kind: str, folder: Path, *, name: str = "llm") -> Scene:
    """Build a scene; a `name` of the failed job that is not printable stands only on the simulated cluster."""
    clock = JumpingClock(START)
    checkpoints = folder / "ckpt"
    checkpoints.mkdir()
    recorder = Recorder(clock, folder / "logs")
    script = f"#!/bin/sh\n#NIGHTSHIFT checkpoints={checkpoints}\nsrun train ${{NIGHTSHIFT_RESUME_FROM:-}} ${{NIGHTSHIFT_ARGS:-}}\n"
    recorder.plan(name, SimulatedRun(fails_at=50, checkpoints=checkpoints), SimulatedRun(steps=10**6))
    spec = JobSpec(name, script, nodes=1, work_dir=folder, user="root", comment="run 7", environment={"TOKEN": "hunter2"})
    jobs = {"failed": recorder.submit(spec)}
    clock.sleep(120)
    recorder.plan("other", SimulatedRun(steps=10**6))
    jobs["running"] = recorder.submit(JobSpec("other", "#!/bin/sh\n", user="root", work_dir=folder / "elsewhere"))
    jobs["waiting"] = recorder.submit(JobSpec("after", "#!/bin/sh\n", user="root", work_dir=folder / "later"))
    recorder.waiting = [jobs["waiting"]]
    recorder.plan("evaluate-clean", SimulatedRun(steps=10**6))
    part = JobSpec(
        "evaluate-clean", "#!/bin/sh\n", work_dir=folder / "run9", user=getpass.getuser(), comment="nightshift-evaluate:run9:1"
    )
    jobs["evaluation"] = recorder.submit(part)
    store = Store(folder / "s.db", clock)
    standing = f"{earlier_cordon(store, 'node05')} ecc until=2026-03-10T13:00:00Z by=x"
    recorder.set_cordon("node05", standing)
    recorder.ran.clear()
    scheduler: Scheduler = recorder
    ran: Callable[[], list[str]] = lambda: list(recorder.ran)  # noqa: E731
    if kind == "slurm":
        scheduler, ran = slurm_stand_in(folder / "slurm", spec, script, jobs, standing)
    elif kind == "local":
        scheduler, ran = local_cluster(folder, spec, jobs, standing, clock)
    run = RunFolder(folder / "run9")
    run.job(1).mkdir(parents=True, exist_ok=True)
    (run.job(1) / "job.json").write_text(json.dumps({"kind": "clean", "node": "", "exclude": [], "gpus": 1}))
    RunSpec(Model("/m", size_bytes=1), (), {}, "/dev/shm").save(run)
    return Scene(kind, folder, clock, store, scheduler, recorder, ran, jobs, checkpoints)


def local_cluster(
    folder: Path, spec: JobSpec, jobs: dict[str, str], standing: str, clock: JumpingClock
) -> tuple[Scheduler, Callable[[], list[str]]]:
    ran: list[str] = []

    class Local(LocalScheduler):
        def submit(self, spec: JobSpec) -> str:
            ran.extend(method_lines("submit", [spec], {}))
            return super().submit(spec)

        def cancel(self, job_id: str) -> None:
            ran.extend(method_lines("cancel", [job_id], {}))
            super().cancel(job_id)

        def cordon(self, node: str, reason: str) -> None:
            ran.extend(method_lines("cordon", [node, reason], {}))
            super().cordon(node, reason)

        def uncordon(self, node: str) -> None:
            ran.extend(method_lines("uncordon", [node], {}))
            super().uncordon(node)

    cluster = Local(folder / "local", clock, nodes=6)
    for node in cluster.nodes():
        cluster.cordon(node.name, standing)  # so that nothing is really started
    (folder / "elsewhere").mkdir()
    jobs["failed"] = cluster.submit(replace(spec, script=spec.script.replace("srun", "sleep 120; srun")))
    cluster.cancel(jobs["failed"])
    jobs["running"] = cluster.submit(JobSpec("other", "#!/bin/sh\n", work_dir=folder / "elsewhere"))
    (folder / "run9").mkdir()
    part = JobSpec("evaluate-clean", "sleep 60", work_dir=folder / "run9", comment="nightshift-evaluate:run9:1")
    jobs["evaluation"] = cluster.submit(part)
    for name in ("node01", "node02", "node03"):
        cluster._set_cordons(cluster._cluster(), {k: v for k, v in cluster._cluster()["cordons"].items() if k != name})
    ran.clear()
    return cluster, lambda: list(ran)


def slurm_stand_in(
    folder: Path, spec: JobSpec, script: str, jobs: dict[str, str], standing: str
) -> tuple[Scheduler, Callable[[], list[str]]]:
    """Make programs that answer as Slurm's do, remember drains and the last submission, and log each command."""
    (folder / "nodes").mkdir(parents=True)
    log = folder / "log"
    for number in range(1, 7):
        state = f"IDLE+DRAIN Partitions=simulated Reason={standing}" if number == 5 else "IDLE Partitions=simulated"
        (folder / f"nodes/node0{number}").write_text(f"NodeName=node0{number} State={state}\n")
    shown = "JobId=1 JobName=llm NumNodes=1 TimeLimit=UNLIMITED BatchFlag=1 NtasksPerN:B:S:C=0:0:*:*"
    (folder / "script").write_text(script)
    note = f'for word in "$0" "$@"; do printf "%s\\036" "$word" >> {log}; done; echo >> {log}'
    update = (
        f'node={folder}/nodes/${{2#NodeName=}}; case "$3" in State=DRAIN)'
        ' printf "NodeName=%s State=IDLE+DRAIN Partitions=simulated Reason=%s\\n" "${2#NodeName=}" "${4#Reason=}" > "$node";;'
        ' State=RESUME) printf "NodeName=%s State=IDLE Partitions=simulated\\n" "${2#NodeName=}" > "$node";; esac'
    )
    scripts = f"case $3 in 99) cat {folder}/handed-in;; {jobs['failed']}) cat {folder}/script;; *) echo '#!/bin/sh';; esac"
    cases = (
        f"case \"$1 $2\" in 'show config') printf '{CONFIG}';;"
        f" 'show node') cat {folder}/nodes/*;; 'show job') echo '{shown}';; 'write batch_script') {scripts};;"
        f" 'show '*) echo none;; 'update NodeName='*) {note}; {update};;"
        f" 'release 99') {note}; touch {folder}/released;; *) {note};; esac"
    )
    program(folder, "scontrol", cases)
    program(folder, "scancel", note)
    comment = f'for word; do case "$word" in --comment=*) printf "%s" "${{word#--comment=}}" > {folder}/comment;; esac; done'
    program(folder, "sbatch", f"{note}; {comment}; cat > {folder}/handed-in; echo 99")
    part = {"Comment": "nightshift-evaluate:run9:1", "WorkDir": f"{folder.parent}/run9"}
    plain = {"Partition": "simulated", "UserName": getpass.getuser(), "Command": "", "SubmitTime": "1773144000"}
    rows = {
        "failed": {"State": "FAILED", "Name": "llm", "WorkDir": str(spec.work_dir), "Comment": "run 7", "EndTime": "1773144060"},
        "running": {"State": "RUNNING", "Name": "other", "NodeList": "node02", "StartTime": "1773144000"},
        "waiting": {"State": "PENDING", "Name": "after", "Dependency": f"afterok:{jobs['failed']}(unfulfilled)"},
        "evaluation": {"State": "RUNNING", "Name": "evaluate-clean", "NodeList": "node03", **part},
    }
    listed = [{**plain, "JobArrayID": jobs[name], "JobID": jobs[name], **row} for name, row in rows.items()]
    squeue(folder, *listed)
    (folder / "squeue").rename(folder / "squeue-jobs")
    new = {"JobArrayID": "99", "JobID": "99", "Name": "llm", "WorkDir": str(spec.work_dir), "Comment": "COMMENT"}
    new |= {"SubmitTime": str(int(RESTARTED.timestamp()))}
    states = {
        "submitted": {"State": "PENDING", "Reason": "JobHeldUser"},
        "released": {"State": "RUNNING", "NodeList": "node04", "StartTime": new["SubmitTime"]},
    }
    for name, fields in states.items():
        squeue(folder, *listed, {**plain, **new, **fields})
        text = (folder / "squeue").read_text().replace("COMMENT", f"'\"$(cat {folder}/comment)\"'")
        program(folder, f"squeue-{name}", text)
    (folder / "steps").write_text("99.0\n99.1\n99.batch\n99.extern\n")
    busy = "".join(f"{jobs[name]}${{m}}{row['NodeList']}${{m}}.\n" for name, row in rows.items() if "NodeList" in row)
    marked = 'for word; do :; done; m=$(echo "$word" | grep -o "<[0-9a-f]*>" | head -n 1)'
    program(
        folder,
        "squeue",
        f'{marked}\ncase "$word" in *:0$m,NodeList:0$m.) echo "J${{m}}N$m."; printf "%s" "{busy}"; exit;; esac\n'
        f'case "$*" in *--steps*) exec cat {folder}/steps;; esac\nif [ -e {folder}/released ]; then name=released;'
        f' elif [ -e {folder}/comment ]; then name=submitted; else name=jobs; fi; exec {folder}/squeue-$name "$@"',
    )
    cluster = SlurmScheduler(SlurmSettings(folder=folder, users=("*",), timeout_s=10.0), JumpingClock(START))

    def ran() -> list[str]:
        lines = log.read_text().split("\n") if log.exists() else []
        return [command_line(line.split("\x1e")[:-1]) for line in lines if line]

    return cluster, ran


CHANGES: dict[str, tuple[str, dict[str, Any]]] = {
    "cordon": ("cordon_node", {"node": "node01", "reason": "Xid 79; 'x'\n$(id)"}),
    "renew": ("renew_cordon", {"node": "node05"}),
    "uncordon": ("uncordon_node", {"node": "node05", "force": "new GPU"}),
    "cancel": ("cancel_job", {"job": "{running}"}),
    "requeue": ("requeue_job", {"job": "{running}"}),
    "requeue ended": ("requeue_ended_job", {"job": "{failed}", "exclude": ["node03"]}),
    "resubmit": ("resubmit_job", {"job": "{failed}", "checkpoint": "last", "exclude": ["node03"]}),
    "from the start": ("resubmit_job", {"job": "{failed}", "checkpoint": "none"}),
    "evaluate": ("submit_evaluation_job", {"run": "{folder}/run9", "number": 1}),
    "stop restart": ("stop_restart", {"job": "{restart}", "attempt": 0}),
    "stop requeued": ("stop_restart", {"job": "{restart}", "attempt": 1}),
    "move dependents": ("let_dependents_wait", {"job": "{failed}", "restart": "{restart}"}),
    "end evaluation": ("end_evaluation_job", {"run": "{folder}/run9", "number": 1}),
    "test": ("two_round_test", {"nodes": ["node04", "node06"], "program": "ring"}),
    "trial": ("trial_start", {"job": "{failed}"}),
}
ON_FILES: dict[str, tuple[str, dict[str, Any]]] = {
    "set aside": ("set_aside_checkpoints", {"job": "{failed}", "paths": ["{checkpoints}/iter_0000040"]}),
    "put back": ("put_back_checkpoints", {"job": "{failed}", "paths": ["{checkpoints}/nightshift-refused/iter_0000020"]}),
    "secure": ("secure_checkpoint", {"job": "{failed}", "path": "{checkpoints}/iter_0000040"}),
    "release": (
        "release_checkpoint",
        {"job": "{failed}", "path": "{above}/nightshift-secured/ckpt/of-iter_0000020/iter_0000020"},
    ),
    "set tracker": ("set_tracker", {"job": "{failed}", "tracker": "{checkpoints}/latest_checkpointed_iteration.txt", "text": "20"}),
    "restore tracker": (
        "restore_tracker",
        {"job": "{failed}", "tracker": "{checkpoints}/latest_checkpointed_iteration.txt", "text": "20\n", "written": "40"},
    ),
}
"""Changes of files, which no scheduler sees: what runs is told by what the folder holds before and after."""
RESTARTS = {"stop restart": "from the start", "move dependents": "from the start", "stop requeued": "requeue ended"}
"""The change by which this Nightshift has started the job before that another one is about."""
_REQUEUES = {"requeue", "requeue ended", "stop requeued"}
NOT_ON = {
    "simulated": {"trial"},
    "local": {*_REQUEUES, "resubmit", "test", "trial", "move dependents"},
    "slurm": {*_REQUEUES, "resubmit", "trial", "move dependents"},
}
"""What a kind of cluster here cannot do: no requeue (tests/live/test_slurm.py has it), no checkpoints of its own, no answers of
nodes, nor nodes on which a script is started (tests/live/test_trial_starts.py)."""


def file_arguments_of(scene: Scene, name: str) -> tuple[str, dict[str, Any]]:
    """Return the tool and arguments of a change of files, and make the files: 20 and 40 saved, or 20 set aside."""
    shutil.rmtree(scene.checkpoints)
    for step in (20, 40):
        part = scene.checkpoints / f"iter_{step:07}/mp_rank_00/model_optim_rng.pt"
        part.parent.mkdir(parents=True)
        part.write_bytes(b"\x80" + bytes(9000))
    (scene.checkpoints / "latest_checkpointed_iteration.txt").write_text("40")
    if name == "put back":
        (scene.checkpoints / "nightshift-refused").mkdir()
        (scene.checkpoints / "iter_0000020").rename(scene.checkpoints / "nightshift-refused/iter_0000020")
    if name == "release":
        second = scene.checkpoints.parent / "nightshift-secured/ckpt/of-iter_0000020/iter_0000020/mp_rank_00/model_optim_rng.pt"
        second.parent.mkdir(parents=True)
        second.hardlink_to(scene.checkpoints / "iter_0000020/mp_rank_00/model_optim_rng.pt")
    tool, arguments = ON_FILES[name]
    known = {"checkpoints": str(scene.checkpoints), "above": str(scene.checkpoints.parent), **scene.jobs}
    return tool, {
        key: [text.format(**known) for text in given] if isinstance(given, list) else given.format(**known)
        for key, given in arguments.items()
    }


def files_of(scene: Scene) -> dict[str, str]:
    """Return what lies in the folder of checkpoints and, with their second names, beside it."""
    second = tree_of(scene.checkpoints.parent / "nightshift-secured")
    return {**tree_of(scene.checkpoints), **{f"nightshift-secured/{name}": text for name, text in second.items()}}


def tree_of(folder: Path) -> dict[str, str]:
    """Return what a folder holds: the text of files, where links lead, and folders."""
    return {
        str(path.relative_to(folder)): str(path.readlink())
        if path.is_symlink()
        else path.read_bytes().hex()
        if path.is_file()
        else "/"
        for path in sorted(folder.rglob("*"))
    }


def restart(scene: Scene, name: str) -> str:
    """Start the failed job again by the gate, and return the id of what runs now; the commands of that are forgotten."""
    tool, arguments = arguments_of(scene, name)
    scene.clock.sleep((RESTARTED - scene.clock.now()).total_seconds())
    outcome = scene.gate(Mode.ACT).call(tool, arguments, why="test", by=BY)
    assert outcome.ok, outcome.error
    job, ran = str(outcome.value["job"]), scene.ran
    assert scene.scheduler.job(job).state is JobState.RUNNING
    before = len(ran())
    scene.ran = lambda: ran()[before:]
    return job


def arguments_of(scene: Scene, name: str) -> tuple[str, dict[str, Any]]:
    tool, arguments = CHANGES[name]
    if name in RESTARTS:
        scene.jobs["restart"] = restart(scene, RESTARTS[name])
    if name in ("from the start", "requeue ended"):  # only a job that saved nothing begins there
        shutil.rmtree(scene.checkpoints)
        log = scene.scheduler.job(scene.jobs["failed"]).log
        if log is not None:
            log.unlink(missing_ok=True)
    if name == "move dependents":
        assert isinstance(scene.scheduler, Recorder)
        scene.scheduler.waiting.append(scene.jobs["running"])
    known = {"folder": str(scene.folder), **scene.jobs}
    return tool, {
        key: text.format(**known) if isinstance(text, str) and "$" not in text else text for key, text in arguments.items()
    }
