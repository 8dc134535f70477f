"""Masks of host and user names: nothing of them goes out, all of it comes back."""

from __future__ import annotations

import json
import re

from hypothesis import given
from hypothesis import strategies as st

from assistant.redact import Mask

HOSTS = ["node001", "node016", "login1.hopper.example", "gpu-a100-3"]


def test_names_numbered_neighbours_and_folded_sets_are_hidden() -> None:
    mask = Mask(HOSTS, ["ada"])
    text = "ada@login1.hopper.example: node001, node017 and node[001-016,020] of gpu-a100-3; /home/ada/run"
    hidden = mask.hide(text)
    assert not re.search(r"node\d|node\[|login1|a100|\bada\b", hidden)
    assert mask.show(hidden) == text


def test_the_same_name_has_the_same_stand_in_by_key() -> None:
    assert Mask(["node001"], key=b"a").hide("node001") == Mask(["node002", "node001"], key=b"a").hide("node001")
    assert Mask(["node001"], key=b"a").hide("node001") != Mask(["node001"], key=b"b").hide("node001")


def test_parts_of_words_and_what_only_looks_like_a_number_stay() -> None:
    text = "adaptive nodes, node1 of canada, node0011, gpu 3, user data 12"
    assert Mask(HOSTS, ["ada", "12"]).hide(text) == text


def test_names_that_every_system_has_stay() -> None:
    assert Mask([], ["root", "slurm"]).hide("root and slurm") == "root and slurm"


def test_a_stand_in_that_somebody_wrote_is_not_turned_into_a_name() -> None:
    mask = Mask(["node001"])
    assert mask.show("host-ffffff") == "host-ffffff"


@given(
    st.lists(st.from_regex(r"[a-z]{2,6}-?[0-9]{1,4}", fullmatch=True), min_size=1, max_size=20),
    st.lists(st.from_regex(r"[a-z]{3,8}", fullmatch=True), max_size=8),
    st.text(alphabet=" abn0123[]-,.:/@\n", max_size=60),
)
def test_whatever_is_hidden_comes_back(hosts: list[str], users: list[str], between: str) -> None:
    mask = Mask(hosts, users)
    text = between.join(f" {name} " for name in [*hosts, *users])
    hidden = mask.hide(text)
    assert mask.show(hidden) == text
    assert not {word for word in hidden.split() if word in hosts}


def test_names_are_hidden_and_shown_inside_json_too() -> None:
    mask = Mask(["node042"], ["ada"])
    for text in ("line\nnode042", "tab\tada", 'quoted "node042"', "end\r\nada"):
        packed = json.dumps({"text": text})
        hidden = mask.hide(packed)
        assert "node042" not in hidden
        assert "ada" not in hidden
        assert json.loads(mask.show(hidden)) == {"text": text}


def test_letters_behind_a_stand_in_are_not_taken_for_its_digits() -> None:
    mask = Mask(["node042"])
    assert mask.show(mask.hide("node042") + "ed") == "node042ed"
