"""One body of tests over every shipped playbook: it is well formed, names only what exists, and does what its fixtures say."""

from __future__ import annotations

import pytest

from assistant.content.playbooks import DRIVER, Fixture, Playbook, Step, choose_playbook, playbooks
from assistant.content.reasons import reasons
from assistant.records import Action, Category, DecidedBy, Diagnosis, Risk
from assistant.recover.rehearsal import check_playbook, try_playbook
from assistant.tooling import found

REASONS = tuple(sorted(reasons()))
BOOKS = list(playbooks().values())
FIXTURES = [
    pytest.param(book, fixture, id=f"{book.name}: {fixture.name}")
    for book in BOOKS
    for fixture in book.fixture
    if fixture.calls is not None
]


def diagnosed(reason: str, action: Action, category: Category = Category.INFRASTRUCTURE) -> Diagnosis:
    return Diagnosis(reason, category, action, 0.9, DecidedBy.RULE, (), (), (), "it broke", "mend it")


@pytest.mark.parametrize("book", BOOKS, ids=lambda book: book.name)
def test_a_playbook_names_only_what_exists(book: Playbook) -> None:
    assert check_playbook(book, found(), REASONS) == []


CHECKS = [(book, step) for book in BOOKS for step in book.step if step.use == "check_nodes"]


@pytest.mark.parametrize(("book", "step"), CHECKS, ids=[book.name for book, _ in CHECKS])
def test_a_check_of_nodes_is_told_when_the_job_began(book: Playbook, step: Step) -> None:
    assert step.with_["job_started"] == "{run.began}"


@pytest.mark.parametrize(("book", "fixture"), FIXTURES)
def test_a_playbook_does_what_its_fixture_says(book: Playbook, fixture: Fixture) -> None:
    assert try_playbook(book, fixture).problems == ()


@pytest.mark.parametrize(("book", "fixture"), FIXTURES)
def test_a_fixture_is_one_that_its_playbook_is_chosen_for(book: Playbook, fixture: Fixture) -> None:
    if DRIVER in book.handles:
        return  # no diagnosis chooses it: a driver that gave up is known by its jobs
    action = fixture.action or Action.NONE
    assert choose_playbook(diagnosed(fixture.reason, action), playbooks()) == book


@pytest.mark.parametrize("reason", REASONS)
@pytest.mark.parametrize("action", Action)
def test_every_reason_has_a_playbook_whatever_the_action(reason: str, action: Action) -> None:
    assert choose_playbook(diagnosed(reason, action, reasons()[reason].category), playbooks()) is not None


@pytest.mark.parametrize("reason", [name for name in REASONS if reasons()[name].prior is not None])
def test_what_a_person_must_fix_is_restarted_only_where_a_confirmation_is_allowed(reason: str) -> None:
    chosen = choose_playbook(diagnosed(reason, Action.FIX_AND_RESUBMIT, Category.SCRIPT), playbooks())
    assert chosen is not None
    assert not chosen.restarts or chosen.name in ("out_of_memory", "model_loading")


@pytest.mark.parametrize("reason", ["cancelled", "no_failure"])
def test_what_is_no_failure_is_left_alone(reason: str) -> None:
    chosen = choose_playbook(diagnosed(reason, Action.NONE, Category.NONE), playbooks())
    assert chosen is not None
    assert chosen.step == ()


@pytest.mark.parametrize("book", [book for book in BOOKS if book.restarts], ids=lambda book: book.name)
def test_no_playbook_cordons_for_an_action_other_than_cordon(book: Playbook) -> None:
    cordons = [step for step in book.step if step.use == "cordon_node"]
    only_then = book.actions == (Action.CORDON_AND_RESTART,)
    assert only_then or all(step.when == "{diagnosis.cordon}" for step in cordons)


@pytest.mark.parametrize("book", BOOKS, ids=lambda book: book.name)
def test_what_ends_a_job_is_asked_only_of_one_that_runs(book: Playbook) -> None:
    ending = [step for step in book.step if found()[step.use].risk is Risk.DISRUPT]
    asked = [step for step in book.step if step.use == "restart_prospect" and step.when == "{job.running}"]
    of_lost_weights = {f"{{{step.name}.lost}}" for step in asked}  # of a job that lives alone
    assert all(step.when == "{job.running}" or step.when in of_lost_weights for step in ending)
