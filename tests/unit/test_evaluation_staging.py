"""A model comes into a node's memory once, whole, and as it should be; or not at all, and nothing of it stays."""

from __future__ import annotations

import hashlib
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from assistant.evaluation.model_cache import FileEntry, Shelf, WrongContent, compare, listing, room
from assistant.evaluation.stage import Model, StagingError, mark_of, stage, staged_for

ROOT = Path(__file__).parents[2]


@pytest.fixture
def model(tmp_path: Path) -> Model:
    folder = tmp_path / "7b"
    (folder / "sub").mkdir(parents=True)
    (folder / "weights").write_bytes(os.urandom(3_000_000))
    (folder / "sub" / "config.json").write_text("{}")
    (folder / "link").symlink_to(folder / "weights")
    return Model(str(folder))


@pytest.fixture
def shelf(tmp_path: Path) -> Shelf:
    return Shelf(tmp_path / "memory")


def same(one: Path, other: Path) -> bool:
    return {name: (one / name).read_bytes() for name in listing(one)} == {
        name: (other / name).read_bytes() for name in listing(other)
    }


def test_a_folder_is_copied_once_and_found_there_by_the_next(model: Model, shelf: Shelf) -> None:
    first, second = stage(model, shelf, "run"), stage(model, shelf, "run")
    assert same(first.path, Path(model.source))
    assert (first.fetched, second.fetched, second.path) == (True, False, first.path)
    assert first.path.name == "7b"


def test_a_model_of_one_file_keeps_its_name(tmp_path: Path, shelf: Shelf) -> None:
    (tmp_path / "small.gguf").write_bytes(b"GGUF" * 1000)
    found = stage(Model(str(tmp_path / "small.gguf")), shelf, "run").path
    assert (found.name, found.read_bytes()) == ("small.gguf", b"GGUF" * 1000)


def test_a_model_that_was_saved_anew_under_the_same_path_is_copied_anew(model: Model, shelf: Shelf) -> None:
    source = Path(model.source)
    before = stage(replace(model, mark=mark_of(source)), shelf, "run").path
    (source / "weights").write_bytes(b"later")
    after = stage(replace(model, mark=mark_of(source)), shelf, "run").path
    assert (after / "weights").read_bytes() == b"later"
    assert before != after


def test_of_many_that_want_it_at_once_one_reads_it(tmp_path: Path, model: Model, shelf: Shelf) -> None:
    script = tmp_path / "fetch.sh"
    script.write_text(f'echo begun >> {tmp_path}/reads\nsleep 0.3\ncp -r "$1" "$2"\n')
    fetched = replace(model, fetch=f"/bin/sh {script} {{source}} {{target}}")
    with ThreadPoolExecutor(6) as several:
        found = list(several.map(lambda _: stage(fetched, shelf, "run"), range(6)))
    assert (tmp_path / "reads").read_text().split() == ["begun"]
    assert sorted(one.fetched for one in found) == [False] * 5 + [True]


def test_when_the_last_run_gives_it_up_nothing_is_left(model: Model, shelf: Shelf) -> None:
    stage(model, shelf, "one")
    stage(model, shelf, "two")
    assert shelf.give_up("one") == []
    assert shelf.model(model.key) is not None
    assert shelf.give_up("two") == [model.key]
    assert not shelf.root.exists()


def test_what_a_process_reads_stays_although_its_run_gave_it_up(model: Model, shelf: Shelf) -> None:
    with staged_for(model, shelf, "run") as (path, _):
        assert shelf.give_up("run") == []
        assert shelf.users(model.key) == 1
        assert path.is_dir()
    assert shelf.sweep() == [model.key]


