"""Citations as owners can open them: which names become paths, and which text is left as it is."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path

from assistant.records import Evidence
from assistant.recover.joblog import LOGS, LogPlaces, log_paths

AT = datetime(2026, 1, 1, tzinfo=UTC)
LOG, RANK = "/shared/ada/logs/1_4.log", "/shared/ada/logs/rank_3.log"


def evidence(source: str, **facts: object) -> Evidence:
    return Evidence(1, 1, source, "", facts, AT)


def test_the_path_stands_where_a_log_is_first_named_and_then_its_name() -> None:
    places = LogPlaces(log_paths([evidence("job log", path=LOG)]))
    assert places.written("ValueError: oak (job.log:29).") == f"ValueError: oak ({LOG}:29)."
    assert places.written("line: job.log:31: oak") == "line: 1_4.log:31: oak"


def test_several_logs_of_a_job_keep_their_own_names() -> None:
    files = [{"name": "job.log", "path": LOG}, {"name": "rank_3.log", "path": RANK}, {"name": "", "path": "/dev/null"}, "odd"]
    places = LogPlaces(log_paths([evidence(LOGS, files=files)]))
    assert places.written("rank_3.log:5 before job.log:7") == f"{RANK}:5 before {LOG}:7"


def test_other_files_and_other_words_stay() -> None:
    places = LogPlaces(log_paths([evidence("job log", path=LOG)]))
    for text in ("dmesg.log:3", "my_job.log:3", "old/job.log:3", "the file job.log is empty", "job.log: not found"):
        assert places.written(text) == text
    assert LogPlaces(log_paths([])).written("job.log:3") == "job.log:3"


def test_names_with_the_characters_of_patterns_are_names() -> None:
    places = LogPlaces({"a+b(1).log": Path("/x/a+b(1).log")})
    assert places.written("a+b(1).log:4") == "/x/a+b(1).log:4"
