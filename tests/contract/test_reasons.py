"""Every file in knowledge/reasons: its patterns compile, match their own lines, leave those of others alone, and are cheap."""

from __future__ import annotations

import re
import time
from collections import defaultdict
from functools import cache

import pytest

from assistant.content.reasons import Herring, Reason, Role, Signature, reasons
from assistant.diagnose.readers.exceptions import exception_table
from assistant.records import Action, Category
from assistant.rules import matching
from assistant.rules.loading import load_patterns

NAMES_OF_THE_PAPER = """
nvlink_error cuda_error node_failure ecc_error network_error connection_error s3_storage_error nccl_timeout_error nccl_remote_error
dataloader_killed attribute_error out_of_memory_error runtime_error assertion_error value_error zero_division_error
model_loading_error dataset_loading_error
file_not_found_error os_error type_error name_error permission_error import_error key_error syntax_error argument_error
called_process_error index_error
"""
PAPER = NAMES_OF_THE_PAPER.split()

SHARED: dict[tuple[str, str], str] = {
    ("runtime_error.loss_scale", "loss_spike.scale_floor"): "a divergence after healthy steps, a fault of the set-up before them",
    ("runtime_error.nan_guard", "loss_spike.scale_floor"): "a divergence after healthy steps, a fault of the set-up before them",
}
"""(signature whose example it is, root of another reason that weighs as much): why both may speak for the line."""


def own_entries(reason: Reason) -> tuple[Signature | Herring, ...]:
    return (*reason.signature, *reason.herring)


ALL = sorted(reasons())
ENTRIES = [entry for reason in reasons().values() for entry in own_entries(reason)]
SIGNATURES = [entry for entry in ENTRIES if isinstance(entry, Signature)]
Found = tuple[list[tuple[int, str]], set[tuple[int, int]]]
"""Examples as (entry, line), and the pairs (entry, example) that Hyperscan found."""
SPEAKING = (Role.ROOT, Role.SYMPTOM, Role.CONFIRMATION)


def owner(entry: Signature | Herring) -> str:
    return entry.id.split(".")[0]


@cache
def compiled(pattern: str, caseless: bool) -> re.Pattern[str]:
    return re.compile(pattern, re.IGNORECASE if caseless else 0)


def matches(entry: Signature | Herring, line: str) -> bool:
    return compiled(entry.pattern, entry.caseless).search(line) is not None


def scan(lines: list[str]) -> set[tuple[int, int]]:
    """Return (entry, line) pairs that Hyperscan finds, with the patterns that the product has compiled and keeps."""
    patterns = load_patterns()
    numbers = {entry.id: number for number, entry in enumerate(ENTRIES)}
    found: set[tuple[int, int]] = set()
    for number, line in enumerate(lines):
        entries = [patterns.entry(match) for match in set(patterns.telling(line.encode())[0::2]) if patterns.is_entry(match)]
        found |= {(numbers[entry.id], number) for entry in entries}
    return found


@pytest.fixture(scope="module")
def found_together() -> Found:
    """Return the examples as (entry, line), and which entries Hyperscan finds in which example."""
    examples = [(number, line) for number, entry in enumerate(ENTRIES) for line in entry.examples]
    return examples, scan([line for _, line in examples])


def test_every_reason_of_the_paper_has_its_file() -> None:
    assert [name for name in ALL if reasons()[name].prior is not None] == sorted(PAPER)


def test_the_table_of_exceptions_names_reasons_that_exist_and_each_class_once() -> None:
    table = exception_table()
    named = {entry.reason for entries in (table.errno, table.status, table.endings) for entry in entries}
    named |= {*table.http.values(), *table.classes, *table.words, *table.libraries}
    assert named <= set(ALL)
    assert len(table.by_class) == sum(len(names.split()) for names in table.classes.values()), "a class under two reasons"
    assert not table.symptom_classes & set(table.by_class)


@pytest.mark.parametrize("name", ALL)
def test_a_reason_says_what_it_means_and_what_to_do(name: str) -> None:
    reason = reasons()[name]
    assert isinstance(reason.category, Category)
    assert isinstance(reason.action, Action)
    for text in (reason.title, reason.meaning, reason.remedy, *reason.tests):
        assert text.strip() == text
        assert len(text) > 3
    assert reason.tests, "name the cheapest check"
    assert reason.signature
    assert all(entry.id.startswith(f"{name}.") for entry in own_entries(reason))


