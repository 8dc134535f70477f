"""Filters learned from logs, and their export."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from assistant.content.reading import filters
from assistant.content.reasons import reasons
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.learning.routine import Routine, routine_of
from assistant.errors import Unavailable
from assistant.logs.scan import scan_log
from assistant.ports import RuleWriter
from assistant.records import LearnedRule, RuleKind, RuleState
from assistant.rules.learned import FILTERS, TIMES, ScriptedWriter, exported
from assistant.rules.loading import load_patterns

AT = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)
ROUTINE = [f"fluxtrain: cache hit ratio 0.{n % 100:02} on worker {n % 8}" for n in range(300)]
WARNINGS = [f"fluxtrain: upload {n} failed, will retry" for n in range(100)]
END = [
    "fluxtrain: flux lost on coil 3",
    "Traceback (most recent call last):",
    '  File "t.py", line 3, in main',
    "    go()",
    "ValueError: x",
]


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    return Knowledge.load()


def learn(folder: Path, lines: list[str], knowledge: Knowledge) -> Routine:
    (folder / "job.log").write_text("\n".join(lines) + "\n")
    return routine_of(folder / "job.log", knowledge, at=AT)


def test_routine_of_a_good_run_becomes_a_rule_that_covers_it(tmp_path: Path, knowledge: Knowledge) -> None:
    found = learn(tmp_path, [*ROUTINE, "fluxtrain: training finished"], knowledge)
    assert found.healthy
    (rule,) = found.rules
    assert (rule.id, rule.state, found.covers[rule.id]) == ("learned.fluxtrain-cache-hit-1", RuleState.TRIAL, 300)
    learned = knowledge.with_learned([rule])
    assert scan_log(tmp_path / "job.log", learned.patterns).filtered[rule.id] == 300
    assert learn(tmp_path, [*ROUTINE, "fluxtrain: training finished"], learned).rules == ()


def test_lines_with_alarm_words_are_never_hidden_however_often_they_come(tmp_path: Path, knowledge: Knowledge) -> None:
    found = learn(tmp_path, [*WARNINGS, "fluxtrain: training finished"], knowledge)
    assert [rule.state for rule in found.rules] == [RuleState.PROPOSED]
    assert "alarm word 'failed'" in found.rules[0].why


def test_what_stands_at_the_end_of_a_failing_log_is_not_hidden(tmp_path: Path, knowledge: Knowledge) -> None:
    found = learn(tmp_path, [*ROUTINE, *END], knowledge)
    assert not found.healthy
    assert [rule.state for rule in found.rules] == [RuleState.PROPOSED]
    assert "end of the log at hand" in found.rules[0].why
    early = learn(tmp_path, [*ROUTINE, *(f"other {n} {'x' * n}" for n in range(60)), *END], knowledge)
    assert [rule.state for rule in early.rules] == [RuleState.TRIAL]


def test_ids_are_not_used_twice(tmp_path: Path, knowledge: Knowledge) -> None:
    (tmp_path / "job.log").write_text("\n".join(ROUTINE) + "\n")
    found = routine_of(tmp_path / "job.log", knowledge, at=AT, used_ids={"learned.fluxtrain-cache-hit-1"})
    assert [rule.id for rule in found.rules] == ["learned.fluxtrain-cache-hit-2"]


@pytest.mark.slow
def test_exported_rules_load_as_the_site_s_content(tmp_path: Path, knowledge: Knowledge) -> None:
    (rule,) = learn(tmp_path, [*ROUTINE, 'fluxtrain: "done"'], knowledge).rules
    line = 'flux "capacitor" 7 lost its uplink'
    signature = LearnedRule(
        "network_error.learned-1",
        RuleKind.SIGNATURE,
        r'flux "capacitor" \d+ lost',
        (line,),
        "network_error",
        RuleState.ACTIVE,
        "cli",
        "x",
        AT,
    )
    site = tmp_path / "site"
    for name, text in exported([rule, signature, replace(signature, id="nix.learned-1", of="nix")]).items():
        (site / name).parent.mkdir(parents=True, exist_ok=True)
        (site / name).write_text(text)
    assert {path.name for path in (site / "knowledge").iterdir()} == {"filters", "reasons"}
    assert rule.id in [entry.id for entry in filters(site)]
    assert signature.id in [entry.id for entry in reasons(site)["network_error"].signature]
    patterns = load_patterns(site)
    assert patterns.hides(ROUTINE[0])
    assert signature.id in [entry.id for entry in patterns.match_line(line)]
    assert exported([rule, signature], site)["knowledge/reasons/network_error.toml"].count("network_error.learned-1") == 1
    assert list(exported([rule])) == [FILTERS]


def test_a_model_is_asked_where_no_pattern_holds_and_its_majority_is_proven(tmp_path: Path, knowledge: Knowledge) -> None:
    good, other = r"^fluxtrain: upload \d+ failed, will retry$", r"^fluxtrain: upload \d+ [a-z]+, will retry$"
    for proposals in ([r"^fluxtrain: upload .*$"], [other]):
        writer = ScriptedWriter(proposals)
        found = learned_with(writer, tmp_path, WARNINGS, knowledge)
        assert [rule.state for rule in found.rules] == [RuleState.PROPOSED], "an alarm word stays in sight, whoever asks"
        assert len(writer.questions) == TIMES
    writer = ScriptedWriter([good], name="tiny.gguf")
    assert learned_with(writer, tmp_path, ROUTINE, knowledge).rules[0].by == "templates"
    assert writer.questions == [], "nobody is asked where a pattern holds already"


def test_a_model_that_does_not_answer_leaves_what_was_learned_without_it(tmp_path: Path, knowledge: Knowledge) -> None:
    class Silent:
        name = "silent"

        def propose(self, lines: Sequence[str]) -> str:
            raise Unavailable("the model did not answer")

    found = learned_with(Silent(), tmp_path, [*ROUTINE, *WARNINGS], knowledge)
    assert {rule.state for rule in found.rules} == {RuleState.TRIAL, RuleState.PROPOSED}


def learned_with(writer: RuleWriter, folder: Path, lines: Sequence[str], knowledge: Knowledge) -> Routine:
    (folder / "job.log").write_text("\n".join([*lines, "fluxtrain: training finished"]) + "\n")
    return routine_of(folder / "job.log", knowledge, at=AT, writer=writer)


def test_a_model_s_majority_becomes_a_rule_where_there_is_no_pattern_without_it(tmp_path: Path, knowledge: Knowledge) -> None:
    lines = [f"fluxtrain reads {', '.join(f'/data/shard-{n}/{m}' for m in range(3 + n % 5))}" for n in range(200)]
    assert learned_with(ScriptedWriter(["fluxtrain"]), tmp_path, lines, knowledge).rules == ()
    good = r"^fluxtrain reads [\w/, -]{1,400}$"
    writer = ScriptedWriter(
        [good, r"^fluxtrain reads (a+)+b$", good, r"^fluxtrain reads [a-z\d/, -]{1,400}$", "("], name="tiny.gguf"
    )
    (rule,) = learned_with(writer, tmp_path, lines, knowledge).rules
    assert (rule.state, rule.by) == (RuleState.TRIAL, "model:tiny.gguf")
    assert "3 of 5 proposals mean this" in rule.why
    assert scan_log(tmp_path / "job.log", knowledge.with_learned([rule]).patterns).filtered[rule.id] == 200
