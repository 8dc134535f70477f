"""How good the embedded model is on wordings that its training never saw, how long it takes, and what memory it needs.

    python -m bench.encoder [--wrong] [--suites] [--prototype [FOLDER]]

The cases lie in tests/cases/encoder: excerpts of 3 to 11 lines of which one is the root, and sentences of operators. They are
written by training/encoder/build.py from what it held out. Time is that of 200 lines of logs (tests/cases/blind*), each wording
once, on one thread; memory is what the process grows by. Retrieval asks whether the nearest labelled line of another case, in
other words, has the same reason.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from assistant.llm.embedded import EmbeddedEmbedder, HashingEmbedder
from assistant.llm.encoder import FOLDER, EncoderRanker, Intents, LlamaEncoder, open_heads, open_words
from assistant.ports import Embedder, Ranker
from bench.diagnosis import ROOT

CASES = ROOT / "tests" / "cases" / "encoder"
SURE = 0.9
CLEAR = 0.6
TIMED_LINES = 200
SAME = 0.97
"""Nearness above which two lines are the same wording, which any embedder finds."""


class Excerpt(NamedTuple):
    """Lines of which one is the root."""

    lines: list[str]
    root: int
    """Its place, from 0."""
    reason: str


class LineFigures(NamedTuple):
    """Shares, 0..1."""

    root: float
    """Of excerpts whose root line came first."""
    reason: float
    """Of excerpts whose reason was right, read off the line that came first."""
    named: float
    """Of root lines whose reason was right."""
    sure: float
    """Of excerpts with a share of at least SURE for the reason."""
    sure_right: float
    """Of those, the ones whose reason was right."""

    def __str__(self) -> str:
        """Tell them."""
        return f"root {self.root}, reason {self.reason}, of the root line {self.named}; {sureness(self.sure, self.sure_right)}"


class CalibratedFigures(NamedTuple):
    """Of the blind suites with each case's wordings hidden from the rules, answered by a ranker alone; shares, 0..1."""

    cases: int
    right: float
    sure: float
    """Of cases with at least SURE by a curve that was fitted without them."""
    sure_right: float

    def __str__(self) -> str:
        """Tell them."""
        return f"{self.cases} cases: reason {self.right}; {sureness(self.sure, self.sure_right)}"


def sureness(share: float, right: float) -> str:
    """Return how often something was sure, and then right."""
    return f"{right:.1%} right at p >= {SURE}, {share:.1%} coverage"


class ChoiceFigures(NamedTuple):
    """Shares, 0..1."""

    right: float
    clear: float
    """Of sentences whose first choice has a share of at least CLEAR."""
    clear_right: float


def excerpts(folder: Path = CASES) -> list[Excerpt]:
    """Return the excerpts."""
    return [Excerpt(**json.loads(line)) for line in (folder / "excerpts.jsonl").read_text(encoding="utf-8").splitlines()]


def sentences(head: str, folder: Path = CASES) -> list[tuple[str, str]]:
    """Return the sentences of a head, each with what it asks for."""
    rows = [json.loads(line) for line in (folder / "sentences.jsonl").read_text(encoding="utf-8").splitlines()]
    return [(row["says"], row["wants"]) for row in rows if row["head"] == head]


def judged(cases: Sequence[Excerpt], ranker: Ranker, *, wrong: bool = False) -> LineFigures:
    """Return how good a ranker is on excerpts.

    Args:
        cases: The excerpts.
        ranker: Of single lines.
        wrong: Whether to print what it gets wrong.
    """
    texts = list(dict.fromkeys(line for case in cases for line in case.lines))
    scores = dict(zip(texts, ranker.rank(texts), strict=True))
    first, right, named, sure = [], [], [], []
    for case in cases:
        worths = [scores[line].root * sum(scores[line].reasons.values()) for line in case.lines]
        best = max(range(len(worths)), key=worths.__getitem__)
        reason, share = next(iter(scores[case.lines[best]].reasons.items()))
        first.append(best == case.root)
        right.append(reason == case.reason)
        named.append(next(iter(scores[case.lines[case.root]].reasons)) == case.reason)
        sure.append(share >= SURE)
        if wrong and not right[-1]:
            print(f"  {case.reason}: {case.lines[case.root][:90]!r} -> {reason} {share:.2f} by {case.lines[best][:90]!r}")
    certain = [good for good, clear in zip(right, sure, strict=True) if clear]
    return LineFigures(*map(_share, (first, right, named, sure, certain)))


