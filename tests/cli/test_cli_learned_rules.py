"""`nightshift rules` for learned rules: learn, list, show, test, retire, activate, export; and packing by tokens."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.content.reading import filters
from tests.cli.conftest import Run

ID = "learned.fluxtrain-cache-hit-1"


@pytest.fixture
def good(home: Path) -> Path:
    lines = [f"fluxtrain: cache hit ratio 0.{n % 100:02} on worker {n % 8}" for n in range(120)]
    path = home / "good.log"
    path.write_text("\n".join(["+ python train_flux.py", *lines, "fluxtrain: training finished"]) + "\n")
    return path


@pytest.fixture
def bad(home: Path, good: Path) -> Path:
    path = home / "bad.log"
    path.write_text(
        good.read_text().replace("training finished", "flux lost on coil 3") + "Traceback (most recent call last):\nValueError: x\n"
    )
    return path


def test_a_rule_is_learned_shown_tested_and_exported(cli: Run, good: Path, bad: Path, home: Path) -> None:
    assert cli("rules", "learn", good, "--dry-run", "--json").objects[0]["state"] == "trial"
    assert cli("rules", "list", "--learned", "--json").objects == []
    assert cli("rules", "learn", good).code == 0
    (row,) = cli("rules", "list", "--learned", "--json").objects
    assert (row["id"], row["state"], row["by"], row["task"]) == (ID, "trial", "templates", "-/-/-/train_flux.py")
    assert "proposed by  templates" in cli("rules", "show", ID).out
    tried = cli("rules", "test", ID, bad)
    assert tried.out.splitlines()[-1] == f"{ID}: 120 lines in 1 logs; its proof holds"
    assert cli("rules", "export").out == ""
    assert cli("rules", "activate", ID).out.startswith(f"{ID} is active")
    assert cli("rules", "export", "--to", home / "site").code == 0
    assert ID in [entry.id for entry in filters(home / "site")]


def test_a_retired_rule_counts_no_more_and_must_prove_itself_again(cli: Run, good: Path) -> None:
    cli("rules", "learn", good)
    asked = cli("rules", "retire", ID)
    assert (asked.code != 0, "--why" in asked.err) == (True, True)
    assert cli("rules", "retire", ID, "--why", "it hid too much").out == f"{ID} is retired: it hid too much\n"
    assert cli("rules", "export", "--all").out == ""
    assert cli("rules", "activate", ID, "--json").objects[0]["state"] == "active"


def test_an_unknown_rule_is_named(cli: Run, good: Path) -> None:
    for words in (["retire", "nix", "--why", "x"], ["activate", "nix"], ["test", "nix", str(good)], ["show", "nix"]):
        said = cli("rules", *words)
        assert said.code != 0
        assert "nix" in said.err
        assert "Traceback" not in said.err


@pytest.mark.parametrize(
    ("pattern", "said"),
    [
        (r"^fluxtrain: cache hit ratio [\d.]+ on worker \d+$", "120 lines in 1 logs; its proof holds"),
        ("^.*$", "its proof fails"),
        ("^(a+)+$", "0 lines in 1 logs; its proof fails"),
        ("^fluxtrain((", "its proof fails"),
    ],
)
def test_a_pattern_can_be_tried_before_it_is_a_rule(cli: Run, good: Path, pattern: str, said: str) -> None:
    tried = cli("rules", "test", "--pattern", pattern, good)
    assert tried.code == 0
    assert said in tried.out


def test_a_log_is_packed_into_tokens_with_what_is_new_first(cli: Run, good: Path, bad: Path) -> None:
    without = cli("logs", "compress", bad, "--tokens", "300", "--json").objects[0]
    assert without["tokens"] <= 300
    assert "Lines unlike" not in without["text"]
    cli("rules", "learn", good)
    text = cli("logs", "compress", bad, "--tokens", "300").out
    assert "flux lost on coil 3" in text.partition("## Lines unlike the last good run")[2].partition("##")[0]
    assert "of fluxtrain: cache hit ratio <number> on worker <number>" in text
