"""A job whose process the kernel killed since somebody else had used the memory up: it starts again, and needs no smaller batch."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from assistant.ports import Reply
from assistant.records import Category, IncidentState
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.tools.holders import _MEMORY_PROGRAM as MEMORY
from tests.scenarios.scene import Scene

KILLED = (
    "Out of memory: Killed process {pid} ({name}) total-vm:{kib}kB, anon-rss:{kib}kB, file-rss:0kB, shmem-rss:0kB, "
    "UID:{uid} pgtables:1kB oom_score_adj:0"
)
OWNER, OWNER_UID = "games", 5
"""An account of each Debian."""
HOG = KILLED.format(pid=4471, name="Rscript", kib=962_003_412, uid=2417)
OWN = KILLED.format(pid=118, name="python3", kib=9_120_044, uid=OWNER_UID)
LIMIT = OWN.replace("Out of memory", "Memory cgroup out of memory")
FREE = "MemTotal: 1056000000 kB\nMemAvailable: 990000000 kB\nend\n"


@dataclass(frozen=True)
class Case:
    """What the kernel and the node say, and what comes of it."""

    kernel: tuple[str, ...] = ("Rscript invoked oom-killer: gfp_mask=0x140cca, order=0, oom_score_adj=0", HOG, OWN)
    memory: str = FREE
    restarts: bool = True
    elsewhere: bool = False


CASES = {
    "it is gone": Case(),
    "it is still there": Case(memory=FREE.replace("end", "process 4471 2417 Rscript\nend"), elsewhere=True),
    "memory is not free again": Case(memory=FREE.replace("990000000", "2000000"), elsewhere=True),
    "the node does not say": Case(memory="", restarts=False),
    "it is no large part of the node": Case(memory=FREE.replace("1056000000", "10560000000"), restarts=False),
    "the job itself used it up": Case(kernel=(OWN.replace("9120044", "962003412"),), restarts=False),
    "its own limit was met": Case(kernel=(HOG.replace("2417", str(OWNER_UID)), LIMIT), restarts=False),
}


@pytest.mark.parametrize("name", CASES)
def test_a_job_is_no_culprit_where_a_stranger_had_used_the_memory_up(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    line = "slurm_script: line 7: 118 Killed python3 -u train.py"
    run = SimulatedRun(fails_at=50, lines=(line,), kernel={"node02": case.kernel}, only_on="node02")
    scene = Scene(tmp_path, run=run)
    saved = tmp_path / "checkpoints"
    scene.cluster.plan("llm", replace(run, checkpoints=saved), SimulatedRun(checkpoints=saved))
    command = shlex.join(("sh", "-c", MEMORY, "sh", "4471"))
    scene.cluster.answers[command] = lambda node: Reply(node, bool(case.memory), 0 if case.memory else None, case.memory, "")
    scene.cluster.submit(replace(scene.spec, user=OWNER))
    scene.watch(900)
    incident = scene.engine.store.incidents()[-1]
    diagnosis = scene.engine.store.diagnosis(incident.id)
    assert diagnosis is not None
    assert diagnosis.reason == "out_of_memory_error"
    assert diagnosis.faulty_nodes == ()
    assert not any(change.startswith("cordon") for change in scene.cluster.changes)
    remarks = [remark.text for remark in scene.engine.good_runs.taken_remarks()]
    if not case.restarts:
        assert scene.cluster.changes == ["submit 1"]
        assert not remarks
        return
    assert scene.cluster.changes == ["submit 1", "submit 2"], diagnosis.advice
    assert ("node02" in scene.cluster.job("2").nodes) is not case.elsewhere
    assert diagnosis.category is Category.INFRASTRUCTURE
    assert "Rscript (process 4471, UID 2417) held 917.4 GiB of node02" in diagnosis.summary
    assert "UID 2417" in remarks[0]
    for words in ("hold less", "loader", "Do not restart", "--mem"):
        assert words not in diagnosis.advice
    if not case.elsewhere:
        assert incident.state is IncidentState.RECOVERED, incident.note


MATLAB = "matlab invoked oom-killer: gfp_mask=0x1100cca(GFP_HIGHUSER_MOVABLE), order=0, oom_score_adj=0"
SMALL = KILLED.format(pid=239, name="python3", kib=9120, uid=OWNER_UID)
UNKNOWN = "Whether a program outside of this job used the memory up is not known."
NO_HELP = "A restart alone does not help"


@dataclass(frozen=True)
class Shortage:
    """What the kernel and the accounting say of a shortage whose cause nobody named, and what a person reads."""

    kernel: tuple[str, ...] = (MATLAB, SMALL)
    peak_mib: int | None = 22
    says: tuple[str, ...] = (UNKNOWN,)
    never: tuple[str, ...] = (NO_HELP,)


def asked_by(name: str) -> tuple[str, ...]:
    """Return the kernel's lines of a shortage in which a program or thread asked for memory."""
    return MATLAB.replace("matlab", name), SMALL


