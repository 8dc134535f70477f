"""A job that passes over finished pieces is proven to do so by its script or program, or its doubt names the line."""

from __future__ import annotations

import tomllib
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assistant.recover.job_program import FileReader, programs_of
from assistant.recover.source.finished_pieces import pieces_of_script
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


@pytest.mark.parametrize("case", [*cases("python"), *cases("marks")])
def test_a_program_is_proven_or_its_line_is_named(case: dict[str, Any], tmp_path: Path) -> None:
    write(tmp_path / "cut.py", case["program"].lstrip("\n"))
    for name, text in case.get("beside", {}).items():
        write(tmp_path / name, text.lstrip("\n"))
    check(tmp_path, case, case.get("script", "#!/bin/bash\nsrun python3 cut.py\n"))


def test_functions_that_call_one_another_cost_no_more_than_they_may() -> None:
    calls = "\n".join(f"f{n}() {{ " + f"f{n + 1}; " * 40 + "}" for n in range(9))
    script = f"#!/bin/bash\nf9() {{ gzip a; }}\n{calls}\n" + "# remark\n" * 50_000
    loop = "for n in 1 2; do [ -e $n.done ] && continue; f0 && touch $n.done; done\n"
    work = pieces_of_script(script[:200_000] + loop, [], lambda _: None)
    assert not work.proven
    assert "too long" in work.doubt
