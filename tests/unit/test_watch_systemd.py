"""systemd and journald: what they are told, and that the shipped units are right."""

from __future__ import annotations

import json
import logging
import os
import shutil
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from assistant.daemon.journal import (
    JournalHandler,
    JsonLines,
    PriorityLines,
    Systemd,
    fields_of,
    listen,
    speaks_to_journal,
)
from assistant.daemon.pass_result import PassResult

UNITS = Path(__file__).parents[2] / "packaging" / "systemd"
AT = datetime(2026, 3, 10, 12, 0, tzinfo=UTC)


class Ear:
    """A socket of a service manager."""

    def __init__(self, address: str) -> None:
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind("\0" + address[1:] if address.startswith("@") else address)
        self.socket.settimeout(2)

    def heard(self) -> list[str]:
        return self.socket.recv(65536).decode().splitlines()


@pytest.fixture(params=["path", "abstract"])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return str(tmp_path / "notify") if request.param == "path" else f"@nightshift-test-{os.getpid()}-{id(tmp_path)}"


@pytest.fixture
def ear(address: str) -> Iterator[Ear]:
    made = Ear(address)
    yield made
    made.socket.close()


def test_it_is_ready_after_the_first_pass_and_alive_after_each(address: str, ear: Ear) -> None:
    systemd = Systemd(address)
    systemd.report(PassResult(AT, 0.5, leads=True, unfinished=3, in_flight=1))
    assert ear.heard() == [
        "READY=1",
        "WATCHDOG=1",
        "STATUS=leads; last pass 12:00:00 UTC in 0.5 s; incidents: 3 unfinished, 1 in work",
    ]
    systemd.report(PassResult(AT, 0.5, leads=False))
    assert ear.heard() == ["WATCHDOG=1", "STATUS=stands by: another watch leads"]


def test_a_blind_pass_is_no_sign_of_life(address: str, ear: Ear) -> None:
    systemd = Systemd(address)
    systemd.report(PassResult(AT, 30.0, leads=True, trouble=("squeue did not answer\nwithin 30 s", "node7 is silent")))
    ready, status = ear.heard()
    assert ready == "READY=1"
    assert status.endswith("; degraded: squeue did not answer\\nwithin 30 s and 1 more")


def test_reloading_and_ending_are_said(address: str, ear: Ear) -> None:
    systemd = Systemd(address)
    systemd.reloading()
    reloading, when, _ = ear.heard()
    assert reloading == "RELOADING=1"
    assert int(when.removeprefix("MONOTONIC_USEC=")) > 0
    systemd.reloaded()
    assert ear.heard() == ["READY=1"]
    systemd.close()
    assert ear.heard()[0] == "STOPPING=1"


