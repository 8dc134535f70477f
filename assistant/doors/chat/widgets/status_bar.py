"""The first line: is anything wrong, does anything wait, who answers, how far may Nightshift go."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

from textual.content import Content
from textual.reactive import reactive
from textual.widgets import Static

from assistant.doors.chat.seen import ClusterSeen, StoreSeen
from assistant.doors.chat.words import clock
from assistant.records import JobState, NodeState

_OUT = (NodeState.DOWN, NodeState.DRAINED, NodeState.DRAINING)


class StatusBar(Static):
    """One line that is calm when all is well."""

    MODES: ClassVar[dict[str, str]] = {"observe": "observes", "propose": "asks first", "act": "acts"}

    answers: reactive[str] = reactive("waking up")
    """What answers questions: `words`, `embedded model`, the name of a language model."""
    mode: reactive[str] = reactive("")
    """Of the policy; empty before it is known."""
    trouble: reactive[str] = reactive("")
    """What does not work now."""

    def on_mount(self) -> None:
        """Follow what the desk reads."""
        self.watch(self.app, "store_seen", self._redraw, init=False)
        self.watch(self.app, "cluster_seen", self._redraw, init=False)
        self._redraw()

    def watch_answers(self) -> None:
        """Say it."""
        self._redraw()

    def watch_mode(self) -> None:
        """Say it."""
        self._redraw()

    def watch_trouble(self) -> None:
        """Say it."""
        self._redraw()

    def _redraw(self) -> None:
        store: StoreSeen | None = self.app.store_seen  # type: ignore[attr-defined]
        cluster: ClusterSeen | None = self.app.cluster_seen  # type: ignore[attr-defined]
        left = [_part(" Nightshift ", "$primary bold")]
        if self.trouble:
            left.append(_part(f"! {self.trouble}", "$error bold"))
        left += _store_parts(store) + _cluster_parts(cluster)
        right = [_part(text, "$text-muted") for text in (self.answers, self.MODES.get(self.mode, self.mode)) if text]
        self.update(_spread(Content("  ").join(left), Content(" · ").join(right), self.size.width))

    def on_resize(self) -> None:
        """Fill the line."""
        self._redraw()


def _part(text: str, style: str, action: str = "") -> Content:
    click = f" @click=app.{action}" if action else ""
    return Content.from_markup(f"[{style}{click}]$text[/]", text=text)


def _store_parts(seen: StoreSeen | None) -> list[Content]:
    if seen is None:
        return [_part("opening the store…", "$text-muted")]
    if not (seen.unfinished or seen.approvals or seen.handed_over):
        return [_part("nothing is wrong", "$success")]
    parts = []
    if seen.unfinished:
        parts.append(_part(f"{seen.unfinished} incident{'s' * (seen.unfinished > 1)}", "$error bold", "panel('incidents')"))
    if seen.approvals:
        count = len(seen.approvals)
        parts.append(_part(f"{count} wait{'s' * (count == 1)} for you", "$accent bold", "panel('approvals')"))
    if seen.handed_over:
        parts.append(_part(f"{seen.handed_over} handed over", "$warning", "panel('incidents')"))
    return parts


def _cluster_parts(seen: ClusterSeen | None) -> list[Content]:
    if seen is None or (seen.at is None and not seen.trouble):
        return [_part("asking the scheduler…", "$text-muted")]
    if seen.trouble:
        since = f" since {clock(seen.at, seen.at)}" if seen.at is not None else ""
        return [_part(f"! scheduler silent{since}", "$warning", "panel('jobs')")]
    states = Counter(job.state for job in seen.jobs)
    out = sum(node.state in _OUT for node in seen.nodes)
    parts = [_part(f"{states[JobState.RUNNING]:,} running", "$text-muted", "panel('jobs')")]
    if out:
        parts.append(_part(f"{out:,} of {len(seen.nodes):,} nodes out", "$warning", "panel('nodes')"))
    else:
        parts.append(_part(f"{len(seen.nodes):,} nodes", "$text-muted", "panel('nodes')"))
    return parts


def _spread(left: Content, right: Content, width: int) -> Content:
    """Put one text to the left and one to the right; the right one goes first where there is no room."""
    gap = width - left.cell_length - right.cell_length - 1
    return left + Content(" " * gap) + right if gap >= 2 else left
