"""Where the loss of a run went off before a later job resumed it, by the losses of its links."""

from __future__ import annotations

import tomllib
from collections.abc import Sequence
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assistant.engine.evidence.earlier_links import ChainLink, damage_before
from assistant.records import MetricPoint

CASES = tomllib.loads((Path(__file__).parents[1] / "cases" / "chains" / "damage.toml").read_text())["case"]


def points(first: int, well: int, off: int, height: float) -> list[MetricPoint]:
    values = [3.0 - 0.001 * (first + at) + 0.01 * (at % 3) for at in range(well)] + [height + at / 10 for at in range(off)]
    return [MetricPoint(first + at, value, None, at + 1) for at, value in enumerate(values)]


@pytest.mark.parametrize("height", [20.0, float("nan")], ids=["high", "no number"])
@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_damage_is_traced_to_the_link_in_which_the_loss_went_off(case: dict[str, Any], height: float) -> None:
    def link(row: Sequence[int]) -> Any:
        return ChainLink(SimpleNamespace(id=str(row[0])), points(row[0], row[1], row[2], height))  # type: ignore[arg-type]

    links = [link(row) for row in case["links"]]
    first, well, off = case["own"]
    own = points(first, well, off, height)
    damage = damage_before(own, first or None, links)
    if "origin" not in case:
        assert damage is None
        return
    assert damage is not None
    assert damage.link is links[case["origin"]]
    assert (damage.spike.step, damage.repeated) == (71, case.get("repeated", False))
