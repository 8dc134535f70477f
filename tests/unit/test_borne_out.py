"""Advice is given only as far as the log bears it out: programs it shows, files a job may change, progress between failures."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.diagnose.advice.agreement import LEAST_LINES, borne_out
from assistant.diagnose.advice.shown_beside import came_again, killed_command
from assistant.diagnose.case import Case
from assistant.diagnose.facts import Facts, gather
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.readers.native_places import native_place
from assistant.diagnose.readers.versions_of_python import version_slots
from assistant.records import Citation


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    return Knowledge.load()


def facts_of(folder: Path, knowledge: Knowledge, *lines: str) -> tuple[Facts, Citation]:
    """Return the facts of a log and its last line, cited."""
    (folder / "job.log").write_text("\n".join(lines) + "\n", encoding="utf-8")
    return gather(Case.from_path(folder), knowledge), Citation("job.log", len(lines), lines[-1], "x")


MATLAB = "MATLAB does not find oaks.mat: change into its folder first. MPI is not at fault."


@pytest.mark.parametrize(
    ("before", "count", "advice"),
    [
        ("leaf {} shaded", 2 * LEAST_LINES, ""),
        ("leaf {} shaded", 3, MATLAB),
        ("leaf {} shaded by matlab -r shade", 2 * LEAST_LINES, MATLAB.partition(" MPI")[0]),
    ],
    ids=["whole log without it", "excerpt", "whole log with it"],
)
def test_a_program_that_a_whole_log_does_not_show_is_not_spoken_of(
    tmp_path: Path, knowledge: Knowledge, before: str, count: int, advice: str
) -> None:
    facts, cited = facts_of(tmp_path, knowledge, *(before.format(n) for n in range(count)), "cannot find oaks.mat")
    assert borne_out(MATLAB, cited, facts) == advice


@pytest.mark.parametrize(
    ("path", "refused"),
    [
        ("/usr/bin/shade", True),
        ("/opt/oak/bin/shade", True),
        ("/home/ida/miniconda3/envs/oak/bin/shade", True),
        ("/home/ida/oak/lib/python3.11/site-packages/shade/leaf.py", True),
        ("/home/ida/oak/bin/shade", False),
        ("./shade", False),
        ("/scratch/ida/shade.log", True),
    ],
)
def test_only_files_that_a_job_may_change_are_changed(tmp_path: Path, knowledge: Knowledge, path: str, refused: bool) -> None:
    facts, cited = facts_of(tmp_path, knowledge, f"{path}: Permission denied")
    advice = f"Make {path} executable (chmod +x {path})."
    assert borne_out(advice, cited, facts) == ("" if refused else advice)


FAILED = 'Error: Post "https://oak.example.org/v2/leaves": i/o timeout'


def test_one_failure_on_many_ranks_did_not_come_again(tmp_path: Path, knowledge: Knowledge) -> None:
    ranks = [f"[rank{rank}]: {FAILED}" for rank in range(8)]
    assert not came_again(*facts_of(tmp_path, knowledge, "leaf 1 shaded", *ranks)[::-1])
    tries = [f"{FAILED}, retrying" for _ in range(4)]
    assert not came_again(*facts_of(tmp_path, knowledge, *(line for each in tries for line in (each, "a leaf", "b leaf")))[::-1])


def test_a_failure_behind_which_the_program_went_on_did(tmp_path: Path, knowledge: Knowledge) -> None:
    turns = [line for turn in range(3) for line in (f"asking for leaf {turn}", "leaves were written", FAILED)]
    assert came_again(*facts_of(tmp_path, knowledge, *turns)[::-1]).startswith("It came 3 times (job.log:3, job.log:6, job.log:9)")


def test_the_line_of_a_launcher_has_no_last_words(tmp_path: Path, knowledge: Knowledge) -> None:
    facts, cited = facts_of(tmp_path, knowledge, "results were written", "srun: error: oak1: task 0: Killed")
    assert not killed_command(cited, facts)


@pytest.mark.parametrize(
    ("line", "place"),
    [
        ("shade failed at /home/ida/oak/shade.cpp:41", "/home/ida/oak/shade.cpp:41"),
        ("At line 7 of file leaf.f90 (unit = 11)", "leaf.f90:7"),
        ("oak1:77:88 [0] bootstrap.cc:131 NCCL WARN rank twice", ""),
        ("/opt/conda/conda-bld/pytorch_17/work/aten/src/ATen/Indexing.cu:1146: shade: Assertion failed", ""),
        ("ERROR: Unknown bond style (src/modify.cpp:88)", ""),
    ],
)
def test_a_place_in_the_source_of_a_library_is_none(tmp_path: Path, knowledge: Knowledge, line: str, place: str) -> None:
    facts, cited = facts_of(tmp_path, knowledge, "leaf 1 shaded", line)
    printed = native_place(cited, facts)
    assert (f"{printed.file}:{printed.line}" if printed is not None else "") == place


@pytest.mark.parametrize(
    ("source", "slots"),
    [
        ("for leaf in leaves", {"line_lacks": "the colon at its end"}),
        ("shade(1, 2 3)", {"line_lacks": "a comma between two of its values"}),
        ("return leaf", {"sound"}),
        ("shade(leaf,", {}),
        ("else", {}),
    ],
)
def test_the_running_interpreter_tells_what_a_line_lacks(source: str, slots: dict[str, str] | set[str]) -> None:
    answer = version_slots("SyntaxError: invalid syntax", source)
    assert (set(answer) if isinstance(slots, set) else answer) == slots
