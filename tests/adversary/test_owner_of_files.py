"""What root writes beside the store of a service's account belongs to that account, and nothing else is ever given away."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from assistant.errors import ConfigError, StoreError
from assistant.ports import JumpingClock
from assistant.store import Store
from assistant.store.seals import mark_path, read_mark, write_mark
from assistant.store.standing_decisions import open_breaker
from tests.unit.gate_world import START

ACCOUNT = 12345

needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can act on the store of another account")


def owners(store: Path) -> dict[str, tuple[int, int, str]]:
    return {
        path.name.removeprefix(store.name): (path.stat().st_uid, path.stat().st_gid, f"{path.stat().st_mode & 0o777:o}")
        for path in store.parent.iterdir()
    }


def service_store(tmp_path: Path) -> Path:
    """Make a store and give it with its folder to the account of a service."""
    folder = tmp_path / "service"
    folder.mkdir(mode=0o700)
    path = folder / "store.db"
    store = Store(path, JumpingClock(START))
    store.set_flag("kill_switch", True, why="set", by="watch")
    store.close()
    for entry in (folder, *folder.iterdir()):
        os.chown(entry, ACCOUNT, ACCOUNT)
    return path


@needs_root
@pytest.mark.parametrize("lost", [(), (".head",), (".key",), (".head", ".key")], ids=lambda names: "+".join(names) or "none")
def test_mark_and_key_that_root_writes_belong_to_the_owner_of_the_store(lost: tuple[str, ...], tmp_path: Path) -> None:
    path = service_store(tmp_path)
    for ending in lost:
        path.with_name(path.name + ending).unlink()
    store = Store(path, JumpingClock(START))
    open_breaker(store, why="too many", by="cli:root")
    store.close()
    assert owners(path) == dict.fromkeys(("", ".head", ".key"), (ACCOUNT, ACCOUNT, "600"))
    child = os.fork()
    if child == 0:
        # the folders above belong to root
        os.chdir(path.parent)
        os.setgroups([])
        os.setgid(ACCOUNT)
        os.setuid(ACCOUNT)
        os._exit(0 if all(os.access(name, os.R_OK) for name in ("store.db.head", "store.db.key")) else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@needs_root
@pytest.mark.parametrize("sort", ["hard link", "link", "pipe"])
def test_what_the_account_puts_in_the_way_gives_it_no_file_of_roots(sort: str, tmp_path: Path) -> None:
    path = service_store(tmp_path)
    target = tmp_path / "shadow"
    target.write_text("of root")
    new = path.with_name(f"{mark_path(path).name}.{os.getpid()}.{threading.get_ident()}.new")
    if sort == "hard link":
        os.link(target, new)
    elif sort == "link":
        new.symlink_to(target)
    else:
        os.mkfifo(new)
    write_mark(path, 1, "0" * 64, durable=False)
    assert (target.read_text(), target.stat().st_uid) == ("of root", 0)
    assert read_mark(path) == (1, "0" * 64)
    assert mark_path(path).stat().st_uid == ACCOUNT


@needs_root
def test_a_link_in_place_of_the_store_gives_nothing_away(tmp_path: Path) -> None:
    theirs = tmp_path / "theirs"
    theirs.write_text("")
    os.chown(theirs, ACCOUNT, ACCOUNT)
    (tmp_path / "store.db").symlink_to(theirs)
    write_mark(tmp_path / "store.db", 1, "0" * 64, durable=False)
    assert mark_path(tmp_path / "store.db").stat().st_uid == 0


@needs_root
def test_the_refusal_says_how_to_give_the_mark_back(tmp_path: Path) -> None:
    path = service_store(tmp_path)
    os.chown(mark_path(path), 0, 0)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.chdir(path.parent)
            os.setgroups([])
            os.setgid(ACCOUNT)
            os.setuid(ACCOUNT)
            read_mark(Path(path.name))
        except (ConfigError, StoreError) as error:
            os.write(writing, str(error).encode())
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    refusal = os.read(reading, 4096).decode()
    os.close(reading)
    assert refusal.endswith("let root run: chown --reference=store.db store.db.head")
