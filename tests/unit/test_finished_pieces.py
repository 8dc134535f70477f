"""A job that passes over finished pieces is proven to do so by its script or program, or its doubt names the line."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from assistant.records import JobState
from assistant.recover.checkpoints.search import SaveState, search_checkpoints
from assistant.recover.job_program import FileReader, programs_of
from assistant.recover.source.finished_pieces import pieces_of_script
from assistant.recover.source.make_targets import UnreadMakefile, recipes_of
from tests.unit.logged_job import job_in, write

CASES = Path(__file__).parents[1] / "cases" / "finished_pieces"


def cases(name: str) -> list[Any]:
    listed = tomllib.loads((CASES / f"{name}.toml").read_text())["case"]
    return [pytest.param(case, id=case["name"]) for case in listed]


def check(folder: Path, case: dict[str, Any], script: str) -> None:
    job = job_in(folder)
    assert job.spec is not None
    job = replace(job, spec=replace(job.spec, script=script))
    read = FileReader("")
    work = pieces_of_script(script, programs_of(job), lambda path: read(str(folder / path)))
    assert work.proven is case["proven"], work
    assert case.get("doubt", "") in work.doubt
    if "where" in case:
        assert work.guard_place == case["where"]


@pytest.mark.parametrize("case", cases("shell"))
def test_a_script_is_proven_or_its_line_is_named(case: dict[str, Any], tmp_path: Path) -> None:
    check(tmp_path, case, case["script"].lstrip("\n"))


@pytest.mark.parametrize("case", [*cases("python"), *cases("marks"), *cases("whole")])
def test_a_program_is_proven_or_its_line_is_named(case: dict[str, Any], tmp_path: Path) -> None:
    write(tmp_path / "cut.py", case["program"].lstrip("\n"))
    for name, text in case.get("beside", {}).items():
        write(tmp_path / name, text.lstrip("\n"))
    check(tmp_path, case, case.get("script", "#!/bin/bash\nsrun python3 cut.py\n"))


@pytest.mark.parametrize("case", cases("make"))
def test_a_second_make_is_proven_to_do_only_what_is_missing_or_its_doubt_is_named(case: dict[str, Any], tmp_path: Path) -> None:
    write(tmp_path / "cut.py", case.get("program", "import sys\nwith open(sys.argv[-1], 'w') as sink:\n    sink.write('1')\n"))
    write(tmp_path / "Makefile", case["makefile"].lstrip("\n"))
    job = job_in(tmp_path)
    assert job.spec is not None
    spec = replace(job.spec, script=case["script"].lstrip("\n"))
    job = replace(job, spec=spec, state=JobState.FAILED, exit_code=case["exit"], signal=None)
    search = search_checkpoints(job, {}, [], now=datetime.now(UTC))
    assert (search.pieces == "targets of its Makefile") is case["proven"], search.note
    assert (search.state is SaveState.NEVER_SAVED) is case["proven"]
    assert case.get("doubt", "") in search.note


@pytest.mark.parametrize(
    "text",
    [
        "A = " + "$(B) " * 20_000 + "\nB = " + "x" * 90_000 + "\na: $(A)\n\ttrue\n",
        "A = $(A) $(A)\na: $(A)\n\ttrue\n",
        "a" * 200_000,
        "a: b\n" * 5_000,
        "\ttrue\n",
        "a:\\\n" * 1_000,
        "",
    ],
)
def test_a_makefile_of_any_form_costs_no_more_than_it_may(text: str) -> None:
    try:
        recipes = recipes_of(["-j", "4", "a"], text)
    except UnreadMakefile:
        return
    assert len(recipes.shell) < 1_000_000


def test_functions_that_call_one_another_cost_no_more_than_they_may() -> None:
    calls = "\n".join(f"f{n}() {{ " + f"f{n + 1}; " * 40 + "}" for n in range(9))
    script = f"#!/bin/bash\nf9() {{ gzip a; }}\n{calls}\n" + "# remark\n" * 50_000
    loop = "for n in 1 2; do [ -e $n.done ] && continue; f0 && touch $n.done; done\n"
    work = pieces_of_script(script[:200_000] + loop, [], lambda _: None)
    assert not work.proven
    assert "too long" in work.doubt
