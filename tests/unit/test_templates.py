"""The template miner: masks, grouping, bounds, state."""

from __future__ import annotations

import json
import random
import re
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant.logs.lines import clean
from assistant.logs.prefix import masked, readable
from assistant.logs.templates import MOST_FORMS, Miner, grouped, homes, mined

CASES = tomllib.loads((Path(__file__).parent.parent / "cases" / "templates" / "masks.toml").read_text(encoding="utf-8"))
GROUPS = tomllib.loads((Path(__file__).parent.parent / "cases" / "templates" / "groups.toml").read_text(encoding="utf-8"))["group"]


@pytest.mark.parametrize("case", CASES["mask"], ids=lambda case: str(case["name"]))
def test_values_are_masked(case: dict[str, str]) -> None:
    assert readable(masked(case["line"])) == case["shown"]


@pytest.mark.parametrize("case", GROUPS, ids=lambda case: str(case["name"]))
def test_lines_of_one_form_are_one_template(case: dict[str, list[str]]) -> None:
    assert sorted(str(template) for template in mined(case["lines"])) == sorted(case["templates"])


@given(st.text(st.characters(codec="utf-8", exclude_characters="\n"), max_size=80), st.integers(0, 9))
def test_lines_that_differ_in_digits_only_have_one_key(text: str, digit: int) -> None:
    line = clean(text.encode())
    assert masked(line) == masked(re.sub("[0-9]", str(digit), line))


@given(st.randoms(use_true_random=False))
def test_the_order_of_lines_does_not_matter(rng: random.Random) -> None:
    lines = [line for case in GROUPS for line in case["lines"]]
    shuffled = rng.sample(lines, len(lines))
    assert [(t.text, t.count) for t in mined(shuffled)] == [(t.text, t.count) for t in mined(lines)]


def test_counts_and_examples_are_those_of_the_lines() -> None:
    (template,) = mined([f"step {n} of 900 took {n / 7:.3f} s" for n in range(500)])
    assert (str(template), template.count) == ("step <number> of <number> took <number> s", 500)
    assert template.examples[0] == "step 0 of 900 took 0.000 s"
    assert [piece.mask or piece.text for piece in template.pieces()][:3] == ["step ", "number", " of "]


def test_the_state_is_json_and_mining_goes_on_from_it() -> None:
    first = Miner()
    first.add([f"worker {n} is up" for n in range(10)])
    later = Miner.from_json(json.loads(json.dumps(first.to_json())))
    later.add(["worker 77 is up"])
    assert [(str(t), t.count) for t in later.templates()] == [("worker <number> is up", 11)]
    assert Miner.from_json({"version": 999}).templates() == []


def test_a_new_line_finds_its_template_by_its_open_places() -> None:
    templates = mined([f"removing {word}" for word in ("ftp", "telnet", "echo", "ntalk", "klogin", "rsync")])
    key = masked("removing chargen")
    assert [readable(text) for text in homes([key], templates).values()] == ["removing <word>"]
    assert homes([masked("something else")], templates) == {}


def test_a_million_distinct_lines_keep_few_in_memory() -> None:
    rng = random.Random(1)
    miner = Miner(most_keys=400)
    words = ["".join(rng.choices("abcdefghijklmnopqrstuvwxyz", k=6)) for _ in range(3000)]
    for _ in range(40):
        block = "\n".join(" ".join(rng.choices(words, k=rng.randint(2, 6))) for _ in range(250))
        miner.feed(block.encode())
    miner.feed(b"\n".join(b"loss %d" % n for n in range(1_000_000)))
    assert len(miner.templates()) <= 400
    assert miner.dropped > 0
    assert len(miner._key_of) <= MOST_FORMS
    assert ("loss <number>", 1_000_000) in [(str(t), t.count) for t in miner.templates()]


def test_a_line_of_ten_megabytes_is_cut() -> None:
    (template,) = mined(["x" * 10_000_000])
    assert len(template.text) <= 2_000


def test_blank_lines_and_nothing_have_no_template() -> None:
    assert mined(["", "   ", "\t"]) == []
    assert mined([]) == []


def test_grouping_does_not_open_what_says_nothing_else() -> None:
    assert grouped(["alpha", "beta", "gamma", "delta", "eps", "zeta", "eta"])["alpha"] == "alpha"
