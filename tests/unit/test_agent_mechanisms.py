"""How follow-ups, users, times, consequences, double questions and outages are answered: by mechanism, not by sentence."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest

from assistant.agent.semantic import SemanticAgent
from tests.recorded_states import recorded_state

CASES = Path(__file__).parents[1] / "cases"
FOLDER = CASES / "agent_answers" / "mechanisms"
DIALOGUES = [
    {"mechanism": path.stem, **case}
    for path in sorted(FOLDER.glob("*.toml"))
    for case in tomllib.loads(path.read_text(encoding="utf-8"))["case"]
]


@pytest.mark.parametrize("case", DIALOGUES, ids=[f"{case['mechanism']}: {' / '.join(case['say'])}" for case in DIALOGUES])
def test_an_answer_says_first_what_was_asked(case: dict[str, Any], tmp_path_factory: pytest.TempPathFactory) -> None:
    state = CASES / "agent" / "states" / f"{case.get('state', 'night')}.toml"
    with recorded_state(state, tmp_path_factory) as (engine, _):
        agent = SemanticAgent(engine.gate, engine.clock)
        text = [agent.ask(sentence).text for sentence in case["say"]][-1]
        waiting = len(engine.gate.call("list_approvals", {}, why="what waits", by="test").value or ())
    head = text.partition("\n")[0]
    assert [part for part in case.get("head", ()) if part not in head] == [], text
    assert [part for part in case.get("holds", ()) if part not in text] == [], text
    assert [part for part in case.get("lacks", ()) if part in text] == [], text
    assert waiting == case.get("waits", waiting), text
