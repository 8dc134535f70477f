"""Figures of docs/figures.md, measured: each module prints one of them, `python -m bench` prints all."""
