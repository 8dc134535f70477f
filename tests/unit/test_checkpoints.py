"""Checkpoints of every known format, whole and damaged in every way we look for."""

from __future__ import annotations

import io
import json
import os
import pickle
import struct
import zipfile
import zlib
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from assistant.errors import ToolError
from assistant.recover.checkpoints.forms import file_problem
from assistant.recover.checkpoints.inventory import Inventory, before_step, inventory, last, last_healthy

NOW = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)
STEPS = (100, 200, 300)


def torch_bytes(size: int = 30_000) -> bytes:
    """Return what torch.save writes: a stored zip of a pickle and raw tensors."""
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_STORED) as archive:
        archive.writestr("archive/data.pkl", b"\x80\x02}q\x00.")
        archive.writestr("archive/data/0", bytes(range(256)) * (size // 256))
        archive.writestr("archive/version", b"3\n")
    return out.getvalue()


def safetensors_bytes(count: int = 5_000) -> bytes:
    header = json.dumps({"w": {"dtype": "F32", "shape": [count], "data_offsets": [0, count * 4]}}).encode()
    return struct.pack("<Q", len(header)) + header + bytes(count * 4)


def write(path: Path, content: bytes | str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content.encode() if isinstance(content, str) else content)


def megatron(root: Path, step: int) -> Path:
    folder = root / f"iter_{step:07}"
    for rank in ("mp_rank_00_000", "mp_rank_00_001", "mp_rank_01_000", "mp_rank_01_001"):
        write(folder / rank / "model_optim_rng.pt", torch_bytes())
    write(root / "latest_checkpointed_iteration.txt", str(step))
    return folder


def dcp_files(folder: Path) -> None:
    for rank in range(4):
        write(folder / f"__{rank}_0.distcp", torch_bytes())
    write(folder / ".metadata", pickle.dumps([f"__{rank}_0.distcp" for rank in range(4)]))


def megatron_dist(root: Path, step: int) -> Path:
    folder = root / f"iter_{step:07}"
    dcp_files(folder)
    write(folder / "common.pt", torch_bytes(512))
    write(folder / "metadata.json", '{"sharded_backend": "torch_dist", "sharded_backend_version": 1}')
    write(root / "latest_checkpointed_iteration.txt", str(step))
    return folder


def deepspeed(root: Path, step: int) -> Path:
    folder = root / f"global_step{step}"
    write(folder / "mp_rank_00_model_states.pt", torch_bytes())
    for rank in range(4):
        write(folder / f"bf16_zero_pp_rank_{rank}_mp_rank_00_optim_states.pt", torch_bytes())
    write(root / "latest", f"global_step{step}")
    return folder


def dcp(root: Path, step: int) -> Path:
    folder = root / f"step_{step}"
    dcp_files(folder)
    return folder


def torchtitan(root: Path, step: int) -> Path:
    folder = root / f"step-{step}"
    dcp_files(folder)
    return folder


def huggingface(root: Path, step: int) -> Path:
    folder = root / f"checkpoint-{step}"
    names = [f"model-{n:05}-of-00003.safetensors" for n in (1, 2, 3)]
    for name in names:
        write(folder / name, safetensors_bytes())
    write(folder / "model.safetensors.index.json", json.dumps({"weight_map": dict(zip("abc", names, strict=True))}))
    write(folder / "optimizer.pt", torch_bytes())
    write(folder / "rng_state.pth", torch_bytes(512))
    write(folder / "trainer_state.json", json.dumps({"global_step": step}))
    return folder


def internevo(root: Path, step: int) -> Path:
    folder = root / str(step)
    for tensor in (0, 1):
        write(folder / f"model_tp{tensor}_pp0.pt", torch_bytes())
        for zero in (0, 1):
            write(folder / f"optimizer_tp{tensor}_pp0_zo{zero}.pt", torch_bytes())
    write(folder / "context.pt", torch_bytes(512))
    write(folder / f"{step}.step", "")
    return folder


def nemo(root: Path, step: int) -> Path:
    path = root / f"gpt--val_loss=2.31-step={step}-consumed_samples={step * 8}.ckpt"
    write(path, torch_bytes())
    return path


def nightshift(root: Path, step: int) -> Path:
    folder = root / f"iter_{step:07}"
    content = torch_bytes()
    for rank in range(2):
        write(folder / f"rank_{rank:02}.npz", content)
    files = {f"rank_{rank:02}.npz": {"size": len(content), "crc32": zlib.crc32(content)} for rank in range(2)}
    write(folder / "manifest.json", json.dumps({"step": step, "files": files}))
    return folder


def plain(root: Path, step: int) -> Path:
    path = root / f"model_step{step}.pt"
    write(path, torch_bytes())
    return path


BUILDERS: dict[str, Callable[[Path, int], Path]] = {
    "megatron": megatron,
    "megatron_dist": megatron_dist,
    "deepspeed": deepspeed,
    "dcp": dcp,
    "torchtitan": torchtitan,
    "huggingface": huggingface,
    "internevo": internevo,
    "nemo": nemo,
    "nightshift": nightshift,
    "plain": plain,
}


def biggest(path: Path) -> Path:
    """Return the file with the most bytes of a checkpoint: a shard of weights."""
    return path if path.is_file() else max((p for p in path.rglob("*") if p.is_file()), key=lambda p: (p.stat().st_size, p.name))


def cut(path: Path) -> None:
    target = biggest(path)
    target.write_bytes(target.read_bytes()[:-9000])


def emptied(path: Path) -> None:
    biggest(path).write_bytes(b"")


def removed(path: Path) -> None:
    biggest(path).unlink()


def zeroed(path: Path) -> None:
    target = biggest(path)
    target.write_bytes(bytes(target.stat().st_size))


def flipped(path: Path) -> None:
    target = biggest(path)
    content = bytearray(target.read_bytes())
    content[len(content) // 2] ^= 0xFF
    target.write_bytes(content)


def leftover(path: Path) -> None:
    write(path / "model.pt.tmp", "half")


def aged(root: Path) -> None:
    """Date every file an hour back, as after a crash."""
    past = (NOW - timedelta(hours=1)).timestamp()
    for path in root.rglob("*"):
        os.utime(path, (past, past))


def build(layout: str, root: Path) -> list[Path]:
    root.mkdir(parents=True, exist_ok=True)
    return [BUILDERS[layout](root, step) for step in STEPS]


def look(root: Path) -> Inventory:
    aged(root)
    return inventory(root, now=NOW)


@pytest.mark.parametrize("layout", BUILDERS)
def test_whole_checkpoints_of_every_format_are_healthy(layout: str, tmp_path: Path) -> None:
    build(layout, tmp_path)
    found = look(tmp_path)
    assert [(c.step, c.healthy, c.problems) for c in found.checkpoints] == [(step, True, ()) for step in STEPS]
    assert {c.format for c in found.checkpoints} == {"megatron" if layout == "megatron_dist" else layout}
    assert found.notes == ()
    chosen = last_healthy(found, now=NOW).checkpoint
    assert chosen is not None
    assert chosen.step == 300


DEFECTS = [
    (layout, defect)
    for layout in BUILDERS
    for defect in (cut, emptied, removed, zeroed, flipped, leftover)
    if not (layout in ("nemo", "plain") and defect in (removed, leftover))  # one file: nothing is left, or nothing to be beside
    if not (layout in ("dcp", "torchtitan", "megatron_dist") and defect in (zeroed, flipped))  # shards carry no checksum
    if not (layout == "huggingface" and defect is flipped)
]


@pytest.mark.parametrize(("layout", "defect"), DEFECTS)
def test_a_damaged_newest_checkpoint_is_refused_with_the_reason(
    layout: str, defect: Callable[[Path], None], tmp_path: Path
) -> None:
    newest = build(layout, tmp_path)[-1]
    defect(newest)
    choice = last_healthy(look(tmp_path), now=NOW)
    assert choice.checkpoint is not None
    assert choice.checkpoint.step == 200
    assert [c.step for c in choice.refused] == [300]
    assert choice.refused[0].problems


def test_folders_that_a_program_of_its_own_names_as_hugging_face_does_are_not_missing_its_files(tmp_path: Path) -> None:
    for step in (40, 80, 120):
        (tmp_path / f"checkpoint-{step}").mkdir()
        with zipfile.ZipFile(tmp_path / f"checkpoint-{step}" / "train_state.pt", "w") as file:
            file.writestr("archive/data.pkl", pickle.dumps({"step": step}))
            file.writestr("archive/version", "3")
    choice = last_healthy(look(tmp_path), now=NOW)
    assert (choice.checkpoint.step if choice.checkpoint is not None else choice.refused) == 120


@pytest.mark.parametrize(
    ("layout", "name", "problem"),
    [
        ("megatron", "mp_rank_01_001", "has 3 of 4 mp_rank parts"),
        ("megatron_dist", "common.pt", "common.pt is missing"),
        ("megatron_dist", ".metadata", "has no .metadata"),
        ("dcp", "__3_0.distcp", ".metadata names shards that are not there: __3_0.distcp"),
        ("deepspeed", "bf16_zero_pp_rank_2_mp_rank_00_optim_states.pt", "has 3 of 4 optim shards"),
        ("huggingface", "model-00002-of-00003.safetensors", "has 2 of 3 model shards"),
        ("huggingface", "trainer_state.json", "has no trainer_state.json"),
        ("internevo", "300.step", "has no 300.step"),
        ("internevo", "optimizer_tp1_pp0_zo1.pt", "has 3 of 4 optimizer_tp_pp_zo parts"),
        ("nightshift", "manifest.json", "has no manifest.json"),
        ("nightshift", "rank_01.npz", "rank_01.npz is missing"),
    ],
)
def test_what_is_missing_is_named(layout: str, name: str, problem: str, tmp_path: Path) -> None:
    target = build(layout, tmp_path)[-1] / name
    if target.is_dir():
        (target / "model_optim_rng.pt").unlink()
        target.rmdir()
    else:
        target.unlink()
    newest = last(look(tmp_path))
    assert newest is not None
    assert not newest.healthy
    assert any(problem in found for found in newest.problems), newest.problems


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (torch_bytes()[:-9000], "cut short"),
        (torch_bytes().replace(bytes(range(256)), bytes(256), 1), "damaged"),
        (b"\0" * 5000, "holds nothing but zeros"),
        (pickle.dumps({"state": "bare pickle"}, 2), None),
        (pickle.dumps({"state": "bare pickle"}, 2)[:-1], "cut short"),
        (torch_bytes(), None),
    ],
)
def test_a_torch_file_is_judged_by_its_zip(content: bytes, words: str | None, tmp_path: Path) -> None:
    write(tmp_path / "a.pt", content)
    problem = file_problem(tmp_path / "a.pt", read_bytes=1 << 20)
    assert (problem is None) if words is None else (problem is not None and words in problem)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (safetensors_bytes()[:-1], "was cut short: its tensors need"),
        (safetensors_bytes() + b"x", "1 bytes more"),
        (safetensors_bytes()[:20], "was cut short: the header needs"),
        (b"abc", "was cut short: 3 bytes"),
        (b"\xff" * 100, "is no safetensors file"),
        (struct.pack("<Q", 4) + b"{{{{", "broken safetensors header"),
        (safetensors_bytes().replace(b"[5000]", b"[5001]"), "but 20000 bytes"),
        (safetensors_bytes(), None),
    ],
)
def test_a_safetensors_file_is_judged_by_its_header(content: bytes, words: str | None, tmp_path: Path) -> None:
    write(tmp_path / "a.safetensors", content)
    problem = file_problem(tmp_path / "a.safetensors")
    assert (problem is None) if words is None else (problem is not None and words in problem)


