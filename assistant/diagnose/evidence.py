"""The part of a case that a memory keeps: the lines that showed the reason, and what stood around them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from assistant.diagnose.facts import Facts
from assistant.records import Citation

AROUND = 8
"""Lines kept before and after each cited one."""
MOST_CHARACTERS = 20_000
WIDTH = 1000
"""Characters kept of one line."""


def evidence_text(facts: Facts | None, cited: Sequence[Citation]) -> str:
    """Return the cited lines with their surroundings, one section for each file that a line of it is cited of.

    Args:
        facts: Of the case; where they are missing only the cited lines are left.
        cited: In order of weight.
    """
    wanted: dict[str, dict[int, str]] = {}
    for citation in cited:
        wanted.setdefault(citation.file, {})[citation.line] = citation.text
    parts: list[str] = []
    for file, lines in wanted.items():
        every = _lines(facts, file) if facts is not None else {}
        around = {n: every[n] for line in lines for n in range(line - AROUND, line + AROUND + 1) if n in every}
        kept = {**around, **lines}
        parts += [f"# {file}", *(_inside(kept[number]) for number in sorted(kept))]
    return "\n".join(parts)[:MOST_CHARACTERS]


def _inside(line: str) -> str:
    """Return a line as it may stand in a section: none may pass for the head of another one."""
    return f" {line[:WIDTH]}" if line.startswith("# ") else line[:WIDTH]


def _lines(facts: Facts, file: str) -> Mapping[int, str]:
    if file == "job.log":
        return {number: line.text for number, line in facts.by_number.items()}
    if file == "dmesg.log":
        return {line.number: line.text for line in facts.kernel}
    if file == "slurmctld.log":
        return {line.number: line.text for line in facts.scheduler}
    return {}
