"""Jobs that know nothing of Nightshift: what they saved is found, nothing is overwritten, and the chosen checkpoint is loaded."""

from __future__ import annotations

import hashlib
import re
import struct
import zipfile
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assistant.engine import Engine
from assistant.engine.ownership import owner_name
from assistant.records import Checkpoint, Incident, IncidentState, JobSpec
from assistant.recover.joblog import log_lines
from assistant.recover.loaded import LoadVerdict, compare_loaded, loaded_checkpoint
from assistant.tooling import Context, find_tool
from tests.live import strangers
from tests.live.conftest import TORCH, DevCluster, until

pytestmark = [pytest.mark.live, pytest.mark.timeout(280)]
PYTHON = f"{TORCH}/bin/python3 -u"
REPLACED = ("/latest_checkpointed_iteration.txt", "/ckpt.pt", "/last.ckpt", "/last.pth.tar", "/model_best.pth.tar")
"""Files that the programs themselves replace at each save."""
ENDED = (IncidentState.RECOVERED, IncidentState.ESCALATED, IncidentState.CLOSED)
HF_RESUMES = (
    "trainer.train(resume_from_checkpoint=get_last_checkpoint(args.output_dir) if os.path.isdir(args.output_dir) else None)"
)
PLAIN_RESUMES = """
found = sorted(saves.glob("step_*"), key=lambda path: int(path.name.split("_")[1]))
if found:
    state = torch.load(found[-1] / "model.pt", weights_only=True)
    first = state["step"] + 1
    print(f"resumed from {found[-1]}", flush=True)
"""


@dataclass(frozen=True)
class Stranger:
    """A job of somebody who has never heard of Nightshift."""

    name: str
    source: str
    command: str
    folder: str
    """Where it saves, below its work folder."""
    chosen: int = 60
    """Step of the checkpoint that a restart goes on from; with `damage`, the one before."""
    damage: str = ""
    """File of the newest checkpoint whose content is changed before the restart."""
    zeroed: bool = False
    """Whether `damage` keeps the file's length and makes its second half zeros."""
    resumes: bool = True
    files: tuple[tuple[str, str], ...] = ()


