"""Measure how fast a training log is scanned with all shipped signatures and filters, against Drain3 on the same file.

    python -m bench.scan [--size-mb 1000] [--drain-mb 40] [--costliest]

Each side runs in a process of its own on one core; memory is the peak resident size of that process. Drain3 sees the first
`--drain-mb` only, because the whole file would take it many minutes; its rate is that of this part.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.training_log import write


def ours(path: Path) -> dict[str, Any]:
    """Scan the file with everything and return rate, memory and what was found."""
    from assistant.logs.scan import scan_log
    from assistant.rules.loading import load_patterns

    patterns = load_patterns()
    begin, cpu = time.perf_counter(), time.process_time()
    scan = scan_log(path, patterns)
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu
    return {
        "mb_per_s": scan.size_bytes / seconds / 1e6,
        "mb_per_cpu_s": scan.size_bytes / cpu_seconds / 1e6,
        "peak_mb": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
        "patterns": len(patterns),
        "lines": scan.lines_total,
        "covered": sum(scan.filtered.values()) / scan.lines_total,
        "hits": sum(scan.hit_counts.values()),
    }


def drain(path: Path, megabytes: int) -> dict[str, Any]:
    """Feed the start of the file to Drain3, with masks for numbers and times, and return its rate."""
    import logging

    from drain3 import TemplateMiner
    from drain3.masking import MaskingInstruction
    from drain3.template_miner_config import TemplateMinerConfig

    logging.disable(logging.CRITICAL)
    config = TemplateMinerConfig()
    config.masking_instructions = [
        MaskingInstruction(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d", "TIME"),
        MaskingInstruction(r"((?<=[^A-Za-z0-9])|^)[-+]?\d+(\.\d+)?([eE][-+]?\d+)?((?=[^A-Za-z0-9])|$)", "NUM"),
    ]
    miner = TemplateMiner(config=config)
    size = 0
    begin, cpu = time.perf_counter(), time.process_time()
    with path.open(encoding="utf-8") as file:
        for line in file:
            miner.add_log_message(line.rstrip("\n"))
            size += len(line)
            if size >= megabytes * 1_000_000:
                break
    seconds, cpu_seconds = time.perf_counter() - begin, time.process_time() - cpu
    return {"mb_per_s": size / seconds / 1e6, "mb_per_cpu_s": size / cpu_seconds / 1e6, "read_mb": size / 1e6}


def costliest(path: Path, count: int = 25) -> list[tuple[float, str]]:
    """Return (milliseconds per 20 MB, id) of the patterns that cost most on their own."""
    import hyperscan

    from assistant.rules.loading import load_patterns

    blocks = [path.read_bytes()[:20_000_000][n : n + (1 << 20)] for n in range(0, 20_000_000, 1 << 20)]
    costs: list[tuple[float, str]] = []
    for name, pattern, flags in load_patterns().expressions():
        alone = hyperscan.Database()
        alone.compile(expressions=[pattern], ids=[0], flags=[flags])
        begin = time.process_time()
        for block in blocks:
            alone.scan(block, lambda *_match: None)
        costs.append(((time.process_time() - begin) * 1e3, name))
    return sorted(costs, reverse=True)[:count]


def _in_process(side: str, path: Path, *more: str) -> dict[str, Any]:
    done = subprocess.run(
        [sys.executable, "-m", "bench.scan", "--side", side, str(path), *more], capture_output=True, text=True, check=True
    )
    value: dict[str, Any] = json.loads(done.stdout)
    return value


def _rates(side: dict[str, Any]) -> str:
    return f"{side['mb_per_s']:7.1f} MB/s, {side['mb_per_cpu_s']:.1f} MB per CPU second"


def main() -> None:
    """Print the figures."""
    parser = argparse.ArgumentParser(description="scan rate and memory, against Drain3")
    parser.add_argument("--size-mb", type=int, default=1000)
    parser.add_argument("--drain-mb", type=int, default=40)
    parser.add_argument("--costliest", action="store_true", help="list the patterns that cost most on their own")
    parser.add_argument("--side", nargs="+", help=argparse.SUPPRESS)
    wanted = parser.parse_args()
    if wanted.side:
        side, path = wanted.side[0], Path(wanted.side[1])
        print(json.dumps(ours(path) if side == "ours" else drain(path, int(wanted.side[2]))))
        return
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "job.log"
        write(path, wanted.size_mb)
        if wanted.costliest:
            for cost, name in costliest(path):
                print(f"{cost:8.1f} ms per 20 MB  {name}")
            return
        _in_process("ours", path)  # compiles the patterns and brings the file into the page cache
        scan, peer = _in_process("ours", path), _in_process("drain", path, str(wanted.drain_mb))
    print(f"scan      {_rates(scan)}, peak {scan['peak_mb']:.0f} MB")
    print(f"          {wanted.size_mb} MB, {scan['lines']:,} lines, {scan['covered']:.2%} covered, {scan['hits']} hits")
    print(f"drain3    {_rates(peer)} (on the first {peer['read_mb']:.0f} MB)")
    print(f"ratio     {scan['mb_per_cpu_s'] / peer['mb_per_cpu_s']:7.0f} x")


if __name__ == "__main__":
    main()
