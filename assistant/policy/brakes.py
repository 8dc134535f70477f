"""What a policy that acts must have: a kill switch that nobody else can lift, and hard limits."""

from __future__ import annotations

import os
from pathlib import Path

from assistant.content.reading import shared_folder_because, untrusted_folder_because
from assistant.errors import ContentError
from assistant.policy.terms import ChangeLimits, Mode, Policy

__all__ = ["check_limited", "check_switches", "checked_brakes"]


def check_limited(policy: Policy, path: Path) -> None:
    """Raise where something is done without asking and nothing could stop it or ends it."""
    acting = [kind for kind, terms in policy.kind.items() if policy.mode_of(kind) is Mode.ACT]
    if policy.mode is not Mode.ACT and not acting:
        return
    if not policy.kill_switch:
        raise ContentError(f'{path}: mode "act" needs a kill switch: add kill_switch = ["/etc/nightshift/stop"]')
    todo = "add per_hour and per_day there"
    if policy.mode is Mode.ACT and not _capped(policy.hard):
        raise ContentError(f'{path}: mode "act" needs hard limits over all action classes, [hard]: {todo}')
    for kind in acting:
        terms = policy.terms(kind)
        if not _capped(terms.hard) and not (terms.in_totals and _capped(policy.hard)):
            tables = f"[kind.{kind}.hard]" + (" or [hard]" if terms.in_totals else ", for it stands beside the totals")
            raise ContentError(f'{path}: {kind} is in mode "act" and needs hard limits, {tables}: {todo}')


def check_switches(policy: Policy, path: Path) -> None:
    """Raise where a policy that acts has a kill switch that others could lift; looked at anew each time, as folders change."""
    if policy.only_observes:
        return
    home = Path.home() if "HOME" not in os.environ or os.environ["HOME"] else Path("/")
    for switch in policy.kill_switch:
        # what lies in the account's own home is that account's
        why = "" if switch.is_relative_to(home) else untrusted_folder_because(switch.parent) or shared_folder_because(switch)
        if why:
            raise ContentError(f"{path}: kill_switch: others could remove {switch}: {why}")


def checked_brakes(policy: Policy, path: Path) -> Policy:
    """Return a policy that was amended after it was read, once it passes what the whole of a read one has to pass."""
    check_limited(policy, path)
    check_switches(policy, path)
    return policy


def _capped(limits: ChangeLimits) -> bool:
    return limits.per_hour is not None and limits.per_day is not None
