"""What failed behind the end of a training is told as that, and a training whose end may be lost is not called over."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

import pytest

from assistant.diagnose.case import Case
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.verdict import diagnose
from assistant.records import Job, JobState

CASES = Path(__file__).parents[1] / "cases" / "diagnose"


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    return Knowledge.load()


@pytest.mark.parametrize(
    ("case", "tail", "words"),
    [
        ("permission_error/upload_refused_behind_training", "upload", ("refuses the account", "The namespace is ines.")),
        ("os_error/export_behind_training", "export", ("its result lies at /out/llama-sft/model.safetensors (job.log:4)",)),
        ("file_not_found_error/plot_behind_training", "report", ("its result lies at runs/r1/final.pt",)),
        ("os_error/final_save_full", "", ()),
        ("nccl_timeout_error/final_save", "", ()),
        ("connection_error/second_stage_behind_training", "", ()),
    ],
)
def test_only_what_comes_behind_a_training_is_called_its_tail(
    case: str, tail: str, words: tuple[str, ...], knowledge: Knowledge
) -> None:
    found = diagnose(Case.from_path(CASES / case), knowledge)
    assert found.tail == tail
    assert all(word in found.summary + found.advice for word in words), found.summary
    assert found.summary.startswith("The training is over") is bool(tail)
    assert ("Do not start the training again" in found.advice) is bool(tail)
    assert not tail or "Restart" not in found.advice


def test_a_failed_copy_behind_the_training_is_told_where_the_scheduler_saw_the_job_fail(
    tmp_path: Path, knowledge: Knowledge
) -> None:
    log = tmp_path / "job.log"
    log.write_text(
        "step 999/1000 loss 2.0\nstep 1000/1000 loss 2.0\nsaved checkpoint to /scratch/a/step_1000.pt\nTraining complete.\n"
        'rsync: [receiver] mkstemp "/archive/a/x" failed: Disk quota exceeded (122)\nrsync error: error in file IO (code 11)\n'
    )
    at = datetime(2026, 3, 1, tzinfo=UTC)
    job = Job("7", "llm", "ada", JobState.FAILED, "p", (), log, tmp_path, at, at, at, 11, None)
    found = diagnose(Case.from_parts(log, "", "", None, job, None), knowledge)
    assert (found.reason, found.tail, found.action) == ("os_error", "upload", "fix_and_resubmit"), found.summary
    assert "its result lies at /scratch/a/step_1000.pt" in found.summary


STEPS = "".join(f"step {number} | loss {4 - number / 100:.4f}\n" for number in range(1, 41))
UPLOAD = (
    'Traceback (most recent call last):\n  File "/w/t.py", line 9, in <module>\n    upload(x)\n'
    "ConnectionError: HTTPSConnectionPool(host='store.lab', port=443): Max retries exceeded with url: /put\n"
)


@pytest.mark.parametrize(
    ("log", "tail"),
    [
        (f"epoch 1/3\n{STEPS}epoch 1/3 training finished in 12 s\nepoch 2/3\n{STEPS}", ""),
        (f"fold 1\n{STEPS}Training finished.\nfold 2\n{STEPS}Training finished.\n", ""),  # one round of several
        (f"{STEPS}Training finished.\n{STEPS}", ""),
        (f"{STEPS}[rank0] Training finished.\n[rank1] Training finished.\n", "upload"),
        (f"{STEPS}epoch 3/3 training finished in 12 s\n", "upload"),
    ],
)
def test_the_end_of_an_epoch_or_of_a_round_is_not_the_end_of_the_training(
    log: str, tail: str, tmp_path: Path, knowledge: Knowledge
) -> None:
    (tmp_path / "job.log").write_text(log + UPLOAD)
    found = diagnose(Case.from_path(tmp_path), knowledge)
    assert (found.reason, found.tail) == ("connection_error", tail), found.summary


BEHIND = "Saving model checkpoint to out/checkpoint-40\n{'train_runtime': 812.4}\n"
WORKER = (
    "ERROR:composer.loggers.remote_uploader_downloader:Failed to upload a.pt\nTraceback (most recent call last):\n"
    '  File "/e/lib/python3.11/site-packages/composer/loggers/remote_uploader_downloader.py", line 566, in _upload_worker\n'
    "    remote_backend.upload_object(object_name=name)\n"
    'botocore.exceptions.EndpointConnectionError: Could not connect to the endpoint URL: "http://minio.lab:9000/a/a.pt"\n'
    "The above exception was the direct cause of the following exception:\nRuntimeError: Worker was unable to upload a.pt\n"
)


@pytest.mark.parametrize(
    ("log", "tail"), [(f"{STEPS}{BEHIND}{WORKER}", "upload"), (f"{STEPS}saved checkpoint to a.pt\n{WORKER}", "")]
)
def test_what_a_worker_of_a_library_says_last_tells_of_an_upload(log: str, tail: str, tmp_path: Path, knowledge: Knowledge) -> None:
    (tmp_path / "job.log").write_text(log)
    found = diagnose(Case.from_path(tmp_path), knowledge)
    assert (found.reason, found.tail) == ("s3_storage_error", tail), found.summary
    assert ("minio.lab:9000" in found.summary, "out/checkpoint-40" in found.summary) == (True, bool(tail))


TORN = 'Traceback (most recent call last):\n  File "/w/d.py", line 9, in __iter__\n    f.read()\n{}\n'


@pytest.mark.parametrize(
    ("reads", "error", "named"),
    [
        ("INFO opening /data/pile/en_0017.jsonl.zst", "zstd.ZstdError: zstd decompress error: Data corruption detected", "en_0017"),
        (
            "Loading data shard data/c4/part-00002.json.gz",
            "EOFError: Compressed file ended before the end-of-stream marker was reached",
            "part-00002",
        ),
        (
            "Loading checkpoint shards:  53%|#####     | 16/30",
            "safetensors_rust.SafetensorError: incomplete metadata, file not covered",
            "",
        ),
        (
            "loading weights of meta-llama/Llama-3.1-70B",
            "safetensors_rust.SafetensorError: incomplete metadata, file not covered",
            "",
        ),
        ("Saving model to /o/model.bin", "safetensors_rust.SafetensorError: incomplete metadata, file not covered", ""),
    ],
)
def test_the_last_file_that_a_loader_read_is_named(
    reads: str, error: str, named: str, tmp_path: Path, knowledge: Knowledge
) -> None:
    (tmp_path / "job.log").write_text(f"{reads}\n{STEPS[:600]}\n{TORN.format(error)}")
    found = diagnose(Case.from_path(tmp_path), knowledge)
    assert found.reason in ("dataset_loading_error", "model_loading_error"), found.summary
    assert ("The last file that the log says it read is" in found.summary) is bool(named)
    assert named in found.summary