@pytest.mark.parametrize(
    ("text", "note"),
    [("400", "names step 400, which is not there"), ("", "holds no step but ''"), ("release", None), (None, "is missing")],
)
def test_a_wrong_tracker_is_said(text: str | None, note: str | None, tmp_path: Path) -> None:
    build("megatron", tmp_path)
    file = tmp_path / "latest_checkpointed_iteration.txt"
    file.unlink() if text is None else file.write_text(text)
    notes = look(tmp_path).notes
    assert (notes == ()) if note is None else any(note in said for said in notes)


def test_a_checkpoint_beyond_the_tracker_was_not_finished(tmp_path: Path) -> None:
    build("deepspeed", tmp_path)
    (tmp_path / "latest").write_text("global_step200")
    choice = last_healthy(look(tmp_path), now=NOW)
    assert choice.checkpoint is not None
    assert choice.checkpoint.step == 200
    assert "still names step 200" in choice.refused[0].problems[0]


def test_a_shrunken_file_without_checksum_is_odd(tmp_path: Path) -> None:
    shard = build("dcp", tmp_path)[-1] / "__2_0.distcp"
    shard.write_bytes(shard.read_bytes()[:15_000])
    newest = last(look(tmp_path))
    assert newest is not None
    assert newest.problems == ("__2_0.distcp has 15,000 bytes, in other steps 30,300",)


