"""How fast a year of accounting becomes a report, in how much memory, against pandas doing the same sums in the same run.

    python -m bench.reports [--jobs 10000,100000,1000000] [--repeat 1]

Each measurement is a process of its own: reading `sacct --parsable2` text and the paper's CSV into jobs, and the whole way from CSV
to the HTML page. pandas reads the same CSV with its own parser and makes the same groups, sums and quantiles, and draws nothing.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from datetime import UTC, datetime
from pathlib import Path

from bench import _accounting

LIMITS = {"csv to page": (20.0, 1000.0), "sacct read": (10.0, 1000.0)}
"""Seconds and MB for a million jobs."""
TIMES_FASTER = 3.0


def main() -> int:
    """Measure, print, and return 1 when a figure is over its limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", default="10000,100000,1000000", help="sizes, comma between")
    parser.add_argument("--repeat", type=int, default=1, help="runs of each; the best counts")
    parser.add_argument("--one", nargs=2, metavar=("WHAT", "FILE"), help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.one:
        print(json.dumps(_measured(*options.one)))
        return 0
    failed = 0
    with tempfile.TemporaryDirectory(prefix="nightshift-accounting-") as name:
        for jobs in map(int, options.jobs.split(",")):
            files = {form: Path(name) / f"{jobs}.{form}" for form in ("sacct", "csv")}
            for form, path in files.items():
                _accounting.write(path, jobs, form)
            failed += _compare(jobs, files, options.repeat)
            for path in files.values():
                path.unlink()
    return int(failed > 0)


def _compare(jobs: int, files: dict[str, Path], repeat: int) -> int:
    print(f"{jobs:,} jobs: sacct {files['sacct'].stat().st_size / 1e6:.0f} MB, CSV {files['csv'].stat().st_size / 1e6:.0f} MB")
    seconds: dict[str, float] = {}
    failed = 0
    for what, form in (("sacct read", "sacct"), ("csv read", "csv"), ("csv to page", "csv"), ("csv by pandas", "csv")):
        runs = [_in_a_process(what, files[form]) for _ in range(repeat)]
        best = min(runs, key=lambda run: run["s"])
        seconds[what] = best["s"]
        limit_s, limit_mb = LIMITS.get(what, (0.0, 0.0))
        words = f"   limit {limit_s * jobs / 1e6:.1f} s, {limit_mb:.0f} MB" if limit_s and jobs >= 1_000_000 else ""
        print(f"  {what:14} {best['s']:8.2f} s {best['cpu_s']:8.2f} s of CPU {best['mb']:7.0f} MB {best.get('note', '')}{words}")
        if words and (best["s"] > limit_s * jobs / 1e6 or best["mb"] > limit_mb):
            failed += 1
    print(f"  pandas takes {seconds['csv by pandas'] / seconds['csv to page']:.2f} x the time of the whole page")
    return failed


def _in_a_process(what: str, path: Path) -> dict[str, float]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.reports", "--one", what, str(path)], check=True, capture_output=True, text=True
    )
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return measured


def _measured(what: str, file: str) -> dict[str, object]:
    begun = time.perf_counter()
    note = {"csv by pandas": _by_pandas, "csv to page": _to_page}.get(what, _read)(Path(file))
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return {
        "s": time.perf_counter() - begun,
        "cpu_s": usage.ru_utime + usage.ru_stime,
        "mb": usage.ru_maxrss / 1024,
        "note": note,
    }


def _read(path: Path) -> str:
    import tempfile as folders

    import duckdb

    from assistant.reports import sacct_rows, trace_rows
    from assistant.reports.reading import MEMORY
    from assistant.reports.sources import is_sacct, open_text

    with folders.TemporaryDirectory() as name:
        connection = duckdb.connect(":memory:")
        connection.execute("SET temp_directory = ?", [name])
        connection.execute(f"SET memory_limit = '{MEMORY}'")
        text = open_text(str(path), Path(name))
        if is_sacct(text.header):
            sacct_rows.read_rows(connection, text, "Asia/Shanghai")
        else:
            trace_rows.read_rows(connection, text, trace_rows.RELEASED, "Asia/Shanghai")
        (count,) = connection.execute("SELECT count(*) FROM raw WHERE odd IS NULL").fetchall()[0]
        connection.close()
    return f"{count:,} rows"


def _to_page(path: Path) -> str:
    from assistant.reports.cluster import cluster_report
    from assistant.reports.figures import ReportFrame
    from assistant.reports.page import page
    from assistant.reports.reading import ReadRequest, read_source
    from assistant.reports.references import reference_clusters
    from assistant.reports.workload_types import type_rules

    request = ReadRequest(str(path), type_rules(None), "Asia/Shanghai", datetime.now(UTC))
    read = read_source(request)
    report = cluster_report(read.jobs, reference_clusters(None), ReportFrame("A year", "Asia/Shanghai", (), read.left_out))
    text = page(report)
    (path.parent / "page.html").write_text(text, encoding="utf-8")
    return f"{read.jobs.count:,} jobs, page of {len(text) / 1e3:.0f} kB"


def _by_pandas(path: Path) -> str:
    import pandas as pd

    jobs = pd.read_csv(path, parse_dates=["submit_time", "start_time", "end_time"])
    jobs = jobs[jobs["state"].notna() & (jobs["end_time"] >= jobs["start_time"])].drop_duplicates()
    jobs["outcome"] = jobs["state"].replace({"TIMEOUT": "FAILED", "NODE_FAIL": "FAILED", "OUT_OF_MEMORY": "FAILED"})
    jobs["size"] = pd.cut(jobs["gpu_num"], [-1, 0, 1, 7, 8, 63, 255, 1023, 10**7])
    jobs["week"] = jobs["end_time"].dt.tz_localize(None).dt.to_period("W")
    parts = [0.1, 0.25, 0.5, 0.75, 0.9, 0.99]
    on_gpus = jobs[jobs["gpu_num"] > 0]
    count = 0
    for key in ("type", "size", "user", "state", "outcome", "week"):
        groups = jobs.groupby(key, observed=True)
        count += len(groups["gpu_time"].agg(["count", "sum"]))
        count += len(jobs.assign(failed=jobs["outcome"] == "FAILED").groupby(key, observed=True)["failed"].mean())
        for measure in ("duration", "queue"):
            count += len(on_gpus.groupby(key, observed=True)[measure].quantile(parts))
            count += len(on_gpus.groupby(key, observed=True)[measure].agg(["mean", "max"]))
    for measure in ("duration", "queue"):
        ordered = on_gpus[measure].sort_values()
        count += len(ordered)
    local = jobs["submit_time"].dt.tz_convert("Asia/Shanghai")
    count += len(jobs.groupby([local.dt.dayofweek, local.dt.hour]).size())
    return f"{len(jobs):,} jobs"


if __name__ == "__main__":
    sys.exit(main())
