"""Say of a loss that never was a number, never fell, or was thrown off by its own rate that no checkpoint of its run helps."""

from __future__ import annotations

import math
import re
from dataclasses import replace

from assistant.diagnose.advice.decisive import first_nan
from assistant.diagnose.advice.standing import rate_lowered, spike_account
from assistant.diagnose.facts import Facts
from assistant.diagnose.weighing.loss import UNUSUAL_RATE, never_learned, spike_of, warm_up
from assistant.records import Action, Diagnosis
from assistant.redact import head_of

NEVER_FINITE = (
    "Loss or gradient norm were NaN or infinite from the first step that was logged, so no checkpoint of this run helps. See "
    "first whether the weights that it started from are numbers themselves, and whether a batch leaves nothing to learn from (all "
    "targets masked, which divides 0 by 0); else change learning rate, precision, loss scale or data before it starts again."
)
FINITE_BEFORE = (
    "Loss or gradient norm were NaN or infinite from the first step that was logged, behind what it went on from (job.log:{line}: "
    "{text}): that checkpoint may hold the damage already. See in the logs of the jobs before it where the loss first went off, "
    "and go on from a checkpoint from before that, past the data of that step."
)
NEVER_LEARNED = "The loss never fell: {first:.4g} at the first steps, {lowest:.4g} at its lowest behind them."
OWN_SETTING = (
    "Neither data nor a checkpoint of this run helps, for each was saved while it diverged: {rate}, warm up "
    "longer, or check precision and loss, before it starts again from its begin."
)
MOST_OF_LINE = 600
"""Characters of a line in which a loss is looked for."""
_WENT_ON = re.compile(
    r"\b(?:resum|restor|continu|load)\w{0,6}\b[^\n]{0,300}?(?:\b(?:step|iter(?:ation)?|epoch|update)s?\b\D{0,4}[1-9]\d{0,9}"
    r"|(?:checkpoint|ckpt|step|iter|epoch)\w{0,20}?[-_=]0{0,9}[1-9]\d{0,9}\b)",
    re.IGNORECASE,
)
"""A line that says from which save a run goes on."""
_ANY_LOSS = re.compile(
    r"\b(?!\w{0,40}scale)\w{0,40}loss\w{0,20}['\"]?\s{0,3}[:=]?\s{0,4}(\d{1,9}(?:\.\d{1,12})?(?:[eE][-+]?\d{1,3})?)(?![\w/])",
    re.IGNORECASE,
)


def diverged_early(diagnosis: Diagnosis, facts: Facts) -> Diagnosis | None:
    """Return the diagnosis of a loss that never was a number, never fell, or was thrown off by its rate; None for any other."""
    if _never_finite(facts):
        return replace(diagnosis, advice=_never_finite_account(facts))
    spike = spike_of(facts)
    warming = warm_up(facts, spike.rise) if spike is not None and spike.rise is not None else None
    if warming is not None and warming.highest >= UNUSUAL_RATE:
        summary = f"{diagnosis.summary} Its loss rose while the learning rate was still raised, to {warming.highest:g}."
        return replace(diagnosis, action=Action.FIX_AND_RESUBMIT, summary=summary, advice=spike_account(diagnosis, facts))
    levels = never_learned(facts, spike) if spike is not None else None
    if levels is None:
        return None
    text = NEVER_LEARNED.format(first=levels[0], lowest=levels[1])
    account = spike_account(diagnosis, facts) or f"{text} {OWN_SETTING.format(rate=rate_lowered(facts))}"
    return replace(diagnosis, action=Action.FIX_AND_RESUBMIT, summary=f"{diagnosis.summary} {text}", advice=account)


def _never_finite(facts: Facts) -> bool:
    """Tell whether no logged step had a loss or gradient norm that was a number; an average of no losses is 0."""
    logged = [value for point in facts.points for value in (point.loss, point.grad_norm) if value is not None]
    spike = spike_of(facts)
    lost = any(not math.isfinite(value) for value in logged) or (spike is not None and math.isnan(spike.level))
    return lost and not any(math.isfinite(value) and value for value in logged) and not _has_other_loss(facts)


def _has_other_loss(facts: Facts) -> bool:
    """Tell whether a line before the first value that is no number has a loss that is one, under any name: `val_loss 2.52`."""
    nan = first_nan(facts, facts.lines_total + 1)
    lines = facts.between(1, (nan[1] if nan is not None else facts.lines_total + 1) - 1)
    return any(float(match[1]) for line in lines if (match := _ANY_LOSS.search(line.text[:MOST_OF_LINE])) is not None)


def _never_finite_account(facts: Facts) -> str:
    nan = first_nan(facts, facts.lines_total + 1)
    before = facts.between(1, (nan[1] if nan is not None else facts.lines_total + 1) - 1)
    load = next((line for line in before if _WENT_ON.search(line.text[:MOST_OF_LINE])), None)
    if load is not None:
        return FINITE_BEFORE.format(line=load.number, text=head_of(load.text.strip(), 160))
    return f"{NEVER_FINITE} The first value that is none is {nan[0]} (job.log:{nan[1]})." if nan is not None else NEVER_FINITE
