"""What would be done, with nothing changed: plans of playbooks, an engine on a copy of the store, answers to reading tools.

A plan plays the playbook against the cluster as it is now. Reading steps are made, since later ones rest on what they return. Of
changing steps only the preview and the policy's answer are asked for; they are taken to succeed. What comes after the restart
(looking whether training moves on) is named, not done.
"""

from __future__ import annotations

import dataclasses
import logging
import tempfile
from collections import Counter
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assistant.content.playbooks import Playbook
from assistant.diagnose.case import Case
from assistant.diagnose.facts import Facts
from assistant.diagnose.facts import gather as facts_of
from assistant.diagnose.learning.ledger import scores
from assistant.diagnose.verdict import judge
from assistant.engine.retry_policy import as_the_same_job, situation_of
from assistant.errors import NightshiftError, ToolError, Unavailable
from assistant.gate import Park
from assistant.gate.stops import stopped_by
from assistant.overall_state import read_facts
from assistant.records import Diagnosis, Job, Outcome, Risk, Verdict
from assistant.recover.checkpoints.search import search_checkpoints
from assistant.recover.job_program import programs_now
from assistant.recover.joblog import log_lines
from assistant.recover.loaded import loaded_checkpoint
from assistant.recover.playbook import Ended, Wanted, play
from assistant.recover.resume.script import resume_way
from assistant.store import Store
from assistant.store.seals import copy_key
from assistant.tooling import find_tool, to_json
from assistant.untrusted import READ_S, is_regular, reading_as, within

if TYPE_CHECKING:
    from assistant.engine.engine import Engine

REHEARSAL_S = 3600.0
"""A rehearsal takes seconds."""


@contextmanager
def rehearsal(engine: Engine) -> Iterator[Engine]:
    """Give an engine like this one on a copy of the store, deleted afterwards; its approvals reach nobody.

    Raises:
        StoreError: There is no room for the copy, or the store cannot be read.
    """
    with tempfile.TemporaryDirectory(prefix="nightshift-dry-") as folder:
        copy = Path(folder) / "store.db"
        engine.store.rows("VACUUM INTO ?", [str(copy)])
        copy_key(engine.store.path, copy)
        store = Store(copy, engine.clock)
        try:
            yield dataclasses.replace(engine, store=store, gate=engine.gate.on(store, Park(store, expires_after_s=REHEARSAL_S)))
        finally:
            store.close()


MOST_STEPS = 500
"""More than any playbook takes on a real cluster."""


@dataclass(frozen=True, slots=True)
class Planned:
    """A step of a playbook as it would be taken."""

    step: str
    tool: str
    change: bool
    """Whether it changes something."""
    preview: str
    """The exact command or change; of a reading step the call."""
    why: str
    verdict: Verdict
    """What the policy says to it now; a reading step is always allowed."""
    rule: str
    """The policy's rule; empty for a reading step."""
    found: str
    """What a reading step found, in short, or why a step cannot be made."""
    risk: Risk = Risk.READ
    undo: str = ""
    """The tool that takes it back; empty where that cannot be."""


@dataclass(frozen=True, slots=True)
class Plan:
    """The steps that would be taken about an incident, and how it would end."""

    diagnosis: Diagnosis
    playbook: str | None
    steps: tuple[Planned, ...]
    note: str
    """How it would end as far as that can be told, or why there is no playbook."""
    resumes: str = ""
    """How the job's script goes on, in one sentence; empty where there is no job with a script."""


class _Promised(dict[str, Any]):
    """The value of a change that was not made: every key that a later step asks for stands there, by its name."""

    def __contains__(self, key: object) -> bool:
        return True

    def __missing__(self, key: str) -> str:
        return f"<{key}>"


def plan(engine: Engine, incident_id: int, *, by: str) -> Plan:
    """Return the steps that would be taken about an incident, played without a change.

    Args:
        engine: Its store gets the diagnosis when there is none; to leave no trace, give it a copy of the store.
        incident_id: Which.
        by: Who asks; the policy's answer may depend on it.

    Raises:
        Unavailable: The scheduler or a node that is asked did not answer.
    """
    incident = engine.store.incident(incident_id)
    diagnosis = engine.store.diagnosis(incident_id) or engine.diagnose(incident_id)
    job = None
    if incident.job is not None:
        try:
            job = engine.scheduler.job(incident.job)
        except ToolError:
            job = None
    playbook, why = engine.playbook_for(diagnosis, job)
    if playbook is None:
        return Plan(diagnosis, None, (), f"a person is told: {why}", _resumes(engine, job))
    steps: list[Planned] = []
    note = _played(engine, playbook, situation_of(engine.store, incident, diagnosis, job), steps, incident_id, by)
    steps += _verifies(playbook) if not note else ()
    return Plan(
        diagnosis, playbook.name, tuple(steps), note or f"ends {playbook.ends} when all of this goes well", _resumes(engine, job)
    )


