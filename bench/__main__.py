"""Run every benchmark: `python -m bench`, or some of them by name: `python -m bench scan startup`."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import bench


def main(wanted: list[str]) -> int:
    """Run the benchmarks, each with its own defaults, and return how many could not be run."""
    names = [module.name for module in pkgutil.iter_modules(bench.__path__) if not module.name.startswith("_")]
    modules = {name: importlib.import_module(f"bench.{name}") for name in names}
    known = [name for name, module in modules.items() if hasattr(module, "main")]
    unknown = [name for name in wanted if name not in known]
    if unknown:
        print(f"bench: {unknown[0]!r} is unknown; known: {', '.join(known)}", file=sys.stderr)
        return 2
    failed = 0
    for name in wanted or known:
        print(f"== {name}", flush=True)
        sys.argv = [f"bench.{name}"]
        try:
            status = modules[name].main()
        except SystemExit as left:
            status = left.code
        failed += bool(status)
    return failed


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
