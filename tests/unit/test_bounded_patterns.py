"""Repeats of classes get an end where Python's `re` reads the groups of a signature."""

from __future__ import annotations

import pytest

from assistant.rules.matching import bounded


@pytest.mark.parametrize(
    ("pattern", "same"),
    [
        (r"\w*x\d+", r"\w{0,255}x\d{1,255}"),
        (r"[\w*+]+\[*", r"[\w*+]{1,255}\[*"),
        (r"[^]a]*\\d+", r"[^]a]{0,255}\\d+"),
        ("a+b", "a+b"),
    ],
)
def test_repeats_of_classes_get_an_end(pattern: str, same: str) -> None:
    assert bounded(pattern) == same