def _resumes(engine: Engine, job: Job | None) -> str:
    """Return how a job's script goes on, as a restart would judge it.

    Raises:
        Unavailable: The storage did not answer.
    """
    if job is None or job.spec is None:
        return ""
    lines = log_lines(job)
    search = search_checkpoints(job, engine.checkpoint_folders, (line.text for line in lines), now=engine.clock.now())
    way = resume_way(job, programs_now(job, search.programs), loaded_checkpoint(lines), search.stages, saved=search.inventory)
    return way.repeats or way.sentence


def _played(engine: Engine, book: Playbook, values: Mapping[str, Any], steps: list[Planned], incident: int, by: str) -> str:
    """Play up to the verifies and return how it ended before them; empty when it came so far."""
    running: Generator[Wanted, Outcome, Ended] = play(book, values, look_s=0)
    try:
        request = next(running)
        for _ in range(MOST_STEPS):
            if request.looks and not request.waits:
                return ""
            request = as_the_same_job(engine.scheduler, request)
            planned, outcome = _step(engine, book, request, incident, by)
            steps.append(planned)
            request = running.send(outcome)
    except StopIteration as stop:
        ended: Ended = stop.value
        return f"ends {ended.state}: {ended.note}"
    finally:
        running.close()
    return f"takes more than {MOST_STEPS} steps"


def _step(engine: Engine, book: Playbook, request: Wanted, incident: int, by: str) -> tuple[Planned, Outcome]:
    call = f"{request.tool}({', '.join(f'{name}={value!r}' for name, value in request.arguments.items())})"
    at = engine.clock.now()
    tool = find_tool(request.tool)
    if tool.risk is not Risk.READ:
        try:
            preview = engine.gate.preview(request.tool, request.arguments, by=by, incident=incident)
        except ToolError as error:
            failed = Outcome(0, False, None, str(error), at)
            return Planned(
                request.key, request.tool, True, call, request.why, Verdict.DENY, "", str(error), tool.risk, tool.undo or ""
            ), failed
        decision = preview.decision
        planned = Planned(
            request.key,
            request.tool,
            True,
            preview.text,
            request.why,
            decision.verdict,
            decision.rule,
            "",
            tool.risk,
            tool.undo or "",
        )
        return planned, Outcome(0, True, _Promised(request.arguments), "", at)
    if request.waits:
        expect = next((step.expect for step in book.step if step.name == request.key.split("#")[0]), "")
        planned = Planned(request.key, request.tool, False, call, request.why, Verdict.ALLOW, "", f"waits until {expect}")
        return planned, Outcome(0, True, _Promised(status=expect), "", at)
    outcome = engine.gate.call(request.tool, request.arguments, why=request.why, by=by)
    return Planned(request.key, request.tool, False, call, request.why, Verdict.ALLOW, "", _short(outcome)), outcome


def _verifies(book: Playbook) -> Iterator[Planned]:
    for verify in book.verify:
        condition = f"until it says {verify.expect}, within {verify.within_min:g} min"
        yield Planned(verify.name, verify.use, False, verify.use, verify.why, Verdict.ALLOW, "", condition)


def _short(outcome: Outcome) -> str:
    """Return the value of a call on one line: its note where it has one."""
    if not outcome.ok:
        return outcome.error
    value = outcome.value
    note = str(value.get("note") or value.get("text") or "") if isinstance(value, Mapping) else ""
    one_line = " ".join((note or str(value)).split())
    return one_line if len(one_line) <= 200 else f"{one_line[:199]}…"


AGENT = "agent"
"""In whose name it is asked what the policy would say."""


