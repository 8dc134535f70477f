"""Every cluster fixture of every shipped playbook: the whole engine on the simulated cluster, from the log lines to the end."""

from __future__ import annotations

import pytest

from assistant.content.playbooks import Fixture, Playbook, playbooks
from assistant.diagnose.knowledge import Knowledge
from assistant.doors.fixture_play import play_fixture

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


@pytest.mark.parametrize("book", BOOKS, ids=lambda book: book.name)
def test_every_shipped_playbook_is_played_on_the_cluster(book: Playbook) -> None:
    assert any(fixture.cluster is not None for fixture in book.fixture)
