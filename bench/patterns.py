"""No regular expression of Nightshift takes time that grows faster than the line, whatever the line holds.

Lines to attack a pattern with are made of its own structure: what each of its repeats takes, many times, behind what stands
before it, and an end that does not match. Patterns are those of modules, those written within functions (`re.search("...", text)`,
found in the source), and those of knowledge/, which RE2 runs. CPU times are only compared with each other: a pattern whose line
became four times as long must not take more than eight times as long (linear: four, quadratic: sixteen), measured three times
before it counts.
"""

from __future__ import annotations

import ast
import importlib
import inspect
import pkgutil
import re
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import fields, is_dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import assistant
from assistant.content.reading import read_toml, shipped
from assistant.linear_patterns import linear_pattern

_parser: Any = importlib.import_module("re._parser")
LENGTH = 4_096
"""Characters of a line at which it is cut before anything is matched."""
WORTH_A_LOOK_S = 0.002
"""CPU time of a line of 24 characters that only an exponential pattern takes; an eighth of it, for 1,024 characters, is
worth a look: one that grows with the square takes four times as much."""
MOST_GROWTH = 8.0
MOST_ATTACKS = 80
REPEATS = ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT")
ALPHABET = "a1A. /:-_=\"'([{<@,\\|%\t"
COMMON = ("a", "1", " ", "_", "-", ".", "a.", "a-", "/a", "1:", "1.", "a ", "0f", "aA1", "[", "::")
ENDS = ("\x01", "\n\x01")


def main() -> int:
    """Print every pattern that grows faster than the line, and return 1 when there is one (minutes)."""
    patterns = module_patterns()
    uses = {(pattern, flags): (names[0], methods_of(names)) for (pattern, flags), names in patterns.items()}
    inline = inline_patterns()
    uses |= {
        (pattern, flags): (name, [method]) for (pattern, flags, method), name in inline.items() if (pattern, flags) not in uses
    }
    growing = {
        name: worst
        for (pattern, flags), (name, methods) in sorted(uses.items(), key=lambda item: item[1])
        for method in methods
        if (worst := growth_of(re.compile(pattern, flags), method))
    }
    known = 0
    for folder in ("reasons", "filters"):
        for path in sorted((shipped("knowledge") / folder).rglob("*.toml")):
            for pattern in sorted(set(texts_named("pattern", read_toml(path)))):
                known += 1
                if worst := growth_of(re.compile(pattern, re.MULTILINE | re.ASCII), "search", linear_pattern(pattern).search):
                    growing[f"{path.name}: {pattern}"] = worst
    for name, worst in growing.items():
        print(f"{name[:160]}  grows with {worst}")
    print(f"{len(patterns)} patterns of modules, {len(inline)} within functions, {known} of knowledge/")
    print(f"{len(growing)} patterns grow faster than the line (limit 0)")
    return int(bool(growing))


def inline_patterns() -> dict[tuple[Any, int, str], str]:
    """Return pattern, flags and method of calls such as `re.search(...)` in the source, with where the first of each stands."""
    patterns: dict[tuple[Any, int, str], str] = {}
    for path in sorted(Path(assistant.__path__[0]).rglob("*.py")):
        name = ".".join(path.relative_to(Path(assistant.__path__[0]).parent).with_suffix("").parts).removesuffix(".__init__")
        for call in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if not (isinstance(call, ast.Call) and isinstance(call.func, ast.Attribute) and call.args):
                continue
            if not (isinstance(call.func.value, ast.Name) and call.func.value.id == "re") or call.func.attr == "escape":
                continue
            pattern, method = _written(call.args[0], sys.modules.get(name)), call.func.attr
            flags = call.args[1:2] if method == "compile" else call.args[4 if method == "sub" else 2 :]
            flags = [*flags, *(word.value for word in call.keywords if word.arg == "flags")]
            if pattern:
                compiled = re.compile(pattern, _flags(flags))
                method = method if method in ("match", "fullmatch") else "search"
                where = f"{path.relative_to(Path(assistant.__path__[0]))}:{call.lineno}"
                patterns.setdefault((pattern, compiled.flags & ~re.DEBUG, method), where)
    assert len(patterns) > 100
    return patterns


