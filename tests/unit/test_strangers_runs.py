"""Jobs that know nothing of Nightshift: whose checkpoints lie where, which branch of a script a restart takes, how far it came."""

from __future__ import annotations

import json
import os
import tomllib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assistant.diagnose.readers.progress import read_progress
from assistant.engine.outcomes.restart_verdict import verified_end
from assistant.logs.lines import Line
from assistant.logs.metrics import metric_points
from assistant.records import EventKind, IncidentState, Job, JobSpec, JobState, MetricPoint
from assistant.recover.batch_script import launches_of
from assistant.recover.checkpoints.inventory import inventory
from assistant.recover.checkpoints.place import checkpoint_place
from assistant.recover.checkpoints.search import SaveState, search_checkpoints
from assistant.recover.comparison import training_end
from assistant.recover.job_program import programs_now, programs_of
from assistant.recover.joblog import TAIL_BYTES, log_points, whole_lines
from assistant.recover.loaded import loaded_checkpoint
from assistant.recover.playbook import Ended
from assistant.recover.resume.means import ResumeMeans, ResumeWay
from assistant.recover.resume.plan import resume_plan
from assistant.recover.resume.script import resume_way
from assistant.recover.verify import Look, progress_seen
from assistant.untrusted import FileEnd, read_end_from

BEGAN = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)
ENDED = BEGAN + timedelta(hours=1)
SHARED: list[dict[str, Any]] = tomllib.loads(
    (Path(__file__).parents[1] / "cases" / "checkpoints" / "shared_folders.toml").read_text("utf-8")
)["case"]


def job(folder: Path, script: str) -> Job:
    """A failed job of this account that ran for an hour."""
    spec = JobSpec("llm", f"#!/bin/bash\n{script}\n", work_dir=folder)
    return Job("7", "llm", "", JobState.FAILED, "train", ("n1",), None, folder, BEGAN, BEGAN, ENDED, 1, None, spec=spec)


