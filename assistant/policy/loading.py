"""Read the policy from its files, whole or not at all, and keep the one in force: an edit holds at once.

A file of a site ends with the line `[end]`: TOML cut off at any byte is often still TOML, with fewer protections. A prefix of a
file either lacks that line or has everything before it.

Where the files cannot be read whole, nothing is changed until they can: neither the policy before nor the shipped one takes their
place. A site's policy that is gone is missing, also after a restart, since the store keeps that there was one.
"""

from __future__ import annotations

import difflib
import logging
import os
import re
import threading
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import filter as filter_names
from functools import cache, lru_cache
from pathlib import Path
from typing import Any, NamedTuple, Protocol

from assistant.content.reading import build, read_trusted, shipped
from assistant.errors import ContentError, NightshiftError
from assistant.policy.brakes import check_limited, check_switches, checked_brakes
from assistant.policy.terms import Mode, Policy

__all__ = [
    "LoadedPolicy",
    "PolicyInForce",
    "PolicyRecord",
    "PolicyStanding",
    "load_policy",
    "load_policy_files",
    "short_digest",
    "site_policy_file",
]

logger = logging.getLogger(__name__)


MOST_BYTES = 1 << 20
"""Of one file of a policy."""
MOST_FILES = 8
"""In one chain of `extends`."""
_LISTS = ("kill_switch", "protected", "window", "services")
"""Lists that an overlay adds to; other lists and values are replaced."""
_DIRECTIVES = ("extends", "replace", "end")
"""Keys that say how a file is to be read, and are no terms."""
_END_LINE = re.compile(r"\[\s*end\s*\]\s*(#.*)?")


@dataclass(frozen=True)
class LoadedPolicy:
    """A policy that was read whole."""

    policy: Policy
    files: tuple[Path, ...]
    """The site's file first, then those that it extends; the shipped one alone where the site has none."""
    contents: tuple[bytes, ...]
    """What stood in each of them."""
    overlay: tuple[str, ...]
    """What the site's file changes of the one that it extends, a line a term: `mode = "act" (was "observe")`."""

    @property
    def of_site(self) -> bool:
        """Whether a file of the site is among them."""
        return self.files[0] != shipped_policy_file()


class _Source(NamedTuple):
    path: Path
    content: bytes
    table: dict[str, Any]


def shipped_policy_file() -> Path:
    """Return the file of the shipped policy."""
    return shipped("knowledge") / "policy.toml"


def site_policy_file(site: Path) -> Path:
    """Return where a site's policy stands, whether it exists or not."""
    return site / "knowledge" / "policy.toml"


def load_policy(site: Path | None = None) -> Policy:
    """Read the policy of a site; without one the shipped policy.

    Raises:
        ContentError: A file is malformed, cut off, or others may write it; the message names line and key, or what to add.
    """
    return load_policy_files(None if site is None or not _exists(site_policy_file(site)) else site_policy_file(site)).policy


def load_policy_files(path: Path | None) -> LoadedPolicy:
    """Read a policy file with those that it extends; None: the shipped one.

    Raises:
        ContentError: As `load_policy`; also a file that does not exist.
    """
    chain = tuple((source.path, source.content) for source in _chain(path or shipped_policy_file()))
    loaded = _composed(chain, os.environ.get("HOME"))
    check_switches(loaded.policy, loaded.files[0])
    return loaded


@lru_cache(maxsize=8)
def _composed(chain: tuple[tuple[Path, bytes], ...], _home: str | None) -> LoadedPolicy:
    """Return the policy of files with these contents; `_home` stands for what a `~` in them means."""
    base: dict[str, Any] = {}
    merged: dict[str, Any] = {}
    for path, content in reversed(chain):
        base, merged = merged, _overlaid(merged, _parsed(path, content))
    first = chain[0][0]
    policy = _built(merged, first)
    check_limited(policy, first)
    overlay = tuple(_changes(base, merged)) if len(chain) > 1 else ()
    return LoadedPolicy(policy, tuple(path for path, _ in chain), tuple(content for _, content in chain), overlay)


def _exists(path: Path) -> bool:
    try:
        path.lstat()
    except FileNotFoundError:
        return False
    except OSError:
        # whether it exists cannot be told, so reading it must say why
        return True
    return True


