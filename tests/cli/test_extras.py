"""Nightshift without the packages of its extras: what works, and what a command says that needs one."""

from __future__ import annotations

import os
import pty
import re
import shlex
import subprocess
import sys
import tomllib
from http.server import BaseHTTPRequestHandler
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

from assistant.cli.main import EXTRAS, install_command
from assistant.cli.output import Exit
from assistant.llm.encoder import GGUF
from packaging.requirements import Requirement
from tests.daemon.http_here import HttpHere

ROOT = Path(__file__).parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
WITHOUT = f"""
import sys

class Missing:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {sum(EXTRAS.values(), ())}:
            raise ModuleNotFoundError(f"No module named {{name!r}}", name=name)

sys.meta_path.insert(0, Missing())
from assistant.cli.main import main
sys.exit(main(sys.argv[1:]))
"""
"""The command of an installation that has no extra."""


def without_extras(*words: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", WITHOUT, *words], capture_output=True, text=True, check=False)


class Figures(BaseHTTPRequestHandler):
    """Answers as a watch with metrics does that counts nothing."""

    def do_GET(self) -> None:
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b"# EOF\n")

    def log_message(self, *words: object) -> None:
        pass


def test_every_package_of_an_extra_is_known_by_its_extra() -> None:
    known = packages_distributions()
    for extra, requirements in PROJECT["optional-dependencies"].items():
        wanted = {re.split(r"[<>=!~;\[ ]", one, maxsplit=1)[0].lower() for one in requirements} - {PROJECT["name"]}
        brought = {name.lower().replace("_", "-") for package in EXTRAS.get(extra, ()) for name in known.get(package, ())}
        assert wanted <= brought, extra
    assert set(EXTRAS) == set(PROJECT["optional-dependencies"]) - {"all"}


FAST = ["--help", "incidents", "ask what is wrong"]
SLOW = ["jobs", "nodes", "watch --once", "demo --list"]


@pytest.mark.parametrize("words", [*FAST, *(pytest.param(words, marks=pytest.mark.slow) for words in SLOW)])
def test_what_needs_no_extra_works_without(words: str) -> None:
    done = without_extras(*words.split())
    assert (done.returncode, "not installed" in done.stderr) == (0, False), done.stderr


def test_a_log_is_diagnosed_without_extras(tmp_path: Path) -> None:
    log = tmp_path / "run.log"
    log.write_text("step 1 loss 2.0\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n")
    assert "out_of_memory" in without_extras("diagnose", str(log)).stdout


@pytest.mark.parametrize(
    ("extra", "words", "settings"),
    [
        ("notify", "notify", '[notify.sinks.oncall]\nurl_file = "{folder}/url"'),
        ("notify", "doctor", '[notify.sinks.oncall]\nurl_file = "{folder}/url"'),
        ("agent", "ask what is wrong", '[model]\nurl = "http://127.0.0.1:9/v1"\nname = "x"'),
        ("agent", "ask what is wrong", f'[model]\npath = "{ROOT}/assistant/llm/data/{GGUF}"'),
    ],
)
def test_a_missing_extra_is_named_with_the_line_to_type(extra: str, words: str, settings: str, tmp_path: Path) -> None:
    url, config = tmp_path / "url", tmp_path / "config.toml"
    url.write_text("json://127.0.0.1:9/x")
    url.chmod(0o600)
    config.write_text(settings.format(folder=tmp_path))
    done = without_extras("--config", str(config), *words.split())
    assert install_command(extra) in " ".join((done.stderr + done.stdout).split())
    assert "Traceback" not in done.stderr


def test_the_metrics_of_another_host_need_an_extra() -> None:
    server = HttpHere(Figures)
    done = without_extras("status", "--url", f"http://127.0.0.1:{server.port}/metrics")
    server.close()
    assert install_command("notify") in done.stderr


def test_the_chat_needs_an_extra() -> None:
    master, terminal = pty.openpty()
    try:
        code = subprocess.run([sys.executable, "-c", WITHOUT, "chat"], stdin=terminal, stdout=terminal, stderr=terminal).returncode
        shown = " ".join(os.read(master, 65_536).decode().split())
    finally:
        os.close(master)
        os.close(terminal)
    assert code == Exit.ERROR
    assert install_command("chat") in shown


def requirements_of(extra: str) -> set[str]:
    """Return the requirements of an extra as pyproject.toml has them, without the extras that it includes."""
    own = PROJECT["optional-dependencies"][extra]
    included = [word for line in own if line.startswith(PROJECT["name"]) for word in line.partition("[")[2].rstrip("]").split(",")]
    others = {str(Requirement(line)) for line in own if not line.startswith(PROJECT["name"])}
    return others.union(*(requirements_of(word) for word in included))


@pytest.mark.parametrize("extra", [*EXTRAS, "all"])
def test_the_line_to_type_names_the_packages_of_the_extra_and_no_index_has_to_know_nightshift(extra: str) -> None:
    words = shlex.split(install_command(extra))
    assert words[:4] == [sys.executable, "-m", "pip", "install"]
    assert {str(Requirement(word)) for word in words[4:]} == requirements_of(extra)


@pytest.mark.parametrize("extra", ["agent", "chat", "notify"])
def test_pip_takes_the_line_to_type(extra: str) -> None:
    # everything is installed here already, so pip needs no index to agree
    line = f"{install_command(extra)} --quiet --dry-run --no-index"
    done = subprocess.run(["bash", "-c", line], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


def test_a_copy_that_was_never_installed_is_installed_from_where_it_lies(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("assistant.cli.main.DISTRIBUTION", "nightshift-ops-of-nobody")
    assert shlex.split(install_command("chat"))[-1] == f"{ROOT}[chat]"


def test_an_environment_without_pip_is_filled_by_uv(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pip", None)
    assert shlex.split(install_command("chat"))[:5] == ["uv", "pip", "install", "--python", sys.executable]
