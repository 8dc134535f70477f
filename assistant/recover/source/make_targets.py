"""What a Makefile's recipes do where `make` is run a second time: only what is missing, where half a target never stays. Pure.

Finished targets are passed over. A target that was being made is made anew: `.DELETE_ON_ERROR` removes half of one where its recipe
failed and make itself lived on to see that; a recipe that renames its result into its place leaves no half at all. What is not read
here, such as includes and conditions, proves nothing.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import NamedTuple

MAKEFILES = ("GNUmakefile", "makefile", "Makefile")
"""In the order in which GNU make looks for them. Source: GNU make manual, 3.2."""
TARGET = "made_target"
"""Stands for the target in the text of a recipe."""
_ASSIGNMENT = re.compile(r"^(?P<name>[A-Za-z_][\w.-]{0,60})\s*(?P<how>\?|:{1,3}|\+)?=\s*(?P<value>.*)$")
_RULE = re.compile(r"^(?P<targets>[^:=#\t][^:=#]{0,2000}):(?![:=])(?P<needs>[^;=]{0,4000})$")
_VARIABLE = re.compile(r"\$(?:\((?P<round>[\w.-]{1,60})\)|\{(?P<curly>[\w.-]{1,60})\})")
_AUTOMATIC = re.compile(r"\$(?:[<^*?+|%]|\([<^*?+|%@][DF]\))")
_HARMLESS = frozenset((".PHONY", ".SUFFIXES", ".SECONDARY", ".INTERMEDIATE", ".DELETE_ON_ERROR", ".DEFAULT_GOAL"))
_OPTION = re.compile(
    r"-(?:j\d*|s|k|r|R|w|l\d*)|--(?:jobs(?:=\d+)?|silent|quiet|keep-going|no-print-directory|output-sync(?:=\w+)?)"
)
"""Options of make that change nothing about what is made."""
MOST_LINES, MOST_RULES, DEEPEST, MOST_CHARACTERS = 2_000, 300, 6, 100_000


class UnreadMakefile(Exception):
    """Why a Makefile, or how it is used, is not followed; begins with the line where one is."""


class MakeRecipes(NamedTuple):
    """What a `make` may run."""

    shell: str
    """The recipes as lines of a shell."""
    needs_deletion: bool
    """Whether half a target stays where make itself is ended at once, or its recipe fails and `.DELETE_ON_ERROR` is not set."""


class _Rule(NamedTuple):
    line: int
    targets: tuple[str, ...]
    needs: tuple[str, ...]
    recipe: list[str]


def recipes_of(words: Sequence[str], text: str) -> MakeRecipes:
    """Return what a command may run by its Makefile.

    Args:
        words: Behind `make`: options, assignments, goals.
        text: Of the Makefile.

    Raises:
        UnreadMakefile: Something of it is not followed.
    """
    goals, values = _command(words)
    rules, special = _parsed(text, values)
    if not 0 < len(rules) <= MOST_RULES:
        raise UnreadMakefile("it holds no rule" if not rules else f"it holds more than {MOST_RULES} rules")
    reached = _reached(rules, goals or [rules[0].targets[0]], special.get(".PHONY", ()))
    lines = [_shell_line(line, rule, values) for rule in reached for line in rule.recipe]
    phony = {*special.get(".PHONY", ())}
    halves = any(not _renames(rule, values) for rule in reached if rule.recipe and not {*rule.targets} <= phony)
    if halves and ".DELETE_ON_ERROR" not in special:
        raise UnreadMakefile("it has no .DELETE_ON_ERROR, so that half a target would be taken for a finished one")
    return MakeRecipes("\n".join(lines), halves)


def _command(words: Sequence[str]) -> tuple[list[str], dict[str, str]]:
    goals, values = list[str](), dict[str, str]()
    for place, word in enumerate(words):
        if (match := _ASSIGNMENT.match(word)) is not None:
            values[match["name"]] = match["value"]
        elif word.startswith("-"):
            if not _OPTION.fullmatch(word):
                raise UnreadMakefile(f"what make does by {word[:40]} is not followed")
        elif not (word.isdecimal() and place and words[place - 1] in ("-j", "-l")):
            goals.append(word)
    if any("$" in goal for goal in goals):
        raise UnreadMakefile("which targets it makes is not told")
    return goals, values


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    number, joined = 0, ""
    for number, line in enumerate(text.splitlines()[: MOST_LINES + 1], 1):
        if number > MOST_LINES:
            raise UnreadMakefile("it is too long")
        if line.endswith("\\"):
            joined += line[:-1] + " "
            continue
        yield number, joined + line
        joined = ""
    if joined:
        yield number, joined


def _parsed(text: str, values: dict[str, str]) -> tuple[list[_Rule], dict[str, tuple[str, ...]]]:
    """Return the rules and the special targets; assignments are added to `values`, where those of the command stand already."""
    of_command, rules, special = frozenset(values), list[_Rule](), dict[str, tuple[str, ...]]()
    current: _Rule | None = None
    for number, line in _logical_lines(text):
        if line.startswith("\t"):
            if current is None:
                raise UnreadMakefile(f"line {number} belongs to no rule")
            current.recipe.append(line.strip())
            continue
        plain = line.partition("#")[0].strip()
        if not plain:
            continue
        current = None
        if (match := _ASSIGNMENT.match(plain)) is not None:
            if match["name"] in ("SHELL", ".SHELLFLAGS", "MAKEFLAGS", ".RECIPEPREFIX", "VPATH"):
                raise UnreadMakefile(f"line {number} sets {match['name']}")
            if match["name"] not in of_command and not (match["how"] == "?" and match["name"] in values):
                before = f"{values.get(match['name'], '')} " if match["how"] == "+" else ""
                values[match["name"]] = f"{before}{match['value']}".strip()
            continue
        match = _RULE.match(plain)
        if match is None:
            raise UnreadMakefile(f"line {number} is not followed: {plain[:60]}")
        targets, needs = _expanded(match["targets"], values).split(), _expanded(match["needs"], values).split()
        if targets and targets[0].startswith(".") and targets[0].isupper() and "/" not in targets[0]:
            if targets[0] not in _HARMLESS:
                raise UnreadMakefile(f"line {number}: {targets[0]} is not followed")
            special[targets[0]] = (*special.get(targets[0], ()), *needs)
            continue
        current = _Rule(number, tuple(targets), tuple(needs), [])
        rules.append(current)
    return rules, special


def _expanded(text: str, values: Mapping[str, str]) -> str:
    for _ in range(DEEPEST):
        names = [match["round"] or match["curly"] for match in _VARIABLE.finditer(text)]
        if not any(name in values for name in names):
            break
        if len(text) + sum(len(values.get(name, "")) for name in names) > MOST_CHARACTERS:
            raise UnreadMakefile("its variables are too long")
        text = _VARIABLE.sub(lambda match: values.get(match["round"] or match["curly"], match[0]), text)
    return text


def _reached(rules: Sequence[_Rule], goals: Sequence[str], phony: Sequence[str]) -> list[_Rule]:
    """Return the rules that goals may come to; where a name is not told, all but those of phony targets that nobody names."""
    goal_names, reached, remaining = {*goals}, list[_Rule](), list(rules)
    while True:
        unknown = any("$" in name for rule in reached for name in rule.needs)
        added = [rule for rule in remaining if _is_wanted(rule, goal_names, phony, unknown=unknown)]
        if not added:
            return reached
        reached += added
        remaining = [rule for rule in remaining if rule not in added]
        goal_names |= {name for rule in added for name in rule.needs}


def _is_wanted(rule: _Rule, goal_names: set[str], phony: Sequence[str], *, unknown: bool) -> bool:
    for target in rule.targets:
        if target in goal_names or "$" in target:
            return True
        if "%" in target and (unknown or any(fnmatchcase(name, target.replace("%", "*")) or "%" in name for name in goal_names)):
            return True
    return unknown and not {*rule.targets} <= {*phony}


def _shell_line(line: str, rule: _Rule, values: Mapping[str, str]) -> str:
    command = line.lstrip("@+ ")
    if command.startswith("-"):
        raise UnreadMakefile(f"line {rule.line}: a recipe goes on after an error")
    text = _expanded(command.replace("$@", TARGET), values).replace("$@", TARGET)
    text = _AUTOMATIC.sub("made_of", text)
    if re.search(r"\$\((?!MAKE\b)[\w-]{1,40}[ ,]|\$[({]MAKE[)}]", text):
        raise UnreadMakefile(f"line {rule.line}: what its recipe runs is not told")
    return text.replace("$$", "$")


def _renames(rule: _Rule, values: Mapping[str, str]) -> bool:
    """Tell whether a recipe names its target only where it renames the result into its place, at its end."""
    lines = [_shell_line(line, rule, values) for line in rule.recipe]
    naming = [place for place, line in enumerate(lines) if re.search(rf"(?<![\w.]){TARGET}(?![\w.])", line)]
    return naming == [len(lines) - 1] and re.fullmatch(rf"mv (?:-f )?\S+ {TARGET}", lines[-1]) is not None
