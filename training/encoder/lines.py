"""What the heads for lines are trained on: the knowledge base, further wordings, and variants of both; and what is held out."""

from __future__ import annotations

import random
import re
import tomllib
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from assistant.diagnose.case import read_labels
from assistant.diagnose.learning.ranked import alike, labelled_texts
from assistant.llm.features import places
from assistant.llm.ranker import NONE, TrainingExample, filled, lessons

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
WORDINGS = HERE / "wordings.toml"
HELD_OUT = HERE / "held_out.toml"
LIKE = 0.6
"""Share of the features of two lines that both have, from which on they are one wording."""
_ROOT_OF = {"root": 1.0, "symptom": 0.6, "cascade": 0.2, "quiet": 0.0}
"""How likely a line of each kind is what an expert cites."""
HELD_EACH = 5
HELD_NONE = 80
_SYNONYMS = (
    ("failed", "did not succeed", "was unsuccessful"),
    ("cannot", "can not", "could not", "is unable to"),
    ("unable to", "could not", "failed to"),
    ("lost", "gone", "no longer there"),
    ("timed out", "ran into the time limit", "timeout"),
    ("terminated", "ended", "stopped"),
    ("killed", "terminated", "shot down"),
    ("missing", "absent", "not there"),
    ("not found", "missing", "does not exist"),
    ("unexpected", "unforeseen", "surprising"),
    ("exceeded", "above", "over"),
    ("detected", "found", "seen"),
    ("invalid", "not valid", "illegal", "bad"),
    ("connection", "link", "session"),
    ("node", "host", "machine", "server"),
    ("gpu", "device", "accelerator"),
    ("error", "fault", "problem", "failure"),
    ("fatal", "critical", "severe"),
    ("request", "call", "operation"),
    ("process", "task", "worker"),
    ("reset", "restarted"),
    ("corrupt", "damaged", "broken"),
    ("rank", "worker", "process"),
)
_ROOTS = {synonym: group for group in reversed(_SYNONYMS) for synonym in group[:1]}
_SYNONYM = re.compile(rf"\b(?:{'|'.join(map(re.escape, _ROOTS))})\b", re.IGNORECASE)


class Pool(NamedTuple):
    """Wordings by reason; the raw text still has its slots."""

    by_reason: Mapping[str, Sequence[TrainingExample]]

    @property
    def size(self) -> int:
        """How many there are."""
        return sum(map(len, self.by_reason.values()))


def all_lines() -> list[TrainingExample]:
    """Return every line there is to learn from: of the knowledge base, and the further wordings."""
    return [*lessons(), *_further()]


def _further() -> Iterator[TrainingExample]:
    chance = random.Random(1)
    for reason, kinds in tomllib.loads(WORDINGS.read_text(encoding="utf-8")).items():
        for kind, root in _ROOT_OF.items():
            for place, line in enumerate(text for text in kinds.get(kind, "").split("\n") if text.strip()):
                name = reason if root else NONE
                yield TrainingExample(filled(line, chance), name, root, f"{reason}/further/{kind}/{place}")


def is_further(line: TrainingExample) -> bool:
    """Return whether a line is one of the further wordings."""
    return "/further/" in line.group


def without_labelled(lines: Iterable[TrainingExample]) -> list[TrainingExample]:
    """Return the lines that are like no labelled line of the blind suites, so that these suites stay unseen."""
    folders = [*sorted((ROOT / "tests" / "cases").glob("blind*")), ROOT / "tests" / "cases" / "diagnose"]
    labels = [label for folder in folders for label in read_labels(folder)]
    return without(lines, [text for label in labels for text in labelled_texts(label)])


def without(lines: Iterable[TrainingExample], texts: Iterable[str]) -> list[TrainingExample]:
    """Return the lines that are like none of some texts."""
    marks = [found for text in set(texts) if (found := set(places(text)))]
    return [line for line in lines if not like_any(set(places(line.text)), marks)]


def like_any(own: set[int], marks: Sequence[set[int]]) -> bool:
    """Return whether the features of a line are those of one of many, nearly."""
    return any(LIKE * len(own) <= len(mark) <= len(own) / LIKE and alike(own, mark, LIKE) for mark in marks if own)


