"""A path that a job had read in round after round and that is gone: the job waits for it, and goes on where it is known how."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from assistant.ports import Reply
from assistant.records import Diagnosis, Incident, IncidentState, Job
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.tools.storage import _PROGRAM as STORAGE
from tests.scenarios.scene import START, Scene
from tests.scenarios.test_one_node import said

MOUNT = "nas:/pool {pool} nfs rw 0 0"
STORE = """import argparse, sqlite3
p = argparse.ArgumentParser()
p.add_argument("--book"); p.add_argument("--pool"); p.add_argument("--seeds", type=int)
a = p.parse_args()
book = sqlite3.connect(a.book)
book.execute("create table if not exists runs(seed integer, score real)")
ready = {row[0] for row in book.execute("select seed from runs")}

def rows(name):
    with open(a.pool + "/" + name) as file:
        return file.read().split()

def score(seed):
    return len(rows("prices.txt")) * seed

for seed in range(a.seeds):
    if seed in ready:
        continue
    book.execute("insert into runs values (?, ?)", (seed, score(seed)))
    book.commit()
    print(f"seed {seed} scored ({seed + 1}/{a.seeds})")
"""
LIST = STORE.replace("import argparse, sqlite3", "import argparse, json, os").replace(
    """book = sqlite3.connect(a.book)
book.execute("create table if not exists runs(seed integer, score real)")
ready = {row[0] for row in book.execute("select seed from runs")}
""",
    """
def scored(path):
    if not os.path.exists(path):
        return set()
    with open(path) as old:
        return {json.loads(line)["seed"] for line in old}


ready = scored(a.book)
""",
)
LIST = LIST.replace(
    """    book.execute("insert into runs values (?, ?)", (seed, score(seed)))
    book.commit()
""",
    """    with open(a.book, "a") as out:
        out.write(json.dumps({"seed": seed, "score": score(seed)}) + "\\n")
""",
)
BLIND = LIST.replace("ready = scored(a.book)", "ready = set()")
SERIES = STORE.replace('rows("prices.txt")', 'rows(f"prices-{seed}.txt")')
SELDOM = (
    STORE.replace('    return len(rows("prices.txt")) * seed', '    return len(rows("prices.txt")) * seed if seed == 19 else seed')
    .replace("    return len(rows", "    if seed == 19:\n        return len(rows")
    .replace(" * seed if seed == 19 else seed", "\n    return seed")
)
AT_THE_END = STORE.replace('len(rows("prices.txt")) * seed', "seed") + 'print(rows("prices.txt"))\n'
TRACE = (
    "Traceback (most recent call last):",
    *('  File "{folder}/scan.py", line {line}, in {name}', "    {code}"),
)


@dataclass(frozen=True)
class Case:
    """What the job's program is, when its data are back, and what comes of it."""

    source: str = STORE
    back_after_s: float | None = 200
    """None: never."""
    missing: str = "prices.txt"
    changes: tuple[str, ...] = ("submit 2",)
    state: IncidentState = IncidentState.RECOVERED
    says: str = "was read in every round before (scan.py:"
    advises: str = "Start again when"


OWNER = {"changes": (), "state": IncidentState.ESCALATED, "says": "", "advises": "correct the path"}
CASES = {
    "a store that it goes on from": Case(),
    "a list of results that it goes on from": Case(LIST),
    "back when it is looked at first": Case(back_after_s=0, says="and is there again now", advises="Restart: "),
    "away for long": Case(back_after_s=3000),
    "never back": Case(back_after_s=None, changes=(), state=IncidentState.OPEN),
    "how it goes on is not known": Case(BLIND, changes=(), state=IncidentState.ESCALATED),
    "another path in each round": Case(SERIES, back_after_s=None, missing="prices-19.txt", **OWNER),  # type: ignore[arg-type]
    "read in one round only": Case(SELDOM, back_after_s=None, **OWNER),  # type: ignore[arg-type]
    "read behind the loop": Case(AT_THE_END, back_after_s=None, **OWNER),  # type: ignore[arg-type]
}


