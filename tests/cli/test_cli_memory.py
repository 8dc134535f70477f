"""`nightshift memory plan`: from a log, a job, a configuration and a command line, for a person and as JSON."""

from __future__ import annotations

import subprocess
import sys
import time
from pathlib import Path

import pytest

from assistant.cli.output import Exit
from assistant.ports import SystemClock
from assistant.records import JobSpec
from assistant.schedulers.local import LocalScheduler
from tests.cli.conftest import Run

MESSAGE = (
    "[rank3]: torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 1.75 GiB. GPU 3 has a total capacity of 79.11 GiB "
    "of which "
    "590.00 MiB is free. Including non-PyTorch memory, this process has 78.52 GiB memory in use. Of the allocated memory "
    "75.10 GiB is "
    "allocated by PyTorch, and 1.20 GiB is reserved by PyTorch but unallocated."
)
ARGUMENTS = """
  bf16 ............................................ True
  ffn_hidden_size ................................. 22016
  global_batch_size ............................... 256
  hidden_dropout .................................. 0.0
  hidden_size ..................................... 8192
  micro_batch_size ................................ 2
  normalization ................................... RMSNorm
  num_attention_heads ............................. 64
  num_layers ...................................... 48
  padded_vocab_size ............................... 32000
  pipeline_model_parallel_size .................... 2
  position_embedding_type ......................... rope
  seq_length ...................................... 4096
  swiglu .......................................... True
  tensor_model_parallel_size ...................... 4
  untie_embeddings_and_output_weights ............. True
  use_distributed_optimizer ....................... True
  world_size ...................................... 32
"""
TITAN = """
[model]
name = "llama3"
flavor = "8B"
[training]
local_batch_size = 4
seq_len = 8192
[parallelism]
data_parallel_shard_degree = -1
"""


@pytest.fixture
def log(tmp_path: Path) -> Path:
    path = tmp_path / "job.log"
    steps = "".join(f" iteration {step}/ 5000 | lm loss: {9 - step / 10:.3E} | grad norm: 1.0\n" for step in range(1, 4))
    path.write_text(f"{ARGUMENTS.strip(chr(10))}\n{steps}{MESSAGE}\n")
    return path


def test_a_log_gives_shortage_estimate_proposal_and_ways_out(cli: Run, log: Path) -> None:
    said = cli("memory", "plan", "--log", log)
    assert said.code == 0
    assert said.out.startswith("memory plan for job.log\n")
    for words in (
        "shortage",
        "true need",
        "job.log:22: [rank3]",
        "optimiser states",
        "Megatron: ",
        "proposal",
        "ways out",
        "--micro-batch-size 2 to 1",
    ):
        assert words in said.out
    assert "Traceback" not in said.err


def test_json_is_one_object_with_a_frozen_plan(cli: Run, log: Path) -> None:
    (made,) = cli("memory", "plan", "--log", log, "--json").objects
    assert made["schema"] == 1
    assert made["problem"]["kind"] == "true need"
    assert made["problem"]["proof"][0]["line"] == 22
    assert made["run"]["setup"]["micro_batch"] == 2
    assert made["peak"] >= made["capacity"] > made["proposal"]["peak"]
    assert all({"name", "old", "new", "origin"} == set(argument) for argument in made["proposal"]["arguments"])


def test_a_configuration_alone(cli: Run, tmp_path: Path) -> None:
    config = tmp_path / "llama3_8b.toml"
    config.write_text(TITAN)
    said = cli("memory", "plan", "--config", config, "--gpus", "8", "--gpu-memory", "80")
    assert said.code == 0
    assert "no log was given" in said.out
    assert "training.local_batch_size 4 to" in said.out


def test_a_command_line_and_the_file_that_it_names(cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "run.yaml").write_text("model_name_or_path: meta-llama/Llama-3.1-8B\nper_device_train_batch_size: 4\nbf16: true\n")
    line = "torchrun --nproc_per_node 8 train.py --config run.yaml --max_length 4096"
    (made,) = cli("memory", "plan", "--command", line, "--gpu-memory", "80", "--json").objects
    assert made["run"]["framework"] == "Transformers"
    assert made["run"]["setup"]["layout"]["data"] == 8
    assert "per_device_train_batch_size in run.yaml" in {argument["origin"] for argument in made["run"]["arguments"]}


