"""Replay the history of a site and tell what Nightshift would have done, before anybody lets it act.

`read_accounts` reads what sacct says; `Traces` finds the logs; `Replay` lets each failed attempt go through the real engine with
the cluster as it was; `tally` counts what comes of it against what really happened; `page` writes it down. No cluster is touched.
"""

from __future__ import annotations

from assistant.engine.backtest.accounts import Accounts, NodeEvents, read_accounts, read_events
from assistant.engine.backtest.attempts import Attempt
from assistant.engine.backtest.page import assumptions, markdown, sections
from assistant.engine.backtest.replay import Replay, Replayed
from assistant.engine.backtest.tally import Tally, tally
from assistant.engine.backtest.traces import Kernels, Traces

__all__ = [
    "Accounts",
    "Attempt",
    "Kernels",
    "NodeEvents",
    "Replay",
    "Replayed",
    "Tally",
    "Traces",
    "assumptions",
    "markdown",
    "read_accounts",
    "read_events",
    "sections",
    "tally",
]
