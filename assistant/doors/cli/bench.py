"""`nightshift bench`: how fast this machine starts, scans and diagnoses; ratios to the limits, so that machines compare."""

from __future__ import annotations

import os
import statistics
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple

import typer
from typer.core import TyperGroup

from assistant import processes
from assistant.doors.cli.bench_agent import agent
from assistant.doors.cli.calibration import calibration
from assistant.doors.cli.door import door_of
from assistant.doors.cli.group import app, examples
from assistant.doors.cli.options import Json
from assistant.doors.cli.output import print_json, print_table


class _Bench(TyperGroup):
    """Takes what is no command of its own for paths to measure."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Put the command before the words where none is named."""
        named = bool(args) and (args[0] in self.commands or args[0] in ("-h", "--help"))
        return super().parse_args(ctx, args if named else ["speed", *args])


bench_app = app(cls=_Bench, help="Measure start-up, scanning and diagnosis on this machine.")
bench_app.command("agent", epilog=examples("nightshift bench agent", "nightshift bench agent --model model.gguf --faults"))(agent)
bench_app.command(
    "calibration",
    epilog=examples("nightshift bench calibration runs/labelled", "nightshift bench calibration a/ b/ --write calibration.toml"),
)(calibration)

START_LIMIT_MS = 200.0
SCAN_LIMIT_MB_S = 400.0
DIAGNOSE_LIMIT_S = 0.3
STARTED = (("--help",), ("incidents",))
"""The commands whose start-up counts: what a person or a cron job runs all day."""


class Figure(NamedTuple):
    """One measurement."""

    name: str
    value: float
    unit: str
    limit: float
    smaller_is_better: bool

    @property
    def ratio(self) -> float:
        """How many times better than the limit; below 1 misses it."""
        if self.smaller_is_better:
            return self.limit / self.value if self.value else float("inf")
        return self.value / self.limit


def startup_ms(program: Sequence[str], words: Sequence[str], runs: int, environment: Mapping[str, str]) -> list[float]:
    """Return the wall times of starting a command, in milliseconds, sorted.

    Args:
        program: What stands before the command: the path of `nightshift`, or `python -m assistant`.
        words: The command.
        runs: How often; one more run before them warms the disk's cache and makes the store.
        environment: Variables on top of this process's own.
    """
    times = []
    for number in range(runs + 1):
        begin = time.perf_counter()
        processes.run([*program, *words], environment={**os.environ, **environment}, check=True, capture_output=True)
        if number:
            times.append((time.perf_counter() - begin) * 1000)
    return sorted(times)


def startup(runs: int) -> Iterator[Figure]:
    """Yield the median start-up times of this installation, in a store of their own."""
    with tempfile.TemporaryDirectory(prefix="nightshift-bench-") as folder:
        own = {"XDG_STATE_HOME": folder, "XDG_CONFIG_HOME": folder, "NIGHTSHIFT_STORE": f"{folder}/store.db"}
        for words in STARTED:
            times = startup_ms([sys.executable, "-m", "assistant"], words, runs, own)
            yield Figure(f"start-up of nightshift {' '.join(words)}", statistics.median(times), "ms", START_LIMIT_MS, True)


def scanning(logs: Sequence[Path], site: Path | None) -> Figure:
    """Return how fast logs are scanned with all signatures and filters."""
    from assistant.logs.scan import scan_log
    from assistant.rules.matching import load_patterns

    patterns = load_patterns(site)
    begin = time.perf_counter()
    size = sum(scan_log(log, patterns).size_bytes for log in logs)
    return Figure("scanning", size / 1e6 / (time.perf_counter() - begin), "MB/s", SCAN_LIMIT_MB_S, False)


def diagnosing(cases: Sequence[Path], site: Path | None) -> Figure:
    """Return the median time of a diagnosis."""
    from assistant.diagnose.case import Case
    from assistant.diagnose.knowledge import Knowledge
    from assistant.diagnose.verdict import diagnose

    knowledge = Knowledge.load(site)
    times = []
    for case in cases:
        begin = time.perf_counter()
        diagnose(Case.from_path(case), knowledge)
        times.append(time.perf_counter() - begin)
    return Figure("diagnosis", statistics.median(times), "s", DIAGNOSE_LIMIT_S, True)


@bench_app.command(
    "speed",
    epilog=examples(
        "nightshift bench",
        "nightshift bench speed --runs 3",
        "nightshift bench /var/log/jobs/*.out",
        "nightshift bench runs/*/ --json",
    ),
)
def bench(
    context: typer.Context,
    paths: Annotated[
        list[Path] | None, typer.Argument(metavar="PATH", help="Logs or folders of your own to scan and diagnose.")
    ] = None,
    runs: Annotated[int, typer.Option("--runs", min=1, metavar="N", help="How often each command is started.")] = 10,
    as_json: Json = False,
) -> None:
    """Measure start-up, scanning and diagnosis on this machine.

    Without a PATH only start-up is measured; a figure of scanning means something for large logs only.
    """
    figures = list(startup(runs))
    if paths:
        site = door_of(context).site
        logs = [found for path in paths for found in (sorted(path.glob("job.log*")) if path.is_dir() else [path])]
        figures += [scanning(logs, site), diagnosing(paths, site)]
    if as_json:
        for figure in figures:
            print_json({**figure._asdict(), "ratio": round(figure.ratio, 3)})
        return
    rows = [(one.name, f"{one.value:.3g} {one.unit}", f"{one.limit:g} {one.unit}", f"{one.ratio:.1f} x") for one in figures]
    print_table(("what", "measured", "limit", "better than the limit"), rows)