def held_out() -> dict[str, list[str]]:
    """Return the wordings that no training sees, by reason; `none` are lines that speak for no reason."""
    found: dict[str, list[str]] = tomllib.loads(HELD_OUT.read_text(encoding="utf-8"))
    return found


def choose_held_out(lines: Iterable[TrainingExample], seed: int = 0) -> dict[str, list[str]]:
    """Choose wordings to hold out; done once, what was chosen is kept in a file."""
    chance = random.Random(seed)
    found: dict[str, list[str]] = defaultdict(list)
    for line in lines:
        if (line.root == 1.0 or line.reason in (NONE, "hang", "slow_job")) and not line.group.startswith("class "):
            found[line.reason].append(line.text)
    return {reason: chance.sample(texts, HELD_NONE if reason == NONE else HELD_EACH) for reason, texts in sorted(found.items())}


def pool() -> Pool:
    """Return what may be trained on."""
    held = [text for texts in held_out().values() for text in texts]
    found: dict[str, list[TrainingExample]] = defaultdict(list)
    for line in without(without_labelled(all_lines()), held):
        found[line.reason].append(line)
    return Pool({reason: found[reason] for reason in sorted(found)})


_MARKS = (
    "ERROR",
    "error:",
    "[error]",
    "fatal:",
    "FATAL",
    "critical:",
    "WARNING",
    "warn:",
    "trainer:",
    "main:",
    "E",
    "!!",
    "caught:",
)
_CLASSES = ("RuntimeError:", "Exception:", "Error:", "raised RuntimeError:", "what():")
_ENDS = (
    ", aborting",
    ", giving up",
    "; exiting",
    ", job ends",
    ", stopping the run",
    " on rank {n}",
    " in worker {n}",
    ". Aborted",
    ", see above",
)
_NAMED = re.compile(r"\b\w+(?:Error|Exception)\b")


def dressed(text: str, chance: random.Random, *, speaks: bool) -> str:
    """Return a line now and then with what programs put around a message, so that it does not count.

    Args:
        text: The line.
        chance: Of what is put around it.
        speaks: Whether it speaks for a reason: such lines get the name of a class that says nothing, and an end, too.
    """
    if chance.random() < 0.08:
        text = f"{chance.choice(_MARKS)} {text}"
    elif speaks and chance.random() < 0.05 and not _NAMED.search(text):
        text = f"{chance.choice(_CLASSES)} {text}"
    return f"{text}{chance.choice(_ENDS)}" if speaks and chance.random() < 0.05 else text


def varied(text: str, chance: random.Random) -> str:
    """Return a line in other words here and there, and now and then without one of its words."""
    if chance.random() < 0.5:
        text = _SYNONYM.sub(lambda match: _other(match.group(), chance), text)
    words = text.split(" ")
    if chance.random() < 0.6 and len(words) > 3:
        words = [word for word in words if chance.random() >= 0.12] or words
    return " ".join(words)


def _other(word: str, chance: random.Random) -> str:
    return chance.choice(_ROOTS[word.lower()]) if chance.random() < 0.5 else word


def excerpts(count: int, seed: int = 0) -> list[tuple[list[str], int, str]]:
    """Return excerpts of 3 to 11 lines each: the lines, which one is the root (from 0), and the reason.

    Every root is a held-out wording. Half of the lines around it are held out as well, the others are such as training has seen;
    a cascade or a herring may come before the root.
    """
    chance, held = random.Random(seed), held_out()
    seen = [line.text for line in pool().by_reason[NONE]]
    quiet = [*held[NONE], *chance.sample(seen, len(held[NONE]))]
    reasons = sorted(set(held) - {NONE})
    found = []
    for number in range(count):
        reason = reasons[number % len(reasons)]
        root = held[reason][number // len(reasons) % len(held[reason])]
        before = chance.sample(quiet, chance.randint(1, 5))
        after = chance.sample(quiet, chance.randint(1, 5))
        found.append(([*before, root, *after], len(before), reason))
    return found
