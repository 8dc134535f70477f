"""Only patterns of our own source reach `re`, whose time has no bound; RE2 matches all others (`assistant/linear_patterns.py`).

A pattern counts as ours when it is made of literals, of constants in capitals, of names that are made of those, and of texts behind
`re.escape`. What this test cannot follow is listed below, with the reason why nobody else writes it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache

import pytest

from tests.sources import sources, syntax_trees

TAKES_PATTERN = {"compile", "search", "match", "fullmatch", "sub", "subn", "findall", "finditer", "split", "template"}

NAMES_MATCHER = re.compile(rb"\b(?:import|from)\s[^\n]*\b(?:re|regex)\b")
"""Other sources need not be parsed."""
SHIPPED = "a file of the package, which no site replaces"
NUMBER = "a number"
ALLOWED: dict[tuple[str, str], str] = {
    ("redact/literals.py", "_ELEMENT.format(less=less, more=more, sign=sign)"): "of constants",
    ("redact/syntax.py", "BLOCK_HEAD.pattern"): "of a constant",
    ("agent/tell_jobs.py", "word"): "a key of the constant _STATES",
    ("agent/pointers.py", "_KINDS[kind]"): "a value of a constant",
    ("agent/coverage.py", "row.line"): SHIPPED,
    ("agent/descriptions.py", "user_words"): "accounts behind re.escape, joined above",
    ("agent/descriptions.py", "part_words"): "parts of names behind re.escape, joined above",
    ("agent/node_leads.py", "words"): "literals, at the callers in the same file and in `agent/forms.py`",
    ("agent/aspects.py", "pattern"): "constants and literals, at the callers in the same file",
    ("agent/aspects.py", "verb"): "a value of the constant VERBS",
    ("agent/coverage.py", "_pattern([word.strip() for word in row.words.split(',')])"): "a file of the package, behind re.escape",
    ("agent/elsewhere.py", "_HAN_OTHER.format(apart_words)"): "a file of the package, behind re.escape",
    ("agent/elsewhere.py", "han or '(?!)'"): "a file of the package, behind re.escape",
    ("agent/elsewhere.py", "plain"): "a file of the package, behind re.escape",
    ("agent/quantities.py", "_NO_UNIT.format(unit=_UNIT, span=_SPAN)"): "of constants",
    ("agent/outright/windows.py", "_TIME.format('a')"): "a constant",
    ("agent/outright/windows.py", "_TIME.format('b')"): "a constant",
    ("agent/outright/people.py", "pattern"): "values of the constant _STATES",
    ("agent/outright/phrases.py", "pattern"): "values of constants of the file",
    ("agent/outright/phrases.py", "lead"): "a constant of the file, at its callers",
    ("agent/outright/sentence.py", "pattern"): "constants and literals of the folder, at the callers",
    ("agent/outright/ellipses.py", "pattern"): "a name behind re.escape, one line above",
    (
        "agent/outright/events.py",
        "'|'.join((pattern for name, (pattern, _) in FAMILIES.items() if name != 'code'))",
    ): "values of the constant FAMILIES",
    ("agent/change_aspects.py", "words"): "values of the constant _CHANGED",
    ("agent/holds.py", "pattern"): "literals, in the constant _HOLDS",
    ("agent/scope.py", "_ALL.pattern"): "of a constant",
    ("agent/scope.py", "_PART.pattern"): "of a constant",
    ("agent/small_talk.py", "_part(words, language)"): "values of the constant _PADDING",
    ("agent/small_talk.py", "_part(words, row[1])"): "values of the constant _PHRASES",
    ("agent/tell_aspects.py", "words"): "values of the constant FAMILIES",
    ("agent/claims/statements.py", "words"): "values of the constant FAMILIES",
    ("agent/claims/lexicon.py", "_WORD_FORM.format(latin=latin, han=han)"): "literals, at the callers in the same file",
    ("diagnose/advice/agreement.py", "evidence or names"): "literals, at the callers in the same file",
    ("diagnose/advice/agreement.py", "names"): "literals, at the callers in the same file",
    ("diagnose/advice/families.py", "'|'.join(words)"): "literals, at the callers in the same file",
    ("diagnose/weighing/blame.py", "rank"): NUMBER,
    ("diagnose/readers/exceptions.py", "words"): SHIPPED,
    ("diagnose/weighing/first_failure.py", "_FILE % _DATA"): "of constants",
    ("diagnose/weighing/first_failure.py", "_FILE % _WEIGHTS"): "of constants",
    ("diagnose/readers/origin.py", "name"): "behind re.escape, one line above",
    ("diagnose/advice/slots.py", "start"): "of the constant _PAIRS",
    ("diagnose/weighing/training_failure.py", "pattern"): "of the constant _TAILS",
    ("llm/grammar.py", "to_regex(node)"): "a grammar of ours, whose texts are escaped; called by tests only",
    ("logs/prefix.py", "'|'.join((f'(?P<{mask.name}>{form})' for mask, form in FORMS.items()))"): "of a constant",
    ("logs/named_numbers.py", "words"): "literals, at the callers in `logs/metrics.py`",
    ("logs/prefix.py", "pattern"): "of a tuple of literals",
    ("recover/checkpoints/search.py", "re.escape(form).replace('\\x00', '\\\\d+')"): "behind re.escape; \\d+ alone between texts",
    ("recover/checkpoints/own_folders.py", "'|'.join(forms)"): "names of folders behind re.escape, joined above",
    ("recover/checkpoints/search.py", "task[2]"): NUMBER,
    ("redact/text.py", "names"): "names behind re.escape, joined above",
    ("redact/forms.py", "_any_of((name for maker in secret_forms().maker for name in maker.names))"): SHIPPED,
    ("redact/forms.py", "_any_of(by_prefix)"): SHIPPED,
    ("redact/forms.py", "_any_of(options)"): SHIPPED,
    ("redact/forms.py", "characters"): SHIPPED,
    ("redact/forms.py", "least"): SHIPPED,
    ("redact/forms.py", "pattern"): SHIPPED,
    ("agent/moods.py", "(0, 200)"): "the numbers of a repeat",
    ("config/loading.py", "os.devnull"): "a constant of Python",
    ("content/playbooks.py", "area"): "a literal of the caller",
    ("content/reading.py", "word"): "behind re.escape, one line above",
    ("recover/checkpoints/shards.py", "entry.step"): NUMBER,
    ("recover/directives.py", "form"): "of a tuple of literals",
    ("recover/failure_origins.py", "form"): "of a tuple of literals",
    ("recover/resume/means.py", "pattern"): "of the constant RESUME_OPTIONS",
    ("recover/resume/pinned_folder.py", "pattern"): "behind re.escape, or of constants",
    ("recover/resume/pinned_folder.py", "base"): "behind re.escape, or of constants",
    ("recover/resume/pinned_folder.py", "plain"): "behind re.escape, or of constants",
    ("recover/resume/pinned_folder.py", "'.*'.join(frame)"): "behind re.escape, or of constants",
    ("recover/resume/pinned_folder.py", "MARKED.pattern"): "behind re.escape, or of constants",
    ("recover/resume/installed_trainers.py", "rule.own_configs"): "of the table RULES",
    ("recover/resume/installed_trainers.py", "rule.runs"): "of the table RULES",
    ("recover/loaded.py", "step"): NUMBER,
    ("recover/source/settings.py", "PRINTED.format(name=re.escape(name))"): "a constant, and a name behind re.escape",
    ("memory_plan/figures.py", "pattern"): "of a tuple of literals",
    ("logs/tail.py", "END_OF_ATTEMPT.pattern"): "the constant END_OF_ATTEMPT, for bytes",
    ("recover/shell/builtins.py", "between"): "a class of characters behind re.escape, of field_end()",
    ("recover/shell/lines.py", "letter"): "a literal of the caller",
    ("recover/shell/words.py", "field_end(separators)"): "a class of characters behind re.escape",
    ("recover/verify.py", "pattern"): "of a tuple of literals",
    ("rules/patterns.py", "kind"): "of a dict of literals, on one character",
    ("schedulers/slurm_spec.py", "letter"): "a literal of the caller",
    ("schedulers/slurm_spec.py", "long"): "a literal of the caller",
    ("transports/ssh_hosts.py", "translate(pattern.replace('[', '[[]'))"): "a Host line of the account's own ssh_config",
    ("tools/stacks.py", "pattern"): "of the constant PLACES",
    ("tools/processes.py", "form"): "of the constant DAEMONS",
}
"""(file, expression as written): why it is ours."""

CASES = {
    're.compile("a" + "b")': True,
    're.compile(rf"{re.escape(name)}x")': True,
    "re.compile(FORM)": True,
    're.compile("|".join(map(re.escape, names)))': True,
    're.compile("|".join(re.escape(name) for name in names))': True,
    're.compile("|".join(_WORDS))': True,
    "re.compile(pattern)": False,
    're.search(f"{name}x", text)': False,
    're.sub("|".join(names), "", text)': False,
    "map(re.compile, names)": False,
    "look = re.compile": False,
    're.compile("a" + name)': False,
    're.compile("%s" % name)': False,
    're.compile("{}".format(name))': False,
    're.compile(pattern="a")': True,
    "re.compile(pattern=name)": False,
}


@pytest.mark.parametrize("source", CASES)
def test_a_pattern_that_is_not_ours_is_noticed(source: str) -> None:
    assert (not list(_strangers(ast.parse(source)))) is CASES[source]


def test_every_pattern_that_reaches_re_is_ours() -> None:
    assert {place for place in _all() if place not in ALLOWED} == set(), (
        "match it by assistant.linear_patterns, or say who writes it"
    )


def test_the_list_names_only_what_still_reaches_re() -> None:
    assert set(ALLOWED) - _all() == set()


def test_re_is_imported_under_its_own_name_and_no_other_matcher_that_tries_every_way() -> None:
    for name, tree in _trees():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom):
                assert node.module not in ("re", "regex"), name
            if isinstance(node, ast.Import):
                assert not [alias for alias in node.names if alias.name == "regex" or (alias.name == "re" and alias.asname)], name


@cache
def _trees() -> list[tuple[str, ast.Module]]:
    paths = [path for path, source in sources().items() if NAMES_MATCHER.search(source)]
    return [(path.removeprefix("assistant/"), syntax_trees()[path]) for path in paths]


@cache
def _all() -> frozenset[tuple[str, str]]:
    return frozenset((name, stranger) for name, tree in _trees() for stranger in _strangers(tree))


def _strangers(tree: ast.AST) -> Iterator[str]:
    """Yield each expression that is a pattern, or a part of one, and not surely ours."""
    called = {id(node.func) for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and _of_re(node.func):
            given = [*node.args[:1], *(word.value for word in node.keywords if word.arg == "pattern")]
            for pattern in given:
                yield from _not_ours(pattern)
        elif _of_re(node) and id(node) not in called:
            yield ast.unparse(node)  # handed on: what it is called with cannot be told


def _of_re(node: ast.AST) -> bool:
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "re"
        and node.attr in TAKES_PATTERN
    )


def _not_ours(node: ast.expr) -> Iterator[str]:
    """Yield the parts of a pattern that are neither literals, nor constants, nor escaped."""
    parts: list[ast.expr] = []
    if isinstance(node, ast.JoinedStr):
        parts = [part.value if isinstance(part, ast.FormattedValue) else part for part in node.values]
    elif isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        parts = [node.left, node.right]
    elif isinstance(node, ast.IfExp):
        parts = [node.body, node.orelse]
    elif isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "encode":
        parts = [node.func.value]
    elif not isinstance(node, ast.Constant) and not _is_constant(node) and not _is_escaped(node) and not _joins_ours(node):
        yield ast.unparse(node)
    for part in parts:
        yield from _not_ours(part)


def _is_constant(node: ast.expr) -> bool:
    return isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node).rpartition(".")[2].lstrip("_").isupper()


def _is_escaped(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) == "re.escape"


def _joins_ours(node: ast.expr) -> bool:
    if not (isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "join"):
        return False
    (joined,) = node.args
    if isinstance(joined, ast.Call) and ast.unparse(joined.func) == "map":
        return ast.unparse(joined.args[0]) == "re.escape"
    return _is_constant(joined) or (isinstance(joined, ast.GeneratorExp | ast.ListComp) and not list(_not_ours(joined.elt)))
