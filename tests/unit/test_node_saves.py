"""Checkpoints on the own disk of a node are named with node and folder, and nothing begins at 0 elsewhere because of that."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assistant.ports import Reply
from assistant.records import Job, JobSpec, JobState
from assistant.recover.job_program import programs_of
from assistant.tools.storage import NodeSaves, node_saves, saves_in_words

BEGAN = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)


def job(tmp_path: Path, folder: str, **changes: Any) -> Job:
    spec = JobSpec("sd", f"#!/bin/bash\npython train.py --output_dir {folder}\n", work_dir=tmp_path)
    (tmp_path / "train.py").write_text("import torch\nloss.backward()\ntorch.save({'step': 1}, 'x.pt')\n")
    plain = Job("7", "sd", "ada", JobState.FAILED, "", ("n2",), None, tmp_path, BEGAN, BEGAN, BEGAN, 1, None, spec=spec)
    return replace(plain, **{"account": "ada", **changes})


def context(asked: list[Sequence[str]], answer: Reply) -> Any:
    def run(nodes: Sequence[str], command: Sequence[str], **_: Any) -> dict[str, Reply]:
        asked.append(command)
        return {node: replace(answer, node=node) for node in nodes}

    return SimpleNamespace(transport=SimpleNamespace(run=run), command_timeout_s=30.0)


LISTING = "nightshift-saves /own/disk/sd\nentry checkpoint-40\nentry checkpoint-80\nentry unet\n"


@pytest.mark.parametrize(
    ("answer", "names"),
    [
        (Reply("n2", True, 0, LISTING, ""), ("checkpoint-40", "checkpoint-80")),
        (Reply("n2", True, 0, "nightshift-saves /own/disk/sd\nentry unet\n", ""), ()),
        (Reply("n2", True, 0, "nightshift-saves /etc\nentry checkpoint-80\n", ""), ()),  # nobody asked for that
        (Reply("n2", True, 0, "entry checkpoint-80\n", ""), ()),
        (Reply("n2", False, 255, "", "no route"), ()),
        (Reply("n2", True, 1, LISTING, ""), ()),
    ],
)
def test_a_node_says_which_checkpoints_lie_on_its_own_disk(tmp_path: Path, answer: Reply, names: tuple[str, ...]) -> None:
    failed = job(tmp_path, "/own/disk/sd")
    saves = node_saves(context([], answer), failed, programs_of(failed))
    assert saves == ([NodeSaves("n2", "/own/disk/sd", names)] if names else [])
    words = saves_in_words(saves, failed)
    assert bool(words) is bool(names)
    assert not names or ("/own/disk/sd on n2 holds checkpoint-80, checkpoint-40" in words and "--nodelist=n2" in words)


@pytest.mark.parametrize(
    "changes",
    [{"nodes": ()}, {"account": ""}, {"account": "-rf"}, {"account": "ada; id"}, {"started": None}],
    ids=["no node", "no user", "an option", "a command", "never began"],
)
def test_nobody_is_asked_without_node_user_and_time(tmp_path: Path, changes: dict[str, Any]) -> None:
    asked: list[Sequence[str]] = []
    failed = job(tmp_path, "/own/disk/sd", **changes)
    assert node_saves(context(asked, Reply("n2", True, 0, LISTING, "")), failed, programs_of(failed)) == []
    assert asked == []


def test_a_folder_that_is_there_on_this_machine_is_asked_for_nowhere(tmp_path: Path) -> None:
    asked: list[Sequence[str]] = []
    failed = job(tmp_path, str(tmp_path))
    assert node_saves(context(asked, Reply("n2", True, 0, LISTING, "")), failed, programs_of(failed)) == []
    assert asked == []


@pytest.mark.parametrize(
    ("folder", "pieces", "asks"),
    [
        ("/own/disk/ada-{id}", True, False),
        ("/own/disk/ada-{id}", False, True),  # a training goes on from what lies there
        ("/own/disk/pieces", True, True),  # the next run comes to the same folder
        ("/own/disk/ada-7{id}", True, True),
    ],
)
def test_a_folder_of_this_run_alone_holds_nothing_for_the_next_one_where_pieces_are_passed_over(
    tmp_path: Path, folder: str, pieces: bool, asks: bool
) -> None:
    asked: list[Sequence[str]] = []
    failed = job(tmp_path, folder.format(id=job(tmp_path, "/own/disk").id))
    node_saves(context(asked, Reply("n2", True, 0, LISTING, "")), failed, programs_of(failed), pieces=pieces)
    assert bool(asked) is asks


def test_the_command_names_what_changed_since_the_job_began_and_nothing_of_other_users(tmp_path: Path) -> None:
    asked: list[Sequence[str]] = []
    failed = job(tmp_path, "/own/disk/sd", account="root", started=datetime.now(UTC) - timedelta(minutes=5))
    node_saves(context(asked, Reply("n2", True, 0, "", "")), failed, programs_of(failed))
    [command] = asked
    folder = tmp_path / "disk of its own; id"
    (folder / "checkpoint-80").mkdir(parents=True)
    words = [*command[:5], str(folder), "/not/there", *command[6:]]
    ran = subprocess.run(words, capture_output=True, text=True, check=True)
    assert "entry checkpoint-80" in ran.stdout
    other = subprocess.run([*words[:4], "nobody", *words[5:]], capture_output=True, text=True, check=True)
    assert "entry" not in other.stdout