def frames(source: str, folder: Path) -> list[str]:
    """Return the traceback of the program where it opens its data."""
    lines = source.splitlines()
    places = [("rows", next(n for n, line in enumerate(lines, 1) if "with open(a.pool" in line))]
    if 'print(rows("prices' not in source:
        places.insert(0, ("score", next(n for n, line in enumerate(lines, 1) if "len(rows(" in line)))
        places.insert(
            0, ("<module>", next(n for n, line in enumerate(lines, 1) if "score(seed))" in line or "score(seed)}" in line))
        )
    else:
        places.insert(0, ("<module>", len(lines)))
    shown = [
        text
        for name, line in places
        for text in (f'  File "{folder}/scan.py", line {line}, in {name}', f"    {lines[line - 1].strip()}")
    ]
    return ["Traceback (most recent call last):", *shown]


def played(case: Case, folder: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Scene, Incident, Diagnosis]:
    """Play a case until its incident has ended, or for an hour and a half."""
    pool, book = folder / "pool", folder / "book.db"
    (folder / "scan.py").write_text(case.source)
    old = START.timestamp()
    os.utime(folder / "scan.py", (old, old))
    path = f"{pool}/{case.missing}"
    rounds = [f"seed {seed} scored ({seed + 1}/40)" for seed in range(19)]
    error = f"FileNotFoundError: [Errno 2] No such file or directory: '{path}'"
    scene = Scene(folder)
    scene.clock.sleep((datetime.now(UTC) - START).total_seconds() + 3600)
    failing = SimulatedRun(fails_at=0, launch_s=30, lines=(*rounds, *frames(case.source, folder), error))
    scene.cluster.plan("scan", failing, SimulatedRun(steps=60))
    stated: Callable[[str], Job] = scene.cluster.job
    listed = scene.cluster.jobs
    monkeypatch.setattr(scene.cluster, "job", lambda number: replace(stated(number), dated_logs=True))
    monkeypatch.setattr(scene.cluster, "jobs", lambda: [replace(job, dated_logs=True) for job in listed()])
    back_at: list[float] = []

    def asked(node: str) -> Reply:
        is_back = pool.exists()
        return Reply(node, True, 0, said(path, stands=path if is_back else str(folder), mount=MOUNT.format(pool=folder)), "")

    scene.cluster.answers[shlex.join(("sh", "-c", STORAGE, "sh", path))] = asked
    script = f"srun python3 scan.py --book {book} --pool {pool} --seeds 40\n"
    scene.cluster.submit(replace(scene.spec, name="scan", nodes=1, script=script, user="ada"))
    scene.clock.sleep(20)
    book.write_bytes(b"SQLite format 3\0" + bytes(4000) if "sqlite3" in case.source else b'{"seed": 1}\n' * 19)
    written = scene.clock.now().timestamp()
    os.utime(book, (written, written))
    for _ in range(540):
        scene.clock.sleep(10)
        failed = any(job.state.ended for job in scene.cluster.jobs())
        if failed and not back_at:
            back_at.append(scene.clock.now().timestamp())
        if (
            back_at
            and case.back_after_s is not None
            and not pool.exists()
            and scene.clock.now().timestamp() - back_at[0] >= case.back_after_s
        ):
            pool.mkdir()
            (pool / case.missing).write_text("1 2 3")
        if not pool.exists():
            assert scene.cluster.changes == ["submit 1"]
        scene.engine.tick(owner="watch")
        if (found := scene.engine.store.incidents()) and all(incident.state.ended for incident in found):
            break
    (incident,) = scene.engine.store.incidents()
    diagnosis = scene.engine.store.diagnosis(incident.id)
    assert diagnosis is not None
    return scene, incident, diagnosis


LONG = ("away for long", "never back")
"""Hours of passes of the watch."""


@pytest.mark.parametrize("name", [pytest.param(name, marks=pytest.mark.slow if name in LONG else []) for name in CASES])
def test_a_path_that_went_away_while_the_job_ran_is_waited_for(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    case = CASES[name]
    scene, incident, diagnosis = played(case, tmp_path, monkeypatch)
    assert diagnosis.reason == "file_not_found_error"
    assert case.says in diagnosis.summary
    assert case.advises in diagnosis.advice
    assert ("correct the path" in f"{diagnosis.advice} {incident.note}") is (case.advises == "correct the path")
    assert scene.cluster.changes == ["submit 1", *case.changes], incident.note
    assert incident.state is case.state or (case.state is IncidentState.OPEN and not incident.state.ended), incident.note
    assert diagnosis.phase != "start"
    if name == "how it goes on is not known":
        assert incident.note.startswith(f"job 1 was not started again, though {tmp_path}/pool/prices.txt is there again: ")
