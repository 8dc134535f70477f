"""A file that a job wrote while it ran speaks against "it never saved", unless its name or the whole program explains it."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from assistant.records import Job, JobSpec, JobState
from assistant.recover.checkpoints.search import SaveState, search_checkpoints
from assistant.recover.checkpoints.written_files import unexplained_files
from assistant.recover.job_program import programs_of
from tests.unit.logged_job import START, job_in, write

END = START + timedelta(minutes=30)


def job(folder: Path, script: str, **changes: object) -> Job:
    made = job_in(folder, script, state=JobState.FAILED, ended=END, user="", exit_code=1)
    return replace(made, spec=JobSpec("x", f"#!/bin/bash\n{script}\n", work_dir=folder), **changes)  # type: ignore[arg-type]


def names(subject: Job) -> list[str]:
    assert subject.work_dir is not None
    return [
        str(file.path.relative_to(subject.work_dir)) if file.path.is_relative_to(subject.work_dir) else str(file.path)
        for file in unexplained_files(subject, programs_of(subject))
    ]


MAY_BE_STATE = (
    "fort.18", "RESTART", "md.cpt", "relax.wfc1", "out/pos_last.xml", "walkers.csv", "progress.txt", "field.h5", "best.sav",
    "queue.db", "counter", "result_0412.json", "stage2.done", "DUMP.A",
)  # fmt: skip
HARMLESS = (
    "slurm-812.out", "train.log", "metrics.csv", "loss_curve.csv", "events.out.tfevents.1", "plot.png", "main.py", "a.out",
    "__pycache__/main.cpython-311.pyc", "wandb/run-1/files/output.bin", "core.4411", "config.json", "hparams.yaml", ".nfs00012",
    "logs/rank0.txt", "conda/bin/x", "job.e812",
)  # fmt: skip


@pytest.mark.parametrize("name", MAY_BE_STATE)
def test_a_file_of_any_name_that_changed_while_the_job_ran_counts(name: str, tmp_path: Path) -> None:
    write(tmp_path / name, "7\n")
    assert names(job(tmp_path, "./solver input.dat")) == [name]


@pytest.mark.parametrize("name", HARMLESS)
def test_logs_pictures_sources_caches_and_settings_do_not(name: str, tmp_path: Path) -> None:
    write(tmp_path / name, "7\n")
    assert names(job(tmp_path, "./solver input.dat")) == []


@pytest.mark.parametrize("minutes", [-1, 40])
def test_what_was_there_before_or_came_after_is_not_its_own(minutes: int, tmp_path: Path) -> None:
    write(tmp_path / "state.sav", "7\n", START + timedelta(minutes=minutes))
    assert names(job(tmp_path, "./solver")) == []


def test_times_that_cannot_be_compared_prove_nothing(tmp_path: Path) -> None:
    write(tmp_path / "state.sav", "7\n")
    assert names(job(tmp_path, "./solver", dated_logs=False)) == []


def test_a_folder_outside_that_the_script_names_is_looked_at(tmp_path: Path) -> None:
    write(tmp_path / "scratch/run7/traj.trr", "7\n")
    (tmp_path / "work").mkdir()
    subject = job(tmp_path / "work", f"gmx mdrun -deffnm {tmp_path}/scratch/run7/traj")
    assert names(subject) == []  # it names a prefix and no folder
    subject = job(tmp_path / "work", f"cd {tmp_path}/scratch/run7 && gmx mdrun")
    assert names(subject) == [str(tmp_path / "scratch/run7/traj.trr")]


TASKS = "set -e\n. /opt/none/bin/activate\npython3 -u x.py --seed 3 --output {}\n"


@pytest.mark.parametrize(
    ("output", "foreign", "unknown"),
    [
        ("result-$SLURM_ARRAY_TASK_ID.json", ("result-0.json", "result-12.json"), ("result-3.json", "result-x.json", "state.json")),
        ("out_${SLURM_ARRAY_TASK_ID}", ("out_0/state.sav", "out_14/a/b.sav"), ("out_3/state.sav", "out/state.sav")),
        ("--out=fold$SLURM_ARRAY_TASK_ID/save.bin", ("fold1/save.bin",), ("fold3/save.bin", "fold1/other.bin")),
        ("result-3.json", (), ("result-0.json", "result-3.json")),
    ],
)
def test_a_file_that_the_script_gives_to_another_task_of_the_array_does_not_count(
    output: str, foreign: tuple[str, ...], unknown: tuple[str, ...], tmp_path: Path
) -> None:
    for name in (*foreign, *unknown):
        write(tmp_path / name, "7\n")
    write(tmp_path / "x.py", "import sys\nstart(sys.argv)\n", START - timedelta(minutes=1))
    assert sorted(names(job(tmp_path, TASKS.format(output), id="8_3", raw_id="11"))) == sorted(unknown)
    assert sorted(names(job(tmp_path, TASKS.format(output)))) == sorted((*foreign, *unknown))  # no task of an array


def test_a_file_that_another_job_claims_does_not_count(tmp_path: Path) -> None:
    write(tmp_path / "b/state.sav", "7\n")
    subject = job(tmp_path, "./solver")
    assert not unexplained_files(subject, [], claimed=lambda folder: folder.name == "b")


WRITTEN_ONLY = {
    "opened anew": "with open('scores.csv', 'w') as out:\n    out.write('1')\n",
    "by a table": "import pandas as pd\npd.DataFrame().to_csv('scores.csv')\n",
    "by a path": "from pathlib import Path\nPath('scores.csv').write_text('1')\n",
    "by an array": "import numpy as np\nnp.savetxt('scores.csv', [1])\n",
    "by a variable": "OUT = 'scores.csv'\ndef main(path):\n    with open(path, 'w') as out:\n        out.write('1')\nmain(OUT)\n",
}
LOOKED_AT = {
    "read": "rows = open('scores.csv').read()\nopen('scores.csv', 'w').write(rows)\n",
    "asked for": "import os\nn = 1 if os.path.exists('scores.csv') else 0\nopen('scores.csv', 'w').write('1')\n",
    "put in its place": "import os\nopen('new', 'w').write('1')\nos.replace('new', 'scores.csv')\n",
    "added to": "open('scores.csv', 'a').write('1')\n",
    "updated": "open('scores.csv', 'r+').write('1')\n",
    "read by a name that nobody knows": "d = open(input()).read()\nopen('scores.csv', 'w').write(d)\n",
    "written by another program": "import subprocess\nopen('scores.csv', 'w').write('1')\nsubprocess.run(['./post'])\n",
}


@pytest.mark.parametrize("name", WRITTEN_ONLY)
def test_what_a_whole_program_only_writes_anew_is_made_again(name: str, tmp_path: Path) -> None:
    write(tmp_path / "main.py", WRITTEN_ONLY[name], START - timedelta(hours=1))
    write(tmp_path / "scores.csv", "1")
    assert names(job(tmp_path, "python3 main.py")) == []
    assert names(job(tmp_path, "FIRST=$(cat scores.csv)\npython3 main.py")) == ["scores.csv"], "the script reads it"
    assert names(job(tmp_path, "python3 main.py\n./post scores")) == ["scores.csv"], "so may another program"


@pytest.mark.parametrize("name", LOOKED_AT)
def test_what_a_program_reads_asks_for_or_adds_to_may_be_its_state(name: str, tmp_path: Path) -> None:
    write(tmp_path / "main.py", LOOKED_AT[name], START - timedelta(hours=1))
    write(tmp_path / "scores.csv", "1")
    assert names(job(tmp_path, "python3 main.py data.txt")) == ["scores.csv"]


READ_ONLY = {
    "mapped": "import mmap, sys\nfile = open(sys.argv[1], 'rb')\nheld = mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ)\n",
    "looked at first": "import os, sys\nif os.path.exists(sys.argv[1]):\n    print(open(sys.argv[1]).read())\n",
    "by a table": "import pandas as pd, sys\nprint(pd.read_csv(sys.argv[1]))\n",
    "by an array": "import numpy as np, sys\nprint(np.memmap(sys.argv[1], mode='r').sum())\n",
}
MAY_BE_CHANGED = {
    "an array that is mapped to write": "import numpy as np, sys\nheld = np.memmap(sys.argv[1])\nheld[0] = 1\n",
    "mapped to write by a word": "import numpy as np, sys\nheld = np.memmap(sys.argv[1], mode='r+')\nheld[0] = 1\n",
    "opened in a mode that nobody knows": "import sys\nheld = open(sys.argv[1], input())\n",
    "given to what nobody reads": "import sys, store\nstore.attach(sys.argv[1])\nprint(open(sys.argv[1]).read())\n",
    "read by a name that nobody knows": "import sys\nprint(open(sys.argv[2]).read(), open(input()).read())\n",
}


@pytest.mark.parametrize("name", READ_ONLY)
def test_what_a_whole_program_only_reads_was_written_by_somebody_else(name: str, tmp_path: Path) -> None:
    write(tmp_path / "main.py", READ_ONLY[name], START - timedelta(hours=1))
    write(tmp_path / "read.py", READ_ONLY[name], START - timedelta(hours=1))
    write(tmp_path / "tokens.bin", "1")
    assert names(job(tmp_path, "srun python3 read.py tokens.bin")) == []
    assert names(job(tmp_path, "srun python3 main.py tokens.bin")) == []
    assert names(job(tmp_path, f"srun python3 main.py {tmp_path}/tokens.bin")) == []
    for line in ("./make > tokens.bin", "./make -o tokens.bin", "DATA=tokens.bin\n./make $DATA", "curl -so tokens.bin host/x"):
        assert names(job(tmp_path, f"{line}\nsrun python3 main.py tokens.bin")) == ["tokens.bin"], line


@pytest.mark.parametrize("name", MAY_BE_CHANGED)
def test_what_a_program_may_change_as_it_reads_may_be_its_state(name: str, tmp_path: Path) -> None:
    write(tmp_path / "main.py", MAY_BE_CHANGED[name], START - timedelta(hours=1))
    write(tmp_path / "tokens.bin", "1")
    assert names(job(tmp_path, "srun python3 main.py tokens.bin")) == ["tokens.bin"]


def test_never_saved_is_not_said_beside_such_a_file(tmp_path: Path) -> None:
    write(tmp_path / "main.py", "import numpy\nprint(numpy.ones(3))\n", START - timedelta(hours=1))
    subject = job(tmp_path, "python3 main.py\n")
    before = search_checkpoints(subject, {}, ["begins"], now=END)
    assert before.state is SaveState.NEVER_SAVED, before.note
    trained = job(tmp_path, "python3 -m accelerate.commands.launch main.py --output_dir out")
    assert search_checkpoints(trained, {}, ["begins"], now=END).state is SaveState.NEVER_SAVED
    write(tmp_path / "field.sav", "7\n")
    after = search_checkpoints(trained, {}, ["begins"], now=END)
    assert after.state is SaveState.UNKNOWN
    assert "field.sav (2 bytes, in its work folder)" in after.note
    assert after.settle


def test_a_file_that_the_log_names_as_saved_is_judged_where_its_form_is_known_and_named_where_not(tmp_path: Path) -> None:
    write(tmp_path / "work/model.json", '{"w": [0.5, 0.25], "round": 60}')
    (tmp_path / "work/model.sto").write_bytes(b"\x04\x0b\x0812345678" * 400)
    os.utime(tmp_path / "work/model.sto", ((START + timedelta(minutes=5)).timestamp(),) * 2)
    subject = job(tmp_path, "./boost --out work")
    for line in ("work/model.json saved, round 60", "saved the state to ./work/model.json (round 60)"):
        search = search_checkpoints(subject, {}, ["begins", line], now=END)
        assert search.inventory is not None, search.note
        (found,) = search.inventory.checkpoints
        assert (found.path.name, found.step, found.healthy) == ("model.json", 60, True)
    search = search_checkpoints(subject, {}, ["begins", "work/model.sto saved, round 60"], now=END)
    assert search.inventory is not None, search.note
    (unknown,) = search.inventory.checkpoints
    assert (unknown.step, unknown.healthy, unknown.undecided) == (60, False, True)
    assert "a form that no reader knows" in unknown.unread
    gone = search_checkpoints(subject, {}, ["saved the state to work/other.json"], now=END)
    assert "no checkpoint was found" in gone.note


CACHES = {
    "made only where there is none": (
        "handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL)\nos.write(handle, b'7')\n",
        True,
    ),
    "opened to be made": ("open(path, 'x').write('7')\nrows = open(path).read()\n", True),
    "asked for before": ("if not os.path.exists(path):\n    open(path, 'w').write('7')\nrows = open(path).read()\n", True),
    "else": ("if os.path.exists(path):\n    rows = open(path).read()\nelse:\n    open(path, 'w').write('7')\n", True),
    "returned before": (
        "def rows():\n    if os.path.isfile(path):\n        return open(path).read()\n    open(path, 'w').write('7')\nrows()\n",
        True,
    ),
    "read by what was opened": (
        "import json\nif not os.path.exists(path):\n    with open(path, 'w') as f:\n        json.dump({}, f)\n"
        "with open(path) as f:\n    rows = json.load(f)\nrows = json.load(open(path))\n",
        True,
    ),
    "read by a path of which nothing is known": (
        "import json, sys\nf = input()\nopen(path, 'x').write('7')\nrows = json.load(f)\n",
        False,
    ),
    "only read, beside files of which nothing is known": (
        "import glob, json\nrows = open(path).read()\nold = sorted(glob.glob('out/*.json'))\nstate = json.load(open(old[-1]))\n",
        True,
    ),
    "only read, beside bytes that are written": (
        "import os, struct\nrows = open(path).read()\nwith open('out.bin', 'wb') as f:\n"
        "    f.write(struct.pack('<Q', 3) + os.urandom(9) + rows.encode())\n",
        True,
    ),
    "written, and perhaps read": (
        "import json, sys\nopen(path, 'w').write('7')\nstate = json.load(open(sys.argv[1]))\n",
        False,
    ),
    "written in each case": (
        "if not os.path.exists(path):\n    print('new')\nopen(path, 'w').write('7')\nopen(path).read()\n",
        False,
    ),
    "written where it is": ("if os.path.exists(path):\n    open(path, 'w').write('7')\nrows = open(path).read()\n", False),
    "another is asked for": ("if not os.path.exists('ready'):\n    open(path, 'w').write('7')\nrows = open(path).read()\n", False),
    "opened by the system to be written": ("os.open(path, os.O_WRONLY | os.O_CREAT)\n", False),
    "made and written later": ("open(path, 'x').write('7')\nrows = open(path).read()\nopen(path, 'w').write('8')\n", False),
}


@pytest.mark.parametrize("case", CACHES)
def test_a_file_that_a_start_leaves_as_it_is_does_not_count(case: str, tmp_path: Path) -> None:
    source, harmless = CACHES[case]
    write(tmp_path / "cache/words.json", "7\n")
    write(tmp_path / "x.py", f"import os\npath = os.path.abspath('cache/words.json')\n{source}", START - timedelta(minutes=1))
    assert (names(job(tmp_path, "python3 x.py")) == []) is harmless


@pytest.mark.parametrize(
    ("call", "mode"),
    [
        ("np.load('field.npy', mmap_mode={})", "'r+'"),
        ("np.lib.format.open_memmap('field.npy', mode={})", "'r+'"),
        ("torch.from_file('field.npy', shared={}, size=9)", "True"),
        ("pd.HDFStore('field.npy', {})", "'a'"),
    ],
)
def test_a_file_that_is_changed_in_place_may_be_a_state(call: str, mode: str, tmp_path: Path) -> None:
    write(tmp_path / "field.npy", "7\n")
    text = f"import numpy as np\nimport pandas as pd\nimport torch\na = {call.format(mode)}\nfor i in range(9):\n    a *= 0.5\n"
    write(tmp_path / "x.py", text, START - timedelta(minutes=1))
    subject = job(tmp_path, "python3 x.py field.npy")
    search = search_checkpoints(subject, {}, (), now=END)
    assert (search.state, search.stateless) == (SaveState.UNKNOWN, False), search.note
