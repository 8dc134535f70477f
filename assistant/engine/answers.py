"""What reading tools may ask of the pipeline: a diagnosis made now, a plan, the ledger. Nothing is kept, nothing changes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any

from assistant.diagnose.case import Case
from assistant.diagnose.facts import Facts
from assistant.diagnose.facts import gather as facts_of
from assistant.diagnose.learning.ledger import scores
from assistant.diagnose.verdict import judge
from assistant.engine.plan import plan
from assistant.errors import NightshiftError, ToolError, Unavailable
from assistant.records import Diagnosis, Job
from assistant.tooling import to_json
from assistant.untrusted import READ_S, is_regular, reading_as, within

if TYPE_CHECKING:
    from assistant.engine.engine import Engine

BY = "agent"
"""In whose name it is asked what the policy would say."""


class PipelineAnswers:
    """Looks through the engine; a `tooling.Pipeline`."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def explain(self, job: str) -> Diagnosis:
        """Return why a job failed, found out now and kept nowhere.

        Raises:
            ToolError: The scheduler knows no such job, or there is nothing to read of it.
        """
        engine = self._engine
        shown = engine.scheduler.job(job)
        metrics = shown.work_dir / "metrics.jsonl" if shown.work_dir is not None else None
        kernel, controller = self._kernel(shown), self._controller(job)
        with reading_as(shown.account):

            def read() -> Facts:
                known = metrics if metrics is not None and is_regular(metrics) else None
                return facts_of(Case.from_parts(shown.log, kernel, controller, known, shown, None), engine.knowledge)

            try:
                facts = within(READ_S, read, f"the log {shown.log}")
            except Unavailable as error:
                raise ToolError(f"job {job} cannot be diagnosed: {error}") from error
            return judge(facts, engine.knowledge, engine.opinions)

    def plan(self, job: str) -> Mapping[str, Any]:
        """Return what would be done about a job: the steps, where an incident has a diagnosis, else the playbook."""
        engine = self._engine
        incidents = engine.store.incidents(job=job, limit=1)
        if incidents and engine.store.diagnosis(incidents[0].id) is not None:
            told = plan(engine, incidents[0].id, by=BY)
            steps = [to_json(step) for step in told.steps]
            return {
                **_about(told.diagnosis),
                "incident": incidents[0].id,
                "playbook": told.playbook,
                "steps": steps,
                "note": told.note,
            }
        shown = engine.scheduler.job(job)
        if not shown.state.ended:
            raise ToolError(f"job {job} is {shown.state}: there is nothing to recover")
        diagnosis = self.explain(job)
        chosen, why = engine.playbook_for(diagnosis, shown)
        steps = [{"step": step.name, "tool": step.use, "why": step.why} for step in chosen.step] if chosen is not None else []
        note = f"a person is told: {why}" if chosen is None else f"exact commands: nightshift recover {job} --dry-run"
        name = chosen.name if chosen is not None else None
        return {**_about(diagnosis), "incident": None, "playbook": name, "steps": steps, "note": note}

    def ledger(self, days: float) -> Sequence[Mapping[str, Any]]:
        """Return how nodes stand in the ledger, worst first."""
        now = self._engine.clock.now()
        return [
            {
                "node": one.node,
                "score": one.score,
                "blamed": len(one.blamed),
                "failed_jobs": one.present,
                "reasons": dict(Counter(seen.reason for seen in one.blamed)),
                "incidents": [seen.incident for seen in one.blamed],
                "last": one.blamed[-1].at.isoformat() if one.blamed else None,
            }
            for one in scores(self._engine.store.sightings(now - timedelta(days=days)), now)
        ]

    def _kernel(self, job: Job) -> str:
        value = self._asked("kernel_log", {"nodes": list(job.nodes), "lines": 500}) if job.nodes else None
        texts = value.get("text") if isinstance(value, Mapping) else None
        return "\n".join(f"# {node}\n{text}" for node, text in texts.items() if text) if isinstance(texts, Mapping) else ""

    def _controller(self, job: str) -> str:
        value = self._asked("scheduler_log", {"job": job})
        return str(value.get("text", "")) if isinstance(value, Mapping) else ""

    def _asked(self, tool: str, arguments: dict[str, Any]) -> Any:
        """Return the value of a reading call; what cannot be read leaves the case poorer, never wrong."""
        try:
            outcome = self._engine.gate.call(tool, arguments, why="asked why a job failed", by=BY)
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
