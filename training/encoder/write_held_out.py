"""Choose the wordings to hold out. Was run once; run again it chooses others as soon as the knowledge base has grown."""

from __future__ import annotations

import json

from lines import HELD_OUT, all_lines, choose_held_out, without_labelled

if __name__ == "__main__":
    chosen = choose_held_out(without_labelled(all_lines()), seed=1)
    rows = [f"{reason} = [\n" + "".join(f"  {json.dumps(text)},\n" for text in texts) + "]\n" for reason, texts in chosen.items()]
    HELD_OUT.write_text("# Wordings that no training sees. Chosen once by write_held_out.py.\n" + "\n".join(rows), encoding="utf-8")
