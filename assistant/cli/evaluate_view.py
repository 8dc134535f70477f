"""An evaluation while it runs: a live table of trials by node on a terminal, plain lines elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from assistant.cli.output import narrate
from assistant.display import line
from assistant.evaluation.results import Activity, EvaluationProgress, duration, progress_of

if TYPE_CHECKING:
    from assistant.evaluation.coordinator import Coordinator

EVERY_S = 30.0
"""Plain lines are at least so far apart, unless a dataset was scored or given up."""
MOST_ROWS = 40


@contextmanager
def shown(*, live: bool) -> Iterator[Callable[[Coordinator], None] | None]:
    """Return what shows a run after each look at it; None where nothing is to be shown."""
    if not live:
        yield None
    elif sys.stderr.isatty():
        with _table() as look:
            yield look
    else:
        yield PlainLines()


class PlainLines:
    """Says what changed, a line at a time."""

    def __init__(self) -> None:
        self._last_counts = (-1, -1)
        self._at = 0.0

    def __call__(self, run: Coordinator) -> None:
        """Say how a run stands if that is new."""
        progress = progress_of(run)
        ended = (progress.scored, progress.given_up)
        if ended == self._last_counts and time.monotonic() - self._at < EVERY_S:
            return
        self._last_counts, self._at = ended, time.monotonic()
        narrate(progress.line)


@contextmanager
def _table() -> Iterator[Callable[[Coordinator], None]]:
    from rich.console import Console
    from rich.live import Live

    with Live(console=Console(stderr=True), auto_refresh=False, transient=True) as screen:

        def look(run: Coordinator) -> None:
            screen.update(drawn(progress_of(run)), refresh=True)

        yield look


def drawn(progress: EvaluationProgress) -> Any:
    """Return a run as rich shows it: a line on the whole, a row for each job and each idle node."""
    from rich.console import Group
    from rich.table import Table
    from rich.text import Text

    table = Table(box=None, pad_edge=False)
    for column in ("NODE", "JOB", "DOES", "PIECE", "SINCE"):
        table.add_column(column, no_wrap=True)
    busy = {activity.node for activity in progress.activities}
    idle = [Activity(node, "", 0, "idle") for node in progress.nodes if node not in busy]
    rows = sorted([*progress.activities, *idle], key=lambda activity: (activity.node, activity.number))
    for activity in rows[:MOST_ROWS]:
        label = f"{activity.kind} {activity.number}" if activity.kind else ""
        table.add_row(
            *(
                Text(line(text))
                for text in (activity.node, label, activity.work, activity.place, duration(activity.seconds) if label else "")
            )
        )
    more = [Text(line(f"and {len(rows) - MOST_ROWS} more jobs"))] if len(rows) > MOST_ROWS else []
    return Group(Text(line(progress.line), style="bold"), table, *more)