def saved(folder: Path, name: str, minutes: float, history: list[list[float]] | None = None) -> None:
    """Write a checkpoint that was changed so many minutes after the job began; with a history a folder of Hugging Face's."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / name
    files = {path: b"\x80" + bytes(9000)}
    if name.startswith("checkpoint-"):
        path.mkdir()
        rows = [{"step": step, "loss": loss} for step, loss in history or ()]
        state = json.dumps({"global_step": int(name.removeprefix("checkpoint-")), "log_history": rows})
        files = {path / "model.safetensors": b"\x02" + bytes(7) + b"{}", path / "trainer_state.json": state.encode()}
    at = (BEGAN + timedelta(minutes=minutes)).timestamp()
    for file, content in files.items():
        file.write_bytes(content)
        os.utime(file, (at, at))


def test_the_checkpoints_of_a_run_beside_it_are_not_a_jobs_own(tmp_path: Path) -> None:
    saved(tmp_path / "outputs/2026-03-10/12-00-01-lr0.001", "checkpoint_000030.pt", 50)
    saved(tmp_path / "outputs/2026-03-10/12-00-04-lr0.003", "checkpoint_000080.pt", 59)
    shown = job(tmp_path, "python train.py")
    log = ["step=34 train/loss=1.2", "saved checkpoint_000030.pt"]
    found = search_checkpoints(shown, {}, log, now=ENDED)
    assert found.place is not None
    assert found.place.folder.name == "12-00-01-lr0.001", "its log names the newest one of that folder"
    silent = search_checkpoints(shown, {}, ["step=34 train/loss=1.2"], now=ENDED)
    assert (silent.state, silent.inventory) == (SaveState.UNKNOWN, None)
    assert "of several runs" in silent.note
    assert "12-00-01-lr0.001" in silent.note


@pytest.mark.parametrize("case", SHARED, ids=lambda case: case["name"])
def test_of_a_folder_of_several_runs_only_the_jobs_own_count(case: dict[str, Any], tmp_path: Path) -> None:
    for name, minutes in case["files"]:
        saved(tmp_path / "ckpt", name, minutes, case.get("histories", {}).get(name))
    shown = replace(job(tmp_path, f"#NIGHTSHIFT checkpoints={tmp_path}/ckpt\npython train.py"), attempt=case.get("attempt", 0))
    assert shown.spec is not None
    shown = replace(shown, spec=replace(shown.spec, environment={"NIGHTSHIFT_RESUME_FROM": case.get("from", "")}))
    search = search_checkpoints(shown, {}, case["log"], now=ENDED)
    if "asks" in case:
        assert (search.state, search.inventory) == (SaveState.UNKNOWN, None)
        assert case["asks"] in search.note
        return
    assert search.inventory is not None
    assert search.inventory.checkpoints[-1].path.name == case["chosen"]
    assert len(search.inventory.foreign) == case["left"]
    assert [one.path for one in search.inventory.entries] == [one.path for one in search.inventory.checkpoints]
    if "refused" in case:
        plan = resume_plan(ResumeWay(ResumeMeans.NEWEST, "max(glob)"), search.inventory, search.inventory.checkpoints[-1])
        assert (bool(plan.refusal), plan.set_aside) == (case["refused"], ())
        assert case.get("why", "") in plan.refusal


@pytest.mark.parametrize(
    ("way", "refused"),
    [
        (ResumeWay(ResumeMeans.ARGUMENT, "--resume"), False),
        (ResumeWay(ResumeMeans.NEWEST, "max(glob)"), True),
        (ResumeWay(ResumeMeans.NEWEST, "max(glob)", prefix="deep"), False),
        (ResumeWay(ResumeMeans.NEWEST, "max(glob)", picks=("ckpt/wide_step80.pt",)), True),
        (ResumeWay(ResumeMeans.TRACKER, "--load"), True),
    ],
)
def test_another_runs_checkpoint_is_neither_loaded_nor_moved(way: ResumeWay, refused: bool, tmp_path: Path) -> None:
    for name, minutes in (("deep_step40.pt", 30), ("deep_step60.pt", 40), ("wide_step80.pt", 50)):
        saved(tmp_path / "ckpt", name, minutes)
    shown = job(tmp_path, f"#NIGHTSHIFT checkpoints={tmp_path}/ckpt\npython train.py")
    held = search_checkpoints(shown, {}, ["saved deep_step60.pt"], now=ENDED).inventory
    assert held is not None
    plan = resume_plan(way, held, held.checkpoints[-1])
    assert (bool(plan.refusal), plan.set_aside) == (refused, ())


def test_a_run_that_was_still_saving_after_a_job_had_ended_is_not_its_own(tmp_path: Path) -> None:
    saved(tmp_path / "runs/a/checkpoints", "step_30.pt", 50)
    saved(tmp_path / "runs/b/checkpoints", "step_90.pt", 70)
    found = search_checkpoints(job(tmp_path, "python train.py"), {}, [], now=ENDED + timedelta(hours=1))
    assert found.place is not None
    assert found.place.folder == tmp_path / "runs/a/checkpoints"


def test_several_folders_of_one_run_are_one_run(tmp_path: Path) -> None:
    saved(tmp_path / "runs/a/best", "step_20.pt", 40)
    saved(tmp_path / "runs/a/last", "step_30.pt", 50)
    found = search_checkpoints(job(tmp_path, "python train.py"), {}, [], now=ENDED)
    assert found.place is not None
    assert found.place.folder == tmp_path / "runs/a/last"


def test_two_saves_that_were_cut_short_do_not_excuse_each_other(tmp_path: Path) -> None:
    ranks = {10: (0, 1), 20: (0, 1), 30: (0, 1), 40: (0,), 50: (1,)}
    for step, written in ranks.items():
        for rank in written:
            saved(tmp_path / f"step_{step}", f"model_rank_{rank}.pt", step)
    healthy = {one.step: one.healthy for one in inventory(tmp_path, now=ENDED).checkpoints}
    assert healthy == {10: True, 20: True, 30: True, 40: False, 50: False}
    for step in (40, 50, 60):
        for path in tmp_path.glob(f"step_{step}/*"):
            path.unlink()
        saved(tmp_path / f"step_{step}", "model_rank_0.pt", step)
    assert all(one.healthy for one in inventory(tmp_path, now=ENDED).checkpoints), "it went on with fewer ranks"


SCRIPT = """
OUT=out
if [ -f "$OUT/ckpt.pt" ]; then
    INIT=resume
    echo "found $OUT/ckpt.pt"
else
    INIT=scratch
