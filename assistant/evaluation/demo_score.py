"""Metrics of the small evaluator: `python -m assistant.evaluation.demo_score exact|programs OUTPUTS SCORE [SECONDS]`.

`exact` compares answers. `programs` runs each answer with its tests in a process of its own: it belongs into the sandbox.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

from assistant import processes

PROGRAM_S = 5.0


def main() -> None:
    """Score a file of outputs."""
    kind, outputs, score = sys.argv[1], Path(sys.argv[2]), Path(sys.argv[3])
    answers = [json.loads(line) for line in outputs.read_text(encoding="utf-8").splitlines()]
    right = sum(_passes(item) if kind == "programs" else item["given"] == item["answer"] for item in answers)
    time.sleep(float(sys.argv[4]) if len(sys.argv) > 4 else 0.0)
    score.write_text(json.dumps({"score": right / len(answers), "right": right, "items": len(answers)}), encoding="utf-8")


def _passes(item: dict[str, Any]) -> bool:
    code = "\n".join([item["given"], *(f"assert {test}" for test in item["tests"])])
    try:
        completed = processes.run(
            [sys.executable, "-I", "-S", "-c", code],
            environment=processes.own_environment(),
            capture_output=True,
            timeout=PROGRAM_S,
        )
    except subprocess.TimeoutExpired:
        return False
    return completed.returncode == 0


if __name__ == "__main__":
    main()
