"""The policy that decides now: read anew from its files whenever it is asked for, so that an edit holds at once.

Where the files cannot be read whole, nothing is changed until they can: neither the policy before nor the shipped one takes their
place. A site's policy that is gone is missing, also after a restart, since the store keeps that there was one.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from assistant.errors import ContentError, NightshiftError
from assistant.policy.loading import LoadedPolicy, load_policy_files, shipped_policy_file, site_policy_file
from assistant.policy.terms import Mode, Policy

__all__ = ["PolicyInForce", "PolicyRecord", "PolicyStanding", "short_digest"]

logger = logging.getLogger(__name__)

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
        self, site: Path | None, *, record: PolicyRecord | None = None, amend: Callable[[Policy], Policy] | None = None
    ) -> None:
        """Name the files; nothing is read yet.

        Args:
            site: The site's content folder; None where the settings name none.
            record: Keeps that the site has a policy, over restarts.
            amend: Changes each policy that was read, as a drill does that has a mode of its own.
        """
        self._site, self._record, self._amend = site, record, amend
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
        """Return the same policy with terms of another: read from the same files, missing and broken at the same time."""
        if self._fixed is not None:
            return PolicyInForce.of(amend(self._fixed.policy))
        return PolicyInForce(self._site, record=self._record, amend=amend)

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
        except ContentError as error:
            return PolicyStanding(self._last_whole or _shipped_observing(), str(error))
        standing = self._standing
        if standing is None or standing.problem or loaded is not self._loaded:
            policy = self._amend(loaded.policy) if self._amend is not None else loaded.policy
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
