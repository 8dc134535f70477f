"""Which files are logs of an attempt, and which of their lines are its own."""

from __future__ import annotations

import os
import struct
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as some

from assistant.content.reading import read_toml
from assistant.logs.attempt import LogFileState, job_logs, names_job, surroundings_of
from assistant.logs.combined import combine
from assistant.logs.declared import Declared, declared_logs, shown_pattern
from assistant.logs.program_logs import event_points, metric_file_points
from assistant.logs.tail import LogMark
from assistant.records import JobState
from tests.unit.logged_job import START, job_in, write

CASES = read_toml(Path(__file__).parents[1] / "cases/job_logs/scripts.toml")["case"]


def declared(script: str) -> Declared:
    around = surroundings_of(job_in(Path("/w"), script))
    variables = {**around.variables, "HOME": "/home/ada"}
    script = script if script.startswith("#!") else f"#!/bin/bash\n{script}\n"
    return declared_logs(script, replace(around, variables=variables))


@pytest.mark.parametrize("case", CASES, ids=[" ".join(case["script"].split())[:60] for case in CASES])
def test_the_logs_that_a_script_names(case: dict[str, object]) -> None:
    found = declared(str(case["script"]))
    assert [shown_pattern(one.path) + "+" * one.append for one in found.patterns] == case["logs"]
    assert len(found.problems) == case.get("unknown", 0)
    assert list(found.called) == case.get("called", [])
    assert bool(found.nowhere) == case.get("nowhere", False)


@given(some.text(alphabet="ab$(){}[]'\"`\\<>&|;#\n \t=~*-/0124%", max_size=80))
def test_no_text_breaks_the_reader_of_scripts(text: str) -> None:
    for pattern in declared(text).patterns:
        assert pattern.path.startswith("/")


def test_a_script_of_many_brackets_is_read_in_no_time() -> None:
    for text in ("$(" * 20_000, "${a:-" * 20_000, "(" * 50_000, "<<A\n" * 20_000, "x=$y$y$y$y\n" * 5_000, "a='" * 20_000):
        declared(text)


def test_a_waiting_job_has_no_lines_whatever_lies_there(tmp_path: Path) -> None:
    write(tmp_path / "train.log", "step 45 loss 2\n")
    logs = job_logs(job_in(tmp_path, log=tmp_path / "train.log", state=JobState.PENDING, started=None))
    assert [file.state for file in logs.files] == [LogFileState.EARLIER]
    assert "has not begun" in logs.none_because()


def test_a_file_that_was_not_written_since_the_start_is_an_earlier_jobs(tmp_path: Path) -> None:
    log = write(tmp_path / "train.log", "step 45 loss 2\n", START - timedelta(seconds=1))
    job = job_in(tmp_path, log=log)
    assert job_logs(job).files[0].state is LogFileState.EARLIER
    write(log, "step 1 loss 3\n", START)
    assert job_logs(job).files[0].state is LogFileState.READABLE
    # written long after the job has ended: the next one writes there now
    ended = replace(job, state=JobState.FAILED, ended=START + timedelta(seconds=5))
    write(log, "step 1 loss 3\n", START + timedelta(hours=1))
    assert job_logs(ended).files[0].state is LogFileState.EARLIER


def test_of_an_appended_file_what_stood_before_is_left_out_or_nothing_is_sure(tmp_path: Path) -> None:
    log = write(tmp_path / "train.log", "step 45 loss 2\nstep 1 loss 3\n")
    job = job_in(tmp_path, log=log, appends=True)
    assert [(file.begin, file.sure) for file in job_logs(job).readable] == [(0, False)]
    mark = LogMark(str(log), log.stat().st_ino, len("step 45 loss 2\n"), START - timedelta(minutes=5))
    assert [(file.begin, file.sure) for file in job_logs(job, marks=[mark]).readable] == [(15, True)]
    late = replace(mark, at=START + timedelta(minutes=5))
    assert [file.sure for file in job_logs(job, marks=[late]).readable] == [False]
    other = replace(mark, inode=mark.inode + 1)
    assert [file.sure for file in job_logs(job, marks=[other]).readable] == [False]
    whole = replace(mark, size_bytes=log.stat().st_size)
    assert job_logs(job, marks=[whole]).files[0].state is LogFileState.EARLIER


