"""What values of settings are held against; a message begins with the setting's key, to which the loader adds file and line."""

from __future__ import annotations

__all__ = ["above", "one_of"]


def above(key: str, value: float, limit: float) -> None:
    """Refuse a number that is not above a limit.

    Raises:
        ValueError: It is not, or is NaN.
    """
    # turned round, so that NaN is refused too
    if not value > limit:
        raise ValueError(f"{key}: must be above {limit:g}, not {value:g}")


def one_of(key: str, value: str, known: tuple[str, ...]) -> None:
    """Refuse a word that is not known.

    Raises:
        ValueError: It is not; the message has the nearest one.
    """
    import difflib

    if value not in known:
        near = difflib.get_close_matches(value, known, n=1)
        hint = f" did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"{key}: {value!r} is unknown;{hint} known: {', '.join(known)}")
