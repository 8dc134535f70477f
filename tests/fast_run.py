"""The rule of `make unit-fast`, a plugin of pytest: unit tests that wait for nothing and are computed soon. None is listed.

A file of tests is not imported where it, or a module of `tests/` that it imports, starts processes or threads, opens sockets,
sleeps, measures with `bench`, or is slow as a whole. Any other file has a tenth of a second of processor time; once that is used,
or a test of it has started a process or slept after all, the rest of the file is left out: `make test` runs it.
"""

from __future__ import annotations

import ast
import os
import sys
import time
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import SupportsIndex

import pytest

ROOT = Path(__file__).parents[1]
SHARE_S = 0.1
"""Processor time of one file, of this process and those that it has waited for."""
WAITS = frozenset("subprocess threading multiprocessing concurrent socket socketserver http pty bench".split())
STARTS = frozenset({"subprocess.Popen", "os.fork", "os.forkpty", "os.posix_spawn", "os.system"})
"""Audit events of Python."""
_SLEEP = time.sleep


@cache
def waiting_reason(path: Path) -> str:
    """Return why a file of tests, or a module that it imports from `tests/`, waits for something; empty where nothing says so."""
    for node in ast.walk(ast.parse(path.read_bytes())):
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "pytestmark" and "mark.slow" in ast.unparse(node.value):
            return "marked slow"
        if isinstance(node, ast.Attribute) and ast.unparse(node) == "time.sleep":
            return "sleeps"
        for module in imported_modules(node):
            if module.partition(".")[0] in WAITS:
                return f"imports {module}"
            imported = ROOT / (module.replace(".", "/") + ".py")
            if module.startswith("tests.") and imported.is_file() and (reason := waiting_reason(imported)):
                return f"{module} {reason}"
    return ""


def imported_modules(node: ast.AST) -> list[str]:
    """Return the modules that a statement imports; none where it is no import."""
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if isinstance(node, ast.ImportFrom) and node.module:
        return [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
    return []


def pytest_ignore_collect(collection_path: Path) -> bool | None:
    """Leave a file out before it is imported."""
    is_test = collection_path.suffix == ".py" and collection_path.name.startswith("test_")
    return True if is_test and waiting_reason(collection_path) else None


class Shares:
    """What the tests of each file have used of its share."""

    def __init__(self) -> None:
        self.used_s: dict[Path, float] = {}
        self.left: dict[Path, str] = {}
        self.left_count = 0
        self.delays: list[str] = []

    def audit(self, event: str, _arguments: tuple[object, ...]) -> None:
        """Note that a process was started."""
        if event in STARTS:
            self.delays.append("has started a process")

    def sleep(self, seconds: SupportsIndex | float, /) -> None:
        """Sleep, and note it."""
        self.delays.append("has slept")
        _SLEEP(seconds)

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        """Take what one test uses off the share of its file."""
        self.delays.clear()
        before_s = sum(os.times()[:4])
        try:
            return (yield)
        finally:
            self.used_s[item.path] = self.used_s.get(item.path, 0.0) + sum(os.times()[:4]) - before_s
            if self.delays:
                self.left[item.path] = self.delays[0]
            elif self.used_s[item.path] > SHARE_S:
                self.left[item.path] = f"has used {SHARE_S:g} s of processor time"

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        """Say what was left out."""
        terminalreporter.write_line(f"{self.left_count} tests of {len(self.left)} files are left to `make test`")


class LeftOut:
    """Leaves out what is left of a file whose share is used up, without the two milliseconds that a skipped test takes."""

    def __init__(self, shares: Shares) -> None:
        self.shares = shares

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        """Take a test for done where its file has no share left."""
        if item.path not in self.shares.left:
            return None
        self.shares.left_count += 1
        # what the tests before it share, and the next one does not, ends here
        item.session._setupstate.teardown_exact(nextitem)
        return True


def pytest_configure(config: pytest.Config) -> None:
    """Begin to count."""
    shares = Shares()
    config.pluginmanager.register(shares, "shares")
    config.pluginmanager.register(LeftOut(shares), "left out")
    sys.addaudithook(shares.audit)
    time.sleep = shares.sleep
