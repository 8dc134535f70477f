"""The store: one SQLite file is the state of Nightshift. Whatever happens is written here before the next thing happens.

Every change of an incident, call, decision, outcome or approval appends a row to the audit in the same transaction.
"""

from __future__ import annotations

from assistant.store.approvals import Approval, ApprovalRows
from assistant.store.audit import AuditHead, AuditRow
from assistant.store.calls import PastCall
from assistant.store.deliveries import Count, DeliveryRecord, DeliveryRows
from assistant.store.incidents import SETTLED_SINCE, WENT_ON, IncidentRows
from assistant.store.memories import Memory, MemoryRows, Near
from assistant.store.past_runs import Attempt, BudgetRows, EvaluationRows, EvaluationRun, LedgerRows, TemplateRows, TrialRows
from assistant.store.processes import ProcessRows
from assistant.store.rules import PolicyRows, RuleRows
from assistant.store.verification import BrokenRow
from assistant.store.watches import CoverageRows, LeaderRows, Leadership, PassingWatch, Said, Unseen, WatchRows

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