def _chain(path: Path) -> Iterator[_Source]:
    read: list[Path] = []
    while True:
        source = _source(path)
        read.append(path.resolve())
        yield source
        extends = source.table.get("extends")
        if extends is None:
            return
        if not isinstance(extends, str) or not extends:
            raise ContentError(f'{path}: extends: must be "shipped" or the path of a policy file, not {extends!r}')
        path = shipped_policy_file() if extends == "shipped" else path.parent / _expanded(extends, path)
        if path.resolve() in read or len(read) == MOST_FILES:
            raise ContentError(f"{source.path}: extends: {extends} leads back to itself, or over more than {MOST_FILES} files")


def _source(path: Path) -> _Source:
    # the shipped file comes with the code: who may write it may write the code
    try:
        content = path.read_bytes() if path == shipped_policy_file() else read_trusted(path, most_bytes=MOST_BYTES)
    except OSError as error:
        raise ContentError(f"{path}: cannot be read: {error.strerror}") from error
    return _parsed(path, content)


@lru_cache(maxsize=32)
def _parsed(path: Path, content: bytes) -> _Source:
    """Return what a file says; its tables are shared, so nobody may change them."""
    try:
        text = content.decode("utf-8")
        table = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ContentError(f"{path}: is not valid TOML: {error}") from error
    except (ValueError, RecursionError) as error:
        raise ContentError(f"{path}: cannot be read as TOML: {error}") from error
    _check_end(path, text, table)
    policy = _built({key: value for key, value in table.items() if key not in _DIRECTIVES}, path)
    _check_kinds(policy, path)
    return _Source(path, content, table)


def _check_end(path: Path, text: str, table: Mapping[str, Any]) -> None:
    """Raise unless the last line that says something is `[end]`, as a table of its own that holds nothing."""
    # not splitlines(): TOML ends a line, and with it a comment, at \n alone
    lines = (line.strip() for line in reversed(text.split("\n")))
    last = next((line for line in lines if line and not line.startswith("#")), "")
    if table.get("end") != {} or not _END_LINE.fullmatch(last):
        raise ContentError(
            f"{path}: is not complete: wanted the line [end] after everything else, found {last[:60]!r}; a policy that was cut off "
            "may lack protections. See that nothing is missing, then add the line [end] at its end"
        )


def _overlaid(base: Mapping[str, Any], source: _Source) -> dict[str, Any]:
    own = {key: value for key, value in source.table.items() if key not in _DIRECTIVES}
    dropped = source.table.get("replace", [])
    if not isinstance(dropped, list) or not all(isinstance(name, str) for name in dropped):
        raise ContentError(f'{source.path}: replace: must be a list of keys, such as ["protected"], not {dropped!r}')
    table = dict(base)
    for name in dropped:
        table = _without(table, name.split("."), name, source.path)
    merged = _joined(table, own)
    for name in _LISTS:
        if name in table and name in own:
            merged[name] = [*table[name], *own[name]]
    return merged


