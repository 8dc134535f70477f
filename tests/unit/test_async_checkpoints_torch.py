"""AsyncCheckpointer with PyTorch: the programs of docs/checkpoints.md as they stand there, and what PyTorch adds to go wrong.

Run by a Python with torch: `NIGHTSHIFT_TORCH` names its virtual environment, else it is the `.venv-torch` of `make deps-torch`.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
from pathlib import Path

import pytest

from assistant.recover.checkpoints.inventory import inventory
from tests.unit.gate_world import START

ROOT = Path(__file__).parents[2]
TORCH = Path(os.environ.get("NIGHTSHIFT_TORCH") or ROOT / ".venv-torch").absolute()
PAGE = (ROOT / "docs" / "checkpoints.md").read_text(encoding="utf-8")
PROGRAMS = dict(re.findall(r"<!-- test: (\S+) -->\n```python\n(.*?)```", PAGE, re.DOTALL))

pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.skipif(
        not (TORCH / "bin/python").exists(), reason=f"there is no torch in {TORCH}: make deps-torch, or NIGHTSHIFT_TORCH"
    ),
]


@functools.cache
def has(package: str) -> bool:
    found = subprocess.run([TORCH / "bin/python", "-c", f"import {package}"], check=False, capture_output=True)
    return found.returncode == 0


def run(folder: Path, program: str, *words: object, ranks: int = 0) -> str:
    """Run a program where torch is and return what it says."""
    path = folder / "program.py"
    path.write_text(program, encoding="utf-8")
    runner = [TORCH / "bin/torchrun", "--standalone", f"--nproc-per-node={ranks}"] if ranks else [TORCH / "bin/python"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": "", "HF_HUB_OFFLINE": "1"}
    ended = subprocess.run(
        [*runner, path, *map(str, words)], cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=110
    )
    assert ended.returncode == 0, ended.stderr[-4000:]
    return ended.stdout


def healthy_steps(folder: Path) -> list[int]:
    return [one.step for one in inventory(folder, now=START).checkpoints if one.healthy]


def test_the_loop_of_the_page_goes_on_where_it_was_and_ends_with_the_same_weights(tmp_path: Path) -> None:
    straight = run(tmp_path, PROGRAMS["loop.py"], tmp_path / "straight", 12, ranks=2)
    first = run(tmp_path, PROGRAMS["loop.py"], tmp_path / "again", 10, ranks=2)
    second = run(tmp_path, PROGRAMS["loop.py"], tmp_path / "again", 12, ranks=2)
    assert [said.split(":")[0] for said in (straight, first, second)] == ["from step 1", "from step 1", "from step 11"]
    assert second.split(":")[1] == straight.split(":")[1] != first.split(":")[1]
    assert healthy_steps(tmp_path / "again") == [5, 10]
    assert len((tmp_path / "metrics.jsonl").read_text().splitlines()) == 24


@pytest.mark.parametrize(("name", "package"), [("huggingface.py", "transformers"), ("lightning.py", "lightning")])
def test_the_callbacks_of_the_page_save_and_go_on(tmp_path: Path, name: str, package: str) -> None:
    if not has(package):
        pytest.skip(f"there is no {package} in {TORCH}: make deps-torch")
    assert run(tmp_path, PROGRAMS[name], tmp_path / "c", 12).split("\n")[-2] == "done at 12"
    assert healthy_steps(tmp_path / "c") == [5, 10]
    assert run(tmp_path, PROGRAMS[name], tmp_path / "c", 21).split("\n")[-2] == "done at 21"
    assert healthy_steps(tmp_path / "c") == [10, 15, 20]
    steps = [line.split(",")[0] for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    assert steps[12] == '{"step": 11', "the second run goes on after the checkpoint of step 10"


SHARDED = """
import sys, torch, torch.distributed as dist
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.distributed.checkpoint.state_dict import get_state_dict, set_state_dict
from assistant.training.checkpoints import AsyncCheckpointer
dist.init_process_group("gloo"); world = dist.get_world_size(); torch.manual_seed(0)
model = torch.nn.Sequential(torch.nn.Linear(7, 5), torch.nn.Linear(5, 3))
fully_shard(model, mesh=init_device_mesh("cpu", (world,)))
optimizer = torch.optim.AdamW(model.parameters())
model(torch.ones(2, 7)).square().mean().backward(); optimizer.step()
def state():
    parts = get_state_dict(model, optimizer)
    return {"model": parts[0], "optimizer": parts[1], "replicated": torch.arange(9.0), "rate": 0.25}
