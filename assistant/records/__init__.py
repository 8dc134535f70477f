"""What flows through Nightshift: one frozen record a thing, and the closed lists of words.

An `Event` opens an `Incident`; reading calls bring `Evidence`; diagnosis turns evidence into a `Diagnosis`; a playbook turns
that into `Call`s; the gate answers each with a `Decision` and an `Outcome`. Nothing here does anything.
Timestamps are aware UTC datetimes. Ids are positive integers given by the store.
"""

from __future__ import annotations

from assistant.records.diagnoses import (
    Citation,
    Diagnosis,
    LearnedRule,
    NodeFinding,
    NodePattern,
    Recall,
    Rival,
    Sighting,
    Whereabouts,
)
from assistant.records.incidents import Call, Decision, Event, Evidence, Incident, Outcome
from assistant.records.jobs import Checkpoint, Job, JobSpec, JobStep, MetricPoint, Node, Reservation, partition_names
from assistant.records.tags import Tag, hold_comment, hold_mark, run_of, tag_of, tags_in, without_tags
from assistant.records.words import (
    Action,
    CallStatus,
    Category,
    DecidedBy,
    EventKind,
    IncidentState,
    JobState,
    NodeState,
    PatternKind,
    Risk,
    RuleKind,
    RuleState,
    Verdict,
)

__all__ = [
    "Action",
    "Call",
    "CallStatus",
    "Category",
    "Checkpoint",
    "Citation",
    "DecidedBy",
    "Decision",
    "Diagnosis",
    "Event",
    "EventKind",
    "Evidence",
    "Incident",
    "IncidentState",
    "Job",
    "JobSpec",
    "JobState",
    "JobStep",
    "LearnedRule",
    "MetricPoint",
    "Node",
    "NodeFinding",
    "NodePattern",
    "NodeState",
    "Outcome",
    "PatternKind",
    "Recall",
    "Reservation",
    "Risk",
    "Rival",
    "RuleKind",
    "RuleState",
    "Sighting",
    "Tag",
    "Verdict",
    "Whereabouts",
    "hold_comment",
    "hold_mark",
    "partition_names",
    "run_of",
    "tag_of",
    "tags_in",
    "without_tags",
]
