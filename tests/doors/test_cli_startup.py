"""Commands that people run all day import nothing heavy; how fast that is, bench/startup.py measures."""

from __future__ import annotations

import subprocess
import sys

import pytest

from assistant.store import Store

HEAVY = {
    *("numpy", "hyperscan", "rich", "sqlite_utils", "pydantic", "langchain", "llama_cpp", "textual", "paramiko", "asyncio"),
    *("assistant.engine", "assistant.diagnose", "assistant.gate", "assistant.rules", "assistant.logs", "assistant.wiring"),
}
LIGHT = [
    ["--help"],
    ["--version"],
    ["incidents"],
    ["incidents", "--open", "--job", "7", "--since", "2h", "--limit", "5", "--json"],
    ["approvals"],
]
PROGRAM = """
import sys
from assistant.doors.cli.main import main
code = main(sys.argv[1:])
print(*sys.modules, file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.parametrize("words", LIGHT, ids=" ".join)
def test_a_light_command_imports_nothing_heavy(words: list[str], store: Store) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, check=True)
    assert HEAVY & set(done.stderr.split()) == set()
