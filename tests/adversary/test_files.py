"""Files that a user of the cluster made to crash, hang, blind or rob what reads them: each reader answers, says why, or says no.

HOSTILE holds the files, READERS what reads them; every file goes through every reader. Then whole incidents are diagnosed over
them, beside an ordinary job, whose diagnosis none of them may cost.
"""

from __future__ import annotations

import dataclasses
import gzip
import logging
import os
import socket
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assistant.diagnose.case import Case
from assistant.diagnose.facts import gather
from assistant.diagnose.knowledge import Knowledge
from assistant.engine import Engine
from assistant.errors import InputError, MalformedContent, ToolError, Unavailable, UnreadableFile, UsageError
from assistant.logs.document import Document
from assistant.logs.lines import Line
from assistant.logs.metrics import metric_points
from assistant.logs.reading import blocks, open_log
from assistant.logs.tail import LogFollower, last_lines
from assistant.nodeset import expand
from assistant.records import IncidentState, JobState
from assistant.recover.checkpoints.forms import file_problem
from assistant.recover.checkpoints.interval import save_cost
from assistant.recover.checkpoints.inventory import COMPARED, _compared, inventory, last_healthy
from assistant.recover.checkpoints.trackers import tracker
from assistant.recover.joblog import log_lines
from assistant.schedulers.slurm_jobs import nodes_of
from assistant.untrusted import (
    finite_number,
    open_regular,
    parse_json,
    read_end,
    read_json,
    read_start,
    read_whole,
    walk_files,
    whole_number,
    within,
)
from assistant.watch.hang import HangLimits
from assistant.watch.progress import PaceLimits, SpikeLimits
from assistant.watch.readers import Readers
from assistant.watch.view import ViewLimits, view_of
from assistant.watch.witness import last_beat
from tests.adversary.shown import NOON, Shown, job, made_engine

logger = logging.getLogger(__name__)

ROOT = os.geteuid() == 0
NO = (InputError, OSError, ToolError, Unavailable)
"""How a reader may refuse."""

Make = Callable[[Path], object]


def sparse(size: int, *, text: bytes = b"") -> Make:
    def make(path: Path) -> None:
        with path.open("wb") as file:
            file.write(text)
            file.truncate(size)
            if text:
                file.seek(size)
                file.write(text)

    return make


def holding(content: bytes) -> Make:
    return lambda path: path.write_bytes(content)


def a_socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the name of a socket has at most 107 bytes
    try:
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(path.name)
    finally:
        os.chdir(here)


def looped(path: Path) -> None:
    path.mkdir()
    (path / "again").symlink_to(path)


def unreadable(path: Path) -> None:
    path.write_text("secret")
    path.chmod(0)


ZIP_OF_4_GB = b"PK\x03\x04" + b"x" * 40 + b"PK\x05\x06" + b"\0" * 4 + b"\x01\0\x01\0" + b"\xf0\xff\xff\xff" * 2 + b"\0\0"
BOMB = gzip.compress(b"\0" * (16 << 20), 1)
HOSTILE: dict[str, Make] = {
    "pipe": os.mkfifo,
    "zeros": lambda path: path.symlink_to("/dev/zero"),
    "terminal": lambda path: path.symlink_to("/dev/tty"),
    "socket": a_socket,
    "folder": lambda path: path.mkdir(),
    "folder in itself": looped,
    "link to itself": lambda path: path.symlink_to(path),
    "link to nothing": lambda path: path.symlink_to("/nonexistent/file"),
    "unreadable": unreadable,
    "empty": holding(b""),
    "30 GB of nothing": sparse(30 << 30),
    "30 GB between two lines": sparse(30 << 30, text=b"RuntimeError: CUDA error: uncorrectable ECC error\n"),
    "zeros only": holding(b"\0" * 100_000),
    "no UTF-8": holding(b"\xff\xfe\xed\xa0\x80 step 5 loss 2.3\n" * 50),
    "1e400": holding(b'{"step": 1e400, "loss": 1e400, "at": "x", "save_s": 1e400, "global_step": 1e400}\n'),
    "NaN": holding(b'{"step": NaN, "loss": -Infinity, "at": "x", "save_s": NaN}\n'),
    "5,000 digits": holding(b'{"step": ' + b"9" * 5_000 + b', "loss": 1.0, "at": "x", "save_s": ' + b"9" * 5_000 + b"}\n"),
    "5,000 digits in words": holding(b"step " + b"9" * 5_000 + b" loss 2.3\niteration " + b"9" * 5_000 + b"/ 9 | lm loss: 1 |\n"),
    "21 digits": holding(b"step=599999999999999999999, skipped=0, lr=1\n" * 3),
    "100,000 levels": holding(b"[" * 100_000),
    "100,000 levels closed": holding(b'{"a":' * 100_000 + b"1" + b"}" * 100_000),
    "600,000 lists": holding(b"[" + b"[]," * 600_000 + b"0]"),
    "900 levels": holding(b"[" * 900 + b"]" * 900),
    "no object": holding(b"[1, 2, 3]"),
    "wrong kinds": holding(b'{"step": [1], "files": {"a": 3}, "save": 5, "weight_map": 7, "version": {}, "at": 3}'),
    "numbers as booleans": holding(b'{"step": true, "files": {"a": {"size": true}}, "save": {"blocked_s": "x"}, "at": 1}'),
    "safetensors of 16 EB": holding(b"\xff" * 8 + b"{}"),
    "safetensors short": holding(b"\x10\0\0\0\0\0\0\0{"),
    "safetensors lists": holding(b'(\0\0\0\0\0\0\0{"a":{"dtype":"F32","shape":[],"data_offsets":[]}}'),
    "zip that claims 4 GB": holding(ZIP_OF_4_GB),
    "gzip bomb": holding(BOMB),
    "a pickle that runs": holding(b"cos\nsystem\n(S'touch /tmp/nightshift-was-here'\ntR."),
}


