"""Where scripts of strangers save and how they resume, told from the script, its options, configurations and programs."""

from __future__ import annotations

import pickle
import tomllib
import zipfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

import assistant
from assistant.records import Checkpoint, Job, JobSpec, JobState
from assistant.recover.batch_script import launches_of
from assistant.recover.checkpoints.inventory import inventory
from assistant.recover.checkpoints.place import checkpoint_places
from assistant.recover.job_program import programs_of, saves_nothing
from assistant.recover.resume.means import ResumeMeans, ResumeWay
from assistant.recover.resume.plan import resume_plan
from assistant.recover.resume.script import resume_way
from assistant.recover.shell.folders import UNRESOLVED
from assistant.recover.source.start_files import reads_tracker
from assistant.recover.source.trainer_source import parse_source

FOLDER = Path(__file__).parents[1] / "cases" / "checkpoints"
CASES: list[dict[str, Any]] = [
    case
    for name in ("strangers.toml", "frameworks.toml", "rules.toml")
    for case in tomllib.loads((FOLDER / name).read_text("utf-8"))["case"]
]
NOW = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)


def job(script: str) -> Job:
    spec = JobSpec("gpt", script, work_dir=Path("/work"))
    return Job(
        "7", "gpt", "", JobState.FAILED, "", (), None, Path("/work"), None, None, None, 1, None, spec=spec
    )  # fmt: skip


def checkpoint(path: Path, step: int) -> Checkpoint:
    return Checkpoint(path, step, "huggingface", 1, NOW, True, ())


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_a_script_of_a_stranger_is_understood(case: dict[str, Any]) -> None:
    files = {**case.get("files", {}), **({"/work/train.py": case["program"]} if "program" in case else {})}
    shown = job(case["script"])
    programs = programs_of(shown, files.get)
    places = checkpoint_places(shown, {}, (), programs)
    assert (str(places[0].folder) if places else None) == case.get("folder")
    way = resume_way(shown, programs)
    assert str(way.means) == case["resumes"], way.sentence
    assert way.path == case.get("from", way.path)
    assert bool(way.destroys) == case.get("destroys", bool(way.destroys)), way.sentence
    if "found_by" in case:
        assert places[0].how == case["found_by"]


@pytest.mark.parametrize("case", [case for case in CASES if "folder" in case], ids=lambda case: case["name"])
def test_a_script_that_deletes_its_checkpoints_is_not_started(case: dict[str, Any]) -> None:
    files = {**case.get("files", {}), **({"/work/train.py": case["program"]} if "program" in case else {})}
    shown = job(case["script"])
    way = resume_way(shown, programs_of(shown, files.get))
    plan = resume_plan(way, None, checkpoint(Path(case["folder"]) / "checkpoint-40", 40))
    assert ("removes" in plan.refusal) == case.get("erases", False), plan.refusal
    assert plan.refusal or not way.destroys


def test_what_is_removed_after_the_training_or_by_the_owners_word_counts_for_nothing() -> None:
    after = job("python train.py --output_dir /ckpt/a --resume_from_checkpoint latest\nrm -rf /ckpt/a\n")
    said = job("#NIGHTSHIFT resumes=newest\nrm -rf /ckpt/a\npython train.py --output_dir /ckpt/a\n")
    for shown in (after, said):
        way = resume_way(shown, programs_of(shown, lambda _: None))
        assert resume_plan(way, None, checkpoint(Path("/ckpt/a/checkpoint-40"), 40)).ready


@pytest.mark.parametrize(
    ("names", "chosen", "ready"),
    [
        (("epoch=1-step=10.ckpt", "epoch=2-step=20.ckpt", "last.ckpt"), 20, True),
        (("epoch=1-step=10.ckpt", "epoch=2-step=20.ckpt"), 20, False),  # it would start at 0
        (("epoch=1-step=10.ckpt", "epoch=2-step=20.ckpt", "last.ckpt"), 10, False),  # the one of step 20 would be loaded
    ],
)
def test_lightning_sees_only_what_is_called_last(names: tuple[str, ...], chosen: int, ready: bool, tmp_path: Path) -> None:
    for name in names:
        step = 20 if name == "last.ckpt" else int(name.partition("step=")[2].partition(".")[0])
        with zipfile.ZipFile(tmp_path / name, "w") as archive:
            archive.writestr("archive/data.pkl", pickle.dumps({"global_step": step}))
    way = ResumeWay(ResumeMeans.NEWEST, "ckpt_path of fit()", prefix="last")
    held = inventory(tmp_path, now=NOW)
    plan = resume_plan(way, held, next(one for one in held.checkpoints if one.step == chosen))
    assert plan.ready == ready, plan


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


BOXED: list[dict[str, Any]] = tomllib.loads((FOLDER / "containers.toml").read_text("utf-8"))["case"]


@pytest.mark.parametrize("case", BOXED, ids=lambda case: case["name"])
def test_a_path_of_a_container_is_followed_to_the_host(case: dict[str, Any]) -> None:
    shown = job(case["script"])
    programs = programs_of(shown, lambda _: None)
    places = checkpoint_places(shown, {}, (), programs)
    assert (str(places[0].folder) if places else "?") == case["saves"]
    if "log" in case:
        assert str(checkpoint_places(shown, {}, [case["log"]], programs)[-1].folder) == case["logged"]


TRACKERS: list[dict[str, Any]] = tomllib.loads((FOLDER / "tracker_reads.toml").read_text("utf-8"))["case"]


@pytest.mark.parametrize("case", TRACKERS, ids=lambda case: case["name"])
def test_only_a_file_that_is_read_is_a_tracker(case: dict[str, Any]) -> None:
    assert reads_tracker(parse_source(case["program"], path="/work/train.py")) is case["reads"]


def test_programs_are_parsed_in_one_place_by_one_thread_at_a_time() -> None:
    package = Path(assistant.__file__).parent
    parses = [path.name for path in package.rglob("*.py") if "ast.parse(" in path.read_text(encoding="utf-8")]
    assert sorted(parses) == ["loading.py", "trainer_source.py"]  # config/loading.py reads our own settings, for a page


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        ("bash run.sh --data /d -x 3", ["--data", "/d", "-x", "3"]),
        ("srun bash -x run.sh --resume", ["--resume"]),
        ("bash -euo pipefail run.sh a --b", ["a", "--b"]),
        ("bash -- run.sh --b", ["--b"]),
        ("bash -c 'python t.py \"$@\"' name --b c", ["--b", "c"]),
        ("srun bash -lc 'python t.py \"$1\"' name --b c", ["--b"]),
        ("bash run.sh", []),
    ],
)
def test_a_script_is_given_all_words_behind_it(command: str, arguments: list[str]) -> None:
    texts = {"/w/run.sh": '#!/bin/bash\npython t.py "$@"\n'}
    launches = launches_of(f"#!/bin/bash\n{command}\n", environment={}, work_dir="/w", read=texts.get)
    assert [list(one.arguments) for one in launches if one.program == "t.py"] == [arguments]