def told():
    parts = [weight.full_tensor().double().sum().item() for weight in model.parameters()]
    moments = [value["exp_avg"].full_tensor().double().sum().item() for value in optimizer.state.values()]
    return [round(number, 9) for number in parts + moments]
with AsyncCheckpointer(sys.argv[1], metrics=None) as checkpoints:
    if sys.argv[2] == "save":
        for step in (1, 2):
            checkpoints.save(step, state())
        checkpoints.flush()
        assert checkpoints.saves.committed == 2
    else:
        with torch.no_grad():
            [weight.mul_(3) for weight in model.parameters()]
        loaded = checkpoints.load_latest(state())
        assert loaded.step == 2 and loaded.state["rate"] == 0.25 and loaded.state["replicated"].tolist() == list(range(9))
        set_state_dict(model, optimizer, model_state_dict=loaded.state["model"], optim_state_dict=loaded.state["optimizer"])
    numbers = told()
    if dist.get_rank() == 0:
        print(numbers)
dist.destroy_process_group()
"""


def test_sharded_states_are_written_by_all_ranks_and_load_on_another_number_of_them(tmp_path: Path) -> None:
    saved = run(tmp_path, SHARDED, tmp_path / "c", "save", ranks=2)
    shards = sorted(path.name for path in (tmp_path / "c" / "iter_0000002").rglob("*.distcp"))
    assert shards == ["__0_0.distcp", "__0_1.distcp", "__1_0.distcp"]
    for ranks in (1, 3):
        assert run(tmp_path, SHARDED, tmp_path / "c", "load", ranks=ranks) == saved


SIGNALLED = """
import os, signal, sys, torch, torch.distributed as dist
from assistant.training.checkpoints import AsyncCheckpointer
dist.init_process_group("gloo"); me = dist.get_rank(); state = {"weights": torch.arange(8.0)}
with AsyncCheckpointer(sys.argv[1], metrics=None) as checkpoints:
    for step in range(1, 100):
        if (step, me) in {(7, 1), (20, 0)}:
            os.kill(os.getpid(), signal.SIGUSR2 if step == 7 else signal.SIGTERM)
        if checkpoints.step(step, state):
            break
print(f"rank {me} ended after step {step}")
dist.destroy_process_group()
"""


def test_a_signal_to_one_rank_is_obeyed_by_all_at_the_same_step(tmp_path: Path) -> None:
    said = run(tmp_path, SIGNALLED, tmp_path / "c", ranks=2)
    assert sorted(said.splitlines()) == ["rank 0 ended after step 20", "rank 1 ended after step 20"]
    assert healthy_steps(tmp_path / "c") == [7, 20]


ALONE = ROOT / "tests" / "unit" / "torch_checkpoints_alone.py"
CASES = re.findall(r"^def (held_\w+)", ALONE.read_text(encoding="utf-8"), re.MULTILINE)


@pytest.fixture(scope="module")
def told(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """What came of each case of the program for one process, run once: most of its time goes by with the import of torch."""
    said = run(tmp_path_factory.mktemp("alone"), ALONE.read_text(encoding="utf-8"))
    return dict(line.split(": ", 1) for line in said.splitlines())


@pytest.mark.parametrize("case", CASES)
def test_with_one_process(told: dict[str, str], case: str) -> None:
    assert told[case] == "held"


DIFFERENT = """
import sys, torch, torch.distributed as dist
from assistant.training.checkpoints import *
dist.init_process_group("gloo"); rank = dist.get_rank()
with AsyncCheckpointer(sys.argv[1], metrics=None) as c:
    c.save(1, {"a": torch.ones(3)})
    try: c.save(2, {"a": torch.ones(3), **({"bad": print} if rank else {})})
    except (UnsupportedState, SaveFailed) as error: print(type(error).__name__ + "\\n", end="", flush=True)
    c.save(3, {"a": torch.ones(5)})
    assert c.load_latest({"a": torch.zeros(5)}).step == 3
dist.destroy_process_group()
"""


def test_a_state_that_one_rank_cannot_save_is_an_error_on_all_and_the_next_save_works(tmp_path: Path) -> None:
    assert sorted(run(tmp_path, DIFFERENT, tmp_path / "c", ranks=2).split()) == ["SaveFailed", "UnsupportedState"]
    assert healthy_steps(tmp_path / "c") == [1, 3]
