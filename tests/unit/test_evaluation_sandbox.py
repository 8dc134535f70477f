"""A program that is not trusted reaches nothing, uses no more than it may, and leaves nothing running."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from assistant.evaluation.sandbox import EndedProgram, ProgramLimits, run

NAPS = "sleep 8765"


@pytest.fixture
def folder() -> Iterator[Path]:
    # not pytest's own folder: the sandbox's user could not get there
    made = Path(tempfile.mkdtemp(prefix="nightshift-test-"))
    made.chmod(0o755)
    yield made
    shutil.rmtree(made)


def python(folder: Path, code: str, **limits: object) -> EndedProgram:
    return run([sys.executable, "-S", "-c", code], ProgramLimits(**{"wall_s": 20.0, **limits}), folder=folder)  # type: ignore[arg-type]


def naps() -> list[str]:
    return subprocess.run(["pgrep", "-fx", NAPS], capture_output=True, text=True, check=False).stdout.split()


def test_a_program_that_behaves_may_write_into_its_folder(folder: Path) -> None:
    ended = python(folder, "open('score', 'w').write('1'); print('done')")
    assert ended.ok
    assert ended.tail == "done\n"
    assert (folder / "score").read_text() == "1"


def test_it_has_no_network(folder: Path) -> None:
    ended = python(folder, "import socket; socket.create_connection(('127.0.0.1', 9), 1)")
    if any("network" in what for what in ended.missing):
        pytest.skip(f"this kernel gives no name spaces: {ended.missing}")
    assert "Network is unreachable" in ended.tail


def test_it_may_write_nowhere_else(folder: Path, tmp_path: Path) -> None:
    tmp_path.chmod(0o777)
    ended = python(folder, f"open({str(tmp_path / 'x')!r}, 'w')")
    if any("mounts" in what for what in ended.missing):
        pytest.skip(f"this kernel gives no name spaces: {ended.missing}")
    assert ended.status == 1
    assert not (tmp_path / "x").exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can become another user")
def test_it_is_a_user_of_its_own_where_we_are_root(folder: Path) -> None:
    assert python(folder, "import os; print(os.getuid())").tail == "65534\n"


@pytest.mark.parametrize("closed", [True, False])
def test_what_it_forked_and_let_loose_is_killed_with_it(folder: Path, closed: bool) -> None:
    code = f"import subprocess\nsubprocess.Popen('setsid {NAPS} & {NAPS} &', shell=True)\n"
    assert python(folder, code, closed=closed).ok
    assert naps() == []


@pytest.mark.parametrize("closed", [True, False])
def test_one_that_never_ends_is_killed_in_time_with_all_it_started(folder: Path, closed: bool) -> None:
    ended = run(["/bin/sh", "-c", f"setsid {NAPS} & {NAPS}"], ProgramLimits(wall_s=0.5, closed=closed), folder=folder)
    assert ended.timed_out
    assert "did not end within" in ended.why
    assert ended.seconds < 5
    assert naps() == []


@pytest.mark.parametrize("closed", [True, False])
def test_when_who_started_it_is_killed_all_of_it_ends(folder: Path, closed: bool) -> None:
    code = (
        "import sys; from pathlib import Path; from assistant.evaluation.sandbox import ProgramLimits, run\n"
        f"limits = ProgramLimits(60, closed={closed})\n"
        f"run(['/bin/sh', '-c', 'touch begun; setsid {NAPS} & {NAPS}'], limits, folder=Path(sys.argv[1]))"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(folder)], cwd=Path(__file__).parents[2]) as starter:
        until(lambda: (folder / "begun").exists() and len(naps()) == 2)
        starter.kill()
    until(lambda: naps() == [])


def until(wanted: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not wanted():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_one_that_forks_without_end_comes_to_its_limit(folder: Path) -> None:
    ended = python(folder, "import os\nwhile True: os.fork()", processes=20, wall_s=5.0)
    assert not ended.ok
    assert ended.seconds < 15


@pytest.mark.parametrize(
    ("code", "limits", "said"),
    [
        ("bytearray(2 << 30)", {"memory_bytes": 512 << 20}, "MemoryError"),
        ("open('big', 'wb').write(bytes(9 << 20))", {"file_bytes": 1 << 20}, "File too large"),
        ("while True: pass", {"cpu_s": 1}, "SIGKILL"),
        ("import os; os.abort()", {}, "SIGABRT"),
        ("raise SystemExit(3)", {}, "exit status 3: it said nothing"),
    ],
)
def test_how_it_ended_is_said(folder: Path, code: str, limits: dict[str, object], said: str) -> None:
    ended = python(folder, code, **limits)
    assert not ended.ok
    assert said in ended.why


def test_one_that_cannot_be_started_is_named(folder: Path) -> None:
    ended = run(["no-such-metric"], ProgramLimits(wall_s=5.0), folder=folder)
    assert (ended.status, "no-such-metric: cannot be started" in ended.tail) == (127, True)
