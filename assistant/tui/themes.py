"""Nightshift's own themes: a dark one for the night and a light one. With NO_COLOR set Textual draws either without colour."""

from __future__ import annotations

from textual.theme import Theme

DARK = Theme(
    name="nightshift",
    primary="#7aa2c9",
    secondary="#9d8fc7",
    accent="#d9a860",
    foreground="#d3d7de",
    background="#12151b",
    surface="#181c24",
    panel="#20252f",
    success="#7fb685",
    warning="#d9b35c",
    error="#e0707a",
    dark=True,
    variables={"footer-key-foreground": "#d9a860", "border-blurred": "#2c333f"},
)
LIGHT = Theme(
    name="nightshift-light",
    primary="#2a5f91",
    secondary="#66519c",
    accent="#96610d",
    foreground="#20252c",
    background="#f6f5f1",
    surface="#fdfcfa",
    panel="#e9e7e0",
    success="#2f7a3d",
    warning="#8a6100",
    error="#b3303c",
    dark=False,
    variables={"footer-key-foreground": "#96610d", "border-blurred": "#cfccc2"},
)
THEMES = (DARK, LIGHT)
