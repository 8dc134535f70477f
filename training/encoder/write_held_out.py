"""Choose what to hold out, and write the cases. Was run once; a later run chooses others, for the knowledge base grows."""

from __future__ import annotations

import json
from pathlib import Path

import sentences as asked
from lines import HELD_OUT, all_lines, choose_held_out, excerpts, without_labelled

from bench.encoder import CASES

EXCERPTS = 360


def write_lines() -> None:
    """Choose wordings of every reason."""
    chosen = choose_held_out(without_labelled(all_lines()), seed=1)
    rows = [f"{reason} = [\n" + "".join(f"  {json.dumps(text)},\n" for text in texts) + "]\n" for reason, texts in chosen.items()]
    HELD_OUT.write_text("# Wordings that no training sees. Chosen once by write_held_out.py.\n" + "\n".join(rows), encoding="utf-8")


def write_cases(folder: Path, count: int = EXCERPTS) -> None:
    """Write what is held out as cases for tests and for bench/encoder.py."""
    folder.mkdir(parents=True, exist_ok=True)
    rows = [{"lines": lines, "root": root, "reason": reason} for lines, root, reason in excerpts(count)]
    (folder / "excerpts.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    said = [{"head": head, "says": text, "wants": want} for head in asked.HEADS for text, want in asked.choose_held_out(head)]
    (folder / "sentences.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in said), encoding="utf-8")


if __name__ == "__main__":
    write_lines()
    write_cases(CASES)
