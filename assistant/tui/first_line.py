"""The first line of the chat: how things stand, where, who watches. What is wrong is never left out, the rest where it is narrow.

Pure: `overall_state` judges what the application has read, `first_line` puts it into the cells that there are.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from typing import NamedTuple, Protocol

from rich.cells import cell_len
from textual.content import Content

from assistant.display import line, shorten
from assistant.overall_state import (
    OverallState,
    SchedulerFacts,
    StateLevel,
    StateRemark,
    StateSubject,
    StoreFacts,
    SystemFacts,
    judge,
)
from assistant.records import JobState
from assistant.tui.snapshot import ClusterSnapshot, KillSwitchSnapshot, StoreSnapshot

GAP = "  "
LANE_SILENT = timedelta(seconds=30)
"""How long the lane of the store may give no sign of life; it looks twice a second."""
DIGEST = 8
"""Digits of the policy's digest in the line; `status` shows 12."""
MODES: Mapping[str, str] = {"observe": "observes", "propose": "asks first", "act": "acts", "none": "has no policy"}
"""What a mode of the policy does, behind `watch`."""
_MUTED = "$text-muted"
_STYLES = {
    StateLevel.ALARM: "$error bold",
    StateLevel.UNKNOWN: "$warning bold",
    StateLevel.ATTENTION: "$warning",
    StateLevel.WELL: "$success",
}
_STYLES_OF = {StateSubject.INCIDENTS: "$error bold", StateSubject.APPROVALS: "$accent bold"}
_PANELS = {
    StateSubject.SCHEDULER: "jobs",
    StateSubject.BREAKER: "happened",
    StateSubject.APPROVALS: "approvals",
    StateSubject.ESCALATED: "incidents",
    StateSubject.ACKNOWLEDGED: "incidents",
    StateSubject.INCIDENTS: "incidents",
}


class StateSource(Protocol):
    """What of the application is judged."""

    store_snapshot: StoreSnapshot | None
    cluster_snapshot: ClusterSnapshot | None
    kill_switch: KillSwitchSnapshot | None
    store_trouble: str
    store_looked_at: datetime | None


def overall_state(chat: StateSource, now: datetime, gap: timedelta) -> OverallState:
    """Return how things stand, by what the chat has read last.

    Args:
        chat: What was read.
        now: The time.
        gap: How long no pass of the watch may see everything.
    """
    store, cluster, switch = chat.store_snapshot, chat.cluster_snapshot, chat.kill_switch
    trouble, looked_at = chat.store_trouble, chat.store_looked_at
    if not trouble and looked_at is not None and now - looked_at > LANE_SILENT:
        trouble = f"the store has not answered since {looked_at.astimezone():%H:%M:%S}"
    facts = store.facts if store is not None else None
    if facts is not None and looked_at is not None:
        # the switch is a file: it is looked at more often than the store changes
        facts = replace(facts, kill_switch=switch.path if switch is not None else "")
    scheduler = SchedulerFacts(cluster.at, cluster.trouble) if cluster is not None else SchedulerFacts()
    configured = cluster is None or cluster.configured
    return judge(SystemFacts(now, gap, facts, trouble, scheduler, configured))


class StatusPart(NamedTuple):
    """A few words of the line."""

    text: str
    style: str
    panel: str = ""
    """Which a click opens."""
    spare: int = 0
    """The higher, the earlier it is left out where it is narrow; 0 never is."""


class PanelLink(NamedTuple):
    """Cells of the line that open a panel."""

    first: int
    end: int
    panel: str


class FirstLine(NamedTuple):
    """The line as it is drawn."""

    content: Content
    places: tuple[PanelLink, ...]


