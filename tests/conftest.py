"""A limit of time for a run of tests, for CI: what it leaves out is named, and another part is left out after each commit.

`NIGHTSHIFT_TESTS_UNTIL` (seconds since 1970) is when no further test begins; `NIGHTSHIFT_TESTS_ORDER` (any text, such as the id of
a commit) puts the files into an order of its own. Without them nothing is changed.
"""

from __future__ import annotations

import hashlib
import os
import time
from collections import Counter

import pytest

LEFT_OUT = "left out: the time of this run is over"
_UNTIL = float(os.environ.get("NIGHTSHIFT_TESTS_UNTIL") or "inf")
_ORDER = os.environ.get("NIGHTSHIFT_TESTS_ORDER", "")
_files: Counter[str] = Counter()


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Put the files into the order of this run; the tests of a file stay together, as their fixtures ask for."""
    if _ORDER:
        items.sort(key=lambda item: hashlib.sha256(f"{_ORDER} {item.nodeid.partition('::')[0]}".encode()).digest())


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
