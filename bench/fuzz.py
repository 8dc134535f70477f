"""Fuzz what reads text and files of others: no input ends in an error that the reader does not document, none takes long.

Each target runs in a process of its own under atheris (coverage of `assistant`), begun with the shipped cases of its kind. An
input that raises anything but a documented error, or that takes longer than the limit, is written to `--keep`; with `--replay`
such a file is run again without coverage, which costs a factor of 2 to 10. `pip install atheris` (Linux wheels; not among the
requirements of Nightshift).
"""

from __future__ import annotations

import argparse
import hashlib
import importlib.util
import json
import os
import shutil
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable
from pathlib import Path
from tempfile import mkdtemp
from typing import Any, NamedTuple

LONGEST_INPUT = 4_096
"""Bytes of an input: a line is cut there. What grows with the length shows in bench/patterns.py and bench/hostile.py."""
LONGEST_SEED = 1_500
"""Bytes of what the fuzzer starts from, the end of a longer case."""
SLOW_S = 0.25
"""CPU seconds for one input, without coverage."""
COVERAGE_COSTS = 6.0
"""Factor by which coverage slows a reader, at least: what takes less with it is not looked at again."""
CASES = Path("tests/cases")
Read = Callable[[bytes], object]


class Target(NamedTuple):
    """A reader and what it may meet."""

    read: Read
    seeds: tuple[str, ...]
    """Globs below tests/cases whose files the fuzzer starts from."""
    texts: tuple[str, ...] = ()
    """More of what it starts from."""


