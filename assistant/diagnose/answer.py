"""A diagnosis as one JSON object, for `nightshift diagnose --json`."""

from __future__ import annotations

from typing import Any

from assistant.diagnose.case import Case
from assistant.records import Citation, Diagnosis

SCHEMA = 1
"""Raised when a field changes its meaning; new fields do not raise it."""


def answer(path: str, case: Case, diagnosis: Diagnosis) -> dict[str, Any]:
    """Return the object that is printed for a path.

    Args:
        path: As the person gave it.
        case: What was read; its name stands in for an empty path.
        diagnosis: What came of it.
    """
    return {
        "schema": SCHEMA,
        "path": path or case.name,
        "reason": diagnosis.reason,
        "category": str(diagnosis.category),
        "action": str(diagnosis.action),
        "root_cause": [_line(citation) for citation in diagnosis.root_cause],
        "faulty_nodes": list(diagnosis.faulty_nodes),
        "confidence": diagnosis.confidence,
        "by": str(diagnosis.by),
        "step": diagnosis.step,
        "spike_step": diagnosis.spike_step,
        "nodes": [
            {"node": finding.node, "why": finding.why, "lines": [_line(citation) for citation in finding.citations]}
            for finding in diagnosis.nodes
        ],
        "where": [
            {
                "node": place.node,
                "rank": place.rank,
                "task": place.task,
                "gpu": place.gpu,
                "why": place.why,
                "lines": [_line(citation) for citation in place.citations],
            }
            for place in diagnosis.where
        ],
        "rivals": [
            {
                "reason": rival.reason,
                "confidence": rival.confidence,
                "for": rival.speaks_for,
                "against": rival.speaks_against,
                "test": rival.test,
            }
            for rival in diagnosis.rivals
        ],
        "summary": diagnosis.summary,
        "advice": diagnosis.advice,
    }


def _line(citation: Citation) -> dict[str, Any]:
    return {"file": citation.file, "line": citation.line, "text": citation.text[:2000], "rule": citation.rule}