def _written(node: ast.expr, module: ModuleType | None) -> Any:
    """Return the pattern that an expression stands for: constants of the module as they are, what is escaped as a word."""
    if isinstance(node, ast.Constant):
        return node.value
    if isinstance(node, ast.Name):
        value = getattr(module, node.id, "")
        return value if isinstance(value, (str, bytes)) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(_written(part, module) or "x7" for part in node.values)
    if isinstance(node, ast.FormattedValue):
        return _written(node.value, module) if isinstance(node.value, ast.Name) else "x7"
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        left, right = _written(node.left, module), _written(node.right, module)
        return (left or "x7") + (right or "x7") if isinstance(left, str) and isinstance(right, str) else ""
    return ""


def _flags(given: Sequence[ast.expr]) -> int:
    names = {part.attr for node in given for part in ast.walk(node) if isinstance(part, ast.Attribute)}
    flags = re.NOFLAG
    for name in names:
        flags |= getattr(re, name, re.NOFLAG)
    return int(flags)


def module_patterns() -> dict[tuple[Any, int], list[str]]:
    """Return the patterns that modules hold by themselves, in tuples, dicts or records, with where they stand."""
    patterns: dict[tuple[Any, int], list[str]] = {}
    for found in pkgutil.walk_packages(assistant.__path__, "assistant."):
        if found.name.endswith("__main__"):
            continue
        try:
            module = importlib.import_module(found.name)
        except ModuleNotFoundError:  # torch is no requirement
            continue
        for name, value in list(vars(module).items()):
            for pattern in _patterns_in(value, 3):
                patterns.setdefault((pattern.pattern, pattern.flags & ~re.DEBUG), []).append(f"{found.name}.{name}")
    assert len(patterns) > 400
    return patterns


def _patterns_in(value: Any, depth: int) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif depth and isinstance(value, (tuple, list, frozenset, set)):
        for item in value:
            yield from _patterns_in(item, depth - 1)
    elif depth and isinstance(value, dict):
        for item in value.values():
            yield from _patterns_in(item, depth - 1)
    elif depth and is_dataclass(value) and not isinstance(value, type):
        for field in fields(value):
            yield from _patterns_in(getattr(value, field.name, None), depth - 1)


def texts_named(key: str, value: Any) -> Iterator[str]:
    """Yield the texts under a key, at any depth of what a file holds."""
    if isinstance(value, dict):
        for name, item in value.items():
            if name == key and isinstance(item, str):
                yield item
            else:
                yield from texts_named(key, item)
    elif isinstance(value, list):
        for item in value:
            yield from texts_named(key, item)


def methods_of(names: Sequence[str]) -> list[str]:
    """Return how a pattern is used: `match` and `fullmatch` begin at one place only; everything else counts as `search`."""
    used = set()
    for name in names:
        module, _, variable = name.rpartition(".")
        uses = re.findall(rf"\b{variable}\b(?:\.(\w+)\()?", inspect.getsource(sys.modules[module]))
        used |= set(uses[1:]) or set()
    return sorted(used) if used and used <= {"match", "fullmatch"} else ["search"]