RUN2 = f"srun {TORCH}/bin/torchrun --standalone --nproc_per_node=2 train.py"
MEGATRON = f"C=$PWD/ckpt\nARGS=(--save $C --load $C)\nsrun {PYTHON} train.py ${{ARGS[@]}}"
NANOGPT = f"if [ -f out/ckpt.pt ]; then R=--init_from=resume; fi\nsrun {PYTHON} train.py $R"
TITAN = f"{RUN2} --job.config_file conf/debug.toml"
TITAN_FILES = (("conf/debug.toml", strangers.TORCHTITAN_TOML),)
HF = f"srun {PYTHON} train.py --output_dir out"
JOBS = [
    Stranger("hf", strangers.HUGGINGFACE.replace("RESUME", HF_RESUMES), HF, "out"),
    Stranger("hf-damaged", strangers.HUGGINGFACE.replace("RESUME", HF_RESUMES), HF, "out", 40, "checkpoint-60/optimizer.pt"),
    Stranger("hf-no-resume", strangers.HUGGINGFACE.replace("RESUME", "trainer.train()"), HF, "out", resumes=False),
    Stranger("lightning", strangers.LIGHTNING, f"srun {PYTHON} train.py", "runs/ckpt"),
    Stranger("lightning-damaged", strangers.LIGHTNING, f"srun {PYTHON} train.py", "runs/ckpt", 40, "epoch=3-step=60.ckpt"),
    Stranger("accelerate", strangers.ACCELERATE, f"srun {PYTHON} train.py", "out"),
    Stranger("fsdp", strangers.FSDP, f"D=outputs/run\n{RUN2} $D", "outputs/run/checkpoint"),
    Stranger(
        "fsdp-damaged", strangers.FSDP, f"{RUN2} outputs",
        "outputs/checkpoint", 40, "step-60/__1_0.distcp",
    ),
    Stranger("torchtitan", strangers.TORCHTITAN, TITAN, "outputs/checkpoint", files=TITAN_FILES),
    Stranger(
        "torchtitan-damaged", strangers.TORCHTITAN, TITAN, "outputs/checkpoint", 40, "step-60/__1_0.distcp", zeroed=True,
        files=TITAN_FILES,
    ),
    Stranger("megatron", strangers.MEGATRON, MEGATRON, "ckpt"),
    Stranger(
        "megatron-damaged", strangers.MEGATRON, f"srun {PYTHON} train.py --save ckpt --load ckpt", "ckpt", 40,
        "iter_0000060/mp_rank_00/model_optim_rng.pt",
    ),
    Stranger("megatron-no-load", strangers.MEGATRON, f"srun {PYTHON} train.py --save ckpt", "ckpt", resumes=False),
    Stranger("nanogpt", strangers.NANOGPT, NANOGPT, "out"),
    Stranger("nanogpt-scratch", strangers.NANOGPT, f"srun {PYTHON} train.py", "out", resumes=False),
    Stranger("plain", strangers.PLAIN.replace("RESUME", PLAIN_RESUMES), f"srun {PYTHON} train.py", "work/saves"),
    Stranger(
        "plain-damaged", strangers.PLAIN.replace("RESUME", PLAIN_RESUMES), f"srun {PYTHON} train.py", "work/saves", 40,
        "step_60/model.pt",
    ),
    Stranger(
        "timm", strangers.TIMM,
        f"L=output/vit/last.pth.tar\nsrun {PYTHON} train.py $([ -f $L ] && echo --resume $L)", "output/vit", 6,
    ),
    Stranger("timm-option", strangers.TIMM, f"srun {PYTHON} train.py", "output/vit", 6),
    Stranger(
        "hydra", strangers.HYDRA, f"set -- model.lr=5e-4\nsrun {PYTHON} train.py \"$@\"", "outputs",
        files=(("conf/config.yaml", "seed: 42\nckpt_path: null\nmodel:\n  lr: 0.001\n"),),
    ),
    Stranger("plain-no-resume", strangers.PLAIN.replace("RESUME", ""), f"srun {PYTHON} train.py", "work/saves", resumes=False),
]  # fmt: skip


