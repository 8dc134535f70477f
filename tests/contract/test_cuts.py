"""Every cut of a text of others that is shown or kept goes through `redact.cuts`: names each slice that does it by itself.

What can be had without types: a slice with a bound of twenty characters and more, of an expression that names a text, that stands
in an f-string or is handed to what keeps or shows. Slices that are only matched or compared may be made anywhere. Where a slice is
no text of others, or was redacted before, `ALLOWED` says so.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import pytest

from tests.sources import syntax_trees

TEXTS = frozenset(
    "text message line raw body summary excerpt words tail printed output stdout stderr err out detail preview error".split()
)
"""Last parts of names that hold a text of a log, a program or a person."""
SHOWS = frozenset("Citation NodeFinding Rival append add_evidence repr narrate print_line print_block line block one_line".split())
"""What keeps or shows what it is given."""
READS = frozenset(
    "search match fullmatch finditer findall split len startswith endswith any all sub count find partition rpartition "
    "body stamp".split()
)
LEAST = 20
ALLOWED = {
    "assistant/content/reasons.py": "groups of a pattern, below redaction; what a diagnosis says of them is looked at again",
    "assistant/diagnose/weighing/outcome.py": "ends of a line, for matching",
    "assistant/display.py": "was redacted before, or reads",
    "assistant/llm/chat.py": "what a model said, for whoever drives it",
    "assistant/llm/features.py": "features of a line, never shown",
    "assistant/llm/grammar_schema.py": "a schema of ours",
    "assistant/llm/process.py": "what our own child said, bytes",
    "assistant/llm/sse.py": "cleaned before",
    "assistant/llm/worker.py": "a grammar of ours",
    "assistant/nodeset.py": "names of nodes, below redaction",
    "assistant/records/jobs.py": "a path that a program of ours handed over, below redaction",
    "assistant/redact/cuts.py": "the cuts",
    "assistant/store/chain.py": "what a person typed, and names of tables",
    "assistant/untrusted.py": "forty characters of what is no number, below redaction",
}
MODULES = sorted(
    name
    for name in syntax_trees()
    if name.startswith("assistant/") and not name.startswith(("assistant/training/", "assistant/redact/"))
)


def cuts(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and source of each slice of a text that is shown or kept without having been redacted."""
    parents = {child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Subscript) and isinstance(node.slice, ast.Slice)):
            continue
        if _is_long(node.slice) and _is_text(node.value) and _is_shown(node, parents):
            yield node.lineno, ast.unparse(node)


def _is_long(cut: ast.Slice) -> bool:
    """Return whether a slice has one bound, and that is a constant of twenty or more or a constant by its name."""
    if (cut.lower is None) == (cut.upper is None):
        return False
    bound = cut.upper if cut.upper is not None else cut.lower
    inner = bound.operand if isinstance(bound, ast.UnaryOp) else bound
    parts = [inner.left, inner.right] if isinstance(inner, ast.BinOp) else [inner]
    return any(
        (isinstance(part, ast.Constant) and isinstance(part.value, int) and part.value >= LEAST)
        or (isinstance(part, ast.Name) and part.id.isupper())
        for part in parts
    )


def _is_text(value: ast.expr) -> bool:
    """Return whether an expression is, by its name, a text: `line.text`, `text.strip()`, `str(error)`."""
    match value:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name in TEXTS
        case ast.Call(func=ast.Attribute(value=inner, attr="strip" | "rstrip" | "lstrip")):
            return True if isinstance(inner, ast.Call) else _is_text(inner)
        case ast.Call(func=ast.Attribute(attr="join")):
            return True
        case ast.Call(func=ast.Name(id="str"), args=[inner]):
            return _is_text(inner)
    return False


def _is_shown(node: ast.expr, parents: dict[ast.AST, ast.AST]) -> bool:
    inner: ast.AST = node
    while (outer := parents.get(inner)) is not None:
        match outer:
            case ast.Call():
                name = outer.func.attr if isinstance(outer.func, ast.Attribute) else getattr(outer.func, "id", "")
                if inner is not outer.func:
                    return name in SHOWS
            case ast.FormattedValue():
                return not _is_read(outer, parents)
            case ast.Compare() | ast.comprehension() | ast.For() | ast.Assign() | ast.NamedExpr() | ast.AnnAssign() | ast.stmt():
                return False
        inner = outer
    return False


def _is_read(node: ast.AST, parents: dict[ast.AST, ast.AST]) -> bool:
    """Return whether an f-string is only matched."""
    while isinstance(node, (ast.FormattedValue, ast.JoinedStr, ast.IfExp)):
        node = parents[node]
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr in READS


@pytest.mark.parametrize("module", MODULES)
def test_no_text_is_cut_before_it_is_redacted(module: str) -> None:
    flaws = (
        []
        if module in ALLOWED
        else [f"{module}:{at}: {source}: use assistant.redact" for at, source in cuts(syntax_trees()[module])]
    )
    assert flaws == []


@pytest.mark.parametrize("module", ALLOWED)
def test_what_is_allowed_is_there(module: str) -> None:
    assert module in syntax_trees()


@pytest.mark.parametrize(
    "source",
    [
        "f'{finding.file}: {finding.text.strip()[:140]}'",
        "f'{line.text[:WIDTH - 60]} ... {line.text[-50:]}'",
        "Citation('job.log', 1, cited.text[:200], '')",
        "f'it says: {str(error)[:120]!r}'",
        "store.add_evidence(1, 'log', text[-KEPT:], {})",
        "f'{\" \".join(words)[:300]}'",
    ],
)
def test_a_cut_is_noticed(source: str) -> None:
    assert list(cuts(ast.parse(source)))


@pytest.mark.parametrize(
    "source",
    [
        "pattern.search(line.text[:400])",
        "pattern.search(f'{line.text[:80]} {line.text[-400:]}')",
        "f'{head_of(line.text, 140)}'",
        "f'{names[:4]}'",
        "line.text[:200] == before",
    ],
)
def test_what_is_only_read_may_be_sliced(source: str) -> None:
    assert list(cuts(ast.parse(source))) == []