class PipelineAnswers:
    """Answers of the pipeline to reading tools; a `tooling.Pipeline`."""

    def __init__(self, engine: Engine, *, gap: timedelta, configured: bool = True) -> None:
        """Answer by an engine.

        Args:
            engine: Whose store, policy and scheduler are asked.
            gap: How long no pass of the watch may see everything.
            configured: Whether anybody has said where jobs run.
        """
        self._engine, self._gap, self._configured = engine, gap, configured

    def explain(self, job: str) -> Diagnosis:
        """Return why a job failed, by a diagnosis that is made now and not stored.

        Raises:
            ToolError: The scheduler knows no such job, or there is nothing to read of it.
        """
        engine = self._engine
        job_record = engine.scheduler.job(job)
        metrics = job_record.work_dir / "metrics.jsonl" if job_record.work_dir is not None else None
        kernel, controller = self._kernel(job_record), self._controller(job)
        with reading_as(job_record.account):

            def read() -> Facts:
                known = metrics if metrics is not None and is_regular(metrics) else None
                return facts_of(Case.from_parts(job_record.log, kernel, controller, known, job_record, None), engine.knowledge)

            try:
                facts = within(READ_S, read, f"the log {job_record.log}")
            except Unavailable as error:
                raise ToolError(f"job {job} cannot be diagnosed: {error}") from error
            return judge(facts, engine.knowledge, engine.opinions)

    def plan(self, job: str) -> Mapping[str, Any]:
        """Return what would be done about a job: the steps, where an incident has a diagnosis, else the playbook."""
        engine = self._engine
        incidents = engine.store.incidents(job=job, limit=1)
        if incidents and engine.store.diagnosis(incidents[0].id) is not None:
            planned = plan(engine, incidents[0].id, by=AGENT)
            steps = [to_json(step) for step in planned.steps]
            return {
                **_about(planned.diagnosis),
                "incident": incidents[0].id,
                "playbook": planned.playbook,
                "steps": steps,
                "note": planned.note,
            }
        job_record = engine.scheduler.job(job)
        if not job_record.state.ended:
            raise ToolError(f"job {job} is {job_record.state}: there is nothing to recover")
        diagnosis = self.explain(job)
        playbook, why = engine.playbook_for(diagnosis, job_record)
        steps = [{"step": step.name, "tool": step.use, "why": step.why} for step in playbook.step] if playbook is not None else []
        note = f"a person is told: {why}" if playbook is None else f"exact commands: nightshift recover {job} --dry-run"
        name = playbook.name if playbook is not None else None
        return {**_about(diagnosis), "incident": None, "playbook": name, "steps": steps, "note": note}

    def ledger(self, days: float) -> Sequence[Mapping[str, Any]]:
        """Return the score of each node in the ledger, worst first."""
        now = self._engine.clock.now()
        return [
            {
                "node": score.node,
                "score": score.score,
                "blamed": len(score.blamed),
                "failed_jobs": score.present,
                "reasons": dict(Counter(sighting.reason for sighting in score.blamed)),
                "incidents": [sighting.incident for sighting in score.blamed],
                "last": score.blamed[-1].at.isoformat() if score.blamed else None,
            }
            for score in scores(self._engine.store.sightings(now - timedelta(days=days)), now)
        ]

    def watch(self) -> Mapping[str, Any]:
        """Return how the watch stands, by what the store and the files of the policy say now."""
        engine = self._engine
        standing, now = engine.gate.in_force.look(), engine.clock.now()
        facts = read_facts(engine.store, standing, stopped_by(standing.policy.kill_switch), now)
        alive = facts.is_watched(now, self._gap)
        return {**to_json(facts), "alive": alive, "gap_s": self._gap.total_seconds(), "configured": self._configured}

    def _kernel(self, job: Job) -> str:
        value = self._recorded_question("kernel_log", {"nodes": list(job.nodes), "lines": 500}) if job.nodes else None
        texts = value.get("text") if isinstance(value, Mapping) else None
        return "\n".join(f"# {node}\n{text}" for node, text in texts.items() if text) if isinstance(texts, Mapping) else ""

    def _controller(self, job: str) -> str:
        value = self._recorded_question("scheduler_log", {"job": job})
        return str(value.get("text", "")) if isinstance(value, Mapping) else ""

    def _recorded_question(self, tool: str, arguments: dict[str, Any]) -> Any:
        """Return the value of a reading call; what cannot be read leaves the case poorer, never wrong."""
        try:
            outcome = self._engine.gate.call(tool, arguments, why="asked why a job failed", by=AGENT)
        except NightshiftError:
            return None
        return outcome.value if outcome.ok else None


def _about(diagnosis: Diagnosis) -> dict[str, Any]:
    return {
        "reason": diagnosis.reason,
        "action": diagnosis.action.value,
        "summary": diagnosis.summary,
        "advice": diagnosis.advice,
        "nodes_to_blame": list(diagnosis.faulty_nodes),
    }


@contextmanager
def silent_log() -> Iterator[None]:
    """Silence the log of the engine while the block runs: it works on invented or past jobs, and nobody is to be woken."""
    ours = logging.getLogger("assistant")
    level = ours.level
    ours.setLevel(logging.CRITICAL + 1)
    try:
        yield
    finally:
        ours.setLevel(level)
