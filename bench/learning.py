"""Whether learning shows: reasons lose their signatures, incidents arrive and are corrected, and the next ones are diagnosed.

    python -m bench.learning [--seed N] [--share 0.5] [--lessons 10]

Half of the reasons (chosen by the seed) lose signatures and exception classes. After 0, 1, 3 and 10 confirmed incidents of each,
the share of right reasons is printed without and with memory and learned signatures, on three sets that are never taught:

- same wordings: the first incident of each reason again, with other hosts, addresses, paths and numbers;
- other wordings: other cases of these reasons;
- reasons that lost nothing: they must not suffer.

Cases are those of tests/cases and, where they lie beside the checkout, the labelled suites.
"""

from __future__ import annotations

import argparse
import random
import re
import sys
import tempfile
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from assistant.content.reading import filters
from assistant.content.reasons import Reason, reasons
from assistant.diagnose.case import Case, Label, read_labels
from assistant.diagnose.facts import gather
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.learning.learn import KnownLine, Lesson, Teacher, known_lines
from assistant.diagnose.learning.opinions import MemoryOpinion
from assistant.diagnose.readers.candidate_lines import cited_lines
from assistant.diagnose.verdict import diagnose
from assistant.diagnose.weighing.rivals import Opinion
from assistant.errors import InputError
from assistant.llm.embedded import HashingEmbedder
from assistant.ports import JumpingClock
from assistant.records import Action, DecidedBy, Diagnosis, Event, EventKind
from assistant.rules.matching import Entry, Patterns, alarm_words
from assistant.store import Store
from bench.diagnosis import ROOT, bench_folder

STAGES = (0, 1, 3, 10)
VARIANTS = {"neither": (False, False), "memory": (True, False), "learning": (False, True), "both": (True, True)}
TOLD_BY_ENDINGS = frozenset({"unknown", "no_failure", "hang", "slow_job", "loss_spike", "time_limit", "preempted", "cancelled"})
"""Reasons that are told by how a job ends, not by a line: nothing to learn there."""
SETS = ("same wordings", "other wordings", "reasons that lost nothing")


@dataclass(frozen=True)
class Course:
    """What is taught and what is asked."""

    dropped: frozenset[str]
    lessons: Mapping[str, Sequence[Label]]
    """By reason, in the order of their arrival."""
    asked: Mapping[str, Sequence[Label]]
    """By set."""


def labelled() -> list[Label]:
    """Return every labelled case there is."""
    folders = [*sorted((ROOT / "tests" / "cases").glob("blind*")), ROOT / "tests" / "cases" / "diagnose"]
    folders += [bench_folder() / "dev"] if (bench_folder() / "dev").is_dir() else []
    return [label for folder in folders for label in read_labels(folder)]


def without(dropped: frozenset[str]) -> Knowledge:
    """Return the shipped knowledge without the signatures, herrings and exception classes of some reasons."""
    known: dict[str, Reason] = {
        name: replace(reason, signature=(), herring=(), exceptions=()) if name in dropped else reason
        for name, reason in reasons().items()
    }
    entries: list[Entry] = [entry for reason in known.values() for entry in reason.signature]
    entries += [entry for reason in known.values() for entry in reason.herring]
    patterns = Patterns([*entries, *filters()], alarm_words())
    return Knowledge(known, patterns, hidden=dropped)


def known_without(dropped: frozenset[str], base: Knowledge) -> list[KnownLine]:
    """Return the lines that are still known: none that only a lost signature could tell the meaning of."""
    full = Knowledge.load()
    lost = {line.text for line in known_lines(full.reasons, full.patterns) if line.reasons & dropped}
    return [line for line in known_lines(base.reasons, base.patterns) if line.text not in lost]


