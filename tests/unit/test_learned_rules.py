"""Learned rules: kept, counted, retired, and compiled beside what was shipped."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from assistant.content.reading import Filter
from assistant.content.reasons import Signature, SignatureSource
from assistant.diagnose.case import Case
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.verdict import diagnose
from assistant.errors import StoreError
from assistant.ports import JumpingClock
from assistant.records import Event, EventKind, LearnedRule, RuleKind, RuleState
from assistant.rules.learned import entries_of
from assistant.store import Store

AT = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)
SIGNATURE = LearnedRule(
    "network_error.learned-1",
    RuleKind.SIGNATURE,
    r"flux capacitor \d+ lost its uplink",
    ("flux capacitor 7 lost its uplink",),
    "network_error",
    RuleState.TRIAL,
    "operator:alice",
    "confirmed in incident 1",
    AT,
)
FILTER = LearnedRule(
    "learned.tick-1",
    RuleKind.FILTER,
    r"^flux tick \d+$",
    ("flux tick 9",),
    "flux ticks",
    RuleState.ACTIVE,
    "templates",
    "500 lines of a good run",
    AT,
    task="alice/llm",
)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "s.db", JumpingClock(AT)) as store:
        yield store


@pytest.fixture(scope="module")
def shipped() -> Knowledge:
    return Knowledge.load()


def test_a_rule_comes_back_as_it_was_written_and_its_life_is_audited(store: Store) -> None:
    assert store.add_rule(SIGNATURE) == SIGNATURE == store.rule(SIGNATURE.id)
    moved = store.move_rule(SIGNATURE.id, RuleState.RETIRED, by="cli:bob", why="it fired in a healthy log")
    assert (moved.state, moved.why) == (RuleState.RETIRED, "it fired in a healthy log")
    assert [row.what for row in store.audit() if row.rule == SIGNATURE.id] == ["rule.trial", "rule.retired"]
    assert store.verify() is None
    with pytest.raises(StoreError, match="an id is used once"):
        store.add_rule(SIGNATURE)
    with pytest.raises(StoreError, match="there is no learned rule 'nope'"):
        store.rule("nope")


def test_each_incident_counts_once_for_a_rule_and_its_latest_word_holds(store: Store) -> None:
    store.add_rule(SIGNATURE)
    first, second = (store.open_incident(Event(EventKind.JOB_ENDED, job, None, AT, {}))[0].id for job in ("1", "2"))
    store.use_rule(SIGNATURE.id, first, agreed=True)
    store.use_rule(SIGNATURE.id, first, agreed=True)
    assert (store.rule(SIGNATURE.id).hits, store.rule(SIGNATURE.id).misses) == (1, 0)
    store.use_rule(SIGNATURE.id, first, agreed=False)
    store.use_rule(SIGNATURE.id, second, agreed=False)
    assert (store.rule(SIGNATURE.id).hits, store.rule(SIGNATURE.id).misses) == (0, 2)


def test_only_rules_on_trial_or_active_count_and_their_version_tells_of_every_change(store: Store) -> None:
    versions = [store.rules_version()]
    for rule in (SIGNATURE, FILTER):
        store.add_rule(rule)
        versions.append(store.rules_version())
    assert store.rules(counting=True) == [SIGNATURE, FILTER] or store.rules(counting=True) == [FILTER, SIGNATURE]
    store.move_rule(SIGNATURE.id, RuleState.RETIRED, by="cli:bob", why="wrong")
    versions.append(store.rules_version())
    assert store.rules(counting=True) == [FILTER]
    assert store.rules(kind=RuleKind.SIGNATURE, counting=True) == []
    assert store.rules(counting=True, task="bob/other") == []
    assert len(set(versions)) == len(versions)


def test_learned_rules_become_a_signature_for_its_kind_of_file_and_a_filter_of_its_task() -> None:
    signature, of_filter = entries_of([replace(SIGNATURE, source="kernel"), FILTER])[::-1]
    assert isinstance(signature, Signature)
    assert signature.where == (SignatureSource.KERNEL,)
    assert isinstance(of_filter, Filter)
    assert entries_of([SIGNATURE, FILTER], task="bob/other") == entries_of([SIGNATURE])
    assert entries_of([replace(SIGNATURE, state=RuleState.PROPOSED)]) == ()


def test_learned_patterns_work_beside_the_shipped_ones_with_numbers_of_their_own(shipped: Knowledge) -> None:
    patterns = shipped.with_learned([SIGNATURE, FILTER]).patterns
    assert [entry.id for entry in patterns.match_line("flux capacitor 12 lost its uplink")] == [SIGNATURE.id]
    assert [entry.id for entry in patterns.match_line("[rank3]: flux tick 4")] == [FILTER.id]
    assert patterns.hides("flux tick 4")
    assert not patterns.hides("flux tick 4: Traceback (most recent call last):")
    xid = "NVRM: Xid (PCI:0000:c1:00): 48, pid=3312, name=python, DBE (double bit error) on channel 00000010"
    assert patterns.match_line(xid) == shipped.patterns.match_line(xid) != []
    assert len(patterns) == len(shipped.patterns) + 2
    assert shipped.with_learned([]).patterns is shipped.patterns
    again = patterns.with_more(entries_of([replace(SIGNATURE, id="network_error.learned-2", pattern="uplink gone")]))
    assert [entry.id for entry in again.match_line("uplink gone")] == ["network_error.learned-2"]
    assert [entry.id for entry in again.match_line("flux tick 4")] == [FILTER.id]


def test_a_learned_signature_makes_an_unknown_failure_known(tmp_path: Path, shipped: Knowledge) -> None:
    steps = "".join(f"iteration {n}/ 1000 | lm loss: {3 - n / 100:.3f} |\n" for n in range(1, 40))
    log = tmp_path / "job.log"
    log.write_text(steps + "flux capacitor 3 lost its uplink\nsrun: error: node7: task 4: Exited with exit code 9\n")
    before = diagnose(Case.from_path(tmp_path), shipped)
    after = diagnose(Case.from_path(tmp_path), shipped.with_learned([SIGNATURE]))
    assert before.reason != "network_error"
    assert (after.reason, after.root_cause[0].rule) == ("network_error", SIGNATURE.id)
