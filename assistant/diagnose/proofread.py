"""The last check of a diagnosis: every line that it cites stands in the case, word for word. What does not is taken out."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from assistant.diagnose.facts import Facts
from assistant.diagnose.recorded import OF_THE_JOB
from assistant.logs.reading import open_log
from assistant.records import Citation, Diagnosis


def checked(diagnosis: Diagnosis, facts: Facts) -> Diagnosis:
    """Return the diagnosis with the citations that hold; a node with no line left against it is not named."""
    source = _Source(facts)
    kept = [dataclasses.replace(node, citations=source.kept(node.citations)) for node in diagnosis.nodes]
    nodes = tuple(node for node in kept if node.citations)
    return dataclasses.replace(diagnosis, root_cause=source.kept(diagnosis.root_cause), nodes=nodes)


class _Source:
    """Looks cited lines up."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._hits: dict[int, str] | None = None
        self._metrics: list[str] | None = None

    def kept(self, citations: Sequence[Citation]) -> tuple[Citation, ...]:
        found = ((citation, self._text(citation)) for citation in citations)
        return tuple(
            citation if citation.text else dataclasses.replace(citation, text=text)
            for citation, text in found
            if text is not None and citation.text in ("", text)
        )

    def _text(self, citation: Citation) -> str | None:
        facts, number = self._facts, citation.line
        if citation.file == "job.log":
            line = facts.line(number)
            return line.text if line is not None else self._hit(number)
        if citation.file == "dmesg.log":
            at = number - facts.case.kernel_from
            return facts.kernel[at].text if 0 <= at < len(facts.kernel) else None
        if citation.file == "slurmctld.log":
            at = number - facts.case.scheduler_from
            return facts.scheduler[at].text if 0 <= at < len(facts.scheduler) else None
        if citation.file == OF_THE_JOB:
            return facts.case.job.reason if facts.case.job is not None and number == 1 else None
        if citation.file == "probes.log":
            lines = facts.case.probes.split("\n")
            return lines[number - 1] if 0 < number <= len(lines) else None
        return self._metric(number) if citation.file == facts.metric_file else None

    def _hit(self, number: int) -> str | None:
        """Return a line that matched something but was not kept whole."""
        if self._hits is None:
            self._hits = {hit.line: hit.text for hit in self._facts.hits}
        return self._hits.get(number)

    def _metric(self, number: int) -> str | None:
        if self._metrics is None:
            path = self._facts.case.metrics
            text = b""
            if path is not None:
                with open_log(path) as stream:
                    text = stream.read(64 << 20)
            self._metrics = [line.rstrip("\r") for line in text.decode("utf-8", "replace").split("\n")]
        return self._metrics[number - 1] if 0 < number <= len(self._metrics) else None
