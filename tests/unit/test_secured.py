"""A checkpoint gets a second name before its program removes it: through the gate, taken back, found as a source of a restart."""

from __future__ import annotations

import errno
import itertools
import os
import random
import shutil
from collections.abc import Callable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from assistant.errors import Denied, ToolError, UsageError
from assistant.gate import AnswersFrom, Gate
from assistant.logs.lines import Line
from assistant.policy import Mode, Policy
from assistant.ports import JumpingClock
from assistant.records import CallStatus, Checkpoint, Event, EventKind, JobSpec
from assistant.recover.checkpoints import owner_files, second_names
from assistant.recover.checkpoints.inventory import inventory
from assistant.recover.checkpoints.layout import entries
from assistant.recover.checkpoints.own_folders import new_checkpoints
from assistant.recover.checkpoints.rotation import rotation_of
from assistant.recover.checkpoints.secured import folder_of, is_secured, names_of, obstacle_of, secured_entries
from assistant.recover.loaded import LoadVerdict, compare_loaded, loaded_checkpoint
from assistant.schedulers.simulated import SimulatedCluster
from assistant.schedulers.simulated_run import SimulatedRun
from assistant.store import Store
from assistant.tooling import Context
from assistant.tools.checkpoints import choose_checkpoint
from assistant.tools.restarts import named_checkpoint
from assistant.tools.secured import checkpoint_rotation, secure_checkpoint

START = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)
GIVEN = 'resume="--load {checkpoint}"'


class World:
    """A job that runs, with three whole checkpoints."""

    def __init__(self, folder: Path, resumes: str = GIVEN, *, mode: Mode = Mode.ACT, steps: tuple[int, ...] = (20, 40, 60)) -> None:
        self.saved = folder / "run" / "ckpt"
        self.clock = JumpingClock(START)
        self.cluster = SimulatedCluster(self.clock, folder)
        self.cluster.plan("llm", SimulatedRun(steps=10_000, step_s=60.0))
        script = f"#NIGHTSHIFT checkpoints={self.saved} {resumes}\nsrun python train.py\n"
        self.job = self.cluster.submit(JobSpec("llm", script, work_dir=folder))
        self.clock.sleep(3600)
        for step in steps:
            self.save(step)
        self.second = self.saved.parent / "nightshift-secured" / "ckpt" / "of-iter_0000040" / "iter_0000040"
        self.store = Store(folder / "s.db", self.clock)
        self.gate = Gate(self.store, self.context, Policy(mode=mode), AnswersFrom([]))
        self.incident, _ = self.store.open_incident(Event(EventKind.LOSS_SPIKE, self.job, None, self.clock.now()))

    def save(self, step: int) -> Path:
        path = self.saved / f"iter_{step:07}"
        part = path / "mp_rank_00" / "model_optim_rng.pt"
        part.parent.mkdir(parents=True)
        part.write_bytes(b"\x80" + bytes(9000))
        old = (START - timedelta(minutes=100 - step)).timestamp()
        os.utime(part, (old, old))
        return path

    def path(self, step: int) -> Path:
        return self.saved / f"iter_{step:07}"

    def context(self, incident: int | None = None, tag: str = "") -> Context:
        return Context(self.cluster, self.cluster, self.clock, random.Random(0), self.store, incident=incident, tag=tag)

    def call(self, tool: str, **arguments: Any) -> Any:
        return self.gate.call(tool, {"job": self.job, **arguments}, why="its loss", by="playbook:x", incident=self.incident.id)

    def secure(self, step: int = 40) -> Any:
        return self.call("secure_checkpoint", path=str(self.path(step)))


def log(*texts: str) -> list[Line]:
    return [Line(number, text) for number, text in enumerate(texts, 1)]


def tree(folder: Path) -> set[str]:
    return {str(path.relative_to(folder)) for path in folder.rglob("*")}


def test_it_gets_a_second_name_that_outlives_the_first_and_the_undo_takes_it_back(tmp_path: Path) -> None:
    world = World(tmp_path)
    before = tree(world.saved.parent)
    made = world.secure()
    assert made.ok, made.error
    assert made.value["path"] == str(world.second)
    file = world.second / "mp_rank_00" / "model_optim_rng.pt"
    assert file.samefile(world.path(40) / "mp_rank_00" / "model_optim_rng.pt")
    [call] = world.store.calls()
    assert call.preview.startswith(f"cp -alT {world.path(40)} {world.second} FILES[1 file, 9,001 bytes, sha256:"), call.preview
    back = world.gate.undo(made.call, "cli:alice")
    assert back.ok, back.error
    assert tree(world.saved.parent) == before
    assert (world.path(40) / "mp_rank_00" / "model_optim_rng.pt").stat().st_nlink == 1


