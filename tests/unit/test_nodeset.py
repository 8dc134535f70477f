"""Node sets: what operators write comes out as names, and names fold back."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as some

from assistant.errors import UsageError
from assistant.nodeset import expand, fold

CASES = Path(__file__).parents[1] / "cases" / "nodeset"


def cases(name: str) -> list[Any]:
    return [pytest.param(case, id=case["text"] or "empty") for case in tomllib.loads((CASES / name).read_text())["case"]]


@pytest.mark.parametrize("case", cases("good.toml"))
def test_an_expression_gives_its_names_in_order(case: dict[str, Any]) -> None:
    assert expand(case["text"]) == case["names"]


@pytest.mark.parametrize("case", cases("good.toml"))
def test_names_fold_to_the_short_form(case: dict[str, Any]) -> None:
    assert fold(case["names"]) == case.get("folded", case["text"])


@pytest.mark.parametrize("case", cases("bad.toml"))
def test_a_malformed_expression_is_refused_with_the_reason(case: dict[str, Any]) -> None:
    with pytest.raises(UsageError, match=case["says"]):
        expand(case["text"])


def test_no_names_fold_to_nothing() -> None:
    assert fold([]) == ""


@given(some.sets(some.from_regex(r"[a-z]{1,3}[0-9]{0,3}(-[a-z]{1,2}[0-9]{0,2})?", fullmatch=True), min_size=1, max_size=30))
def test_what_is_folded_expands_to_the_same_set(names: set[str]) -> None:
    folded = expand(fold(names))
    assert set(folded) == names
    assert len(folded) == len(names)
