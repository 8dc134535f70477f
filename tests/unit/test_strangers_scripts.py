"""Where scripts of strangers save and how they resume, told from the script, its options, configurations and programs."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from assistant.records import Job, JobSpec, JobState
from assistant.recover.batch_script import UNRESOLVED, launches_of
from assistant.recover.checkpoints.place import checkpoint_places
from assistant.recover.job_program import programs_of, saves_nothing
from assistant.recover.resume import resume_way

CASES: list[dict[str, Any]] = tomllib.loads(
    (Path(__file__).parents[1] / "cases" / "checkpoints" / "strangers.toml").read_text(encoding="utf-8")
)["case"]


def job(script: str) -> Job:
    spec = JobSpec("gpt", script, work_dir=Path("/work"))
    return Job(
        "7", "gpt", "", JobState.FAILED, "", (), None, Path("/work"), None, None, None, 1, None, spec=spec
    )  # fmt: skip


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_script_of_a_stranger_is_understood(case: dict[str, Any]) -> None:
    files = {**case.get("files", {}), **({"/work/train.py": case["program"]} if "program" in case else {})}
    shown = job(case["script"])
    programs = programs_of(shown, files.get)
    places = checkpoint_places(shown, {}, (), programs)
    assert (str(places[0].folder) if places else None) == case.get("folder")
    assert str(resume_way(shown, programs).means) == case["resumes"], resume_way(shown, programs).sentence
    if "found_by" in case:
        assert places[0].how == case["found_by"]


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ("A='x y'; run $A \"$A\" '$A'", ["run", "x", "y", "x y", "$A"]),
        ("run ${A:-b} ${B:+c} \"\"", ["run", "b", ""]),
        ("X=(a 'b c'); run \"${X[@]}\"", ["run", "a", "b c"]),
        ("run a \\\n  b # c", ["run", "a", "b"]),
        ("run $(date) `id`", ["run", UNRESOLVED, UNRESOLVED]),
        ("if true; then run x; fi", ["run", "x"]),
        ("run x > y 2>&1 &", ["run", "x"]),
        ("run $UNSET", ["run", UNRESOLVED]),
        ("run 'unclosed", ["run", "unclosed"]),
        ("run \"${X", ["run", UNRESOLVED]),
    ],
)  # fmt: skip
def test_words_are_expanded_as_a_shell_would(script: str, words: list[str]) -> None:
    launches = [one for one in launches_of(script, environment={}, work_dir="/w") if one.words[0] == "run"]
    assert [list(one.words) for one in launches] == [words]


@pytest.mark.parametrize(
    "script",
    [
        "(" * 5000,
        "${" * 2000,
        "'" * 999,
        "$(" * 999 + "x",
        "a=(" * 500,
        "<<E\n" * 500,
        "\0\x01",
        "\\",
        "$",
        "cd ..;" * 300,
        'run "\\',
        'x="',
        "a=$(",
    ],
)
def test_a_strange_script_is_read_to_its_end(script: str) -> None:
    launches_of(script, environment={}, work_dir="/w")
    programs_of(job(script), lambda _: None)


@pytest.mark.parametrize(
    ("script", "nothing"),
    [
        ("echo hi\nsleep 5\nexit 1\n", True),
        ("f() { echo step $1; }\nfor i in 1 2; do f $i; done\nsrun -n 1 sleep 3 > x.log\n", True),
        ("echo 3 > ckpt/step_3.txt\n", False),
        ("srun ./trainer\n", False),
        ("mkdir ckpt\n", False),
    ],
)
def test_only_commands_that_write_nothing_prove_that_nothing_was_saved(script: str, nothing: bool) -> None:
    assert saves_nothing(job(script), lambda _: None) is nothing
