"""The state folder belongs to this account and is closed to others, or nothing is changed under it and checks name it."""

from __future__ import annotations

import logging
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from assistant.cli.main import main
from assistant.errors import ConfigError
from assistant.ports import JumpingClock
from assistant.private_files import check_state_folder, close_state_folder
from assistant.store import Store
from tests.unit.gate_world import START

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root to give a folder away")
STRANGER = 12345


def given_away(path: Path) -> None:
    os.lchown(path, STRANGER, STRANGER)


class Case(NamedTuple):
    """What somebody did to the place of the state folder, and whether it may be used then."""

    name: str
    spoil: Callable[[Path], object]
    """Of the state folder, which is there with 0700, and has a store of ours in it where `store`."""
    refused: bool
    store: bool = False
    note: str = ""


def open_and_given_away(state: Path) -> None:
    state.chmod(0o777)
    given_away(state)


def missing_below_a_stranger(state: Path) -> None:
    state.rmdir()
    given_away(state.parent)


def a_file(state: Path) -> None:
    state.rmdir()
    state.write_text("")


def a_link_of_a_stranger(state: Path) -> None:
    state.rename(state.with_name("moved"))
    state.symlink_to(state.with_name("moved"))
    given_away(state)


CASES = [
    Case("as it should be", lambda state: None, refused=False),
    Case("0777 of ours", lambda state: state.chmod(0o777), refused=False, note="could write"),
    Case("0777 of ours, with a store", lambda state: state.chmod(0o777), refused=False, store=True, note="could write"),
    Case("0770 of ours", lambda state: state.chmod(0o770), refused=False, note="could write"),
    Case("0755 of ours", lambda state: state.chmod(0o755), refused=False, note="could enter"),
    Case("1777", lambda state: state.chmod(0o1777), refused=True),
    Case("of a stranger, 0700", given_away, refused=True),
    Case("of a stranger, with a store of ours", given_away, refused=True, store=True),
    Case("of a stranger, 0777", open_and_given_away, refused=True),
    Case("below a folder of a stranger", lambda state: given_away(state.parent), refused=True),
    Case("below a folder that others may write", lambda state: state.parent.chmod(0o777), refused=True),
    Case("missing below a folder of a stranger", missing_below_a_stranger, refused=True),
    Case("a link of a stranger", a_link_of_a_stranger, refused=True),
    Case("a file", a_file, refused=True),
    Case("missing", lambda state: state.rmdir(), refused=False),
]


@pytest.fixture
def state(tmp_path: Path) -> Path:
    folder = tmp_path / "above" / "state"
    folder.mkdir(parents=True, mode=0o700)
    return folder


@pytest.mark.parametrize("elsewhere", [False, True], ids=["store inside", "store elsewhere"])
@pytest.mark.parametrize("case", CASES, ids=[case.name for case in CASES])
def test_a_state_folder_is_ours_alone(
    case: Case, elsewhere: bool, state: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    store = (tmp_path if elsewhere else state) / "nightshift.db"
    if case.store:
        Store(store, JumpingClock(START)).close()
    case.spoil(state)
    if case.refused:
        for look in (check_state_folder, close_state_folder):
            with pytest.raises(ConfigError, match="state"):
                look(state, store)
        return
    assert case.note in check_state_folder(state, store)
    with caplog.at_level(logging.WARNING):
        close_state_folder(state, store)
    assert (case.note in caplog.text) if case.note else not caplog.text
    assert not state.exists() or stat.S_IMODE(state.stat().st_mode) == 0o700
    assert check_state_folder(state, store) == ""


def test_root_looks_at_the_state_folder_of_an_account_whose_store_lies_in_it(state: Path) -> None:
    store = state / "nightshift.db"
    Store(store, JumpingClock(START)).close()
    for path in (state, *state.iterdir()):
        given_away(path)
    close_state_folder(state, store)
    with pytest.raises(ConfigError, match="of user 12345"):
        close_state_folder(state, state.parent / "nightshift.db")


COMMANDS = ["nodes cordon node01 --yes", "stop --why x", "approve 1", "watch --once", "incident close 1", "breaker reset --why x"]
CHECKS = ["config check", "config policy", "doctor"]


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("words", [*COMMANDS, *CHECKS])
def test_no_command_changes_something_under_a_folder_of_a_stranger(
    words: str, state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f'scheduler = "local"\nstate_folder = "{state}"\nstore = "{tmp_path / "own" / "nightshift.db"}"\n')
    config.chmod(0o600)
    given_away(state)
    assert main(["--config", str(config), *words.split()]) != 0
    output = capsys.readouterr()
    assert "state_folder: wanted a folder that only we can change" in output.out + output.err
    assert list(state.iterdir()) == []


@pytest.mark.usefixtures("quiet")
@pytest.mark.parametrize("words", CHECKS)
def test_a_state_folder_that_others_may_write_is_named(
    words: str, state: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "config.toml"
    config.write_text(f'scheduler = "local"\nstate_folder = "{state}"\n')
    config.chmod(0o600)
    state.chmod(0o777)
    main(["--config", str(config), *words.split()])
    assert f"others could write {state}" in " ".join(capsys.readouterr().out.split())
