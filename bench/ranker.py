"""How good the line ranker is alone: on every labelled suite, with all signatures taken away, and trained without their wordings.

    python -m bench.ranker [--wrong] [--trained-on-all]
    python -m bench.ranker --beside

With `--beside` the rules come first and the ranker is asked where they are silent or doubtful, as in `nightshift diagnose`: once
with everything as it is shipped, once with the wordings of each case hidden from both, once without any signature.

A line that the ranker is trained on is left out where it is like a labelled line of the suites, so that what is measured are
wordings that it has never seen. The dev suites are measured where they lie beside the checkout.
"""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from assistant.content.reasons import Reason
from assistant.diagnose.case import Case, Label, read_labels
from assistant.diagnose.facts import Facts, gather
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.learning.ranked import Guess, KnowledgeWithoutCase, RankerOpinion, guess, unseen_lessons
from assistant.diagnose.verdict import diagnose
from assistant.llm.ranker import LinearRanker, file_of, lessons, load_ranker, train
from assistant.records import Action, Diagnosis
from assistant.rules.loading import load_patterns
from assistant.rules.matching import Patterns
from bench.blind import NEAR, SHOWN_LINES, suites
from bench.diagnosis import OWN_CASES, bench_folder

LIKE = 0.6
"""Share of the features of two lines that both have, from which on they are one wording."""
STRUCTURAL = frozenset({"hang", "no_failure", "slow_job", "unknown"})
"""Reasons that show in how a log ends, not in a line."""


RESTARTS = frozenset({"restart_same_nodes", "cordon_and_restart", "rollback_and_skip_data", "wait_and_retry"})


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
    parser.add_argument("--beside", action="store_true", help="with the rules, before and after the ranker is asked")
    parser.add_argument("--trained-on-all", action="store_true", help="the shipped file, which has seen wordings like these")
    options = parser.parse_args(arguments)
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    parts = labelled()
    ranker = load_ranker(file_of()) if options.trained_on_all else _untold(parts)
    if options.beside:
        _beside(parts, ranker, wrong=options.wrong)
        return 0
    knowledge = bare(Knowledge.load())
    for name, labels in parts.items():
        judged = [one for one in judge(labels, knowledge, ranker) if one.label.reason not in STRUCTURAL]
        print(_row(name, judged))
        for one in judged if options.wrong else ():
            if not one.right:
                said = f"{one.made.reason} {one.made.score:.2f} {one.made.lines[0].text[:110]!r}" if one.made else "nothing"
                print(f"  {one.label.folder.name}: want {one.label.reason}, got {said}")
    return 0


def _beside(parts: Mapping[str, Sequence[Label]], ranker: LinearRanker, *, wrong: bool) -> None:
    """Print what the ranker changes where it is asked after the rules."""
    knowledge = Knowledge.load()
    unseen, none = KnowledgeWithoutCase(knowledge), bare(knowledge)
    ways: dict[str, tuple[Callable[[Label], Knowledge], RankerOpinion]] = {
        "as shipped": (lambda _: knowledge, RankerOpinion()),
        "wordings hidden": (unseen.of, RankerOpinion(ranker=ranker)),
        "no signatures": (lambda _: none, RankerOpinion(ranker=ranker)),
    }
    for way, (known, opinion) in ways.items():
        for name, labels in parts.items():
            cases = [(label, Case.from_path(label.folder)) for label in labels]
            before = [(label, diagnose(case, known(label))) for label, case in cases]
            after = [(label, diagnose(case, known(label), (opinion,))) for label, case in cases]
            print(f"{way:16} {name:16} cases {len(labels):4}  rules {_counts(before)}  with ranker {_counts(after)}")
            for (label, old), (_, new) in zip(before, after, strict=True):
                if wrong and old.reason != new.reason:
                    said = f"{old.reason} {old.confidence:.2f} -> {new.reason} {new.confidence:.2f} {new.action}"
                    print(f"  {label.folder.name}: want {label.reason}, {said}")


def _counts(given: Sequence[tuple[Label, Diagnosis]]) -> str:
    right = sum(found.reason in (label.reason, *label.also) for label, found in given)
    first = sum(
        (found.rivals[0].reason if found.reason == "unknown" and found.rivals else found.reason) in (label.reason, *label.also)
        for label, found in given
    )
    harmful = sum(
        found.action is Action.CORDON_AND_RESTART and not set(found.faulty_nodes) <= set(label.nodes) for label, found in given
    )
    futile = sum(found.action in RESTARTS and label.action in ("fix_and_resubmit", "none") for label, found in given)
    return f"reason {right / len(given):.3f} (guess counted {first / len(given):.3f}) harmful {harmful} futile {futile}"


def _untold(parts: Mapping[str, Sequence[Label]]) -> LinearRanker:
    examples = lessons()
    kept = unseen_lessons(examples, (label for labels in parts.values() for label in labels), LIKE)
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
