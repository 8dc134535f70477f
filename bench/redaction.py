"""Share of ordinary lines of logs in which redaction hides something, limit 0.1 %; and of secrets that it hides, at least 95 %.

The secrets are `tests/cases/redact/blind_*.jsonl`, each labelled before its first run. The first set and the third were
read to mend their misses, so only their first runs count: 71 of 86 of the third, which holds makers that no other set
has. The second never was read; of the fourth, by another author, the first run hid 100 of 100; of the fifth, whose
misses were mended, 115 of 120; of the sixth, behind those mends and by yet another author, 146 of 150. The seventh to the tenth,
each by an author of its own and read once it had been run, first: 110, 108, 114 of 120, then 145 of 150 (not a piece of 12
characters left). The eleventh, by yet another author, first: 143 of 150, its misses mended. The lines are those
of tests/cases, or of the logs that `--logs` names.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path

from assistant.redact import redact

LIMIT = 0.001
LEAST_HIDDEN = 0.95


def main() -> int:
    """Print the share and return 1 when it is above the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--logs", type=Path, action="append", help="folder of logs or one log; tests/cases when left out")
    parser.add_argument("--show", type=int, default=20, help="lines shown that were touched")
    parser.add_argument("--most-lines", type=int, default=20_000, help="lines read of each log")
    options = parser.parse_args()
    lines = touched = 0
    for path in (path for place in options.logs or [Path("tests/cases")] for path in _logs(place)):
        with path.open(encoding="utf-8", errors="replace") as log:
            for line, _ in zip(log, range(options.most_lines), strict=False):
                lines += 1
                plain = line.rstrip("\n")[:4_096]
                if (clean := redact(plain)) != plain:
                    touched += 1
                    if touched <= options.show:
                        print(f"{path.name}: {clean[:160]}")
    share = touched / max(lines, 1)
    print(f"{touched} of {lines} lines touched: {share:.3%} (limit {LIMIT:.1%})")
    hidden = [_share_hidden(path) for path in sorted(Path("tests/cases/redact").glob("blind_*.jsonl"))]
    return int(share > LIMIT or not lines or min(hidden) < LEAST_HIDDEN)


def _share_hidden(path: Path) -> float:
    """Print and return the share of the secrets of a set of which nothing is left."""
    entries = [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]
    hidden = 0
    for entry in entries:
        secrets = entry["secret"] if isinstance(entry["secret"], list) else [entry["secret"]]
        clean = redact(entry["text"])
        hidden += not any(secret in clean for secret in secrets if secret.strip())
    print(f"{path.stem}: {hidden} of {len(entries)} secrets hidden: {hidden / len(entries):.1%} (at least {LEAST_HIDDEN:.0%})")
    return hidden / len(entries)


def _logs(place: Path) -> list[Path]:
    return (
        [place]
        if place.is_file()
        else sorted(path for path in place.rglob("*.log") if path.is_file() and "redact" not in path.parts)
    )


if __name__ == "__main__":
    raise SystemExit(main())
