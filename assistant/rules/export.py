"""Learned rules as content files, for people to review and for the site's folder, where they load like shipped ones."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Iterable, Mapping
from pathlib import Path

from assistant.content.reading import content_files
from assistant.records import LearnedRule, RuleKind

FILTERS = "knowledge/filters/learned.toml"


def exported(rules: Iterable[LearnedRule], site: Path | None = None) -> Mapping[str, str]:
    """Return the text of each file by its path in a site's folder.

    A file of a reason holds all that is known of the reason already, because a site's file stands in the place of the shipped one.

    Args:
        rules: Those to export.
        site: The site's folder; what it says about a reason is kept.
    """
    filters: list[LearnedRule] = []
    signatures: dict[str, list[LearnedRule]] = defaultdict(list)
    for rule in rules:
        (filters if rule.kind is RuleKind.FILTER else signatures[rule.of]).append(rule)
    files = {FILTERS: "\n".join([*_FILTER_HEAD, *(_filter(rule) for rule in filters)])} if filters else {}
    shipped = {path.stem: path for path in content_files("knowledge/reasons", site)}
    for reason, learned in sorted(signatures.items()):
        if reason in shipped:
            text = shipped[reason].read_text(encoding="utf-8").rstrip("\n")
            new = [_signature(rule) for rule in learned if f"{rule.id!r}" not in text and f'"{rule.id}"' not in text]
            files[f"knowledge/reasons/{reason}.toml"] = "\n".join([text, "", *new])
    return files


_FILTER_HEAD = ('program = "learned from logs of this site"', 'source = "nightshift rules export"', "")


def _filter(rule: LearnedRule) -> str:
    return "\n".join(["[[filter]]", *_provenance(rule), *_shared(rule), f"folds = {_quoted(rule.of)}", ""])


def _signature(rule: LearnedRule) -> str:
    where_line = f"where = [{_quoted(rule.source)}]"
    return "\n".join(["[[signature]]", *_provenance(rule), *_shared(rule), f"weight = {rule.weight!r}", where_line, ""])


def _provenance(rule: LearnedRule) -> list[str]:
    of = f" in incident {rule.incident}" if rule.incident is not None else ""
    task = f", task {rule.task}" if rule.task else ""
    provenance = f"by {rule.by}{of} on {rule.made:%Y-%m-%d}{task}; {rule.hits} hits, {rule.misses} misses; {rule.why}"
    return [f"# {' '.join(provenance.split())}"]


def _shared(rule: LearnedRule) -> list[str]:
    examples = ",\n".join(f"  {_quoted(line)}" for line in rule.examples)
    return [f"id = {_quoted(rule.id)}", f"pattern = {_quoted(rule.pattern)}", f"examples = [\n{examples},\n]"]


def _quoted(text: str) -> str:
    # a string of JSON is a basic string of TOML, but for the delete character
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")
