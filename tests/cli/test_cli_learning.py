"""What the command line teaches Nightshift, and takes back."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assistant.cli.output import Exit
from assistant.store import Store

Run = Callable[..., Any]
STEPS = "".join(f"iteration {n}/ 1000 | lm loss: {3 - n / 100:.3f} |\n" for n in range(1, 40))


@pytest.fixture
def lessons(tmp_path: Path) -> Path:
    """Two labelled cases of a failure that nothing knows, and a healthy one."""
    for name, number in (("a", 3), ("b", 5)):
        folder = tmp_path / "lessons" / name
        folder.mkdir(parents=True)
        (folder / "job.log").write_text(f"{STEPS}flux capacitor {number} lost its uplink\n")
        (folder / "label.toml").write_text('reason = "network_error"\nlines = [40]\nwhy = "the switch said so"\n')
    healthy = tmp_path / "lessons" / "ok"
    healthy.mkdir()
    (healthy / "job.log").write_text(f"{STEPS}training done\n")
    (healthy / "label.toml").write_text('reason = "no_failure"\n')
    return tmp_path / "lessons"


def test_labelled_logs_teach_and_each_says_what_came_of_it(cli: Run, store: Store, lessons: Path) -> None:
    said = cli("learn", "--from", lessons)
    assert said.code == Exit.DONE, said.err
    first, second, healthy = (line.split() for line in said.out.splitlines()[1:])
    assert first[:2] == ["a", "network_error"]
    assert first[3:5] == ["2", "network_error.learned-1:"]
    assert second == ["b", "network_error", "right", "3", "remembered"]
    assert healthy[:2] == ["ok", "no_failure"]
    assert [memory.why for memory in store.memories()] == ["the switch said so"] * 2


def test_the_same_lessons_again_teach_nothing_new(cli: Run, store: Store, lessons: Path) -> None:
    cli("learn", "--from", lessons)
    before = (store.rules(), store.memories(), len(store.incidents()))
    assert [found["rule"] for found in cli("learn", "--from", lessons, "--json").objects] == [None, None, None]
    assert (store.rules(), store.memories(), len(store.incidents())) == before


def test_a_dry_run_says_what_would_be_learned_and_leaves_nothing(cli: Run, store: Store, lessons: Path) -> None:
    objects = cli("learn", "--from", lessons, "--dry-run", "--json").objects
    assert objects[0]["rule"] == "network_error.learned-1"
    assert (store.rules(), store.memories(), len(store.incidents())) == ([], [], 1)


@pytest.mark.parametrize(
    ("label", "message"),
    [('reason = "no_such_reason"', "there is no reason 'no_such_reason'"), ('reason = "hang"\nlines = [4000]', "has no line 4000")],
)
def test_a_lesson_that_cannot_be_used_says_why_and_the_others_go_on(
    cli: Run, store: Store, lessons: Path, label: str, message: str
) -> None:
    (lessons / "a" / "label.toml").write_text(label)
    first, second, _ = cli("learn", "--from", lessons, "--json").objects
    assert message in first["problem"]
    assert second["rule"] == "network_error.learned-1"


def test_a_folder_without_labels_is_an_error(cli: Run, store: Store, tmp_path: Path) -> None:
    said = cli("learn", "--from", tmp_path)
    assert said.code == Exit.USAGE
    assert "holds no label" in said.err
    assert cli("learn", "--from", tmp_path / "nowhere").code == Exit.USAGE


def test_an_incident_is_corrected_shown_and_forgotten(cli: Run, store: Store) -> None:
    (found,) = cli("incident", "correct", 1, "--reason", "network_error", "--why", "switch 4", "--json").objects
    assert (found["reason"], found["by"], found["learned"]) == ("network_error", "operator", None)
    assert found["refused"].startswith("no line of the case shows it")
    assert "by the word of" in cli("incident", "show", 1).out
    assert cli("incident", "forget", 1).out == "incident 1 was not remembered\n"
    said = cli("incident", "correct", 1, "--reason", "network_eror")
    assert said.code == Exit.USAGE
    assert "did you mean network_error" in said.err


def test_what_was_learned_from_labelled_logs_can_be_forgotten(cli: Run, store: Store, lessons: Path) -> None:
    cli("learn", "--from", lessons)
    assert cli("incident", "forget", 2, "--why", "wrong label").out == "incident 2 is forgotten\n"
    assert [str(rule.state) for rule in store.rules()] == ["retired"]
    assert [memory.incident for memory in store.memories()] == [3]


def test_an_incident_without_a_diagnosis_cannot_be_confirmed(cli: Run, store: Store) -> None:
    said = cli("incident", "confirm", 1)
    assert said.code == Exit.USAGE
    assert "incident correct ID --reason" in said.err


def test_a_diagnosis_by_hand_uses_what_was_learned_and_remembered(cli: Run, store: Store, lessons: Path, tmp_path: Path) -> None:
    log = tmp_path / "next.log"
    log.write_text(f"{STEPS}flux capacitor 8 dropped its uplink\nsrun: error: node7: task 4: Exited with exit code 9\n")
    assert cli("diagnose", log, "--json").objects[0]["reason"] == "unknown"
    cli("learn", "--from", lessons)
    (found,) = cli("diagnose", log, "--json").objects
    assert (found["reason"], found["by"], found["seen_before"][0]["incident"]) == ("network_error", "memory", 2)
    assert "seen before  incident 2 (" in cli("diagnose", log).out
    assert cli("diagnose", log, "--json", "--shipped").objects[0]["reason"] == "unknown"
