"""What happened in an incident, oldest first, with the time that each stage took."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from assistant.records import CallStatus
from assistant.tui.about_incident import IncidentSeen
from assistant.tui.widgets.openable import Item, Openable, Part, heading, item
from assistant.tui.words import clock

_LOOKS = {
    "recovered": "success",
    "escalated": "error",
    "done": "success",
    "failed": "error",
    "denied": "error",
    "pending": "accent",
}


SHORT = 50
"""Characters of a text that stands beside its stage instead of below."""


class TimelineView(Openable):
    """The timeline."""

    def __init__(self) -> None:
        super().__init__(left=12)

    def tell(self, snapshot: IncidentSeen) -> None:
        """Show it."""
        self.show(list(timeline_items(snapshot)))


def timeline_items(snapshot: IncidentSeen) -> Iterator[Item]:
    """Yield what happened. Keys: `evidence`, `changes`, `verdict` and so on: the tab that tells more, with a number behind it."""
    yield heading("How long it took")
    figures = stage_times(snapshot)
    for name, text in figures:
        yield item(f"playbook:{name}", name, text)
    if not figures:
        yield item("playbook:none", "nothing yet", Part("No stage has ended.", "dim"))
    yield heading("What happened")
    previous: datetime | None = None
    for number, moment in enumerate(snapshot.moments):
        later = f"+{span((moment.at - previous).total_seconds())}" if previous is not None and moment.at > previous else ""
        head = [Part(moment.stage.replace("_", " "), f"bold {_LOOKS.get(moment.stage, '')}")]
        head += [Part(f"  {later}", "dim")] if later else []
        is_short = len(moment.text) < SHORT
        head += [Part(f"  {moment.text}")] if is_short else []
        text_below = "" if is_short else moment.text
        yield item(f"{_tab(moment.stage)}:{number}", Part(clock(moment.at, snapshot.at), "dim"), tuple(head), text_below)
        previous = moment.at


def stage_times(snapshot: IncidentSeen) -> list[tuple[str, str]]:
    """Return the durations of the stages that have ended, and what was lost, by name."""
    times = snapshot.times
    stages = (
        ("detected", times.detect_s, "after the failure"),
        ("diagnosed", times.diagnose_s, "after the opening"),
        ("resubmitted", times.resubmit_s, "after the diagnosis"),
        ("recovered", times.recover_s, "after the failure"),
    )
    rows = [(name, f"{span(seconds)} {origin}") for name, seconds, origin in stages if seconds is not None]
    if times.steps_lost is not None:
        rows.append(("lost", f"{times.steps_lost:,} steps: restarted from step {times.restart_step:,}"))
    return rows


def span(seconds: float) -> str:
    """Return a duration: `no time`, `0.4 s`, `42 s`, `3 m 20 s`, `5 h 02 m`."""
    if seconds < 0.05:
        return "no time"
    if seconds < 10:
        return f"{seconds:.1f} s"
    minutes, seconds_left = divmod(round(seconds), 60)
    if not minutes:
        return f"{seconds_left} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02} m" if hours else f"{minutes} m {seconds_left:02} s"


def _tab(stage: str) -> str:
    if stage in set(CallStatus):
        return "changes"
    return {"diagnosed": "verdict", "planned": "playbook", "restarted": "playbook"}.get(stage, "evidence")