def test_a_user_that_was_killed_counts_no_more(model: Model, shelf: Shelf) -> None:
    code = (
        "import sys, time; from pathlib import Path; from assistant.evaluation.model_cache import Shelf\n"
        "with Shelf(Path(sys.argv[1])).use_folder(sys.argv[2], 'run'):\n    print('reads', flush=True); time.sleep(60)"
    )
    stage(model, shelf, "run")
    words = [sys.executable, "-c", code, str(shelf.root), model.key]
    with subprocess.Popen(words, stdout=subprocess.PIPE, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}) as reader:
        assert reader.stdout is not None
        assert reader.stdout.readline() == b"reads\n"
        assert shelf.give_up("run") == []
        reader.kill()
    assert shelf.sweep() == [model.key]
    assert not shelf.root.exists()


def test_an_order_of_a_run_that_never_came_back_ends_by_itself(model: Model, shelf: Shelf) -> None:
    stage(model, shelf, "crashed", keep_s=-1.0)
    assert shelf.sweep() == [model.key]


def test_half_a_copy_of_a_killed_precursor_is_never_taken_for_a_model(tmp_path: Path, model: Model, shelf: Shelf) -> None:
    slow = replace(
        model, fetch=f"/bin/sh -c 'mkdir {{target}} && echo half > {{target}}/weights && touch {tmp_path}/half && sleep 60'"
    )
    code = (
        "import sys; from pathlib import Path; from assistant.evaluation.model_cache import Shelf\n"
        "from assistant.evaluation.stage import Model, stage\n"
        "stage(Model(sys.argv[2], sys.argv[3]), Shelf(Path(sys.argv[1])), 'run')"
    )
    words = [sys.executable, "-c", code, str(shelf.root), slow.source, slow.fetch]
    with subprocess.Popen(words, cwd=ROOT, env={**os.environ, "PYTHONPATH": str(ROOT)}, start_new_session=True) as precursor:
        until(lambda: (tmp_path / "half").exists())
        os.killpg(precursor.pid, signal.SIGKILL)
    assert shelf.model(slow.key) is None
    assert shelf.sweep() == [slow.key]
    assert not shelf.root.exists()