SMALL = "num_layers: 2\nhidden_size: 64\nnum_attention_heads: 4\nseq_length: 128\nmicro_batch_size: 2\nvocab_size: 1000\n"


def test_a_configuration_beside_a_command_line(cli: Run, tmp_path: Path) -> None:
    config = tmp_path / "small.yaml"
    config.write_text(SMALL)
    words = ("--config", config, "--command", "python train.py --micro-batch-size 4", "--gpu-memory", "80", "--gpus", "1")
    (made,) = cli("memory", "plan", *words, "--json").objects
    assert (made["run"]["setup"]["micro_batch"], made["run"]["setup"]["sequence"]) == (4, 128)


def test_arguments_that_do_not_describe_the_run_are_shown_without_a_prediction(cli: Run, tmp_path: Path) -> None:
    config, path = tmp_path / "small.yaml", tmp_path / "job.log"
    config.write_text(SMALL)
    path.write_text(f"step 1 loss 2.0\n{MESSAGE}\n")
    said = cli("memory", "plan", "--log", path, "--config", config)
    assert said.code == 0
    assert "together" in said.out
    assert "the arguments do not describe the program" in said.out
    assert not [words for words in ("calibrated", "proposal", "ways out", "stay free", "taken to need") if words in said.out]


SCRIPT = """#!/bin/bash
MICRO=4
ARGS="--model_name_or_path meta-llama/Llama-3.1-8B --per_device_train_batch_size $MICRO --gradient_accumulation_steps 2 --bf16"
[ -d /no/such/folder ] && torchrun --nproc_per_node 8 train.py $ARGS --max_length 4096
echo "{message}"
exit 1
"""


def test_a_job_gives_its_log_and_the_arguments_of_its_script(cli: Run, store_path: Path, home: Path) -> None:
    scheduler = LocalScheduler(store_path.parent / "local", SystemClock())
    job = scheduler.submit(JobSpec("sft", SCRIPT.replace("{message}", MESSAGE), work_dir=home))
    for _ in range(100):
        if scheduler.job(job).state.ended:
            break
        time.sleep(0.1)
    (made,) = cli("memory", "plan", "--job", job, "--json").objects
    assert made["problem"]["rank"] == 3
    assert made["run"]["setup"]["micro_batch"] == 4
    assert made["run"]["setup"]["layout"]["data"] == 8
    changes = {argument["name"]: argument["new"] for argument in made["proposal"]["arguments"]}
    assert changes["--per_device_train_batch_size"] in ("1", "2")
    assert scheduler.job(job).state.ended, "nothing was submitted or changed"
    assert len(scheduler.jobs()) == 1


def test_a_job_that_nobody_knows_leaves_no_store_and_no_cluster(cli: Run, store_path: Path, home: Path) -> None:
    before = sorted(path.relative_to(home) for path in home.rglob("*"))
    said = cli("memory", "plan", "--job", "77")
    assert said.code == Exit.ERROR
    assert "77" in said.err
    assert not store_path.exists()
    assert not (store_path.parent / "local").exists()
    assert sorted(path.relative_to(home) for path in home.rglob("*")) == before


def test_standard_input_is_a_log(cli: Run, log: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "assistant", "memory", "plan", "--log", "-"], input=log.read_text(),
        capture_output=True, text=True, check=False
    )  # fmt: skip
    assert (done.returncode, "stdin:22" in done.stdout) == (0, True)


def test_a_log_without_a_shortage(cli: Run, tmp_path: Path) -> None:
    path = tmp_path / "fine.log"
    path.write_text("step 1 loss 2.0\ndone\n")
    said = cli("memory", "plan", "--log", path)
    assert said.code == 0
    assert "none shows" in said.out