def chosen(pairs: Sequence[tuple[str, str]], intents: Intents, *, wrong: bool = False) -> ChoiceFigures:
    """Return how good a head is on sentences; `wrong` prints what it gets wrong."""
    right, clear = [], []
    for says, wants in pairs:
        best = intents.choose(says)[0]
        right.append(best.name == wants)
        clear.append(best.share >= CLEAR)
        if wrong and not right[-1]:
            print(f"  {wants}: {says!r} -> {best.name} {best.share:.2f}")
    return ChoiceFigures(_share(right), _share(clear), _share([good for good, sure in zip(right, clear, strict=True) if sure]))


def _share(marks: Sequence[bool]) -> float:
    return round(sum(marks) / max(len(marks), 1), 3)


def real_lines(count: int = TIMED_LINES) -> list[str]:
    """Return so many lines of the blind suites, each wording once."""
    from assistant.llm import features

    found: dict[str, str] = {}
    for path in sorted((ROOT / "tests" / "cases").glob("blind*/*/job.log")):
        for line in path.read_text(encoding="utf-8", errors="replace").splitlines()[-20:]:
            found.setdefault(features.prepared_line(line), line)
            if len(found) > count:
                break
    found.pop("", None)
    return list(found.values())[:count]


class Retrieval(NamedTuple):
    """Shares, 0..1, of labelled root lines."""

    lines: int
    nearest: float
    """Whose nearest other one has the same reason."""
    surer_half: float
    """The same, of the half that is nearest to its neighbour."""