def test_the_undo_never_removes_the_only_name_of_the_data(tmp_path: Path) -> None:
    world = World(tmp_path)
    made = world.secure()
    shutil.rmtree(world.path(40))
    back = world.gate.undo(made.call, "cli:alice")
    assert not back.ok
    assert "is the only name of its data now" in back.error
    assert f"rm -r {world.second.parent}" in back.error
    assert (world.second / "mp_rank_00" / "model_optim_rng.pt").is_file()


def test_the_undo_leaves_what_is_not_what_was_linked(tmp_path: Path) -> None:
    world = World(tmp_path)
    made = world.secure()
    (world.second / "notes.txt").write_text("of its owner")
    back = world.gate.undo(made.call, "cli:alice")
    assert "does not hold what was linked there" in back.error
    assert (world.second / "notes.txt").is_file()
    assert (world.second / "mp_rank_00" / "model_optim_rng.pt").is_file()


def test_called_again_it_changes_nothing(tmp_path: Path) -> None:
    world = World(tmp_path)
    assert world.secure().ok
    before = tree(world.saved.parent)
    again = world.secure()
    assert again.ok, again.error
    assert again.value["path"] == str(world.second)
    shutil.rmtree(world.path(40))
    assert world.secure().ok, "the first name is gone, the second is in place"
    assert tree(world.saved.parent) == {name for name in before if not name.startswith("ckpt/iter_0000040")}


def test_observe_only_records_it_and_propose_asks(tmp_path: Path) -> None:
    for mode in (Mode.OBSERVE, Mode.PROPOSE):
        world = World(tmp_path / mode, mode=mode)
        with pytest.raises((Denied, UsageError)):
            world.secure()
        assert not (world.saved.parent / "nightshift-secured").exists()
        [call] = world.store.calls()
        assert call.preview.startswith("cp -alT ")