def test_without_systemd_nothing_is_said_and_a_socket_that_is_gone_stops_nothing(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    Systemd("").report(PassResult(AT, 0.5, leads=True))
    assert caplog.text == ""
    Systemd(str(tmp_path / "gone")).report(PassResult(AT, 0.5, leads=True))
    assert "could not be told" in caplog.text


def record(message: str, level: int = logging.WARNING) -> logging.LogRecord:
    return logging.LogRecord("assistant.engine", level, "/src/engine.py", 12, message, (), None, "work")


def _entry(data: bytes) -> dict[str, str]:
    fields: dict[str, str] = {}
    while data:
        line, _, data = data.partition(b"\n")
        name, equals, value = line.partition(b"=")
        if not equals:
            (length,) = struct.unpack("<Q", data[:8])
            value, data = data[8 : 8 + length], data[9 + length :]
        fields[name.decode()] = value.decode()
    return fields


def test_the_journal_gets_fields_and_no_secret(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
        journal.bind(str(tmp_path / "journal"))
        handler = JournalHandler(tmp_path / "journal")
        handler.emit(record("incident=12 job=4821_3 node=None call=7 failed:\nexport HF_TOKEN=hf_abcdefghijklmnopqrstuvwx"))
        handler.close()
        found = _entry(journal.recv(65536))
    assert found["MESSAGE"] == "incident=12 job=4821_3 node=None call=7 failed:\\nexport HF_TOKEN=[redacted]"
    assert (found["INCIDENT"], found["JOB"], found["CALL"]) == ("12", "4821_3", "7")
    assert "NODE" not in found
    assert (found["PRIORITY"], found["SYSLOG_IDENTIFIER"], found["CODE_LINE"]) == ("4", "nightshift", "12")


def test_an_entry_too_long_for_a_datagram_arrives_as_a_sealed_file(tmp_path: Path) -> None:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as journal:
        journal.bind(str(tmp_path / "journal"))
        handler = JournalHandler(tmp_path / "journal")
        handler.emit(record("x" * 1_000_000))
        handler.close()
        _, handles, _, _ = socket.recv_fds(journal, 1024, 1)
        with os.fdopen(handles[0], "rb") as file:
            file.seek(0)
            found = _entry(file.read())
    assert len(found["MESSAGE"]) == 1_000_000


def test_without_a_journal_the_entry_goes_to_stderr_with_its_priority(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    handler = JournalHandler(tmp_path / "none")
    handler.emit(record("incident=1 needs a person", logging.ERROR))
    handler.close()
    assert capsys.readouterr().err == "<3>incident=1 needs a person\n"


def test_lines_carry_no_escape_sequences_and_json_lines_the_ids() -> None:
    line = PriorityLines(numbered=True).format(record("one\x1b[2J\ntwo", logging.INFO))
    assert line == r"<6>one\x1b[2J\ntwo"
    found = json.loads(JsonLines().format(record("incident=12 node=node[001-016] password=hunter2hunter2")))
    assert (found["incident"], found["node"], found["level"]) == ("12", "node[001-016]", "warning")
    assert "hunter2" not in found["message"]


def test_a_traceback_is_part_of_the_message() -> None:
    try:
        raise OSError("the disk")
    except OSError:
        found = logging.LogRecord("assistant", logging.ERROR, "f.py", 1, "broke", (), sys.exc_info())
    assert "OSError: the disk" in json.loads(JsonLines().format(found))["message"]


def test_ids_are_read_where_they_stand_alone() -> None:
    assert fields_of("incident=3 job=7 incident=4 xjob=9") == {"INCIDENT": "3", "JOB": "7"}


def test_only_the_stream_that_systemd_gave_counts(tmp_path: Path) -> None:
    with (tmp_path / "log").open("w") as stream:
        found = os.fstat(stream.fileno())
        assert speaks_to_journal({"JOURNAL_STREAM": f"{found.st_dev}:{found.st_ino}"}, stream)
        assert not speaks_to_journal({"JOURNAL_STREAM": f"{found.st_dev}:1"}, stream)
        assert not speaks_to_journal({}, stream)


@pytest.mark.parametrize(("form", "first"), [("text", "2"), ("auto", "2"), ("json", "{")])
def test_the_form_of_the_log_follows_the_settings(form: str, first: str, capsys: pytest.CaptureFixture[str]) -> None:
    ours = logging.getLogger("assistant")
    kept = (list(ours.handlers), ours.level)
    try:
        listen(form, 0, quiet=False, environ={})
        logging.getLogger("assistant.engine").info("incident=1 opened")
        logging.getLogger("assistant.engine").debug("nobody hears this")
    finally:
        ours.handlers[:], ours.level = kept
    said = capsys.readouterr().err
    assert said.startswith(first)
    assert said.count("\n") == 1


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here")
def test_systemd_takes_the_shipped_units(tmp_path: Path) -> None:
    # the program is not installed where the units expect it
    for unit in UNITS.iterdir():
        (tmp_path / unit.name).write_text(unit.read_text().replace("/opt/nightshift/bin/nightshift", sys.executable))
    units = sorted(str(path) for path in tmp_path.iterdir())
    assert len(units) == 3
    done = subprocess.run(["systemd-analyze", "verify", *units], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="there is no systemd-analyze here")
@pytest.mark.parametrize("unit", ["nightshift-watch.service", "nightshift-watch-once.service"])
def test_who_takes_the_watch_over_gains_little_by_it(unit: str) -> None:
    security = ["systemd-analyze", "security", "--offline=true", "--no-pager", "--threshold=20", str(UNITS / unit)]
    done = subprocess.run(security, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-200:] + done.stderr


def test_the_units_start_commands_that_exist() -> None:
    from assistant.cli.main import COMMANDS

    started = [
        line.partition("bin/nightshift ")[2].split()
        for unit in UNITS.glob("*.service")
        for line in unit.read_text().splitlines()
        if line.startswith("ExecStart=")
    ]
    assert len(started) == 2
    assert all(next(word for word in words if not word.startswith("-")) in COMMANDS for words in started)
