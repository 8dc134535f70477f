"""One pass from cron, told to all that hear of a daemon's passes: the status, notifications, a heartbeat, a textfile."""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Sequence
from dataclasses import replace

from assistant.config import Settings
from assistant.daemon.pass_reports import beats_of
from assistant.daemon.pass_result import Passed, PassListener, Sight
from assistant.engine import Engine
from assistant.errors import NightshiftError, StoreError
from assistant.records import Incident
from assistant.store import Store
from assistant.watch.attempts import Extent, Remark, Trouble

__all__ = ["pass_once"]


def pass_once(
    tick: Callable[[], Sequence[Incident]], settings: Settings, store: Store, engine: Engine | None = None
) -> Sequence[Incident]:
    """Make a pass, tell of it, and return what it worked on.

    Args:
        tick: Makes the pass: `Engine.tick`.
        settings: Say who is told; no server is opened for a moment.
        store: Of the engine.
        engine: Says what the pass could not see, and what is worth a remark.

    Raises:
        NightshiftError: What the pass raised, when that was told.
    """
    # one name for all passes of this host: each is a process of its own
    quiet = replace(settings, metrics=replace(settings.metrics, listen=""))
    owner = f"once@{socket.gethostname()}"
    beats, sight = (
        beats_of(quiet, store, owner=owner, in_force=engine.gate.in_force if engine is not None else None),
        Sight(store, owner),
    )
    began, at, failure = time.monotonic(), store.clock.now(), "the pass was broken off"
    try:
        worked = tick()
        failure = ""
    except NightshiftError as error:
        failure = str(error)
        raise
    finally:
        troubles = [Trouble("the pass", failure, Extent.ALL)] if failure else []
        remarks: list[Remark] = []
        if engine is not None:
            troubles += [*engine.watcher.trouble, *engine.taken_troubles()]
            remarks += [*engine.watcher.remarks, *engine.good_runs.taken_remarks()]
        sight.keep(remarks, at)
        judged = sight.judge(troubles, at)
        passed = Passed(at, time.monotonic() - began, True, judged.trouble, unfinished=_unfinished(store), known=judged.known)
        _tell(beats, passed)
    return worked


def _unfinished(store: Store) -> int:
    try:
        return len(store.incidents(open_only=True, limit=10_000))
    except StoreError:
        # what the pass itself raised says more
        return 0


def _tell(beats: Sequence[PassListener], passed: Passed) -> None:
    for beat in beats:
        beat.passed(passed)
    for beat in beats:
        beat.close()