LARGE = ("30 GB of nothing", "30 GB between two lines", "gzip bomb", "100,000 levels closed", "600,000 lists")
"""What readers go over for seconds: they run with the slow tests."""


@pytest.fixture(params=[pytest.param(name, marks=[pytest.mark.slow] if name in LARGE else []) for name in HOSTILE])
def hostile(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    path = tmp_path / "made" / "job.log"
    path.parent.mkdir()
    HOSTILE[request.param](path)
    return path


def renamed(*names: str) -> Callable[[Path, Callable[[Path], object]], object]:
    """Give a reader the file under another name, in a folder of its own."""

    def under(path: Path, read: Callable[[Path], object]) -> object:
        other = path.parent.parent / "renamed" / Path(*names)
        other.parent.mkdir(parents=True)
        path.rename(other)
        return read(path.parent.parent / "renamed")

    return under


def whole(path: Path) -> int:
    with open_log(path) as stream:
        return sum(map(len, blocks(stream)))


def document(path: Path) -> object:
    opened = Document(path)
    try:
        return opened.tail(50) if opened.plain else opened.build()
    finally:
        opened.close()


def view(path: Path) -> object:
    running = dataclasses.replace(job(path), state=JobState.RUNNING, ended=None)
    views, trouble = Readers(5.0).read(
        [view_of(running, ViewLimits(HangLimits(1800, 5), SpikeLimits(5), PaceLimits()), metrics=True)], NOON
    )
    return views or trouble


def checkpoints(folder: Path) -> object:
    found = inventory(folder, now=NOON)
    save_cost(found, folder / "metrics.jsonl", [])
    return last_healthy(found, now=NOON)


READERS: dict[str, Callable[[Path], object]] = {
    "log": whole,
    "last lines": lambda path: last_lines(path, 50),
    "document": document,
    "follower": lambda path: LogFollower(path).news(),
    "end of the log": lambda path: list(log_lines(job(path))),
    "watch": view,
    "heartbeat": lambda path: last_beat(path, job(path)),
    "JSON": read_json,
    "start": lambda path: read_start(path, 4096),
    "end": lambda path: read_end(path, 4096),
    "one file": lambda path: file_problem(path, read_bytes=1 << 20),
    "pt": lambda path: renamed("a.pt")(path, lambda folder: file_problem(folder / "a.pt", read_bytes=1 << 20)),
    "npz": lambda path: renamed("a.npz")(path, lambda folder: file_problem(folder / "a.npz", read_bytes=1 << 20)),
    "safetensors": lambda path: renamed("a.safetensors")(path, lambda folder: file_problem(folder / "a.safetensors")),
    "tracker": lambda path: renamed("latest_checkpointed_iteration.txt")(path, tracker),
    "manifest": lambda path: renamed("iter_0000005", "manifest.json")(path, checkpoints),
    "trainer state": lambda path: renamed("checkpoint-5", "trainer_state.json")(path, checkpoints),
    "index of weights": lambda path: renamed("checkpoint-5", "model.safetensors.index.json")(path, checkpoints),
    "DCP metadata": lambda path: renamed("step-5", ".metadata")(path, checkpoints),
    "folder of checkpoints": lambda path: renamed("iter_0000005")(path, checkpoints),
    "metrics": lambda path: renamed("metrics.jsonl")(path, lambda folder: save_cost(None, folder / "metrics.jsonl", [])),
}


@pytest.mark.timeout(60)
@pytest.mark.parametrize("reader", READERS)
def test_every_reader_answers_or_refuses(hostile: Path, reader: str) -> None:
    try:
        READERS[reader](hostile)
    except NO as error:
        logger.debug("refused: %s", error)
    assert not Path("/tmp/nightshift-was-here").exists()


def test_a_small_file_of_30_gb_is_refused_unread(tmp_path: Path) -> None:
    HOSTILE["30 GB of nothing"](tmp_path / "big")
    with pytest.raises(UnreadableFile, match="such a file has at most"):
        read_whole(tmp_path / "big")


def test_a_line_at_either_end_of_30_gb_is_found(tmp_path: Path) -> None:
    HOSTILE["30 GB between two lines"](tmp_path / "job.log")
    with open_log(tmp_path / "job.log") as stream:
        text = b"".join(blocks(stream))
        assert stream.truncated
    assert text.count(b"uncorrectable ECC error") == 2
    assert b"bytes are left out here" in text


def test_json_of_too_many_lists_is_refused_before_its_depth_is_looked_at(tmp_path: Path) -> None:
    HOSTILE["600,000 lists"](tmp_path / "a.json")
    with pytest.raises(MalformedContent, match="more than 500,000 lists"):
        read_json(tmp_path / "a.json")


def test_a_checkpoint_is_compared_with_a_bounded_number_of_others(tmp_path: Path) -> None:
    for step in range(300):
        (tmp_path / f"iter_{step:07}").mkdir()
    found = list(inventory(tmp_path, now=NOON).entries)
    assert {len(_compared(found, place)) for place in range(len(found))} == set(range(COMPARED + 1, 2 * COMPARED + 2))
    assert all(found[place] in _compared(found, place) for place in range(len(found)))


def test_a_file_that_grows_while_it_is_read_ends(tmp_path: Path) -> None:
    path = tmp_path / "grows"
    path.write_bytes(b"x" * 100)
    with open_regular(path) as file, path.open("ab") as writer:
        file.read(10)
        writer.write(b"y" * (2 << 20))
        writer.flush()
        assert len(read_start(path, 1 << 20)) == 1 << 20
    with pytest.raises(UnreadableFile):
        read_whole(path, 1000)


def test_a_folder_is_walked_to_its_bounds(tmp_path: Path) -> None:
    for number in range(30):
        (tmp_path / f"file{number}").touch()
    with pytest.raises(UnreadableFile, match="more than 20"):
        list(walk_files(tmp_path, 20))
    deep = tmp_path.joinpath(*["d"] * 40)
    deep.mkdir(parents=True)
    with pytest.raises(UnreadableFile, match="deeper than 32"):
        list(walk_files(tmp_path))


def test_what_hangs_is_left_behind() -> None:
    import threading

    never = threading.Event()
    with pytest.raises(Unavailable, match="did not answer within"):
        within(0.05, never.wait, "the mount")
    never.set()


@pytest.mark.parametrize(
    "text",
    [
        "a[0-99999][0-99999]",
        ",".join(["a[0-99999]"] * 50),
        f"a[{','.join(['0-99999'] * 500)}]",
        f"a[0-{'9' * 5_000}]",
        "[0-1]" * 60,
    ],
)
def test_a_set_of_nodes_that_counts_too_far_is_none(text: str) -> None:
    with pytest.raises(UsageError) as refused:
        expand(text)
    assert len(str(refused.value)) < 1_000
    assert nodes_of(text) == ()


@pytest.mark.parametrize("read", ["log_lines", "inventory", "tail"])
def test_a_mount_that_hangs_costs_a_look_and_no_more(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, read: str) -> None:
    import threading

    from assistant import untrusted
    from assistant.cli import diagnose
    from assistant.recover import joblog
    from assistant.recover.checkpoints import inventory as checkpoint_inventory

    never = threading.Event()

    def hangs(*_: object, **__: object) -> None:
        never.wait()

    for module in (joblog, checkpoint_inventory, diagnose):
        monkeypatch.setattr(module, "LOOK_S", 0.05)
    monkeypatch.setattr(untrusted, "status_of", hangs)
    monkeypatch.setattr(joblog, "read_end_from", hangs)
    try:
        if read == "log_lines":
            assert not list(log_lines(job(tmp_path / "job.log")))
            return
        with pytest.raises(Unavailable, match="did not answer within"):
            inventory(tmp_path, now=NOON) if read == "inventory" else diagnose.log_of(None, f"{tmp_path}/job.log")  # type: ignore[arg-type]
    finally:
        never.set()


# whole incidents


@pytest.fixture
def engine(tmp_path: Path) -> Engine:
    return made_engine(tmp_path)


IN_INCIDENTS = ("pipe", "zeros", "socket", "5,000 digits in words", "1e400", "link to itself", "zeros only")


@pytest.mark.timeout(100)
def test_each_hostile_log_ends_diagnosed_and_costs_no_other_job_its_diagnosis(engine: Engine, tmp_path: Path) -> None:
    jobs = []
    for number, name in enumerate(IN_INCIDENTS, 10):
        make = HOSTILE[name]
        folder = tmp_path / "jobs" / str(number)
        folder.mkdir(parents=True)
        make(folder / "job.log")
        make(folder / "metrics.jsonl")
        jobs.append(job(folder / "job.log", str(number)))
    ordinary = tmp_path / "jobs" / "ordinary.log"
    ordinary.write_text("step 1 loss 2.0\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    jobs.append(job(ordinary, "99"))
    cluster = engine.scheduler
    assert isinstance(cluster, Shown)
    cluster.shown = jobs
    engine.clock.sleep(120)
    assert len(engine.look()) == len(jobs)
    ends = engine.resume(owner="test")
    assert all(incident.state is not IncidentState.OPEN for incident in ends)
    by_job = {incident.job: engine.store.diagnosis(incident.id) for incident in engine.store.incidents()}
    assert all(by_job.values())
    assert by_job["99"] is not None
    assert by_job["99"].reason == "out_of_memory_error"
    pipe = next(incident for incident in engine.store.incidents() if incident.job == "10")
    assert any("a named pipe" in one.text for one in engine.store.evidence(pipe.id)), "the evidence says why nothing was read"


# numbers and nesting


@settings(max_examples=40, deadline=None)
@given(st.binary(max_size=400) | st.text(max_size=200).map(str.encode))
def test_no_bytes_break_the_reader_of_json(raw: bytes) -> None:
    try:
        parse_json(raw)
    except MalformedContent as error:
        logger.debug("refused: %s", error)


@given(st.integers() | st.floats() | st.text(max_size=40) | st.none() | st.booleans() | st.lists(st.integers(), max_size=2))
def test_a_number_is_one_that_can_be_kept_or_refused(value: object) -> None:
    try:
        assert abs(whole_number(value)) < 2**63
    except MalformedContent as error:
        logger.debug("refused: %s", error)
    try:
        assert abs(finite_number(value)) < 1e301
    except MalformedContent as error:
        logger.debug("refused: %s", error)


STEPS = st.sampled_from(
    [
        "step {} loss 2.3",
        "iteration {}/ 9 | lm loss: 2 |",
        "{{'loss': 1, 'step': {}}}",
        '{{"loss": 1, "step": {}}}',
        "step={}, skipped=0, lr=",
    ]
)


@settings(max_examples=40, deadline=None)
@given(STEPS, st.integers(0, 5_000), st.sampled_from(["9", "1e400", "-1", "NaN", "0x", "1e15"]))
def test_every_step_of_a_log_can_be_counted(form: str, digits: int, number: str) -> None:
    for text in (form.format("7" * digits), form.format(number)):
        assert all(abs(point.step) < 2**63 for point in metric_points([Line(1, text), Line(2, text)]))


LINES = st.sampled_from(
    [
        "[rank{}]: RuntimeError: x",
        "[Rank {}] Watchdog caught collective operation timeout: WorkNCCL(SeqNum={})",
        "OSError: [Errno {}] x",
        "NVRM: Xid (PCI:0000:{}): {}",
        "Killed process {} (python)",
        "srun: error: node01: task {}: Exited with exit code {}",
        "{}: step {} loss {}",
        "2026-{}-01 00:00:00 x",
        "node01:{}:{} [{}] NCCL INFO comm rank {} nranks {}",
        "Epoch {}: 10%|#| {}/{} [00:01<00:09, loss={}]",
        "slurmstepd: error: *** JOB {} ON node01 CANCELLED AT 2026-01-01T00:00:00 DUE TO TIME LIMIT ***",
    ]
)
KNOWLEDGE: list[Knowledge] = []


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.tuples(LINES, st.sampled_from(["9" * 5_000, "9" * 400, "9" * 21, "-1", "1e400"])), min_size=1, max_size=4))
def test_numbers_of_any_length_cost_no_diagnosis(tmp_path: Path, lines: list[tuple[str, str]]) -> None:
    KNOWLEDGE[:] = KNOWLEDGE or [Knowledge.load(None)]
    log = tmp_path / "job.log"
    log.write_text("".join(form.replace("{}", number) + "\n" for form, number in lines))
    gather(Case(str(log), log, kernel=log.read_text(), scheduler=log.read_text()), KNOWLEDGE[0])
