"""What a line says was not found by its name, where a job's shell looks for it, and what nodes have of it."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from assistant.engine.evidence.node_faults import first_elsewhere, matching_paths
from assistant.ports import Reply
from assistant.records import Job, JobSpec, JobState
from assistant.recover.batch_script import launches_of
from assistant.recover.failure_origins import LookupKind, MissingName, lookup_of, missing_name, modulefile_settings
from assistant.tools.storage import _INSTALLED_PROGRAM, _installed_rows

PROGRAM, MODULE, LIBRARY, MODULEFILE = LookupKind


@pytest.mark.parametrize(
    ("line", "missing"),
    [
        ("/var/spool/slurmd/job1/slurm_script: line 13: augment: command not found", MissingName(PROGRAM, "augment")),
        ("bash: torchrun: command not found", MissingName(PROGRAM, "torchrun")),
        ("sh: 1: nvcc: not found", MissingName(PROGRAM, "nvcc")),
        ("zsh:1: command not found: nvcc", MissingName(PROGRAM, "nvcc")),
        ("/usr/bin/env: \u2018python3.11\u2019: No such file or directory", MissingName(PROGRAM, "python3.11")),
        ("slurmstepd: error: execve(): augment: No such file or directory", MissingName(PROGRAM, "augment")),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'ffmpeg'", MissingName(PROGRAM, "ffmpeg", certain=False)),
        ("[rank1]: ModuleNotFoundError: No module named 'flash_attn.ops'", MissingName(MODULE, "flash_attn")),
        ("/opt/x/bin/python: No module named torch.distributed.run", MissingName(MODULE, "torch")),
        ("ImportError: libcudart.so.11.0: cannot open shared object file: No such file", MissingName(LIBRARY, "libcudart.so.11.0")),
        ("ERROR: Unable to locate a modulefile for 'augsuite/2.3'", MissingName(MODULEFILE, "augsuite/2.3")),
        ("slurmstepd: error: execve(): /opt/x/augment: No such file or directory", None),
        ("FileNotFoundError: [Errno 2] No such file or directory: 'data/train.bin'", None),
        ("ValueError: File /data/train.json not found", None),
        ("KeyError: 'augment'", None),
    ],
)
def test_a_line_names_what_was_not_found(line: str, missing: MissingName | None) -> None:
    assert missing_name([line]) == missing


def job(script: str, **environment: str) -> Job:
    spec = JobSpec("det", script, environment=environment, work_dir=Path("/work"))
    at = datetime(2026, 1, 5, tzinfo=UTC)
    return Job("1", "det", "", JobState.FAILED, "train", ("node01",), None, Path("/work"), at, at, at, 127, 0, spec=spec)


@pytest.mark.parametrize(
    ("script", "environment", "kind", "folder", "whole"),
    [
        ("export PATH=/opt/aug/bin:$PATH\naugment\n", {"PATH": "/usr/bin"}, PROGRAM, "/opt/aug/bin", True),
        ("export PATH=/opt/aug/bin:$PATH\naugment\n", {}, PROGRAM, "/opt/aug/bin", False),
        ("PATH=$(pick)/bin:$PATH\naugment\n", {"PATH": "/usr/bin"}, PROGRAM, "/usr/bin", False),
        ("source /opt/env/bin/activate\nlm_eval\n", {}, PROGRAM, "/opt/env/bin", False),
        ("/opt/env/bin/python3 x.py\n", {}, MODULE, "/opt/env/lib/python3.11/site-packages", False),
        (
            ". /opt/conda/etc/profile.d/conda.sh\nconda activate vis\n",
            {},
            MODULE,
            "/opt/conda/envs/vis/lib/python3.12/site-packages",
            False,
        ),
        ("export PYTHONPATH=/opt/own\npython3 x.py\n", {}, MODULE, "/opt/own", False),
        ("python3 x.py\n", {}, MODULE, "/usr/lib/python3/dist-packages", False),
        ("export LD_LIBRARY_PATH=/opt/cuda/lib64\n./x\n", {}, LIBRARY, "/opt/cuda/lib64", False),
        ("module use /opt/mod\nmodule load augsuite\n", {}, MODULEFILE, "/opt/mod", False),
    ],
)
def test_the_folders_of_a_script_are_looked_into(
    script: str, environment: dict[str, str], kind: LookupKind, folder: str, whole: bool
) -> None:
    lookup = lookup_of(job(script, **environment), kind)
    assert folder in lookup.folders
    assert lookup.whole is whole


def test_an_environment_does_not_look_into_the_packages_of_the_system() -> None:
    folders = lookup_of(job("source /opt/env/bin/activate\npython x.py\n", PATH="/usr/local/bin:/usr/bin"), MODULE).folders
    assert "/opt/env/lib/python3.11/site-packages" in folders
    assert not [folder for folder in folders if folder.startswith("/usr/")]


def test_nothing_of_the_host_is_known_of_a_job_in_a_container() -> None:
    assert lookup_of(job("apptainer exec vision.sif augment\n"), PROGRAM).folders == ()
    assert lookup_of(replace(job(""), spec=None), PROGRAM).folders == ()


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("augsuite/2.3", "#%Module\nset root /opt/augsuite/2.3\nprepend-path PATH $root/bin\n"),
        ("augsuite/2.3.lua", 'local base = "/opt/augsuite/2.3"\nprepend_path("PATH", pathJoin(base, "bin"))\n'),
        ("augsuite/2.3.lua", 'local base = "/opt/augsuite/2.3"\nprepend_path("PATH", base .. "/bin")\n'),
    ],
)
def test_a_modulefile_tells_its_folders(name: str, text: str) -> None:
    launches = launches_of("module load augsuite/2.3\naugment\n", environment={}, work_dir="/work")
    (setting,) = modulefile_settings(launches, ["/opt/modulefiles"], {f"/opt/modulefiles/{name}": text}.get)
    assert setting == ("PATH", "/opt/augsuite/2.3/bin")


def test_a_modulefile_with_an_unknown_root_tells_nothing() -> None:
    launches = launches_of("module load augsuite/2.3\n", environment={}, work_dir="/work")
    files = {"/opt/modulefiles/augsuite/2.3": "prepend-path PATH $env(ROOT)/bin\nprepend-path PATH $root/bin\n"}
    assert not list(modulefile_settings(launches, ["/opt/modulefiles"], files.get))


def test_the_nodes_tell_programs_from_other_files(tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    for name, mode in (
        ("augment", 0o755),
        ("augment.bak", 0o755),
        ("augmented", 0o755),
        ("nvjpeg.cpython-311-x86_64-linux-gnu.so", 0o644),
    ):
        (tmp_path / "bin" / name).write_text("")
        (tmp_path / "bin" / name).chmod(mode)
    paths = []
    for kind, name in ((PROGRAM, "augment"), (MODULE, "nvjpeg"), (PROGRAM, "nvjpeg"), (MODULE, "absent")):
        command = ["sh", "-c", _INSTALLED_PROGRAM, "sh", name, str(tmp_path / "none"), str(tmp_path / "bin")]
        printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
        assert printed.endswith("end\n")
        rows = _installed_rows(Reply("node01", True, 0, printed, ""))
        paths.append([Path(path).name for path in matching_paths(rows, MissingName(kind, name))])
    assert paths == [["augment"], ["nvjpeg.cpython-311-x86_64-linux-gnu.so"], [], []]


def test_what_others_have_counts_where_a_node_has_none_of_it() -> None:
    others = {"node01": ("/usr/bin/augment", "/opt/aug/bin/augment"), "node03": ("/opt/aug/bin/augment",)}
    folders = ("/opt/aug/bin", "/usr/bin")
    assert first_elsewhere({"node02": (), **others}, ["node02"], folders) == "/opt/aug/bin/augment"
    assert first_elsewhere({"node02": ("/usr/bin/augment",), **others}, ["node02"], folders) is None
    assert first_elsewhere(others, ["node02"], folders) is None
    assert first_elsewhere({"node02": (), "node01": ()}, ["node02"], folders) is None
