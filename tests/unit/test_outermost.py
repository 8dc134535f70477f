"""How far a run came is told by the outermost of its bars and counts, or not at all: logs of our own wording with several."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest

from assistant.diagnose.case import Case
from assistant.diagnose.facts import Facts, gather
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.readers.circumstances import run_bar, run_round
from assistant.diagnose.weighing.first_failure import last_step, phase_of

CASES: list[dict[str, Any]] = tomllib.loads((Path(__file__).parents[1] / "cases" / "outermost" / "logs.toml").read_text("utf-8"))[
    "case"
]
DRAWN = re.compile(r"~(\d+)/(\d+) (\d\d:\d\d)(?: ([^\t\n~]+))?(\t)?")


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    return Knowledge.load()


def drawn(log: str) -> str:
    """Return a log with its bars as tqdm draws them."""

    def bar(match: re.Match[str]) -> str:
        done, total, spent, label, again = int(match[1]), int(match[2]), match[3], match[4], match[5]
        left = f"{int(spent[:2]) * (total - done) // done:02}:00" if done else "?"
        head, end = f"{label}: " if label else "", chr(13) if again else ""
        return f"{head}{100 * done // total:3}%|{'█' * 5}     | {done}/{total} [{spent}<{left}, 1.00it/s]{end}"

    return DRAWN.sub(bar, log)


def facts_of(log: str, knowledge: Knowledge, folder: Path) -> Facts:
    (folder / "job.log").write_text(drawn(log), encoding="utf-8", newline="")
    return gather(Case.from_path(folder), knowledge)


@pytest.mark.parametrize("case", CASES, ids=[case["name"] for case in CASES])
def test_a_run_is_as_far_as_its_outermost_bar_or_count(case: dict[str, Any], knowledge: Knowledge, tmp_path: Path) -> None:
    facts = facts_of(case["log"], knowledge, tmp_path)
    bar, around = run_bar(facts), run_round(facts)
    assert (f"{bar.position}/{bar.total}" if bar is not None else "") == case["bar"]
    if "round" in case:
        assert around is not None
        assert f"{around.word} {around.at} of {around.of}" == case["round"]


STEPS_OF_AN_EPOCH = "".join(
    f"epoch {epoch} step {step} loss {2 / epoch:.3f}\n" for epoch in (1, 2, 3) for step in range(0, 1000, 100)
)
STEPS_OF_A_RESTART = "".join(f"step {step} loss 2.1\n" for step in range(100, 1000, 100)) + "".join(
    f"step {step} loss 1.9\n" for step in range(600, 800, 100)
)


@pytest.mark.parametrize(("log", "step", "begins_anew"), [(STEPS_OF_AN_EPOCH, None, False), (STEPS_OF_A_RESTART, 700, True)])
def test_steps_that_begin_anew_with_each_epoch_are_none_of_the_run(
    log: str, step: int | None, begins_anew: bool, knowledge: Knowledge, tmp_path: Path
) -> None:
    facts = facts_of(log, knowledge, tmp_path)
    assert last_step(facts) == step
    assert bool(facts.progress.leg) is begins_anew


BEGUN = "2026-02-03 10:00:00,000 INFO starts\n"
FAILS = "Traceback (most recent call last):\n  File \"/home/u/work.py\", line 12, in <module>\n    main()\nKeyError: 'x'\n"
DRAWN_ONCE = "  0%|          | 0/80 [00:00<?, ?it/s]\r 50%|█████     | 40/80 [00:40<00:40, 1.00it/s]\n"


@pytest.mark.parametrize(
    ("log", "phase"),
    [
        (BEGUN + FAILS, "start"),
        (BEGUN + "2026-02-03 10:10:00,000 INFO reads the corpus\n" + FAILS, "start"),
        (BEGUN + "2026-02-03 13:10:00,000 INFO writes the table\n" + FAILS, ""),
        (BEGUN + "".join(f"{word} of the corpus\n" for word in map(hex, range(400))) + FAILS, ""),
        (BEGUN + DRAWN_ONCE + FAILS, ""),
    ],
)
def test_a_failure_is_placed_at_the_start_only_where_nothing_else_can_lie_before_it(
    log: str, phase: str, knowledge: Knowledge, tmp_path: Path
) -> None:
    facts = facts_of(log, knowledge, tmp_path)
    assert phase_of(facts, facts.lines[-1].number) == phase
