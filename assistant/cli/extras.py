"""Extras of the distribution: which one brings a package that a command needs and that is not installed."""

from __future__ import annotations

EXTRAS = {
    "agent": ("langchain", "langchain_core", "langgraph", "httpx"),
    "gguf": ("llama_cpp",),
    "chat": ("textual", "textual_plot", "textual_hires_canvas"),
    "notify": ("apprise", "prometheus_client"),
}
"""The packages that are imported from each extra in pyproject.toml."""


def missing_extra(error: ModuleNotFoundError) -> str:
    """Return what to type where a package of an extra is missing; empty where the package is of none."""
    package = (error.name or "").partition(".")[0]
    extra = next((extra for extra, packages in EXTRAS.items() if package in packages), "")
    return f"this needs the package {package}, which is not installed: pip install 'nightshift-ops[{extra}]'" if extra else ""
