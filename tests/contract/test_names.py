"""Names say what a value is: those that say nothing become fewer, folder by folder; a public class name exists once."""

from __future__ import annotations

import ast
import tomllib
from collections import Counter, defaultdict
from collections.abc import Iterator
from pathlib import Path

from tests.sources import sources, syntax_trees

ROOT = Path(__file__).parents[2]
NAMES = tomllib.loads((ROOT / "tests" / "cases" / "names.toml").read_text())
BANNED = frozenset(NAMES["banned"].split())
GONE = {folder: frozenset(words.split()) for folder, words in NAMES["gone"].items()}


def names_of(node: ast.AST) -> Iterator[str]:
    if isinstance(node, ast.Name | ast.Attribute) and isinstance(node.ctx, ast.Store):
        yield node.id if isinstance(node, ast.Name) else node.attr
    elif isinstance(node, ast.arg):
        yield node.arg
    elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        yield node.name


def empty_names() -> Counter[str]:
    """Count by folder the assigned names that are a pronoun or a participle and no more."""
    counts: Counter[str] = Counter()
    for path in sources():
        counts[folder_of(path)] += sum(name in BANNED for name in plain_names(path))
    return +counts


def folder_of(path: str) -> str:
    return "/".join(Path(path).parent.parts[:2])


def plain_names(path: str) -> Iterator[str]:
    """Yield the assigned names of a source in small letters, without underscores around them."""
    yield from (name.strip("_").lower() for node in ast.walk(syntax_trees()[path]) for name in names_of(node))


def test_names_that_say_nothing_become_fewer() -> None:
    counts, allowed = empty_names(), NAMES["left"]
    grown = {folder: (count, allowed.get(folder, 0)) for folder, count in counts.items() if count > allowed.get(folder, 0)}
    assert not grown, "name these values by what they are (now, allowed)"
    assert dict(counts) == allowed, "fewer are left: write the new counts into tests/cases/names.toml"


def test_words_that_a_folder_has_lost_do_not_come_back() -> None:
    back = [f"{path}: {name}" for path in sources() for name in plain_names(path) if name in GONE.get(folder_of(path), ())]
    assert back == [], "name these values by what they are"
    assert all(words and not words & BANNED for words in GONE.values()), "banned everywhere: take it out of [gone]"
    assert GONE.keys() <= {folder_of(path) for path in sources()}, "there is no such folder"


def test_a_public_class_name_exists_once() -> None:
    places: dict[str, list[str]] = defaultdict(list)
    for path in sources():
        for node in ast.walk(syntax_trees()[path]):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append(path)
    twice = {name: files for name, files in places.items() if len(files) > 1 and name not in NAMES["twice"].split()}
    assert not twice
    assert [name for name in NAMES["twice"].split() if len(places[name]) < 2] == [], (
        "unique now: take it out of tests/cases/names.toml"
    )


def test_a_module_that_is_run_defines_everything_before_it_begins() -> None:
    early = [
        f"{path}:{statement.lineno}"
        for path, tree in syntax_trees().items()
        for statement in tree.body[:-1]
        if isinstance(statement, ast.If) and ast.unparse(statement.test) == "__name__ == '__main__'"
    ]
    assert early == [], "what stands below is not there yet when the module is run: put the block last"


CODE = """
def told(asked, *, given):
    for one in ():
        self.kept = found = one
    return [seen for seen in ()]
class Said: pass
"""


def test_the_counter_sees_every_kind_of_name() -> None:
    names = [name for node in ast.walk(ast.parse(CODE)) for name in names_of(node)]
    assert {name.lower() for name in names} == {"told", "asked", "given", "one", "kept", "found", "seen", "said"}
    assert all(name.lower() in BANNED for name in names)
