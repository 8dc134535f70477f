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
MODELS = {"langchain", "langchain_core", "langgraph", "llama_cpp", "numpy"}
WITHOUT_MODEL = """
jobs|job show 7|incident show 1|incident report 1|incident close 1|explain 1|nodes|nodes leases|nodes ledger|deny 1|undo 1
approve 1 --later|logs tail 7|checkpoints list 7|rules list|playbooks list|playbooks show faulty_node|audit show
audit verify|config show|config check|model list|status
"""
"""Commands whose work needs no model; what diagnoses (`resume`, `watch`) loads one when the rules are in doubt."""
PROGRAM = """
import sys
from assistant.cli.main import main
code = main(sys.argv[1:])
print(*sys.modules, file=sys.stderr)
sys.exit(code)
"""


@pytest.mark.parametrize("words", LIGHT, ids=" ".join)
def test_a_light_command_imports_nothing_heavy(words: list[str], store: Store) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, check=True)
    assert HEAVY & set(done.stderr.split()) == set()


COMMANDS = [line for row in WITHOUT_MODEL.split("\n") for line in row.split("|") if line]


# each starts a process that imports the engine: every third is among the fast tests
@pytest.mark.parametrize(
    "words", [pytest.param(line, marks=[] if number % 3 == 0 else pytest.mark.slow) for number, line in enumerate(COMMANDS)]
)
def test_a_command_that_needs_no_model_loads_none(words: str, store: Store) -> None:
    done = subprocess.run([sys.executable, "-c", PROGRAM, *words.split()], capture_output=True, text=True, check=False)
    loaded = set(done.stderr.split())
    assert "assistant.cli.main" in loaded
    assert MODELS & loaded == set()
