"""Rivals rest on what the case holds: weaker lines, lines set aside by time, kills, the place of a traceback."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from assistant.cli.diagnose import show
from assistant.diagnose.answer import checked
from assistant.diagnose.case import Case
from assistant.diagnose.facts import gather
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.verdict import diagnose
from assistant.records import Action, Category, Citation, DecidedBy, Diagnosis, NodeFinding, Rival

STEPS = "".join(f"[2025-03-01 10:{i:02d}:00] step {i} loss {2.5 - i / 100:.3f}\n" for i in range(30))


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    return Knowledge.load()


def case(tmp_path: Path, job: str, kernel: str = "") -> Case:
    (tmp_path / "job.log").write_text(job)
    return Case.from_parts(tmp_path / "job.log", kernel, "", None, None, None)


def test_what_an_old_kernel_line_would_say_is_a_rival_with_why_it_is_none(tmp_path: Path, knowledge: Knowledge) -> None:
    kernel = "# n7\n[Wed Feb 26 03:00:00 2025] NVRM: Xid (PCI:0000:05:00): 95, pid=1, Uncontained: x\n"
    kernel += "[Sat Mar  1 10:20:00 2025] eth0: ok\n"
    found = diagnose(case(tmp_path, f"{STEPS}KeyError: 'tokens'\n", kernel), knowledge)
    rival = next(rival for rival in found.rivals if rival.reason == "ecc_error")
    assert found.reason == "key_error"
    assert rival.speaks_for.startswith("dmesg.log:2: ")
    assert rival.speaks_against == "long before this attempt started"
    assert "ecc" in rival.test.lower() or "memory" in rival.test.lower() or "nvidia-smi" in rival.test


def test_the_boot_of_a_node_before_the_attempt_is_no_rival(tmp_path: Path, knowledge: Knowledge) -> None:
    kernel = "# n7\n[Sat Mar  1 09:00:00 2025] Linux version 5.15.0-91-generic (buildd@x)\n[Sat Mar  1 10:20:00 2025] eth0: ok\n"
    found = diagnose(case(tmp_path, f"{STEPS}KeyError: 'tokens'\n", kernel), knowledge)
    assert found.reason == "key_error"
    assert not [rival for rival in found.rivals if "Linux version" in rival.speaks_for]


def test_a_kill_by_signal_9_without_a_record_keeps_the_memory_in_mind(tmp_path: Path, knowledge: Knowledge) -> None:
    block = (
        "Root Cause (first observed failure):\n[0]:\n  host      : n1\n  rank      : 3 (local_rank: 3)\n  exitcode  : -9 (pid: 7)\n"
    )
    found = diagnose(case(tmp_path, f"{STEPS}ValueError: bad mask\n{block}"), knowledge)
    assert "out_of_memory_error" in {rival.reason for rival in found.rivals}


def test_a_traceback_through_the_data_set_keeps_the_data_in_mind(tmp_path: Path, knowledge: Knowledge) -> None:
    trace = "Traceback (most recent call last):\n"
    trace += '  File "/w/dataset.py", line 3, in __getitem__\n    return a[i]\nIndexError: list index out of range\n'
    found = diagnose(case(tmp_path, STEPS + trace), knowledge)
    rival = next(rival for rival in found.rivals if rival.reason == "dataset_loading_error")
    assert "/w/dataset.py" in rival.speaks_for


def test_a_line_that_is_not_in_the_case_is_not_cited(tmp_path: Path, knowledge: Knowledge) -> None:
    facts = gather(case(tmp_path, "first\nsecond\n", "# n1\nkernel line\n"), knowledge)
    good, bad, gone = (
        Citation("job.log", 2, "second", "x"),
        Citation("job.log", 1, "second", "x"),
        Citation("dmesg.log", 9, "", "x"),
    )
    node = NodeFinding("n1", "why", (Citation("dmesg.log", 2, "kernel line", "x"),))
    made_up = NodeFinding("n2", "why", (bad,))
    said = Diagnosis(
        "unknown", Category.NONE, Action.NONE, 0.3, DecidedBy.MODEL, (bad, good, gone), (node, made_up), (), "", ""
    )  # fmt: skip
    held = checked(said, facts)
    assert held.root_cause == (good,)
    assert [node.node for node in held.nodes] == ["n1"]


def test_a_person_is_shown_only_explanations_that_one_in_ten_such_cases_have(
    tmp_path: Path, knowledge: Knowledge, capsys: pytest.CaptureFixture[str]
) -> None:
    diagnosis = diagnose(case(tmp_path, f"{STEPS}KeyError: 'tokens'\n"), knowledge)
    rivals = (Rival("hang", 0.04, "a", "b", "c"), Rival("time_limit", 0.2, "d", "e", "f"))
    show("job.log", replace(diagnosis, rivals=rivals))
    page = capsys.readouterr().out
    assert "time_limit (20%)" in page
    assert "hang (" not in page
    show("job.log", replace(diagnosis, rivals=rivals[:1]))
    assert "other explanations" not in capsys.readouterr().out


@pytest.mark.parametrize(
    ("file", "error", "named"),
    [
        ("/w/dataset.py", "IndexError: list index out of range", True),
        ("/data/project/fit.py", "IndexError: list index out of range", False),
        ("/mnt/fastdata/fit.py", "IndexError: list index out of range", False),
        ("/w/dataset.py", "FileNotFoundError: [Errno 2] No such file or directory: '/d/a.bin'", False),
    ],
)
def test_the_folders_of_a_file_and_a_named_path_are_no_rival(
    tmp_path: Path, knowledge: Knowledge, file: str, error: str, named: bool
) -> None:
    trace = f'Traceback (most recent call last):\n  File "{file}", line 3, in work\n    return a[i]\n{error}\n'
    found = diagnose(case(tmp_path, STEPS + trace), knowledge)
    assert ("dataset_loading_error" in {rival.reason for rival in found.rivals}) is named
