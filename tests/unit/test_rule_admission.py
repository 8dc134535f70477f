"""What a learned filter must prove, and what the writer and the vote make."""

from __future__ import annotations

import re
import tomllib
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from assistant.logs.templates import mined
from assistant.ports import RuleWriter
from assistant.records import LearnedRule, RuleKind, RuleState
from assistant.rules.learned import Ground, ScriptedWriter, admitted, entry_of, flaws, ground_of, voted
from assistant.rules.loading import load_patterns
from assistant.rules.matching import name_of, pattern_of, protected_lines
from assistant.rules.patterns import RefusedPattern, shape_of

AT = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)
CASES = tomllib.loads((Path(__file__).parent.parent / "cases" / "rules" / "proposals.toml").read_text(encoding="utf-8"))
MEGATRON = "[2026-02-11 07:{:02}:57] stage {} of pipeline took {:.2f} ms on node{:03}, loss {:.3E}"
BOMBS = [
    r"(a+)+$",
    r"(a|a)*$",
    r"(a|ab)*c",
    r"(a*)*b",
    r"(\w+\s?)*$",
    ".*.*.*x",
    "a?" * 40 + "a" * 40,
    r"^\d+\d+\d+\d+$",
    r"(?:x+x+)+y",
]


def rule(pattern: str, *lines: str) -> LearnedRule:
    return LearnedRule("learned.x-1", RuleKind.FILTER, pattern, lines, "x", RuleState.PROPOSED, "templates", "seen often", AT)


@pytest.fixture(scope="module")
def ground() -> Ground:
    return ground_of(load_patterns())


@pytest.mark.parametrize("case", CASES["proposal"], ids=lambda case: str(case["name"]))
def test_a_proposal_is_admitted_only_with_its_proof(case: dict[str, str], ground: Ground) -> None:
    made = admitted(rule(case["pattern"], *case["lines"]), [], ground)
    assert made.state is (RuleState.PROPOSED if "refused" in case else RuleState.TRIAL), made.why
    assert case.get("refused", "seen often") in made.why


@pytest.mark.parametrize("pattern", BOMBS, ids=range(len(BOMBS)))
def test_a_bomb_is_refused_unrun(pattern: str) -> None:
    with pytest.raises(RefusedPattern):
        shape_of(pattern)


_ATOMS = st.sampled_from(["a", "b", "ab", "[ab]", ".", "\\w", "a?"])
_PATTERNS = st.recursive(
    _ATOMS,
    lambda inner: st.one_of(
        st.tuples(inner, st.sampled_from(["*", "+", "?", "{2,9}"])).map(lambda p: f"(?:{p[0]}){p[1]}"),
        st.lists(inner, min_size=2, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=2).map(lambda p: f"(?:{'|'.join(p)})"),
    ),
    max_leaves=6,
)


@settings(max_examples=300, deadline=4000)
@given(_PATTERNS)
@example("(?:a*b)*c")
@example("(?:a?ba?)*")
@example("(?:a?a?b)+")
def test_what_is_not_refused_ends_soon(pattern: str) -> None:
    try:
        shape_of(f"^{pattern}c(?:$)")
    except RefusedPattern:
        return
    for text in ("a" * 60, "ab" * 30, "b" * 60 + "!", "aab" * 20):
        re.match(f"^{pattern}c(?:$)", text)


def test_a_template_becomes_a_filter_that_covers_its_lines(ground: Ground) -> None:
    lines = [MEGATRON.format(n % 60, n, n * 1.7, n % 9, n / 3) for n in range(40)]
    (template,) = mined(lines)
    pattern = pattern_of(template.pieces(), template.examples)
    assert pattern is not None
    made = admitted(rule(pattern, *template.examples), lines, ground)
    assert made.state is RuleState.TRIAL, made.why
    assert name_of(template.pieces()) == "stage-pipeline-took"
    assert not re.match(pattern, MEGATRON.format(1, 2, 3, 4, float("nan")))


def test_what_people_must_see_is_not_hidden(ground: Ground) -> None:
    shown = replace(ground, shown=("flux tick 8",))
    assert [flaw.why for flaw in flaws(rule(r"^flux tick \d+(?:$)", "flux tick 9"), [], shown)] == [
        "it would hide a line at the end of the log at hand"
    ]


def test_examples_of_learned_signatures_are_protected() -> None:
    learned = replace(
        rule("flux tick 13", "flux tick 13"), kind=RuleKind.SIGNATURE, state=RuleState.TRIAL, id="network_error.learned-1"
    )
    ground = ground_of(load_patterns(), [learned])
    assert flaws(rule(r"^flux tick \d+(?:$)", "flux tick 9"), [], ground)[0].why == "it matches a line that tells of a failure"


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_an_admitted_filter_never_hides_a_protected_line(ground: Ground, data: st.DataObject) -> None:
    protected = protected_lines()
    base = data.draw(st.sampled_from([*protected, MEGATRON, *ground.routine]))
    cut = data.draw(st.integers(0, len(base)))
    tail = data.draw(st.sampled_from(["", " took {} s", " at step {}", ": {}"]))
    lines = [re.sub(r"\d+", str(n), base[:cut]) + tail.format(n) for n in (3, 41, 592)]
    for template in mined(lines):
        pattern = pattern_of(template.pieces(), template.examples)
        if pattern is None:
            continue
        made = admitted(rule(pattern, *template.examples), lines, ground)
        if made.state.counts:
            patterns = ground.patterns.with_more([entry_of(made)])
            assert [line for line in protected if patterns.hides(line)] == []


def test_the_majority_of_the_proposals_wins_by_what_it_covers() -> None:
    writer: RuleWriter = ScriptedWriter([r"^flux tick \d+$", "(a+)+", r"^flux tick [0-9]+$", ".*", r"^flux tick \d{1,9}(?:$)"])
    vote = voted(writer.propose, ["flux tick 9", "flux tick 10"], ["something else"])
    assert (vote.pattern, vote.votes, vote.asked) == (r"^flux tick \d+(?:$)", 3, 5)
    assert [pattern for pattern, _ in vote.refused] == ["(a+)+"]


def test_without_a_majority_nothing_is_chosen() -> None:
    vote = voted(
        ScriptedWriter([r"^flux \w+ \d+$", "^flux tick 9$", ".*", "[", "flux"]).propose, ["flux tick 9"], ["flux tock 3", "else"]
    )
    assert vote.pattern == ""


def test_a_proposal_that_misses_a_line_has_no_vote() -> None:
    vote = voted(ScriptedWriter(["^flux tick 9$"]).propose, ["flux tick 9", "flux tick 10"])
    assert (vote.pattern, len(vote.refused)) == ("", 5)
