"""VirtualTrainer with PyTorch: its cases, the program of docs/virtual_memory.md as it stands there, and the benchmark in small.

Run by a Python with torch: `NIGHTSHIFT_TORCH` names its virtual environment, else it is the `.venv-torch` of `make deps-torch`.
"""

from __future__ import annotations

import functools
import os
import re
import subprocess
from pathlib import Path

import pytest

from bench import virtual_memory

ROOT = Path(__file__).parents[2]
TORCH = Path(os.environ.get("NIGHTSHIFT_TORCH") or ROOT / ".venv-torch").absolute()
PAGE = (ROOT / "docs" / "virtual_memory.md").read_text(encoding="utf-8")
PROGRAMS = dict(re.findall(r"<!-- test: (\S+) -->\n```python\n(.*?)```", PAGE, re.DOTALL))
PROGRAMS_OF_CASES = [ROOT / "tests" / "unit" / f"torch_virtual_memory_{name}.py" for name in ("results", "failures")]
CASES = [
    (path, case)
    for path in PROGRAMS_OF_CASES
    for case in re.findall(r"^def (case_\w+)", path.read_text(encoding="utf-8"), re.MULTILINE)
]

pytestmark = [
    pytest.mark.torch,
    pytest.mark.slow,
    pytest.mark.timeout(400),
    pytest.mark.skipif(
        not (TORCH / "bin/python").exists(), reason=f"there is no torch in {TORCH}: make deps-torch, or NIGHTSHIFT_TORCH"
    ),
]


def run(folder: Path, *words: object) -> str:
    """Run a program where torch is and return what it says."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "OMP_NUM_THREADS": "1", "CUDA_VISIBLE_DEVICES": ""}
    ended = subprocess.run(
        [TORCH / "bin/python", *map(str, words)],
        cwd=folder, env=environment, capture_output=True, text=True, check=False, timeout=380,
    )  # fmt: skip
    assert ended.returncode == 0, ended.stderr[-4000:]
    return ended.stdout


PORTION = 4
"""Cases of one process: enough that the import of torch does not count, few enough for a busy machine."""


@functools.cache
def results(portion: int) -> dict[str, str]:
    """Return what came of some cases."""
    cases = CASES[portion * PORTION : (portion + 1) * PORTION]
    outputs = [run(ROOT, path, *(name for of, name in cases if of == path)) for path in dict(cases)]
    return dict(line.split(": ", 1) for output in outputs for line in output.splitlines() if line.startswith("case_"))


@pytest.mark.parametrize("number", range(len(CASES)), ids=[name for _, name in CASES])
def test_with_torch(number: int) -> None:
    assert results(number // PORTION)[CASES[number][1]] == "holds"


def test_the_program_of_the_page_trains_within_its_budget(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(PROGRAMS["train.py"], encoding="utf-8")
    first, last, figures = run(tmp_path, program).splitlines()
    assert float(first.split()[-1]) > 1.5 * float(last.split()[-1])
    peak, budget = map(int, re.findall(r"\d+", figures.replace(",", ""))[:2])
    assert 0 < peak <= budget


def test_the_benchmark_misses_no_target_that_is_not_about_time(capsys: pytest.CaptureFixture[str]) -> None:
    rows = virtual_memory.measured(["8", "48", "8", "4", "1", "0.25", "0"])
    assert [row["way"] for row in rows] == ["plain", "ours", "naive", "naive, dirty"]
    assert virtual_memory.report(rows) == 0
    assert rows[2]["traffic"] > 3 * rows[1]["traffic"]
    assert "missed: 0" in capsys.readouterr().out
