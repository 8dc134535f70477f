"""Learned rules as the entries that are compiled beside the shipped ones."""

from __future__ import annotations

from collections.abc import Iterable

from assistant.content.reading import Filter
from assistant.content.reasons import Signature, SignatureSource
from assistant.records import LearnedRule, RuleKind
from assistant.rules.matching import Entry


def entry_of(rule: LearnedRule) -> Entry:
    """Return the signature or filter that a learned rule is."""
    if rule.kind is RuleKind.FILTER:
        return Filter(rule.id, rule.pattern, rule.examples, rule.of)
    return Signature(rule.id, rule.pattern, rule.examples, where=(SignatureSource(rule.source),), weight=rule.weight)


def entries_of(rules: Iterable[LearnedRule], task: str = "") -> tuple[Entry, ...]:
    """Return the entries of the rules that count, those made for the task first, then those for any.

    Args:
        rules: In any state.
        task: Rules of other tasks are left out when it is given.
    """
    counting = [rule for rule in rules if rule.state.counts and (not task or rule.task in ("", task))]
    return tuple(entry_of(rule) for rule in sorted(counting, key=lambda rule: (rule.task == "", rule.made, rule.id)))
