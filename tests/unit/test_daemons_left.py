"""What is said of a job of which only daemons live."""

from __future__ import annotations

import pytest

from assistant.tools._processes import _program_name
from assistant.tools.processes import daemons_left

RAY = "/opt/venv/lib/python3.11/site-packages/ray"


@pytest.mark.parametrize(
    ("programs", "of"),
    [
        (["raylet", "gcs_server"], "Ray"),
        (["bash", "raylet", "ray::IDLE", "python3.11 ray/log_monitor.py", "python3.11 ray/main.py"], "Ray"),
        (["ray::DashboardAgent", "raylet", "sleep"], "Ray"),
        (["dask-scheduler"], "Dask"),
        (["dask-worker", "bash"], ""),  # it does the work itself
        (["orted"], "MPI"),
        (["mpirun", "prted"], "MPI"),
        (["hydra_pmi_proxy"], "MPI"),
        (["srun", "bash"], "Slurm"),
        (["srun", "orted"], "MPI (orted) and Slurm (srun)"),
        # what may train is never called a daemon
        (["raylet", "ray::train_fn"], ""),
        (["raylet", "python3.11 main.py"], ""),
        (["raylet", "python3.11 agent.py"], ""),
        (["raylet", "python3.11"], ""),
        (["raylet", "python3.11 ray/default_worker.py"], ""),
        (["orted", "pretrain_gpt"], ""),
        (["srun", "python3.11 train.py"], ""),
        (["torchrun", "python3.11 torchrun"], ""),
        (["bash", "sleep"], ""),
        ([], ""),
    ],
)
def test_daemons_are_named_only_where_nothing_else_lives(programs: list[str], of: str) -> None:
    said = daemons_left({"node01": programs, "node02": programs[:1]})
    assert (of in said and "none of its own programs" in said) if of else not said


@pytest.mark.parametrize(
    ("link", "words", "name"),
    [
        ("/usr/bin/python3.11", ["ray::IDLE"], "ray::IDLE"),
        (
            "/usr/bin/python3.11",
            ["python3", "-u", f"{RAY}/_private/log_monitor.py", "--logs-dir=/tmp"],
            "python3.11 ray/log_monitor.py",
        ),
        ("/usr/bin/python3.11", ["python3", "-u", f"{RAY}/_private/runtime_env/agent/main.py"], "python3.11 ray/main.py"),
        ("/usr/bin/python3.11", ["python3", "/home/me/main.py"], "python3.11 main.py"),
        ("/usr/bin/python3.11", ["python3", "-m", "train"], "python3.11 train"),
        (f"{RAY}/core/src/ray/raylet/raylet", ["raylet", "--port=1"], "raylet"),
    ],
)
def test_a_program_of_the_package_of_ray_is_told_from_others_of_its_name(link: str, words: list[str], name: str) -> None:
    assert _program_name(link, words) == name