def growth_of(pattern: re.Pattern[Any], method: str, other: Callable[[bytes], object] | None = None) -> str:
    """Return the attack under which the time of a pattern grows faster than the line; empty when there is none.

    Args:
        pattern: The attacks are made of its structure.
        method: That is called.
        other: What matches bytes in its place.
    """
    run: Callable[[Any], object] = other or getattr(pattern, method)
    is_text = isinstance(pattern.pattern, str) and other is None
    for prefix, pump in attacks(pattern):
        for end in ENDS:

            def line(length: int, prefix: str = prefix, pump: str = pump, end: str = end) -> Any:
                text = prefix + (pump * (length // len(pump) + 1))[:length] + end
                return text if is_text else text.encode()

            if all(cpu_s(run, line(24), 1) > WORTH_A_LOOK_S for _ in range(3)) or (
                cpu_s(run, line(LENGTH // 4), 1) > WORTH_A_LOOK_S / 8
                and all(_ratio(run, line(LENGTH // 4), line(LENGTH)) > MOST_GROWTH for _ in range(3))
            ):
                return f"{prefix!r} + {pump!r} * n + {end!r}"
    return ""


def _ratio(run: Callable[[Any], object], short: Any, long: Any) -> float:
    return cpu_s(run, long, 1) / max(cpu_s(run, short, 3), 1e-6)


def cpu_s(run: Callable[[Any], object], line: Any, times: int) -> float:
    """Return the least CPU time of some runs."""
    least = float("inf")
    for _ in range(times):
        start = time.process_time()
        run(line)
        least = min(least, time.process_time() - start)
    return least


def attacks(pattern: re.Pattern[Any]) -> list[tuple[str, str]]:
    """Return (prefix, text to repeat) that may make a pattern look at the same text many times."""
    tree = _parser.parse(pattern.pattern, pattern.flags)
    pairs: dict[tuple[str, str], None] = {("", pump): None for pump in COMMON}
    for variant in range(3):
        for prefix, body in _repeats(tree, variant, ""):
            for pump in {sample(body, other) or "a" for other in range(3)} | set(_signs_of(body)):
                pairs[prefix, pump] = pairs["", prefix + pump] = None
    return list(pairs)[:MOST_ATTACKS]


def _repeats(sequence: Any, variant: int, prefix: str) -> Iterator[tuple[str, Any]]:
    """Yield what stands before each long repeat, and its body."""
    for op, value in sequence:
        if str(op) in REPEATS and value[1] > 8:
            yield prefix, value[2]
        for body in _bodies(op, value):
            yield from _repeats(body, variant, prefix)
        prefix += sample([(op, value)], variant)


def _bodies(op: Any, value: Any) -> list[Any]:
    name = str(op)
    if name in REPEATS:
        return [value[2]]
    if name in ("SUBPATTERN", "ASSERT", "ASSERT_NOT"):
        return [value[-1]]
    return [value] if name == "ATOMIC_GROUP" else list(value[1]) if name == "BRANCH" else []


def sample(sequence: Any, variant: int) -> str:
    """Return a text that a sequence matches, another one for each variant as far as it has alternatives."""
    text = ""
    for op, value in sequence:
        name = str(op)
        if name in REPEATS:
            text += sample(value[2], variant) * min(max(value[0], variant % 2), 40)
        elif name == "BRANCH":
            text += sample(value[1][variant % len(value[1])], variant)
        elif name in ("SUBPATTERN", "ATOMIC_GROUP"):
            text += sample(_bodies(op, value)[0], variant)
        elif signs := _signs(op, value):
            text += signs[variant % len(signs)]
    return text


def _signs_of(body: Any) -> str:
    """Return the signs of a body that is one sign."""
    return "".join(sorted(set(_signs(*body[0]))))[:8] if len(body) == 1 else ""


def _signs(op: Any, value: Any) -> str:
    """Return some signs that an element of one sign matches; none for what matches no sign."""
    name = str(op)
    if name == "LITERAL":
        return chr(value)
    if name == "NOT_LITERAL":
        return ALPHABET.replace(chr(value), "")
    if name == "ANY":
        return ALPHABET
    if name == "CATEGORY":
        return "".join(sign for sign in ALPHABET if _of_category(str(value), sign))
    if name != "IN":
        return ""
    inner = [part for part in value if str(part[0]) != "NEGATE"]
    if len(inner) < len(value):
        return "".join(sign for sign in ALPHABET if not any(_holds(part, sign) for part in inner)) or "a"
    return "".join(chr(part[1][0]) + chr(part[1][1]) if str(part[0]) == "RANGE" else _signs(*part) for part in inner)


def _holds(part: Any, sign: str) -> bool:
    if str(part[0]) == "RANGE":
        return bool(part[1][0] <= ord(sign) <= part[1][1])
    return _of_category(str(part[1]), sign) if str(part[0]) == "CATEGORY" else ord(sign) == part[1]


def _of_category(name: str, sign: str) -> bool:
    kind = {"DIGIT": r"\d", "SPACE": r"\s", "WORD": r"\w"}[name.rpartition("_")[2]]
    return (re.match(kind, sign) is not None) != ("_NOT_" in name)


if __name__ == "__main__":
    raise SystemExit(main())
