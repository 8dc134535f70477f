"""What one node alone cannot use of a path, by what several say of it; cases as files."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from assistant.engine.evidence.file_systems import held_elsewhere, node_fault, system_paths

FILE = tomllib.loads((Path(__file__).parents[1] / "cases" / "node_paths" / "paths.toml").read_text())


def rows_of(case: dict[str, Any]) -> list[dict[str, Any]]:
    rows = []
    for node, columns in case["rows"].items():
        stands, place, kind, options, owners = columns[:5]
        path, source, real = case["path"], *[*columns[5:], *["nas:/x", case["path"]][len(columns) - 5 :]]
        stood = {"whole": real, "silent": "", "hidden": ""}.get(stands, stands)
        rows.append({"node": node, "path": path, "real": real, "stands": stood, "silent": stands == "silent", "place": place,
                     "kind": kind, "options": options, "source": source, "owners": FILE["owners"].get(owners, [])})  # fmt: skip
    return rows


@pytest.mark.parametrize("case", FILE["case"], ids=lambda case: case["name"])
def test_a_fault_of_one_node_is_told_only_where_others_prove_it(case: dict[str, Any]) -> None:
    error = case.get("error", f"FileNotFoundError: [Errno 2] No such file or directory: '{case['path']}'")
    for rows in (rows_of(case), rows_of(case)[::-1]):
        fault = node_fault(error, rows, "ada")
        assert (str(fault.fault) if fault is not None else "") == case.get("fault", "")
        if fault is not None:
            assert fault.node == case["node"]
            assert fault.node not in fault.fine
            assert fault.lost_mount is case.get("lost_mount", False)
            assert fault.sentence.startswith(f"{fault.subject} {case['fault']} on {case['node']}")


@pytest.mark.parametrize("user", ["root", "spack", ""])
def test_what_the_owner_of_the_job_may_have_put_there_is_no_fault_of_a_node(user: str) -> None:
    case = next(one for one in FILE["case"] if one["name"] == "it was installed by an account of its own")
    assert node_fault("No such file", rows_of(case), user) is None


def test_an_owner_hears_which_nodes_have_a_path() -> None:
    case = next(one for one in FILE["case"] if one["name"] == "the owner put it on the disks of some nodes")
    assert held_elsewhere(rows_of(case)) == "/local/ada/env/bin/python is there on n1 and not on n4."
    everywhere = next(one for one in FILE["case"] if one["name"] == "it is there on all nodes by now")
    assert held_elsewhere(rows_of(everywhere)) == ""


@pytest.mark.parametrize(
    ("text", "paths"),
    [
        (
            "/var/spool/slurmd/job7/slurm_script: line 9: /usr/local/bin/torchrun: No such file or directory",
            ("/usr/local/bin/torchrun",),
        ),
        (
            "ImportError: /usr/lib/libnccl.so.2: cannot open shared object file: No such file or directory",
            ("/usr/lib/libnccl.so.2",),
        ),
        ("bash: ./run.sh: /opt/py/bin/python: bad interpreter: No such file or directory", ("/opt/py/bin/python",)),
        ("OSError: [Errno 2] No such file or directory: '/proc/driver/nvidia'", ()),
        ('  File "/usr/lib/python3/x.py", line 7, in f: not found', ()),
        ("torchrun: command not found", ()),
        ("step 3 of /data/x", ()),
    ],
)
def test_programs_and_libraries_count_as_paths_that_a_node_may_lack(text: str, paths: tuple[str, ...]) -> None:
    assert system_paths("file_not_found_error", [text]) == paths
