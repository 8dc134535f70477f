"""Write the lines that a diagnosis cites with what stands around them, as they are remembered and learned from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from assistant.diagnose.facts import Facts
from assistant.records import Citation
from assistant.redact import head_of, line_texts

LINES_AROUND = 8
"""Lines kept before and after each cited one."""
MOST_OF_EVIDENCE = 20_000
EVIDENCE_WIDTH = 1000
"""Characters kept of one line."""


def evidence_text(facts: Facts | None, cited: Sequence[Citation]) -> str:
    """Return the cited lines with their surroundings, one section for each file that a line of it is cited of.

    Args:
        facts: Of the case; where they are missing only the cited lines are left.
        cited: In order of weight.
    """
    cited_lines: dict[str, dict[int, str]] = {}
    for citation in cited:
        cited_lines.setdefault(citation.file, {})[citation.line] = citation.text
    parts: list[str] = []
    for file, lines in cited_lines.items():
        every = _lines(facts, file) if facts is not None else {}
        around = {n: every[n] for line in lines for n in range(line - LINES_AROUND, line + LINES_AROUND + 1) if n in every}
        excerpt = line_texts(sorted({**around, **lines}), {**every, **lines}.get)
        parts += [f"# {file}", *map(_inside, excerpt.values())]
    return head_of("\n".join(parts), MOST_OF_EVIDENCE)


def _inside(line: str) -> str:
    """Return a line as it may stand in a section: none may pass for the head of another one."""
    return f"{' ' if line.startswith('# ') else ''}{head_of(line, EVIDENCE_WIDTH)}"


def _lines(facts: Facts, file: str) -> Mapping[int, str]:
    if file == "job.log":
        return {number: line.text for number, line in facts.by_number.items()}
    if file == "dmesg.log":
        return {line.number: line.text for line in facts.kernel}
    if file == "slurmctld.log":
        return {line.number: line.text for line in facts.scheduler}
    return {}