def test_a_lone_checkpoint_is_compared_with_its_sister_shards(tmp_path: Path) -> None:
    folder = dcp(tmp_path, 100)
    (folder / "__2_0.distcp").write_bytes(b"x" * 10_000)
    newest = last(look(tmp_path))
    assert newest is not None
    assert "its sister shards about" in newest.problems[0]


def test_a_save_in_progress_is_left_alone_only_while_the_job_lives(tmp_path: Path) -> None:
    build("huggingface", tmp_path)
    aged(tmp_path)
    just_now = (NOW - timedelta(seconds=5)).timestamp()
    os.utime(tmp_path / "checkpoint-300" / "optimizer.pt", (just_now, just_now))
    running, ended = inventory(tmp_path, now=NOW, live=True), inventory(tmp_path, now=NOW)
    assert [c.healthy for c in running.checkpoints] == [True, True, False]
    assert [c.healthy for c in ended.checkpoints] == [True, True, True]


@pytest.mark.parametrize(
    ("ages", "healthy"),
    [
        ((20, 10, 5), [True, True, False]),  # each is followed by a later one
        ((5, 20, 10), [False, True, False]),  # the first was written to after all others: nobody knows by whom
        ((90, 80, 5), [True, True, False]),
        ((20, 10, 10), [True, False, False]),  # at one time
    ],
)
def test_a_save_that_a_later_one_follows_is_complete_however_young(
    ages: tuple[int, ...], healthy: list[bool], tmp_path: Path
) -> None:
    build("huggingface", tmp_path)
    for step, age_s in zip((100, 200, 300), ages, strict=True):
        for path in (tmp_path / f"checkpoint-{step}").rglob("*"):
            os.utime(path, ((NOW - timedelta(seconds=age_s)).timestamp(),) * 2)
    assert [c.healthy for c in inventory(tmp_path, now=NOW, live=True).checkpoints] == healthy


