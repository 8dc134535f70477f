"""Health probes by subject: each is a `Probe`, a command and a pure parser of what it prints, in a module of this folder.

`system`, `mounts` and `hardware` are about the machine, `links` about its networks, `gpu_state` and `gpu_reports` about GPUs,
`kernel_log` and `kernel_signs` about what the kernel says. `_check` runs them all, `_counters` judges counters, `_nvidia_smi` reads
the report of GPUs.
"""

from __future__ import annotations

import importlib
import pkgutil
from functools import cache

from assistant.tooling import Probe


@cache
def probes() -> tuple[Probe, ...]:
    """Return every probe, `reachable` first: nothing else is asked of a node that does not answer."""
    modules = [importlib.import_module(f"{__name__}.{module.name}") for module in pkgutil.iter_modules(__path__)]
    by_name = {probe.name: probe for module in modules for probe in vars(module).values() if isinstance(probe, Probe)}
    return tuple(sorted(by_name.values(), key=lambda probe: (probe.name != "reachable", probe.name)))
