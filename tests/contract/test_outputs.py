"""Every output escapes: names each place of the interfaces that hands text to a screen without `assistant.display`.

What can be proved without types is asked for: the text of an output is a constant, a number with its format, or goes through a
function of `assistant.display` (or one that does). A new output that forgets it fails here with its file and line.
"""

from __future__ import annotations

import ast
import tomllib
from collections.abc import Iterator

import pytest

from tests.sources import ROOT, syntax_trees

_CONTRACTS = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
INTERFACES = tuple(name.replace(".", "/") for name in _CONTRACTS[0]["layers"][0].split(" : "))
"""Folders of the uppermost floor: what they write is read by people. What stands below runs inside jobs or writes for programs."""
ESCAPES = {"line", "block", "unambiguous", "short", "said", "folded", "removed", "json_text", "notice"}
"""Functions whose result may be shown; those not of `assistant.display` are built on it."""
CONTENT = {"Content", "Text"}
TITLES = {"border_title", "border_subtitle", "tooltip"}
PLAIN_NUMBER = tuple("df%gGeEn,")
MODULES = [name for name in syntax_trees() if name.startswith(tuple(f"{folder}/" for folder in INTERFACES))]


def safe(node: ast.expr | None) -> bool:
    """Return whether an expression can only be text that is constant or escaped."""
    match node:
        case None | ast.Constant():
            return True
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name.isupper()  # a constant of the code
        case ast.IfExp():
            return safe(node.body) and safe(node.orelse)
        case ast.BoolOp():
            return all(map(safe, node.values))
        case ast.BinOp(op=ast.Add()) | ast.BinOp(op=ast.Mult()):
            return safe(node.left) and (isinstance(node.op, ast.Mult) or safe(node.right))
        case ast.JoinedStr():
            return all(map(safe, node.values))
        case ast.FormattedValue():
            return safe(node.value) or _number(node.format_spec)
        case ast.Call(func=ast.Name(id=name)):
            return name in ESCAPES or name == "len"
        case ast.Call(func=ast.Attribute(value=inner, attr="expandtabs" | "rstrip" | "strip" | "lstrip")):
            return safe(inner)
        case ast.Subscript():
            return safe(node.value)
    return False


def _number(spec: ast.expr | None) -> bool:
    """Return whether a format makes a number: of a text it would raise."""
    parts = spec.values if isinstance(spec, ast.JoinedStr) else []
    last = parts[-1] if parts else None
    return isinstance(last, ast.Constant) and str(last.value).endswith(PLAIN_NUMBER)


def _name(call: ast.Call) -> str:
    return call.func.id if isinstance(call.func, ast.Name) else call.func.attr if isinstance(call.func, ast.Attribute) else ""


def _unmarked(call: ast.Call) -> bool:
    return any(
        word.arg == "markup" and isinstance(word.value, ast.Constant) and word.value.value is False for word in call.keywords
    )


def _builds_text(node: ast.expr) -> bool:
    """Return whether an expression may be text: it is no call that builds a widget's content."""
    return not (isinstance(node, (ast.Constant, ast.Call)) or (isinstance(node, ast.BinOp) and not _builds_text(node.left)))


def flaws(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield the line and kind of each output whose text is not provably escaped."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign) and any(isinstance(at, ast.Attribute) and at.attr in TITLES for at in node.targets):
            # a title is parsed for markup unless it is Content
            if not (isinstance(node.value, ast.Call) or _constants(node.value)):
                yield node.lineno, "title: markup is active; write Content(line(...))"
            continue
        if not isinstance(node, ast.Call):
            continue
        name, first = _name(node), node.args[0] if node.args else None
        styled = name == "styled" and isinstance(node.func, ast.Attribute) and _of(node.func, "Content")
        if ((name in CONTENT and isinstance(node.func, ast.Name)) or styled) and not safe(first):
            yield node.lineno, f"{name}: not escaped"
        elif name == "from_markup":
            values = [word.value for word in node.keywords if word.arg is not None]
            if not _of(node.func, "Content") or not all(map(safe, values)):
                yield node.lineno, "from_markup: hand escaped text over as variables of Content.from_markup"
        elif name == "notify" and first is not None:
            if not (isinstance(first, ast.Constant) or (_unmarked(node) and safe(first))):
                yield node.lineno, "notify: not escaped, or without markup=False"
        elif (
            name in ("Static", "Label")
            and first is not None
            and _builds_text(first)
            and not _constants(first)
            and not (_unmarked(node) and safe(first))
        ):
            yield node.lineno, f"{name}: not escaped, or without markup=False"
        elif name in ("print", "echo", "secho", "write") and first is not None and _is_stream(node) and not safe(first):
            yield node.lineno, f"{name}: not escaped"


def _constants(node: ast.expr) -> bool:
    """Return whether a title is made of constants and formatted numbers only."""
    return safe(node) and not any(isinstance(part, ast.Call) for part in ast.walk(node))


def _of(at: ast.expr, owner: str) -> bool:
    return isinstance(at, ast.Attribute) and isinstance(at.value, ast.Name) and at.value.id == owner


def _is_stream(call: ast.Call) -> bool:
    """Return whether a call writes to the terminal; `file.write` is no output."""
    if isinstance(call.func, ast.Name):
        at = [ast.unparse(word.value) for word in call.keywords if word.arg == "file"]
        return call.func.id == "print" and all(one in ("sys.stdout", "sys.stderr") for one in at)
    return isinstance(call.func, ast.Attribute) and ast.unparse(call.func.value) in ("typer", "sys.stdout", "sys.stderr", "click")


def test_every_interface_is_looked_at() -> None:
    assert [folder for folder in INTERFACES if sum(name.startswith(f"{folder}/") for name in MODULES) < 3] == []


@pytest.mark.parametrize("module", MODULES)
def test_no_output_of_an_interface_forgets_to_escape(module: str) -> None:
    assert [f"{module}:{at}: {what}" for at, what in flaws(syntax_trees()[module])] == []


@pytest.mark.parametrize(
    "source",
    [
        "Content(job.name)",
        "Content.styled(f'job {job.name}', 'bold')",
        "Text(f'{name:<20}')",
        "Content.from_markup(f'[b]{name}[/]', name=line(name))[0].from_markup(name)",
        "Content.from_markup('[b]$name[/]', name=job.name)",
        "app.notify(f'{job.name} failed', markup=False)",
        "app.notify(line(job.name))",
        "Static(job.name)",
        "Static(f'{job.name}', markup=False)",
        "box.border_title = f'Job {job.name}'",
        "print(job.name)",
        "typer.echo(job.name)",
        "sys.stderr.write(text)",
    ],
)
def test_the_check_finds_what_is_forgotten(source: str) -> None:
    assert list(flaws(ast.parse(source)))


@pytest.mark.parametrize(
    "source",
    [
        "Content('constant')",
        "Content(line(job.name))",
        "Content.styled(f'{line(job.name)}  {count:,} nodes', 'bold')",
        "Content.from_markup('[b]$name[/]', name=line(job.name))",
        "app.notify(line(text), markup=False)",
        "Static(line(text), markup=False)",
        "box.border_title = Content(line(name))",
    ],
)
def test_the_check_lets_pass_what_is_escaped(source: str) -> None:
    assert not list(flaws(ast.parse(source)))