fi
python train.py --out_dir=$OUT --init_from=$INIT
"""


def test_a_script_that_asks_for_its_checkpoint_resumes_while_it_is_there(tmp_path: Path) -> None:
    (tmp_path / "train.py").write_text("init_from = 'scratch'\nout_dir = 'out'\n")
    shown = job(tmp_path, SCRIPT)
    before = programs_of(shown)
    assert resume_way(shown, programs_now(shown, before)).means is ResumeMeans.NONE
    saved(tmp_path / "out", "ckpt.pt", 50)
    assert resume_way(shown, programs_now(shown, before)).means is ResumeMeans.NEWEST


@pytest.mark.parametrize(
    ("test", "runs"),
    [
        ("[ -f here ]", ["yes"]),
        ("[ -f gone ]", ["no"]),
        ("[[ -d folder ]]", ["yes"]),
        ("test ! -e gone", ["yes"]),
        ("! [ -f here ]", ["no"]),
        ('[ -f here ] && [ -n "$X" ]', ["yes", "no"]),
        ('[ -f "$(ls | tail -1)" ]', ["yes", "no"]),
        ('[ -z "$X" ]', ["yes", "no"]),
        ("ls *.pt", ["yes", "no"]),
        ("[ -f *.pt ]", ["yes", "no"]),
    ],
)
def test_an_if_is_decided_by_a_test_of_one_file_alone(test: str, runs: list[str]) -> None:
    here = {"/w/here", "/w/folder"}
    script = f"if {test}; then\n  run yes\nelse\n  run no\nfi\nrun after\n"
    launches = launches_of(script, environment={}, work_dir="/w", exists=lambda _, path: path in here)
    ran = [" ".join(one.words[1:]) for one in launches if one.words[0] == "run"]
    assert ran == [*runs, "after"]
    whole = launches_of(script, environment={}, work_dir="/w")
    assert [one.words[1] for one in whole if one.words[0] == "run"] == ["yes", "no", "after"]


def test_nested_branches_and_elif_are_followed() -> None:
    script = """
if [ -f gone ]; then A=1
elif [ -f here ]; then
  A=2
  if [ -d gone ]; then A=3; else B=4; fi
