"""Memory as a second opinion: it speaks where the rules are silent, by lines of the case, and only where like incidents agree."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from assistant.content.reasons import reasons
from assistant.diagnose.case import Case
from assistant.diagnose.facts import gather
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.learning.opinions import MemoryOpinion, confidence_of, shared_words
from assistant.diagnose.readers.candidate_lines import candidate_lines
from assistant.diagnose.verdict import diagnose
from assistant.llm.embedded import HashingEmbedder
from assistant.ports import Embedder, JumpingClock
from assistant.records import DecidedBy, Diagnosis, Event, EventKind, Job, JobState
from assistant.store import Memory, Store
from tests.scripted_models import ScriptedEmbedder

AT = datetime(2026, 3, 1, 3, 0, tzinfo=UTC)
STEPS = "".join(f"iteration {n}/ 1000 | lm loss: {3 - n / 100:.3f} |\n" for n in range(1, 40))
CAUSE = "flux capacitor 7 lost its uplink to the spine"
EXIT = "srun: error: node7: task 4: Exited with exit code 9"


class Past:
    """Confirmed incidents, and a failure that nothing knows."""

    def __init__(self, folder: Path, embedder: Embedder | None = None) -> None:
        self.folder = folder
        self.store = Store(folder / "s.db", JumpingClock(AT))
        self.embedder = embedder or HashingEmbedder()
        self.knowledge = Knowledge.load()

    def was(self, line: str, reason: str, *, by: str = "operator:ada", job: str = "", cure: str = "", embedder: str = "") -> int:
        """Remember an incident."""
        name = job or f"past{len(self.store.incidents())}"
        incident, _ = self.store.open_incident(Event(EventKind.REQUESTED, name, None, AT))
        memory = Memory(incident.id, reason, "restart_same_nodes", (line,), f"# job.log\n{line}", cure, (), "", by, "", AT)
        vectors = self.embedder.embed([line])
        self.store.keep_memory(memory, embedder=embedder or self.embedder.name, vectors=vectors)
        return incident.id

    def said(self, *lines: str, job: Job | None = None) -> Diagnosis:
        """Diagnose a failure with these last lines."""
        log = self.folder / "job.log"
        log.write_text(STEPS + "\n".join([*lines, EXIT]) + "\n")
        case = Case.from_parts(log, "", "", None, job, None)
        return diagnose(case, self.knowledge, [MemoryOpinion(self.store, self.embedder, reasons)])


@pytest.fixture
def past(tmp_path: Path) -> Iterator[Past]:
    made = Past(tmp_path)
    yield made
    made.store.close()


def test_a_like_incident_names_the_reason_with_a_line_of_this_case(past: Past) -> None:
    number = past.was(CAUSE, "network_error", cure="switch 4 rebooted")
    found = past.said("flux capacitor 12 dropped its uplink to the spine")
    assert (found.reason, found.by, found.action) == ("network_error", DecidedBy.MEMORY, "restart_same_nodes")
    assert [(c.line, c.rule) for c in found.root_cause] == [(40, f"memory of incident {number}")]
    assert found.summary.startswith(f"Network error, seen before in incident {number}, cured by switch 4 rebooted, similarity 0.")
    assert "shares flux, capacitor, uplink, spine" in found.summary
    assert (found.rivals[0].reason, found.faulty_nodes) == ("unknown", ())
    [recall] = found.seen_before
    assert (recall.incident, recall.cure) == (number, "switch 4 rebooted")


def test_what_is_not_alike_stays_unknown(past: Past) -> None:
    past.was("quota of user ada exceeded on /scratch", "os_error")
    found = past.said(CAUSE)
    assert (found.reason, found.seen_before) == ("unknown", ())


def test_memories_that_differ_say_nothing_but_are_named(past: Past) -> None:
    past.was(CAUSE, "network_error")
    past.was(CAUSE.replace("7", "9"), "node_failure")
    assert past.said(CAUSE.replace("7", "5")).reason == "unknown"


def test_a_verdict_of_the_rules_stands_and_gets_what_was_seen_before(past: Past) -> None:
    line = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
    past.was(line, "ecc_error", by="recovered")
    found = past.said(line)
    assert (found.reason, found.by) == ("ecc_error", DecidedBy.RULE)
    assert [recall.reason for recall in found.seen_before] == ["ecc_error"]


def test_a_persons_word_against_a_verdict_of_the_rules_becomes_a_rival(past: Past) -> None:
    line = "RuntimeError: CUDA error: uncorrectable ECC error encountered"
    number = past.was(line, "nvlink_error")
    found = past.said(line)
    assert (found.reason, found.rivals[0].reason) == ("ecc_error", "nvlink_error")
    assert f"incident {number} was that, by operator:ada" in found.rivals[0].speaks_for


def test_an_attempt_is_never_told_by_its_own_memory(past: Past) -> None:
    past.was(CAUSE, "network_error", job="77")
    job = Job("77", "llm", "ada", JobState.FAILED, "", (), None, None, None, None, None, 1, None)
    assert past.said(CAUSE, job=job).by is DecidedBy.RULE
    assert past.said(CAUSE).by is DecidedBy.MEMORY


def test_memories_of_another_embedder_are_embedded_anew_when_asked(tmp_path: Path) -> None:
    scripted = ScriptedEmbedder({"capacitor": (1, 0, 0, 0), "warpcore": (0.9, 0.4, 0, 0), "task": (0, 0, 1, 0)})
    past = Past(tmp_path, scripted)
    number = past.was(CAUSE, "network_error", embedder="older-1")
    found = past.said("warpcore field collapsed at last")
    assert (found.reason, found.seen_before[0].incident, found.seen_before[0].shared) == ("network_error", number, ())
    assert past.store.strangers("scripted-1", 9) == []


def test_the_same_case_gets_the_same_answer_twice(past: Past) -> None:
    past.was(CAUSE, "network_error")
    line = "flux capacitor 12 dropped its uplink to the spine"
    assert past.said(line) == past.said(line)


def test_routine_lines_and_source_code_are_no_telling_lines(past: Past) -> None:
    log = past.folder / "job.log"
    log.write_text(
        f'{STEPS}Traceback (most recent call last):\n  File "a.py", line 3, in f\n    seal(shard)\nacme.Bad: seal broken\n{CAUSE}\n'
    )
    told = candidate_lines(gather(Case.from_path(log), past.knowledge))
    assert [one.message for one in told] == ["acme.Bad: seal broken", CAUSE]


@pytest.mark.parametrize(("similarity", "confidence"), [(0.5, 0.6), (0.6, 0.6), (0.75, 0.815), (1.0, 0.93), (1.2, 0.93)])
def test_confidence_grows_with_similarity(similarity: float, confidence: float) -> None:
    assert confidence_of(similarity) == pytest.approx(confidence)


def test_shared_words_begin_with_the_telling_ones() -> None:
    assert shared_words("error: flux capacitor 7 lost", "error: the flux of capacitor 9 was lost") == (
        "flux",
        "capacitor",
        "lost",
        "error",
    )


def test_a_kernel_line_of_another_time_is_history_and_no_cause(past: Past) -> None:
    fault = "NVRM: Xid (PCI:0000:07:00): 31, pid=1658, name=python, Ch 00000008, MMU Fault: ENGINE GRAPHICS faulted"
    past.was(fault, "cuda_error", by="recovered")
    log = past.folder / "job.log"
    log.write_text(STEPS)

    def judged(started: datetime) -> Diagnosis:
        ended = started + timedelta(hours=1)
        job = Job(
            "15", "llm", "ada", JobState.FAILED, "p", ("gpu1",), log, past.folder, started, started, ended, 1, None, dated_logs=True
        )
        case = Case.from_parts(log, f"# gpu1\n2026-03-01T02:58:00+00:00 {fault}", "", None, job, None)
        return diagnose(case, past.knowledge, [MemoryOpinion(past.store, past.embedder, reasons)])

    before, during = judged(AT), judged(AT.replace(hour=2))
    assert "cuda_error" not in (before.reason, *(rival.reason for rival in before.rivals))
    assert during.reason == "cuda_error"
