"""Name the kind of work of each job by rules that a site writes: the first that fits counts."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from assistant.content.reading import build, knowledge_file, read_toml, shipped
from assistant.errors import ContentError

FILE = "workload_types.toml"
UNTYPED = "other"
_TEXTS = ("name", "partition", "account", "user")


@dataclass(frozen=True, slots=True)
class TypeRule:
    """One rule; what is left out always fits."""

    type: str
    name: str = ""
    partition: str = ""
    account: str = ""
    user: str = ""
    least_gpus: float | None = None
    most_gpus: float | None = None
    least_h: float | None = None
    most_h: float | None = None


@dataclass(frozen=True, slots=True)
class TypeRules:
    """Rules in their order, and what words of a trace mean."""

    rule: tuple[TypeRule, ...] = ()
    words: Mapping[str, str] = field(default_factory=dict)
    extends: str = ""
    """`shipped`: the shipped rules come behind these."""


def type_rules(site: Path | None, file: Path | None = None) -> TypeRules:
    """Return the rules that hold: of a file, else of the site, else the shipped ones.

    Raises:
        ContentError: A file cannot be read or has a key that there is not.
    """
    path = file if file is not None else knowledge_file(FILE, site)
    rules = build(TypeRules, read_toml(path), path)
    if not rules.extends:
        return rules
    if rules.extends != "shipped":
        raise ContentError(f'{path}: extends: {rules.extends!r} is unknown; known: "shipped"')
    base_path = shipped("knowledge") / FILE
    base = build(TypeRules, read_toml(base_path), base_path)
    return TypeRules((*rules.rule, *base.rule), {**base.words, **rules.words})


class TypeQuery(NamedTuple):
    """The type of a job as SQL, and the values for its placeholders."""

    sql: str
    values: Sequence[object]


def type_query(rules: TypeRules) -> TypeQuery:
    """Return how a job gets its type: what the source says, else that of the first rule that fits."""
    cases, values = [], []
    for rule in rules.rule:
        conditions, parameters = _conditions(rule)
        if conditions:
            cases.append(f"WHEN {' AND '.join(conditions)} THEN ?")
            values += [*parameters, rule.type]
    by_rule = f"CASE {' '.join(cases)} ELSE '{UNTYPED}' END" if cases else f"'{UNTYPED}'"
    words = [word.lower() for word in rules.words]
    return TypeQuery(
        "CASE WHEN type IS NOT NULL THEN coalesce(map_extract_value(map(?::VARCHAR[], ?::VARCHAR[]), lower(type)), type) "
        f"ELSE {by_rule} END",
        [words, list(rules.words.values()), *values],
    )


def _conditions(rule: TypeRule) -> tuple[list[str], list[object]]:
    conditions: list[str] = []
    values: list[object] = []
    for key in _TEXTS:
        if pattern := getattr(rule, key):
            conditions.append(f'regexp_matches(lower("{key}"), ?)')
            values.append(pattern)
    bounds: Sequence[tuple[str, str, float | None, float]] = (
        ("gpus", ">=", rule.least_gpus, 1.0),
        ("gpus", "<=", rule.most_gpus, 1.0),
        ("run_s", ">=", rule.least_h, 3600.0),
        ("run_s", "<=", rule.most_h, 3600.0),
    )
    for column, sign, bound, scale in bounds:
        if bound is not None:
            conditions.append(f"{column} {sign} ?")
            values.append(bound * scale)
    return conditions, values
