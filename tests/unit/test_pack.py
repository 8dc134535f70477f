"""The evidence pack: what comes first, and its bound."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from assistant.diagnose.answer import approximate_tokens, pack
from assistant.diagnose.case import Case
from assistant.diagnose.facts import Facts, gather
from assistant.diagnose.knowledge import Knowledge
from assistant.logs.templates import Baseline, Miner

ROUTINE = "fluxtrain: cache hit ratio 0.{:02} on worker {}"


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    return Knowledge.load()


@pytest.fixture(scope="module")
def facts(tmp_path_factory: pytest.TempPathFactory, knowledge: Knowledge) -> Facts:
    folder = tmp_path_factory.mktemp("case")
    lines = [f"step {n} loss {3 - n / 100:.3f} grad_norm 0.5" for n in range(100)]
    lines += [ROUTINE.format(n % 100, n % 8) for n in range(400)]
    lines += ["the flux capacitor is discharging on coil 7"]
    for rank in range(4):
        lines += [
            f"[rank{rank}]: Traceback (most recent call last):",
            f'[rank{rank}]:   File "t.py", line 3, in main',
            f"[rank{rank}]:     go()",
        ]
        lines += [f"[rank{rank}]: ValueError: coil {rank} has no charge"]
    (folder / "job.log").write_text("\n".join(lines) + "\n")
    (folder / "dmesg.log").write_text("[ 12.5] NVRM: Xid (PCI:0000:05:00): 79, pid=1, GPU has fallen off the bus.\n")
    return gather(Case.from_path(folder), knowledge)


def baseline() -> Baseline:
    miner = Miner()
    miner.add([ROUTINE.format(n, n) for n in range(10)])
    return Baseline.of([miner.to_json()])


def test_an_episode_is_shown_once_with_its_spread_and_what_stood_before(facts: Facts) -> None:
    text = pack(facts, 2000).text
    shown, _, log = text.partition("## The log in order")
    assert shown.count("has no charge") == 1
    assert "(×4; ranks 0-3)" in shown
    assert "the flux capacitor is discharging" in shown
    assert "fallen off the bus" in shown
    assert "lines of step records" in log


def test_phase_and_metrics_come_first(facts: Facts) -> None:
    head = pack(facts, 2000).text.split("\n\n")[0]
    assert "Phase: training; last step 99 at line 100" in head
    assert "lowest 2.01 at step 99" in head


def test_what_no_good_run_printed_is_shown_by_itself(facts: Facts) -> None:
    text = pack(facts, 2000, baseline=baseline()).text
    section = text.partition("## Lines unlike the last good run")[2].partition("##")[0]
    assert "flux capacitor" in section
    assert "cache hit" not in section
    assert "Lines unlike" not in pack(facts, 2000).text


@pytest.mark.parametrize("tokens", [1, 100, 101, 300, 1000, 5000])
def test_it_never_exceeds_its_tokens(facts: Facts, tokens: int) -> None:
    made = pack(facts, tokens, baseline=baseline())
    assert made.tokens == approximate_tokens(made.text) <= max(tokens, 100)
    assert "coil 0 has no charge" in made.text or tokens < 300


def test_the_counter_of_tokens_can_be_another(facts: Facts) -> None:
    assert pack(facts, 200, count=lambda text: len(text.split())).tokens <= 200


def test_a_log_of_nothing_but_one_long_line_fits(tmp_path: Path, knowledge: Knowledge) -> None:
    (tmp_path / "job.log").write_text("x" * 10_000_000)
    assert pack(gather(Case.from_path(tmp_path), knowledge), 500).tokens <= 500


def test_a_million_distinct_errors_fit(tmp_path: Path, knowledge: Knowledge) -> None:
    lines = int(os.environ.get("NIGHTSHIFT_MANY_LINES", "60000"))
    (tmp_path / "job.log").write_text("".join(f"ValueError: item{n:x}q{n * 7919:x} is wrong\n" for n in range(lines)))
    assert pack(gather(Case.from_path(tmp_path), knowledge), 1000).tokens <= 1000
