"""The last lines of logs of strangers: how the run stands, which start counts, and the change that the message itself shows."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from assistant.diagnose.advice.builds import CompileError, pairing_account
from assistant.diagnose.advice.good_ends import _error_words
from assistant.diagnose.case import Case
from assistant.diagnose.facts import gather
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.learning.ranked import RankerOpinion
from assistant.diagnose.verdict import diagnose
from assistant.diagnose.weighing.failed_items import FailedItems, ItemError
from assistant.diagnose.weighing.wording import states_fallback
from assistant.logs.lines import Line

FOLDER = Path(__file__).parents[1] / "cases" / "strangers_tails"
CASES = [case for path in sorted(FOLDER.glob("*.toml")) for case in tomllib.loads(path.read_text(encoding="utf-8"))["case"]]


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    return Knowledge.load()


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_what_the_last_lines_show_is_what_is_said(tmp_path: Path, knowledge: Knowledge, case: dict[str, Any]) -> None:
    (tmp_path / "job.log").write_text(case["log"], encoding="utf-8")
    diagnosis = diagnose(Case.from_path(tmp_path), knowledge, (RankerOpinion(),))
    assert case.get("reason", diagnosis.reason) == diagnosis.reason, diagnosis.summary
    assert case.get("not_reason") != diagnosis.reason, diagnosis.summary
    assert [words for words in case["says"] if words not in diagnosis.advice] == [], diagnosis.advice
    assert [words for words in case["never"] if words in diagnosis.advice] == [], diagnosis.advice
    assert case.get("step", diagnosis.step) == diagnosis.step
    assert case.get("action", diagnosis.action) == diagnosis.action, diagnosis.advice
    assert (
        case.get("cites", diagnosis.root_cause[0].line if diagnosis.root_cause else 0)
        in [cited.line for cited in diagnosis.root_cause[:3]]
        or not diagnosis.root_cause
    )


@pytest.mark.parametrize(
    "text",
    [
        "KeyError was ignored",
        "[rank3]: RuntimeError: table is empty, using zeros instead",
        "2026-01-01 10:00:00,123 ERROR ValueError: line 4 is ignored",
        "Fell back to the last checkpoint 3 times, giving up",
        "Ignoring SIGTERM; killed",
        "the run was aborted instead of defaulting to zeros",
        "Ignoring is not possible",
        "Defaulting to zeros is not allowed",
        "state was ignored, cannot go on",
        "fatal: mirror is down, falling back to the origin " + "x" * 900 + " refused; aborting",
    ],
)
def test_the_words_of_an_end_are_no_fallback(text: str) -> None:
    assert not states_fallback(text)


@pytest.mark.parametrize(
    "text",
    [
        "using gloo instead of nccl",
        "connection refused, falling back to the mirror",
        "option --pinned is invalid for this device and will be ignored",
        "a non-fatal error was ignored",
        "could not import the extension (ImportError: no module), falling back to the slow path",
    ],
)
def test_what_is_used_instead_is_a_fallback(text: str) -> None:
    assert states_fallback(text)


OWN_ERRORS = [CompileError("", f"'a{number}' undeclared", "", number) for number in (1, 2, 3)]


@pytest.mark.parametrize(
    "file",
    [
        "/home/u/envs/proj/solver.c",
        "/home/u/envs/proj/solver.h",
        "/opt/users/ada/solver.c",
        "/opt/users/ada/solver.h",
        "/home/u/apps/mycode/gcc/x.c",
        "/home/u/apps/mycode/gcc/x.h",
        "/usr/local/cuda-12/samples/tile.cu",
        "/home/u/miniconda3/envs/sim/work/grid.cpp",
        "/opt/code/flow.f90",
    ],
)
def test_the_source_of_the_owner_is_no_library(file: str) -> None:
    assert pairing_account([error._replace(place=f"{file}:{error.number}") for error in OWN_ERRORS]) == ""


@pytest.mark.parametrize(
    ("file", "name"),
    [
        ("/usr/include/c++/11/vector", "the system or a module"),
        ("/opt/mambaforge/envs/sim/include/fmt/core.h", "conda"),
        ("/home/u/micromamba/envs/sim/include/fmt/core.h", "conda"),
        ("/home/u/tools/lib/gcc/x86_64/11/include/immintrin.h", "the system or a module"),
        ("/opt/openmpi-4/lib/mpi.mod", "MPI"),
    ],
)
def test_a_header_of_a_library_is_one(file: str, name: str) -> None:
    account = pairing_account([error._replace(place=f"{file}:{error.number}") for error in OWN_ERRORS])
    assert f"inside {file}, a file of {name}" in account


def test_what_items_print_is_redacted_and_short(tmp_path: Path, knowledge: Knowledge) -> None:
    token = "ghp_" + "a1B2c3D4e5" * 4
    (tmp_path / "job.log").write_text("loading\n", encoding="utf-8")
    facts = gather(Case.from_path(tmp_path), knowledge)
    errors = (
        ItemError(f"west {token}", 4, f"ValueError: {token}", Line(3, f"bad key {token}")),
        ItemError("long" * 100, 5, "ValueError: other", None),
    )
    met = _error_words(FailedItems(("a", "b"), 2, 8, 9, errors), facts)
    assert token not in met
    assert met.count("[redacted]") == 3
    assert len(met) < 400
