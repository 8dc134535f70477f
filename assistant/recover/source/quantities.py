"""Variables that hold a measure, a time or a rate say, and never what is loaded: `STEP_SLEEP=0.45`. Pure."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable, Iterator

from assistant.recover.source.settings import key_read
from assistant.recover.source.trainer_source import UNPARSED, TrainerSource, dotted, syntax_tree

MEASURE = re.compile(
    r"(?:^|_)(?:sleep|pace|delay|wait|pause|timeout|seconds?|secs?|ms|minutes?|hours?|interval|every|freq(?:uency)?|rate|lr|ratio|"
    r"per|scale|decay|warmup|throttle|patience)(?:_|$)",
    re.IGNORECASE,
)
"""Words in a name that say what it measures."""
FRACTION = re.compile(r"-?\d*\.\d+(?:e[-+]?\d+)?|\d+e-\d+", re.IGNORECASE)
TIMED_CALLS = frozenset(("sleep", "timedelta", "alarm", "setitimer", "settimeout", "wait_for"))


def is_measure(name: str, value: str, texts: Iterable[str], sources: Iterable[TrainerSource]) -> bool:
    """Tell whether a variable holds a measure: by its name, by a fraction that it is given, or by what a program makes of it.

    Args:
        name: Of the variable.
        value: That the submission gives it; empty for none.
        texts: The script and those that it calls.
        sources: Of its programs.
    """
    if "/" in value:
        return False
    if MEASURE.search(name) or FRACTION.fullmatch(value.strip()):
        return True
    assignment = re.compile(rf"(?<!\w){re.escape(name)}(?:=|:?[-=])[\"']?(?:\$\{{{re.escape(name)}:?[-=])?([\d.eE+-]+)")
    values = (match[1] for text in texts for match in assignment.finditer(text))
    return any(map(FRACTION.fullmatch, values)) or any(_measures(source, name) for source in sources)


def _measures(source: TrainerSource, name: str) -> bool:
    """Tell whether a program turns a variable into a fraction, or waits for as long as it says."""
    try:
        tree = syntax_tree(source.text)
    except UNPARSED:
        return False
    nodes = list(ast.walk(tree))
    keys = ((node, key_read(source, node)) for node in nodes)
    reads = {id(node) for node, key in keys if key is not None and source.value(key) == name}
    if not reads:
        return False
    holders = {
        target.id
        for node in nodes
        if isinstance(node, ast.Assign) and any(id(inner) in reads for inner in ast.walk(node.value))
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    whole = {id(part) for node in calls if dotted(node.func) == "int" for word in node.args for part in ast.walk(word)}
    for node in calls:
        method = dotted(node.func).rpartition(".")[2]
        words = [*node.args, *(keyword.value for keyword in node.keywords)]
        inner = [part for word in words for part in _value_parts(word)]
        is_read = any(id(part) in reads for part in inner)
        is_held = any(isinstance(part, ast.Name) and part.id in holders for part in inner)
        if (method == "float" and is_read and id(node) not in whole) or (method in TIMED_CALLS and (is_read or is_held)):
            return True
    return False


def _value_parts(node: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of an expression that make its value; what is only compared, as a step is, makes none."""
    if isinstance(node, ast.Compare):
        return
    yield node
    inner = [node.body, node.orelse] if isinstance(node, ast.IfExp) else ast.iter_child_nodes(node)
    for part in inner:
        yield from _value_parts(part)
