"""Every link of the pages leads somewhere, and every command that they show exists."""

from __future__ import annotations

import ast
import re
import tomllib
from itertools import pairwise
from pathlib import Path

import pytest

from assistant.cli.main import COMMANDS
from assistant.content.playbooks import playbooks
from assistant.policy import load_policy

ROOT = Path(__file__).parents[2]
MOST_CIRCLE_EDGES = 24
"""Imports that close a circle within a folder, or patterns of them, listed in pyproject.toml; a smaller list lowers it."""
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").rglob("*.md"))]
PAGES = [page for page in PAGES if page.parent.name != "generated"]


def named(page: Path) -> str:
    return str(page.relative_to(ROOT))


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_links_lead_somewhere(page: Path) -> None:
    links = re.findall(r"\]\(([^)#\s]+)(?:#[^)]*)?\)", page.read_text(encoding="utf-8"))
    lost = [link for link in links if "://" not in link and "generated/" not in link and not (page.parent / link).exists()]
    assert lost == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_commands_that_are_shown_exist(page: Path) -> None:
    shown = re.findall(r"(?:^\$ |`)(?:\.venv/bin/)?nightshift ([a-z]+)", page.read_text(encoding="utf-8"), re.MULTILINE)
    assert [word for word in shown if word not in COMMANDS] == []


def test_every_page_is_in_the_contents_of_the_site() -> None:
    contents = re.findall(r"```{toctree}\n(.*?)```", (ROOT / "docs" / "index.md").read_text(encoding="utf-8"), re.DOTALL)
    listed = {line for block in contents for line in block.splitlines() if line and not line.startswith(":")}
    assert {page.stem for page in (ROOT / "docs").glob("*.md")} - {"index"} == {name for name in listed if "/" not in name}


def test_each_promise_of_security_names_a_test_that_exists() -> None:
    page = (ROOT / "docs" / "security.md").read_text(encoding="utf-8")
    promises = [row for row in page.splitlines() if row.startswith("| ") and "`test_" in row]
    sources = "\n".join(path.read_text(encoding="utf-8") for path in (ROOT / "tests").rglob("test_*.py"))
    named = re.findall(r"`(test_\w+)`", "\n".join(promises))
    assert len(promises) > 30
    assert [name for name in named if not re.search(rf"def {name}\(", sources)] == []


def test_the_page_of_the_policy_names_every_action_class() -> None:
    page = (ROOT / "docs" / "policy.md").read_text(encoding="utf-8")
    listed = re.search(r"The action classes: (.*?)\.", page, re.DOTALL)
    assert listed is not None
    assert set(re.findall(r"`(\w+)`", listed[1])) == set(load_policy().kind)


def test_the_glossary_has_each_word_once_and_the_pages_use_no_picture_for_an_interface() -> None:
    glossary = (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    words = re.findall(r"^\| ([^|]+?) \| ", glossary, re.MULTILINE)
    words = [word for word in words if word not in ("word", "---")]
    assert len(words) > 80
    assert len(words) == len(set(words))
    # what a word means in two senses has the sense in its row: `outcome (of a run)`
    assert {"interface", "sink", "stand-in", "task", "turn", "wording"} <= set(words)
    pages = [
        page for page in PAGES if page.parent.name != "decisions" and page.stem not in ("former_names", "glossary", "CHANGELOG")
    ]
    prose = {page.name: re.sub(r"`[^`\n]*`", "", page.read_text(encoding="utf-8")) for page in pages}
    assert [name for name, text in prose.items() if re.search(r"\bdoors?\b", text)] == []


def test_make_targets_that_are_shown_exist() -> None:
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE))
    for page in PAGES:
        shown = set(re.findall(r"(?:^\$ |`)make ([a-z-]+)", page.read_text(encoding="utf-8"), re.MULTILINE))
        assert shown <= targets, page


def test_the_map_names_only_what_is_there() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    modules = re.findall(r"`([\w/]+\.(?:py|toml))(?:: ([\w.]+))?`", page)
    assert len(modules) > 60
    for name, symbol in modules:
        files = [path for top in ("assistant", "tools", "playbooks") for path in (ROOT / top).rglob(name)] or list(ROOT.glob(name))
        assert files, name
        defined = rf"(?:def|class) {symbol.rpartition('.')[2]}\b"
        assert not symbol or any(re.search(defined, path.read_text(encoding="utf-8")) for path in files), f"{name}: {symbol}"
    folders = re.findall(r"`(?:assistant/)?(\w+)/`", page)
    assert folders
    assert [name for name in folders if not any((ROOT / top / name).is_dir() for top in (".", "assistant", "tools"))] == []


