"""The files that a step writes its output to in a trial start: srun(1)'s patterns, in the place where the script names them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from assistant.recover.trial.trial import program_text

OWN = {
    "PATH": "/usr/bin:/bin",
    "SLURM_JOB_ID": "711",
    "SLURM_JOB_NAME": "dino",
    "SLURM_NNODES": "2",
    "SLURM_NTASKS": "4",
    "LAUNCHER_NODES": "gpu1.local,gpu2.local",
    "USER": "ada",
}
ARRAY = {"SLURM_ARRAY_JOB_ID": "700", "SLURM_ARRAY_TASK_ID": "11"}


def started(folder: Path, *words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """Run the stand-in of srun with a command that writes to both of its streams."""
    launcher = folder / "srun"
    launcher.write_text(f"#!{sys.executable}\n{program_text('launcher_program')}")
    launcher.chmod(0o755)
    show = 'echo "out $SLURM_PROCID"; echo "err $SLURM_PROCID" >&2'
    return subprocess.run(
        [launcher, *words, "sh", "-c", show],
        cwd=folder,
        env={**OWN, **environment},
        capture_output=True,
        text=True,
        check=False,
    )


def logs(folder: Path) -> dict[str, list[str]]:
    return {path.name: sorted(path.read_text().splitlines()) for path in folder.iterdir() if path.name != "srun"}


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("%j_%t_log.out", ["711_0_log.out", "711_1_log.out", "711_2_log.out", "711_3_log.out"]),
        ("%x-%n.log", ["dino-0.log", "dino-1.log"]),
        ("%N-%s.log", ["gpu1-0.log", "gpu2-0.log"]),
        ("%J.%2t", ["711.0.00", "711.0.01", "711.0.02", "711.0.03"]),
        ("%6j-%u%%.log", ["000711-ada%.log"]),
        ("%A_%a.log", ["711_4294967294.log"]),
        ("job%.log", ["job%.log"]),
    ],
)
@pytest.mark.parametrize("form", [["--output"], ["-o"], ["--output="], ["-o="]])
def test_patterns_are_filled_in_as_srun_does(pattern: str, names: list[str], form: list[str], tmp_path: Path) -> None:
    words = [f"{form[0].rstrip('=') if form[0] == '-o=' else form[0]}{pattern}"] if form[0].endswith("=") else [*form, pattern]
    done = started(tmp_path, "--unbuffered", *words, "--kill-on-bad-exit")
    assert done.returncode == 0, done.stderr
    assert sorted(logs(tmp_path)) == names
    assert done.stdout + done.stderr == ""


def test_output_and_error_of_each_task_are_apart(tmp_path: Path) -> None:
    words = ("--unbuffered", "--output", str(tmp_path / "%j_%t_log.out"), "--error", str(tmp_path / "%j_%t_log.err"))
    done = started(tmp_path, *words, **ARRAY)
    assert done.returncode == 0, done.stderr
    lines = logs(tmp_path)
    assert (lines["711_2_log.out"], lines["711_2_log.err"]) == (["out 2"], ["err 2"])
    assert len(lines) == 8


def test_an_array_has_its_own_numbers_and_one_file_takes_both_streams(tmp_path: Path) -> None:
    assert started(tmp_path, "-n", "1", "-o", "%A_%a", **ARRAY).returncode == 0
    assert logs(tmp_path) == {"700_11": ["err 0", "out 0"]}


def test_an_error_file_alone_leaves_the_output_to_the_script(tmp_path: Path) -> None:
    done = started(tmp_path, "-n1", "--error=e.log", "--output=all")
    assert (done.stdout, logs(tmp_path)) == ("out 0\n", {"e.log": ["err 0"]})


def test_none_goes_nowhere_and_a_backslash_keeps_the_pattern(tmp_path: Path) -> None:
    assert started(tmp_path, "-n", "1", "--output", "none").stdout == ""
    assert started(tmp_path, "-n", "1", "--output", "\\%j.log").returncode == 0
    assert sorted(logs(tmp_path)) == ["%j.log"]


@pytest.mark.parametrize(
    "words", [["--mpi", "pmix"], ["--cpu-bind", "none", "-E"], ["--container-image", "a.sqsh"], ["--export", "ALL"]]
)
def test_the_value_of_a_long_option_is_no_command(words: list[str], tmp_path: Path) -> None:
    done = started(tmp_path, "--ntasks", "1", *words)
    assert (done.stdout, done.returncode) == ("out 0\n", 0)
