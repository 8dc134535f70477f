"""`nightshift report user`, `node` and `week` on the command line: forms, errors, names, and links where files are written."""

from __future__ import annotations

from pathlib import Path

import duckdb
import pytest

from assistant.cli.output import Exit
from assistant.ports import JumpingClock
from assistant.store import Store
from tests.cli.conftest import Run
from tests.unit.failures_here import SITE_CASES, SITE_ROWS, at, fill, text_of

SUBJECTS = [("user", "ann"), ("user", "ALL"), ("node", "node08"), ("week",)]


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


@pytest.mark.parametrize("words", SUBJECTS)
def test_every_form_has_the_report(words: tuple[str, ...], cli: Run, sacct_file: Path, site_store: Path, tmp_path: Path) -> None:
    with Store(site_store, JumpingClock(at(0))) as store:
        head = store.head()
    result = cli("report", *words, sacct_file, "--html", tmp_path / "r.html", "--csv", tmp_path / "r", "--json")
    assert result.code == 0, result.err
    (made,) = result.objects
    assert made["report"] == words[0]
    assert {path.name for path in (tmp_path / "r").iterdir()} == {f"{key}.csv" for key in made["figures"]} | {"left_out.csv"}
    assert made["title"] in (tmp_path / "r.html").read_text()
    texts = cli("report", *words, sacct_file)
    assert texts.code == 0, texts.err
    assert made["title"] in texts.out
    with Store(site_store, JumpingClock(at(0))) as store:
        assert store.head() == head


@pytest.mark.parametrize(
    "words", [*SUBJECTS, ("cluster",), ("failures",), ("reliability",), ("cost", "--price", "2"), ("job", "100")]
)
def test_parquet_has_the_numbers_of_json(
    words: tuple[str, ...], cli: Run, sacct_file: Path, site_store: Path, tmp_path: Path
) -> None:
    result = cli("report", *words, sacct_file, "--parquet", tmp_path / "p", "--json")
    assert result.code == 0, result.err
    (made,) = result.objects
    assert {path.stem for path in (tmp_path / "p").iterdir()} == {*made["figures"], "left_out"}
    compared = 0
    for key, figure in made["figures"].items():
        table = duckdb.read_parquet(str(tmp_path / "p" / f"{key}.parquet"))
        for place, row in enumerate(figure.get("rows", [])):
            stored = dict(zip(table.columns, table.fetchall()[place], strict=True))
            for name, value in row.items():
                if isinstance(value, dict):
                    assert [stored[name], stored[f"{name}_low"], stored[f"{name}_n"]] == [value["value"], value["low"], value["n"]]
                elif isinstance(value, int | float):
                    compared += 1
                    assert float(stored[name]) == value
                elif value is None:
                    assert stored[name] is None
    assert compared > 0


@pytest.mark.parametrize("words", SUBJECTS)
def test_a_store_is_never_made(words: tuple[str, ...], cli: Run, sacct_file: Path, store_path: Path) -> None:
    assert cli("report", *words, sacct_file).code == 0
    assert not store_path.exists()


@pytest.mark.parametrize("words", SUBJECTS)
def test_no_name_is_shown_where_asked(words: tuple[str, ...], cli: Run, sacct_file: Path, site_store: Path, tmp_path: Path) -> None:
    result = cli("report", *words, sacct_file, "--anonymise", "--html", tmp_path / "a.html", "--json")
    assert result.code == 0, result.err
    texts = result.out + (tmp_path / "a.html").read_text()
    for name in ("ann", "bob", "node08", "node12", "sacct.txt", "pretrain", "team"):
        assert f'"{name}' not in texts, name
        assert f">{name}" not in texts, name


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("user", "nobody"), "wanted one who has a job"),
        (("node", "node99"), "wanted one of the"),
        (("week", "--of", "2026-13-01"), "wanted a day"),
        (("week", "--of", "0001-01-01"), "wanted a day from 1990"),
        (("week", "--of", "9999-12-31"), "wanted a day from 1990"),
        (("week", "--zone", "Mars/Olympus"), "no such zone"),
    ],
)
def test_what_is_not_there_is_an_error_that_says_what_to_do(
    words: tuple[str, ...], expected: str, cli: Run, sacct_file: Path
) -> None:
    result = cli(
        "report", words[0], *(words[1:2] if words[0] != "week" else ()), sacct_file, *(words[1:] if words[0] == "week" else ())
    )
    assert result.code == Exit.USAGE
    assert expected in result.err
    assert "Traceback" not in result.err


def test_a_week_that_is_asked_for_counts_its_jobs(cli: Run, sacct_file: Path) -> None:
    (made,) = cli("report", "week", sacct_file, "--of", "2026-01-01", "--zone", "UTC", "--json").objects
    assert made["headline"]["jobs"]["value"] == len(SITE_ROWS)
    (made,) = cli("report", "week", sacct_file, "--of", "2026-01-05", "--zone", "UTC", "--json").objects
    assert made["headline"]["jobs"]["value"] == 0
    assert any("200" not in remark["text"] and "(-100.0 %)" in remark["text"] for remark in made["remarks"])


@pytest.mark.parametrize("option", ["--html", "--csv"])
def test_no_report_is_written_through_a_link(option: str, cli: Run, sacct_file: Path, tmp_path: Path) -> None:
    victim = tmp_path / "victim"
    victim.write_text("precious")
    if option == "--csv":
        (tmp_path / "out").mkdir()
        (tmp_path / "out" / "left_out.csv").symlink_to(victim)
    else:
        (tmp_path / "out").symlink_to(victim)
    result = cli("report", "user", "ann", sacct_file, option, tmp_path / "out")
    assert result.code == Exit.USAGE
    assert "found a link" in result.err
    assert "remove it" in result.err
    assert victim.read_text() == "precious"