def main() -> int:
    """Fuzz the targets one after the other; return 1 when an input broke one or took too long."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("targets", nargs="*", help="names of targets; all when left out")
    parser.add_argument("--seconds", type=int, default=30, help="for each target")
    parser.add_argument("--keep", type=Path, default=Path("/tmp/nightshift-fuzz"), help="folder for inputs")
    parser.add_argument("--replay", type=Path, help="run one input through the one target that is named, and print its time")
    parser.add_argument("--worker", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.worker:
        return _work(options.targets[0], options.seconds, options.keep)
    if options.replay:
        print(f"{_cpu_s(targets()[options.targets[0]].read, options.replay.read_bytes()):.3f} s")
        return 0
    if importlib.util.find_spec("atheris") is None:
        print("atheris is not installed: nothing was fuzzed")
        return 2
    failures = 0
    for name in options.targets or list(targets()):
        command = [sys.executable, "-m", "bench.fuzz", name, "--worker", f"--seconds={options.seconds}", f"--keep={options.keep}"]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        report = _report(options.keep, name)
        if report is None:
            print(f"{name:28} did not run: {done.stderr.strip()[-300:]}")
            failures += 1
            continue
        slow = _slow(options.keep, name)
        failures += len(report["errors"]) + (slow > SLOW_S)
        print(
            f"{name:28} {report['runs']:8,} inputs in {report['wall_s']:4.0f} s, {len(report['errors'])} errors, "
            f"slowest {slow:.3f} s {'TOO SLOW' if slow > SLOW_S else ''}",
            flush=True,
        )
        for where in report["errors"]:
            print(f"    {where}", flush=True)
    print(f"{failures} findings (limit 0)")
    return int(failures > 0)


def _report(keep: Path, name: str) -> dict[str, Any] | None:
    try:
        report: dict[str, Any] = json.loads((keep / f"{name}.json").read_text(encoding="utf-8"))
    except FileNotFoundError:
        return None
    return report


def _slow(keep: Path, name: str) -> float:
    """Return CPU seconds of the slowest inputs of a target, without coverage; the least of three runs."""
    read = targets()[name].read
    inputs = [path.read_bytes() for path in keep.glob(f"{name}-slow-*")]
    return max((min(_cpu_s(read, data) for _ in range(3)) for data in inputs), default=0.0)


def _cpu_s(read: Read, data: bytes) -> float:
    start = time.process_time()
    _documented(read, data)
    return time.process_time() - start


def _documented(read: Read, data: bytes) -> None:
    """Run a reader on an input, errors of Nightshift and of the file system set aside."""
    from assistant.errors import NightshiftError

    try:
        read(data)
    except (NightshiftError, OSError):
        return


def _work(name: str, seconds: int, keep: Path) -> int:
    import atheris

    keep.mkdir(parents=True, exist_ok=True)
    with atheris.instrument_imports(include=["assistant"]):
        target = targets()[name]
        _documented(target.read, b"")
    seeds = Path(mkdtemp(prefix="seeds"))
    for number, data in enumerate(_seeds(target)):
        (seeds / f"seed{number}").write_bytes(data)
    began, cpu = time.monotonic(), SLOW_S / COVERAGE_COSTS
    report: dict[str, Any] = {"runs": 0, "wall_s": 0.0, "errors": {}}

    def look(data: bytes) -> None:
        nonlocal cpu
        start = time.process_time()
        try:
            _documented(target.read, data)
        except Exception as error:  # noqa: BLE001 - whatever is not documented is a finding
            where = f"{type(error).__name__} in {_place(error)}"
            if where not in report["errors"]:
                report["errors"][where] = str(error)[:200]
                (keep / f"{name}-error-{hashlib.sha256(where.encode()).hexdigest()[:8]}").write_bytes(data)
        taken = time.process_time() - start
        if taken > cpu:
            cpu = taken * 1.5
            (keep / f"{name}-slow-{int(taken * 1000):05}").write_bytes(data)
        report["runs"] += 1
        report["wall_s"] = time.monotonic() - began
        if report["wall_s"] > seconds:
            (keep / f"{name}.json").write_text(json.dumps(report), encoding="utf-8")
            shutil.rmtree(seeds, ignore_errors=True)
            os._exit(0)  # libFuzzer has no other way out of its loop

    atheris.Setup(
        [
            "fuzz",
            f"-max_len={LONGEST_INPUT}",
            "-timeout=60",
            "-rss_limit_mb=3000",
            "-verbosity=0",
            f"-artifact_prefix={keep}/{name}-",
            str(seeds),
        ],
        look,
    )
    atheris.Fuzz()
    return 0


def _place(error: BaseException) -> str:
    frames = [frame for frame in traceback.extract_tb(error.__traceback__) if "/assistant/" in frame.filename]
    return f"{Path(frames[-1].filename).name}:{frames[-1].lineno}" if frames else "the target"


def _seeds(target: Target) -> Iterable[bytes]:
    yield from (text.encode() for text in target.texts)
    paths = [path for glob in target.seeds for path in sorted(CASES.glob(glob)) if path.is_file()]
    for path in paths[:: max(1, len(paths) // 60)]:
        yield path.read_bytes()[-LONGEST_SEED:]


def _text(read: Callable[[str], object]) -> Read:
    return lambda data: read(data.decode("utf-8", "replace"))


def _file(read: Callable[[Path], object], name: str = "job.log") -> Read:
    def through(data: bytes) -> object:
        top = Path(mkdtemp(prefix="fuzz", dir="/dev/shm"))
        try:
            path = top / "made" / name
            path.parent.mkdir()
            path.write_bytes(data)
            return read(path)
        finally:
            shutil.rmtree(top, ignore_errors=True)

    return through


def targets() -> dict[str, Target]:
    """Return every reader by its name."""
    from bench._fuzz_targets import file_targets, text_targets

    logs = ("diagnose/*/*/*.log", "chat/**/*.log", "stacks/**/*")
    found = {name: Target(_text(read), seeds or logs, texts) for name, (read, seeds, texts) in text_targets().items()}
    return found | {name: Target(_file(read, file), seeds or logs) for name, (read, seeds, file) in file_targets().items()}


if __name__ == "__main__":
    raise SystemExit(main())