def first_line(
    state: OverallState,
    cluster: ClusterSnapshot | None,
    store: StoreSnapshot | None,
    *,
    now: datetime,
    account: str,
    mode: str,
    answers: str,
    width: int,
) -> FirstLine:
    """Return the line at a width.

    Args:
        state: How things stand.
        cluster: What the scheduler said last.
        store: What the store said last.
        now: The time.
        account: Whose chat it is.
        mode: Of the policy in this chat; that of the watch where one lives.
        answers: What answers questions.
        width: Cells.
    """
    parts = [StatusPart(" Nightshift", "$primary bold", spare=8)]
    if cluster is not None and cluster.name and cluster.configured:
        parts.append(StatusPart(cluster.name, "bold", "nodes", spare=1))
    if account:
        parts.append(StatusPart(account, _MUTED, spare=5))
    parts += _of_state(state)
    parts += _of_cluster(cluster)
    parts += _of_watch(state, store, now, mode)
    parts.append(StatusPart(answers, _MUTED, spare=9))
    parts = _fitting([part for part in parts if part.text], width)
    right, left_parts = [part for part in parts if part.spare == 9], [part for part in parts if part.spare != 9]
    content = Content(GAP).join(Content.styled(line(part.text), part.style) for part in left_parts)
    if right and content.cell_length + cell_len(answers) + 3 <= width:
        content = (
            content + Content(" " * (width - content.cell_length - cell_len(answers) - 1)) + Content.styled(line(answers), _MUTED)
        )
    return FirstLine(content, tuple(_places(left_parts)))


def _of_state(state: OverallState) -> Iterator[StatusPart]:
    if state.level is StateLevel.WELL:
        yield StatusPart("nothing is wrong", _STYLES[StateLevel.WELL])
    for remark in state.remarks:
        yield StatusPart(remark.short, _style(remark), _PANELS.get(remark.about, ""))


def _style(remark: StateRemark) -> str:
    return _MUTED if remark.begins else _STYLES_OF.get(remark.about, _STYLES[remark.level])


def _of_cluster(cluster: ClusterSnapshot | None) -> Iterator[StatusPart]:
    """Yield the counts, while they are current."""
    if cluster is None or cluster.at is None or cluster.trouble or not cluster.configured:
        return
    yield StatusPart(f"{cluster.states.get(JobState.RUNNING, 0):,} running", _MUTED, "jobs", spare=3)
    if cluster.out:
        yield StatusPart(f"{cluster.out:,} of {len(cluster.nodes):,} nodes out", "$warning", "nodes", spare=2)
    else:
        yield StatusPart(f"{len(cluster.nodes):,} nodes", _MUTED, "nodes", spare=4)


def _of_watch(state: OverallState, store: StoreSnapshot | None, now: datetime, mode: str) -> Iterator[StatusPart]:
    """Yield who watches since when, how far it goes, and by which policy; that nobody does is a remark of its own."""
    facts = store.facts if store is not None else StoreFacts()
    remark = state.about(StateSubject.WATCH)
    if not facts.watch or (remark is not None and remark.level is StateLevel.ALARM):
        yield StatusPart(f"this chat {MODES.get(mode, mode)}" if mode else "", _MUTED, spare=6)
        return
    yield StatusPart(f"watch {MODES.get(facts.mode, facts.mode)}".rstrip(), _MUTED, spare=2)
    if facts.since is not None:
        today = facts.since.astimezone().date() == now.astimezone().date()
        yield StatusPart(f"since {facts.since.astimezone():{'%H:%M' if today else '%m-%d'}}", _MUTED, spare=6)
    if facts.policy:
        yield StatusPart(f"policy {facts.policy[:DIGEST]}", _MUTED, spare=7)


def _fitting(parts: Sequence[StatusPart], width: int) -> list[StatusPart]:
    """Return the parts that have room: what can be spared most is left out first, then what must stand is cut at its end."""
    remaining = list(parts)
    while _length(remaining) > width and any(part.spare for part in remaining):
        remaining.remove(max(reversed(remaining), key=lambda part: part.spare))
    excess = _length(remaining) - width
    if excess > 0 and remaining:
        longest = max(range(len(remaining)), key=lambda place: cell_len(remaining[place].text))
        text = remaining[longest].text
        remaining[longest] = remaining[longest]._replace(text=shorten(text, max(8, len(text) - excess)))
    return remaining


def _length(parts: Sequence[StatusPart]) -> int:
    return sum(cell_len(part.text) + len(GAP) for part in parts) - len(GAP)


def _places(parts: Sequence[StatusPart]) -> Iterator[PanelLink]:
    at = 0
    for part in parts:
        end = at + cell_len(part.text)
        if part.panel:
            yield PanelLink(at, end, part.panel)
        at = end + len(GAP)
