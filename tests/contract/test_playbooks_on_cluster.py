"""Every cluster fixture of every shipped playbook: the whole engine on the simulated cluster, from the log lines to the end."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path

import pytest

from assistant.cli.playbooks import play_fixture
from assistant.content.playbooks import (
    DRIVER,
    HAPPENINGS,
    ClusterFixture,
    Fixture,
    FixtureRun,
    Happening,
    Playbook,
    playbooks,
    read_playbook,
)
from assistant.diagnose.knowledge import Knowledge
from assistant.recover.rehearsal import try_playbook

BOOKS = list(playbooks().values())
FIXTURES = [
    pytest.param(book, fixture, id=f"{book.name}: {fixture.name}")
    for book in BOOKS
    for fixture in book.fixture
    if fixture.cluster is not None
]


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    return Knowledge.load()


@pytest.mark.parametrize(("book", "fixture"), FIXTURES)
def test_a_playbook_does_on_the_cluster_what_its_fixture_says(book: Playbook, fixture: Fixture, knowledge: Knowledge) -> None:
    assert play_fixture(book, fixture, knowledge=knowledge).problems == ()


@pytest.mark.parametrize("book", [book for book in BOOKS if DRIVER not in book.handles], ids=lambda book: book.name)
def test_every_shipped_playbook_is_played_on_the_cluster(book: Playbook) -> None:
    # no diagnosis chooses the one for drivers: tests/scenarios/test_drivers.py plays it from the jobs by which it is chosen
    assert any(fixture.cluster is not None for fixture in book.fixture)


PAGE = Path(__file__).parents[2] / "docs" / "playbooks.md"


def test_the_page_on_playbooks_names_every_key_and_happening() -> None:
    page = PAGE.read_text(encoding="utf-8")
    keys = [field.name for kind in (ClusterFixture, FixtureRun, Happening, Fixture) for field in dataclasses.fields(kind)]
    assert [word for word in (*keys, *HAPPENINGS) if f"`{word}" not in page and f"{word} =" not in page] == []


def test_the_page_on_playbooks_shows_fixtures_that_pass(knowledge: Knowledge, tmp_path: Path) -> None:
    rehearsed, played = re.findall(r"```toml\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    known = playbooks()
    for name, example in (("storage", rehearsed), ("faulty_node", played)):
        path = tmp_path / f"{name}.toml"
        path.write_text(f"{known[name].path.read_text(encoding='utf-8')}\n{example}", encoding="utf-8")
        book = read_playbook(path)
        fixture = book.fixture[-1]
        came = try_playbook(book, fixture) if fixture.calls else play_fixture(book, fixture, knowledge=knowledge)
        assert came.problems == ()
