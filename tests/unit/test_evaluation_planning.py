"""Plans hold each item once, end together, and are near what no schedule could beat."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assistant.errors import UsageError
from assistant.evaluation.plan_inputs import Priors
from assistant.evaluation.planning import RunningTrial, lower_bound, plan, replan, trials_for
from assistant.evaluation.work import Dataset, Estimate, Machines, Piece, Trial
from tests.unit.evaluation_worlds import World, all_items, best_possible, items_of, worlds

PRIORS = Priors.load()
SUITE = [Dataset(name, one.items, "serve {pieces}", "m") for name, one in PRIORS.by_dataset.items()]
EXPECTED = PRIORS.estimates(SUITE)


def machines(nodes: int, gpus: int = 8) -> Machines:
    return Machines(nodes, gpus, 16 * gpus, 15.0, 4.5)


@given(worlds())
def test_each_item_is_in_exactly_one_trial(world: World) -> None:
    sets, estimates, there = world
    found = plan(sets, estimates, there)
    assert items_of(piece for trial in found.trials for piece in trial.pieces) == all_items(sets)


@given(worlds(), st.data())
def test_what_is_done_or_running_is_left_out_and_nothing_else(world: World, data: st.DataObject) -> None:
    sets, estimates, there = world
    first = plan(sets, estimates, there).trials
    begun = data.draw(st.lists(st.sampled_from(first), unique_by=id, max_size=4))
    done = [one.pieces[0] for one in begun[::2]]
    running = [RunningTrial(one, 5.0) for one in begun[1::2]]
    other = replace(there, nodes=data.draw(st.integers(1, 5)))
    again = replan(sets, estimates, other, running=running, completed=done)
    gone = [*done, *(piece for one in running for piece in one.trial.pieces)]
    left = items_of(piece for trial in again.trials for piece in trial.pieces)
    assert {name: sorted(left.get(name, []) + items_of(gone).get(name, [])) for name in all_items(sets)} == all_items(sets)


@given(worlds())
def test_trials_keep_to_what_datasets_allow(world: World) -> None:
    sets, estimates, there = world
    by_name = {one.name: one for one in sets}
    for trial in plan(sets, estimates, there).trials:
        assert {by_name[piece.dataset].gpus for piece in trial.pieces} == {trial.gpus}
        whole = [piece for piece in trial.pieces if not by_name[piece.dataset].split]
        assert all((piece.first, piece.last) == (0, by_name[piece.dataset].items) for piece in whole)


@given(worlds())
def test_no_plan_is_shorter_than_the_bound(world: World) -> None:
    sets, estimates, there = world
    found = plan(sets, estimates, there)
    assert found.bound_s == pytest.approx(lower_bound(sets, estimates, there))
    assert found.makespan_s >= found.bound_s * (1 - 1e-9)


def test_trials_of_given_pieces_hold_just_these() -> None:
    pieces = [Piece("gsm8k", 100, 1300), Piece("rte", 0, 5), Piece("rte", 9, 277)]
    found = trials_for(pieces, {one.name: one for one in SUITE}, EXPECTED, machines(2))
    assert items_of(piece for one in found for piece in one.pieces) == items_of(pieces)
    assert trials_for([], {}, {}, machines(2)) == ()


@pytest.mark.parametrize("nodes", [1, 2, 4])
def test_the_suite_of_the_paper_is_planned_near_the_bound(nodes: int) -> None:
    found = plan(SUITE, EXPECTED, machines(nodes))
    assert found.makespan_s < 1.05 * found.bound_s


def test_small_datasets_share_trials_and_large_ones_are_split() -> None:
    trials = plan(SUITE, EXPECTED, machines(4)).trials
    holding = {one.name: sum(any(p.dataset == one.name for p in trial.pieces) for trial in trials) for one in SUITE}
    assert holding["gsm8k"] >= 9
    assert holding["copa"] == 1
    assert max(len({piece.dataset for piece in trial.pieces}) for trial in trials) >= 4


def test_datasets_with_long_metrics_are_first() -> None:
    trials = plan(SUITE, EXPECTED, machines(1)).trials
    long = ("alpaca-eval", "ds-1000", "mbpp")
    with_tail = [n for n, trial in enumerate(trials) if any(piece.dataset in long for piece in trial.pieces)]
    assert with_tail == list(range(len(with_tail)))
    assert all(trials[n].pieces[0].dataset in long for n in with_tail)


def test_a_dataset_whose_metric_is_as_long_as_the_rest_is_split_so_that_it_can_begin_soon() -> None:
    sets = [Dataset("code", 100, "run {out}", "m"), *(Dataset(f"d{n}", 100, "run {out}") for n in range(20))]
    estimates = {one.name: Estimate(1, 100, 200 if one.name == "code" else 0) for one in sets}
    there = Machines(1, 8, 8, 1, 1)
    found = plan(sets, estimates, there)
    assert sum(any(piece.dataset == "code" for piece in trial.pieces) for trial in found.trials) > 1
    assert found.makespan_s < 1.1 * found.bound_s


def test_loading_again_stays_a_small_part() -> None:
    for nodes in (1, 4, 16):
        trials = plan(SUITE, EXPECTED, machines(nodes)).trials
        work = sum(trial.seconds for trial in trials)
        assert 15.0 * (len(trials) - 8 * nodes) < 0.02 * work


def test_slots_that_are_still_busy_get_less() -> None:
    busy = [RunningTrial(Trial((Piece("gsm8k", 0, 100),), 0, 0), 900.0)] * 8
    trials = plan(SUITE, EXPECTED, machines(4), running=busy).trials
    assert max(trial.seconds for trial in trials) > 100 + min(trial.seconds for trial in trials)


def test_what_was_never_measured_is_felt_out_in_smaller_pieces_where_pieces_cost_nothing() -> None:
    served, alone = (Dataset("a", 1000, command) for command in ("serve {pieces}", "run {out}"))
    for one, known, pieces in ((served, 0, 10), (served, 1, 7), (alone, 0, 1)):
        found = plan([one], {"a": Estimate(0, 100, 0, known)}, machines(1, 1))
        assert sum(len(trial.pieces) for trial in found.trials) == pieces


def test_nothing_left_is_no_trial() -> None:
    assert plan([], {}, machines(1)).trials == ()
    done = [Piece(one.name, 0, one.items) for one in SUITE]
    assert plan(SUITE, EXPECTED, machines(1), completed=done).trials == ()


def test_a_dataset_wider_than_a_node_is_refused() -> None:
    with pytest.raises(UsageError, match="wide needs 16 GPUs of one node, and nodes have 8"):
        plan([Dataset("wide", 1, "run {out}", gpus=16)], {"wide": Estimate(0, 1, 0)}, machines(4))


@st.composite
def tiny(draw: st.DrawFn) -> World:
    there = Machines(1, draw(st.integers(1, 3)), draw(st.integers(1, 2)), draw(st.integers(0, 3)), draw(st.integers(1, 3)))
    sets, estimates, left = [], {}, 4
    for name in draw(st.sampled_from(["a", "ab", "abc"])):
        items = draw(st.integers(1, max(1, left - 1)))
        split = draw(st.booleans())
        left -= items if split else 1
        sets.append(Dataset(name, items, "run {out}", split=split))
        estimates[name] = Estimate(*(draw(st.integers(0, 9)) for _ in range(3)))
    return sets, estimates, there


@given(tiny())
@settings(max_examples=150, deadline=None)
def test_of_all_schedules_of_tiny_instances_none_beats_the_bound(world: World) -> None:
    sets, estimates, there = world
    assert best_possible(sets, estimates, there) >= lower_bound(sets, estimates, there) - 1e-9


def test_the_bound_is_met_where_a_schedule_without_a_gap_exists() -> None:
    sets = [Dataset("a", 2, "run {out}"), Dataset("b", 2, "run {out}")]
    estimates = {"a": Estimate(0, 4, 0), "b": Estimate(0, 4, 0)}
    there = Machines(1, 2, 1, 1, 2)
    assert best_possible(sets, estimates, there) == lower_bound(sets, estimates, there) == 7


@pytest.mark.parametrize(
    ("estimate", "split", "bound"),
    [
        (Estimate(0, 80, 0), True, 3 + 20),  # the area
        (Estimate(0, 80, 0), False, 3 + 80),  # in one go
        (Estimate(8, 80, 0), True, 3 + 8 + 20),  # prepared before
        (Estimate(0, 80, 50), True, 3 + 20 + 50),  # its metric behind
    ],
)
def test_each_part_of_the_bound_counts(estimate: Estimate, split: bool, bound: float) -> None:
    assert lower_bound([Dataset("a", 80, "run {out}", split=split)], {"a": estimate}, Machines(2, 2, 1, 1, 2)) == bound


def test_processors_bound_many_metrics() -> None:
    sets = [Dataset(f"d{n}", 4, "run {out}") for n in range(10)]
    estimates = {one.name: Estimate(0, 4, 100) for one in sets}
    assert lower_bound(sets, estimates, Machines(1, 1, 2, 1, 2)) == 3 + 4 + 1000 / 2


def test_of_a_dataset_that_cannot_be_split_a_part_is_not_enough() -> None:
    one = [Dataset("a", 10, "run {out}", split=False)]
    found = plan(one, {"a": Estimate(0, 10, 0)}, machines(1), completed=[Piece("a", 0, 9)])
    assert [trial.pieces for trial in found.trials] == [(Piece("a", 0, 10),)]
    assert plan(one, {"a": Estimate(0, 10, 0)}, machines(1), completed=[Piece("a", 0, 10)]).trials == ()
