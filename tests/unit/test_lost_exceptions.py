"""An end whose exception the launcher lost: who exited first and where its traceback breaks off; never that it was cancelled."""

from __future__ import annotations

import os
import tomllib
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from assistant.diagnose.case import Case
from assistant.diagnose.facts import Facts
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.learning.ranked import RankerOpinion
from assistant.diagnose.verdict import diagnose
from assistant.diagnose.weighing.first_failure import LastFrame, frame_of
from assistant.engine.evidence.node_faults import may_list, source_line
from assistant.records import Citation, DecidedBy, Diagnosis, Job, JobSpec, JobState
from assistant.recover.source.load_calls import opened_paths
from assistant.recover.source.trainer_source import parse_source

FOLDER = Path(__file__).parents[1] / "cases" / "lost_exceptions"
LOGS = tomllib.loads((FOLDER / "logs.toml").read_text(encoding="utf-8"))["case"]
STEPS = [f" iteration {n:8d}/ 1000 | consumed samples: {n * 8} | lm loss: {3 - n / 100:.4E} |\n" for n in range(1, 44)]


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    return Knowledge.load()


@pytest.mark.parametrize("case", LOGS, ids=lambda case: case["name"])
def test_what_is_left_of_a_lost_exception_is_said_and_nothing_else(
    case: dict[str, Any], tmp_path: Path, knowledge: Knowledge
) -> None:
    log = "".join(STEPS[:20]) + case.get("before", "").lstrip() + "".join(STEPS[20:]) + case["log"].lstrip()
    (tmp_path / "job.log").write_text(log)
    found = diagnose(Case.from_path(tmp_path), knowledge, [RankerOpinion()])
    words = " ".join([found.summary, found.advice, *(rival.reason for rival in found.rivals)])
    assert found.reason == case.get("reason", found.reason), words
    assert [text for text in case.get("says", ()) if text not in words] == [], words
    assert [text for text in case["never"] if text in words] == [], words
    if "place" in case:
        assert found.where[0].sentence.startswith(case["place"]), found.where[0].sentence
    if found.reason == "unknown":
        assert not found.faulty_nodes


class Guess:
    """An opinion that takes one line of a log for a person's stop."""

    name = "guess"

    def __init__(self, words: str) -> None:
        self.words = words

    def ask(self, facts: Facts, found: Diagnosis) -> Diagnosis | None:
        line = next(line for line in facts.lines if self.words in line.text)
        cited = (Citation("job.log", line.number, line.text, self.name),)
        return replace(found, reason="cancelled", confidence=0.9, by=DecidedBy.MODEL, root_cause=cited)

    def note(self, facts: Facts, found: Diagnosis) -> Diagnosis:
        del facts
        return found


@pytest.mark.parametrize(
    ("words", "reason"),
    [
        ("CANCELLED AT", "unknown"),
        ("task 0: Terminated", "unknown"),
        ("_step_signal: Terminating", "unknown"),
        ("Force Terminated", "unknown"),
        ("stop file", "cancelled"),  # nothing speaks against that
    ],
)
def test_whoever_guesses_that_srun_stopped_it_is_held_to_the_task_that_failed_first(
    words: str, reason: str, tmp_path: Path, knowledge: Knowledge
) -> None:
    (tmp_path / "job.log").write_text("".join(STEPS) + "found a stop file of ann\n" + LOGS[0]["log"].lstrip())
    assert diagnose(Case.from_path(tmp_path), knowledge, [Guess(words)]).reason == reason


@pytest.mark.parametrize(
    ("text", "frame"),
    [
        ('  File "/shared/job/x.py", line 5, in <module>', LastFrame("/shared/job/x.py", 5, "<module>")),
        ('[rank3]:   File "/w/a b.py", line 812, in Reader.__next__', LastFrame("/w/a b.py", 812, "Reader.__next__")),
        ('  File "/shared/job/x.py", line 5', None),
        ('  File "/shared/job/x.py", line 5, in', None),
        ('  File "/home/eve/main.py", line 12srun: error: n8: task 7: Exited with exit code 1', None),
        ('  File "/w/t.py", line 5, in losrun: error: n8: task 7: Exited with exit code 1', None),
        ('  File "' + "a" * 5000, None),
    ],
)
def test_a_frame_counts_only_where_its_line_is_whole(text: str, frame: LastFrame | None) -> None:
    assert frame_of(text) == frame


SOURCES = tomllib.loads((FOLDER / "sources.toml").read_text(encoding="utf-8"))["case"]


@pytest.mark.parametrize("case", SOURCES, ids=lambda case: case["name"])
def test_a_line_of_source_names_what_it_opens_as_far_as_its_text_tells(case: dict[str, Any]) -> None:
    lines = case["source"].strip("\n").split("\n")
    number = next(number for number, line in enumerate(lines, 1) if line.startswith(">>> "))
    text = "\n".join(line.removeprefix(">>> ") for line in lines)
    source = parse_source(text, path="/w/x.py", arguments=case.get("options", ()))
    opened = opened_paths(source, number, case.get("function", "<module>"))
    assert [path.pattern for path in opened] == case["opens"]


