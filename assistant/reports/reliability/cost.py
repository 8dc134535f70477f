"""Make `report cost`: what the GPU hours of each account, user and partition cost, and how much of that was lost.

The price of a GPU hour is the account's, else the partition's, else the common one.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from assistant.content.reading import build, read_toml
from assistant.errors import ContentError
from assistant.reports.figures import (
    BarPart,
    Cell,
    FigureGroup,
    FigureTable,
    ReportFrame,
    TableColumn,
    UsageRemark,
    UsageReport,
    WaterfallPlot,
)
from assistant.reports.job_arrays import largest
from assistant.reports.references import time_share
from assistant.reports.reliability.goodput import PARTS, divisions, part_codes, without_store
from assistant.reports.reliability.reading import ReadRuns
from assistant.reports.reliability.runs import JoinedRuns
from assistant.reports.statistics import Mask, Values
from assistant.reports.wording import NOT_KNOWN, quantity, share

MOST_GROUPS = 20
MOST_BARS = 12
LONGEST_CURRENCY = 8
MOST_PRICE = 1_000_000
"""Of a GPU hour, in any currency; beyond it a price is a slip, and sums may overflow."""


@dataclass(frozen=True, slots=True)
class Prices:
    """What a GPU hour costs."""

    currency: str = "EUR"
    gpu_hour: float | None = None
    """Where neither account nor partition has a price; None: such jobs have none."""
    account: Mapping[str, float] = field(default_factory=dict)
    partition: Mapping[str, float] = field(default_factory=dict)


def read_prices(path: Path) -> Prices:
    """Return the prices of a TOML file.

    Raises:
        ContentError: It cannot be read, has an unknown key, or a price that is none.
    """
    prices = build(Prices, read_toml(path), path)
    for key, value in (("gpu_hour", prices.gpu_hour), *prices.account.items(), *prices.partition.items()):
        if value is not None and not is_price(value):
            raise ContentError(
                f"{path}: {key}: wanted a price of a GPU hour, at least 0 and at most {MOST_PRICE:,}, found {value!r}"
            )
    if not is_currency(prices.currency):
        raise ContentError(f"{path}: currency: wanted capital letters such as EUR, found {prices.currency[:40]!r}")
    return prices


def is_price(value: object) -> bool:
    """Return whether a value may be the price of a GPU hour: a number from 0 to `MOST_PRICE`."""
    return isinstance(value, int | float) and 0 <= value <= MOST_PRICE


def is_currency(text: str) -> bool:
    """Return whether a text may stand for a currency: 2 to 8 capital letters, so that it is no unit of another figure."""
    return text.isascii() and text.isalpha() and text.isupper() and 2 <= len(text) <= LONGEST_CURRENCY


def price_of_runs(runs: JoinedRuns, prices: Prices) -> Values:
    """Return the price of a GPU hour of each run; NaN where none is said."""
    price = np.full(runs.jobs.count, math.nan if prices.gpu_hour is None else prices.gpu_hour)
    # the account's price stands over the partition's
    for key, by_name in (("partition", prices.partition), ("account", prices.account)):
        dimension = runs.jobs.by[key]
        price_by_code = np.array([by_name.get(name, math.nan) for name in dimension.names], dtype=np.float64)
        group_price = price_by_code[dimension.codes] if len(price_by_code) else np.full(runs.jobs.count, math.nan)
        price = np.where(np.isnan(group_price), price, group_price)
    return price


def _shares_by_kind(runs: JoinedRuns) -> Mapping[str, Values]:
    """Return which share of each run's GPU time was lost, and of which it is not known."""
    colours = [part.colour for part in PARTS]
    codes = part_codes(runs)
    shares = {
        colour: np.array([part_colour == colour for part_colour in colours])[codes].astype(np.float64) for colour in ("bad", "none")
    }
    fine = np.full(runs.jobs.count, 1_000_000, dtype=np.int64)
    by_key = {part.key: part.colour for part in PARTS}
    for place, parts in divisions(runs, fine).items():
        for colour, values in shares.items():
            values[place] = sum(ms for key, ms in parts.items() if by_key[key] == colour) / 1_000_000
    return shares


def cost_report(read: ReadRuns, frame: ReportFrame, prices: Prices) -> UsageReport:
    """Return the report of what the GPU hours cost."""
    runs = read.runs
    price = price_of_runs(runs, prices)
    hours = np.nan_to_num(runs.jobs.gpu_s) / 3600
    cost = np.where(hours > 0, hours * price, 0.0)
    unpriced = np.isnan(cost)
    cost = np.nan_to_num(cost)
    lost = _shares_by_kind(runs)
    total = float(cost.sum())
    groups = []
    if total > 0:
        tables = [_table(runs, key, cost, lost, prices.currency) for key in ("account", "user", "partition", "type")]
        lead = "Account's price, else the partition's, else the common one; what is lost and not known as in report reliability."
        groups.append(FigureGroup("costs", "What it cost", lead, (_plot(runs, cost, prices.currency), *tables)))
    return frame.report(
        "cost",
        groups,
        facts=[("prices", _described(prices))],
        headline=(
            ("GPU hours", float(hours.sum()), "GPU h"),
            ("cost", total, prices.currency),
            ("of failures", float(cost[runs.failed].sum()), prices.currency),
            ("of failures, of all", time_share(cost, runs.failed), "share"),
            ("known to be lost", float((cost * lost["bad"]).sum()) if runs.has_store else NOT_KNOWN, prices.currency),
            ("not known whether lost", float((cost * lost["none"]).sum()), prices.currency),
            ("GPU hours without a price", float(hours[unpriced].sum()), "GPU h"),
        ),
        remarks=_remarks(runs, cost, hours, unpriced, prices),
    )


