"""The chat in a real terminal: first paint, key to screen on a large cluster, memory.

    python -m bench.chat [--keys 60] [--starts 5]

First paint is from the start of the process until the prompt is on the screen; store, scheduler and encoder are read behind it. For
keys a cluster of 2,000 nodes and 5,000 jobs, of which 50 change with every look, and 200 incidents are on the screen; the time is
from the key to the first byte that the terminal gets.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from assistant.ports import SystemClock
from assistant.store import Store
from bench._chat_session import INCIDENTS, JOBS, NODES, fill
from bench._terminal import Terminal

PAINT_S, KEY_S, MEMORY_MB = 1.0, 0.050, 200.0
PROMPT = "commands"


def first_paint(folder: Path) -> float:
    """Return the seconds from the start of `nightshift chat` to its prompt."""
    own = {"HOME": str(folder), "XDG_STATE_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    with Terminal([sys.executable, "-m", "assistant", "chat"], environment=own) as terminal:
        return terminal.wait_for(PROMPT)


def keys(terminal: Terminal, typed: str, count: int) -> list[float]:
    """Return the seconds from each of some keys to the screen, ascending."""
    found = []
    for number in range(count):
        terminal.quiet(0.02)
        found.append(terminal.key(typed[number % len(typed)]))
    return sorted(found)


def _line(name: str, value: float, limit: float, unit: str, more: str = "") -> bool:
    print(f"{name:34} {value:8.1f} {unit}  limit {limit:.0f} {unit}  {limit / value:.1f} x better than the limit {more}".rstrip())
    return value > limit


def main() -> int:
    """Measure, print, and return 1 when a figure is over its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=60)
    parser.add_argument("--starts", type=int, default=5)
    options = parser.parse_args()
    over = 0
    with tempfile.TemporaryDirectory(prefix="nightshift-chat-") as name:
        folder = Path(name)
        paints = sorted(first_paint(folder) for _ in range(options.starts))
        over += _line(
            "first paint, median", statistics.median(paints) * 1000, PAINT_S * 1000, "ms", f"worst {paints[-1] * 1000:.0f} ms"
        )
        with Store(folder / "nightshift.db", SystemClock()) as store:
            fill(store)
        print(f"{NODES:,} nodes, {JOBS:,} jobs, {INCIDENTS} incidents:")
        with Terminal([sys.executable, "-m", "bench._chat_session", name], environment={"HOME": name}) as terminal:
            terminal.wait_for("llm-")
            terminal.wait_for("embedded model")
            terminal.quiet(0.3)
            for what, before, typed in (
                ("typing", "", "abcde "),
                ("moving in the jobs", "\x1b[15~", "jjjjk"),
                ("moving in the incidents", "\x1bOQ", "jjjjk"),
            ):
                terminal.key(before) if before else None
                times = keys(terminal, typed, options.keys)
                worst = times[int(len(times) * 0.95)]
                over += _line(
                    f"  {what}, median", statistics.median(times) * 1000, KEY_S * 1000, "ms", f"95 %: {worst * 1000:.0f} ms"
                )
            over += _line("  memory", terminal.memory_mb(), MEMORY_MB, "MB")
    return 1 if over else 0


if __name__ == "__main__":
    raise SystemExit(main())
