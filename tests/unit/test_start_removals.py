"""What a batch script takes away before its work begins, whatever program does the work, and that no restart follows from there."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace

import pytest

from assistant.records import Checkpoint, Job, JobState
from assistant.recover.batch_script import Launch
from assistant.recover.job_program import programs_of
from assistant.recover.resume.plan import resume_plan
from assistant.recover.resume.script import resume_way
from assistant.recover.script_removals import removed_at_start, removed_by_command
from assistant.recover.start_costs import loss_words, results_lost, start_losses
from assistant.tools.checkpoints import choose_checkpoint
from tests.unit.logged_job import START, job_in, write
from tests.unit.test_saved_state import context

ENDED = START + timedelta(minutes=10)


@pytest.mark.parametrize(
    ("words", "paths"),
    [
        ("rm -rf run", ["/w/run"]),
        ("rm -f out/*.dat /s/old", ["/w/out/*.dat", "/s/old"]),
        ("unlink state.bin", ["/w/state.bin"]),
        ("mv run run.old", ["/w/run"]),
        ("mv -t attic run", []),
        ("shred -u key", ["/w/key"]),
        ("truncate -s 0 chain.log", ["/w/chain.log"]),
        ("truncate -s 4G image", []),
        ("find out -name *.rst -delete", ["/w/out/*.rst"]),
        ("find out -type f -exec rm -f {} +", ["/w/out"]),
        ("find out -mtime +7 -delete", []),
        ("find out -name *.rst", []),
        ("rsync -a --delete empty/ run/", ["/w/run"]),
        ("rsync -a in/ run/", []),
        ("git clean -fdx", ["/w"]),
        ("git status", []),
        ("cp a b", []),
    ],
)
def test_what_a_command_takes_away(words: str, paths: list[str]) -> None:
    removed = removed_by_command(Launch(tuple(words.split()), "/w"))
    assert [path.rstrip("/") for path in removed] == paths


def test_only_what_stands_before_the_work_is_removed_at_the_start() -> None:
    launches = [Launch(tuple(line.split()), "/w") for line in ("mkdir -p run", "rm -rf run/a", "./solve in", "rm -rf tmp")]
    assert removed_at_start(launches) == ("/w/run/a",)


WORKS = {
    "awk": "awk -f grow.awk -v out=run in.txt",
    "binary": "srun ./bin/solve input.dat",
    "julia": "julia evolve.jl run",
    "loop": "for part in a b; do ./bin/solve $part; done",
}


def simulation(folder: Path, script: str) -> Job:
    """Return a job of no Python program, which wrote two states into `run`, and a log."""
    for number in (20, 40):
        path = folder / f"run/field.{number}"
        write(path, "x" * 3000)
        os.utime(path, ((START + timedelta(minutes=number / 10)).timestamp(),) * 2)
    log = "\n".join(f"sweep {number}/90 energy {9 - number / 10}\nfield written: run/field.{number}" for number in (20, 40))
    write(folder / "slurm-812.out", log + "\n", ENDED)
    return job_in(folder, script, state=JobState.FAILED, ended=ENDED)


@pytest.mark.parametrize("work", WORKS)
@pytest.mark.parametrize(
    ("removal", "place"),
    [("rm -rf run\nmkdir run", "run"), ("mkdir -p run; rm -f run/*", "run/*"), ("find run -name 'field.*' -delete", "run/field.*")],
)
def test_a_script_without_a_program_that_can_be_read_is_seen_to_remove_its_output(
    work: str, removal: str, place: str, tmp_path: Path
) -> None:
    job = simulation(tmp_path, f"set -e\ncd {tmp_path}\n{removal}\n{WORKS[work]}")
    programs = programs_of(job)
    losses = start_losses(job, programs)
    assert [loss.path for loss in losses] == [f"{tmp_path}/{place}"]
    assert "of its script removes" in loss_words(losses)
    assert "has written field.20, field.40 there" in results_lost(job, losses)
    state = Checkpoint(tmp_path / "run/field.40", 40, "file", 3000, START, True, ())
    way = resume_way(job, programs)
    assert f"its script removes {tmp_path}/{place} when it starts, and field.40 lies there" in resume_plan(way, None, state).refusal


@pytest.mark.parametrize("removal", ["rm -rf run", "rm -f run/*", "git clean -fdxq run"])
def test_no_restart_begins_where_its_script_would_remove_what_the_attempt_wrote(removal: str, tmp_path: Path) -> None:
    job = simulation(tmp_path, f"cd {tmp_path}\n{removal}\n./bin/solve")
    around = context(job)
    around.transport = SimpleNamespace(name="local")
    choice = choose_checkpoint.run(around, "812")
    assert choice["restart_from"] == ""
    assert f"removes {tmp_path}/run" in choice["note"]


@pytest.mark.parametrize("removal", ["rm -rf /tmp/scratch-of-this", "rm -f run/solve.log", "rm -rf gone", "rm -f run/*.tmp"])
def test_what_harms_nothing_is_no_loss_of_results(removal: str, tmp_path: Path) -> None:
    job = simulation(tmp_path, f"cd {tmp_path}\n{removal}\n./bin/solve")
    write(tmp_path / "run/solve.log", "begin\n", ENDED)
    assert results_lost(job, start_losses(job, programs_of(job))) == ""


def test_what_lay_there_before_the_attempt_is_no_result_of_it(tmp_path: Path) -> None:
    job = simulation(tmp_path, f"cd {tmp_path}\nrm -rf run\n./bin/solve")
    for path in (tmp_path / "run").iterdir():
        os.utime(path, ((START - timedelta(days=2)).timestamp(),) * 2)
    assert results_lost(job, start_losses(job, programs_of(job))) == ""


WIPES = {
    "a word": 'if "--fresh" in sys.argv:\n    shutil.rmtree("run")\n',
    "a word behind the name": 'if "--fresh" in sys.argv[1:]:\n    shutil.rmtree("run")\n',
    "no other word": "if len(sys.argv) > 1:\n    shutil.rmtree('run')\n",
    "not a word": 'if "--keep" not in sys.argv and "--fresh" in sys.argv:\n    shutil.rmtree("run")\n',
    "through a function": 'def wipe():\n    shutil.rmtree("run")\n\nif "--fresh" in sys.argv:\n    wipe()\n',
}


@pytest.mark.parametrize("name", WIPES)
def test_what_the_command_line_decides_is_removed_only_where_it_says_so(name: str, tmp_path: Path) -> None:
    write(tmp_path / "drive.py", f"import shutil, sys\n{WIPES[name]}print('begins')\n")
    write(tmp_path / "run/trial7/result.json", "{}")

    def losses(script: str) -> list[str]:
        job = job_in(tmp_path, script, state=JobState.FAILED, ended=ENDED)
        assert job.spec is not None
        job = replace(job, spec=replace(job.spec, arguments=()))
        return [loss.path for loss in start_losses(job, programs_of(job))]

    assert losses("python3 -u drive.py") == []
    assert losses('exec python3 -u drive.py "$@"') == []
    assert losses("python3 -u drive.py --fresh") == [str(tmp_path / "run")]
    assert losses('python3 drive.py "$(cat words)"') == [str(tmp_path / "run")], "what is not known may be it"


def test_a_removal_that_depends_on_what_nobody_knows_names_its_condition(tmp_path: Path) -> None:
    write(tmp_path / "drive.py", "import shutil\nfrom settings import wants\nif wants('fresh'):\n    shutil.rmtree('run')\n")
    write(tmp_path / "run/result.json", "{}")
    job = job_in(tmp_path, "python3 drive.py", state=JobState.FAILED, ended=ENDED)
    assert "drive.py:4, if `wants('fresh')` says so, removes" in loss_words(start_losses(job, programs_of(job)))
