"""What is shown of a change of checkpoints and trackers is what happens to the files; a change of them after a yes refuses."""

from __future__ import annotations

import shlex
import shutil
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from assistant.errors import Denied, Parked
from assistant.policy import Mode
from assistant.records import CallStatus, Verdict
from assistant.recover.checkpoints.aside import moves_aside
from assistant.recover.checkpoints.trackers import TRACKER_BYTES
from assistant.store.calls import command_digest
from assistant.tooling import find_tool
from assistant.tools import aside, secured
from tests.adversary.frozen_scene import BY, ON_FILES, Scene, file_arguments_of, files_of, scene_of, tree_of

KINDS = ("simulated", "local", "slurm")


def typed(shown: str, before: dict[str, str], top: Path) -> dict[str, str]:
    """Return what a folder would hold after the commands that were shown, read as a person would."""
    after = dict(before)
    for line in shown.partition("  # ")[0].split("; "):
        words = shlex.split(line.partition(" FILES[")[0].partition(" REPLACES[")[0])
        names = [str(Path(word).relative_to(top)) for word in words if word.startswith(str(top))]
        if words[0] == "mv":
            after |= {str(above): "/" for above in Path(names[1]).parents if str(above) != "."}
            moved = {name: text for name, text in after.items() if name == names[0] or name.startswith(f"{names[0]}/")}
            after = {name: text for name, text in after.items() if name not in moved}
            after |= {names[1] + name.removeprefix(names[0]): text for name, text in moved.items()}
        elif words[0] == "cp":
            assert words[1] == "-alT", line
            after |= {str(above): "/" for above in Path(names[1]).parents if str(above) != "."}
            linked = {name: text for name, text in after.items() if name == names[0] or name.startswith(f"{names[0]}/")}
            after |= {names[1] + name.removeprefix(names[0]): text for name, text in linked.items()}
        else:
            assert words[:2] == ["printf", "%s"], line
            after[names[0]] = words[2].encode().hex()
    return after


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        pytest.param(name, kind, marks=() if kind == "simulated" else pytest.mark.slow)
        for name in ("set aside", "put back", "set tracker", "restore tracker")
        for kind in KINDS
    ],
)
def test_what_was_shown_and_stored_is_what_happens_to_the_files(kind: str, name: str, tmp_path: Path) -> None:
    scene = scene_of(kind, tmp_path)
    tool, arguments = file_arguments_of(scene, name)
    before = tree_of(scene.checkpoints)
    approval = scene.asks(tool, arguments)
    shown, asked = scene.shown(approval), scene.store.approval(approval)
    assert tree_of(scene.checkpoints) == before, "nothing happens before the yes"
    assert "\n" not in shown
    assert asked.digest == scene.store.call(asked.call).digest != ""
    lines = shown.partition("  # ")[0].split("; ")
    assert scene.store.frozen_commands(asked.call) == [command_digest(line) for line in lines]
    scene.clock.sleep(7200)
    assert scene.store.answer(approval, Verdict.ALLOW, BY, digest=asked.digest)
    outcome = scene.gate().go_on(asked.call)
    assert outcome.ok, outcome.error
    written = "20\n" if name == "restore tracker" else "20"
    after = typed(shown.replace("$'20\\n'", "'20\n'"), before, scene.checkpoints)
    assert tree_of(scene.checkpoints) == after != before
    assert "tracker" not in name or (scene.checkpoints / "latest_checkpointed_iteration.txt").read_text() == written
    assert scene.store.call(asked.call).preview == shown
    assert [line for line in scene.ran() if line] == []


def moved_one(scene: Scene) -> Path:
    return next(path for path in scene.checkpoints.rglob("iter_00000[24]0") if _subject(scene) in path.name)


def _subject(scene: Scene) -> str:
    return "20" if (scene.checkpoints / "nightshift-refused").is_dir() else "40"


def other_bytes(scene: Scene) -> None:
    file = moved_one(scene) / "mp_rank_00/model_optim_rng.pt"
    file.write_bytes(b"\x80" + bytes(9001))


def one_more_file(scene: Scene) -> None:
    (moved_one(scene) / "mp_rank_00/new").touch()


def one_file_less(scene: Scene) -> None:
    (moved_one(scene) / "mp_rank_00/model_optim_rng.pt").unlink()


def another_in_its_place(scene: Scene) -> None:
    shutil.rmtree(moved_one(scene) / "mp_rank_00")
    (moved_one(scene) / "mp_rank_00").symlink_to("/etc")


