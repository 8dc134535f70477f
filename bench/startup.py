"""Start-up time of `nightshift --help` and `nightshift incidents`: best and median of N, against the limit of 200 ms.

    python -m bench.startup [--runs 20] [--wheel]

With `--wheel` the package is built and installed into a temporary environment first, as a user has it; the environment's
dependencies are those of the current one.
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import sysconfig
import tempfile
import venv
from pathlib import Path

from assistant.cli.measure.bench import START_LIMIT_MS, STARTED, startup_ms

ROOT = Path(__file__).parents[1]


def installed_wheel(folder: Path) -> list[str]:
    """Build the wheel, install it into an environment under `folder`, and return the command."""
    subprocess.run(
        [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", "--wheel-dir", str(folder), str(ROOT)], check=True
    )
    wheel = next(folder.glob("nightshift_ops-*.whl"))
    venv.create(folder / "venv", with_pip=False)
    python = folder / "venv" / "bin" / "python"
    subprocess.run(
        [sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps", str(wheel)], check=True
    )
    site = next((folder / "venv" / "lib").glob("python*/site-packages"))
    # the dependencies, but not the editable install of the package itself, which works by a .pth file of its own
    (site / "dependencies.pth").write_text(f"{sysconfig.get_path('purelib')}\n")
    subprocess.run([python, "-m", "compileall", "-q", str(site / "assistant")], check=True)
    return [str(folder / "venv" / "bin" / "nightshift")]


def main() -> int:
    """Measure, print, and return 1 when a median is over the limit."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--wheel", action="store_true", help="build and install the wheel first")
    options = parser.parse_args()
    slow = 0
    with tempfile.TemporaryDirectory(prefix="nightshift-startup-") as name:
        folder = Path(name)
        program = installed_wheel(folder) if options.wheel else [sys.executable, "-m", "assistant"]
        own = {"XDG_STATE_HOME": name, "XDG_CONFIG_HOME": name, "NIGHTSHIFT_STORE": f"{name}/store.db"}
        empty = statistics.median(startup_ms([sys.executable], ["-c", "pass"], options.runs, {}))
        print(f"{'python -c pass':24} median {empty:6.1f} ms")
        for words in STARTED:
            times = startup_ms(program, words, options.runs, own)
            median = statistics.median(times)
            slow += median > START_LIMIT_MS
            spread = f"median {median:6.1f} ms  best {times[0]:6.1f} ms  worst {times[-1]:6.1f} ms  of {options.runs}"
            ratio = f"limit {START_LIMIT_MS:.0f} ms  {START_LIMIT_MS / median:.1f} x better than the limit"
            print(f"{'nightshift ' + ' '.join(words):24} {spread}  {ratio}")
    return 1 if slow else 0


if __name__ == "__main__":
    raise SystemExit(main())