def test_what_ended_the_attempt_before_is_left_out_although_the_last_look_was_before_it(tmp_path: Path) -> None:
    first, ended_at = "step 45 loss 2\n", START - timedelta(seconds=20)
    end = "srun: error: Node failure on gpu001\nslurmstepd: error: *** JOB 812 ON gpu001 CANCELLED AT {} DUE TO NODE FAILURE ***\n"
    before = end.format(f"{ended_at.astimezone():%Y-%m-%dT%H:%M:%S}")
    log = write(tmp_path / "train.log", f"{first}{before}ValueError: it is torn\n")
    job = job_in(tmp_path, log=log, appends=True, attempt=1)
    mark = LogMark(str(log), log.stat().st_ino, len(first), START - timedelta(minutes=5))
    assert [(file.begin, file.sure) for file in job_logs(job, marks=[mark]).readable] == [(len(first + before), True)]
    # the end of the attempt itself takes nothing away from it
    own = end.format(f"{(START + timedelta(minutes=2)).astimezone():%Y-%m-%dT%H:%M:%S}")
    write(log, f"{first}ValueError: it is torn\n{own}")
    assert [file.begin for file in job_logs(job, marks=[mark]).readable] == [len(first)]


def test_ranks_are_found_by_their_names_and_strangers_files_are_not(tmp_path: Path) -> None:
    job = job_in(tmp_path, "srun --output=r_%j_%t.log x")
    for rank in (0, 1, 10):
        write(tmp_path / f"r_812_{rank}.log", "x\n")
    write(tmp_path / "r_813_0.log", "x\n")
    write(tmp_path / "r_812_x.log", "x\n")
    write(tmp_path / "r_812_7.log", "x\n", START - timedelta(days=1))
    found = [(file.path.name, file.rank) for file in job_logs(job).readable]
    # the id is in the name, so an old time is no reason to leave a file out
    assert found == [("r_812_0.log", 0), ("r_812_1.log", 1), ("r_812_7.log", 7), ("r_812_10.log", 10)]


def test_of_several_files_that_fit_an_unknown_name_none_is_taken(tmp_path: Path) -> None:
    job = job_in(tmp_path, "python t.py > run_$(date +%s).log")
    write(tmp_path / "run_1.log", "x\n")
    assert [file.path.name for file in job_logs(job).readable] == ["run_1.log"]
    write(tmp_path / "run_2.log", "x\n")
    logs = job_logs(job)
    assert not logs.readable
    assert LogFileState.AMBIGUOUS in {file.state for file in logs.files}


def test_the_log_of_every_rank_of_a_large_job_is_bounded_and_told(tmp_path: Path) -> None:
    job = job_in(tmp_path, "srun --output=r_%j_%t.log x")
    for rank in range(300):
        write(tmp_path / f"r_812_{rank}.log", "x\n")
    logs = job_logs(job)
    assert len(logs.files) == 256
    assert any("more log files are not read" in problem for problem in logs.problems)


