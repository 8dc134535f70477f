"""The store: one SQLite file is the state of Nightshift. Whatever happens is written here before the next thing happens.

Every change of an incident, call, decision, outcome or approval appends a row to the audit in the same transaction.

- the file itself: `connection` (one a thread), `migrations` (its tables, step by step), `rows` (records to rows and back), `seals`
  (the digest of every committed row), `schema` (whether tables and header are this version's), `audit` (who did what) and `chain`
  (whether the file was rewritten, asked by a person and before each change)
- what happens now: `incidents` with the last readings of nodes and processes, `calls` with their approvals, `watches` (the
  processes that watch, which one leads, what each has counted and notified)
- what outlives it: `past_runs` (memories, ledger, estimates), `standing_decisions` (breaker, learned rules, the site's policy)
"""

from __future__ import annotations

from assistant.store.audit import AuditHead, AuditRow, BrokenRow, Findings
from assistant.store.calls import Approval, ApprovalRows, PastCall
from assistant.store.incidents import SETTLED_SINCE, WENT_ON, IncidentRows, ProcessRows
from assistant.store.past_runs import (
    Attempt,
    BudgetRows,
    EvaluationRows,
    EvaluationRun,
    LedgerRows,
    Memory,
    MemoryRows,
    Near,
    TemplateRows,
    TrialRows,
)
from assistant.store.standing_decisions import PolicyRows, RuleRows
from assistant.store.watches import (
    Count,
    CoverageRows,
    DeliveryRecord,
    DeliveryRows,
    LeaderRows,
    Leadership,
    PassingWatch,
    Said,
    Unseen,
    WatchRows,
)

__all__ = [
    "SETTLED_SINCE",
    "WENT_ON",
    "Approval",
    "Attempt",
    "AuditHead",
    "AuditRow",
    "BrokenRow",
    "Count",
    "DeliveryRecord",
    "EvaluationRun",
    "Findings",
    "Leadership",
    "Memory",
    "Near",
    "PassingWatch",
    "PastCall",
    "Said",
    "Store",
    "Unseen",
]


class Store(
    IncidentRows,
    ApprovalRows,
    BudgetRows,
    EvaluationRows,
    RuleRows,
    LeaderRows,
    LedgerRows,
    PolicyRows,
    ProcessRows,
    MemoryRows,
    CoverageRows,
    DeliveryRows,
    TemplateRows,
    TrialRows,
    WatchRows,
):
    """All of the store; safe to use from several threads and processes at once."""

    def __enter__(self) -> Store:
        return self
