"""Health probes, one a file: a command and a pure parser of what it prints; every module here names its `PROBE`."""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from assistant.tooling import Probe


@cache
def probes() -> tuple[Probe, ...]:
    """Return every probe, `reachable` first: nothing else is asked of a node that does not answer."""
    names = [module.name for module in pkgutil.iter_modules(__path__)]
    found = [importlib.import_module(f"{__name__}.{name}").PROBE for name in names]
    return tuple(sorted(found, key=lambda probe: (probe.name != "reachable", probe.name)))
