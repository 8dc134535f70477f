"""Training the line ranker, judging confidence and what `doctor` says of both, from the shell."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from assistant.cli.output import Exit
from assistant.llm import embedded
from assistant.llm.ranker import FILE, load_ranker

Run = Callable[..., Any]


@pytest.fixture
def site(home: Path) -> Path:
    """A site with content of its own, named in the settings."""
    folder = home / "site"
    (folder / "knowledge" / "ranker").mkdir(parents=True)
    config = Path(os.environ["XDG_CONFIG_HOME"]) / "nightshift" / "config.toml"
    config.parent.mkdir(parents=True)
    config.write_text(f'content = "{folder}"\n')
    return folder


@pytest.fixture
def cases(tmp_path: Path) -> Path:
    """Labelled cases: enough for a curve."""
    for number in range(6):
        folder = tmp_path / "cases" / f"c{number}"
        folder.mkdir(parents=True)
        (folder / "job.log").write_text("starting\nTraceback (most recent call last):\n  File \"a.py\", line 1\nKeyError: 'a'\n")
        (folder / "label.toml").write_text(f'reason = "{"key_error" if number else "os_error"}"\nlines = [4]\n')
    return tmp_path / "cases"


@pytest.mark.slow
def test_a_site_trains_a_ranker_of_its_own_that_then_counts(cli: Run, site: Path) -> None:
    wordings = '"flux capacitor {n} is depleted"\nflux drained on {host}\nthe flux is gone\n'
    (site / "knowledge" / "ranker" / "hang.toml").write_text(f"reason = 'hang'\nroot = '''\n{wordings}'''\n")
    said = cli("model", "train-ranker", "--no-check", "--json")
    assert said.code == Exit.DONE, said.err
    (about,) = said.objects
    own = site / "knowledge" / FILE
    assert about["file"] == str(own)
    assert about["bytes"] == own.stat().st_size < 3 << 20
    assert cli("model", "show", "--json").objects[0]["digest"] == about["digest"]
    (score,) = load_ranker(own).rank(["flux capacitor 9 is depleted"])
    assert next(iter(score.reasons)) == "hang"


def test_without_a_site_a_ranker_needs_a_place(cli: Run) -> None:
    said = cli("model", "train-ranker")
    assert said.code == Exit.USAGE
    assert "--out" in said.err


def test_the_doctor_says_what_a_broken_ranker_means(cli: Run, site: Path) -> None:
    (site / "knowledge" / FILE).write_text("broken")
    found = {finding["name"]: finding for finding in cli("doctor", "--json").objects}
    assert found["ranker"]["health"] == "warn"
    assert "no guesses" in found["ranker"]["text"]
    assert "train-ranker" in found["ranker"]["todo"]


def test_a_broken_ranker_does_not_keep_a_log_from_being_diagnosed(cli: Run, site: Path, tmp_path: Path) -> None:
    (site / "knowledge" / FILE).write_text("broken")
    (tmp_path / "job.log").write_text("starting\nflux capacitor 3 cannot go on\nleaving\n")
    said = cli("diagnose", "--json", tmp_path / "job.log")
    assert said.code == Exit.DONE
    assert said.objects[0]["reason"] == "unknown"


@pytest.mark.slow
def test_confidence_is_judged_on_labelled_cases_and_curves_are_written(cli: Run, cases: Path, tmp_path: Path) -> None:
    out = tmp_path / "calibration.toml"
    said = cli("bench", "calibration", cases, "--write", out, "--json")
    assert said.code == Exit.DONE, said.err
    with_encoder = ["line ranker with the encoder"] if embedded.status().works else []
    assert [table["of"] for table in said.objects] == ["rules, as computed", "rules", "linear line ranker", *with_encoder]
    assert said.objects[0]["cases"] == 6
    assert said.objects[0]["right"] == pytest.approx(5 / 6)
    assert "6 cases of cases; wordings hidden: true" in out.read_text()


def test_a_folder_without_labels_is_refused(cli: Run, tmp_path: Path) -> None:
    said = cli("bench", "calibration", tmp_path)
    assert said.code == Exit.USAGE
    assert "label" in said.err


def test_bench_still_takes_paths_of_logs(cli: Run, tmp_path: Path) -> None:
    (tmp_path / "job.log").write_text("starting\nstep 1 loss 2.0\n")
    said = cli("bench", "--runs", "1", tmp_path / "job.log", "--json")
    assert said.code == Exit.DONE, said.err
    assert [figure["unit"] for figure in said.objects] == ["ms", "ms", "MB/s", "s"]