def test_a_file_that_is_no_configuration_is_said(cli: Run, tmp_path: Path) -> None:
    config = tmp_path / "run.json"
    config.write_text('{"a":')
    said = cli("memory", "plan", "--config", config)
    assert (said.code, "holds no settings" in said.err) == (Exit.USAGE, True)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ((), "--log FILE, --job ID, --config FILE or --command"),
        (("--log", "/nowhere.log"), "nowhere.log"),
        (("--config", "/nowhere.toml"), "nowhere.toml"),
        (("--command", " "), "command line"),
        (("--command", "echo 'unclosed"), "a quote that is not closed"),
        (("--command", "rm -rf /"), "no Python program"),
        (("--command", "python t.py", "--gpu-memory", "-3"), "--gpu-memory"),
        (("--command", "python t.py", "--gpu-memory", "nan"), "--gpu-memory"),
        (("--command", "python t.py", "--gpus", "-1"), "--gpus"),
        (("--job", "none-such"), "none-such"),
    ],
)
def test_what_cannot_be_is_said_in_one_line(cli: Run, words: tuple[str, ...], message: str) -> None:
    said = cli("memory", "plan", *words)
    assert said.code in (Exit.USAGE, Exit.ERROR)
    assert message in said.err
    assert said.err.count("\n") == 1


def test_secrets_and_control_characters_of_a_log_are_not_shown(cli: Run, tmp_path: Path) -> None:
    path = tmp_path / "job.log"
    secret = "hf_" + "aB3dE5gH7jK9mN1pQ3sT5vX7zA9cD1fG"
    path.write_text(f"{ARGUMENTS}\n--hub-token {secret}\n{MESSAGE} token={secret} \x1b[31mred\x07\u202e\n")
    for words in ((), ("--json",)):
        said = cli("memory", "plan", "--log", path, *words)
        assert said.code == 0
        assert secret not in said.out
        assert not {"\x1b", "\x07", "\u202e"} & set(said.out)


HOSTILE = (
    "num_layers ........ 99999999999999999999999999",
    "--num-layers 9999999999 --hidden-size 99999999999 --num-attention-heads 1 --seq-length 99999999999 --micro-batch-size "
    "99999999999",
    "--num-layers 1 --hidden-size 1 --num-attention-heads 7 --seq-length 1 --micro-batch-size 1 --tensor-model-parallel-size "
    "999999",
    "--num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 8 --micro-batch-size 1 "
    "--pipeline-model-parallel-size 900",
    "--micro-batch-size 720720 --num-layers 2 --hidden-size 64 --num-attention-heads 4 --seq-length 8 --global-batch-size 1",
    "CUDA out of memory. Tried to allocate 9..9.9 GiB (GPU 0; 1.2.3 GiB total capacity; 0 GiB already allocated; 1 GiB free",
    "a" * 100_000,
    "RESOURCE_EXHAUSTED: " + "(" * 5_000,
    "{'" * 4_000,
    "\x00\x01binary",
)


@pytest.mark.parametrize("text", HOSTILE, ids=lambda text: text[:30])
def test_a_hostile_log_neither_crashes_nor_holds_up(cli: Run, tmp_path: Path, text: str) -> None:
    path = tmp_path / "job.log"
    path.write_text(f"start\n{text}\n{MESSAGE}\n")
    begin = time.process_time()
    said = cli("memory", "plan", "--log", path)
    assert said.code in (Exit.DONE, Exit.USAGE)
    assert "bug" not in said.err
    assert time.process_time() - begin < 5


def test_help_and_other_commands_load_no_plan(home: Path) -> None:
    program = "import sys\nfrom assistant.cli.main import main\ncode = main(sys.argv[1:])\nprint(*sys.modules, file=sys.stderr)"
    for words in ("--help", "incidents", "memory --help"):
        done = subprocess.run([sys.executable, "-c", program, *words.split()], capture_output=True, text=True, check=True)
        assert not [name for name in done.stderr.split() if name.startswith("assistant.memory_plan")]
