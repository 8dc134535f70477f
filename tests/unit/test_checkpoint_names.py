"""The step of a checkpoint: by its name, and for files that are written again at each save by what is in them."""

from __future__ import annotations

import pickle
import tomllib
import zipfile
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from assistant.records import Job, JobSpec, JobState
from assistant.recover.checkpoints.inner_counts import epoch_inside, step_inside
from assistant.recover.checkpoints.inventory import Inventory, inventory, last_healthy
from assistant.recover.checkpoints.layout import could_be_checkpoint, counts_steps, entries
from assistant.recover.checkpoints.names import is_opaque, is_rolling, number_in, run_prefix
from assistant.recover.checkpoints.search import SaveState, search_checkpoints
from assistant.recover.job_program import programs_of
from assistant.recover.restart import plan_restart
from assistant.recover.resume.means import ResumeMeans, ResumeWay
from assistant.recover.resume.plan import resume_plan
from assistant.recover.resume.script import resume_way

FILE = Path(__file__).parents[1] / "cases" / "checkpoints" / "names.toml"
CASES: list[dict[str, Any]] = tomllib.loads(FILE.read_text("utf-8"))["case"]
NOW = datetime.now(UTC)
NEWEST = ResumeWay(ResumeMeans.NEWEST, "the newest")


@pytest.mark.parametrize("case", CASES, ids=lambda case: case["name"])
def test_the_step_of_a_name_is_the_number_that_it_calls_so(case: dict[str, Any]) -> None:
    number = number_in(case["name"])
    assert (number.number if number else None) == case.get("step")
    assert number is None or number.unit == case.get("unit", "step")
    assert is_rolling(case["name"]) == case.get("rolling", False)


@pytest.mark.parametrize("case", [case for case in CASES if "prefix" in case], ids=lambda case: case["name"])
def test_the_run_of_a_name_stands_in_front_of_its_step(case: dict[str, Any]) -> None:
    assert run_prefix(case["name"]) == case["prefix"]


def save(path: Path, *, torn: bool = False, **content: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(content))
        archive.writestr("archive/data/0", bytes(5000))
    if torn:
        path.write_bytes(path.read_bytes()[:2000])


def held(folder: Path) -> Inventory:
    return inventory(folder, now=NOW)


def judged(folder: Path) -> dict[str, tuple[int, bool]]:
    return {one.path.name: (one.step, one.healthy) for one in held(folder).checkpoints}


@pytest.mark.parametrize("name", ["epoch_latest.pt", "checkpoint.pth.tar", "latest.pt", "model_last.pth", "ckpt.pt"])
@pytest.mark.parametrize(
    ("content", "torn", "expected"),
    [
        ({"step": 900, "epoch": 3}, False, (900, True)),
        ({"epoch": 3, "state_dict": {}}, False, (3, True)),
        ({"weights": 1}, False, (0, False)),
        ({"step": 900}, True, (0, False)),
    ],
)
def test_a_file_that_is_written_again_tells_its_step_inside(
    name: str, content: dict[str, object], torn: bool, expected: tuple[int, bool], tmp_path: Path
) -> None:
    save(tmp_path / name, torn=torn, **content)
    assert judged(tmp_path) == {name: expected}


def test_an_epoch_that_a_file_tells_is_not_compared_with_steps(tmp_path: Path) -> None:
    save(tmp_path / "checkpoint.pth.tar", epoch=3)
    [entry] = held(tmp_path).entries
    assert not counts_steps(entry.format, entry.path.name)


def test_epochs_and_steps_are_not_put_in_one_order(tmp_path: Path) -> None:
    save(tmp_path / "step_900.pt", step=900)
    save(tmp_path / "epoch_950.pt", epoch=950)
    assert judged(tmp_path) == {"step_900.pt": (900, True), "epoch_950.pt": (0, False)}
    choice = last_healthy(held(tmp_path), now=NOW)
    assert choice.checkpoint is not None
    assert choice.checkpoint.step == 900


