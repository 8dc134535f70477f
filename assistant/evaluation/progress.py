"""How a run stands, for people: what each node does now, how much is done, when it should end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assistant.evaluation.files import read_json
from assistant.evaluation.journal import METRIC, STAGE, TRIAL, JobNote
from assistant.evaluation.records import Piece
from assistant.evaluation.remaining import seconds_of

if TYPE_CHECKING:
    from assistant.evaluation.coordinator import Coordinator


@dataclass(frozen=True, slots=True)
class Activity:
    """One job as it runs, or waits."""

    node: str
    kind: str
    number: int
    what: str
    """The piece or dataset at work, or what it waits for."""
    place: str = ""
    """`3/7`: the third of seven pieces."""
    seconds: float = 0.0
    """Since when."""


@dataclass(frozen=True, slots=True)
class Progress:
    """How a run stands."""

    scored: int
    given_up: int
    datasets: int
    items_done: int
    items: int
    left_s: float | None
    """Expected until the end; None while that cannot be said."""
    nodes: tuple[str, ...]
    """That carry the model."""
    activities: tuple[Activity, ...]
    """By node and number."""

    @property
    def line(self) -> str:
        """The whole in one line."""
        share = f"{self.items_done / self.items:.0%}" if self.items else "-"
        left = f", about {duration(self.left_s)} left" if self.left_s else ""
        lost = f", {self.given_up} given up" if self.given_up else ""
        return f"{self.scored} of {self.datasets} datasets scored{lost}, {share} of the items on {len(self.nodes)} nodes{left}"


def progress_of(run: Coordinator) -> Progress:
    """Return how a run stands as of its last look."""
    items = {one.name: one.items for one in run.asked.datasets}
    open_items = [one for one in run.asked.datasets if one.name not in run.state.sunk]
    made = sum(piece.items for piece in run.outputs.made if piece.dataset not in run.state.sunk)
    activities = tuple(sorted((_activity(run, note) for note in run.state.live()), key=lambda one: (one.node, one.number)))
    return Progress(
        scored=sum(run.has_ended(one) for one in run.asked.datasets) - len(run.state.sunk),
        given_up=len(run.state.sunk),
        datasets=len(items),
        items_done=min(made, sum(one.items for one in open_items)),
        items=sum(one.items for one in open_items),
        left_s=_left(run, items),
        nodes=tuple(run.fleet.ready()),
        activities=activities,
    )


def _left(run: Coordinator, items: Mapping[str, int]) -> float | None:
    """Return the seconds until the end: the GPUs' work shared by all slots, then the metric that ends last."""
    slots = len(run.fleet.ready()) * run.asked.gpus_per_node
    if not slots:
        return None
    held = [piece for note in run.state.live(TRIAL) for piece in note.held]
    waiting = [piece for piece in [*held, *run.left()] if piece not in run.outputs.made]
    work = sum(seconds_of(piece, run.estimates, items) for piece in waiting)
    metrics = [run.estimates[one.name].metric_s for one in run.asked.datasets if not run.has_ended(one)]
    return work / slots + max(metrics, default=0.0)


def _activity(run: Coordinator, note: JobNote) -> Activity:
    status = read_json(run.folder.job(note.number) / "status.json") or {}
    node = note.node or str(status.get("node", ""))
    since = time.time() - float(status.get("since", status.get("begun", note.at)))
    if not status:
        return Activity(node, note.kind, note.number, "waits for its start", seconds=since)
    return Activity(node, note.kind, note.number, _what(note, status), _place(note, status), since)


def _what(note: JobNote, status: Mapping[str, Any]) -> str:
    if note.kind == TRIAL and "piece" in status:
        piece = Piece(*status["piece"])
        return f"{piece.dataset} {piece.first}-{piece.last - 1}"
    if note.kind == METRIC and "dataset" in status:
        return f"metric of {status['dataset']}"
    return "copies the model" if note.kind == STAGE else str(status["phase"])


def _place(note: JobNote, status: Mapping[str, Any]) -> str:
    return f"{status['place'] + 1}/{len(note.pieces)}" if note.kind == TRIAL and "place" in status else ""


def duration(seconds: float) -> str:
    """Return a time as people say it."""
    whole = int(seconds + 0.5)
    if whole < 90:
        return f"{whole} s"
    if whole < 5400:
        return f"{(whole + 30) // 60} min"
    return f"{whole / 3600:.1f} h"