def test_a_save_of_another_run_behind_it_proves_nothing(tmp_path: Path) -> None:
    for name, age_s in (("lr1_step_10.pt", 8), ("lr1_step_20.pt", 6), ("lr2_step_30.pt", 4)):
        write(tmp_path / name, torch_bytes())
        os.utime(tmp_path / name, ((NOW - timedelta(seconds=age_s)).timestamp(),) * 2)
    assert [c.healthy for c in inventory(tmp_path, now=NOW, live=True).checkpoints] == [True, False, False]


@pytest.mark.parametrize(("epoch", "expected"), [(5, 3), (4, 2), (None, None), (1, None)])
def test_before_a_step_a_checkpoint_of_epochs_is_two_epochs_older(epoch: int | None, expected: int | None, tmp_path: Path) -> None:
    for number in (1, 2, 3, 4, 5):
        write(tmp_path / f"epoch_{number}.pt", torch_bytes())
    chosen = before_step(inventory(tmp_path, now=NOW), 900, now=NOW, margin=5, epoch=epoch).checkpoint
    assert (chosen.step if chosen is not None else None) == expected


@pytest.mark.parametrize("name", ["tmp-checkpoint-300", "checkpoint-300.tmp", ".checkpoint-300.incomplete"])
def test_a_temporary_name_is_an_unfinished_checkpoint(name: str, tmp_path: Path) -> None:
    build("huggingface", tmp_path)
    (tmp_path / "checkpoint-300").rename(tmp_path / name)
    newest = last(look(tmp_path))
    assert newest is not None
    assert (newest.step, newest.problems[0]) == (300, "its name marks it as not finished")


def test_an_unfinished_marker_of_nemo_counts(tmp_path: Path) -> None:
    path = build("nemo", tmp_path)[-1]
    write(path.with_name(f"{path.stem}-unfinished"), "")
    newest = last(look(tmp_path))
    assert newest is not None
    assert "-unfinished marker" in newest.problems[0]


@pytest.mark.parametrize(("step", "margin", "expected"), [(300, 0, 200), (301, 0, 300), (301, 50, 200), (201, 150, None)])
def test_before_a_step_keeps_the_margin(step: int, margin: int, expected: int | None, tmp_path: Path) -> None:
    build("nightshift", tmp_path)
    chosen = before_step(look(tmp_path), step, now=NOW, margin=margin).checkpoint
    assert (chosen.step if chosen else None) == expected


