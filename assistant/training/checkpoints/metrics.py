"""`metrics.jsonl`: one line a step, which Nightshift's watch reads where the log itself names no loss.

{"step": 1200, "loss": 2.31, "tokens_per_s": 81000.0, "save_s": 0.14, "at": "2026-01-05T02:00:00+00:00"}
"""

from __future__ import annotations

import json
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Any


class Metrics:
    """Appends lines; a file that cannot be written never stops the training."""

    def __init__(self, path: Path | None) -> None:
        """Write into a file; None: nowhere."""
        self.path = path
        self._last = time.perf_counter()

    def step(self, step: int, *, loss: float | None, tokens: int | None, save_s: float, more: dict[str, float]) -> None:
        """Write a line.

        Args:
            step: The step that is over.
            loss: Its loss.
            tokens: Tokens of this step over all ranks; the speed is counted since the line before.
            save_s: How long a checkpoint has blocked this step.
            more: Further numbers, such as grad_norm.
        """
        now = time.perf_counter()
        spent, self._last = now - self._last, now
        if self.path is None:
            return
        said: dict[str, Any] = {"step": step}
        if loss is not None:
            said["loss"] = loss
        if tokens is not None and spent > 0:
            said["tokens_per_s"] = round(tokens / spent, 1)
        said |= {**more, "save_s": round(save_s, 4), "at": datetime.now(UTC).isoformat()}
        try:
            with self.path.open("a", encoding="utf-8") as stream:
                stream.write(json.dumps(said) + "\n")
        except OSError:
            return