else A=5
fi
run $A $B
"""
    [launch] = [
        one
        for one in launches_of(script, environment={}, work_dir="/w", exists=lambda _, path: path == "/w/here")
        if one.words[0] == "run"
    ]
    assert launch.words == ("run", "2", "4")


def points(*texts: str) -> list[tuple[int, float | None]]:
    return [(point.step, point.loss) for point in metric_points([Line(number, text) for number, text in enumerate(texts, 1)])]


def test_steps_of_fairseq_olmo_and_short_words_are_read() -> None:
    fairseq = (
        "2026-11-23 01:47:31 | INFO | train_inner | epoch 001:     80 / 90 loss=1.009, ppl=2, num_updates=80, lr=0.0005, gnorm=1.02"
    )
    assert points(fairseq) == [(80, 1.009)]
    assert points("INFO\t[step=60/60,epoch=1]", "    train/CE loss=1.4887") == [(60, 1.4887)]
    assert points("[rank 1] 2026-11-23 01:48:15 it 16 | loss 2.9046 | grad 0.4 | tok/s 2231") == [(16, 2.9046)]


def test_a_bar_behind_an_earlier_state_of_it_keeps_its_epoch() -> None:
    first = "poch 2:   0%|   | 0/20 [00:00<?, ?it/s, v_num=0, train_loss=0.5]"
    bar = f"{first} Epoch 2:  25%|## | 5/20 [00:07<00:23,  0.65it/s, train_loss=0.4]"
    assert points(bar) == [(45, 0.4)]


def test_a_redrawn_bar_proves_all_the_steps_that_it_shows() -> None:
    noise, bar = "script: line 10: activate: No such file or directory", " 38%|###8  | 30/80 [00:06<00:10,  4.84it/s]"
    lines = [Line(1, noise), Line(2, bar)]
    assert read_progress(lines, []).after(1) == 30
    loading = [Line(1, noise), Line(2, "Loading shards: 100%|####| 30/30 [00:06<00:00,  4.84it/s]")]
    assert read_progress(loading, []).after(1) <= 1


def test_a_save_of_the_last_step_is_read_off_olmos_words() -> None:
    texts = [
        "[step=60/60,epoch=1,eta=0 seconds]",
        "    train/CE loss=1.4887",
        "Saving checkpoint for step 60...",
        "Checkpoint for step 60 saved to '/ckpt/olmo-tiny/step60'",
        "Training complete",
    ]
    end = training_end(texts)
    assert end is not None
    assert end.saved_after


@pytest.mark.parametrize(
    ("line", "step"),
    [
        ("| INFO | fairseq.trainer | Loaded checkpoint /tmp/ada.60/ckpt/checkpoint_last.pt (epoch 1 @ 40 updates)", 40),
        ("Loaded checkpoint from /tmp/ada.60/ckpt/last.pt", None),
        ("Loaded checkpoint from /ckpt/run7/global_step40/mp_rank_00_model_states.pt", 40),
        ("Loaded checkpoint from /ckpt/60/run/step_40.pt", 40),
    ],
)
def test_the_id_of_a_job_in_a_path_is_no_step(line: str, step: int | None) -> None:
    [load] = loaded_checkpoint([Line(1, line)]).loads
    assert load.step == step


def test_a_completed_job_that_says_that_it_trained_to_its_end_is_past_its_restart_step() -> None:
    shown = replace(job(Path("/w"), "python train.py"), state=JobState.COMPLETED, exit_code=0)
    assert progress_seen(shown, 20, []).status is not Look.FAILED
    counted = [MetricPoint(13, 0.8, None, 1)]
    assert progress_seen(shown, 20, counted).status is Look.FAILED
    assert progress_seen(shown, 20, counted, finished="{'train_runtime': '13.12'}").status is Look.PAST_RESTART_STEP


def test_losses_that_were_buffered_behind_their_bar_tell_no_first_step() -> None:
    bar = "[... 1898 bytes ...] |#### | 72/80 [00:12<00:01,  4.31it/s] 100%|#####| 80/80 [00:14<00:00,  5.61it/s]"
    losses = [f"{{'loss': '{1 + place / 10}', 'learning_rate': '1e-05', 'epoch': '0.1'}}" for place in range(6)]
    shown = loaded_checkpoint([Line(number, text) for number, text in enumerate([bar, *losses], 1)])
    assert shown.first_step is None


@pytest.mark.parametrize(("last", "over"), [("Finished training", True), ("step 51 loss 2.1", False)])
def test_a_job_that_hangs_after_its_training_is_never_closed_in_silence(tmp_path: Path, last: str, over: bool) -> None:
    log = tmp_path / "job.log"
    log.write_text(f"step 49 loss 2.2\nstep 50 loss 2.1\n{last}\n")
    shown = replace(job(tmp_path, "python train.py"), state=JobState.RUNNING, ended=None, exit_code=None, log=log)
    calls = SimpleNamespace(calls=lambda *_, **__: [])
    engine: Any = SimpleNamespace(replays=False, scheduler=SimpleNamespace(job=lambda _: shown), store=calls)
    incident: Any = SimpleNamespace(kind=EventKind.HANG, job="7", id=1)
    diagnosis: Any = SimpleNamespace(tail="")
    proven = verified_end(engine, incident, diagnosis, Ended(IncidentState.CLOSED, "nothing had to be done", {}))
    assert proven.state is (IncidentState.ESCALATED if over else IncidentState.CLOSED)
    assert ("still runs and holds" in proven.note) is over


@pytest.mark.parametrize(
    ("line", "folder"),
    [
        ("saved checkpoint to /data/run/ckpt5/step_000010.npz", "/data/run/ckpt5"),
        ("saved checkpoint to /data/run/step_5/model.pt", "/data/run"),
        ("saved checkpoint to /data/run/epoch=3-step=900.ckpt", "/data/run"),
    ],
)
def test_a_folder_with_a_number_is_cut_off_only_where_it_is_the_checkpoint(line: str, folder: str, tmp_path: Path) -> None:
    place = checkpoint_place(job(tmp_path, "python train.py"), {}, [line])
    assert place is not None
    assert str(place.folder) == folder


@pytest.mark.parametrize(("told", "steps"), [(True, [*range(50, 401, 10)]), (False, [])])
def test_the_bar_in_the_error_file_tells_the_steps_of_the_lines_in_the_output(tmp_path: Path, told: bool, steps: list[int]) -> None:
    begins = ["***** Running training *****", *(["  Continuing training from global step 40"] if told else [])]
    lines = [f"{{'loss': 2.5, 'grad_norm': 0.8, 'epoch': {step / 200:.2f}}}" for step in range(50, 401, 10)]
    (tmp_path / "t.out").write_text("\n".join([*begins, *lines]) + "\n")
    (tmp_path / "t.err").write_text("".join(f"  5%|4    | {step}/800 [00:20<06:40,  2.00it/s]\r" for step in range(41, 404)) + "\n")
    own = replace(job(tmp_path, "python train.py"), log=tmp_path / "t.out", error_log=tmp_path / "t.err")
    assert [point.step for point in log_points(own)] == steps


@pytest.mark.parametrize(
    ("long", "readable", "known"),
    [(False, True, True), (True, True, True), (False, False, False)],
    ids=["short", "long", "unreadable"],
)
def test_where_an_attempt_begins_is_known_only_from_the_beginning_of_all_its_lines(
    tmp_path: Path, long: bool, readable: bool, known: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = " and more of it" * 20
    count = TAIL_BYTES // 3 // (len(beside) + 25) if long else 20
    (tmp_path / "t.out").write_text("".join(f"step {step} loss 2.5{beside}\n" for step in range(41, 41 + count)))
    (tmp_path / "t.err").write_text("warning: of another kind\n")
    own = replace(job(tmp_path, "python train.py"), log=tmp_path / "t.out", error_log=tmp_path / "t.err")

    def fails(path: Path, begin: int, most_bytes: int) -> FileEnd:
        if path.suffix == ".err" and not readable:
            raise PermissionError(path)
        return read_end_from(path, begin, most_bytes)

    monkeypatch.setattr("assistant.recover.joblog.read_end_from", fails)
    lines = whole_lines(own)
    assert (lines is not None) is known
    assert lines is None or next(iter(lines)).text.startswith("step 41 ")


def test_of_logs_that_were_read_from_the_middle_nothing_is_said_of_their_beginning(tmp_path: Path) -> None:
    for name, size in (("t.out", TAIL_BYTES // 2), ("t.err", 2)):
        (tmp_path / name).write_text("step 41 loss 2.5\n" * (size // 17 + 2))
    assert whole_lines(replace(job(tmp_path, "python train.py"), log=tmp_path / "t.out", error_log=tmp_path / "t.err")) is None


@pytest.mark.parametrize(
    ("line", "is_own"),
    [
        ("# state it_00040 written", True),
        ("it_00040 saved", True),
        ("result it_00040 read", False),
        ("could not be written: it_00040", False),
    ],
)
def test_a_state_of_texts_is_a_checkpoint_where_the_log_says_that_it_was_saved(line: str, is_own: bool, tmp_path: Path) -> None:
    at = (BEGAN + timedelta(minutes=50)).timestamp()
    for step in (20, 40):
        folder = tmp_path / "state" / f"it_{step:05}"
        folder.mkdir(parents=True)
        (folder / "part0.json").write_text(json.dumps({"u": [0.25] * 900}))
        os.utime(folder / "part0.json", (at, at))
    search = search_checkpoints(job(tmp_path, "srun python3 flow.py conf.toml"), {}, ["    1 0.5 0.25", line], now=ENDED)
    assert (search.place is not None and search.place.folder == tmp_path / "state") is is_own, search.note
    if is_own and search.inventory is not None:
        assert [checkpoint.step for checkpoint in search.inventory.checkpoints] == [20, 40]


FILM = """\
import sys
mode = sys.argv[1]


