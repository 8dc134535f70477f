"""`nightshift explain` with a model that won the trial of summaries: its words stand only where they are true, the report stays."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from assistant.config.settings import ModelSettings
from assistant.engine.report import summary_lines
from assistant.llm.models import identity
from assistant.records import Action, Category, Citation, DecidedBy, Diagnosis, NodeFinding
from assistant.store import Store
from tests.cli.conftest import Run
from tests.unit.openai_here import Asked, serving, speak

FOUND = Diagnosis(
    reason="ecc_error",
    category=Category.INFRASTRUCTURE,
    action=Action.CORDON_AND_RESTART,
    confidence=0.99,
    by=DecidedBy.RULE,
    root_cause=(Citation("dmesg.log", 3, "NVRM: Xid 48, DBE", "xid 48", "root"),),
    nodes=(NodeFinding("node02", "its kernel says Xid 48"),),
    rivals=(),
    summary="ECC error on node02 after step 500 (dmesg.log:3).",
    advice="Set node02 aside.",
)
GOOD = "Job 7 failed: ecc_error on node02 [2, 5]. Its kernel says Xid 48 [4]."


def explained(
    cli: Run, store: Store, monkeypatch: pytest.MonkeyPatch, answers: Callable[[Asked], None], *, won: bool = True
) -> tuple[str, str]:
    """Return what explain prints, and narrates."""
    store.add_diagnosis(1, FOUND)
    with serving(answers) as server:
        for name, value in {"URL": server.url, "NAME": "m", "TIMEOUT_S": "1"}.items():
            monkeypatch.setenv(f"NIGHTSHIFT_MODEL__{name}", value)
        trial = {"cases": 8, "model": 7 if won else 3, "baseline": 3}
        store.keep_trial(identity(ModelSettings(url=server.url, name="m")), "summary", trial, store.clock.now())
        done = cli("explain", 1)
        assert done.code == 0
        assert bool(server.asked) is won
    return done.out, done.err


def says(text: str) -> Callable[[Asked], None]:
    return lambda asked: speak(asked, ("write_summary", {"summary": text}))


def test_a_summary_that_stands_comes_first_with_its_lines_and_the_report_follows(
    cli: Run, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    out, _ = explained(cli, store, monkeypatch, says(GOOD))
    assert out.index(GOOD) < out.index("Summed up by m") < out.index("ECC error on node02 after step 500") < out.index("## Why")
    assert "- [4] dmesg.log:3: NVRM: Xid 48, DBE" in out


BAD: dict[str, tuple[Callable[[Asked], None], str]] = {
    "names a node that is not there": (says("ECC error on node99 [2]."), "node99"),
    "names a number that is not there": (says("It lost 31337 steps of ecc_error [2]."), "31337"),
    "names another reason": (says("Job 7 failed: nvlink_error [2]."), "nvlink_error"),
    "names no line": (says("Job 7 failed of ecc_error on node02, as was seen."), "it names no line for"),
    "names a line that is not there": (says("Job 7 failed: ecc_error [99]."), "there is no source 99"),
    "is far too long": (says("ecc_error on node02 [2]. " * 40), "more than 120 words"),
    "is nothing": (lambda asked: speak(asked, ("write_summary", {})), "it said nothing"),
    "is no call": (lambda asked: speak(asked, "I would rather not."), "it said nothing"),
    "never comes": (lambda asked: asked.stream(*[0.1] * 30), "no whole answer within 1 s"),
    "is an error": (lambda asked: asked.reply(500, "no"), "HTTP 500"),
}


@pytest.mark.parametrize("name", BAD)
def test_a_summary_that_does_not_stand_is_left_out_and_the_report_is_as_without_it(
    name: str, cli: Run, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    answers, why = BAD[name]
    out, narrated = explained(cli, store, monkeypatch, answers)
    assert why in narrated
    assert "Summed up" not in out
    assert out == cli("explain", 1, "--no-model").out


def test_a_model_that_did_not_win_is_not_even_asked(cli: Run, store: Store, monkeypatch: pytest.MonkeyPatch) -> None:
    out, _ = explained(cli, store, monkeypatch, says(GOOD), won=False)
    assert "Summed up" not in out


def test_the_lines_of_an_incident_hold_what_a_person_would_want(store: Store) -> None:
    assert summary_lines(store, 1) == []
    store.add_diagnosis(1, FOUND)
    lines = summary_lines(store, 1)
    assert lines[1] == "reason: ecc_error, infrastructure, confidence 0.99"
    assert "node to blame: node02, its kernel says Xid 48" in lines
    assert "change, pending: cordon node02" in lines
    assert all("\n" not in line and len(line) <= 300 for line in lines)