def _described(prices: Prices) -> str:
    common = "none in common" if prices.gpu_hour is None else f"{prices.gpu_hour:g} {prices.currency} a GPU hour"
    other_prices = [f"{name} {value:g}" for by_name in (prices.account, prices.partition) for name, value in by_name.items()]
    return "; ".join([common, *([", ".join(other_prices[:MOST_GROUPS])] if other_prices else [])])


def _table(runs: JoinedRuns, key: str, cost: Values, lost: Mapping[str, Values], currency: str) -> FigureTable:
    columns = (
        TableColumn(key, key),
        TableColumn("jobs", "jobs", "count"),
        TableColumn("gpu_hours", "GPU hours", "GPU h"),
        TableColumn("cost", "cost", currency),
        TableColumn("share", "of all", "share"),
        TableColumn("failures", "of failures", currency),
        TableColumn("lost", "known to be lost", currency),
        TableColumn("not_known", "not known", currency),
    )
    dimension = runs.jobs.by[key]
    order = largest(dimension, cost, len(dimension.names))

    def figures(mask: Mask) -> tuple[Cell, ...]:
        return (
            int(mask.sum()),
            float(np.nansum(runs.jobs.gpu_s[mask])) / 3600,
            float(cost[mask].sum()),
            time_share(cost, mask),
            float(cost[mask & runs.failed].sum()),
            float((cost * lost["bad"])[mask].sum()) if runs.has_store else None,
            float((cost * lost["none"])[mask].sum()),
        )

    rows: list[tuple[Cell, ...]] = [(dimension.names[code], *figures(dimension.codes == code)) for code in order[:MOST_GROUPS]]
    if further := order[MOST_GROUPS:]:
        rows.append((f"{len(further):,} others", *figures(np.isin(dimension.codes, further))))
    if len(rows) > 1:
        rows.append(("all", *figures(np.ones(runs.jobs.count, dtype=np.bool_))))
    return FigureTable(f"cost_by_{key}", f"Cost by {key}", columns, tuple(rows))


def _plot(runs: JoinedRuns, cost: Values, currency: str) -> WaterfallPlot:
    dimension = runs.jobs.by["account"]
    order = largest(dimension, cost, len(dimension.names))
    sums = {code: float(cost[dimension.codes == code].sum()) for code in order[:MOST_BARS]}
    bars = [BarPart(dimension.names[code], value, "mid") for code, value in sums.items() if value > 0]
    total_amount = float(cost.sum())
    if (remainder := total_amount - sum(bar.value for bar in bars)) > 1e-9 * total_amount:
        bars.append(BarPart("others", remainder, "none"))
    listed = "; ".join(f"{bar.name}: {quantity(bar.value, currency)}, {share(bar.value / total_amount)}" for bar in bars)
    return WaterfallPlot("cost_of_accounts", "Accounts by cost, adding up", currency, tuple(bars), total_amount, False, listed)


def _remarks(runs: JoinedRuns, cost: Values, hours: Values, unpriced: Mask, prices: Prices) -> list[UsageRemark]:
    if not runs.jobs.count:
        return [UsageRemark("empty", "No job that ran and ended was counted: the table of what was left out says why.", "note")]
    sentences = [] if runs.has_store else [without_store()]
    if unpriced.any():
        text = f"{int(unpriced.sum()):,} jobs with {hours[unpriced].sum():,.0f} GPU hours have no price and are in no cost."
        sentences.append(UsageRemark("unpriced", text))
    unknown = int(np.isnan(runs.jobs.gpu_s).sum())
    if unknown:
        sentences.append(
            UsageRemark("gpus_unknown", f"Of {unknown:,} jobs no number of GPUs is known: they are in no cost.", "note")
        )
    names = {key: set(runs.jobs.by[key].names) for key in ("account", "partition")}
    listed = (("account", prices.account), ("partition", prices.partition))
    unused = [name for key, by_name in listed for name in by_name if name not in names[key]]
    if unused:
        sentences.append(
            UsageRemark("unused", f"No job has the account or partition of these prices: {', '.join(unused[:8])}.", "note")
        )
    total = float(cost.sum())
    failure_cost = f"{quantity(float(cost[runs.failed].sum()), prices.currency)} of {quantity(total, prices.currency)}"
    sentences.append(UsageRemark("failures", f"Failures cost {failure_cost}.", "note"))
    return sentences