def test_neither_a_program_nor_our_own_search_takes_it_for_a_newer_checkpoint(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.secure()
    below = [path for path in world.saved.parent.rglob("*") if "nightshift-secured" in path.parts]
    for pattern in ("step_*", "checkpoint-*", "global_step*", "iter_*", "epoch*", "*/step_*", "*/iter_*", "*/checkpoint-*"):
        assert not [path for path in world.saved.parent.glob(pattern) if path in below], pattern
        assert not [path for path in world.saved.glob(pattern) if path in below], pattern
    assert [entry.path for entry in entries(world.saved.parent)] == [world.path(step) for step in (20, 40, 60)]
    listed = inventory(world.saved, now=world.clock.now())
    assert [save.path for save in listed.checkpoints] == [world.path(step) for step in (20, 40, 60)]
    walk = new_checkpoints(tmp_path, START - timedelta(days=1))
    assert world.saved in walk.folders
    assert not [folder for folder in walk.folders if "nightshift-secured" in folder.parts]


def test_it_is_a_source_for_a_restart_where_the_first_name_is_gone(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.secure()
    shutil.rmtree(world.path(40))
    shutil.rmtree(world.path(20))
    listed = inventory(world.saved, now=world.clock.now())
    assert [save.path for save in listed.checkpoints] == [world.second, world.path(60)]
    choice = choose_checkpoint(world.context(), world.job, which="before_step", step=50)
    assert (choice["restart_from"], choice["step"], choice["set_aside"]) == (str(world.second), 40, [])
    job = world.cluster.job(world.job)
    chosen = named_checkpoint(world.context(), job, str(world.second), read=True)
    assert chosen is not None
    assert (chosen.step, chosen.healthy) == (40, True)


@pytest.mark.parametrize("resumes", ["resumes=newest", "resumes=tracker", 'resume="--load {folder} --at {name}"'])
def test_a_program_that_looks_in_its_own_folder_is_left_to_a_person(tmp_path: Path, resumes: str) -> None:
    world = World(tmp_path, resumes)
    (world.saved / "latest_checkpointed_iteration.txt").write_text("60")
    world.secure()
    shutil.rmtree(world.path(40))
    shutil.rmtree(world.path(20))
    choice = choose_checkpoint(world.context(), world.job, which="before_step", step=50)
    assert (choice["restart_from"], choice["path"]) == ("", str(world.second))
    assert f"is gone from {world.saved} and lies at {world.second} alone" in choice["note"]
    assert f"cp -al {world.second} {world.saved}/" in choice["note"]


def test_an_older_second_name_is_not_moved_out_of_the_way_of_a_program_that_never_sees_it(tmp_path: Path) -> None:
    world = World(tmp_path, "resumes=newest")
    world.secure()
    shutil.rmtree(world.path(40))
    choice = choose_checkpoint(world.context(), world.job, which="before_step", step=30)
    assert (choice["step"], choice["set_aside"]) == (20, [str(world.path(60))])


def test_what_was_written_over_since_is_refused_by_its_content(tmp_path: Path) -> None:
    world = World(tmp_path)
    world.secure()
    (world.path(40) / "mp_rank_00" / "model_optim_rng.pt").write_bytes(b"")
    shutil.rmtree(world.path(40))
    with pytest.raises(ToolError, match="must not be loaded"):
        named_checkpoint(world.context(), world.cluster.job(world.job), str(world.second), read=True)


def test_the_second_name_that_was_loaded_is_the_one_that_was_chosen(tmp_path: Path) -> None:
    world = World(tmp_path)
    chosen = Checkpoint(world.second, 40, "megatron", 9001, START, True, ())
    right = loaded_checkpoint(log(f"loading checkpoint from {world.second} at iteration 40", "iteration 41 loss 2.0"))
    assert compare_loaded(chosen, right).verdict is LoadVerdict.CHOSEN
    wrong = loaded_checkpoint(log(f"loading checkpoint from {world.path(60)} at iteration 60", "iteration 61 loss 2.0"))
    assert compare_loaded(chosen, wrong).verdict is LoadVerdict.OTHER


def test_of_a_single_file_all_that_has_its_step_goes_along(tmp_path: Path) -> None:
    folder = tmp_path / "ckpt"
    folder.mkdir()
    for name in ("model_000100.pt", "model_000200.pt", "meta_000100.json", "optim_000100_rank0.pt", "run_000100.log", "README"):
        (folder / name).write_bytes(b"\x80" + bytes(3000))
    (folder / "link_000100.pt").symlink_to("model_000100.pt")
    listed = entries(folder)
    entry = next(entry for entry in listed if entry.path.name == "model_000100.pt")
    assert sorted(names_of(entry, listed)) == ["meta_000100.json", "model_000100.pt", "optim_000100_rank0.pt"]
    links = second_names.planned_links(entry.path, names_of(entry, listed), "")
    assert second_names.link_all(links, "", "t")
    assert sorted(path.name for path in links.folder.iterdir()) == ["meta_000100.json", "model_000100.pt", "optim_000100_rank0.pt"]
    (folder / "model_000100.pt").unlink()
    assert inventory(folder, now=START).checkpoints[0].path == links.folder / "model_000100.pt"


@pytest.mark.parametrize("name", ["last.ckpt", "ckpt.pt", "checkpoint_latest.pt"])
def test_a_file_that_is_written_again_at_each_save_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\x80" + bytes(3000))
    listed = [entry for entry in entries(tmp_path) if entry.path.name == name]
    assert listed
    assert "a second name would change with it" in obstacle_of(listed[0])


def test_the_names_are_told_apart() -> None:
    second = Path("/run/nightshift-secured/ckpt/of-step_40/step_40")
    assert is_secured(second)
    assert folder_of(second) == Path("/run/ckpt")
    assert folder_of(Path("/run/ckpt/step_40")) == Path("/run/ckpt")
    assert not is_secured(Path("/run/ckpt/step_40"))


class Killed(BaseException):
    """Stands for a kill -9: nothing behind it runs in this process."""


def killed_at(monkeypatch: pytest.MonkeyPatch, number: int) -> list[str]:
    """Let the process end right before its system call of that number; return the calls that were made."""
    made: list[str] = []
    armed = [True]

    def wrapped(name: str, function: Any) -> Any:
        def call(*arguments: Any, **options: Any) -> Any:
            if armed[0] and len(made) == number:
                armed[0] = False  # what `finally` would do, a killed process does not: it must harm nothing either
                raise Killed(name)
            made.append(name)
            return function(*arguments, **options)

        return call

    for name in ("mkdir", "link", "fsync", "unlink", "rmdir"):
        monkeypatch.setattr(os, name, wrapped(name, getattr(os, name)))
    monkeypatch.setattr(second_names, "rename_in", wrapped("rename", owner_files.rename_in))
    return made


def survives(work: Callable[[], object]) -> bool:
    """Tell whether some work came to its end."""
    try:
        work()
    except Killed:
        return False
    return True


def run_of(folder: Path) -> Path:
    """Return a checkpoint of two ranks in the folder `ckpt` of a run."""
    path = folder / "run" / "ckpt" / "iter_0000040"
    for rank in ("mp_rank_00", "mp_rank_01"):
        (path / rank).mkdir(parents=True)
        (path / rank / "model_optim_rng.pt").write_bytes(b"\x80" + rank.encode())
    return path


@pytest.mark.parametrize("gone", [False, True])
def test_a_kill_between_any_two_system_calls_leaves_all_or_nothing_and_the_call_made_again_ends_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, gone: bool
) -> None:
    for number in itertools.count():
        path = run_of(tmp_path / str(number))
        data = {file.relative_to(path): file.read_bytes() for file in path.rglob("*.pt")}
        links = second_names.planned_links(path, [path.name], "", "tag")
        second = links.folder / path.name
        with monkeypatch.context() as patched:
            made = killed_at(patched, number)
            ended = survives(partial(second_names.link_all, links, "", "tag"))
        if links.folder.exists():
            assert tree(second) == tree(path), f"killed before call {number} ({made})"
        else:
            assert not ended
            assert secured_entries(path.parent, []) == []
        if gone:
            shutil.rmtree(path)
        again = None
        with suppress(ToolError):
            again = second_names.planned_links(path, [path.name], "", "tag")
        if again is not None and again.content == links.content:
            second_names.link_all(again, "", "tag")
            assert {file.relative_to(second): file.read_bytes() for file in second.rglob("*.pt")} == data
            assert [place.name for place in links.folder.parent.iterdir()] == [links.folder.name]
        else:
            assert gone, "with its first name there, it must be made"
            assert not links.folder.exists()
        if ended:
            break
    assert number > 8


def test_a_kill_between_any_two_system_calls_of_the_undo_leaves_all_or_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for number in itertools.count():
        path = run_of(tmp_path / str(number))
        before = tree(tmp_path / str(number))
        links = second_names.planned_links(path, [path.name], "")
        second_names.link_all(links, "", "tag")
        with monkeypatch.context() as patched:
            made = killed_at(patched, number)
            ended = survives(partial(second_names.unlink_all, links.folder, links.content, "", "undo"))
        if links.folder.exists():
            assert tree(links.folder / path.name) == tree(path), f"killed before call {number} ({made})"
        second_names.unlink_all(links.folder, links.content, "", "undo")
        assert tree(tmp_path / str(number)) == before
        if ended:
            break
    assert number > 5


def test_a_step_that_was_killed_right_before_its_rename_is_finished_also_where_the_first_name_is_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    arguments = {"job": world.job, "path": str(world.path(40))}
    step = partial(
        world.gate.call, "secure_checkpoint", arguments, why="its loss", by="playbook:x", incident=world.incident.id, step="secure"
    )
    rename = owner_files.rename_in

    def killed(*_: Any) -> None:
        raise Killed

    monkeypatch.setattr(second_names, "rename_in", killed)
    with pytest.raises(Killed):
        step()
    assert not world.second.parent.exists()
    shutil.rmtree(world.path(40))
    monkeypatch.setattr(second_names, "rename_in", rename)
    made = step()
    assert made.ok, made.error
    assert (world.second / "mp_rank_00" / "model_optim_rng.pt").read_bytes() == b"\x80" + bytes(9000)


def test_a_call_of_a_person_that_was_killed_is_undone_when_it_is_settled(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "rehearsal").mkdir()
    rehearsed = World(tmp_path / "rehearsal")
    with monkeypatch.context() as patched:
        calls = killed_at(patched, 10_000)
        rehearsed.secure()
    world = World(tmp_path)
    before = tree(world.saved.parent)
    with monkeypatch.context() as patched:
        killed_at(patched, calls.index("link") + 1)
        with pytest.raises(Killed):
            world.secure()
    assert tree(world.saved.parent) != before
    [call] = world.store.calls()
    assert call.status is CallStatus.INTENT
    outcome = world.gate.resolve(call)
    assert outcome is not None
    assert not outcome.ok
    assert tree(world.saved.parent) == before


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (errno.ENOSPC, "the file system is full"),
        (errno.EDQUOT, "quota of its owner is used up"),
        (errno.EXDEV, "another file system"),
        (errno.EPERM, "makes no hard links"),
        (errno.EMLINK, "may not be changed"),
    ],
)
@pytest.mark.parametrize("place", ["mkdir", "link"])
def test_what_the_file_system_refuses_is_told_and_leaves_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, code: int, words: str, place: str
) -> None:
    world = World(tmp_path)
    before = tree(world.saved.parent)
    calls = [0]

    def refused(*arguments: Any, **options: Any) -> None:
        calls[0] += 1
        raise OSError(code, os.strerror(code))

    with monkeypatch.context() as patched:
        patched.setattr(os, place, refused)
        made = world.secure()
    assert calls[0]
    assert not made.ok
    assert words in made.error
    assert tree(world.saved.parent) == before


