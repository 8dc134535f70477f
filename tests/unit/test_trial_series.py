"""The starts of one trial: what one died of is refused, the ways behind it are tried without it, and their number has an end."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assistant.ports import Reply
from assistant.recover.resume.means import ResumeMeans, ResumeWay
from assistant.recover.trial.judgement import MARK
from assistant.tools import checkpoints, trial
from assistant.tools.checkpoints import choose_checkpoint
from assistant.tools.trial import MOST_STARTS, trial_start
from tests.unit.failed_job import World

BY_ITSELF = ResumeWay(ResumeMeans.NEWEST, "glob() in x.py, line 3", home_made=True)
ERROR = "Traceback (most recent call last):\n{}\n"


class Sandbox:
    """Answers of a node to the starts of a script, in turn; the last one goes on."""

    name = "sandbox"

    def __init__(self, *answers: dict[str, Any]) -> None:
        self.answers, self.commands = list(answers), list[Sequence[str]]()

    def run(self, nodes: Sequence[str], command: Sequence[str], *, timeout_s: float) -> dict[str, Reply]:
        answer = self.answers[min(len(self.commands), len(self.answers) - 1)]
        self.commands.append(command)
        return {nodes[0]: Reply(nodes[0], True, 0, MARK + json.dumps({"status": "ran", "seconds": 2.0, **answer}), "")}


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    world = World(tmp_path, script=f"#!/bin/bash\nsrun python x.py --save {tmp_path}/ckpt\n").passes(60)
    monkeypatch.setattr(checkpoints, "TRIAL_TRANSPORTS", ("sandbox",))
    monkeypatch.setattr(trial, "pwd", SimpleNamespace(getpwnam=lambda name: SimpleNamespace(pw_uid=2001)))
    return world


def tried(
    world: World, monkeypatch: pytest.MonkeyPatch, way: ResumeWay, *answers: dict[str, Any]
) -> tuple[dict[str, Any], Sandbox]:
    for module in (checkpoints, trial):
        monkeypatch.setattr(module, "read_way", lambda job, search: way)
    sandbox = Sandbox(*answers)
    world.context = replace(world.context, transport=sandbox)
    return trial_start(world.context, world.job), sandbox


def newest(world: World) -> tuple[str, int]:
    choice = choose_checkpoint(world.context, world.job)
    return choice["path"], choice["step"]


def died(file: str, error: str = "ValueError: bad length") -> dict[str, Any]:
    return {"exit": 1, "opened": [file], "output": ERROR.format(f"{error} in {file}")}


def went_on(path: str, step: int) -> dict[str, Any]:
    lines = "".join(f"step {number} loss 2.0\n" for number in range(step + 1, step + 5))
    return {"exit": None, "opened": [f"{path}/model.bin"], "output": f"resuming from {path}\n{lines}"}


def test_the_file_that_a_start_died_of_is_hidden_from_the_next_one(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    path, step = newest(world)
    (world.saved / "a.sav").write_bytes(b"x" * 400)
    crash = world.saved / "crash.sav"
    crash.write_bytes(b"x" * 90)
    answer, sandbox = tried(world, monkeypatch, BY_ITSELF, died(str(crash)), went_on(path, step))
    assert (answer["proven"], answer["set_aside"], len(sandbox.commands)) == ("yes", [str(crash)], 2), answer["note"]
    assert answer["refused"][str(crash)].startswith("torn: 90 bytes, each of the others at least 400")


def test_a_documented_variable_is_tried_once_the_start_as_it_is_has_died(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    path, step = newest(world)
    way = replace(BY_ITSELF, trial_variables=("FROM={checkpoint}",))
    answer, sandbox = tried(world, monkeypatch, way, died(f"{path}/other.bin", "KeyError: 'x'"), went_on(path, step))
    assert (answer["proven"], answer["variable"], len(sandbox.commands)) == ("yes", "FROM={checkpoint}", 2), answer["note"]
    assert answer["start"], "what is submitted is held against it"


@pytest.mark.parametrize(
    ("error", "refuted"),
    [
        ("AssertionError: nothing left to train: step 60 is the last", "yes"),
        ("ValueError: record 812 has no label", "yes"),
        ("ValueError: bad length in {file}", "yes"),
        ('psycopg2.OperationalError: could not translate host name "db.site" to address: Name or service not known', ""),
        ("FileNotFoundError: [Errno 2] No such file or directory: '/raid/cache/tokens.idx'", ""),
    ],
)
def test_no_death_makes_a_healthy_newest_checkpoint_give_way(
    world: World, monkeypatch: pytest.MonkeyPatch, error: str, refuted: str
) -> None:
    path, step = newest(world)
    before = choose_checkpoint(world.context, world.job, which="before_step", step=step)
    file = next(file for file in sorted(Path(path).rglob("*")) if file.is_file())
    first = {"exit": 1, "opened": [str(file)], "output": ERROR.format(error.format(file=file))}
    answer, sandbox = tried(world, monkeypatch, BY_ITSELF, first, went_on(before["path"], before["step"]))
    assert (answer["proven"], answer["refuted"], answer["refused"]) == ("", refuted, {}), answer["note"]
    assert len(sandbox.commands) == 1, "no older one is chosen because of it"


def test_a_file_of_state_in_json_is_never_refused(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    newest(world)
    (world.saved / "history.json").write_text("x" * 4000)
    state = world.saved / "state.json"
    state.write_text('{"last": 40}')
    answer, _ = tried(world, monkeypatch, BY_ITSELF, died(str(state), "ValueError: truncated"))
    assert answer["refused"] == {}


def test_where_a_script_goes_on_by_itself_a_variable_proves_nothing(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    path, step = newest(world)
    way = replace(BY_ITSELF, trial_variables=("FROM={checkpoint}",))
    answer, sandbox = tried(world, monkeypatch, way, went_on(path, step))
    assert (answer["proven"], answer["variable"], len(sandbox.commands)) == ("yes", "", 1), "as it is comes first"
    assert (answer["attempt"].split(" ")[0], list(answer["marks"])) == (world.job, [path])


@pytest.mark.parametrize("was", [1, None], ids=["written over", "added"])
def test_a_variable_by_which_a_healthy_checkpoint_changes_is_refuted(
    world: World, monkeypatch: pytest.MonkeyPatch, was: int | None
) -> None:
    path, step = newest(world)
    way = ResumeWay(ResumeMeans.UNKNOWN, "?", trial_variables=("FROM={checkpoint}",))
    changed = {**went_on(path, step), "changed": [{"path": f"{path}/model.bin", "was": was}]}
    answer, _ = tried(world, monkeypatch, way, {"exit": None}, changed)
    assert (answer["proven"], answer["refuted"]) == ("", "yes"), answer["note"]


def test_a_start_that_always_dies_is_tried_a_bounded_number_of_times_and_refuted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    way = ResumeWay(ResumeMeans.UNKNOWN, "?", trial_variables=("A={checkpoint}", "B={checkpoint}"))
    path, _ = newest(world)
    answer, sandbox = tried(world, monkeypatch, way, died(f"{path}/model.bin"))
    assert (answer["proven"], answer["refuted"]) == ("", "yes")
    assert len(sandbox.commands) <= MOST_STARTS
    assert "ValueError: bad length" in answer["note"], "the person is told what it died of"


@pytest.mark.parametrize(
    "answer",
    [
        {"exit": 1, "opened": [], "output": ERROR.format("ConnectionError: Network is unreachable")},
        {"exit": None, "opened": [], "output": ""},
        {"status": "impossible", "why": "users may have no namespaces of their own here"},
    ],
    ids=["no network", "its time was over", "no sandbox"],
)
def test_what_could_not_run_refutes_nothing(world: World, monkeypatch: pytest.MonkeyPatch, answer: dict[str, Any]) -> None:
    trial_answer, sandbox = tried(world, monkeypatch, replace(BY_ITSELF, trial_variables=("FROM={checkpoint}",)), answer)
    assert (trial_answer["proven"], trial_answer["refuted"], trial_answer["refused"]) == ("", "", {})
    assert len(sandbox.commands) == 1, "it is left as it was read"
