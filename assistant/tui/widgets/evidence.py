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

    def tell(self, seen: IncidentSeen) -> None:
        """Show it."""
        self.show(list(evidence_items(seen)))


def evidence_items(seen: IncidentSeen) -> Iterator[Item]:
    """Yield the evidence and the readings of the playbook. Keys: `evidence:ID`, `call:ID`."""
    if not seen.evidence:
        yield heading("No evidence yet")
    else:
        yield heading(f"Evidence ({len(seen.evidence)})")
    for one in seen.evidence:
        yield _fact(one, seen)
    looks = [one for one in seen.calls if one.risk is Risk.READ and one.call.step is not None]
    if looks:
        yield heading(f"What the playbook looked at ({len(looks)})")
    for look in looks:
        text = value_text(look)
        head = (Part(look.call.step or "", "bold"), Part(f"  {look.call.tool}", "dim"))
        yield item(f"call:{look.call.id}", Part(clock(look.call.at, seen.at), "dim"), head, *_folded(text))


def _fact(one: Evidence, seen: IncidentSeen) -> Item:
    unknown = one.facts.get("known") is False
    count = readable(one.text).count("\n") + 1
    head = (
        Part(f"#{one.id} ", "dim"),
        Part(one.source, "bold warning" if unknown else "bold"),
        Part(f"  {count:,} line{'s' * (count != 1)}", "dim"),
    )
    return item(f"evidence:{one.id}", Part(clock(one.at, seen.at), "dim"), head, *_folded(readable(one.text)))


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
    shown = [Part(f"{line[:239]}…" if len(line) > 240 else line, "dim") for line in lines[:SHOWN_LINES]]
    left = len(lines) - len(shown)
    return [*shown, Part(f"… {left:,} more line{'s' * (left != 1)}: Enter", "accent")] if left else shown


def value_text(one: SeenCall) -> str:
    """Return what a call returned, as text for people."""
    outcome = one.outcome
    if outcome is None:
        return f"{one.call.status}: nothing is known of its outcome"
    if not outcome.ok:
        return f"failed: {outcome.error}"
    if isinstance(outcome.value, str):
        return outcome.value
    return json.dumps(outcome.value, indent=2, ensure_ascii=False, default=str)
