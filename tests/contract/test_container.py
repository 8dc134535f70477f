"""packaging/Containerfile: it passes hadolint, and what it copies is all that the wheel is made of."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONTAINERFILE = ROOT / "packaging" / "Containerfile"
HADOLINT = shutil.which("hadolint") or shutil.which("hadolint", path=str(Path(sys.executable).parent))
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


@pytest.mark.skipif(HADOLINT is None, reason="there is no hadolint here: make deps")
def test_hadolint_has_nothing_to_say() -> None:
    assert HADOLINT is not None
    answer = subprocess.run([HADOLINT, CONTAINERFILE], capture_output=True, text=True, timeout=60, check=False)
    assert (answer.returncode, answer.stdout + answer.stderr) == (0, "")


def test_the_build_context_holds_all_that_the_wheel_is_made_of() -> None:
    allowed = {line[1:] for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    links = {str((ROOT / "assistant" / name).readlink()).removeprefix("../") for name in ("tools", "playbooks", "knowledge")}
    assert allowed >= {"pyproject.toml", "assistant", PROJECT["readme"], *PROJECT["license-files"]} | links


def test_the_extras_of_the_image_exist_and_need_no_compiler() -> None:
    line = re.search(r"^ARG EXTRAS=(\S+)$", CONTAINERFILE.read_text(), re.M)
    assert line is not None
    extras = set(line[1].split(","))
    assert extras <= set(PROJECT["optional-dependencies"])
    assert not extras & {"gguf", "all"}
