"""The part for trainers works where nothing else of Nightshift is: copied alone, with NumPy and the standard library."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
PROGRAM = """
import importlib, pkgutil, sys
from pathlib import Path

import numpy

sys.path.insert(0, sys.argv[1])
import assistant.training

optional = {"torch", "safetensors", "lightning", "transformers", "accelerate"}
for module in pkgutil.walk_packages(assistant.training.__path__, "assistant.training."):
    try:
        importlib.import_module(module.name)
    except ModuleNotFoundError as error:
        assert (error.name or "").partition(".")[0] in optional, error

from assistant.training.checkpoints import AsyncCheckpointer

weights = {"w": numpy.arange(6.0)}
with AsyncCheckpointer(Path(sys.argv[1]) / "saves") as saver:
    saver.save(7, weights)
names = {name for name in sys.modules if name.startswith("assistant.")}
print(sorted(name for name in names if not name.startswith("assistant.training")))
print(sorted(path.name for path in (Path(sys.argv[1]) / "saves").iterdir()))
"""


def test_a_copy_of_the_folder_alone_saves_a_checkpoint(tmp_path: Path) -> None:
    package = tmp_path / "assistant"
    shutil.copytree(ROOT / "assistant/training", package / "training", ignore=shutil.ignore_patterns("__pycache__"))
    (package / "__init__.py").touch()
    answer = subprocess.run(
        [sys.executable, "-P", "-c", PROGRAM, str(tmp_path)], capture_output=True, text=True, timeout=120, cwd=tmp_path, check=False
    )
    assert (answer.returncode, answer.stderr) == (0, "")
    others, saves = answer.stdout.splitlines()
    assert others == "[]"
    assert "7" in saves