def test_internevo_snapshots_take_their_step_from_the_marker(tmp_path: Path) -> None:
    internevo(tmp_path, 100)
    (tmp_path / "100").rename(tmp_path / "slot")
    (tmp_path / "snapshot").mkdir()
    (tmp_path / "slot").rename(tmp_path / "snapshot" / "0")
    assert [(c.step, c.healthy) for c in look(tmp_path).checkpoints] == [(100, True)]


def test_a_folder_that_is_a_checkpoint_itself_is_taken_as_one(tmp_path: Path) -> None:
    path = build("huggingface", tmp_path)[-1]
    aged(tmp_path)
    assert [c.step for c in inventory(path, now=NOW).checkpoints] == [300]


def test_a_checkpoints_folder_below_is_found(tmp_path: Path) -> None:
    build("nemo", tmp_path / "checkpoints")
    assert len(look(tmp_path).checkpoints) == 3


def test_a_missing_folder_says_what_to_do(tmp_path: Path) -> None:
    with pytest.raises(ToolError, match="does not exist; name the right one: #NIGHTSHIFT checkpoints="):
        inventory(tmp_path / "none", now=NOW)


def test_a_file_is_no_checkpoint_folder(tmp_path: Path) -> None:
    write(tmp_path / "notes.txt", "x")
    with pytest.raises(ToolError, match="is a file"):
        inventory(tmp_path / "notes.txt", now=NOW)


def test_an_empty_folder_has_no_checkpoints(tmp_path: Path) -> None:
    assert inventory(tmp_path, now=NOW).checkpoints == ()


def test_a_link_to_itself_costs_the_others_nothing(tmp_path: Path) -> None:
    (tmp_path / "step_3.pt").symlink_to("step_3.pt")
    (tmp_path / "step_9.pt").touch()
    assert [entry.path.name for entry in inventory(tmp_path, now=datetime.now(UTC)).entries] == ["step_9.pt"]


def test_a_broken_link_is_an_empty_file(tmp_path: Path) -> None:
    folder = build("huggingface", tmp_path)[-1]
    (folder / "optimizer.pt").unlink()
    (folder / "optimizer.pt").symlink_to(tmp_path / "gone.pt")
    aged_found = inventory(tmp_path, now=NOW)
    newest = last(aged_found)
    assert newest is not None
    assert newest.problems == ("holds empty files: optimizer.pt",)


@pytest.mark.parametrize("marker", "DONE _SUCCESS .complete COMPLETED save.ok upload_done.txt .ok-12-0-1 done_rank3".split())
def test_an_empty_file_that_says_by_being_there_is_no_damage(marker: str, tmp_path: Path) -> None:
    for folder in build("huggingface", tmp_path):
        write(folder / marker, "")
    newest = last(inventory(tmp_path, now=NOW))
    assert newest is not None
    assert newest.problems == ()


def test_a_tracker_that_names_a_damaged_checkpoint_is_a_trap_and_said(tmp_path: Path) -> None:
    cut(build("nightshift", tmp_path)[-1])
    write(tmp_path / "latest_checkpointed_iteration.txt", "300")
    assert (
        look(tmp_path)
        .notes[0]
        .startswith("tracker latest_checkpointed_iteration.txt names step 300, which must not be loaded: rank_")
    )


@pytest.mark.parametrize(
    ("folder", "files", "layout"),
    [
        ("checkpoint-500", ("model.safetensors", "optimizer.bin", "random_states_0.pkl"), "huggingface"),
        ("checkpoint-500", ("unet/diffusion_pytorch_model.safetensors", "random_states_0.pkl"), "huggingface"),
        ("global_step_500", ("actor/model_world_size_8_rank_0.pt", "data.pt"), "plain"),
    ],
    ids=["accelerate", "diffusers", "verl"],
)
def test_a_relative_of_a_known_layout_is_not_refused_for_what_it_never_writes(
    folder: str, files: tuple[str, ...], layout: str, tmp_path: Path
) -> None:
    for name in files:
        write(tmp_path / folder / name, safetensors_bytes() if name.endswith("safetensors") else torch_bytes())
    newest = last(look(tmp_path))
    assert newest is not None
    assert (newest.step, newest.format, newest.problems) == (500, layout, ())