def test_a_link_a_pipe_and_a_folder_are_no_logs(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe.log")
    (tmp_path / "folder.log").mkdir()
    (tmp_path / "dead.log").symlink_to(tmp_path / "nowhere")
    logs = job_logs(job_in(tmp_path, "a > pipe.log\nb > folder.log\nc > dead.log", log=None))
    assert {file.path.name: str(file.state) for file in logs.files} == {
        "pipe.log": "unreadable",
        "folder.log": "unreadable",
        "dead.log": "missing",
    }


def test_an_error_in_one_ranks_file_stands_behind_the_steps_of_all(tmp_path: Path) -> None:
    job = job_in(tmp_path, "srun --output=r_%j_%t.log x", log=None)
    steps = "".join(f"step {step} loss 2.5\n" for step in range(1, 6))
    write(tmp_path / "r_812_0.log", steps + "waiting\n", START + timedelta(minutes=9))
    write(tmp_path / "r_812_1.log", steps + "Traceback\nValueError: x\n", START + timedelta(minutes=2))
    both = combine(job_logs(job).readable)
    lines = both.text.decode().splitlines()
    assert lines[-3:] == ["1: Traceback", "1: ValueError: x", "0: waiting"]
    at = lines.index("1: ValueError: x") + 1
    assert (both.place(at), both.label_of(at), both.line_of("r_812_1.log", 7)) == (("r_812_1.log", 7), "1: ", at)


def test_lines_with_times_are_put_in_order_over_all_files(tmp_path: Path) -> None:
    job = job_in(tmp_path, "srun --output=r_%j_%t.log x", log=None)
    write(tmp_path / "r_812_0.log", "2026-03-01 12:00:01 a\n2026-03-01 12:00:05 c\n  more of c\n")
    write(tmp_path / "r_812_1.log", "2026-03-01 12:00:03 b\n")
    text = combine(job_logs(job).readable).text.decode()
    assert [line[-1] for line in text.splitlines()] == ["a", "b", "c", "c"]


def test_a_long_file_is_cut_in_its_middle_and_keeps_its_numbers(tmp_path: Path) -> None:
    log = write(tmp_path / "slurm-812.out", "".join(f"line {number} {'x' * 90}\n" for number in range(1, 20_001)))
    both = combine(job_logs(job_in(tmp_path)).readable, most_bytes=200_000)
    lines = both.text.decode().splitlines()
    assert len(both.text) < 210_000 < log.stat().st_size
    for place in (0, 100, len(lines) - 100, len(lines) - 1):
        assert lines[place].startswith(f"line {both.place(place + 1)[1]} ")


def test_a_binary_file_is_left_out_and_named(tmp_path: Path) -> None:
    job = job_in(tmp_path, "python t.py > t.log")
    write(tmp_path / "slurm-812.out", "fine\n")
    (tmp_path / "t.log").write_bytes(bytes(range(256)) * 50)
    os.utime(tmp_path / "t.log", (START.timestamp() + 5,) * 2)
    both = combine(job_logs(job).readable)
    assert both.text == b"fine\n"
    assert "binary" in both.unread[0]


def scalar(step: int, tag: str, value: float) -> bytes:
    summary = b"\x0a" + bytes([len(tag)]) + tag.encode() + b"\x15" + struct.pack("<f", value)
    event = b"\x09" + struct.pack("<d", 1.77e9 + step) + b"\x10" + bytes([step])
    event += b"\x2a" + bytes([len(summary) + 2]) + b"\x0a" + bytes([len(summary)]) + summary
    return struct.pack("<Q", len(event)) + b"\0" * 4 + event + b"\0" * 4


EVENTS = b"".join(scalar(step, tag, step / 10) for step in (1, 2, 3) for tag in ("train/loss", "train/grad_norm", "eval/loss"))


def test_event_files_give_step_loss_and_norm_whole_or_cut_short() -> None:
    points = event_points(EVENTS)
    assert [(point.step, round(point.loss or 0, 3), round(point.grad_norm or 0, 3)) for point in points] == [
        (1, 0.1, 0.1),
        (2, 0.2, 0.2),
        (3, 0.3, 0.3),
    ]
    for cut in range(len(EVENTS)):
        assert len(event_points(EVENTS[:cut])) <= 3


@given(some.binary(max_size=200))
def test_no_bytes_break_the_reader_of_event_files(raw: bytes) -> None:
    event_points(raw)
    event_points(struct.pack("<Q", len(raw)) + b"\0" * 4 + raw + b"\0" * 4)


def test_metrics_of_another_time_node_or_job_are_not_taken(tmp_path: Path) -> None:
    job = job_in(tmp_path)
    begun = int(START.timestamp()) + 2

    def event_file(name: str) -> Path:
        path = tmp_path / "runs/x" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(EVENTS)
        return path

    event_file(f"events.out.tfevents.{begun - 900}.gpu001.1.0")
    event_file(f"events.out.tfevents.{begun}.gpu009.1.0")
    assert metric_file_points(job)[1] is None
    own = event_file(f"events.out.tfevents.{begun}.gpu002.1.0")
    points, file = metric_file_points(job)
    assert ([point.step for point in points], file and file.path) == ([1, 2, 3], own)


def test_the_summary_of_a_wandb_run_gives_the_last_step_of_its_own_job(tmp_path: Path) -> None:
    folder = tmp_path / "wandb/run-20260301_120005-abc/files"
    write(folder / "wandb-summary.json", '{"train/loss": 1.5, "train/global_step": 400, "_step": 40, "eval/loss": 9}')
    points, _ = metric_file_points(job_in(tmp_path))
    assert [(point.step, point.loss) for point in points] == [(400, 1.5)]
    write(folder / "wandb-metadata.json", '{"slurm": {"job_id": "999"}}')
    assert metric_file_points(job_in(tmp_path))[0] == []


# Console output that wandb keeps


def wandb_run(folder: Path, name: str, text: str, metadata: str = "", at: datetime = START + timedelta(minutes=1)) -> Path:
    files = folder / "wandb" / f"run-20260301_120100-{name}" / "files"
    if metadata:
        write(files / "wandb-metadata.json", metadata, at)
    return write(files / "output.log", text, at)


OWN_RUN = '{"host": "gpu001", "slurm": {"job_id": "812"}}'


def test_the_console_output_of_a_run_is_read_where_no_other_log_has_its_lines(tmp_path: Path) -> None:
    kept = wandb_run(tmp_path, "aa", "loading\nstep 1 loss 2\nTraceback (most recent call last):\nMemoryError\n", OWN_RUN)
    other = wandb_run(tmp_path, "bb", "step 1 loss 9\n", '{"slurm": {"job_id": "813"}}')
    job = job_in(tmp_path, "python3 train.py >/dev/null 2>&1")
    for text in ("", "module load cuda\n"):
        write(tmp_path / "slurm-812.out", text)
        found = {file.path: file for file in job_logs(job).readable}
        assert kept in found
        assert found[kept].sure
        assert found[kept].how == "console output that wandb keeps"
        assert other not in found
    write(tmp_path / "slurm-812.out", "epoch\nstep 1 loss 2\nTraceback (most recent call last):\nMemoryError\nslurmstepd: error\n")
    assert [file.path.name for file in job_logs(job).readable] == ["slurm-812.out"]


def test_of_console_outputs_that_name_no_job_only_a_single_one_is_read_and_proves_nothing(tmp_path: Path) -> None:
    job = job_in(tmp_path)
    wandb_run(tmp_path, "old", "step 1\n", at=START - timedelta(days=1))
    wandb_run(tmp_path, "host", "step 1\n", '{"host": "gpu999"}')
    first = wandb_run(tmp_path, "aa", "step 1\n", '{"host": "gpu002.cluster"}')
    (file,) = job_logs(job).readable
    assert (file.path, file.sure) == (first, False)
    wandb_run(tmp_path, "bb", "step 1\n")
    assert not job_logs(job).readable


@pytest.mark.parametrize(
    ("path", "own"),
    [
        ("/w/slurm-2.out", True),
        ("/w/logs/fit_2.log", True),
        ("/w/2/train.log", True),
        ("/w/job0002.err", True),
        ("/w/fit.o2", True),
        ("/w/runs/moe4/rank2.log", False),
        ("/w/node2/step2.log", False),
        ("/w/v2/train.log", False),
        ("/w/slurm-12.out", False),
    ],
)
def test_a_number_behind_the_word_for_something_else_is_no_job(path: str, own: bool, tmp_path: Path) -> None:
    assert names_job(path, job_in(tmp_path, id="2", raw_id="2")) is own


OWN = "12:00:{:02d},5 step {} loss nan\n"


@pytest.mark.parametrize(
    ("zone_h", "texts", "own"),
    [
        (
            0,
            [
                "11:57:00,1 step 350 loss nan\n",
                "warning\n",
                "11:58:00,2 step 395 loss nan\n",
                *map(OWN.format, (9, 20), (330, 335)),
            ],
            3,
        ),
        (9, ["11:58:00,2 step 395 loss nan\n", "12:00:30,5 step 330 loss nan\n"], 1),
        (0, ["11:58:00,2 step 395 loss nan\n", "12:00:30,5 step 330 loss 1\n", "11:58:01,2 step 400 loss 1\n"], 0),  # two writers
        (0, ["step 395 loss nan\n", "step 330 loss nan\n"], 0),
        (0, ["12:00:20,5 step 330 loss 1\n", "12:00:30,5 step 335 loss 1\n"], 0),
    ],
)
def test_lines_that_the_attempt_before_wrote_behind_the_mark_are_known_by_their_dates(
    zone_h: int, texts: list[str], own: int, tmp_path: Path
) -> None:
    def dated(text: str) -> str:
        if not text[:1].isdigit():
            return text
        at = datetime.fromisoformat(f"{START:%Y-%m-%d} {text[:8]}") + timedelta(hours=zone_h)
        return f"{at:%Y-%m-%d %H:%M:%S}{text[8:]}"

    job = job_in(tmp_path, log=tmp_path / "train.log", appends=True)
    first = "step 300 loss 1\n"
    log = write(tmp_path / "train.log", first + "".join(map(dated, texts)), START + timedelta(seconds=31))
    mark = LogMark(str(log), log.stat().st_ino, len(first), START - timedelta(minutes=5))
    (file,) = job_logs(job, marks=[mark]).readable
    assert log.read_text()[file.begin :] == "".join(map(dated, texts[own:]))
