"""What the verdict rests on: every fact that was gathered, folded to its first lines; each opens whole."""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator

from assistant.records import Evidence, Risk
from assistant.tui.about_incident import IncidentSeen, SeenCall
from assistant.tui.widgets.openable import Item, Openable, Part, heading, item
from assistant.tui.words import clock

SHOWN_LINES = 3


class EvidenceView(Openable):
    """The evidence."""

    def __init__(self) -> None:
        super().__init__(left=12)

    def tell(self, snapshot: IncidentSeen) -> None:
        """Show it."""
        self.show(list(evidence_items(snapshot)))


def evidence_items(snapshot: IncidentSeen) -> Iterator[Item]:
    """Yield the evidence and the readings of the playbook. Keys: `evidence:ID`, `call:ID`."""
    if not snapshot.evidence:
        yield heading("No evidence yet")
    else:
        yield heading(f"Evidence ({len(snapshot.evidence)})")
    for record in snapshot.evidence:
        yield _fact(record, snapshot)
    looks = [record for record in snapshot.calls if record.risk is Risk.READ and record.call.step is not None]
    if looks:
        yield heading(f"What the playbook looked at ({len(looks)})")
    for look in looks:
        text = value_text(look)
        head = (Part(look.call.step or "", "bold"), Part(f"  {look.call.tool}", "dim"))
        yield item(f"call:{look.call.id}", Part(clock(look.call.at, snapshot.at), "dim"), head, *_folded(text))


def _fact(evidence: Evidence, snapshot: IncidentSeen) -> Item:
    unknown = evidence.facts.get("known") is False
    count = readable(evidence.text).count("\n") + 1
    head = (
        Part(f"#{evidence.id} ", "dim"),
        Part(evidence.source, "bold warning" if unknown else "bold"),
        Part(f"  {count:,} line{'s' * (count != 1)}", "dim"),
    )
    return item(f"evidence:{evidence.id}", Part(clock(evidence.at, snapshot.at), "dim"), head, *_folded(readable(evidence.text)))


def readable(text: str) -> str:
    """Return evidence as people read it: of a value that was kept as it was printed, the text in it."""
    if not text.startswith("{"):
        return text
    try:
        value = ast.literal_eval(text)
    except (ValueError, SyntaxError, MemoryError, RecursionError):
        return text  # it was cut at its end, or is no value
    if isinstance(value, dict) and isinstance(value.get("text"), str):
        return str(value["text"])
    return json.dumps(value, indent=2, ensure_ascii=False, default=str)


def _folded(text: str) -> list[Part]:
    """Return the first lines of a text, each cut, and how many are left."""
    lines = [line for line in text.splitlines() if line.strip()]
    parts = [Part(f"{line[:239]}…" if len(line) > 240 else line, "dim") for line in lines[:SHOWN_LINES]]
    remaining = len(lines) - len(parts)
    return [*parts, Part(f"… {remaining:,} more line{'s' * (remaining != 1)}: Enter", "accent")] if remaining else parts


def value_text(seen_call: SeenCall) -> str:
    """Return what a call returned, as text for people."""
    outcome = seen_call.outcome
    if outcome is None:
        return f"{seen_call.call.status}: nothing is known of its outcome"
    if not outcome.ok:
        return f"failed: {outcome.error}"
    if isinstance(outcome.value, str):
        return outcome.value
    return json.dumps(outcome.value, indent=2, ensure_ascii=False, default=str)
