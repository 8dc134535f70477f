"""Training of a model whose states do not fit the device: groups of layers go there and back. docs/virtual_memory.md shows how.

Imports nothing of Nightshift. PyTorch is loaded when `VirtualTrainer` is first asked for; planning needs the standard library only.

Read `schedule` first (which step touches which tensors), then `retention` (what stays on the device between two uses, and the lower
bound of the traffic), `planning` (which groups; the smallest budget), `ledger` (counts the bytes on the device), `link` (copies and
where tensors lie), `sizing` (measures the layers), `executor` (runs a plan) and `trainer` (the class that training loops use).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assistant.training.virtual_memory.planning import BudgetTooSmall

if TYPE_CHECKING:
    from assistant.training.virtual_memory.ledger import BudgetExceeded
    from assistant.training.virtual_memory.sizing import UnsupportedModel
    from assistant.training.virtual_memory.trainer import MemoryReport, PartialStep, VirtualTrainer

__all__ = ["BudgetExceeded", "BudgetTooSmall", "MemoryReport", "PartialStep", "UnsupportedModel", "VirtualTrainer"]
_MODULES = {
    "BudgetExceeded": "ledger",
    "PartialStep": "trainer",
    "MemoryReport": "trainer",
    "UnsupportedModel": "sizing",
    "VirtualTrainer": "trainer",
}


def __getattr__(name: str) -> Any:
    """Load what needs PyTorch when it is first used."""
    if name not in _MODULES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return getattr(importlib.import_module(f"{__name__}.{_MODULES[name]}"), name)