def course(cases: Sequence[Label], *, seed: int, share: float, lessons: int, folder: Path) -> Course:
    """Choose the reasons that lose what they know, their lessons and what is asked."""
    chance = random.Random(seed)
    by_reason: dict[str, list[Label]] = defaultdict(list)
    for label in cases:
        if label.lines:
            by_reason[label.reason].append(label)
    able = sorted(name for name, found in by_reason.items() if name not in TOLD_BY_ENDINGS and len(found) >= 4)
    dropped = frozenset(chance.sample(able, round(len(able) * share)))
    taught: dict[str, list[Label]] = {}
    asked: dict[str, list[Label]] = {name: [] for name in SETS}
    for reason in able:
        found = by_reason[reason]
        chance.shuffle(found)
        if reason not in dropped:
            asked[SETS[2]] += found[:4]
            continue
        held = max(2, len(found) - lessons)
        asked[SETS[1]] += found[:held][:8]
        own = found[held:]
        arriving = [own[n] if n < len(own) else varied(own[n % len(own)], chance, folder) for n in range(lessons)]
        taught[reason] = arriving
        asked[SETS[0]] += [varied(arriving[0], chance, folder) for _ in range(2)]
    return Course(dropped, taught, asked)


_VARYING = re.compile(
    r"0x[0-9a-f]{4,}|\b\d{1,3}(?:\.\d{1,3}){3}\b|(?<![\d.:/-])\b\d{4,7}\b(?![.:/-]\d)|\b(?<=[a-z])-?\d{2,4}\b|/[a-z]\w*(?=/\w+/)"
)


def varied(label: Label, chance: random.Random, folder: Path) -> Label:
    """Return a case again with other hosts, addresses, paths and numbers, the same ones everywhere in it."""
    own = Path(tempfile.mkdtemp(dir=folder))
    known: dict[str, str] = {}

    def other(match: re.Match[str]) -> str:
        text = match.group()
        if text not in known:
            known[text] = re.sub(r"\d", lambda _: str(chance.randint(1, 9)), text)
            if text.startswith("/"):
                known[text] = "/" + "".join(chance.choice("bcdfglmnrst") for _ in text[1:])
        return known[text]

    for path in label.folder.iterdir():
        if path.suffix in (".log", ".jsonl") and path.is_file():
            text = path.read_text(encoding="utf-8", errors="replace")
            changed = text if path.suffix == ".jsonl" else _VARYING.sub(other, text)
            (own / path.name).write_text(changed, encoding="utf-8")
        elif path.is_file() and path.suffix == ".gz":
            (own / path.name).write_bytes(path.read_bytes())
    return replace(label, folder=own)


@dataclass(frozen=True)
class Teaching:
    """What new signatures are held against."""

    healthy: Sequence[str]
    known: Sequence[KnownLine]


class School:
    """One way to learn, with a store of its own."""

    def __init__(self, base: Knowledge, folder: Path, *, remembers: bool, learns: bool, taught: Teaching) -> None:
        self._base = base
        self._clock = JumpingClock(datetime(2026, 1, 1, tzinfo=UTC))
        self.store = Store(folder / f"{remembers}-{learns}.db", self._clock)
        embedder = HashingEmbedder()
        self._teacher = Teacher(
            self.store,
            embedder,
            self.knowledge,
            healthy=taught.healthy,
            lines=taught.known,
            remembers=remembers,
            learns=learns,
        )
        self._opinions: list[Opinion] = [MemoryOpinion(self.store, embedder, lambda: base.reasons)] if remembers else []
        self.refused: list[str] = []
        self._version, self._current = "", base

    def knowledge(self) -> Knowledge:
        """Return what is known now."""
        if self.store.rules_version() != self._version:
            self._version = self.store.rules_version()
            self._current = self._base.with_learned(self.store.rules(counting=True))
        return self._current

    def asked(self, label: Label) -> Diagnosis:
        """Return what is said of a case now."""
        return diagnose(Case.from_path(label.folder), self.knowledge(), self._opinions)

    def right(self, label: Label) -> bool:
        """Tell whether a case gets the right reason now."""
        return self.asked(label).reason in (label.reason, *label.also)

    def take(self, label: Label, number: int) -> None:
        """Let an incident arrive: a wrong diagnosis is corrected with its lines, a right one confirmed by its recovery."""
        job = f"{label.reason}-{number}"
        incident, _ = self.store.open_incident(Event(EventKind.REQUESTED, job, None, self.store.clock.now()))
        self._clock.sleep(60)
        facts = gather(Case.from_path(label.folder), self.knowledge())
        said = self.asked(label)
        right, by = said.reason in (label.reason, *label.also), said.by
        try:
            lines = cited_lines(facts, label.lines[:3], "operator")
        except InputError:
            return
        reason = self._base.reasons[label.reason]
        maker = "" if right and by is DecidedBy.RULE else str(by) if right else "operator:bench"
        by_whom = "recovered" if right else "operator:bench"
        action = Action(label.action or reason.action)
        taught = self._teacher.teach(Lesson(incident.id, label.reason, action, lines, by_whom, facts, maker, said.reason))
        if taught.refused:
            self.refused.append(f"{label.folder.parent.name}/{label.folder.name} {label.reason}: {taught.refused}")