def test_the_map_has_the_floors_that_are_proven() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    rows = page[page.index("| floor |") :].partition("\n\n")[0].splitlines()[2:]
    drawn = [re.findall(r"`(\w+)(?:/|\.py)`", row.split("|")[2]) for row in rows]
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    layers = [re.findall(r"assistant\.(\w+)", layer) for layer in contracts[0]["layers"]]
    depth = {name: at for at, layer in enumerate(layers) for name in layer}
    assert {name for row in drawn for name in row} == set(depth)
    assert all(max(map(depth.__getitem__, above)) < min(map(depth.__getitem__, below)) for above, below in pairwise(drawn))


def test_the_circles_that_are_left_only_become_fewer() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    (circles,) = [contract for contract in contracts if contract["type"] == "acyclic_siblings"]
    assert circles["ancestors"] == ["assistant"], "every folder is held to it"
    assert len(circles["ignore_imports"]) <= MOST_CIRCLE_EDGES, "a new circle: move what both need below both"
    assert [contract["name"] for contract in contracts if "ignore_imports" in contract] == [circles["name"]]


def test_every_module_beside_the_folders_stands_on_a_floor() -> None:
    contracts = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["importlinter"]["contracts"]
    floors = {name for layer in contracts[0]["layers"] for name in re.findall(r"assistant\.(\w+)", layer)}
    top = ROOT / "assistant"
    names = {path.stem for path in top.glob("*.py")} | {path.parent.name for path in top.glob("*/__init__.py")}
    # training imports none of the floors, by a contract of its own
    assert names - floors == {"__init__", "__main__", "training"}


def test_the_map_names_steps_that_the_playbook_has() -> None:
    page = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    answer = page[page.index("### Why was this node cordoned?") :].partition("\n## ")[0]
    steps = {step.name: step.use for step in playbooks()["faulty_node"].step}
    named = re.findall(r"\(`(\w+)`\)", answer)
    assert set(named) == {name for name, tool in steps.items() if tool == "cordon_node"}


RECOVER = ["recover", *(f"recover/{name}" for name in ("checkpoints", "collective", "resume", "shell", "source", "trial"))]


EDGES = (
    "agent cli config demo evaluation gate llm logs policy records redact reports rules schedulers store training transports tui "
    "watch".split()
)
INNER = "cli/measure diagnose/advice training/checkpoints training/virtual_memory tui/logs tui/screens tui/widgets".split()


@pytest.mark.parametrize("folder", ["engine", "engine/evidence", "engine/outcomes", *RECOVER, *EDGES, *INNER])
def test_the_face_of_a_folder_names_each_of_its_modules(folder: str) -> None:
    place = ROOT / "assistant" / folder
    face = ast.get_docstring(ast.parse((place / "__init__.py").read_text(encoding="utf-8"))) or ""
    words = set(re.findall(r"`(\w+)/?`", face))
    modules = {path.stem for path in place.glob("*.py") if path.stem != "__init__"}
    folders = {path.parent.name for path in place.glob("*/__init__.py")}
    assert modules | folders <= words, f"assistant/{folder}/__init__.py says where its reader finds what"
    lower = {word for word in words if word.islower() and not word.startswith("with_")}
    assert lower <= modules | folders | {"resume", "nightshift"}, "it names what is not there"


def test_former_names_lead_to_modules_that_are_there() -> None:
    page = (ROOT / "docs" / "former_names.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `.*` \| (`.*`) \|$", page, re.MULTILINE)
    targets = {target.rstrip("/") for row in rows for target in re.findall(r"`([^`]+)`", row)}
    assert len(targets) > 100
    places = [ROOT / "assistant", ROOT, ROOT / "assistant" / "tools"]
    assert [
        name for name in sorted(targets) if not any((top / f"{name}{end}").exists() for top in places for end in ("", ".py"))
    ] == []
