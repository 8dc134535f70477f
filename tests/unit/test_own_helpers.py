"""Programs whose saves, loads and removals stand in functions of their own, and what only looks like one of these."""

from __future__ import annotations

import os
import tomllib
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from assistant.records import Job
from assistant.recover.checkpoints.save_options import save_folders
from assistant.recover.checkpoints.search import CheckpointSearch, SaveState, search_checkpoints
from assistant.recover.job_program import programs_of
from assistant.recover.job_reading import job_of_script, read_job
from assistant.recover.resume.means import ResumeMeans
from assistant.recover.resume.script import resume_way
from tests.unit.test_strangers_runs import BEGAN, ENDED, job

FOLDER = Path(__file__).parents[1] / "cases" / "checkpoints"
CASES: list[dict[str, Any]] = [
    case
    for name in ("own_helpers", "own_helpers_more")
    for case in tomllib.loads((FOLDER / f"{name}.toml").read_text("utf-8"))["case"]
]


def laid_out(case: dict[str, Any], folder: Path) -> Job:
    for name, text in case["files"].items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    return replace(job(folder, case["script"]), id=case.get("id", "7"))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_what_a_program_does_through_its_own_functions_is_understood(case: dict[str, Any], tmp_path: Path) -> None:
    shown = laid_out(case, tmp_path)
    programs = programs_of(shown)
    saves = save_folders(programs)
    assert [str(one.folder.relative_to(tmp_path)) for one in saves] == ([case["folder"]] if case["folder"] else [])
    assert sorted(form for one in saves for form in one.forms) == case["forms"]
    way = resume_way(shown, programs)
    assert str(way.means) == case["resumes"], way
    assert (way.argument, way.variable) == (case.get("argument", ""), case.get("variable", ""))
    if "removed" in case:
        assert sorted(os.path.relpath(path, tmp_path) for path in way.removed) == case["removed"]