def measure(taught: Course, folder: Path, *, lessons: int) -> dict[tuple[str, str, int], tuple[int, int]]:
    """Return right answers and questions by variant, set and stage."""
    base = without(taught.dropped)
    held_against = Teaching(_healthy(labelled()), known_without(taught.dropped, base))
    figures: dict[tuple[str, str, int], tuple[int, int]] = {}
    for name, (remembers, learns) in VARIANTS.items():
        school = School(base, folder, remembers=remembers, learns=learns, taught=held_against)
        done = 0
        for stage in [stage for stage in STAGES if stage <= lessons]:
            if name != "neither":
                for number in range(done, stage):
                    for reason in sorted(taught.lessons):
                        school.take(taught.lessons[reason][number], number)
            done = stage
            for asked, labels in taught.asked.items():
                if stage and name == "neither":
                    figures[name, asked, stage] = figures[name, asked, 0]
                elif not stage and name != "neither":
                    figures[name, asked, 0] = figures["neither", asked, 0]
                else:
                    figures[name, asked, stage] = sum(school.right(label) for label in labels), len(labels)
        if learns:
            states: dict[str, int] = defaultdict(int)
            for rule in school.store.rules():
                states[str(rule.state)] += 1
            print(f"  {name}: rules {dict(states)}; {len(school.refused)} refusals", file=sys.stderr)
            for line in school.refused:
                print(f"    {line}", file=sys.stderr)
        school.store.close()
    return figures


def _healthy(cases: Sequence[Label]) -> list[str]:
    """Return the distinct lines of the labelled healthy cases."""
    lines: dict[str, None] = {}
    for label in cases:
        if label.reason == "no_failure" and (label.folder / "job.log").is_file():
            lines |= dict.fromkeys((label.folder / "job.log").read_text(encoding="utf-8", errors="replace").splitlines())
    return list(lines)


def table(figures: Mapping[tuple[str, str, int], tuple[int, int]], lessons: int) -> str:
    """Return the figures as a table in Markdown."""
    rows = ["| set | incidents of each | " + " | ".join(VARIANTS) + " |", "|---|---|" + "---|" * len(VARIANTS)]
    for asked in SETS:
        for stage in [stage for stage in STAGES if stage <= lessons]:
            cells = [figures[name, asked, stage] for name in VARIANTS]
            shown = " | ".join(f"{right / max(count, 1):.3f}" for right, count in cells)
            rows.append(f"| {asked} ({cells[0][1]}) | {stage} | {shown} |")
    return "\n".join(rows)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table."""
    parser = argparse.ArgumentParser(prog="python -m bench.learning", description="Accuracy with and without memory and learning.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--share", type=float, default=0.5, help="of the reasons that lose their signatures")
    parser.add_argument("--lessons", type=int, default=10, help="most incidents of each")
    options = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="nightshift-learning-") as name:
        chosen = course(labelled(), seed=options.seed, share=options.share, lessons=options.lessons, folder=Path(name))
        print(f"lost: {', '.join(sorted(chosen.dropped))}")
        print(table(measure(chosen, Path(name), lessons=options.lessons), options.lessons))
    return 0


if __name__ == "__main__":
    sys.exit(main())