@pytest.mark.parametrize("name", PAPER)
def test_a_reason_of_the_paper_has_its_prior_with_source_and_enough_signatures(name: str) -> None:
    reason = reasons()[name]
    assert reason.prior is not None
    assert "2403.07648" in reason.prior.source
    assert reason.prior.failures
    assert len(reason.signature) >= 5


def test_the_priors_add_up_to_the_totals_of_the_paper() -> None:
    priors = [prior for name in PAPER if (prior := reasons()[name].prior) is not None]
    assert sum(prior.failures or 0 for prior in priors) == 2575
    assert sum(prior.gpu_time_share or 0 for prior in priors) == pytest.approx(0.9994, abs=0.0008)


@pytest.mark.parametrize("name", ALL)
def test_examples_are_matched_by_their_own_pattern(name: str) -> None:
    reason = reasons()[name]
    silent = [(entry.id, line) for entry in own_entries(reason) for line in entry.examples if not matches(entry, line)]
    assert silent == []
    assert all(entry.examples for entry in own_entries(reason))


def test_hyperscan_and_re_agree_on_every_example(found_together: Found) -> None:
    examples, found = found_together
    searches = [compiled(entry.pattern, entry.caseless).search for entry in ENTRIES]
    by_line: dict[int, set[int]] = defaultdict(set)
    for index, number in found:
        by_line[number].add(index)
    for number, (_, line) in enumerate(examples):
        by_re = {index for index, search in enumerate(searches) if search(line)}
        assert {ENTRIES[i].id for i in by_re} == {ENTRIES[i].id for i in by_line[number]}, line


@pytest.mark.parametrize("name", ALL)
def test_no_root_of_another_reason_outweighs_a_signature_on_its_own_lines(name: str) -> None:
    clashes = [
        (entry.id, other.id, line)
        for entry in reasons()[name].signature
        if entry.role in SPEAKING
        for line in entry.examples
        for other in SIGNATURES
        if other.role is Role.ROOT and owner(other) != name and set(other.where) & set(entry.where)
        if entry.role is Role.SYMPTOM or other.weight >= entry.weight
        if matches(other, line) and (entry.id, other.id) not in SHARED
    ]
    assert clashes == []


@pytest.mark.parametrize("name", ALL)
def test_no_herring_or_benign_pattern_hides_a_line_that_speaks_for_the_reason(name: str) -> None:
    reason = reasons()[name]
    benign = tuple(entry for entry in SIGNATURES if entry.role is Role.BENIGN)
    hiding: tuple[Signature | Herring, ...] = (*reason.herring, *benign)
    hidden = [
        (entry.id, other.id, line)
        for entry in reason.signature
        if entry.role in SPEAKING
        for line in entry.examples
        for other in hiding
        if matches(other, line)
    ]
    assert hidden == []


@pytest.mark.parametrize("entry", ENTRIES, ids=lambda entry: entry.id)
def test_a_pattern_stays_within_one_line(entry: Signature | Herring) -> None:
    negated = re.findall(r"\[\^((?:\\.|[^\]\\])*)\]", entry.pattern)
    assert all(r"\n" in members for members in negated), "a negated class must exclude \\n"
    assert not re.search(r"\\[sDWN]|\\n(?![^\[]*\])", entry.pattern), "would run over the end of a line"


ADVERSARIES = (
    "Error: " * 14_300,
    "a" * 100_000,
    "'" * 50_000 + "/" * 50_000,
    "Connection NCCL WARN error failed " * 2_900,
    "0 1-2.3:4 " * 10_000,
)


@pytest.mark.parametrize("name", ALL)
def test_a_hostile_line_takes_bounded_time(name: str) -> None:
    for entry in own_entries(reasons()[name]):
        for line in (*ADVERSARIES, (entry.examples[0] * 1000)[:20_000]):
            began = time.process_time()
            matching.matches(entry, line)
            assert time.process_time() - began < 1.0, entry.id