def a_link_in_its_place(scene: Scene) -> None:
    path = moved_one(scene)
    path.rename(scene.folder / "elsewhere-40")
    path.symlink_to(scene.folder / "elsewhere-40")


def folder_is_a_link(scene: Scene) -> None:
    other = scene.folder / "of-bob"
    shutil.copytree(scene.checkpoints, other)
    (moved_one(scene) / "mine").touch()
    scene.checkpoints.rename(scene.folder / "away")
    scene.checkpoints.symlink_to(other)


def target_is_taken(scene: Scene) -> None:
    if _subject(scene) == "20":
        (scene.checkpoints / "iter_0000020").mkdir()
    else:
        (scene.checkpoints / "nightshift-refused/iter_0000040").mkdir(parents=True)


def tracker_says_more(scene: Scene) -> None:
    (scene.checkpoints / "latest_checkpointed_iteration.txt").write_text("40 ")


def tracker_is_gone(scene: Scene) -> None:
    (scene.checkpoints / "latest_checkpointed_iteration.txt").unlink()


def tracker_is_a_link(scene: Scene) -> None:
    tracker = scene.checkpoints / "latest_checkpointed_iteration.txt"
    tracker.rename(scene.folder / "mine")
    tracker.symlink_to(scene.folder / "mine")


def tracker_is_a_folder(scene: Scene) -> None:
    tracker_is_gone(scene)
    (scene.checkpoints / "latest_checkpointed_iteration.txt").mkdir()


ON_CHECKPOINTS = (
    other_bytes, one_more_file, one_file_less, another_in_its_place, a_link_in_its_place, folder_is_a_link, target_is_taken,
)  # fmt: skip
ON_TRACKERS = (tracker_says_more, tracker_is_gone, tracker_is_a_link, tracker_is_a_folder, folder_is_a_link)
ON_SECURED = tuple(change for change in ON_CHECKPOINTS if change is not target_is_taken)
FAST = ("set aside", "set tracker", "secure")
CHANGES_OF = (
    (("set aside", "put back"), ON_CHECKPOINTS),
    (("secure",), ON_SECURED),
    (("set tracker", "restore tracker"), ON_TRACKERS),
)
PAIRS = [
    pytest.param(name, change, marks=() if name in FAST else pytest.mark.slow)
    for names, changes in CHANGES_OF
    for name in names
    for change in changes
]


@pytest.mark.parametrize(("name", "change"), PAIRS)
def test_what_changed_after_a_yes_is_not_done(name: str, change: Callable[[Scene], None], tmp_path: Path) -> None:
    scene = scene_of("simulated", tmp_path)
    approval = scene.asks(*file_arguments_of(scene, name))
    asked = scene.store.approval(approval)
    assert scene.store.answer(approval, Verdict.ALLOW, BY, digest=asked.digest)
    change(scene)
    before = tree_of(scene.folder / "ckpt")
    ok = False
    with suppress(Denied, Parked):  # Parked: other commands now, asked about anew
        ok = scene.gate().go_on(asked.call).ok
    assert not ok
    assert tree_of(scene.folder / "ckpt") == before
    assert scene.store.call(asked.call).status is not CallStatus.DONE