def test_without_room_for_the_data_it_is_refused_before_anything_is_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)
    monkeypatch.setattr("assistant.tools.secured.free_bytes", lambda path, account: 9000)
    made = world.secure()
    assert "MiB are free" in made.error
    assert not (world.saved.parent / "nightshift-secured").exists()


def test_the_rotation_is_read_from_what_lies_there(tmp_path: Path) -> None:
    folder = Path("/run/ckpt")

    def saves(*steps: int) -> list[Checkpoint]:
        return [
            Checkpoint(folder / f"step_{step}", step, "plain", 1, START + timedelta(seconds=3 * step), True, ()) for step in steps
        ]

    eight = saves(*range(225, 401, 25))
    seen = rotation_of(saves(*range(175, 351, 25)), folder / "step_200", first_step=5)
    assert seen is not None
    assert (seen.limit, seen.saves_left, seen.gone_at) == (8, 2, START + timedelta(seconds=3 * 400))
    assert seen.words("step_200") == (
        "its program keeps its newest 8 checkpoints: step_200 is removed with 2 more saves at the latest, about 12:20 UTC"
    )
    assert rotation_of(eight, folder / "step_225", first_step=5).words("step_225").count("its next save")  # type: ignore[union-attr]
    assert rotation_of(eight, folder / "step_200", first_step=5) is None, "it is gone"
    assert rotation_of(saves(25, 50, 75), folder / "step_50", first_step=5) is None, "all are there"
    assert rotation_of(saves(225, 250, 275), folder / "step_225", first_step=205) is None, "it began behind 200"
    assert rotation_of(saves(100, 225, 250), folder / "step_225", first_step=5) is None, "some are kept for good"
    assert rotation_of(saves(225), folder / "step_225", first_step=5) is None
    assert rotation_of(eight, folder / "step_225", first_step=None) is None