def _without(table: Mapping[str, Any], parts: list[str], name: str, path: Path) -> dict[str, Any]:
    if parts[0] not in table or (len(parts) > 1 and not isinstance(table[parts[0]], Mapping)):
        near = difflib.get_close_matches(parts[0], table, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known there: {', '.join(table)}"
        raise ContentError(f"{path}: replace: {name!r} is not in what it extends; {hint}")
    if len(parts) == 1:
        return {key: value for key, value in table.items() if key != parts[0]}
    return {**table, parts[0]: _without(table[parts[0]], parts[1:], name, path)}


def _joined(under: Mapping[str, Any], over: Mapping[str, Any]) -> dict[str, Any]:
    joined = dict(under)
    for key, value in over.items():
        inner = joined.get(key)
        joined[key] = _joined(inner, value) if isinstance(inner, Mapping) and isinstance(value, Mapping) else value
    return joined


def _expanded(text: str, path: Path) -> Path:
    try:
        return Path(text).expanduser()
    except RuntimeError as error:
        raise ContentError(f"{path}: {text}: {error}") from error


def _built(table: Mapping[str, Any], path: Path) -> Policy:
    try:
        policy = build(Policy, table, path)
    except (RuntimeError, OverflowError, OSError) as error:
        # a ~ without a home, nesting without end, the file gone while the line of a mistake was looked for
        raise ContentError(f"{path}: cannot be read: {error}") from error
    for text in table.get("kill_switch", ()):
        if text.startswith("~") and not text.startswith("~/"):
            raise ContentError(f"{path}: kill_switch: {text} must be an absolute path, or begin with ~/")
    for switch in policy.kill_switch:
        if not switch.is_absolute():
            raise ContentError(f"{path}: kill_switch: {switch} must be an absolute path, or begin with ~/")
    return policy


def _check_kinds(policy: Policy, path: Path) -> None:
    """Raise for an action class that nothing here has: its terms would hold for nothing."""
    known_kinds = _shipped_kinds()
    # a name in a protection may be a glob, the name of a table is none
    named_kinds = [(kind, kind in known_kinds) for kind in policy.kind]
    named_kinds += [(kind, bool(filter_names(known_kinds, kind))) for entry in policy.protected for kind in entry.kinds]
    for kind, is_known in named_kinds:
        if known_kinds and not is_known:
            near = difflib.get_close_matches(kind, known_kinds, n=1)
            hint = f"did you mean {near[0]!r}? " if near else ""
            raise ContentError(f"{path}: {kind!r} is no action class; {hint}known: {', '.join(known_kinds)}")


@cache
def _shipped_kinds() -> tuple[str, ...]:
    """Return the action classes, each of which the shipped policy names."""
    try:
        table = tomllib.loads(shipped_policy_file().read_text(encoding="utf-8"))
    except (OSError, ValueError):
        return ()
    return tuple(table.get("kind", {}))


def _changes(base: Mapping[str, Any], merged: Mapping[str, Any]) -> Iterator[str]:
    before, after = dict(_leaves(base)), dict(_leaves(merged))
    for key in dict.fromkeys([*before, *after]):
        if key not in after:
            yield f"{key} is left out (was {_as_toml(before[key])})"
        elif key not in before:
            yield f"{key} = {_as_toml(after[key])}"
        elif before[key] != after[key]:
            yield f"{key} = {_as_toml(after[key])} (was {_as_toml(before[key])})"


def _leaves(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in table.items():
        if isinstance(value, Mapping) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _as_toml(value: Any) -> str:
    if isinstance(value, list) and value and isinstance(value[0], Mapping):
        return f"{len(value)} of them" if len(value) > 1 else "one"
    return f'"{value}"' if isinstance(value, str) else str(value)


RETURN_TO_SHIPPED = "nightshift config policy --shipped"
"""The command by which a site gives up its own policy on purpose."""


class PolicyRecord(Protocol):
    """The record, kept over restarts, that a site has a policy of its own."""

    def site_policy(self) -> str | None:
        """Return the file of the site's policy that was in force last, None where there never was one or it was given up."""
        ...

    def keep_site_policy(self, path: str) -> None:
        """Keep the file of the site's policy that is in force now."""
        ...


@dataclass(frozen=True)
class PolicyStanding:
    """Which policy decides at one moment."""

    policy: Policy
    """Where `problem` is not empty: the last whole one, else the shipped one, for those who only show terms."""
    problem: str = ""
    """Why the files cannot be obeyed; while there is one, every change is denied. Empty: the policy is in force."""
    files: tuple[Path, ...] = ()
    """Which it was read from, the site's first; none for a policy that was handed over in memory."""
    overlay: tuple[str, ...] = ()
    """As in `LoadedPolicy.overlay`."""

    @property
    def digest(self) -> str:
        """Digest of the policy in force, empty where none is."""
        return "" if self.problem else self.policy.digest

    @property
    def mode(self) -> str:
        """Mode for all action classes that name none, `none` where no policy is in force."""
        return "none" if self.problem else str(self.policy.mode)


class PolicyInForce:
    """Gives the policy of a site as its files say now; safe to use from several threads."""

    def __init__(
        self, site: Path | None, *, record: PolicyRecord | None = None, amends: Sequence[Callable[[Policy], Policy]] = ()
    ) -> None:
        """Name the files; nothing is read yet.

        Args:
            site: The site's content folder; None where the settings name none.
            record: Keeps that the site has a policy, over restarts.
            amends: Each changes every policy that was read, as a drill does that has a mode of its own.
        """
        self._site, self._record, self._amends = site, record, tuple(amends)
        self._lock = threading.Lock()
        self._loaded: LoadedPolicy | None = None
        self._standing: PolicyStanding | None = None
        self._last_whole: Policy | None = None
        self._site_file = ""
        self._record_read = record is None
        self._fixed: PolicyStanding | None = None

    @classmethod
    def of(cls, policy: Policy) -> PolicyInForce:
        """Return a policy that is in force as it is, without files: for rehearsals and tests."""
        fixed = cls(None)
        fixed._fixed = PolicyStanding(policy)
        return fixed

    def amended(self, amend: Callable[[Policy], Policy]) -> PolicyInForce:
        """Return the same policy with terms of another: read from the same files, missing and broken at the same time.

        What comes of it is checked as what was read is: one that acts without brakes is not in force.
        """
        if self._fixed is None:
            return PolicyInForce(self._site, record=self._record, amends=(*self._amends, amend))
        changed = PolicyInForce(None)
        try:
            changed._fixed = PolicyStanding(checked_brakes(amend(self._fixed.policy), Path("policy")), self._fixed.problem)
        except ContentError as error:
            changed._fixed = PolicyStanding(self._fixed.policy, self._fixed.problem or str(error))
        return changed

    @property
    def policy(self) -> Policy:
        """The policy in force, as `look` returns it, without its problem."""
        return self.look().policy

    def look(self) -> PolicyStanding:
        """Read the files and return which policy decides now; what is wrong with them is in `problem`, and logged once.

        Raises:
            StoreError: Whether the site had a policy could not be read from the store.
        """
        if self._fixed is not None:
            return self._fixed
        with self._lock:
            before, after = self._standing, self._read()
            if before is None or (before.digest, before.problem) != (after.digest, after.problem):
                _log(before, after)
            self._standing = after
            return after

    def _read(self) -> PolicyStanding:
        if not self._record_read and self._record is not None:
            self._site_file = self._record.site_policy() or ""
            self._record_read = True
        try:
            loaded = load_policy_files(self._place())
            policy = loaded.policy
            for amend in self._amends:
                policy = checked_brakes(amend(policy), loaded.files[0])
        except ContentError as error:
            return PolicyStanding(self._last_whole or _shipped_observing(), str(error))
        standing = self._standing
        if standing is None or standing.problem or loaded is not self._loaded:
            standing = PolicyStanding(policy, "", loaded.files, loaded.overlay)
            self._loaded, self._last_whole = loaded, policy
        if loaded.of_site and self._site_file != str(loaded.files[0]):
            self._keep(str(loaded.files[0]))
        return standing

    def _place(self) -> Path | None:
        """Return the site's file, None for the shipped policy.

        Raises:
            ContentError: The site has, or had, a policy that is not there.
        """
        if self._site is None:
            if self._site_file:
                raise ContentError(
                    f"{self._site_file}: was the site's policy, and the setting `content` names no folder now; set it again, or "
                    f"accept the shipped policy: {RETURN_TO_SHIPPED}"
                )
            return None
        path = site_policy_file(self._site)
        try:
            path.lstat()
        except FileNotFoundError:
            if self._site_file:
                raise ContentError(
                    f"{path}: the site's policy is gone; put it back, or accept the shipped policy: {RETURN_TO_SHIPPED}"
                ) from None
            if not self._site.is_dir():
                raise ContentError(
                    f"{self._site}: the setting `content` names this folder, and there is none; make it, or correct the setting"
                ) from None
            return None
        except OSError as error:
            raise ContentError(f"{path}: cannot be looked at: {error.strerror}") from error
        return path

    def _keep(self, path: str) -> None:
        # in this process it holds whether the store takes it or not
        self._site_file = path
        if self._record is None:
            return
        try:
            self._record.keep_site_policy(path)
        except NightshiftError as error:
            logger.warning("policy: that %s is in force was not written to the store: %s", path, error)


def short_digest(digest: str) -> str:
    """Return the first 12 digits of a digest, as people compare it; `none` for an empty one."""
    return digest[:12] or "none"


def _shipped_observing() -> Policy:
    try:
        return load_policy_files(None).policy
    except ContentError:
        return Policy(mode=Mode.OBSERVE)


def _log(before: PolicyStanding | None, after: PolicyStanding) -> None:
    source = after.files[0] if after.files else shipped_policy_file()
    if before is None and after.problem:
        # whoever looks first shows it in an answer or a refusal
        logger.debug("policy: cannot be obeyed: %s", after.problem)
    elif after.problem:
        logger.error("policy: cannot be obeyed, every change is refused until it is whole: %s", after.problem)
    elif before is None:
        logger.debug("policy: mode %s, digest %s, from %s", after.mode, short_digest(after.digest), source)
    else:
        old, new = short_digest(before.digest), short_digest(after.digest)
        logger.warning("policy: mode %s after %s, digest %s after %s, from %s", after.mode, before.mode, new, old, source)
