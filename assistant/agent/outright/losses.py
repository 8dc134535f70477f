"""What is lost by failures: steps and node-hours to be made again, the next checkpoint, the time between failures."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from itertools import pairwise

from assistant.agent.answer import count_text, one_line, time_text
from assistant.agent.dialogue import QuestionTurn
from assistant.agent.forms import span_text, step_seconds
from assistant.agent.outright.sentence import Row, incidents_by_job, job_text
from assistant.agent.outright.windows import TimeWindow
from assistant.agent.tell_aspects import title
from assistant.agent.tell_jobs import ALL_JOBS, FAILED
from assistant.agent.tell_jobs import failed as not_answered


def _restart_step(note: str) -> int | None:
    match = re.search(r"\brestart step (\d+)", note)
    return int(match[1]) if match is not None else None


class _Lost:
    """What a failed job has to make again."""

    def __init__(self, turn: QuestionTurn, row: Row, incident: Row | None) -> None:
        """Look up where a job ended, and from where it goes on or went on."""
        job = row["job"]
        reached, choice = turn.look("job_progress", job=job, timeout_s=0.0), turn.look("choose_checkpoint", job=job)
        self.step = (reached.value or {}).get("step")
        restarted = _restart_step(str(incident["note"])) if incident is not None else None
        begin = 0 if (choice.value or {}).get("restart_from") == "none" else (choice.value or {}).get("step")
        self.begin = restarted if restarted is not None else begin
        self.refused = [_refused_text(entry) for entry in (choice.value or {}).get("refused") or ()]
        self.marks = f"[{reached.number}][{choice.number}]"
        start = datetime.fromisoformat(row["started"]) if row["started"] else None
        end = datetime.fromisoformat(row["ended"]) if row["ended"] else turn.now
        self.node_hours = (end - start) / timedelta(hours=1) * len(row["nodes"]) if start is not None else 0.0

    @property
    def steps(self) -> int | None:
        """Steps to be made again; None where that is not known."""
        return max(0, self.step - self.begin) if isinstance(self.step, int) and isinstance(self.begin, int) else None

    @property
    def lost_hours(self) -> float | None:
        """Node-hours of these steps, at the mean speed of the run."""
        return self.node_hours * self.steps / self.step if self.steps is not None and self.step else None


def _refused_text(entry: Row | str) -> str:
    """Return why a checkpoint is not taken."""
    if isinstance(entry, str):
        return one_line(entry, 200)
    problems = one_line("; ".join(entry.get("problems") or ()), 160)
    return f"the checkpoint of step {entry.get('step')} is not whole{f': {problems}' if problems else ''}"


def steps_told(turn: QuestionTurn, job: str) -> Iterator[str]:
    """Tell how many steps a job makes again, and why."""
    status = turn.look("show_job", job=job)
    if status.error:
        yield not_answered(turn, status)
        return
    by_job, _ = incidents_by_job(turn)
    lost = _Lost(turn, status.value, by_job.get(job))
    if lost.steps is None:
        yield f"Not known: where job {job} would go on is not known {lost.marks}."
        return
    state = status.value["state"]
    would = "would be made again if it ended now" if state in ("running", "pending") else "are made again"
    reached = f"it reached step {lost.step}, and a restart begins at step {lost.begin}"
    why = f", because {lost.refused[0]}" if lost.refused and state not in ("running", "pending") else ""
    yield f"{count_text(lost.steps, 'step')} of job {job} {would}: {reached} {lost.marks}{why}."
    if lost.lost_hours:
        yield f"That is about {lost.lost_hours:.1f} of {lost.node_hours:.1f} node-hours."


def hours_told(turn: QuestionTurn, users: Sequence[str], window: TimeWindow | None, *, really: bool = False) -> Iterator[str]:
    """Tell the node-hours of failed jobs, and what of them has to be made again."""
    jobs = turn.look("list_jobs", limit=ALL_JOBS)
    if jobs.error:
        yield not_answered(turn, jobs)
        return
    by_job, _ = incidents_by_job(turn)
    rows = [row for row in jobs.value if row["state"] in FAILED and row["ended"] and (not users or row["user"] in users)]
    rows = [row for row in rows if window is None or window.holds(datetime.fromisoformat(row["ended"]))]
    losses = [(row, _Lost(turn, row, by_job.get(row["job"]))) for row in rows[:8]]
    of = f" of {', '.join(users)}" if users else ""
    period = f" that ended {window.text}" if window is not None else ""
    total = sum(lost.node_hours for _, lost in losses)
    parts = ", ".join(f"{job_text(row)} {_number(lost.node_hours)}" for row, lost in losses)
    steps = sum(lost.steps or 0 for _, lost in losses)
    again_hours = sum(lost.lost_hours or 0.0 for _, lost in losses)
    again_parts = ", ".join(
        (
            f"{row['job']} "
            f"{'not known' if lost.steps is None else f'{lost.steps} steps, about {_number(lost.lost_hours or 0.0)} node-hours'}"
        )
        for row, lost in losses
    )
    marks = "".join(dict.fromkeys(lost.marks for _, lost in losses))
    again_text = f"{count_text(steps, 'step')}, about {_number(again_hours)} node-hours, have to be made again"
    used = f"{_number(total)} node-hours in {count_text(len(rows), 'failed job')}{of}{period}"
    if not rows:
        yield f"0 node-hours: no failed job{of}{period} is known [{jobs.number}]."
    elif really:
        yield f"{again_text} of the failed jobs{of}{period} {marks}: {again_parts}."
        yield f"All that they used: {used} [{jobs.number}]: {parts}."
    else:
        yield f"{used} [{jobs.number}]: {parts}."
        yield f"Of it {again_text} {marks}: {again_parts}."
    yield "How many GPUs a node has is not in these records, so they are hours of nodes, not of GPUs."


def _number(value: float) -> str:
    return f"{value:,.0f}" if abs(value - round(value)) < 0.05 else f"{value:,.1f}"


def next_checkpoint_told(turn: QuestionTurn, job: str) -> Iterator[str]:
    """Tell at which step the next checkpoint is due, and when at the speed of the last steps."""
    source = turn.look("list_checkpoints", job=job)
    steps = [row["step"] for row in (source.value or {}).get("checkpoints", ()) if isinstance(row["step"], int)]
    gaps = [later - earlier for earlier, later in pairwise(steps)]
    if not gaps:
        yield (
            f"When the next checkpoint of job {job} is due is not known: it has "
            f"{count_text(len(steps), 'checkpoint')} [{source.number}]."
        )
        return
    due, reached = steps[-1] + gaps[-1], turn.look("job_progress", job=job, timeout_s=0.0)
    step, (seconds, number) = (reached.value or {}).get("step"), step_seconds(turn, job)
    at = ""
    if isinstance(step, int) and seconds:
        at = (
            f", about {time_text((turn.now + timedelta(seconds=seconds * (due - step))).isoformat(), turn.now)} "
            f"at {seconds:.3g} s a step [{number}]"
        )
    yield (
        f"At step {due}{at or '; when is not known'}: it saves every {gaps[-1]} steps, the newest is of step "
        f"{steps[-1]} [{source.number}]."
    )


def gap_told(
    turn: QuestionTurn, jobs: Sequence[str], nodes: Sequence[str] = (), reasons: frozenset[str] = frozenset()
) -> Iterator[str]:
    """Tell how much time lies between two failures: of two jobs, or the two newest of a reason, of a node where one is named."""
    listed = turn.look("list_incidents", limit=400)
    mark = f"[{listed.number}]"
    if len(jobs) >= 2:
        times: list[tuple[datetime, str]] = []
        for job in jobs[:2]:
            status = turn.look("show_job", job=job)
            if status.error or not status.value["ended"]:
                yield f"Not known: job {job} has no end that is recorded [{status.number}]."
                return
            times.append(
                (
                    datetime.fromisoformat(status.value["ended"]),
                    f"job {job} {'failed' if status.value['state'] in FAILED else 'ended'}",
                )
            )
            mark = f"{mark}[{status.number}]"
    else:
        rows = [row for row in listed.value or () if not nodes or set(nodes) & {*row["nodes_to_blame"], row["node"]}]
        rows = [row for row in rows if not reasons or row["reason"] in reasons]
        times = [
            (datetime.fromisoformat(row["opened"]), f"incident {row['incident']}, {title(row['reason'])}, job {row['job']}")
            for row in rows[:2]
        ]
    if len(times) < 2:
        yield f"Not known: of {', '.join(nodes) or 'them'} {count_text(len(times), 'failure')} is recorded, not two {mark}."
        return
    (first, first_text), (last, last_text) = sorted(times)
    hours = (last - first).total_seconds() / 3600
    yield (
        f"{hours:,.0f} h ({span_text((last - first).total_seconds())}): from {first:%Y-%m-%d %H:%M} UTC "
        f"({first_text}) to {last:%Y-%m-%d %H:%M} UTC ({last_text}) {mark}."
    )
