"""What a confirmed line may become: each candidate of tests/cases/admission is admitted or refused as its file says."""

from __future__ import annotations

import tomllib
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from assistant.diagnose.case import read_labels
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.learning.learn import KnownLine, Lesson, Teacher, as_toml, evidence_text, known_lines, next_state, sections
from assistant.errors import InputError
from assistant.llm.embedded import HashingEmbedder
from assistant.ports import JumpingClock
from assistant.records import Action, Citation, Event, EventKind, LearnedRule, RuleKind, RuleState
from assistant.store import Store

AT = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)
FILE = Path(__file__).parents[1] / "cases" / "admission" / "candidates.toml"
CANDIDATES: list[dict[str, Any]] = tomllib.loads(FILE.read_text(encoding="utf-8"))["candidate"]


@pytest.fixture(scope="module")
def shipped() -> Knowledge:
    return Knowledge.load()


@pytest.fixture(scope="module")
def known(shipped: Knowledge) -> list[KnownLine]:
    return known_lines(shipped.reasons, shipped.patterns)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "s.db", JumpingClock(AT)) as store:
        yield store


class School:
    """A teacher, and incidents to teach with."""

    def __init__(self, store: Store, shipped: Knowledge, known: list[KnownLine], healthy: list[str] | None = None) -> None:
        self.store = store
        self.teacher = Teacher(
            store,
            HashingEmbedder(),
            lambda: shipped.with_learned(store.rules(counting=True)),
            lines=known,
            healthy=healthy or [],
        )

    def teach(
        self, line: str, reason: str, *, maker: str = "operator:ada", file: str = "job.log"
    ) -> tuple[LearnedRule | None, str]:
        """Confirm a new incident by one line."""
        name = f"job{len(self.store.incidents(limit=1000))}"
        incident, _ = self.store.open_incident(Event(EventKind.REQUESTED, name, None, AT))
        lesson = Lesson(incident.id, reason, Action.NONE, (Citation(file, 7, line, "named"),), maker or "recovered", maker=maker)
        done = self.teacher.teach(lesson)
        return done.learned, done.refused

    def states(self) -> list[RuleState]:
        """Return where the learned rules stand."""
        return [rule.state for rule in self.store.rules()]


@pytest.mark.parametrize("candidate", CANDIDATES, ids=[candidate["about"] for candidate in CANDIDATES])
def test_a_candidate_is_admitted_or_refused_as_its_file_says(
    candidate: dict[str, Any], store: Store, shipped: Knowledge, known: list[KnownLine]
) -> None:
    school = School(store, shipped, known, candidate.get("healthy"))
    for line in candidate.get("earlier", ()):
        school.teach(line, "value_error", maker="")
    learned, refused = school.teach(candidate["line"], candidate["reason"])
    assert (learned is not None) == candidate.get("admitted", False), refused
    assert candidate.get("refused", "") in refused
    if learned is not None:
        assert (learned.state, learned.of, learned.incident) == (RuleState.TRIAL, candidate["reason"], 1)
        assert learned.id == f"{candidate['reason']}.learned-1"


def test_two_agreeing_incidents_make_a_rule_active_and_too_many_others_retire_it(
    store: Store, shipped: Knowledge, known: list[KnownLine]
) -> None:
    school = School(store, shipped, known)
    line = "flux capacitor {} lost its uplink to the spine"
    seen = [school.teach(line.format(1), "network_error")[0] and school.states()]
    for number in (2, 3):
        school.teach(line.format(number), "network_error", maker="")
        seen.append(school.states())
    school.teach(line.format(4), "node_failure", maker="")
    seen.append(school.states())
    assert seen == [[RuleState.TRIAL], [RuleState.TRIAL], [RuleState.ACTIVE], [RuleState.RETIRED]]


@pytest.mark.parametrize(
    ("state", "hits", "misses", "becomes"),
    [
        (RuleState.TRIAL, 0, 0, RuleState.TRIAL),
        (RuleState.TRIAL, 1, 0, RuleState.TRIAL),
        (RuleState.TRIAL, 2, 0, RuleState.ACTIVE),
        (RuleState.TRIAL, 9, 1, RuleState.RETIRED),
        (RuleState.ACTIVE, 2, 1, RuleState.RETIRED),
        (RuleState.ACTIVE, 3, 1, RuleState.ACTIVE),
        (RuleState.ACTIVE, 9, 3, RuleState.ACTIVE),
        (RuleState.ACTIVE, 9, 4, RuleState.RETIRED),
        (RuleState.RETIRED, 9, 0, RuleState.RETIRED),
        (RuleState.PROPOSED, 9, 0, RuleState.PROPOSED),
    ],
)
def test_hits_and_misses_move_a_rule(state: RuleState, hits: int, misses: int, becomes: RuleState) -> None:
    rule = LearnedRule("a.learned-1", RuleKind.SIGNATURE, "x", ("x",), "a", state, "ada", "", AT, hits=hits, misses=misses)
    assert next_state(rule)[0] is becomes


