"""Limits of time: of slow tests, and of a run of CI, which names what it leaves out and leaves out another part after each commit.

`NIGHTSHIFT_TESTS_UNTIL` (seconds since 1970) is when no further test begins; `NIGHTSHIFT_TESTS_ORDER` (any text, such as the id of
a commit) puts the files into an order of its own. Without them nothing is changed.

In the process of the tests nothing waits for the disk: what was written outlives a killed process all the same, and no test cuts
the power. Processes that tests start do wait.
"""

from __future__ import annotations

import hashlib
import os
import sqlite3
import time
from collections import Counter
from collections.abc import Iterator

import pytest
from hypothesis import settings

# how long one example takes says how busy the machine is
settings.register_profile("nightshift", deadline=None)
settings.load_profile("nightshift")
LEFT_OUT = "left out: the time of this run is over"
SLOW_TIMEOUT_S = 360
"""Of a slow test without a limit of its own; other tests have the one of pyproject.toml."""
_UNTIL = float(os.environ.get("NIGHTSHIFT_TESTS_UNTIL") or "inf")
_ORDER = os.environ.get("NIGHTSHIFT_TESTS_ORDER", "")
_files: Counter[str] = Counter()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Give slow tests their time; put the files into the order of this run: the tests of a file stay together, as fixtures ask."""
    for item in items:
        if item.get_closest_marker("slow") is not None and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(SLOW_TIMEOUT_S))
    if _ORDER:
        items.sort(key=lambda item: hashlib.sha256(f"{_ORDER} {item.nodeid.partition('::')[0]}".encode()).digest())


@pytest.fixture(scope="session", autouse=True)
def _no_wait_for_the_disk() -> Iterator[None]:
    """Let stores and files of this process be written without fsync."""
    from assistant.store.connection import Database

    keep = Database._keep

    def keep_without_sync(database: Database, connection: sqlite3.Connection) -> None:
        connection.execute("PRAGMA synchronous = OFF")
        keep(database, connection)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Database, "_keep", keep_without_sync)
        patch.setattr(os, "fsync", lambda descriptor: None)
        yield


def pytest_runtest_setup() -> None:
    """Begin no test after the limit."""
    if time.time() > _UNTIL:
        pytest.skip(LEFT_OUT)


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    """Count what was left out, by file."""
    if report.skipped and LEFT_OUT in str(report.longrepr):
        _files[report.nodeid.partition("::")[0]] += 1


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the files of which tests were left out."""
    if _files:
        terminalreporter.section(f"{_files.total()} tests left out: the time was over", yellow=True)
        for file, count in sorted(_files.items()):
            terminalreporter.write_line(f"{count:4} of {file}")