def until(wanted: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 20
    while not wanted():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def sums(model: Model, **other: bytes) -> None:
    folder = Path(model.source)
    texts = {name: other.get(name.replace("/", "_"), (folder / name).read_bytes()) for name in listing(folder)}
    lines = (f"{hashlib.sha256(text).hexdigest()}  {name}\n" for name, text in texts.items())
    (folder / "SHA256SUMS").write_text("".join(lines))


def test_a_copy_is_compared_with_the_sums_beside_the_model(model: Model, shelf: Shelf) -> None:
    sums(model)
    assert stage(model, shelf, "run").fetched


def test_a_wrong_checksum_is_refused_by_name_and_nothing_is_kept(model: Model, shelf: Shelf) -> None:
    sums(model, weights=b"as it was meant to be")
    with pytest.raises(StagingError, match=r"not copied whole: weights has the wrong content: sha256:\w+ was read") as raised:
        stage(model, shelf, "run")
    assert raised.value.kind == "content"
    assert not shelf.root.exists()


def test_a_node_that_reads_otherwise_than_the_first_one_is_refused(tmp_path: Path, model: Model, shelf: Shelf) -> None:
    agreed = replace(model, digests=str(tmp_path / "digests.json"))
    stage(agreed, shelf, "run")
    bad = json.loads((tmp_path / "digests.json").read_text())
    bad["weights"][1] = "blake2b:00"
    (tmp_path / "digests.json").write_text(json.dumps(bad))
    with pytest.raises(StagingError, match="another node of this run read it otherwise: weights has the wrong content"):
        stage(agreed, Shelf(tmp_path / "other node"), "run")


@pytest.mark.parametrize(
    ("copy", "message"),
    [
        ({}, "weights is missing in the copy"),
        ({"weights": FileEntry(3), "more": FileEntry(1)}, "more is in the copy, not in the source"),
        ({"weights": FileEntry(2)}, "weights has 2 bytes in the copy, 3 are wanted"),
        ({"weights": FileEntry(3, "sha256:b")}, "weights has the wrong content: sha256:b was read, sha256:a is wanted"),
    ],
)
def test_a_copy_that_differs_is_said_to(copy: dict[str, FileEntry], message: str) -> None:
    with pytest.raises(WrongContent, match=message):
        compare(copy, {"weights": FileEntry(3, "sha256:a")})


def test_digests_of_two_kinds_are_not_compared() -> None:
    compare({"weights": FileEntry(3, "blake2b:b")}, {"weights": FileEntry(3, "sha256:a")})


def test_a_model_larger_than_what_it_may_take_is_refused_before_a_byte_is_read(model: Model, shelf: Shelf) -> None:
    with pytest.raises(StagingError, match=r"the limit given leaves 1\.0 MiB, it needs 5\.7 MiB and 512\.0 MiB to spare") as raised:
        stage(replace(model, limit_bytes=1 << 20), shelf, "run")
    assert raised.value.kind == "room"
    assert not shelf.root.exists()


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can mount a small file system")
def test_a_memory_that_fills_up_while_it_is_copied_is_said_so_and_emptied(
    tmp_path: Path, model: Model, monkeypatch: pytest.MonkeyPatch
) -> None:
    small = tmp_path / "small"
    small.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", str(small)], check=False, capture_output=True)
    if mounted.returncode:
        pytest.skip(f"no tmpfs can be mounted here: {mounted.stderr.decode()}")
    try:
        monkeypatch.setattr("assistant.evaluation.stage._fits", lambda *_: None)  # somebody else fills it meanwhile
        with pytest.raises(StagingError, match=r"free space in \S+ leaves .*, it needs 5\.7 MiB") as raised:
            stage(model, Shelf(small / "models"), "run")
        assert raised.value.kind == "room"
        assert list(small.iterdir()) == []
    finally:
        subprocess.run(["umount", str(small)], check=True)


def test_a_command_that_brings_more_than_fits_is_ended(tmp_path: Path, shelf: Shelf) -> None:
    endless = Model("s3://bucket/7b", "/bin/sh -c 'mkdir {target}; head -c 700000000 /dev/zero > {target}/w; sleep 60'")
    with pytest.raises(StagingError, match="does not fit into the memory of this node") as raised:
        stage(replace(endless, limit_bytes=600 << 20), shelf, "run")
    assert raised.value.kind == "room"
    assert not shelf.root.exists()


@pytest.mark.parametrize(
    ("fetch", "message"),
    [
        ("/bin/sh -c 'echo no such key >&2; exit 3'", "exit status 3: no such key"),
        ("/bin/true", "ended well and left nothing"),
        ("no-such-program {source}", "no-such-program: cannot be started"),
    ],
)
def test_a_fetch_command_that_fails_is_quoted(shelf: Shelf, fetch: str, message: str) -> None:
    with pytest.raises(StagingError, match=message) as raised:
        stage(Model("s3://bucket/7b", fetch), shelf, "run")
    assert raised.value.kind == "source"
    assert not shelf.root.exists()


@pytest.mark.parametrize("make", [lambda path: None, lambda path: path.mkdir(), lambda path: os.mkfifo(path)])
def test_a_model_that_is_none_is_refused(tmp_path: Path, shelf: Shelf, make: Callable[[Path], object]) -> None:
    make(tmp_path / "odd")
    with pytest.raises(StagingError, match=r"odd (does not exist|holds no file)"):
        stage(Model(str(tmp_path / "odd")), shelf, "run")


def test_a_folder_that_leads_back_to_itself_is_refused(model: Model, shelf: Shelf) -> None:
    (Path(model.source) / "again").symlink_to(model.source)
    with pytest.raises(StagingError, match="leads back to a folder above it"):
        stage(model, shelf, "run")


def test_the_memory_that_a_job_was_given_is_a_limit(tmp_path: Path) -> None:
    assert room(tmp_path, environment={"SLURM_MEM_PER_NODE": "1"}).name == "the job's memory (SLURM_MEM_PER_NODE)"
    assert room(tmp_path, allowed_bytes=5, environment={"SLURM_MEM_PER_NODE": "1"}).free_bytes == 5
