"""The jobs of an evaluation, handed in and ended by way of the gate: written down, within the policy, undone by `nightshift undo`.

The person who typed the command has approved them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from assistant.errors import ToolError
from assistant.evaluation.files import read_json
from assistant.evaluation.layout import RunFolder
from assistant.records import CallStatus, JobSpec

if TYPE_CHECKING:
    from assistant.engine import Engine
    from assistant.gate import Gate

SUBMIT, END = "submit_evaluation_job", "end_evaluation_job"


class GatedJobs:
    """Submits and ends the jobs of one run."""

    def __init__(self, gate: Gate, folder: RunFolder, *, by: str) -> None:
        """Let a person's jobs pass a gate."""
        self._gate, self._folder, self._by = gate, folder, by

    def submit(self, number: int, spec: JobSpec) -> str:
        """Hand a job in and return its id.

        Raises:
            ToolError: The scheduler refused it.
            Denied: The policy did.
        """
        node = (read_json(self._folder.job(number) / "job.json") or {}).get("node", "")
        value = self._call(SUBMIT, {"number": number, "nodes": [node] if node else []}, f"{spec.name} {number}")
        return str(value["job"])

    def cancel(self, number: int, job: str) -> None:
        """End a job.

        Raises:
            ToolError: The scheduler refused that.
            Denied: The policy did.
        """
        self._call(END, {"number": number, "job": job}, f"end job {number}")

    def _call(self, tool: str, arguments: dict[str, Any], what: str) -> dict[str, Any]:
        why = f"evaluation {self._folder.id}: {what}"
        given = {"run": str(self._folder.path), **arguments}
        outcome = self._gate.call(tool, given, why=why, by=self._by, approved_by=self._by)
        if not outcome.ok:
            raise ToolError(outcome.error)
        return dict(outcome.value)


def settle(engine: Engine, folder: RunFolder) -> None:
    """Find out what came of calls for a run that a crash cut short.

    Raises:
        Unavailable: The scheduler does not answer, so nobody can tell.
    """
    for call in engine.store.calls(status=CallStatus.INTENT):
        if call.tool in (SUBMIT, END) and call.arguments.get("run") == str(folder.path):
            engine.gate.resolve(call)
