"""Say who has to do what: the end of every playbook that must not restart by itself."""

from __future__ import annotations

from typing import Any

from assistant.records import Risk
from assistant.recover.start_losses import DESTROYS
from assistant.tooling import Context, tool
from assistant.tools.checkpoints import refused_state, saved_state, time_left


@tool(risk=Risk.READ)
def tell_owner(context: Context, job: str, reason: str, advice: str, root_line: str = "", owner: str = "") -> dict[str, Any]:
    """Write the message for the owner of a job: what failed, the line that proves it, what to change. It is kept, not sent.

    The message and `saved` say what the job left to go on from: its newest whole checkpoint, newer ones that are not, what its
    script would do if it were submitted as it is, who else saves there; and of a time limit how long the rest takes.

    Args:
        job: Scheduler job id.
        reason: Reason of the failure.
        advice: What to change, in the imperative.
        root_line: The line that proves the reason, with its place.
        owner: Whom it is for; the job's user when empty.
    """
    shown = context.scheduler.job(job)
    to = owner or shown.user or "the owner"
    source = refused_state(context, shown, f"{root_line} {advice}")
    advice = f"{advice} {source}" if source else advice
    lines = [f"{to}: job {job} ({shown.name}) failed: {reason}.", advice]
    lines += [f"Evidence: {root_line}"] if root_line else []
    rest_words = time_left(context, shown) if reason == "time_limit" else ""
    saved = " ".join(part for part in (rest_words, saved_state(context, shown)) if part)
    lines += [saved] if saved else []
    first = "move away first what a start would destroy, and then submit it again" if DESTROYS in saved else "submit it again"
    lines.append(f"Nightshift did not restart it; {first} when that is done.")
    return {"owner": to, "text": "\n".join(lines), "saved": saved, "note": f"{to} must act: {advice}"}


@tool(risk=Risk.READ)
def escalate(context: Context, why: str, advice: str = "", job: str = "") -> dict[str, Any]:
    """Hand an incident to the operators on duty, with the reason why; nothing else happens.

    Args:
        why: What stands in the way.
        advice: What to look at first.
        job: Scheduler job id of the job that failed: `saved` then says what it left to go on from.
    """
    saved = saved_state(context, context.scheduler.job(job)) if job else ""
    return {
        "incident": context.incident,
        "saved": saved,
        "note": f"{why}{' ' if why.endswith('.') else ': '}{advice}" if advice else why,
    }
