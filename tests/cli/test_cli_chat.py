"""`nightshift chat` without a terminal: a sentence and an exit code, and nothing is loaded for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest


def chat(*words: str, term: str = "xterm", folder: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "assistant", "chat", *words],
        capture_output=True,
        text=True,
        stdin=subprocess.DEVNULL,
        timeout=60,
        check=False,
        env={"HOME": str(folder), "TERM": term, "PATH": "/usr/bin:/bin"},
    )


@pytest.mark.parametrize("words", [(), ("--resume",), ("--resume", "night"), ("--no-model", "--theme", "nightshift-light")])
def test_without_a_terminal_it_says_what_to_do_instead(tmp_path: Path, words: tuple[str, ...]) -> None:
    ended = chat(*words, folder=tmp_path)
    assert ended.returncode == 2
    assert "needs a terminal" in ended.stderr
    assert "nightshift ask" in ended.stderr
    assert "Traceback" not in ended.stderr
    assert list(tmp_path.iterdir()) == []


def test_its_help_loads_no_textual() -> None:
    code = "import sys; from assistant.cli.main import main; main(['chat', '--help']); sys.exit('textual' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, check=False).returncode == 0