def keep(step):
    with open("ring.A" if step % 40 else "ring.B", "w") as file:
        file.write(f"step {step}\\n")


step = 0
if mode == "continue":
    step = max(int(open(name).read().split()[1]) for name in ("ring.A", "ring.B"))
while step < 90:
    step += 1
    if step % 20 == 0:
        keep(step)
"""


@pytest.mark.parametrize(
    ("source", "line", "state"),
    [
        (FILM, "   20 Epot 0.5", SaveState.UNKNOWN),
        (FILM, "   restart -> ring.A (step 60)", SaveState.SAVED_ELSEWHERE),
        ("print(sum(range(90)))\n", "   20 Epot 0.5", SaveState.NEVER_SAVED),
        ("import sqlite3\nrings = sqlite3.connect('rings.db')  # resume from its last row\n", "   20 Epot 0.5", SaveState.UNKNOWN),
        (
            "import csv, sys\nif '--resume' in sys.argv: pass\ncsv.writer(open('a.csv', 'a')).writerow([1])\n",
            "x",
            SaveState.UNKNOWN,
        ),
    ],
    ids=["it writes texts and can continue", "its log says so", "it writes nothing", "it keeps a database", "it keeps a table"],
)
def test_a_program_that_writes_what_it_continues_from_is_never_said_to_save_nothing(
    source: str, line: str, state: SaveState, tmp_path: Path
) -> None:
    (tmp_path / "film.py").write_text(source)
    search = search_checkpoints(job(tmp_path, 'python3 film.py "${1:-start}"'), {}, [line], now=ENDED)
    assert search.state is state, search.note
