"""Health probes, one a file: a command and a pure parser of what it prints; every module here names its `PROBE`.

Modules whose names begin with `_` hold what several probes share: readings of nvidia-smi, of the kernel log, and the one script
that runs all commands on a node at once.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from assistant.tooling import Probe


@cache
def probes() -> tuple[Probe, ...]:
    """Return every probe, `reachable` first: nothing else is asked of a node that does not answer."""
    names = [module.name for module in pkgutil.iter_modules(__path__) if not module.name.startswith("_")]
    found = [importlib.import_module(f"{__name__}.{name}").PROBE for name in names]
    return tuple(sorted(found, key=lambda probe: (probe.name != "reachable", probe.name)))
