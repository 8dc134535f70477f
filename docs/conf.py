"""Settings of the documentation site, which `make docs` builds; the page of reasons is made from knowledge/ on the way."""

from __future__ import annotations

from pathlib import Path

from sphinx.application import Sphinx

from assistant import __version__
from assistant.content.reasons import Reason, reasons

project = "Nightshift"
author = "the Nightshift authors"
release = version = __version__
extensions = ["myst_parser"]
myst_heading_anchors = 3
exclude_patterns = ["build"]
html_theme = "furo"
html_title = "Nightshift"
nitpicky = True

GENERATED = Path(__file__).parent / "generated"
TOP_PAGES = ("CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md")
"""Pages that stand above docs/ and are pages of the site, too."""


def row(reason: Reason) -> str:
    """Return a reason as a row of the table of its category."""
    return f"| `{reason.name}` | {reason.meaning} | {str(reason.action).replace('_', ' ')} | {reason.remedy} |".replace("<", "&lt;")


def write_reasons(_: Sphinx) -> None:
    """Write the page of all reasons, by category."""
    known = reasons().values()
    parts = ["# Reasons", "What a diagnosis can say, from `knowledge/reasons/`."]
    for category in dict.fromkeys(str(reason.category) for reason in known):
        rows = "\n".join(row(reason) for reason in known if str(reason.category) == category)
        parts.append(
            f"## {category.capitalize()}\n\n| reason | meaning | action | what a person should do |\n|---|---|---|---|\n{rows}"
        )
    GENERATED.mkdir(exist_ok=True)
    (GENERATED / "reasons.md").write_text("\n\n".join(parts) + "\n", encoding="utf-8")


def write_top_pages(_: Sphinx) -> None:
    """Copy the pages from above docs/, with links as they are from here."""
    GENERATED.mkdir(exist_ok=True)
    for name in TOP_PAGES:
        text = (GENERATED.parents[1] / name).read_text(encoding="utf-8")
        text = text.replace("](docs/decisions/)", "](../decisions/index.md)").replace("](docs/", "](../")
        text = text.replace("](CHANGELOG.md", "](changelog.md")
        (GENERATED / name.lower()).write_text(text, encoding="utf-8")


def link_top_pages(_: Sphinx, page: str, source: list[str]) -> None:
    """Lead links to those pages to their copies."""
    if not page.startswith("generated/"):
        for name in TOP_PAGES:
            source[0] = source[0].replace(f"](../{name}", f"](generated/{name.lower()}")


def setup(app: Sphinx) -> None:
    """Make the generated pages before anything is read."""
    app.connect("builder-inited", write_reasons)
    app.connect("builder-inited", write_top_pages)
    app.connect("source-read", link_top_pages)