def test_a_file_of_unknown_step_beside_numbered_ones_asks_before_a_restart(tmp_path: Path) -> None:
    save(tmp_path / "step_40.pt", step=40)
    save(tmp_path / "latest.pt", torn=True)
    found = held(tmp_path)
    choice = last_healthy(found, now=NOW)
    assert "latest.pt" in resume_plan(NEWEST, found, choice.checkpoint).refusal
    save(tmp_path / "latest.pt", step=40)
    again = held(tmp_path)
    assert resume_plan(NEWEST, again, last_healthy(again, now=NOW).checkpoint).ready


def job(script: str, folder: Path) -> Job:
    spec = JobSpec("clip", script, work_dir=folder)
    return Job("7", "clip", "", JobState.FAILED, "", (), None, folder, None, NOW, None, 1, None, spec=spec)


CLIP = "torchrun --nproc_per_node 4 -m open_clip_train.main --name run1 --train-data d.tar --logs out "


@pytest.mark.parametrize(
    ("options", "torn", "ready"),
    [
        ("--save-most-recent --resume latest", False, True),
        ("--save-most-recent --resume latest", True, False),  # it would load the torn file, or begin anew without it
        ("--save-most-recent", False, False),
        ("--resume out/run1/checkpoints/epoch_2.pt", False, False),
    ],
)
def test_open_clip_goes_on_from_its_latest_file(options: str, torn: bool, ready: bool, tmp_path: Path) -> None:
    folder = tmp_path / "out" / "run1" / "checkpoints"
    save(folder / "epoch_2.pt", epoch=2, name="run1")
    save(folder / "epoch_latest.pt", torn=torn, epoch=3, name="run1")
    clip = job(f"{CLIP}{options}\n", tmp_path)
    search = search_checkpoints(clip, {}, (), now=NOW)
    assert search.state is SaveState.FOUND
    assert search.inventory is not None
    assert [one.path.name for one in search.inventory.checkpoints if one.healthy] == [
        "epoch_2.pt",
        *["epoch_latest.pt"] * (not torn),
    ]
    way = resume_way(clip, programs_of(clip))
    choice = last_healthy(search.inventory, now=NOW)
    assert resume_plan(way, search.inventory, choice.checkpoint).ready is ready


def test_a_program_that_loads_one_file_only_is_not_left_without_it(tmp_path: Path) -> None:
    program = (
        "import os, torch\npath = 'ckpt/latest.pt'\nif os.path.exists(path):\n    state = torch.load(path)\ntorch.save(0, path)\n"
    )
    (tmp_path / "train.py").write_text(program)
    save(tmp_path / "ckpt" / "step_40.pt", step=40)
    save(tmp_path / "ckpt" / "latest.pt", step=60, torn=True)
    shown = job("python train.py\n", tmp_path)
    way = resume_way(shown, programs_of(shown))
    assert way.prefix == "latest.pt"
    found = held(tmp_path / "ckpt")
    plan = resume_plan(way, found, last_healthy(found, now=NOW).checkpoint)
    assert plan.refusal
    assert not plan.set_aside


