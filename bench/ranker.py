"""How good the line ranker is alone: on every labelled suite, with all signatures taken away, and trained without their wordings.

    python -m bench.ranker [--wrong] [--trained-on-all]

A line that the ranker is trained on is left out where it is like a labelled line of the suites, so that what is measured are
wordings that it has never seen. The dev suites are measured where they lie beside the checkout.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from assistant.content.reasons import Reason
from assistant.diagnose.case import Case
from assistant.diagnose.facts import Facts, gather
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.labels import Label, read_labels
from assistant.diagnose.ranked import Guess, guess
from assistant.llm.features import places
from assistant.llm.lessons import lessons
from assistant.llm.ranker import LinearRanker, file_of, load_ranker
from assistant.llm.training import Example, train
from assistant.rules.matching import Patterns, load_patterns
from bench.blind import NEAR, SHOWN_LINES, suites
from bench.diagnosis import OWN_CASES, bench_folder

LIKE = 0.6
"""Share of the features of two lines that both have, from which on they are one wording."""
STRUCTURAL = frozenset({"hang", "no_failure", "slow_job", "unknown"})
"""Reasons that show in how a log ends, not in a line."""


@dataclass(frozen=True)
class Judged:
    """One case, and what the ranker said."""

    label: Label
    made: Guess | None

    @property
    def right(self) -> bool:
        """Whether the reason is."""
        return self.made is not None and self.made.reason in (self.label.reason, *self.label.also)

    @property
    def line(self) -> bool:
        """Whether one of the cited lines is near a labelled one."""
        wanted = [(file, int(number)) for file, _, number in (line.rpartition(":") for line in self.label.lines)]
        shown = self.made.lines[:SHOWN_LINES] if self.made is not None else ()
        return any(one.file == file and abs(one.line - number) <= NEAR for one in shown for file, number in wanted)


def labelled() -> dict[str, list[Label]]:
    """Return the labelled cases of every suite that is here."""
    folders = [*suites(), OWN_CASES, *sorted(path.parent for path in bench_folder().glob("dev/*/labels.jsonl"))]
    return {folder.name: read_labels(folder) for folder in folders if folder.is_dir()}


def bare(knowledge: Knowledge) -> Knowledge:
    """Return what is known without any signature that speaks for a reason."""
    kept: dict[str, Reason] = {
        name: reason if name == "unknown" else replace(reason, signature=()) for name, reason in knowledge.reasons.items()
    }
    whole = load_patterns()
    entries = [entry for number in range(len(whole)) if whole.is_entry(number) and _stays(entry := whole.entry(number))]
    return replace(knowledge, reasons=kept, patterns=Patterns(entries))


def _stays(entry: object) -> bool:
    from assistant.content.reasons import Signature

    return not isinstance(entry, Signature) or entry.id.startswith("unknown.")


def unseen(examples: Sequence[Example], labels: Iterable[Label]) -> list[Example]:
    """Return the examples that are like no labelled line; those that speak for no reason all stay."""
    marks = [set(found) for label in labels for text in texts_of(label) if (found := places(text))]
    return [example for example in examples if not example.root or not _like(set(places(example.text)), marks)]


def _like(own: set[int], marks: Sequence[set[int]]) -> bool:
    sized = (mark for mark in marks if LIKE <= len(own) / len(mark) <= 1 / LIKE) if own else iter(())
    return any(len(own & mark) >= LIKE * len(own | mark) for mark in sized)


def texts_of(label: Label) -> Iterator[str]:
    """Yield the labelled lines of a case."""
    for place in label.lines:
        file, _, number = place.rpartition(":")
        path = label.folder / file
        if path.is_file():
            lines = path.read_text(encoding="utf-8", errors="replace").split("\n")
            if 0 < int(number) <= len(lines) and len(lines[int(number) - 1].split()) > 1:
                yield lines[int(number) - 1]


def judge(labels: Sequence[Label], knowledge: Knowledge, ranker: LinearRanker) -> list[Judged]:
    """Ask the ranker alone about cases."""
    return [Judged(label, guess(facts_of(label, knowledge), ranker, knowledge.reasons)) for label in labels]


def facts_of(label: Label, knowledge: Knowledge) -> Facts:
    """Return the facts of a labelled case."""
    return gather(Case.from_path(label.folder), knowledge)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures of every suite."""
    parser = argparse.ArgumentParser(prog="python -m bench.ranker", description="Accuracy of the line ranker alone.")
    parser.add_argument("--wrong", action="store_true", help="print every wrong case")
    parser.add_argument("--trained-on-all", action="store_true", help="the shipped file, which has seen wordings like these")
    options = parser.parse_args(arguments)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    parts = labelled()
    ranker = load_ranker(file_of()) if options.trained_on_all else _untold(parts)
    knowledge = bare(Knowledge.load())
    for name, labels in parts.items():
        judged = [one for one in judge(labels, knowledge, ranker) if one.label.reason not in STRUCTURAL]
        print(_row(name, judged))
        for one in judged if options.wrong else ():
            if not one.right:
                said = f"{one.made.reason} {one.made.score:.2f} {one.made.lines[0].text[:110]!r}" if one.made else "nothing"
                print(f"  {one.label.folder.name}: want {one.label.reason}, got {said}")
    return 0


def _untold(parts: Mapping[str, Sequence[Label]]) -> LinearRanker:
    examples = lessons()
    kept = unseen(examples, (label for labels in parts.values() for label in labels))
    print(f"trained on {len(kept)} of {len(examples)} lines: the others are like a labelled one")
    return LinearRanker(train(kept))


def _row(name: str, judged: Sequence[Judged]) -> str:
    lined = [one for one in judged if one.label.lines]
    sure = sorted(judged, key=lambda one: -(one.made.score if one.made else 0.0))[: len(judged) // 2]
    shares = (
        f"reason {sum(one.right for one in judged) / max(len(judged), 1):.3f}  "
        f"line {sum(one.line for one in lined) / max(len(lined), 1):.3f}  "
        f"surer half {sum(one.right for one in sure) / max(len(sure), 1):.3f}"
    )
    return f"{name:16} cases {len(judged):4}  {shares}"


if __name__ == "__main__":
    sys.exit(main())
