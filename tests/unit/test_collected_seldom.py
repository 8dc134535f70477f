"""While a look makes its records, Python looks for garbage seldom; before and afterwards as it was told to."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest

from assistant.process_memory import collected_seldom


@pytest.fixture(autouse=True)
def thresholds() -> Iterator[None]:
    before = gc.get_threshold()
    yield
    gc.set_threshold(*before)


@pytest.mark.parametrize(
    ("before", "during"),
    [
        ((700, 10, 10), (400_000, 10, 10)),
        ((500_000, 5, 5), (500_000, 5, 5)),
        ((0, 10, 10), (0, 10, 10)),
    ],
)
def test_thresholds_hold_for_the_block_alone(before: tuple[int, int, int], during: tuple[int, int, int]) -> None:
    gc.set_threshold(*before)
    thresholds_inside: list[tuple[int, ...]] = []

    @collected_seldom()
    def look() -> None:
        thresholds_inside.append(gc.get_threshold())
        raise ValueError("broken off")

    with pytest.raises(ValueError, match="broken off"):
        look()
    assert thresholds_inside == [during]
    assert gc.get_threshold() == before


def test_what_somebody_else_sets_meanwhile_stays() -> None:
    with collected_seldom():
        gc.set_threshold(2_000, 5, 1_000)
    assert gc.get_threshold() == (2_000, 5, 1_000)
