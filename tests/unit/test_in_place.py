"""A program in one piece may run again while its mark is not there; what changes files in place may never."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from assistant.recover.checkpoints.search import CheckpointSearch, SaveState, search_checkpoints
from assistant.recover.source.script_appends import script_appends
from tests.unit.logged_job import write
from tests.unit.test_strangers_runs import BEGAN, ENDED, job

FIELD = """import os, sys
import numpy as np
if os.path.exists("out/field.done"):
    sys.exit(0)
field = np.loadtxt("in/field.txt")
np.save("out/field.npy", field * 2)
open("out/field.done", "w").close()
"""


def search(folder: Path, source: str, script: str = "srun python3 work.py", **files: float) -> CheckpointSearch:
    """Return what is known of a job whose program, and files by the minute of their change, lie in a folder."""
    write(folder / "work.py", source, BEGAN - timedelta(hours=1))
    for name, minutes in files.items():
        write(folder / name.replace("__", "/").replace("_", "."), "1 2 3", BEGAN + timedelta(minutes=minutes))
    return search_checkpoints(replace(job(folder, script), dated_logs=True), {}, ["at work"], now=ENDED)


@pytest.mark.parametrize(
    ("source", "script", "why"),
    [
        ("import pandas as pd\npd.read_csv('a.csv').to_hdf('all.h5', key='x')\n", "", "work.py:2 changes a file in place"),
        ("import numpy as np\nx = np.load('a.npy', mmap_mode='r+')\nx *= 2\n", "", "work.py:2 changes a file in place"),
        ("text = open('a.txt').read()\nopen('a.txt', 'w').write(text * 2)\n", "", "work.py:2 writes over 'a.txt'"),
        ("print(1)\n", "srun python3 work.py >> totals.txt", "line 2 of its script appends to totals.txt"),
    ],
)  # fmt: skip
def test_what_is_changed_in_place_is_never_begun_again_unasked(source: str, script: str, why: str, tmp_path: Path) -> None:
    found = search(tmp_path, source, script or "srun python3 work.py")
    assert (found.state, found.stateless, found.pieces) == (SaveState.UNKNOWN, False, "")
    assert why in found.note


@pytest.mark.parametrize(
    ("line", "told"),
    [
        ("python3 a.py >> out/all.csv", True),
        ("srun ./solve < in.dat >>energies.dat", True),
        ("python3 a.py >> run.log", False),
        ("python3 a.py >> output.txt 2>&1", False),
        ("python3 a.py &>> output.txt", False),
        ("echo began >> history.txt", False),
        ("python3 a.py > out/all.csv", False),
        ("if then fi (", False),
    ],
)
def test_what_a_script_appends_of_results_is_told(line: str, told: bool) -> None:
    assert bool(script_appends(f"#!/bin/bash\n{line}\n")) is told
