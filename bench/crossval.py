"""How much of the accuracy rests on having seen a wording: every labelled case is diagnosed as if its own wording were new.

    python -m bench.crossval [--wrong]

For each case of the dev and blind suites three answers are compared:

- plain: all signatures.
- wording left out: without the signatures that match a labelled root-cause line of this case and no labelled line of any case with
  another wording. That is what the knowledge would hold if this wording had never been met.
- source left out: without the signatures that match only labelled lines of cases of the same source (dev labels name the thread or
  program that a wording comes from; blind cases count by framework of the wording, which is the case itself).
- all left out: without any signature that matches a labelled line, however general. What is left is the grammar: exception classes,
  errno, status codes, XIDs, how jobs end, metrics.

Shares are of cases whose root-cause line some signature matches; the others rest on grammar anyway and are counted apart.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import re
import sys
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assistant.content.reasons import Signature
from assistant.diagnose.answer import answer
from assistant.diagnose.case import Case
from assistant.diagnose.facts import Facts, gather
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.verdict import conclude
from bench.blind import NEAR, SHOWN_LINES, suites
from bench.diagnosis import dev_suites

WAYS = ("plain", "wording left out", "source left out", "all left out")
_VARIABLE = re.compile(r"0x[0-9a-f]+|[0-9a-f]{8,}|/[\w./-]+|\d+", re.IGNORECASE)


@dataclass(frozen=True)
class Labelled:
    """A labelled case with what its log says."""

    label: Mapping[str, Any]
    facts: Facts
    wording: frozenset[str]
    """Its labelled lines without numbers and paths."""
    matching: frozenset[str]
    """Signatures that match a labelled line."""


def labelled(knowledge: Knowledge) -> Iterator[Labelled]:
    """Yield every case of the dev and blind suites."""
    for suite in suites():
        for text in (suite / "labels.jsonl").read_text(encoding="utf-8").splitlines():
            label = json.loads(text)
            yield _labelled(label, suite / label["id"].rpartition("/")[2], knowledge)
    for dev in dev_suites():
        for label in dev.labels:
            yield _labelled(label, Path(label["folder"]), knowledge)


def _labelled(label: Mapping[str, Any], folder: Path, knowledge: Knowledge) -> Labelled:
    facts = gather(Case.from_path(folder), knowledge)
    places = {_place(line) for line in label["root_cause_lines"]}
    of_file = (("job.log", facts.hits), ("dmesg.log", facts.kernel_hits), ("slurmctld.log", facts.scheduler_hits))
    hits = [hit for file, found in of_file for hit in found if (file, hit.line) in places]
    wording = frozenset(_VARIABLE.sub("#", hit.text.lower()) for hit in hits)
    return Labelled(label, facts, wording, frozenset(hit.entry.id for hit in hits if isinstance(hit.entry, Signature)))


def _place(line: object) -> tuple[str, int]:
    file, _, number = str(line).rpartition(":")
    return file or "job.log", int(number)


def without(facts: Facts, dropped: frozenset[str]) -> Facts:
    """Return the facts as they would be if some signatures did not exist."""
    return dataclasses.replace(
        facts,
        hits=[hit for hit in facts.hits if hit.entry.id not in dropped],
        kernel_hits=[hit for hit in facts.kernel_hits if hit.entry.id not in dropped],
        scheduler_hits=[hit for hit in facts.scheduler_hits if hit.entry.id not in dropped],
    )


def dropped_of(cases: Sequence[Labelled]) -> dict[str, list[frozenset[str]]]:
    """Return for each way the signatures that every case is diagnosed without."""
    wordings: dict[str, set[frozenset[str]]] = defaultdict(set)
    sources: dict[str, set[str]] = defaultdict(set)
    for case in cases:
        for signature in case.matching:
            wordings[signature].add(case.wording)
            sources[signature].add(_source(case))
    return {
        "plain": [frozenset() for _ in cases],
        "wording left out": [frozenset(s for s in case.matching if wordings[s] == {case.wording}) for case in cases],
        "source left out": [frozenset(s for s in case.matching if sources[s] == {_source(case)}) for case in cases],
        "all left out": [case.matching for case in cases],
    }


def _source(case: Labelled) -> str:
    told = str(case.label.get("source", ""))
    return told if told and "restaged" not in told else str(case.label["id"])


def right(case: Labelled, given: Mapping[str, Any]) -> dict[str, bool]:
    """Tell what an answer gets right, and whether it would set aside a node that is not to blame."""
    label = case.label
    wanted = [_place(line) for line in label["root_cause_lines"]]
    shown = [(line["file"], line["line"]) for line in given["root_cause"][:SHOWN_LINES]]
    return {
        "reason": given["reason"] in {label["reason"], *label["also_acceptable"]},
        "action": given["action"] in {label["action"], *label.get("also_acceptable_actions", ())},
        "line": any(file == other and abs(line - number) <= NEAR for file, line in wanted for other, number in shown),
        "harmful": given["action"] == "cordon_and_restart" and bool(set(given["faulty_nodes"]) - set(label["faulty_nodes"])),
    }


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.crossval", description="Accuracy with each case's wording left out.")
    parser.add_argument("--wrong", action="store_true", help="print the cases that are wrong with their wording left out")
    options = parser.parse_args(arguments)
    knowledge = Knowledge.load()
    every = list(labelled(knowledge))
    cases = [case for case in every if case.matching]
    print(
        f"{len(every)} labelled cases; {len(cases)} with a signature on a labelled line, {len(every) - len(cases)} by grammar alone"
    )
    dropped = dropped_of(cases)
    for way in WAYS:
        results = []
        for case, gone in zip(cases, dropped[way], strict=True):
            given = answer("", case.facts.case, conclude(without(case.facts, gone), knowledge))
            results.append(right(case, given))
            if options.wrong and way == "wording left out" and not results[-1]["reason"]:
                print(
                    f"  {case.label['id']}: {given['reason']} instead of {case.label['reason']}, without {', '.join(sorted(gone))}"
                )
        shares = "  ".join(f"{key} {sum(got[key] for got in results) / len(cases):.3f}" for key in ("reason", "action", "line"))
        touched = sum(bool(gone) for gone in dropped[way])
        print(f"{way:18} changed cases {touched:4}  {shares}  harmful_cordon {sum(got['harmful'] for got in results)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
