"""Inference of the small evaluator: `python -m assistant.evaluation.demo.infer MODEL [MS]`, pieces on stdin, see `serving`."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path
from typing import Any

from assistant.evaluation.demo.model import AnswerModel, load

BATCH = 32


def main() -> None:
    """Load the model, then answer for each piece."""
    model = load(Path(sys.argv[1]))
    item_ms = float(sys.argv[2]) if len(sys.argv) > 2 else 0.0
    _say({"ready": True})
    for line in sys.stdin:
        try:
            prepare_s = _evaluate(model, json.loads(line), item_ms)
        except (OSError, ValueError, KeyError) as error:
            _say({"ok": False, "error": f"{type(error).__name__}: {error}"})
        else:
            _say({"ok": True, "prepare_s": prepare_s})


def _evaluate(model: AnswerModel, piece: dict[str, Any], item_ms: float) -> float:
    """Write the answers and return how long reading the questions took."""
    start = time.monotonic()
    lines = Path(piece["data"]).read_text(encoding="utf-8").splitlines()[piece["first"] : piece["last"]]
    prompts = [json.loads(line) for line in lines]
    prepare_s = time.monotonic() - start
    with Path(piece["out"]).open("w", encoding="utf-8") as out:
        for at in range(0, len(prompts), BATCH):
            part = prompts[at : at + BATCH]
            for item, answer in zip(part, model.answer([item["prompt"] for item in part]), strict=True):
                out.write(json.dumps({**item, "given": answer}) + "\n")
            time.sleep(item_ms * len(part) / 1000)
    return prepare_s


def _say(record: object) -> None:
    sys.stdout.write(json.dumps(record) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    main()
