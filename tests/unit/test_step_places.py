"""Lines of steps that are read by the places of their numbers say what the patterns read."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assistant.logs import metrics, prefix
from assistant.logs.lines import Line
from assistant.logs.metrics import MetricReader
from assistant.logs.step_places import LONGEST, MOST, KnownShapes

LINES = (
    "[2026-01-05 02:00:07] iteration       12/    5000 | consumed samples: 12288 | elapsed time per iteration (ms): 4012.3 | "
    "learning rate: 1.500E-04 | global batch size:  1024 | lm loss: 2.312345E+00 | loss scale: 1.0 | grad norm: 1.204 |",
    " [2026-01-05 02:00:07] iteration 12/ 5000 | lm loss: 2.3E+00 | grad norm: 1.0 |",
    "[rank3]: 2026-01-05T02:00:07,123456789Z [7]: step 40 loss=2.31 grad_norm: 0.7 step_time: 1.25",
    "17: 2026/01/05 02:00:07.5 UTC step: 40 loss: nan",
    "2026-01-05 02:00:07+01:30 INFO step 40 loss -inf",
    "node017: Jan  5 02:00:07 node017 trainer: step 41, loss 2.1",
    "01/05/2026 02:00:07 step 41 loss 2.1",
    "I0105 02:00:07.123456 123 step 41 loss 2.1",
    "Mon Jan  5 02:00:07 2026: rank 12 batch 41 loss 2.1",
    "[NeMo I 2026-01-05 02:00:07 trainer:123] global_step=90 reduced_train_loss=2.5 gnorm=1.5",
    "A100: step 41 loss 2.1",
    "B100: step 41 loss 2.1",
    "tgs (tokens/gpu/second)=4000 step=12 loss=2.5 fwd_bwd_time=1.5",
    "Iter(train) [  40/1000]  lr: 1e-4  eta: 0:00:07  time: 0.5  loss: 2.51  grad_norm: 3.1",
    "Epoch 0 | iter 32 step 8 | loss train: 4.512, val: n/a | iter time: 412.51 ms (step)",
    "step_in_slice: 12/500 loss_avg_rank: 3.5 'total_time': '1.5",
    "1|40|Loss: 2.51",
    "[step=12/500] [batch=12/500] step 12 loss 2.5",
    "step 1٢ loss 2.5 of 数据",
    "step 12 loss 2.5 Saving checkpoint to out/checkpoint-12",
    "eval step 12 loss 2.5",
    "step 12 skipped=1 loss 2.5 {'loss': 2.5}",
)


class NoShapes(KnownShapes):
    """Shapes of which none is kept."""

    def read(self, line: Line) -> None:
        """Know no line."""


def points_of(texts: Sequence[str], shapes: KnownShapes) -> str:
    """Return the points of a log as text, in which NaN is equal to NaN."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(metrics, "_KNOWN_SHAPES", shapes)
        reader = MetricReader()
        for number, text in enumerate(texts, 1):
            reader.take(Line(number, text))
        reader.settle()
    return repr(reader.points)


def with_digits(line: str, digits: str) -> str:
    """Return a line with other digits."""
    following = iter(digits * len(line))
    return re.sub("[0-9]", lambda _: next(following), line)


@given(
    st.lists(st.tuples(st.sampled_from(LINES), st.one_of(st.none(), st.text("0123456789", min_size=1, max_size=12))), max_size=30)
)
@settings(max_examples=300, deadline=None)
def test_places_say_what_the_patterns_say(choices: list[tuple[str, str | None]]) -> None:
    texts = [line if digits is None else with_digits(line, digits) for line, digits in choices]
    assert points_of(texts, KnownShapes()) == points_of(texts, NoShapes())


@pytest.mark.parametrize("line", LINES)
def test_a_line_read_first_teaches_nothing_wrong(line: str) -> None:
    for digits in ("0", "1", "2", "9", "10", "02", "3100", "2400"):
        shapes = KnownShapes()
        other = with_digits(line, digits)
        for texts in ([line, other], [other, line], [line], [other]):
            assert points_of(texts, shapes) == points_of(texts, NoShapes())


def test_lines_of_one_shape_are_read_by_places() -> None:
    shapes = KnownShapes()
    points_of([LINES[0]], shapes)
    known = shapes.read(Line(7, with_digits(LINES[0], "1")))
    assert known is not None
    point, _ = known
    assert (point.step, point.batch, point.loss, point.line) == (11, 1111, 1.111111e11, 7)


def test_a_date_of_no_calendar_is_read_anew() -> None:
    shapes = KnownShapes()
    points_of([LINES[1]], shapes)
    assert shapes.read(Line(1, LINES[1].replace("01-05", "13-05"))) is None
    assert shapes.read(Line(1, LINES[1].replace("02:00:07", "24:00:00"))) is None


def test_few_shapes_and_no_long_lines_are_kept() -> None:
    shapes = KnownShapes()
    points_of([f"{'x' * LONGEST} step 1 loss 2.5"], shapes)
    assert shapes.read(Line(1, f"{'x' * LONGEST} step 1 loss 2.5")) is None
    points_of([f"{'x' * (number % 97)}{'y' * (number // 97)} step {number} loss 2.5" for number in range(MOST + 10)], shapes)
    assert len(shapes._places) <= MOST


def digits_asked_for(pattern: Any) -> Iterator[str]:
    """Yield the digits that a parsed pattern treats unlike the others."""
    for operator, argument in pattern:
        name = str(operator)
        if name in ("LITERAL", "NOT_LITERAL") and chr(argument).isdecimal():
            yield chr(argument)
        elif name == "RANGE":
            digits = [chr(code) for code in range(max(argument[0], ord("0")), min(argument[1], ord("9")) + 1)]
            if 0 < len(digits) < 10:
                yield from digits
        elif name == "IN":
            yield from digits_asked_for(argument)
        else:
            yield from _inside(argument)


def _inside(argument: Any) -> Iterator[str]:
    if isinstance(argument, re._parser.SubPattern):  # type: ignore[attr-defined]
        yield from digits_asked_for(argument)
    elif isinstance(argument, (list, tuple)):
        for part in argument:
            yield from _inside(part)


def patterns_in(value: object) -> Iterator[re.Pattern[str]]:
    """Yield the patterns that a value of a module holds."""
    if isinstance(value, re.Pattern) and isinstance(value.pattern, str):
        yield value
    elif isinstance(value, tuple):
        for part in value:
            yield from patterns_in(part)


def test_no_pattern_asks_for_certain_digits() -> None:
    names = ("_RANK", "_HOST", "_TIMES", "_SYSLOG_HOST", "_NAMES_NO_HOST")
    patterns = [*patterns_in(tuple(vars(metrics).values())), *patterns_in(tuple(getattr(prefix, name) for name in names))]
    assert len(patterns) > 40
    asking = {
        pattern.pattern
        for pattern in patterns
        if [*digits_asked_for(re._parser.parse(pattern.pattern, pattern.flags))]  # type: ignore[attr-defined]
    }
    # no shape is kept that holds the name of a GPU, or within a block of lines about one step
    assert asking == {prefix._NAMES_NO_HOST.pattern, metrics._BLOCK_NORM.pattern.pattern}
