"""`nightshift drill --cluster`: a real job on real nodes is hurt for real, and ends as each drill's file says."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from assistant.content.faults import drills
from tests.live.conftest import SCRIPT, binds, running, skip_reason

pytestmark = pytest.mark.live
SPARE = 2
"""Nodes beside the four of the job: one may be drained."""


@pytest.fixture(scope="module")
def home() -> Iterator[Path]:
    """A cluster of its own: a drill leaves nodes broken until it has healed them."""
    reason = skip_reason()
    if reason:
        pytest.skip(reason)
    root = Path(tempfile.mkdtemp(prefix="nsd"))
    root.chmod(0o755)
    (root / "shared").mkdir()
    with running(root / "h", "--nodes", str(4 + SPARE), *binds(root / "shared")):
        yield root
    shutil.rmtree(root, ignore_errors=True)


@pytest.mark.timeout(300)
@pytest.mark.parametrize("name", drills())
def test_a_drill_ends_as_its_file_says(home: Path, name: str) -> None:
    command = [
        sys.executable,
        "-m",
        "assistant",
        "drill",
        "--cluster",
        "--rig",
        str(SCRIPT),
        "--home",
        str(home / "h"),
        "--shared",
        str(home / "shared"),
    ]
    # the store of whoever runs the tests may hold a kill switch or a policy of its own
    environment = {**os.environ, "XDG_STATE_HOME": str(home / "state"), "XDG_CONFIG_HOME": str(home / "config")}
    environment = {key: text for key, text in environment.items() if not key.startswith("NIGHTSHIFT_")}
    words = [*command, "--only", name, "--json"]
    done = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=290, check=False)
    found = json.loads(done.stdout.splitlines()[-1]) if done.stdout else {}
    assert found.get("as_expected"), f"{found.get('problems')}\n{done.stderr}"
    assert done.returncode == 0
