"""The chat in a real terminal: first paint, key to screen on a large cluster and in a growing log, what others write, memory.

    python -m bench.chat [--keys 330] [--starts 5] [--others 5] [--rate 10000]

First paint is from the start of the process until the prompt is on the screen; store, scheduler and encoder are read behind it.
For all else a cluster of 2,000 nodes and 5,000 jobs, of which 50 change with every look, and 200 incidents are in the chat; the
patterns of logs are compiled before, as they are since the first diagnosis.

A key's time is from the key to the first byte that the terminal gets; in the log viewer, which writes without keys as well, to the
line of the foot that says where the key led to; 99 % of the keys have to keep the limit. What other processes write is timed from
the moment that the store keeps of it.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from pathlib import Path

from assistant.ports import SystemClock
from assistant.store import Store
from bench._chat_log import begin, keys_while_it_grows
from bench._chat_others import LIMIT_S, answers_shown, ask, incidents_shown
from bench._chat_session import INCIDENTS, JOBS, LOG, LOGS, NODES, fill
from bench._terminal import Terminal

PAINT_S, KEY_S, MEMORY_MB = 1.0, 0.050, 200.0
PROMPT = "commands"
# not beyond the end of a list, where a key has nothing to draw
MOVES = (
    ("typing", "", "abcde "),
    ("moving in the jobs", "\x1b[15~", "jjjkk"),
    ("moving in the incidents", "\x1bOQ", "jjjkk"),
)


def first_paint(folder: Path) -> float:
    """Return the seconds from the start of `nightshift chat` to its prompt."""
    own = {"HOME": str(folder), "XDG_STATE_HOME": str(folder), "XDG_CONFIG_HOME": str(folder)}
    own |= {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(folder / "compiled")}
    with Terminal([sys.executable, "-m", "assistant", "chat"], environment=own) as terminal:
        return terminal.wait_for(PROMPT)


def keys(terminal: Terminal, typed: str, count: int) -> list[float]:
    """Return the seconds from each of some keys to the screen, ascending."""
    found = []
    for number in range(count):
        terminal.quiet(0.02)
        found.append(terminal.key(typed[number % len(typed)]))
    return sorted(found)


def compiled_before(environment: Mapping[str, str]) -> None:
    """Compile the patterns of logs as the first diagnosis of a version does, so that no later process has to."""
    command = [
        sys.executable,
        "-c",
        "from assistant.rules.loading import load_patterns; load_patterns().telling_digits(b'step 1')",
    ]
    subprocess.run(command, check=True, env={**os.environ, **environment})


def _line(name: str, value: float, limit: float, unit: str, more: str = "") -> bool:
    print(f"{name:34} {value:8.1f} {unit}  limit {limit:.0f} {unit}  {limit / value:.1f} x better than the limit {more}".rstrip())
    return value > limit


def _times(name: str, times: Sequence[float], more: str = "") -> bool:
    """Print the times of keys, ascending; tell whether 99 % of them were not within the limit."""
    found = f"median {statistics.median(times) * 1000:.0f} ms, worst {times[-1] * 1000:.0f} ms"
    late = times[int(len(times) * 0.99)] * 1000
    return _line(f"  {name}, 99 %", late, KEY_S * 1000, "ms", ", ".join(filter(None, (found, more))))


def _on_large_cluster(folder: Path, options: argparse.Namespace) -> int:
    """Measure in one chat on the large cluster; return how many limits were not kept."""
    over = 0
    writer = begin(folder / LOG, options.rate)
    with Store(folder / "nightshift.db", SystemClock()) as store:
        fill(store)
        approvals = ask(store, options.others)
        environment = {"HOME": str(folder)}
        compiled_before(environment)
        with Terminal([sys.executable, "-m", "bench._chat_session", str(folder)], environment=environment) as terminal:
            terminal.wait_for("llm-")
            terminal.wait_for("embedded model")
            terminal.quiet(0.3)
            for what, before, typed in MOVES:
                terminal.key(before) if before else None
                over += _times(what, keys(terminal, typed, options.keys))
            for what, shown in (
                ("an incident of another process", incidents_shown(terminal, store, options.others)),
                ("an answer of the command line", answers_shown(terminal, store, approvals)),
            ):
                over += _line(f"  {what}, median", statistics.median(shown), LIMIT_S, "s", f"worst {shown[-1]:.1f} s")
            # out of the list (an Escape is one when nothing follows for a moment), off with what was typed, and into the log
            for typed in ("\x1b", "\x03", f"/log {10_000 + LOGS}", "\r"):
                terminal.quiet(0.3)
                terminal.type(typed)
            terminal.until(lambda shown: "following" in shown, "the log")
            terminal.quiet(0.3)
            grown = keys_while_it_grows(terminal, folder / LOG, writer, options.rate, options.keys)
            came = f"while {grown.rate:,.0f} lines/s come; the end is shown {grown.behind:.1f} s late at most; "
            came += f"the machine itself is {grown.late * 1000:.0f} ms late in 1 % of an idle process's naps"
            over += _times("in a log that grows", grown.times, came)
            over += _line("  memory", terminal.memory_mb(), MEMORY_MB, "MB")
    writer.end()
    return over


def main() -> int:
    """Measure, print, and return 1 when a figure is over its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", type=int, default=330)
    parser.add_argument("--starts", type=int, default=5)
    parser.add_argument("--others", type=int, default=5, help="times that another process writes to the store")
    parser.add_argument("--rate", type=int, default=10_000, help="lines appended a second")
    options = parser.parse_args()
    over = 0
    with tempfile.TemporaryDirectory(prefix="nightshift-chat-") as name:
        folder = Path(name)
        first_paint(folder)  # compiles the modules, as pip does when it installs them
        paints = sorted(first_paint(folder) for _ in range(options.starts))
        over += _line(
            "first paint, median", statistics.median(paints) * 1000, PAINT_S * 1000, "ms", f"worst {paints[-1] * 1000:.0f} ms"
        )
        print(f"{NODES:,} nodes, {JOBS:,} jobs, {INCIDENTS} incidents:")
        over += _on_large_cluster(folder, options)
    return 1 if over else 0


if __name__ == "__main__":
    raise SystemExit(main())
