"""The playbook of an incident: its steps with what each found, where it stands, what comes next, what is left of its budget."""

from __future__ import annotations

from collections.abc import Iterator

from assistant.tui.about_incident import IncidentSeen
from assistant.tui.playbook_progress import At, Play, SeenStep
from assistant.tui.widgets.openable import Item, Openable, Part, heading, item

STEP_SIGNS = {
    At.DONE: ("✓", "success"),
    At.FAILED: ("✗", "error"),
    At.NOW: ("▸", "accent"),
    At.WAITS: ("?", "accent"),
    At.SKIPPED: ("–", "dim"),
    At.NEXT: ("·", "dim"),
}
STANDING = {At.NOW: "here it stands", At.WAITS: "waits for a yes: press a", At.SKIPPED: "not taken"}


class PlaybookView(Openable):
    """The playbook."""

    def __init__(self) -> None:
        super().__init__(left=16)

    def tell(self, snapshot: IncidentSeen) -> None:
        """Show it."""
        self.show(list(playbook_items(snapshot.play)))


def playbook_items(play: Play) -> Iterator[Item]:
    """Yield steps, verifies and limits. Keys: `step:NAME`, `file`."""
    if not play.name:
        yield heading("No playbook")
        yield item("none", "why", play.note)
        return
    yield heading("Playbook" if play.begun else "The playbook that would be taken")
    yield item("file", Part(play.name, "bold"), play.title, Part(play.note, "warning"))
    yield heading("Steps")
    yield from (_step(step, play) for step in play.steps if not step.verify)
    if any(step.verify for step in play.steps):
        yield heading("How it is verified")
    yield from (_step(step, play) for step in play.steps if step.verify)
    yield heading("Limits")
    if play.budget is not None:
        remaining = max(0, play.budget.limit - play.budget.used)
        yield item("budget", f"{remaining} left", play.budget.why)
    elif play.limits is not None:
        yield item("budget", "restarts", Part("This playbook restarts nothing.", "dim"))
    yield item("ends", "end", play.ends)


def _step(step: SeenStep, play: Play) -> Item:
    sign, look = STEP_SIGNS[step.at]
    state = STANDING.get(step.at, "" if step.at is At.NEXT else str(step.at)) if play.begun else ""
    head = (Part(step.tool, "dim"), Part(f"  {state}" if state else "", f"bold {look}"))
    parts = (Part(step.why, "dim" if step.at in (At.SKIPPED, At.NEXT) else ""), Part(step.expects, "dim"))
    result = (Part("found ", "dim"), Part(step.found)) if step.found else Part("")
    return item(f"step:{step.name}", Part(f"{sign} {step.name}", look), head, *parts, result)