def written(path: Path, minutes: float, size: int = 4096) -> Path:
    """Write a file of bytes as if that had been so many minutes after the job began."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(bytes(range(256)) * (size // 256))
    at = (BEGAN + timedelta(minutes=minutes)).timestamp()
    os.utime(path, (at, at))
    return path


def search_of(folder: Path, log: list[str], script: str = "./train_binary", **changes: Any) -> CheckpointSearch:
    return search_checkpoints(replace(job(folder, script), **changes), {}, log, now=ENDED)


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("puntos/punto_0040/pesos.bin", "Punto de control guardado en puntos/punto_0040"),
        ("modelle/stand_0060/gewichte.bin", "Stand gespeichert: modelle/stand_0060"),
        ("poids/etat-00300.mdl", "12:01 étape 300, écrit poids/etat-00300.mdl (4 Ko)"),
        ("out/w.40.chk", "→ ./out/w.40.chk"),
    ],
)
def test_a_path_in_a_line_of_any_language_is_a_save_where_it_was_written_while_the_job_ran(
    name: str, line: str, tmp_path: Path
) -> None:
    written(tmp_path / name, 40)
    search = search_of(tmp_path, ["step=40", line])
    assert search.state is SaveState.FOUND, search.note
    assert search.inventory is not None
    assert [one.path.name for one in search.inventory.checkpoints] == [Path(name).parts[1]]
    assert "which was written while it ran" in search.note


@pytest.mark.parametrize(
    ("name", "minutes", "line"),
    [
        ("daten/teile_0040.bin", -600, "lese daten/teile_0040.bin"),  # was there before
        ("daten/teile_0040.bin", 90, "schreibe daten/teile_0040.bin"),  # by another job, after its end
        ("läufe/run_3/gewichte.bin", 40, "Ordner läufe/run_3"),  # the number of a run
        ("log/teil_0040.log", 40, "Protokoll in log/teil_0040.log"),
        ("bilder/bild_0040.png", 40, "Bild gespeichert: bilder/bild_0040.png"),
        ("x/stand_0060.bin", 40, "error: x/stand_0060.bin could not be written"),
    ],
)
def test_a_path_that_may_be_something_else_is_no_save(name: str, minutes: float, line: str, tmp_path: Path) -> None:
    written(tmp_path / name, minutes)
    search = search_of(tmp_path, ["step=40", line])
    assert search.state is not SaveState.FOUND, search.note


def test_a_path_outside_the_folder_of_the_job_is_no_save_of_its(tmp_path: Path) -> None:
    written(tmp_path / "other/stand_0060.bin", 40)
    own = tmp_path / "own"
    own.mkdir()
    assert search_of(own, ["Stand gespeichert: ../other/stand_0060.bin"]).state is SaveState.UNKNOWN


def test_a_series_that_nothing_speaks_of_is_told_as_likely_and_nothing_is_done_by_it(tmp_path: Path) -> None:
    for step in (20, 40, 60):
        written(tmp_path / f"modelle/stand_{step:04}/gewichte.dat", step / 2)
    search = search_of(tmp_path, ["step=60"])
    assert (search.state, search.inventory) == (SaveState.UNKNOWN, None)
    assert f"likely its checkpoints are stand_0020 to stand_0060 in {tmp_path}/modelle, 3 of that form" in search.note
    assert f"checkpoints={tmp_path}/modelle" in search.settle


@pytest.mark.parametrize("numbers", [(20, 40), (20, 40, 70), ()])
def test_what_is_no_even_series_is_not_told(numbers: tuple[int, ...], tmp_path: Path) -> None:
    for step in numbers:
        written(tmp_path / f"modelle/stand_{step:04}/gewichte.dat", 10)
    assert "likely" not in search_of(tmp_path, ["step=60"]).note


def test_a_task_of_an_array_is_not_given_the_folder_of_another(tmp_path: Path) -> None:
    case = next(case for case in CASES if "id" in case)
    shown = laid_out(case, tmp_path)
    written(tmp_path / "grid/cell2/zustand.pt", 30)
    search = search_checkpoints(shown, {}, ["step=30"], now=ENDED)
    assert search.state is SaveState.UNKNOWN, search.note
    assert "grid/cell3" in search.note
    assert "cell2" not in search.note


def test_a_program_that_writes_bytes_by_itself_is_not_proven_to_save_nothing(tmp_path: Path) -> None:
    (tmp_path / "p.py").write_text("def keep(d):\n    with open('o/x.bin', 'wb') as f:\n        f.write(d)\nkeep(b'1')\n")
    assert search_of(tmp_path, ["step=3 loss=1"], "python p.py").state is SaveState.UNKNOWN


def test_a_key_that_names_nothing_is_told_to_people(tmp_path: Path) -> None:
    (tmp_path / "t.py").write_text(
        "import sys, yaml\nimport k\ne = yaml.safe_load(open(sys.argv[1]))\nz = {}\n"
        "if e['weiter_von'] is not None:\n    z = k.hole(e['weiter_von'] + '/g.bin')\n"
        "for s in range(9):\n    k.lege('m/stand_%d/g.bin' % s, z)\n"
    )
    (tmp_path / "k.py").write_text(
        "import pickle\ndef hole(p):\n    with open(p, 'rb') as f:\n        return pickle.load(f)\n"
        "def lege(p, d):\n    with open(p, 'wb') as f:\n        pickle.dump(d, f)\n"
    )
    (tmp_path / "e.yaml").write_text("weiter_von: null\n")
    shown = job(tmp_path, "python t.py e.yaml")
    way = resume_way(shown, programs_of(shown))
    assert way.means is ResumeMeans.UNKNOWN
    assert way.by == "t.py loads what weiter_von in e.yaml names, and that is null"
    assert way.hint == "weiter_von: {checkpoint} in a copy of e.yaml"


KEEPS = "import pickle\ndef put(p, d):\n    with open(p, 'wb') as f:\n        pickle.dump(d, f)\n"
NOTES = "import os, subprocess\ndef note(t):\n    fd = os.open('serve.log', os.O_WRONLY | os.O_APPEND)\n    os.write(fd, t)\n"
ASKS = "def gpus():\n    return subprocess.run(['nvidia-smi', '-L'], capture_output=True)\n"
SERVES = "import http.server, beside\nhttp.server.HTTPServer(('', 8000), Handler).serve_forever()\n"


@pytest.mark.parametrize(
    ("program", "beside", "stateless"),
    [
        (f"{SERVES}beside.note(b'up')\nbeside.gpus()\n", KEEPS + NOTES + ASKS, True),  # of a library that can save it takes none
        (f"{SERVES}beside.put('sessions.bin', 1)\n", KEEPS + NOTES, False),
        (f"{SERVES}import sys\ngetattr(beside, sys.argv[1])('x', 1)\n", KEEPS, False),  # by a name that only a run knows
        (f"{SERVES}beside.gpus()\n", f"{ASKS}import subprocess\nsubprocess.run(['python', 'train.py'])\n", False),
        (f"{SERVES}open('requests.jsonl', 'a').write('x')\n", KEEPS, False),
        (f"{SERVES}beside.put('state.log', 1)\n", KEEPS, False),  # bytes, whatever it is called
    ],
)
def test_functions_beside_a_server_count_where_it_comes_to_them(program: str, beside: str, stateless: bool, tmp_path: Path) -> None:
    (tmp_path / "serve.py").write_text(program)
    (tmp_path / "beside.py").write_text(beside)
    assert search_of(tmp_path, ["INFO serving"], "python serve.py").stateless is stateless


def test_a_check_of_a_server_asks_for_no_checkpoints(tmp_path: Path) -> None:
    (tmp_path / "serve.py").write_text(SERVES)
    (tmp_path / "beside.py").write_text(KEEPS)
    shown = job_of_script("#!/bin/bash\n#SBATCH --output=%j.log\npython serve.py\n", name="serve", work_dir=tmp_path)
    search = search_checkpoints(shown, {}, (), now=ENDED)
    reading = read_job(shown, search.programs, resume_way(shown, search.programs), place=None, search=search)
    assert reading.stateless
    assert not any("checkpoint" in gap.text or "resume" in gap.text for gap in reading.gaps), reading.gaps


@pytest.mark.parametrize(
    ("program", "name"),
    [
        ("import time, beside\nd = time.strftime('%d')\nfor s in range(99):\n    beside.put(f'{d}/zz{s}.dat', s)\n", "27/zz{}.dat"),
        ("import wunder\nwunder.lerne(a)\n", "anders/stand_{}.dat"),
    ],
)
def test_nothing_is_proven_never_saved_beside_a_new_series(program: str, name: str, tmp_path: Path) -> None:
    options = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--output_dir')\na = p.parse_args()\n"
    (tmp_path / "t.py").write_text(options + program)
    (tmp_path / "beside.py").write_text(KEEPS)
    (tmp_path / "res").mkdir()
    for step in (20, 40, 60):
        written(tmp_path / name.format(step), step / 2)
    search = search_of(tmp_path, ["step=61 loss=1.0"], "python t.py --output_dir res")
    assert search.state is SaveState.UNKNOWN, search.note
    assert str((tmp_path / name).parent) in search.note
