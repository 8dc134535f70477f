"""That a job had read a path before it was gone: by its log, or by a call that is made anew in every round of a loop."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from assistant.engine.evidence.gone_inputs import earlier_reads
from assistant.logs.lines import Line

PATH = "/pool/stock/prices.csv"
ERROR = f"FileNotFoundError: [Errno 2] No such file or directory: '{PATH}'"
SOURCE = """import os
def prices(name):
    return open(os.path.join("/pool/stock", name)).read()
for day in range(40):
    table = prices("prices.csv")
    print(f"day {day} of 40 priced")
"""
DAYS = [f"day {day} of 40 priced" for day in range(12)]
BAR = "days:  30%|###       | 12/40 [00:12<00:28,  1.0it/s]"


def reads(before: Sequence[str], source: str = SOURCE, shown: str = "") -> str:
    """Return how the path was read before, of a log that ends by a traceback; empty where that is not proven."""
    lines = (shown or source).splitlines()
    inner = next(number for number, line in enumerate(lines, 1) if "open(" in line)
    outer = next((number for number, line in enumerate(lines, 1) if "table = prices(" in line), inner)
    log = [*before, "Traceback (most recent call last):"]
    log += [f'  File "/w/run.py", line {outer}, in <module>', f"    {lines[outer - 1].strip()}"]
    log += [f'  File "/w/run.py", line {inner}, in prices', f"    {lines[inner - 1].strip()}", ERROR]
    found = earlier_reads([Line(number, text) for number, text in enumerate(log, 1)], PATH, lambda path: source, "/w")
    return found.how if found is not None else ""


def test_a_call_in_a_loop_that_prints_what_is_counted_had_read_the_path_in_each_round() -> None:
    assert reads(DAYS) == "was read in every round before (run.py:3), until day 11 of 40"


def test_a_loop_that_draws_a_bar_counts() -> None:
    source = SOURCE.replace("range(40)", "tqdm(range(40))").replace('    print(f"day {day} of 40 priced")\n', "    keep(table)\n")
    assert reads([BAR], source) == "was read in every round before (run.py:3), until 12 of 40"


@pytest.mark.parametrize(
    ("before", "is_read"),
    [
        ([f"read 900 rows of {PATH}", *DAYS], True),
        ([*DAYS, f"read 900 rows of {PATH}"], False),  # nothing was done behind it
        ([f"cannot read {PATH}, trying again", *DAYS], False),
        ([f"writes to {PATH}", *DAYS], False),
        (["read 900 rows of /pool/stock/other.csv", *DAYS], False),
        (DAYS, False),
        ([], False),
    ],
)
def test_a_log_that_names_the_path_as_read_and_counts_on_proves_it_without_a_source(before: list[str], is_read: bool) -> None:
    assert reads(before, "", SOURCE).startswith("was read before (") is is_read


@pytest.mark.parametrize(
    "source",
    [
        SOURCE.replace('prices("prices.csv")', 'prices(f"prices-{day}.csv")'),
        SOURCE.replace('prices("prices.csv")', "prices(names[day])"),
        SOURCE.replace('prices("prices.csv")', "prices(names.pop())"),
        SOURCE.replace('prices("prices.csv")', 'prices("prices.csv") if day == 12 else 0').replace(
            "    table", "    if day > 3:\n        table"
        ),
        SOURCE.replace("name)).read()", 'name), "w").write("")'),
        SOURCE.replace("for day in range(40):", "if True:"),
        SOURCE.replace('    print(f"day {day} of 40 priced")', "    keep(table)"),
        SOURCE.replace("    return open", "    if name in late:\n        return open"),
        "",
    ],
    ids=range(9),
)
def test_what_may_have_been_another_path_or_the_first_call_proves_nothing(source: str) -> None:
    assert reads(DAYS, source, source or SOURCE) == ""


def test_a_source_that_has_changed_since_proves_nothing() -> None:
    assert reads(DAYS, SOURCE.replace("table = prices", "rows = prices"), SOURCE) == ""


def test_a_job_that_had_counted_nothing_has_read_nothing() -> None:
    assert reads(["starts"]) == ""
