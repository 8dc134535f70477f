"""`nightshift report failures`, `reliability` and `job`: with a store that they only read, without one, and what they refuse."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assistant.cli.output import Exit
from assistant.ports import JumpingClock
from assistant.store import Store
from tests.cli.conftest import Run
from tests.unit.failures_here import SITE_CASES, SITE_ROWS, at, fill, text_of


@pytest.fixture
def sacct_file(tmp_path: Path) -> Path:
    path = tmp_path / "sacct.txt"
    path.write_text(text_of(SITE_ROWS))
    return path


@pytest.fixture
def site_store(store_path: Path) -> Path:
    clock = JumpingClock(at(0))
    with Store(store_path, clock) as store:
        fill(store, clock, SITE_CASES)
    return store_path


def rows_of(made: dict[str, object], key: str) -> list[dict[str, object]]:
    return made["figures"][key]["rows"]  # type: ignore[index,no-any-return]


def test_reasons_are_those_of_the_store(cli: Run, sacct_file: Path, site_store: Path) -> None:
    said = cli("report", "failures", sacct_file, "--json")
    assert said.code == 0, said.err
    (made,) = said.objects
    assert {row["reason"]: row["failures"] for row in rows_of(made, "by_reason")}["nvlink_error"] == 1
    assert made["facts"]["incidents"] == "5 in the store, 4 of them about a run that is counted here"
    (without,) = cli("report", "failures", sacct_file, "--no-store", "--json").objects
    assert {row["reason"] for row in rows_of(without, "by_reason")} == {"failed", "node_fail", "all"}


@pytest.mark.parametrize("words", [("failures",), ("reliability",), ("job", "101")])
def test_nothing_is_written_into_the_store(words: tuple[str, ...], cli: Run, sacct_file: Path, site_store: Path) -> None:
    with Store(site_store, JumpingClock(at(0))) as store:
        head = store.head()
        before = "\n".join(store.rows("SELECT 1")[0].keys()) + "".join(
            str(tuple(row)) for row in store.rows("SELECT * FROM incidents")
        )
    said = cli("report", *words, sacct_file)
    assert said.code == 0, said.err
    assert "n = " in said.out or "%" in said.out
    with Store(site_store, JumpingClock(at(0))) as store:
        assert store.head() == head
        after = "\n".join(store.rows("SELECT 1")[0].keys()) + "".join(
            str(tuple(row)) for row in store.rows("SELECT * FROM incidents")
        )
    assert after == before


@pytest.mark.parametrize("words", [("failures",), ("reliability",), ("job", "101")])
def test_a_store_is_never_made_for_a_report(words: tuple[str, ...], cli: Run, sacct_file: Path, store_path: Path) -> None:
    said = cli("report", *words, sacct_file)
    assert said.code == 0, said.err
    assert not store_path.exists()


def test_goodput_and_its_files(cli: Run, sacct_file: Path, site_store: Path, tmp_path: Path) -> None:
    said = cli("report", "reliability", sacct_file, "--html", tmp_path / "r.html", "--csv", tmp_path / "r", "--json")
    (made,) = said.objects
    parts = rows_of(made, "goodput_parts")
    assert sum(float(str(row["gpu_hours"])) for row in parts) == pytest.approx(made["headline"]["allocated GPU hours"]["value"])
    text = (tmp_path / "r.html").read_text()
    assert "From allocated to productive GPU hours" in text
    assert "Infinity" not in said.out + text
    assert "NaN" not in said.out
    json.loads(said.out, parse_constant=lambda word: pytest.fail(f"{word} is no JSON"))
    names = {path.name for path in (tmp_path / "r").iterdir()}
    assert names == {f"{key}.csv" for key in made["figures"]} | {"left_out.csv"}
    assert "inf" not in (tmp_path / "r" / "failure_rates.csv").read_text().split("\n", 1)[1]


def test_what_a_failure_is_taken_to_cost_can_be_said(cli: Run, sacct_file: Path) -> None:
    ratios = []
    for minutes in ("0", "600"):
        (made,) = cli("report", "reliability", sacct_file, "--checkpoint-min", minutes, "--start-min", "0", "--json").objects
        ratios.append(rows_of(made, "model")[1]["ratio"]["value"])  # type: ignore[index]
    assert ratios[0] > ratios[1]
    assert cli("report", "reliability", sacct_file, "--checkpoint-min", "-5").code == Exit.USAGE


def test_the_life_of_a_job(cli: Run, sacct_file: Path, site_store: Path) -> None:
    (made,) = cli("report", "job", "102", sacct_file, "--json").objects
    assert [row["job"] for row in rows_of(made, "attempts")] == ["100", "101", "102"]
    said = cli("report", "job", "4711", sacct_file)
    assert said.code == Exit.USAGE
    assert "neither in" in said.err
    assert "Traceback" not in said.err


def test_names_are_gone_where_asked(cli: Run, sacct_file: Path, site_store: Path, tmp_path: Path) -> None:
    for kind in ("failures", "reliability"):
        said = cli("report", kind, sacct_file, "--anonymise", "--name", "alpha", "--html", tmp_path / "a.html", "--json")
        shown = said.out + (tmp_path / "a.html").read_text()
        for name in ("ann", "bob", "node08", "node12", "sacct.txt", "alpha", "job 999"):
            assert f'"{name}' not in shown, name
            assert f">{name}" not in shown, name
        assert "node 1" in shown


def test_a_bill_needs_a_price(cli: Run, sacct_file: Path) -> None:
    said = cli("report", "cost", sacct_file)
    assert (said.code, "--price" in said.err) == (Exit.USAGE, True)
    for price in ("inf", "1e308", "1000001"):
        said = cli("report", "cost", sacct_file, "--price", price)
        assert (said.code, "at most 1,000,000" in said.err, "RuntimeWarning" in said.err) == (Exit.USAGE, True, False)
    assert cli("report", "cost", sacct_file, "--price", "2", "--currency", "<b>").code == Exit.USAGE
    (made,) = cli("report", "cost", sacct_file, "--price", "2", "--currency", "CHF", "--json").objects
    assert made["headline"]["cost"]["unit"] == "CHF"
    assert made["headline"]["cost"]["value"] == pytest.approx(2 * made["headline"]["GPU hours"]["value"])


@pytest.mark.parametrize("words", [("failures",), ("reliability",), ("cost", "--price", "2"), ("job", "SITE")])
@pytest.mark.parametrize("form", [(), ("--json",)], ids=["text", "json"])
def test_a_secret_in_names_is_shown_by_no_report(cli: Run, tmp_path: Path, words: tuple[str, ...], form: tuple[str, ...]) -> None:
    secret = "hf_" + "aB3dE5gH7jK9mN1pQ3sT5vX7zA9cD1fG"
    header, *rows = text_of(SITE_ROWS).splitlines()
    columns = header.split("|")
    made = [dict(zip(columns, row.split("|"), strict=True)) for row in rows]
    for row in made:
        row |= {"JobName": f"run-{secret}\x1b[31m", "User": f"u-{secret}", "Account": f"a-{secret}"}
    path = tmp_path / "names.txt"
    path.write_text("\n".join([header, *("|".join(row[column] for column in columns) for row in made)]) + "\n")
    said = cli("report", *(made[0]["JobID"] if word == "SITE" else word for word in words), path, "--no-store", *form)
    assert said.code == 0, said.err
    assert secret not in said.out
    assert "\x1b" not in said.out