def digests(folder: Path) -> dict[str, str]:
    files = [path for path in folder.rglob("*") if path.is_file()]
    return {f"/{path.relative_to(folder)}": hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


def damage(path: Path, *, zeroed: bool = False) -> None:
    """Change content in the middle of a file, as a bad disk does, or cut it where it carries no checksum."""
    raw = path.read_bytes()
    if zeroed:
        path.write_bytes(raw[: len(raw) // 2] + bytes(len(raw) - len(raw) // 2))
        return
    if not zipfile.is_zipfile(path) or path.suffix == ".distcp":
        path.write_bytes(raw[: len(raw) // 2])
        return
    with zipfile.ZipFile(path) as archive:
        member = max((one for one in archive.infolist() if "/data/" in one.filename), key=lambda one: one.file_size)
    name, extra = struct.unpack("<HH", raw[member.header_offset + 26 : member.header_offset + 30])
    place = member.header_offset + 30 + name + extra
    path.write_bytes(raw[:place] + bytes([raw[place] ^ 0xFF]) + raw[place + 1 :])


def worked(engine: Engine, job: str) -> Incident:
    """Let the watch work until the incident of a job has an end."""
    states: list[Incident] = []

    def looked() -> bool:
        engine.tick(owner=owner_name("test"))
        states[:] = engine.store.incidents(job=job)
        return bool(states) and states[0].state in ENDED

    until(looked, 120, pause_s=0.5)
    return states[0]


@pytest.mark.parametrize("stranger", JOBS, ids=lambda one: one.name)
def test_the_chosen_checkpoint_is_loaded_and_none_is_overwritten(
    engine: Engine, devcluster: DevCluster, stranger: Stranger
) -> None:
    folder = devcluster.shared / stranger.name
    folder.mkdir()
    (folder / "train.py").write_text(stranger.source)
    for name, text in stranger.files:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(text)
    script = f"#!/bin/bash\n#SBATCH --nodes=1 --output=slurm-%j.out\nset -e\ncd {folder}\n{stranger.command}\n"
    job = engine.scheduler.submit(JobSpec(stranger.name, script, nodes=1, work_dir=folder))
    until(lambda: engine.scheduler.job(job).state.ended, 120)
    saved = folder / stranger.folder
    assert saved.is_dir(), (folder / f"slurm-{job}.out").read_text()
    if stranger.damage:
        damage(saved / stranger.damage, zeroed=stranger.zeroed)
    before = digests(saved)
    nowhere = SimpleNamespace(name="none")  # the choice asks no node
    context = Context(engine.scheduler, nowhere, engine.clock, None, engine.store)  # type: ignore[arg-type]
    choice = find_tool("choose_checkpoint").run(context, job)
    assert choice["step"] == stranger.chosen, choice["note"]

    incident = worked(engine, job)
    jobs = [one for one in engine.scheduler.jobs() if one.name == stranger.name and one.id != job]
    after = digests(saved)
    lost = {name for name, digest in before.items() if digest not in after.values() and not name.endswith(REPLACED)}
    assert not lost, f"overwritten or lost: {lost}"
    if not stranger.resumes:
        assert (incident.state, jobs) == (IncidentState.ESCALATED, [])
        assert re.search(r"it would start at 0|a start begins at step 0", incident.note), incident.note
        assert after == before
        return
    logs = "".join(path.read_text(errors="replace")[-3000:] for path in folder.glob("slurm-*.out"))
    assert incident.state is IncidentState.RECOVERED, f"{incident.note}\n{logs}"
    [again] = jobs
    until(lambda: engine.scheduler.job(again.id).state.ended, 120)
    compared = compare_loaded(_checkpoint(choice), loaded_checkpoint(log_lines(engine.scheduler.job(again.id))))
    # the Trainer names no checkpoint that it loads, and what it prints through a pipe may come apart from its bars; timm names
    # its link
    assert compared.verdict is LoadVerdict.CHOSEN or (stranger.name in ("hf", "hf-damaged", "timm") and not compared.differs), (
        compared.note
    )


def _checkpoint(choice: dict[str, Any]) -> Checkpoint:
    return Checkpoint(Path(choice["path"]), choice["step"], choice["format"], 1, datetime.now(UTC), True, ())


@pytest.mark.timeout(500)
def test_a_job_that_lost_its_loss_goes_back_by_the_links_of_all_ranks(engine: Engine, devcluster: DevCluster) -> None:
    folder = devcluster.shared / "composer"
    folder.mkdir()
    (folder / "train.py").write_text(strangers.COMPOSER)
    (folder / "mpt.yaml").write_text("autoresume: true\nsave_folder: checkpoints\nsave_overwrite: false\nmax_duration: 900ba\n")
    script = f"#!/bin/bash\n#SBATCH --nodes=1 --output=slurm-%j.out\ncd {folder}\nsrun {PYTHON} train.py mpt.yaml\n"
    job = engine.scheduler.submit(JobSpec("composer", script, nodes=1, work_dir=folder))
    incident = worked(engine, job)
    logs = "".join(path.read_text(errors="replace")[-2000:] for path in folder.glob("slurm-*.out"))
    assert incident.state is IncidentState.RECOVERED, f"{incident.note}\n{logs}"
    [links] = [call for call in engine.store.calls(incident.id) if call.tool == "set_tracker"]
    assert all(f"latest-rank{rank}.pt" in links.preview for rank in range(2)), links.preview
    [again] = [one for one in engine.scheduler.jobs() if one.name == "composer" and one.id != job]
    assert again.spec is None or "ep0-ba60" in again.spec.environment["NIGHTSHIFT_RESUME_FROM"]
    refused = {path.name for path in (folder / "checkpoints" / "nightshift-refused").iterdir()}
    assert {f"ep0-ba{batch}-rank{rank}.pt" for batch in (70, 80) for rank in range(2)} <= refused