def test_a_second_wording_widens_the_signature_and_the_narrow_one_on_trial_goes(
    store: Store, shipped: Knowledge, known: list[KnownLine]
) -> None:
    school = School(store, shipped, known)
    school.teach("flux capacitor 1 lost its uplink to spine alpha", "network_error")
    wide, _ = school.teach("flux capacitor 2 dropped its uplink to spine beta", "network_error", maker="memory")
    assert wide is not None
    assert len(wide.examples) == 2
    assert wide.weight < 0.8
    patterns = shipped.with_learned([wide]).patterns
    assert [e.id for e in patterns.match_line("[rank3]: flux capacitor 77 missed its uplink to spine omega")] == [wide.id]


def test_a_lesson_that_is_taken_twice_changes_nothing(store: Store, shipped: Knowledge, known: list[KnownLine]) -> None:
    school = School(store, shipped, known)
    incident, _ = store.open_incident(Event(EventKind.REQUESTED, "1", None, AT))
    cited = Citation("job.log", 1, "flux capacitor 1 lost its uplink to spine alpha", "named")
    lesson = Lesson(incident.id, "network_error", Action.NONE, (cited,), "operator:ada", maker="operator:ada")
    school.teacher.teach(lesson)
    rows = len(store.audit())
    assert school.teacher.teach(lesson).refused == "a signature was learned from this incident before"
    assert (len(store.audit()), len(store.rules()), len(store.memories())) == (rows, 1, 1)


def test_a_refused_candidate_is_kept_once_with_why_and_does_nothing(
    store: Store, shipped: Knowledge, known: list[KnownLine]
) -> None:
    school = School(store, shipped, known)
    for _ in range(2):
        school.teach("torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered", "value_error")
    [rule] = store.rules()
    assert rule.state is RuleState.PROPOSED
    assert rule.why.startswith("refused: it matches an example of")
    assert store.rules(counting=True) == []


def test_a_kernel_line_becomes_a_signature_of_kernel_logs_only(store: Store, shipped: Knowledge, known: list[KnownLine]) -> None:
    school = School(store, shipped, known)
    learned, refused = school.teach("[  12.5] warpcore: containment field of bay 3 collapsed", "node_failure", file="dmesg.log")
    assert learned is not None, refused
    assert (learned.source, learned.examples) == ("kernel", ("warpcore: containment field of bay 3 collapsed",))


def test_a_learned_signature_is_rendered_as_it_would_stand_in_a_file(
    store: Store, shipped: Knowledge, known: list[KnownLine]
) -> None:
    line = "acme: 'seal' of \"shard\" 17 \\ differs from its manifest"
    learned, refused = School(store, shipped, known).teach(line, "dataset_loading_error")
    assert learned is not None, refused
    [table] = tomllib.loads(as_toml(learned))["signature"]
    assert (table["id"], table["pattern"], table["examples"]) == (learned.id, learned.pattern, [line])
    assert (table["where"], table["weight"]) == (["job"], learned.weight)


def test_a_job_cannot_pass_its_lines_for_those_of_a_kernel() -> None:
    said = [Citation("job.log", 1, "# dmesg.log", ""), Citation("job.log", 2, "NVRM: Xid (PCI:0000:c1:00): 48", "")]
    assert sections(evidence_text(None, said)) == {"job.log": [" # dmesg.log", said[1].text]}


def test_labels_are_read_in_both_forms(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "label.toml").write_text('reason = "ecc_error"\nlines = ["dmesg.log:2", 40]\nnodes = ["n1"]\nwhy = "DIMM"\n')
    (tmp_path / "b" / "001").mkdir(parents=True)
    (tmp_path / "b" / "labels.jsonl").write_text('{"id": "dev-001", "reason": "hang", "root_cause_lines": [3]}\n\n')
    first, second = read_labels(tmp_path)
    assert (first.reason, first.lines, first.nodes, first.why) == ("ecc_error", ("dmesg.log:2", "job.log:40"), ("n1",), "DIMM")
    assert (second.folder, second.reason, second.lines) == (tmp_path / "b" / "001", "hang", ("job.log:3",))


@pytest.mark.parametrize(
    ("name", "text", "message"),
    [
        ("label.toml", "reason =", "is no label"),
        ("label.toml", "lines = [1]", "a label needs a reason"),
        ("labels.jsonl", "{", "labels.jsonl:1: is no label"),
        ("labels.jsonl", '{"id": "dev-777", "reason": "hang"}', "there is no folder"),
        ("notes.txt", "", "holds no label"),
    ],
)
def test_a_bad_label_names_its_file(tmp_path: Path, name: str, text: str, message: str) -> None:
    (tmp_path / name).write_text(text)
    with pytest.raises(InputError, match=message):
        read_labels(tmp_path)
