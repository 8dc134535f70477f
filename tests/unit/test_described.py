"""A model may describe what nothing else knows; it makes up no line, names no node, and restarts nothing."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from assistant.agent.grounding import ModelDescriber
from assistant.content.reasons import reasons
from assistant.diagnose.case import Case
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.learning.opinions import CONFIDENCE, ModelOpinion
from assistant.diagnose.verdict import diagnose
from assistant.ports import Described
from assistant.records import Action, DecidedBy, Diagnosis
from tests.scripted_models import ScriptedChat, calls

ODD = "the flux regulator of shelf nine reports a wobble beyond tolerance"


class Says:
    name = "scripted"

    def __init__(self, said: Described | None) -> None:
        self.said, self.seen = said, list[str]()

    def describe(self, excerpt: Sequence[str], known: Sequence[str]) -> Described | None:
        self.seen = list(excerpt)
        return self.said


def case(folder: Path) -> Case:
    log = folder / "job.log"
    log.write_text(f"{ODD}\nthe shelf gives up its work now\nsrun: error: n1: task 0: Exited with exit code 3\n", encoding="utf-8")
    return Case.from_path(log)


def found_with(folder: Path, said: Described | None) -> tuple[Diagnosis, Says]:
    describer = Says(said)
    opinion = ModelOpinion(lambda: describer, reasons)
    return diagnose(case(folder), Knowledge.load(), [opinion]), describer


def test_a_model_describes_with_lines_that_stand_in_the_case(tmp_path: Path) -> None:
    before = diagnose(case(tmp_path), Knowledge.load())
    assert before.reason == "unknown"
    found, describer = found_with(tmp_path, Described("ecc_error", (1, 999), ("network_error", "made_up")))
    assert (found.reason, found.by, found.confidence) == ("ecc_error", DecidedBy.MODEL, CONFIDENCE)
    assert [line.text for line in found.root_cause] == [describer.seen[0]]
    assert found.nodes == ()
    assert found.action is Action.NONE
    assert [rival.reason for rival in found.rivals] == ["unknown", "network_error"]


@pytest.mark.parametrize("said", [None, Described("made_up", (1,)), Described("ecc_error", ()), Described("ecc_error", (500, -1))])
def test_the_answer_before_stays_when_the_model_is_wrong_or_silent(said: Described | None, tmp_path: Path) -> None:
    assert found_with(tmp_path, said)[0] == diagnose(case(tmp_path), Knowledge.load())


def test_a_model_is_not_asked_where_rules_know(tmp_path: Path) -> None:
    log = tmp_path / "job.log"
    log.write_text("[rank0]: torch.AcceleratorError: CUDA error: uncorrectable ECC error encountered\n", encoding="utf-8")
    describer = Says(Described("network_error", (1,)))
    assert diagnose(Case.from_path(log), Knowledge.load(), [ModelOpinion(lambda: describer, reasons)]).reason == "ecc_error"
    assert describer.seen == []


@pytest.mark.parametrize(
    ("turn", "said"),
    [
        (
            calls("describe_failure", lines=[2], reason="ecc_error", rivals=["network_error"]),
            Described("ecc_error", (2,), ("network_error",)),
        ),
        (calls("describe_failure", reason="ecc_error"), None),
        (calls("describe_failure", lines=["x"], reason="ecc_error", rivals=[]), None),
        ("I think it was the network.", None),
        (TimeoutError("slow"), None),
    ],
)
def test_a_chat_model_describes_in_a_fixed_form_or_not_at_all(turn: object, said: Described | None) -> None:
    chat = ScriptedChat(script=[turn])  # type: ignore[list-item]
    assert ModelDescriber("scripted", chat).describe(["a", "b"], ["ecc_error", "network_error"]) == said
