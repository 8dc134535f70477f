"""Nodes named in short: what is one, and what is another number."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.agent.corrections import takes_back
from assistant.agent.small_talk import TalkKind, small_talk
from assistant.agent.words import NameInventory, read_inventory, read_names
from assistant.cli.measure.agent_bench import open_state
from tests.sources import ROOT

NAMES = {
    "n9?": ("node09",),
    "15 too?": ("node15",),
    "please drain 13": ("node13",),
    "who isolated 12": ("node12",),
    "why is the 11 down": ("node11",),
    "and 10": ("node10",),
    "drain 13 and 14": ("node13", "node14"),
    "node5-6 are slow": ("node05", "node06"),
    "restart 4821 on 8": (),
    "drain 11 nodes": (),
    "rank 12 is down": (),
    "gpu 7 is dead": (),
    "step 12 is bad": (),
    "approve 1": (),
    "1": (),
    "show 5": (),
    "the last 11 failures": (),
    "restart it 7 times": (),
}


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> NameInventory:
    engine, _ = open_state(Path(ROOT) / "tests/cases/agent/states/night.toml", tmp_path_factory.mktemp("night"))
    names = read_inventory(engine.gate)
    engine.store.close()
    return names


@pytest.mark.parametrize(("sentence", "nodes"), NAMES.items())
def test_a_bare_number_is_a_node_only_where_nothing_else_has_it(
    sentence: str, nodes: tuple[str, ...], inventory: NameInventory
) -> None:
    assert read_names(sentence, inventory).nodes == nodes


@pytest.mark.parametrize("sentence", ["no wait, let it run", "leave it running", "hm, keep it", "ok it stays"])
def test_who_leaves_it_takes_the_order_back(sentence: str) -> None:
    assert takes_back(sentence)


@pytest.mark.parametrize("sentence", ["keep node07 out", "keep it drained until tomorrow", "is it running?", "let it restart"])
def test_other_words_take_nothing_back(sentence: str) -> None:
    assert not takes_back(sentence)


def test_a_call_into_the_dark_is_a_greeting() -> None:
    talk = small_talk("anyone there?")
    assert talk is not None
    assert talk.kind is TalkKind.GREETING