SHORTAGES = {
    "a small process was ended while another program asked": Shortage(
        says=(
            "The kernel of node02 ended python3 (239, 9 MiB, of this job's account). Memory was asked for by matlab, as the kernel "
            f"names it. The job's accounting shows 22 MiB (largest task, sampled). {UNKNOWN}",
        )
    ),
    "what the job held is not known": Shortage(peak_mib=None, never=(NO_HELP, "largest task")),
    "the job held much of the host": Shortage(peak_mib=600_000, says=("585.9 GiB (largest task, sampled)", UNKNOWN)),
    "a thread of its loader asked": Shortage(kernel=asked_by("pt_data_worker"), says=("asked for by pt_data_worker,", UNKNOWN)),
    "a thread of its GPU's library asked": Shortage(
        kernel=asked_by("cuda-EvtHandlr"), says=("asked for by cuda-EvtHandlr,", UNKNOWN)
    ),
    "a thread of the kernel asked": Shortage(kernel=asked_by("kworker/3:1"), says=("asked for by kworker/3:1,", UNKNOWN)),
    "the kernel lists processes of others": Shortage(
        kernel=(MATLAB, "[    900]  2417   900   100000   90000  1234567  0  0 matlab", SMALL),
        says=("of this job's account). Memory was asked for by matlab", UNKNOWN),
    ),
    "a process of another was ended too, and held little": Shortage(
        kernel=(MATLAB, SMALL, SMALL.replace("239", "900").replace(f"UID:{OWNER_UID}", "UID:2417")),
        says=("900, 9 MiB, of UID 2417)", UNKNOWN),
    ),
    "nobody asked": Shortage(kernel=(SMALL,), never=(NO_HELP, "asked for by")),
    "a name reads like a command": Shortage(
        kernel=asked_by("$(reboot)"), says=("a name that is not shown", UNKNOWN), never=("reboot",)
    ),
    "a limit of the job was met as well": Shortage(
        kernel=(MATLAB, SMALL, SMALL.replace("Out of memory", "Memory cgroup out of memory")), says=(NO_HELP,), never=(UNKNOWN,)
    ),
}


@pytest.mark.parametrize("name", SHORTAGES)
def test_whose_memory_it_was_is_asked_and_never_concluded(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = SHORTAGES[name]
    line = "slurm_script: line 7: 239 Killed python3 -u train.py"
    run = SimulatedRun(fails_at=50, lines=(line,), kernel={"node02": case.kernel}, only_on="node02")
    scene = Scene(tmp_path, run=run)
    peak = case.peak_mib * 2**20 if case.peak_mib is not None else None
    monkeypatch.setattr(type(scene.cluster), "peak_memory_bytes", lambda cluster, job: peak, raising=False)
    saved = tmp_path / "checkpoints"
    scene.cluster.plan("llm", replace(run, checkpoints=saved), SimulatedRun(checkpoints=saved))
    scene.cluster.answers[shlex.join(("sh", "-c", MEMORY, "sh"))] = lambda node: Reply(node, True, 0, FREE, "")
    scene.cluster.submit(replace(scene.spec, user=OWNER))
    scene.watch(900)
    incident = scene.engine.store.incidents()[-1]
    diagnosis = scene.engine.store.diagnosis(incident.id)
    assert diagnosis is not None
    assert diagnosis.reason == "out_of_memory_error"
    assert diagnosis.faulty_nodes == ()
    assert scene.cluster.changes == ["submit 1"]
    assert incident.state is IncidentState.ESCALATED
    for words in case.says:
        assert words in diagnosis.advice
    for words in (*case.never, "outside of it", "Start it again"):
        assert words not in f"{diagnosis.summary} {diagnosis.advice} {incident.note}".replace(MATLAB, "").replace(
            case.kernel[0], ""
        )
