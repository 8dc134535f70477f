"""Frozen records that are made quickly are what a frozen dataclass is."""

from __future__ import annotations

import copy
import inspect
import pickle
from dataclasses import FrozenInstanceError, dataclass, field, fields, replace

import pytest

from assistant.records import Job, MetricPoint
from assistant.records.jobs import quick_init


@dataclass(frozen=True, slots=True)
class Plain:
    """The same fields without it."""

    a: int
    b: str = "x"


@quick_init
@dataclass(frozen=True, slots=True)
class Quick:
    """A record."""

    a: int
    b: str = "x"


@pytest.mark.parametrize("record", [Quick(1), Quick(1, "x"), Quick(a=1), replace(Quick(2), a=1)])
def test_a_record_is_of_its_class_and_equal_by_its_fields(record: Quick) -> None:
    assert type(record) is Quick
    assert record == Quick(1, "x") != Quick(1, "y")
    assert hash(record) == hash(Quick(1))
    assert repr(record) == "Quick(a=1, b='x')"
    assert type(copy.copy(record)) is Quick
    assert pickle.loads(pickle.dumps(MetricPoint(1, 2.0, None, 4))) == MetricPoint(1, 2.0, None, 4)


@pytest.mark.parametrize("record", [Quick(1), MetricPoint(1, 2.0, None, 4)])
def test_a_record_stays_frozen(record: Quick | MetricPoint) -> None:
    with pytest.raises(FrozenInstanceError):
        setattr(record, fields(record)[0].name, 2)
    with pytest.raises(FrozenInstanceError):
        delattr(record, fields(record)[0].name)
    assert not hasattr(record, "__dict__")


def test_its_parameters_are_those_of_the_fields() -> None:
    assert str(inspect.signature(Quick)) == str(inspect.signature(Plain))
    assert [*inspect.signature(Job).parameters] == [f.name for f in fields(Job)]
    with pytest.raises(TypeError, match="missing 1 required positional argument: 'a'"):
        Quick()  # type: ignore[call-arg]


def test_a_record_with_more_to_its_init_is_refused() -> None:
    @dataclass(frozen=True, slots=True)
    class Listed:
        entries: list[int] = field(default_factory=list)

    @dataclass(frozen=True, slots=True)
    class Checked:
        a: int

        def __post_init__(self) -> None:
            raise ValueError(self.a)

    for record in (Listed, Checked):
        with pytest.raises(TypeError, match="has more to its __init__"):
            quick_init(record)
