"""What an empty conversation begins with: what this is, who answers, and questions that fit what is seen now."""

from __future__ import annotations

from textual.content import Content
from textual.widgets import Static

from assistant.display import line
from assistant.records import JobState
from assistant.tui.snapshot import OUT, ClusterSeen, StoreSeen
from assistant.tui.visibility import covered
from assistant.tui.widgets.exchange import Options
from assistant.tui.widgets.plain import MUTED, link

INTRODUCTION = "Nightshift finds out why training jobs fail and brings them back."


class Welcome(Static):
    """Follows what is seen, until the first question."""

    def __init__(self) -> None:
        super().__init__("", markup=False)
        self.answers = ""
        self.examples: tuple[str, ...] = ()
        self._lines: list[Content] = []

    def on_mount(self) -> None:
        """Follow what the desk reads."""
        self.watch(self.app, "store_seen", self.look, init=False)
        self.watch(self.app, "cluster_seen", self.look, init=False)
        self.look()

    def says(self, answers: str) -> None:
        """Say what answers questions."""
        self.answers = answers
        self.look()

    def action_ask(self, place: int) -> None:
        """Ask one of the examples."""
        self.post_message(Options.Chosen(self.examples[place]))

    def look(self) -> None:
        """Show what fits now."""
        if covered(self):
            return
        self.examples = examples(self.app.store_seen, self.app.cluster_seen)  # type: ignore[attr-defined]
        lines = [Content.styled(INTRODUCTION, "bold"), Content.styled(line(agent_sentence(self.answers)), MUTED), Content("")]
        lines += [
            Content.styled(line(f"{place + 1}  "), "$accent") + link(example, "ask", place)
            for place, example in enumerate(self.examples)
        ]
        lines += [Content(""), Content.styled("A number and Enter asks it; / lists commands, F1 keys.", MUTED)]
        if lines != self._lines:
            self._lines = lines
            self.update(Content("\n").join(lines))


def agent_sentence(answers: str) -> str:
    """Return who answers, in a sentence."""
    if not answers:
        return "Waking up: you can type already."
    if answers == "words only":
        return "Without a language model: your words choose what is looked at, and every answer names its sources."
    if answers.startswith("embedded"):
        return "Without a language model: the embedded model chooses what is looked at, and every answer names its sources."
    return f"{answers} answers; what it says is checked against what was looked at."


def examples(store: StoreSeen | None, cluster: ClusterSeen | None) -> tuple[str, ...]:
    """Return three questions that fit what is seen now, the most pressing first."""
    questions: list[str] = []
    for entry in store.incidents if store is not None else ():
        if not entry.incident.state.ended or entry.incident.state.name == "ESCALATED":
            if entry.incident.service is not None:
                continue  # its jobs say more
            questions.append(
                f"why did job {entry.incident.job} die?" if entry.incident.job else f"what happened on node {entry.incident.node}?"
            )
            break
    if store is not None and store.approvals:
        questions.append("what waits for me?")
    out = next((node for node in cluster.nodes if node.state in OUT), None) if cluster is not None else None
    if out is not None:
        questions.append(f"why is node {out.name} out of service?")
    running = next((job for job in reversed(cluster.jobs) if job.state is JobState.RUNNING), None) if cluster is not None else None
    if running is not None:
        questions.append(f"how far is job {running.id}?")
    return tuple([*questions, "what is wrong now?", "which jobs failed today?", "which nodes are out of service?"][:3])