@pytest.mark.parametrize(
    ("file", "may"),
    [
        ("/lustre/pile/shard-03.bin", True),
        ("/lustre/pile/shard-.bin", True),
        ("/lustre/pile/other.bin", False),
        ("/lustre/pile/deeper/shard-03.bin", False),
        ("/lustre/pile/shard-.bi", False),
        ("/lustre/pile/shard-a_b.bin.tmp", False),
        ("/lustre/shard-03.bin", False),
    ],
)
def test_a_file_of_the_folder_fits_the_name_or_not(file: str, may: bool) -> None:
    source = parse_source('open(f"/lustre/pile/shard-{n}.bin")', path="/w/x.py")
    (opened,) = opened_paths(source, 1, "<module>")
    assert opened.names(file) is may


NOW = datetime.now(UTC).replace(microsecond=0)
READS = 'import os\ndata = open("/lustre/pile/shard-%02d.bin" % 3, "rb").read()\n'


def ended_job(folder: Path, *, started: datetime | None, script: str = "srun python3 x.py\n", account: str = "") -> Job:
    spec = JobSpec("llm", script, work_dir=folder)
    return Job("7", "llm", "ada", JobState.FAILED, "", ("n1", "n2"), folder / "7.out", folder, started, started, None, 1, None,
               spec=spec, account=account)  # fmt: skip


def test_a_source_is_read_as_it_ran(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text(READS)
    later = NOW + timedelta(hours=1)
    line = source_line(ended_job(tmp_path, started=later), LastFrame(str(tmp_path / "x.py"), 2, "<module>"))
    assert line is not None
    assert (line.number, [path.path for path in line.opened]) == (2, ["/lustre/pile"])
    relative = source_line(ended_job(tmp_path, started=later), LastFrame("x.py", 2, "<module>"))
    assert relative == line


@pytest.mark.parametrize(
    ("changes", "number", "file"),
    [
        ({"started": NOW - timedelta(seconds=60)}, 2, "x.py"),  # it was changed behind the start
        ({"started": None}, 2, "x.py"),
        ({"script": "srun --container-image=img python3 x.py\n"}, 2, "x.py"),  # another file of that name
        ({"script": "singularity exec img.sif python3 x.py\n"}, 2, "x.py"),
        ({}, 3, "x.py"),
        ({}, 2, "missing.py"),
        ({}, 2, "../x.py"),
        ({}, 2, "folder.py"),
        ({}, 2, "binary.py"),
    ],
)
def test_a_source_that_is_not_surely_the_one_that_ran_says_nothing(
    changes: dict[str, Any], number: int, file: str, tmp_path: Path
) -> None:
    (tmp_path / "x.py").write_text(READS)
    (tmp_path / "folder.py").mkdir()
    (tmp_path / "binary.py").write_bytes(b"\0\n" + READS.encode())
    job = ended_job(tmp_path, **{"started": NOW + timedelta(hours=1), **changes})
    line = source_line(job, LastFrame(file, number, "<module>"))
    assert line is None or not line.opened


def test_an_old_time_that_was_put_on_a_new_file_does_not_make_it_old(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text(READS)
    os.utime(tmp_path / "x.py", (1_000_000, 1_000_000))
    assert source_line(ended_job(tmp_path, started=NOW - timedelta(days=1)), LastFrame("x.py", 2, "<module>")) is None


@pytest.mark.skipif(os.geteuid() != 0, reason="only root reads with the rights of others")
def test_a_source_is_read_with_the_rights_of_the_jobs_owner(tmp_path: Path) -> None:
    (tmp_path / "x.py").write_text(READS)
    (tmp_path / "x.py").chmod(0o600)
    later = NOW + timedelta(hours=1)
    assert source_line(ended_job(tmp_path, started=later, account="games"), LastFrame("x.py", 2, "<module>")) is None


@pytest.mark.parametrize(
    ("owners", "may"),
    [
        (("root:0:755", "root:0:755", "root:0:755"), True),
        (("ada:100:700", "root:0:755"), True),
        (("bob:100:700", "root:0:755"), False),
        (("root:0:755", "bob:100:700", "root:0:755"), False),
        (("root:0:711", "root:0:755"), False),
        (("root:0:1777",), True),
        ((), False),
        (("odd",), False),
    ],
)
def test_what_lies_in_the_folder_of_another_user_is_shown_to_nobody(owners: tuple[str, ...], may: bool, tmp_path: Path) -> None:
    assert may_list(owners, ended_job(tmp_path, started=NOW)) is may