@pytest.mark.parametrize(("name", "change"), PAIRS)
def test_what_changes_right_before_the_command_is_not_done(
    name: str, change: Callable[[Scene], None], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The last moment: behind the comparison of the commands, before the rename or the write."""
    scene = scene_of("simulated", tmp_path)
    tool, arguments = file_arguments_of(scene, name)
    states: list[dict[str, str]] = []

    def swapped(real: Callable[..., Any]) -> Callable[..., Any]:
        def call(*positional: Any, **named: Any) -> Any:
            if not states:
                change(scene)
                states.append(tree_of(scene.folder))
            return real(*positional, **named)

        return call

    for module, function in ((aside, "move"), (aside, "write_tracker"), (secured, "link_all")):
        monkeypatch.setattr(module, function, swapped(getattr(module, function)))
    outcome = scene.gate(Mode.ACT).call(tool, arguments, why="test", by="playbook:x")
    assert not outcome.ok
    assert states
    now = tree_of(scene.folder)
    assert {name: now[name] for name in states[0] if name in now and "s.db" not in name} == {
        name: text for name, text in states[0].items() if "s.db" not in name
    }


def test_the_links_that_were_shown_are_those_that_are_made(tmp_path: Path) -> None:
    scene = scene_of("simulated", tmp_path)
    tool, arguments = file_arguments_of(scene, "secure")
    top = scene.checkpoints.parent
    before = {f"{scene.checkpoints.name}/{name}": text for name, text in tree_of(scene.checkpoints).items()}
    shown = scene.shown(scene.asks(tool, arguments))
    assert not (top / "nightshift-secured").exists(), "nothing happens before the yes"
    assert scene.gate(Mode.ACT).call(tool, arguments, why="test", by="playbook:x").ok
    after = typed(shown, before, top)
    now = {
        name: text for name, text in tree_of(top).items() if name.split("/")[0] in (scene.checkpoints.name, "nightshift-secured")
    }
    assert {name: text for name, text in now.items() if name != scene.checkpoints.name} == after != before


def test_a_tool_moves_nothing_but_what_it_stated(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    scene = scene_of("simulated", tmp_path)
    tool, arguments = file_arguments_of(scene, "set aside")
    real, looks = moves_aside, []

    def others(paths: Any, account: str) -> Any:
        looks.append(paths)
        moves = real(paths, account)
        return moves if len(looks) == 1 else real([paths[0].with_name("iter_0000020")], account)

    monkeypatch.setattr(aside, "moves_aside", others)
    before = tree_of(scene.checkpoints)
    outcome = scene.gate(Mode.ACT).call(tool, arguments, why="test", by="playbook:x")
    assert not outcome.ok
    assert "the change is not the one that was allowed" in outcome.error
    assert tree_of(scene.checkpoints) == before


@pytest.mark.parametrize("name", ON_FILES)
def test_a_crash_after_the_change_is_looked_up_and_can_be_taken_back(name: str, tmp_path: Path) -> None:
    scene = scene_of("simulated", tmp_path)
    tool, arguments = file_arguments_of(scene, name)
    before = files_of(scene)
    gate = scene.gate(Mode.ACT)
    call = gate.prepare(tool, arguments, why="test", by=BY)
    scene.store.move_call(call.id, CallStatus.PENDING, CallStatus.INTENT)
    context = scene.context(None, gate._tag(call))
    find_tool(tool).run(context, **arguments)
    outcome = gate.resolve(scene.store.call(call.id))
    assert outcome is not None
    assert outcome.ok, outcome.error
    assert files_of(scene) != before
    if name in ("set aside", "set tracker", "secure"):
        assert gate.undo(call.id, BY).ok
        left = {key: text for key, text in files_of(scene).items() if key != "nightshift-refused"}
        assert left == before


@pytest.mark.parametrize(
    "raw", [b"40", b"40\r\n", b"4'0", b'"] REPLACES[nothing]', b"40  # x", b"\x00\x01", "é\u2028".encode(), b"a" * 4096]
)
def test_whatever_stood_in_a_tracker_comes_back_also_after_a_crash(raw: bytes, tmp_path: Path) -> None:
    scene = scene_of("simulated", tmp_path)
    tool, arguments = file_arguments_of(scene, "set tracker")
    tracker, gate = Path(arguments["tracker"]), scene.gate(Mode.ACT)
    tracker.write_bytes(raw)
    call = gate.prepare(tool, arguments, why="test", by=BY)
    scene.store.move_call(call.id, CallStatus.PENDING, CallStatus.INTENT)
    find_tool(tool).run(scene.context(None, gate._tag(call)), **arguments)
    assert gate.resolve(scene.store.call(call.id)) is not None
    assert tracker.read_bytes() == b"20"
    assert gate.undo(call.id, BY).ok
    assert tracker.read_bytes() == raw


@pytest.mark.parametrize("raw", [b"\xff40", b"password=hunter2hunter2", b"a" * (TRACKER_BYTES + 1)])
def test_a_tracker_that_could_not_be_put_back_is_not_written(raw: bytes, tmp_path: Path) -> None:
    scene = scene_of("simulated", tmp_path)
    tool, arguments = file_arguments_of(scene, "set tracker")
    Path(arguments["tracker"]).write_bytes(raw)
    assert not scene.gate(Mode.ACT).call(tool, arguments, why="test", by=BY).ok
    assert Path(arguments["tracker"]).read_bytes() == raw


def test_a_tracker_that_a_later_save_has_moved_on_is_not_set_back_by_an_undo(tmp_path: Path) -> None:
    scene = scene_of("simulated", tmp_path)
    gate = scene.gate(Mode.ACT)
    made = gate.call(*file_arguments_of(scene, "set tracker"), why="test", by=BY)
    assert made.ok, made.error
    tracker = scene.checkpoints / "latest_checkpointed_iteration.txt"
    tracker.write_text("60")
    outcome = gate.undo(made.call, BY)
    assert not outcome.ok
    assert "any more" in outcome.error
    assert tracker.read_text() == "60"
