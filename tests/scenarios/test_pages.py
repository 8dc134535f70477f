"""Pages and messages as a whole: none says two opposite things, wherever the incident stands."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from assistant.daemon.notifications import notices
from assistant.engine.report import report
from assistant.policy import Mode, load_policy
from assistant.records import IncidentState
from assistant.schedulers.simulated_run import SimulatedRun
from tests.scenarios.scene import ECC, XID, Scene
from tests.scenarios.test_jobs_that_go_on import step, writes
from tests.scenarios.test_watch_on_cluster import stacks

OPPOSITES = (
    (r"was not ended|was left running", r"call \d+, done: `scancel"),
    (
        r"could not be started again|was not submitted again|cannot be submitted again",
        r"(?<!not )\b[Rr]estart from the last|Start it again",
    ),
    (r"call \d+, done: `sbatch", r"[Dd]o not restart|[Rr]estart from the last healthy|Start it again"),
    (r"went on by itself", r"[Rr]estart from|needs a person|nightshift recover|## What to do"),
    (r"is NOT drained", r"call \d+, done: `scontrol update NodeName=node02 State=DRAIN"),
    (r"call \d+, done: `scancel", r"before the job is cancelled"),
    (r": recovered\n", r"needs a person|not recovered"),
    (r"step \d+.{0,40} is not known", r"completed at step"),
    (r"Nothing was changed", r"call \d+, done"),
)


def contradictions(page: str) -> Iterator[str]:
    for one, other in OPPOSITES:
        if (first := re.search(one, page)) and (second := re.search(other, page)):
            yield f"{first[0]!r} beside {second[0]!r}"


def passes(scene: Scene, seconds: float) -> None:
    for _ in range(round(seconds / 20)):
        scene.clock.sleep(20)
        scene.engine.tick(owner="watch")


def hung(folder: Path, *, mode: Mode = Mode.ACT, doubt: str = "", seconds: float = 300) -> Scene:
    scene = Scene(folder, mode=mode, run=SimulatedRun(steps=1000, hangs_at=60))
    job = scene.cluster.submit(replace(scene.spec, doubt=doubt))
    stacks(scene, job, moves=False)
    passes(scene, seconds)
    return scene


def gone_on(folder: Path) -> Scene:
    scene = hung(folder, mode=Mode.PROPOSE)
    writes(scene, "1", step(61, scene.clock.now()))
    passes(scene, 40)
    return scene


def no_drain(folder: Path) -> Scene:
    """A node that broke and that the healthy share keeps in service: one more may not go."""
    scene = Scene(folder, nodes=8)
    strict = replace(load_policy(), mode=Mode.ACT, min_healthy_share=0.99, kill_switch=(folder / "stop",))
    scene.policy = lambda: strict  # type: ignore[method-assign]
    scene.started()
    scene.cluster.cordon("node08", "being repaired")
    scene.cluster.submit(scene.spec)
    passes(scene, 600)
    return scene


def failed(folder: Path) -> Scene:
    scene = Scene(folder, run=SimulatedRun(fails_at=50, lines=ECC, kernel={"node02": XID}, only_on="node02"))
    scene.cluster.submit(scene.spec)
    passes(scene, 400)
    return scene


SCENES: dict[str, tuple[Callable[[Path], Scene], str]] = {
    "a hang that cannot be restarted": (lambda folder: hung(folder, doubt="its arguments are lost"), "could not be started again"),
    "a hang that is restarted": (hung, "sbatch"),
    "a hang that is observed": (lambda folder: hung(folder, mode=Mode.OBSERVE), "mode.observe"),
    "a hang that is asked about": (lambda folder: hung(folder, mode=Mode.PROPOSE), "waits for approval"),
    "a hang that goes on": (gone_on, "went on by itself"),
    "a drain that is refused": (no_drain, "node node02 is NOT drained (min_healthy_share"),
    "a node that is drained": (failed, "node02"),
}


@pytest.mark.parametrize(("scene", "words"), SCENES.values(), ids=SCENES)
def test_no_page_contradicts_itself(scene: Callable[[Path], Scene], words: str, tmp_path: Path) -> None:
    played = scene(tmp_path)
    store = played.engine.store
    pages = [report(store, one.id) for one in store.incidents()]
    messages = [f"{one.title}\n{one.text}" for one in notices(store.audit_after(0, 5000), store)]
    assert any(words in page.replace("\\", "") for page in pages), pages
    for page in [*pages, *messages]:
        assert list(contradictions(page)) == [], page


def test_a_refused_drain_keeps_no_job_down_and_a_person_is_told_of_the_node(tmp_path: Path) -> None:
    scene = no_drain(tmp_path)
    (incident,) = scene.engine.store.incidents()
    assert scene.cluster.changes == ["cordon node08", "submit 1", "submit 2"], (scene.cluster.changes, incident.note)
    spec = scene.cluster.job("2").spec
    assert spec is not None
    assert "node02" in spec.exclude
    assert incident.state is IncidentState.RECOVERED
    told = [one for one in notices(scene.engine.store.audit_after(0, 5000), scene.engine.store) if one.about == "recovered"]
    assert [one.severity for one in told] == ["warning"]
    assert "node node02 is NOT drained (min_healthy_share" in told[0].text


@pytest.mark.parametrize(
    "page",
    [
        "job 1 was left running\n- call 6, done: `scancel 1`",
        "went on by itself\n## What to do\n\nx",
        "Nothing was changed. call 3, done",
    ],
)
def test_a_contradiction_is_found(page: str) -> None:
    assert len(list(contradictions(page))) == 1
