"""A command line of its own for every test: no settings but those it writes, a store and a cache in its folder."""

from __future__ import annotations

import json
import logging
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from assistant.cli.main import main
from assistant.ports import JumpingClock
from assistant.records import Call, CallStatus, Decision, Event, EventKind, Verdict
from assistant.store import Store

if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    # a shell that starts the tests in the background makes them deaf to Ctrl-C, and with them what they start
    signal.signal(signal.SIGINT, signal.default_int_handler)

NOON = datetime(2026, 3, 1, 12, 0, tzinfo=UTC)


@dataclass(frozen=True)
class Said:
    """What a command printed and how it ended."""

    code: int
    out: str
    err: str

    @property
    def objects(self) -> list[dict[str, Any]]:
        """Stdout as JSON lines."""
        return [json.loads(line) for line in self.out.splitlines()]


Run = Callable[..., Said]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Point every folder of the user into the test's own."""
    import os

    for name in [name for name in os.environ if name.startswith("NIGHTSHIFT_")]:
        monkeypatch.delenv(name)
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("NO_COLOR", "1")
    return tmp_path


@pytest.fixture(autouse=True)
def _own_narration() -> Iterator[None]:
    """Take back how a command set up the log: the stream it speaks to is gone after the test."""
    yield
    ours = logging.getLogger("assistant")
    ours.handlers.clear()
    ours.setLevel(logging.NOTSET)


@pytest.fixture
def cli(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run one command line in this process."""

    def run(*words: object) -> Said:
        capsys.readouterr()
        try:
            code = main([str(word) for word in words])
        except SystemExit as end:
            code = int(end.code or 0)
        said = capsys.readouterr()
        return Said(code, said.out, said.err)

    return run


@pytest.fixture
def store_path(home: Path) -> Path:
    """Where the command line keeps its store."""
    return home / "xdg_state_home" / "nightshift" / "nightshift.db"


@pytest.fixture
def store(store_path: Path) -> Store:
    """The store of the command line, with incident 1 about job 7 whose cordon waits as approval 1."""
    kept = Store(store_path, JumpingClock(NOON))
    incident, _ = kept.open_incident(Event(EventKind.JOB_ENDED, "7", None, NOON))
    call = kept.write_call(
        Call(
            0,
            incident.id,
            "cordon_node",
            {"node": "node02"},
            "ECC error",
            "playbook:ecc",
            NOON,
            CallStatus.PENDING,
            "cordon",
            "cordon node02",
        ),
        kind="cordon",
    )
    asked = Decision(Verdict.ASK, "mode", "policy", NOON, "cordon is in mode propose")
    kept.park(call.id, asked, datetime(2099, 1, 1, tzinfo=UTC))
    return kept
