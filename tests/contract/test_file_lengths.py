"""No file has more than 500 lines: what is longer holds more than one idea, or is a table of data that is listed here."""

from __future__ import annotations

from functools import cache
from pathlib import Path

ROOT = Path(__file__).parents[2]
MOST = 500
SUFFIXES = (".py", ".toml", ".md", ".tcss", ".sh")
FOLDERS = ("assistant", "bench", "docs", "knowledge", "packaging", "playbooks", "tests", "tools", "training")

GENERATED = "written by a program"
EXAMPLES = "cases or sentences, one after the other: nobody reads them as a whole"
SIGNATURES = "signatures of one reason, each with its examples"
TABLES = {
    "docs/commands.md": GENERATED,
    "knowledge/intents.toml": EXAMPLES,
    "knowledge/questions.toml": EXAMPLES,
    "knowledge/reasons/connection_error.toml": SIGNATURES,
    "knowledge/reasons/cuda_error.toml": SIGNATURES,
    "knowledge/reasons/node_failure.toml": SIGNATURES,
    "knowledge/secrets.toml": "forms of keys and tokens, each with its examples",
    "tests/cases/checkpoints/array_tasks.toml": EXAMPLES,
    "tests/cases/checkpoints/strangers.toml": EXAMPLES,
    "tests/cases/outlived/logs.toml": EXAMPLES,
    "training/encoder/sayings.toml": EXAMPLES,
    "training/encoder/sentences.toml": EXAMPLES,
    "training/encoder/spoken.toml": EXAMPLES,
    "training/encoder/trained.toml": EXAMPLES,
    "training/encoder/wordings.toml": EXAMPLES,
}
"""Tables of data that are longer, and why. No source and no page is among them but a generated one; none comes to them."""


@cache
def lengths() -> dict[str, int]:
    """Return the lines of every file of the repository that people read, by its path."""
    paths = [path for folder in FOLDERS for path in sorted((ROOT / folder).rglob("*"))]
    files = [path for path in (*ROOT.iterdir(), *paths) if path.suffix in SUFFIXES and path.is_file() and not path.is_symlink()]
    names = {path.relative_to(ROOT).as_posix(): path for path in files}
    return {
        name: len(path.read_bytes().splitlines())
        for name, path in names.items()
        if not name.startswith("docs/generated/") and "/." not in name
    }


def test_no_file_is_too_long() -> None:
    longer = {name: count for name, count in lengths().items() if count > MOST and name not in TABLES}
    assert not longer, f"more than {MOST} lines: split them along what they are about"
    assert len(lengths()) > 1000, "the files of the repository are looked at"


def test_the_list_of_longer_tables_only_shrinks() -> None:
    assert [name for name in TABLES if lengths().get(name, 0) <= MOST] == [], "short enough now: take it out of the list"
    assert {Path(name).suffix for name in TABLES if TABLES[name] != GENERATED} == {".toml"}
    assert len(TABLES) <= 15