def retrieval(embedder: Embedder) -> Retrieval:
    """Return how good an embedder is for the memory of incidents."""
    import numpy as np

    from assistant.diagnose.case import read_labels
    from assistant.diagnose.learning.ranked import labelled_texts
    from assistant.diagnose.readers.candidate_lines import message_of

    labels = [label for folder in sorted((ROOT / "tests" / "cases").glob("blind*")) for label in read_labels(folder)]
    told = {message_of(text): label.reason for label in labels for text in [*labelled_texts(label)][:1]}
    vectors = np.array(embedder.embed(list(told)), np.float32)
    reasons = np.array(list(told.values()))
    near = vectors @ vectors.T
    near[near > SAME] = -1.0
    best = near.argmax(axis=1)
    right, order = reasons[best] == reasons, np.argsort(-near.max(axis=1))
    return Retrieval(len(told), round(float(right.mean()), 3), round(float(right[order[: len(order) // 2]].mean()), 3))


def print_suites(rankers: Mapping[str, Ranker]) -> None:
    """Print what rankers make of the blind suites where no signature speaks for a reason."""
    from assistant.diagnose.case import read_labels
    from assistant.diagnose.knowledge import Knowledge
    from assistant.diagnose.learning.ranked import guess
    from bench.ranker import STRUCTURAL, Judged, bare, facts_of

    knowledge = bare(Knowledge.load())
    every: dict[str, list[Judged]] = {name: [] for name in rankers}
    for folder in sorted((ROOT / "tests" / "cases").glob("blind*")):
        labels = [label for label in read_labels(folder) if label.reason not in STRUCTURAL]
        facts = [facts_of(label, knowledge) for label in labels]
        for name, ranker in rankers.items():
            every[name] += [Judged(one, guess(seen, ranker, knowledge.reasons)) for one, seen in zip(labels, facts, strict=True)]
    for name, judged_ones in every.items():
        order = sorted(judged_ones, key=lambda one: -(one.made.score if one.made else 0.0))
        shares = [_share([one.right for one in order]), _share([one.line for one in order if one.label.lines])]
        print(f"blind suites without signatures, {name:8} {len(order)} cases: reason {shares[0]}, line {shares[1]}, ", end="")
        print(f"surer half {_share([one.right for one in order[: len(order) // 2]])}")


def calibrated(ranker: Ranker) -> CalibratedFigures:
    """Return how often a ranker is sure on the blind suites, and how often right then, by the confidence that a person is told."""
    from assistant.diagnose.case import read_labels
    from assistant.diagnose.knowledge import Knowledge
    from assistant.diagnose.learning.ranked import guesses, held_out

    labels = [label for folder in sorted((ROOT / "tests" / "cases").glob("blind*")) for label in read_labels(folder)]
    told = held_out([(one.raw, one.right) for one in guesses(labels, Knowledge.load(), ranker)])
    sure = [right for confidence, right in told if confidence >= SURE]
    return CalibratedFigures(len(told), _share([right for _, right in told]), round(len(sure) / len(told), 3), _share(sure))


def _beside_prototype(generator: Path, folder: Path, *, wrong: bool) -> int:
    from bench import prototype

    encoder, words = LlamaEncoder(folder), open_words(folder)
    heads = open_heads(encoder, folder=folder)
    rankers: dict[str, Ranker] = {
        "words": words,
        "encoder": EncoderRanker(encoder, heads),
        "both": EncoderRanker(encoder, heads, words),
    }
    return prototype.report(prototype.FOLDER if generator == Path() else generator, rankers, wrong=wrong)


def memory_mb() -> float:
    """Return the resident memory of this process."""
    text = Path("/proc/self/status").read_text(encoding="ascii")
    return int(text.partition("VmRSS:")[2].split()[0]) / 1024


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures."""
    parser = argparse.ArgumentParser(prog="python -m bench.encoder", description="Figures of the embedded model.")
    parser.add_argument("--wrong", action="store_true", help="print what it gets wrong")
    parser.add_argument("--suites", action="store_true", help="the blind suites without signatures, too; takes minutes")
    parser.add_argument("--folder", type=Path, default=FOLDER, help="where the model lies")
    parser.add_argument("--prototype", type=Path, nargs="?", const=Path(), help="only the excerpts of the prototype there")
    options = parser.parse_args(arguments)
    if options.prototype is not None:
        return _beside_prototype(options.prototype, options.folder, wrong=options.wrong)
    import numpy as np

    lines, before = real_lines(), memory_mb()
    np.zeros(1)
    began = time.perf_counter()
    encoder = LlamaEncoder(options.folder)
    encoder.check()
    loaded, used, busy = time.perf_counter() - began, memory_mb(), time.process_time()
    encoder.embed(lines)
    wall, busy = time.perf_counter() - began - loaded, time.process_time() - busy
    print(f"load {loaded:.2f} s, {len(lines)} lines {wall:.2f} s ({busy:.2f} s of one core)")
    print(f"memory {before:.0f} -> {used:.0f} MB loaded -> {memory_mb():.0f} MB used")
    heads = open_heads(encoder, folder=options.folder)
    print(f"encoder alone   {judged(excerpts(), EncoderRanker(encoder, heads))}")
    words = open_words(options.folder)
    print(f"words alone     {judged(excerpts(), words)}")
    print(f"both            {judged(excerpts(), EncoderRanker(encoder, heads, words), wrong=options.wrong)}")
    for head in ("intent", "question"):
        print(f"{head:15} {chosen(sentences(head), Intents(encoder, heads, head), wrong=options.wrong)}")
    if options.suites:
        rankers: dict[str, Ranker] = {
            "words": words,
            "encoder": EncoderRanker(encoder, heads),
            "both": EncoderRanker(encoder, heads, words),
        }
        print_suites(rankers)
        for name, ranker in rankers.items():
            print(f"blind suites, wordings hidden, calibrated, {name:8} {calibrated(ranker)}")
    for embedder in (encoder, EmbeddedEmbedder(options.folder), HashingEmbedder()):
        print(f"retrieval {embedder.name:32} {retrieval(embedder)}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
