"""Measure the log viewer of the chat on a large log: first paint, a jump to the middle, keys while the log grows, memory.

    python -m bench.log_view [--size-mb 1000] [--seconds 8] [--rate 10000]

The application runs as it does on a terminal, only that what it draws goes nowhere; garbage is left for the pauses, as in the chat.
A key's time runs from the press until the screen shows its line. Memory is the peak resident size of the process, Textual,
Hyperscan and all patterns included.
"""

from __future__ import annotations

import argparse
import asyncio
import multiprocessing
import resource
import statistics
import tempfile
import time
from collections.abc import Callable
from multiprocessing.synchronize import Event
from pathlib import Path

from textual import events
from textual.app import App
from textual.geometry import Region
from textual.strip import Strip

from assistant.process_memory import Garbage
from assistant.tui.logs.view import LogView
from assistant.tui.screens.log import LogScreen
from bench.training_log import write

OPEN_LIMIT_S, KEY_LIMIT_MS, MEMORY_LIMIT_MB = 1.0, 50.0, 200.0
_KEYS = ("k", "k", "ctrl+u", "j", "ctrl+d", "k", "pageup", "G", "k", "j")


class _Viewer(App[None]):
    """Nothing but the log."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self.drawn = 0
        self.drawing = asyncio.Event()
        self._garbage = Garbage()

    def on_mount(self) -> None:
        self._garbage.take_over()
        screen = LogScreen([self._path], title="bench")
        self.push_screen(screen)
        self.call_after_refresh(self._count_drawings)

    def _count_drawings(self) -> None:
        view = self.view
        draw = view.render_lines

        def counted(crop: Region) -> list[Strip]:
            self.drawn += 1
            self.drawing.set()
            return draw(crop)

        view.render_lines = counted  # type: ignore[method-assign]

    @property
    def view(self) -> LogView:
        return self.screen.query_one(LogView)


class Writer:
    """A process that appends lines; made before Textual takes the standard streams."""

    def __init__(self, path: Path, rate: int) -> None:
        context = multiprocessing.get_context("spawn")
        self.go, self.stop = context.Event(), context.Event()
        self._process = context.Process(target=_append, args=(path, rate, self.go, self.stop), daemon=True)
        self._process.start()

    def end(self) -> None:
        """Let it end and wait for that."""
        self.stop.set()
        self.go.set()
        self._process.join()


async def measure(path: Path, seconds: float, writer: Writer) -> dict[str, float]:
    """Return seconds and milliseconds by what they are of."""
    app = _Viewer(path)
    found: dict[str, float] = {"delay_p99_ms": await _own_delay_ms()}
    begin, cpu = time.perf_counter(), time.process_time()
    async with app.run_test(size=(120, 40)):
        await _until(lambda: _painted(app), "the first rows")
        found["open_s"], found["open_cpu_s"] = time.perf_counter() - begin, time.process_time() - cpu
        await _until(lambda: app.view.state.numbered, "the line numbers")
        found["numbered_s"] = time.perf_counter() - begin
        middle = app.view.state.lines // 2
        at = time.perf_counter()
        app.view.go_to(middle)
        await _until(lambda: app.view.row is not None and app.view.row.place.number == middle, "the middle line")
        found["jump_ms"] = (time.perf_counter() - at) * 1000
        found |= await _keys_while_it_grows(app, seconds, writer)
        await _until(lambda: not app.view.state.doing, "the ranks to be counted", 120)
        found["ranks_s"] = time.perf_counter() - begin
    found["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return found


async def _keys_while_it_grows(app: _Viewer, seconds: float, writer: Writer) -> dict[str, float]:
    before = app.view.state.lines
    app.view.action_follow()
    writer.go.set()
    await _until(lambda: app.view.state.lines > before, "the first new lines")
    times: list[float] = []
    spent_ms: list[float] = []
    begin, lines = time.perf_counter(), app.view.state.lines
    while time.perf_counter() - begin < seconds:
        for key in _KEYS:
            cpu = time.thread_time()
            times.append(await _key_ms(app, key))
            spent_ms.append((time.thread_time() - cpu) * 1000)
            await asyncio.sleep(0.02)
    spent = time.perf_counter() - begin
    writer.stop.set()
    times.sort()
    return {
        "arrived_per_s": (app.view.state.lines - lines) / spent,
        "keys": len(times),
        "key_median_ms": statistics.median(times),
        "key_p99_ms": times[int(len(times) * 0.99)],
        "key_worst_ms": times[-1],
        "key_cpu_ms": sorted(spent_ms)[int(len(spent_ms) * 0.99)],
    }


async def _key_ms(app: _Viewer, key: str) -> float:
    """Return how long a key takes until the screen was drawn with the line that it leads to."""
    before, drawn = app.view.cursor, app.drawn
    begin = time.perf_counter()
    app.post_message(events.Key(key, key if len(key) == 1 else None))
    while app.view.cursor == before or app.view.row is None or app.drawn == drawn:
        app.drawing.clear()
        await asyncio.wait_for(app.drawing.wait(), 5)
    return (time.perf_counter() - begin) * 1000


async def _own_delay_ms() -> float:
    """Return by how much the machine is late for a process that does nothing: 99 % of 200 naps of 5 ms."""
    late: list[float] = []
    for _ in range(200):
        begin = time.perf_counter()
        await asyncio.sleep(0.005)
        late.append((time.perf_counter() - begin - 0.005) * 1000)
    return sorted(late)[197]


def _painted(app: _Viewer) -> bool:
    return isinstance(app.screen, LogScreen) and app.view.row is not None


def _append(path: Path, rate: int, go: Event, stop: Event) -> None:
    go.wait()
    with path.open("a", buffering=1 << 16) as file:
        number, begin = 0, time.perf_counter()
        while not stop.is_set():
            due = int((time.perf_counter() - begin) * rate)
            for number in range(number, due):  # noqa: B020
                file.write(
                    f"[rank{number % 64}]: step {number:9} loss {2 + number % 100 / 1000:.4f} grad norm 0.31 tokens/s 12345.6\n"
                )
            number = max(number, due)
            file.flush()
            time.sleep(0.01)


async def _until(holds: Callable[[], bool], what: str, patience_s: float = 60) -> None:
    begin = time.perf_counter()
    while not holds():
        if time.perf_counter() - begin > patience_s:
            raise SystemExit(f"waited {patience_s:g} s in vain for {what}")
        await asyncio.sleep(0.002)


def main() -> int:
    """Measure, print against the limits, and return 1 when one is not kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--size-mb", type=int, default=1000)
    parser.add_argument("--seconds", type=float, default=8)
    parser.add_argument("--rate", type=int, default=10_000, help="lines appended a second")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="nightshift-log-view-") as name:
        path = Path(name) / "job.log"
        write(path, options.size_mb)
        writer = Writer(path, options.rate)
        try:
            found = asyncio.run(measure(path, options.seconds, writer))
        finally:
            writer.end()
    print(
        f"log of {options.size_mb:,} MB: first rows on the screen after {found['open_s']:.2f} s (limit {OPEN_LIMIT_S:g} s), "
        f"{found['open_cpu_s']:.2f} s of processor time"
    )
    print(f"all lines numbered after {found['numbered_s']:.2f} s, every rank counted after {found['ranks_s']:.1f} s")
    print(f"jump to the middle line {found['jump_ms']:.0f} ms (limit {KEY_LIMIT_MS:g} ms)")
    print(
        f"{found['keys']:.0f} keys while {found['arrived_per_s']:,.0f} lines/s arrive: median {found['key_median_ms']:.1f} ms, "
        f"99 % {found['key_p99_ms']:.1f} ms, worst {found['key_worst_ms']:.1f} ms (limit {KEY_LIMIT_MS:g} ms for 99 %); "
        f"of processor time 99 % take at most {found['key_cpu_ms']:.1f} ms"
    )
    print(f"the machine itself is {found['delay_p99_ms']:.1f} ms late in 1 % of the naps of an idle process: take that off")
    print(f"peak memory {found['peak_mb']:.0f} MB (limit {MEMORY_LIMIT_MB:g} MB)")
    kept = (
        found["open_s"] < OPEN_LIMIT_S
        and found["jump_ms"] < KEY_LIMIT_MS
        and found["key_p99_ms"] < KEY_LIMIT_MS
        and found["peak_mb"] < MEMORY_LIMIT_MB
    )
    return int(not kept)


if __name__ == "__main__":
    raise SystemExit(main())
