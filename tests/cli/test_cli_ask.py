"""`nightshift ask` and `explain` on the command line: answers, exit codes, bad input, what is loaded."""

from __future__ import annotations

import io
import sqlite3
import subprocess
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from assistant.cli.output import Exit
from assistant.ports import SystemClock
from assistant.records import Event, EventKind, IncidentState
from assistant.store import Store
from tests.cli.conftest import NOON, Run
from tests.cli.test_cli_startup import PROGRAM


def test_a_question_is_answered_with_its_sources(cli: Run) -> None:
    said = cli("ask", "what is wrong now?", "--sources")
    assert said.code == Exit.DONE
    assert "[1] list_incidents(" in said.out


def test_on_a_fresh_machine_it_says_how_to_begin_and_shows_no_nodes(cli: Run) -> None:
    said = cli("ask", "what is wrong now?")
    assert said.code == Exit.DONE
    assert said.out.startswith("This is no cluster yet")
    assert [line.split()[0] for line in said.out.splitlines()[1:4]] == ["1.", "2.", "3."]
    assert "Nothing is wrong" not in said.out
    assert "Nodes out of service" not in said.out


def test_a_scheduler_that_was_chosen_is_a_cluster_and_without_a_watch_it_is_not_well(
    cli: Run, monkeypatch: pytest.MonkeyPatch, store_path: Path
) -> None:
    monkeypatch.setenv("NIGHTSHIFT_SCHEDULER", "local")
    said = cli("ask", "what is wrong now?")
    assert said.out.startswith("No pass ever saw everything: no watch ever ran")
    assert "Nodes out of service: none of 4" in said.out
    now = datetime.now(UTC)
    with Store(store_path, SystemClock()) as kept:
        kept.keep_pass("watch@login1:1.1", at=now, seconds=0.1, leads=True, whole=True)
    assert cli("ask", "what is wrong now?").out.startswith("Nothing is wrong that is known here.")


def test_json_holds_text_mode_sources_and_reading(cli: Run) -> None:
    said = cli("ask", "how many nodes are idle?", "--json")
    answer = said.objects[0]
    assert (answer["mode"], answer["intent"], answer["kind"]) == ("semantic", "bad_nodes", "answer")
    assert answer["sources"][0]["tool"] == "node_states"


def test_questions_in_a_row_are_one_conversation(cli: Run, store: Store) -> None:
    said = cli("ask", "explain incident 1", "what waits for me?", "--json")
    assert [answer["intent"] for answer in said.objects] == ["explain_incident", "approvals"]
    assert "nightshift approve 1" in said.objects[1]["text"]


@pytest.mark.parametrize(
    ("question", "code"),
    [
        ("why did 9999 die?", Exit.ERROR),
        ("cordon node01", Exit.REFUSED),
        ("yes, do it", Exit.REFUSED),
        ("why did it die?", Exit.ERROR),
    ],
)
def test_the_exit_code_says_how_it_ended(question: str, code: Exit, cli: Run) -> None:
    assert cli("ask", question).code == code


def test_a_question_may_come_from_stdin_but_an_order_may_not(cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "stdin", io.StringIO("which nodes are idle?\n"))
    assert cli("ask", "-").code == Exit.DONE
    monkeypatch.setattr(sys, "stdin", io.StringIO("cordon node01\n"))
    said = cli("ask", "-")
    assert said.code == Exit.REFUSED
    assert "piped text" in said.out


@pytest.mark.parametrize("question", ["x" * 1_000_000, "", "🔥", "\u202e\u2066"], ids=["1 MB", "empty", "emoji", "bidi"])
def test_what_is_no_question_is_a_usage_error_in_one_line(question: str, cli: Run) -> None:
    said = cli("ask", question)
    assert said.code == Exit.USAGE
    assert len(said.err.splitlines()) == 1
    assert len(said.err) < 400


def test_signs_that_deceive_never_reach_the_terminal(cli: Run) -> None:
    said = cli("ask", "what is wrong\u202e now \u001b[2J?")
    assert said.code == Exit.DONE
    assert not set("\u202e\u001b") & set(said.out)


def test_explain_writes_the_report(cli: Run, store: Store) -> None:
    assert cli("explain", 1).out == cli("incident", "report", 1).out
    assert cli("explain", 99).code == Exit.USAGE


def test_an_answer_without_a_model_loads_no_language_model(store: Store) -> None:
    words = ["ask", "what waits for me?"]
    done = subprocess.run([sys.executable, "-c", PROGRAM, *words], capture_output=True, text=True, check=True)
    assert {"langchain", "langchain_core", "langgraph", "pydantic"} & set(done.stderr.split()) == set()


def test_a_conversation_goes_on_in_the_next_call_without_a_language_model(cli: Run, store: Store, home: Path) -> None:
    cli("ask", "--talk", "night", "explain incident 1")
    went_on = cli("ask", "--talk", "night", "why?", "--json").objects[0]
    assert (went_on["intent"], went_on["incidents"]) == ("explain_incident", [1])
    assert cli("ask", "--talk", "night", "show 1").out.startswith("[1] show_incident(")
    assert "Which" in cli("ask", "--talk", "other", "why did it die?").out
    kept = next(home.rglob("conversations.db"))
    assert kept.stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("broken", ["row", "file"])
def test_a_file_of_conversations_that_is_broken_costs_only_the_conversation(
    broken: str, cli: Run, store: Store, home: Path
) -> None:
    cli("ask", "--talk", "night", "explain incident 1")
    kept = next(home.rglob("conversations.db"))
    if broken == "file":
        kept.write_bytes(b"no database at all")
    else:
        with sqlite3.connect(kept) as file:
            file.execute("UPDATE spoken SET state = '{'")
    assert cli("ask", "--talk", "night", "what is wrong now?").code == Exit.DONE


def test_what_is_wrong_counts_the_incidents_that_status_counts(cli: Run, store: Store) -> None:
    for number in range(3):
        incident, _ = store.open_incident(Event(EventKind.JOB_ENDED, f"10{number}", None, NOON))
        store.set_state(incident.id, IncidentState.ESCALATED, note="ask its owner")
    wrong = cli("ask", "what is wrong?").out
    assert "3 incidents need a person" in wrong
    assert "3 incidents need a person" in cli("status").out
    assert cli("incident", "ack", "--all").code == Exit.DONE
    wrong = cli("ask", "what is wrong?").out
    assert "need a person" not in wrong
    assert "3 incidents are in a person's hands" in wrong
    assert "need a person" not in cli("status").out
