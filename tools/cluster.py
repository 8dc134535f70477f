"""Look at the scheduler itself."""

from __future__ import annotations

from typing import Any

from assistant.errors import ToolError
from assistant.ports import ControllerLog
from assistant.records import Risk
from assistant.tooling import Context, tool


@tool(risk=Risk.READ)
def scheduler_log(context: Context, job: str) -> dict[str, Any]:
    """Show what the scheduler's controller logged about a job and the nodes it ran on.

    Args:
        job: Scheduler job id.
    """
    if not isinstance(context.scheduler, ControllerLog):
        raise ToolError(f"the {context.scheduler.name} scheduler does not show its controller's log")
    return {"text": context.scheduler.controller_log(job)}
