"""Share of ordinary lines of logs in which redaction hides something. Limit: 0.1 %."""

from __future__ import annotations

import argparse
from pathlib import Path

from assistant.redact import redact

LIMIT = 0.001


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
    return int(share > LIMIT or not lines)


def _logs(place: Path) -> list[Path]:
    return (
        [place]
        if place.is_file()
        else sorted(path for path in place.rglob("*.log") if path.is_file() and "redact" not in path.parts)
    )


if __name__ == "__main__":
    raise SystemExit(main())
