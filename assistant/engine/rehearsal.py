"""An engine on a copy of the store, for dry runs: what it writes is gone afterwards."""

from __future__ import annotations

import dataclasses
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from assistant.gate import Park
from assistant.store import Store
from assistant.store.seals import copy_key

if TYPE_CHECKING:
    from assistant.engine.engine import Engine

ASKED_S = 3600.0
"""A rehearsal takes seconds."""


@contextmanager
def rehearsal(engine: Engine) -> Iterator[Engine]:
    """Give an engine like this one that keeps nothing; what is parked there asks nobody.

    Raises:
        StoreError: There is no room for the copy, or the store cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="nightshift-dry-") as folder:
        copy = Path(folder) / "store.db"
        engine.store.rows("VACUUM INTO ?", [str(copy)])
        copy_key(engine.store.path, copy)
        store = Store(copy, engine.clock)
        try:
            yield dataclasses.replace(engine, store=store, gate=engine.gate.on(store, Park(store, expires_after_s=ASKED_S)))
        finally:
            store.close()