@pytest.mark.parametrize(
    ("script", "state"),
    [
        ("python train.py --config c.toml\n", SaveState.UNKNOWN),  # out/360m below /scratch, or beside the script?
        ("python train.py --config d.toml\n", SaveState.NEVER_SAVED),
    ],
)
def test_a_folder_that_may_lie_below_another_proves_nothing(script: str, state: SaveState, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("import toml, torch\ntorch.save(1, name)\n")
    (tmp_path / "c.toml").write_text('[output]\nroot_dir = "/scratch/runs"\n[checkpoint]\nfolder = "out/360m"\n')
    (tmp_path / "d.toml").write_text('[checkpoint]\nfolder = "out/360m"\n')
    (tmp_path / "out" / "360m").mkdir(parents=True)
    search = search_checkpoints(job(script, tmp_path), {}, (), now=NOW)
    assert search.state is state, search.note
    assert not any("outputs" in one for one in search.looked_at)


def test_a_file_system_that_is_mounted_on_the_nodes_alone_proves_nothing(tmp_path: Path) -> None:
    for save_dir, work_dir in (("ckpt", tmp_path / "gone"), ("/gpfs-of-nodes/ckpt", tmp_path)):
        unmounted = replace(job(f"./trainer --save-dir {save_dir}\n", work_dir), dated_logs=True)
        search = search_checkpoints(unmounted, {}, (), now=NOW)
        assert search.state is SaveState.UNKNOWN
        assert "is not seen from this machine" in search.note
    (tmp_path / "gone").mkdir()
    mounted = replace(job("./trainer --save-dir ckpt\n", tmp_path / "gone"), dated_logs=True)
    assert search_checkpoints(mounted, {}, (), now=NOW).state is SaveState.NEVER_SAVED


def test_weights_of_an_unknown_name_are_no_proof_that_nothing_was_saved(tmp_path: Path) -> None:
    (tmp_path / "ckpt").mkdir()
    (tmp_path / "ckpt" / "best.safetensors").write_bytes(b"x")
    search = search_checkpoints(job("./trainer --save-dir ckpt\n", tmp_path), {}, (), now=NOW)
    assert search.state is SaveState.UNKNOWN
    assert not could_be_checkpoint("best.safetensors", folder=False)


@pytest.mark.parametrize("names", ["ckpt_A.pt ckpt_B.pt", "even.pt odd.pt", "ckpt_0.pt ckpt_1.pt", "state_ping.pt state_pong.pt"])
def test_of_two_files_written_in_turn_the_older_whole_one_is_chosen(names: str, tmp_path: Path) -> None:
    for whole, torn in (names.split(), names.split()[::-1]):
        save(tmp_path / whole, step=45)
        save(tmp_path / torn, step=60, torn=True)
        found = held(tmp_path)
        assert {one.path.name for one in found.checkpoints if not one.healthy} == {torn}
        choice = last_healthy(found, now=NOW)
        assert choice.checkpoint is not None
        assert (choice.checkpoint.path.name, choice.checkpoint.step) == (whole, 45)
        assert torn in resume_plan(NEWEST, found, choice.checkpoint).refusal
    save(tmp_path / names.split(maxsplit=1)[0], step=45)
    save(tmp_path / names.split()[1], step=60)
    assert {step for step, healthy in judged(tmp_path).values() if healthy} == {45, 60}


NANO = """\
import torch
out_dir = 'out'
init_from = 'scratch'
exec(open('configurator.py').read())
if init_from == 'resume':
    checkpoint = torch.load(out_dir + '/ckpt.pt')
torch.save({}, out_dir + '/ckpt.pt')
"""


@pytest.mark.parametrize(
    ("script", "program", "argument"),
    [
        ("srun python train.py config.py\n", NANO, "--init_from=resume"),
        ("exec python -u train.py \\\n  --out_dir=out 2>&1 | tee log.txt\n", NANO, "--init_from=resume"),
        ("python train.py --init_from=gpt2-xl\n", NANO, "--init_from=resume"),
        ("EXTRA=$*\nsrun bash -c 'cd . && exec python train.py \\\n    config.py $EXTRA'\n", NANO, "--init_from=resume"),
        ("srun bash -c 'export A=b\n  exec python train.py \\\n    config.py' 2> err.txt\n", NANO, "--init_from=resume"),
        ('srun sh -ec "python train.py config.py; echo done" > log.txt 2>&1\n', NANO, "--init_from=resume"),
        ("cd . && srun python train.py || echo failed\n", NANO, "--init_from=resume"),
        ("srun bash -c 'python train.py' words\n", NANO, ""),  # words behind the text are parameters of that shell
        ("python train.py --init_from=resume\n", NANO, ""),  # it does so by itself
        ("bash run.sh\n", NANO, ""),  # what is put behind a script's name may not reach the program
        ("python train.py\npython sample.py\n", NANO, ""),  # it would reach another program
        ("python train.py\n", NANO.replace("exec(", "print("), ""),  # it takes no such argument
        ("python train.py\n", NANO.replace("'resume'", "'again'"), ""),
        ("python train.py\n", NANO.replace("ckpt.pt", "last.pt"), ""),
    ],
)
def test_nanogpt_goes_on_by_one_argument_where_that_is_proven(script: str, program: str, argument: str, tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(program)
    (tmp_path / "sample.py").write_text("import torch\n")
    (tmp_path / "run.sh").write_text("python train.py\n")
    save(tmp_path / "out" / "ckpt.pt", step=60)
    nano = job(script, tmp_path)
    way = resume_way(nano, programs_of(nano))
    assert way.argument == argument
    if not argument:
        return
    found = held(tmp_path / "out")
    chosen = last_healthy(found, now=NOW).checkpoint
    assert resume_plan(way, found, chosen).ready
    assert nano.spec is not None
    again = plan_restart(nano, nano.spec, chosen, attempt=1, tag="t", resume=way.argument)
    assert again.environment["NIGHTSHIFT_ARGS"] == argument
    assert "train.py" in next(line for line in again.script.replace("\\\n", " ").splitlines() if "${NIGHTSHIFT_ARGS:-}" in line)
    second = replace(nano, spec=again)
    way = resume_way(second, programs_of(second))
    assert way.argument == argument
    third = plan_restart(second, again, chosen, attempt=2, tag="t", resume=way.argument)
    assert (third.script, third.environment["NIGHTSHIFT_ARGS"]) == (again.script, argument)


def test_nanogpt_is_not_told_to_go_on_from_another_file(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text(NANO)
    save(tmp_path / "out" / "step_40.pt", step=40)
    save(tmp_path / "out" / "ckpt.pt", step=60, torn=True)
    nano = job("python train.py\n", tmp_path)
    found = held(tmp_path / "out")
    chosen = last_healthy(found, now=NOW).checkpoint
    assert chosen is not None
    assert "ckpt.pt" in resume_plan(resume_way(nano, programs_of(nano)), found, chosen).refusal


@pytest.mark.parametrize(
    ("state", "step", "epoch"),
    [
        ({"MODEL_STATE": b"", "EPOCHS_RUN": 9}, None, 9),  # the snapshot of PyTorch's own examples
        ({"Global_Step": 40, "Epoch": 2}, 40, 2),
        ({"global_step": 40, "epoch": 2}, 40, 2),
        ({"EPOCHS_RUN": True, "steps_left": 7}, None, None),
    ],
)
def test_a_count_inside_is_found_whatever_case_its_key_has(
    tmp_path: Path, state: dict[str, object], step: int | None, epoch: int | None
) -> None:
    path = tmp_path / "snapshot.pt"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("snapshot/data.pkl", pickle.dumps(state, protocol=2))
    assert (step_inside(path), epoch_inside(path)) == (step, epoch)


@pytest.mark.parametrize(
    "name",
    [
        "bc9c2947aba2eade.pt",
        "4484bab0f024496b.pt",
        "3f2504e0-4f89-11d3-9a0c-0305e82c3301.ckpt",
        "DA39A3EE5E6B4B0D3255BFEF95601890AFD80709",
    ],
)
def test_a_digest_tells_neither_a_step_nor_a_run(name: str) -> None:
    assert (number_in(name), run_prefix(name)) == (None, "")


@pytest.mark.parametrize(
    "name", ["ba00002000000000.pt", "step_000000123456.pt", "00000000000080.pt", "e12b34005678x.pt", "deadbeef.pt"]
)
def test_a_name_that_counts_is_no_digest(name: str) -> None:
    assert not is_opaque(name)


@pytest.mark.parametrize("name", ["3_submitted.pkl", "3_0_result.pkl", "71180_4_submitted.pkl", "71180_4_1_result.pkl"])
def test_a_pickled_call_of_submitit_is_no_checkpoint(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_bytes(b"\x80\x04" + bytes(9000))
    (tmp_path / "model_0000039.rank_0.pth").write_bytes(b"PK" + bytes(9000))
    assert not could_be_checkpoint(name, folder=False)
    assert [entry.path.name for entry in entries(tmp_path)] == ["model_0000039.rank_0.pth"]


def test_a_file_of_a_step_keeps_its_meaning_beside_those_of_submitit() -> None:
    assert could_be_checkpoint("ckpt_300.pkl", folder=False)
    assert could_be_checkpoint("epoch_3_result.pkl", folder=False)