def test_the_tool_says_what_goes_when_and_what_was_secured(tmp_path: Path) -> None:
    world = World(tmp_path, steps=(20, 30, 40))
    first = checkpoint_rotation(world.context(), world.job, step=35, margin=5)
    assert (first["path"], first["secure"], first["kept"], first["saves_left"]) == (str(world.path(30)), "yes", 3, 2)
    assert first["goes_on"] == "yes"
    assert "keeps its newest 3 checkpoints: iter_0000030, the last healthy one, is removed with 2 more saves" in first["words"]
    assert secure_checkpoint(world.context(), world.job, first["path"])["path"]
    now = checkpoint_rotation(world.context(), world.job, path=first["path"])
    assert (now["secure"], now["second_name"]) == ("", str(world.second).replace("0000040", "0000030"))
    assert "is secured: it has a second name" in now["words"]
    shutil.rmtree(world.path(30))
    shutil.rmtree(world.path(20))
    gone = checkpoint_rotation(world.context(), world.job, step=35, margin=5)
    assert (gone["path"], gone["secure"]) == (now["second_name"], "")
    assert "its program has removed iter_0000030; it was secured before" in gone["words"]
    again = checkpoint_rotation(world.context(), world.job, path=first["path"])
    assert again["words"] == gone["words"], "asked for by its first name"


def test_nothing_is_secured_where_nothing_is_healthy_or_known(tmp_path: Path) -> None:
    world = World(tmp_path)
    answer = checkpoint_rotation(world.context(), world.job, step=10, margin=5)
    assert (answer["path"], answer["secure"], answer["words"]) == ("", "", "")
    (world.path(40) / "mp_rank_00" / "model_optim_rng.pt").write_bytes(b"")
    made = world.secure()
    assert "must not be loaded" in made.error
