"""What one node alone cannot use: a path that other nodes have, a port that another job holds; the job goes on elsewhere."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import timedelta
from pathlib import Path

import pytest

from assistant.daemon.notifications import notices
from assistant.engine.evidence import file_systems
from assistant.ports import Reply
from assistant.records import EventKind, IncidentState, JobSpec
from assistant.recover.situation import facts_of_page
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.tools.holders import _GPU_PROGRAM as GPUS
from assistant.tools.holders import _PORT_PROGRAM as PORTS
from assistant.tools.storage import _PROGRAM as STORAGE
from tests.scenarios.scene import Scene

TAR = "/lustre/data/pile/3.tar"
ENV = "/opt/lmeval/env/bin/activate"
MISSES = ("Traceback (most recent call last):", '  File "/opt/train/pretrain.py", line 88, in load', "FileNotFoundError: {}")
LOST = f"[Errno 2] No such file or directory: '{TAR}'"
SYSTEM = ("owner 0 644 root", "owner 0 755 root", "owner 0 755 root")
OF_USER = ("owner 3003 644 {user}", "owner 3003 755 {user}", "owner 0 755 root")


def said(path: str, *, stands: str, mount: str = "", owners: tuple[str, ...] = SYSTEM) -> str:
    """Return what a node says of a path; `mount` is the line of the file system on which it lies."""
    lines = ["mounts", "/dev/sda1 / ext4 rw 0 0", *([mount] if mount else []), f"path {path}", f"real {path}", f"stands {stands}"]
    return "\n".join([*lines, *owners, "answer 4096 1000 900 100 50", ""])


@dataclass(frozen=True)
class Case:
    """What nodes say of the path that the job misses, and what comes of it."""

    path: str
    answers: Mapping[str, str]
    """By node; `*` stands for all others, an empty text for no answer."""
    fails_at: int = 50
    changes: tuple[str, ...] = ()
    left_out: str = ""
    drained: bool = False
    kernel: str = ""
    """Of node02, which is the root cause."""
    waits: str = ""
    """A folder that is gone on all nodes, for which the job waits."""
    once: bool = False
    """Whether the next run does not miss it."""
    advises: str = ""
    """Words of the advice."""


MOUNT = "nas:/data /lustre/data lustre rw 0 0"
HAS = said(TAR, stands=TAR, mount=MOUNT)
GONE = said(TAR, stands="/lustre/data")
OWN = tuple(line.format(user="root") for line in OF_USER)
CASES = {
    "a share is not mounted on one node": Case(
        TAR, {"node02": GONE, "*": HAS}, changes=("cordon node02", "submit 2"), left_out="node02", drained=True
    ),
    "it was not seen to have trained there: only the restart stays away": Case(
        TAR, {"node02": GONE, "*": HAS}, fails_at=0, changes=("submit 2",), left_out="node02"
    ),
    "an environment is missing on one node": Case(
        ENV, {"node02": said(ENV, stands="/opt"), "*": said(ENV, stands=ENV)}, changes=("submit 2",), left_out="node02"
    ),
    "its kernel speaks of the server, and the job of a file": Case(
        TAR,
        {"node02": GONE, "*": HAS},
        changes=("cordon node02", "submit 2"),
        left_out="node02",
        drained=True,
        kernel="nfs: server nas not responding, timed out",
    ),
    "it is missing on all nodes": Case(TAR, {"*": said(TAR, stands="/lustre/data", mount=MOUNT)}, waits=str(Path(TAR).parent)),
    "two nodes lack it": Case(TAR, {"node02": GONE, "node03": GONE, "*": HAS}),
    "no other node answers": Case(TAR, {"node02": GONE, "*": ""}),
    "the node itself does not answer": Case(TAR, {"node02": "", "*": HAS}),
    "the owner put it on the disks of some": Case(
        ENV,
        {"node02": said(ENV, stands="/opt"), "*": said(ENV, stands=ENV, owners=("owner 0 777 root",))},
        advises=f"or read it from where all nodes see it: {ENV} is missing on node02 and is there on node01",
    ),
    "it was away for a moment": Case(TAR, {"*": HAS}, changes=("submit 2",), once=True),
    "it is there, and the job had not trained": Case(TAR, {"*": HAS}, fails_at=0),
    "it is there on the nodes that answered": Case(TAR, {"node01": "", "*": HAS}),
}


@pytest.mark.parametrize("name", CASES)
def test_a_job_goes_on_without_the_node_that_lacks_what_others_have(name: str, tmp_path: Path) -> None:
    case = CASES[name]
    error = LOST.replace(TAR, case.path)
    run = SimulatedRun(fails_at=case.fails_at, lines=tuple(line.format(error) for line in MISSES), only_on="node02")
    scene = Scene(tmp_path, run=run)
    if case.once:
        checkpoints = tmp_path / "checkpoints"
        scene.cluster.plan("llm", replace(run, checkpoints=checkpoints), SimulatedRun(checkpoints=checkpoints))

    def answer(node: str) -> Reply:
        text = case.answers.get(node, case.answers.get("*", ""))
        return Reply(node, True, 0, text, "") if text else Reply(node, False, None, "", "no route to host")

    scene.cluster.answers[shlex.join(("sh", "-c", STORAGE, "sh", case.path))] = answer
    look = shlex.join(("timeout", "-k", "1", "5", "stat", "-L", "-c", "%F", "--", case.waits))
    scene.cluster.answers[look] = lambda node: Reply(node, True, 1, "", f"stat: '{case.waits}': No such file or directory")
    scene.cluster.submit(replace(scene.spec, user="ada"))
    if case.kernel:
        at = scene.cluster.clock.now() + timedelta(seconds=60)
        scene.cluster.kernel["node02"] = [f"{at:%Y-%m-%dT%H:%M:%S},000000+00:00 {case.kernel}"]
    scene.watch(900)
    (incident,) = scene.engine.store.incidents()
    found = scene.engine.store.diagnosis(incident.id)
    assert found is not None
    assert scene.cluster.changes == ["submit 1", *case.changes], found.advice
    assert bool(case.waits) is (not incident.state.ended), incident.note
    if case.waits:
        assert f"a file system is away: {case.waits}" in [place.why for place in found.where]
    else:
        assert incident.state is (IncidentState.RECOVERED if case.changes else IncidentState.ESCALATED), incident.note
    assert case.kernel in found.root_cause[0].text
    assert case.advises in found.advice
    remarks = [remark.text for remark in scene.engine.good_runs.taken_remarks()]
    if case.left_out:
        assert case.left_out not in scene.cluster.job("2").nodes
        assert any(case.left_out in text and "see to it" in text for text in remarks), remarks
        in_service = [text for text in facts_of_page(scene.engine.store, incident.id).undrained if case.left_out in text]
        assert bool(in_service) is not case.drained
        assert found.advice.startswith("Restart")
    else:
        assert found.faulty_nodes == ()
        assert not remarks


@pytest.mark.parametrize("others_see_its_log", [True, False], ids=["shared", "a disk of each node"])
def test_a_share_whose_kind_may_be_a_disk_of_the_nodes_is_told_from_one_by_who_sees_the_log_of_the_job(
    others_see_its_log: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_systems, "TRANSIENT", ())  # what a test writes lies below /tmp
    data = str(tmp_path / "data" / "c4-00010.json")
    lines = tuple(line.format(f"[Errno 2] No such file or directory: '{data}'") for line in MISSES)
    scene = Scene(tmp_path, run=SimulatedRun(fails_at=50, lines=lines, only_on="node02"))
    mount = f"cluster {tmp_path} tmpfs rw 0 0"
    scene.cluster.submit(replace(scene.spec, user="ada"))
    log = scene.cluster.job("1").log

    def answer_about(path: str, seen: bool) -> Callable[[str], Reply]:
        has, gone = said(path, stands=path if seen else str(tmp_path), mount=mount), said(path, stands=str(tmp_path))
        return lambda node: Reply(node, True, 0, gone if node == "node02" else has, "")

    for path, seen in ((data, True), (str(log), others_see_its_log)):
        scene.cluster.answers[shlex.join(("sh", "-c", STORAGE, "sh", path))] = answer_about(path, seen)
    scene.watch(900)
    (incident,) = scene.engine.store.incidents()
    found = scene.engine.store.diagnosis(incident.id)
    assert found is not None
    assert scene.cluster.changes == ["submit 1", *(["cordon node02", "submit 2"] if others_see_its_log else [])], found.advice
    assert ("is not mounted on node02" in found.advice) is others_see_its_log


@pytest.mark.parametrize("returns", [True, False])
def test_a_file_that_is_back_when_the_wait_for_others_is_over_was_away(returns: bool, tmp_path: Path) -> None:
    path = "/lustre/data/corpus/words.txt"
    error = f"[Errno 2] No such file or directory: '{path}'"
    run = SimulatedRun(fails_at=50, lines=tuple(line.format(error) for line in MISSES))
    scene = Scene(tmp_path, run=run)
    checkpoints = tmp_path / "checkpoints"
    scene.cluster.plan("llm", replace(run, checkpoints=checkpoints), SimulatedRun(checkpoints=checkpoints))

    def answer(node: str) -> Reply:
        ended = scene.cluster.job("1").ended
        is_back = returns and ended is not None and scene.cluster.clock.now() - ended > timedelta(seconds=50)
        return Reply(node, True, 0, said(path, stands=path if is_back else "/lustre/data", mount=MOUNT), "")

    scene.cluster.answers[shlex.join(("sh", "-c", STORAGE, "sh", path))] = answer
    scene.cluster.submit(replace(scene.spec, user="ada"))
    scene.watch(900)
    (incident,) = scene.engine.store.incidents()
    diagnosis = scene.engine.store.diagnosis(incident.id)
    assert diagnosis is not None
    assert "the whole folder /lustre/data/corpus was not there" in diagnosis.summary
    assert scene.cluster.changes == ["submit 1", *(["submit 2"] if returns else [])], incident.note
    assert incident.state is (IncidentState.RECOVERED if returns else IncidentState.ESCALATED)
    assert ("is there again now" in diagnosis.summary) is returns


def test_a_second_loss_of_the_same_file_goes_to_a_person(tmp_path: Path) -> None:
    scene = Scene(tmp_path, run=SimulatedRun(fails_at=50, lines=tuple(line.format(LOST) for line in MISSES)))
    scene.cluster.answers[shlex.join(("sh", "-c", STORAGE, "sh", TAR))] = lambda node: Reply(node, True, 0, HAS, "")
    scene.cluster.submit(replace(scene.spec, user="ada"))
    scene.watch(1800)
    assert scene.cluster.changes == ["submit 1", "submit 2"]
    assert IncidentState.ESCALATED in {incident.state for incident in scene.engine.store.incidents()}


def own_run(scene: Scene, name: str) -> JobSpec:
    """Return a job of one node that saves into a folder of its own."""
    folder = scene.folder / name
    script = scene.spec.script.replace(str(scene.folder / "checkpoints"), str(folder / "checkpoints"))
    return replace(scene.spec, name=name, nodes=1, user="ada", script=script, work_dir=folder)


def test_tasks_that_one_node_ate_restart_without_it_under_one_message(tmp_path: Path) -> None:
    scene = Scene(tmp_path, nodes=6)
    error = f"/var/spool/slurmd/job00007/slurm_script: line 11: {ENV}: No such file or directory"
    paths = {"node03": said(ENV, stands="/opt"), "*": said(ENV, stands=ENV)}
    scene.cluster.answers[shlex.join(("sh", "-c", STORAGE, "sh", ENV))] = lambda node: Reply(
        node, True, 0, paths.get(node, paths["*"]), ""
    )
    for number in range(8):
        run = SimulatedRun(steps=20, fails_at=0, lines=(error,), only_on="node03")
        scene.cluster.plan(f"eval-{number}", run)
        scene.cluster.submit(own_run(scene, f"eval-{number}"))
    scene.watch(1800)
    store = scene.engine.store
    (shared,) = [one for one in store.incidents() if one.kind is EventKind.OUTAGE]
    members = [one for one in store.incidents() if one.kind is EventKind.JOB_ENDED]
    assert shared.service == "node node03", shared.note
    assert len(members) >= 2
    assert {one.state for one in members} == {IncidentState.RECOVERED}, [one.note for one in members]
    assert shared.state is IncidentState.RECOVERED
    assert all("node03" not in job.nodes for job in scene.cluster.jobs() if job.id > "8")
    messages = [one for one in notices(store.audit(), store) if one.incident == shared.id]
    assert any("node03" in one.title and ENV in one.text and "see to the node" in one.text for one in messages), messages


IN_USE = (
    "torch.distributed.DistNetworkError: The server socket has failed to listen on any local network address. The server "
    "socket has failed to bind to [::]:29500 (errno: 98 - Address already in use)."
)
LISTENS = "socket 0A 55\nprocess 55 4100 - {job}\t{user}\tpython3 -m torch.distributed.run train.py\nend\n"


@pytest.mark.parametrize(
    ("answer", "restarts", "words"),
    [
        (LISTENS.format(job="1", user="ada"), True, "Port 29500 of node01 is held by job 1 (alpaca) of ada, process 4100"),
        (LISTENS.format(job="77", user="ada"), False, "held by process 4100"),  # a job of hers runs there: it may be of that
        (LISTENS.format(job="2", user="ada"), False, "of job 2 itself"),
        ("end\n", False, "Nobody holds port 29500 of node01 now."),
        ("", False, ""),
    ],
)
def test_a_job_whose_port_another_job_holds_goes_on_elsewhere(answer: str, restarts: bool, words: str, tmp_path: Path) -> None:
    scene = Scene(tmp_path, nodes=3)
    ports = shlex.join(("sh", "-c", PORTS, "sh", "29500"))
    scene.cluster.answers[ports] = lambda node: Reply(node, bool(answer), 0, answer, "")
    scene.cluster.plan("alpaca", SimulatedRun(steps=5000))
    scene.cluster.plan("dolly", SimulatedRun(steps=40, fails_at=0, lines=(IN_USE,), only_on="node01"), SimulatedRun(steps=40))
    scene.cluster.submit(own_run(scene, "alpaca"))
    scene.cluster.share("node01")
    scene.cluster.submit(own_run(scene, "dolly"))
    scene.watch(600)
    (incident,) = [incident for incident in scene.engine.store.incidents() if incident.job == "2"]
    found = scene.engine.store.diagnosis(incident.id)
    assert found is not None
    assert words in found.summary
    assert found.faulty_nodes == ()
    assert [change for change in scene.cluster.changes if change.startswith("submit")][2:] == (["submit 3"] if restarts else [])
    assert not any(change.startswith(("cordon", "cancel")) for change in scene.cluster.changes)
    if restarts:
        assert scene.cluster.job("3").nodes != ("node01",)
        assert "ports of their own" in found.summary
        assert not facts_of_page(scene.engine.store, incident.id).undrained  # nothing is wrong with the node


OOM = (
    "torch.cuda.OutOfMemoryError: CUDA out of memory. Tried to allocate 31.06 GiB. GPU 0 has a total capacity of 79.15 GiB of "
    "which 9.58 GiB is free. Process {pid} has 69.57 GiB memory in use. Of the allocated memory 1.24 GiB is allocated by "
    "PyTorch, and 48.55 MiB is reserved by PyTorch but unallocated."
)
BUSY = "RuntimeError: CUDA error: CUDA-capable device(s) is/are busy or unavailable"
HOLDS = "gpu GPU-a 128 {used}\nprocess GPU-a 128 {group} {own}\t{user}\tpython -m api_server --port 8000\ncard 0 GPU-a 81052\nend\n"
NO_PROCESS = "card 0 GPU-a 81052\nend\n"
LEFT = HOLDS.format(used=71240, group="-", own="1", user="grace")
NOTEBOOK = HOLDS.format(used=71240, group="-", own="-", user="grace")


@pytest.mark.parametrize(
    ("line", "answers", "restarts", "words"),
    [
        (OOM.format(pid=128), {"node01": LEFT}, True, "128 (python -m api_server --port 8000) of grace, left behind by job 1."),
        (OOM.format(pid=7), {"node01": LEFT}, True, "left behind by job 1"),  # the id of a container
        (OOM.format(pid=128), {"node01": NOTEBOOK}, True, "process 128 (python -m api_server --port 8000) of grace."),
        (BUSY, {"node01": NOTEBOOK}, True, "of grace"),
        (OOM.format(pid=128), {"node01": HOLDS.format(used=71240, group="2", own="2", user="ada")}, False, "of job 2 itself"),
        (OOM.format(pid=7), {"node01": HOLDS.format(used=20_000, group="-", own="-", user="grace")}, False, ""),
        (OOM.format(pid=128), {"node01": NOTEBOOK, "*": NOTEBOOK}, False, "of grace"),  # a service of each node
        (OOM.format(pid=128), {}, False, ""),
        (OOM.format(pid=128), {"node01": ""}, False, ""),
        (OOM.replace("Process {pid} has", "Including non-PyTorch memory, this process has"), {"node01": NOTEBOOK}, False, ""),
    ],
)
def test_a_job_goes_on_elsewhere_whose_gpu_somebody_else_holds(
    line: str, answers: Mapping[str, str], restarts: bool, words: str, tmp_path: Path
) -> None:
    scene = Scene(tmp_path, nodes=3)

    def answer(node: str) -> Reply:
        text = answers.get(node, answers.get("*", NO_PROCESS))
        return Reply(node, bool(text), 0 if text else None, text, "")

    scene.cluster.answers[shlex.join(("sh", "-c", GPUS))] = answer
    scene.cluster.plan("server", SimulatedRun(steps=1))
    scene.cluster.plan("dolly", SimulatedRun(steps=40, fails_at=0, lines=(line,), only_on="node01"), SimulatedRun(steps=40))
    scene.cluster.submit(replace(own_run(scene, "server"), user="grace"))
    scene.watch(60)
    scene.cluster.submit(own_run(scene, "dolly"))
    scene.watch(600)
    (incident,) = [incident for incident in scene.engine.store.incidents() if incident.job == "2"]
    found = scene.engine.store.diagnosis(incident.id)
    assert found is not None
    assert words in found.summary
    assert found.faulty_nodes == (), found
    assert [change for change in scene.cluster.changes if change.startswith("submit")][2:] == (["submit 3"] if restarts else [])
    assert not any(change.startswith(("cordon", "cancel")) for change in scene.cluster.changes)
    remarks = [remark.text for remark in scene.engine.good_runs.taken_remarks()]
    assert bool(remarks) is restarts
    if restarts:
        assert scene.cluster.job("3").nodes != ("node01",)
        assert found.advice.startswith("Restart on another node: GPU 0 of node01: 69.6 GiB are held by process 128")
        assert incident.state is IncidentState.RECOVERED, incident.note


UNRESOLVED = "urllib.error.URLError: <urlopen error [Errno -3] Temporary failure in name resolution>"
REFUSED = "OSError: [Errno 113] No route to host: connect to metrics.example:5000"
METRICS = "export TRACKING=http://metrics.example:5000\n"


@dataclass(frozen=True)
class Host:
    """Which nodes do not reach a host that the job could not reach on node02, and what comes of it."""

    failing: tuple[str, ...]
    line: str = UNRESOLVED
    script: str = METRICS
    left_out: bool = True
    everywhere: bool = False


HOSTS = {
    "its resolver is broken": Host(("node02",)),
    "its route is broken": Host(("node02",), REFUSED),
    "the name service is away": Host(("*",), "curl: (6) Could not resolve host: metrics.example", left_out=False, everywhere=True),
    "it resolves by now": Host((), left_out=False),
    "nothing names a host": Host(("node02",), script="", left_out=False),
    "some others do not resolve it either": Host(("node02", "node03"), left_out=False),
    "the service itself is away": Host(("*",), REFUSED, left_out=False),
}


@pytest.mark.parametrize("name", HOSTS)
def test_a_job_goes_on_without_the_node_that_cannot_reach_what_others_reach(name: str, tmp_path: Path) -> None:
    case = HOSTS[name]
    scene = Scene(tmp_path, run=SimulatedRun(fails_at=50, lines=(case.line,), only_on="node02"))

    def answer(node: str) -> Reply:
        fails = node in case.failing or "*" in case.failing
        return Reply(node, True, int(fails), "Name or service not known\n" if fails else "", "")

    scene.cluster.services["metrics.example:"] = scene.cluster.services["metrics.example:5000"] = answer
    scene.cluster.submit(replace(scene.spec, script=scene.spec.script + case.script, user="ada"))
    scene.watch(900)
    (incident, *_) = scene.engine.store.incidents()[::-1]
    found = scene.engine.store.diagnosis(incident.id)
    assert found is not None
    remarks = [remark.text for remark in scene.engine.good_runs.taken_remarks()]
    assert not [change for change in scene.cluster.changes if change.startswith("cordon")]
    assert found.faulty_nodes == ()
    assert any("metrics.example" in text and "node02" in text for text in remarks) is case.left_out, remarks
    if case.left_out:
        assert scene.cluster.changes == ["submit 1", "submit 2"]
        assert "node02" not in scene.cluster.job("2").nodes
        assert incident.state is IncidentState.RECOVERED, incident.note
        assert "on node02, and can be on node01" in found.summary
        assert any("node02" in text for text in facts_of_page(scene.engine.store, incident.id).undrained)
    elif case.everywhere:
        assert scene.cluster.changes == ["submit 1"]
        assert "waits for metrics.example" in incident.note
    else:
        assert "node02, and can be" not in found.summary
