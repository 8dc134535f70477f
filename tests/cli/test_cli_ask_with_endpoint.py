"""`nightshift ask` by a model behind an endpoint, from end to end: a server on this machine, a recorded cluster, the terminal."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from assistant.agent.grounding import MARK
from assistant.cli.output import Exit
from assistant.engine import Engine
from tests.cli.conftest import Run, Said
from tests.recorded_states import recorded_state
from tests.unit.openai_here import DONE, Answers, Asked, Server, called, said, serving, speak

STATE = Path(__file__).parents[1] / "cases" / "agent" / "states" / "night.toml"
KEY = "sk-test-0123456789abcdef0123"
EXPLAIN = ("explain_job", {"job": "4821"})
Turn = str | tuple[str, dict[str, Any]] | Callable[[Asked], None]


@pytest.fixture
def engine(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """The recorded bad night instead of this machine's cluster."""
    with recorded_state(STATE, tmp_path_factory) as (made, cluster):
        monkeypatch.setattr("assistant.cli.ask._engine", lambda door: made)
        yield made
        assert cluster.changes == []


def following(*turns: Turn, takes: tuple[str, ...] = ("schema", "tools", "words")) -> Answers:
    """Answer request after request, each in the form that it asks for."""
    rest = list(turns)

    def answers(asked: Asked) -> None:
        form = "schema" if "response_format" in asked.json else "tools" if "tools" in asked.json else "words"
        if form not in takes:
            speak(asked, "", takes=takes)
            return
        turn = rest.pop(0)
        if callable(turn):
            turn(asked)
        else:
            speak(asked, turn, takes=takes)

    return answers


@contextmanager
def endpoint(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, answers: Answers, timeout_s: float = 20.0) -> Iterator[Server]:
    """Serve a model, and set it."""
    key = tmp_path / "key"
    key.write_text(KEY)
    key.chmod(0o600)
    with serving(answers) as server:
        settings = {"URL": server.url, "NAME": "m", "KEY_FILE": key, "TIMEOUT_S": timeout_s}
        for name, value in settings.items():
            monkeypatch.setenv(f"NIGHTSHIFT_MODEL__{name}", str(value))
        yield server


def told(server: Server) -> str:
    """Return all that the model was given."""
    return json.dumps([one.json["messages"] for one in server.asked], ensure_ascii=False)


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("form", ["schema", "tools", "words"])
def test_a_question_becomes_a_call_its_result_and_an_answer_in_every_form(
    form: str, cli: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answers = following(EXPLAIN, "Job 4821 failed: ecc_error on node07 [1].", takes=(form,))
    with endpoint(monkeypatch, tmp_path, answers) as server:
        done = cli("ask", "why did 4821 die?", "--sources")
    assert (done.code, done.out.splitlines()[0]) == (Exit.DONE, "Job 4821 failed: ecc_error on node07 [1].")
    assert "[1] explain_job(job=4821)" in done.out
    assert "answered by model:m" in done.err
    assert "double bit error" in told(server), "the result of the call was given to the model"
    assert all(one.headers["Authorization"] == f"Bearer {KEY}" for one in server.asked)
    assert KEY not in done.out + done.err + told(server)


@pytest.mark.usefixtures("engine")
def test_what_it_makes_up_is_marked_and_what_stands_is_not(cli: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    true = "Job 4821 failed: ecc_error on node07 [1]."
    false = ["It lost 31337 steps [1].", "It is nccl_remote_error [1].", "It is running [1]."]
    text = " ".join([true, *false])
    with endpoint(monkeypatch, tmp_path, following(EXPLAIN, text)):
        done = cli("ask", "why did 4821 die?", "--json")
    assert done.objects[0]["text"] == " ".join([true, *(f"{sentence} {MARK}" for sentence in false)])
    assert len(done.objects[0]["notes"]) == 3


@pytest.mark.usefixtures("engine")
def test_a_name_that_does_not_exist_reaches_no_tool(cli: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = following(("explain_job", {"job": "31337"}), ("rm_rf", {"path": "/"}), "Job 31337 is not known [1].")
    with endpoint(monkeypatch, tmp_path, script) as server:
        done = cli("ask", "why did it die?", "--json")
    assert done.objects[0]["mode"] == "model:m"
    assert done.objects[0]["sources"][0]["error"] == "explain_job: job '31337' is not known here"
    assert "rm_rf is not a valid tool" in told(server)


def _closes(asked: Asked) -> None:
    asked.stream(said('{"answer": "Job 4821 '))
    asked.handler.close_connection = True


TROUBLES: dict[str, tuple[Callable[[Asked], None], str]] = {
    "closes the line in the middle": (_closes, "closed the line before the answer's end"),
    "is slow": (lambda asked: asked.stream(*[part for _ in range(40) for part in (said("a"), 0.1)]), "no whole answer within 1 s"),
    "says nothing": (lambda asked: asked.stream(2.0), "no whole answer within 1 s"),
    "answers HTML": (lambda asked: asked.reply(200, "<!DOCTYPE html><p>hi", content_type="text/html"), "answers a web page"),
    "streams garbage": (lambda asked: asked.stream("data: {nonsense\n\n"), "is no chat completion"),
    "refuses the key": (lambda asked: asked.reply(401, {"error": {"message": f"bad key {KEY}"}}), "refuses the key"),
    "has too much to do": (lambda asked: asked.reply(429, {"detail": "x"}, retry_after="17"), "try again in 17 s"),
    "breaks": (lambda asked: asked.reply(500, "Traceback (most recent call last)"), "answers HTTP 500"),
    "ends with a call that is cut": (
        lambda asked: asked.stream(*called("explain_job", '{"job": "48', finish="length"), DONE),
        "it said nothing",
    ),
    "says half a turn": (lambda asked: asked.stream(said('{"tool": "explain_job", "args"', "stop"), DONE), "it said nothing"),
    "says what nothing shows": (lambda asked: speak(asked, "It was gpu99 and 31337 volts."), "nothing of what it said stands"),
}


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("turn", ["first", "second"])
@pytest.mark.parametrize("name", TROUBLES)
def test_with_an_endpoint_in_trouble_the_answer_without_it_stands_and_one_line_says_why(
    name: str, turn: str, cli: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    trouble, why = TROUBLES[name]
    script: list[Turn] = [trouble] if turn == "first" else [EXPLAIN, trouble]
    with endpoint(monkeypatch, tmp_path, following(*script), timeout_s=1.0):
        done = cli("ask", "why did 4821 die?")
    _stands(done, why)


def _stands(done: Said, why: str) -> None:
    assert done.code == Exit.DONE
    assert "ecc_error" in done.out
    assert "node07" in done.out
    notes = [line for line in done.out.splitlines() if line.startswith("Note: ")]
    assert len(notes) == 1
    assert why in notes[0]
    assert "this is the answer without a model" in notes[0]
    assert "answered without a language model" in done.err
    assert "Traceback (" not in done.out + done.err or "HTTP 500" in notes[0]
    assert KEY not in done.out + done.err


@pytest.mark.usefixtures("engine")
def test_with_an_endpoint_that_is_down_the_answer_without_it_stands(cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        monkeypatch.setenv("NIGHTSHIFT_MODEL__URL", f"http://127.0.0.1:{taken.getsockname()[1]}/v1")
        monkeypatch.setenv("NIGHTSHIFT_MODEL__NAME", "m")
        _stands(cli("ask", "why did 4821 die?"), "cannot be reached")


@pytest.mark.usefixtures("engine")
def test_an_answer_that_was_cut_says_so(cli: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    cut: Turn = lambda asked: asked.stream(said('{"answer": "Job 4821 failed: ecc_error [1]. It was', "length"), DONE)  # noqa: E731
    with endpoint(monkeypatch, tmp_path, following(EXPLAIN, cut)):
        done = cli("ask", "why did 4821 die?")
    assert "Job 4821 failed: ecc_error [1]. It was [cut here]" in done.out
    assert "the model reached its limit of tokens" in done.out
    assert MARK not in done.out


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize(
    ("calls", "why"),
    [
        (lambda number: EXPLAIN, "the same call a third time"),
        (lambda number: ("tail_log", {"job": "4821", "lines": number}), "10 turns were taken"),
    ],
    ids=["the same call", "other calls"],
)
def test_a_model_that_never_answers_is_ended(
    calls: Callable[[int], Turn], why: str, cli: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    with endpoint(monkeypatch, tmp_path, following(*(calls(number) for number in range(1, 99)))) as server:
        done = cli("ask", "why did 4821 die?")
    _stands(done, why)
    assert len(server.asked) <= 10


@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("question", ["why? " * 200_000, "🔥", "\u202e\u2066"], ids=["1 MB", "emoji", "bidi"])
def test_what_is_no_question_is_never_sent(question: str, cli: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with endpoint(monkeypatch, tmp_path, following()) as server:
        done = cli("ask", question)
    assert (done.code, len(done.err.splitlines()), server.asked) == (Exit.USAGE, 1, [])


@pytest.mark.usefixtures("engine")
def test_signs_that_deceive_come_neither_to_the_model_nor_from_it(
    cli: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    answer = "Job 4821 failed: ecc_error [1].\u202e\u001b[2J\u200b 👩‍🚀"
    with endpoint(monkeypatch, tmp_path, following(EXPLAIN, answer)) as server:
        done = cli("ask", "why did \u202e4821\u200b die? 🔥")
    assert not set("\u202e\u200b\u001b") & set(done.out + told(server))
    assert "Job 4821 failed: ecc_error [1]." in done.out


@pytest.mark.usefixtures("engine")
def test_a_proposal_waits_and_is_no_deed(cli: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    script = following(("propose_cordon_node", {"node": "node05", "reason": "asked"}), "Proposed, approval 2 [1].")
    with endpoint(monkeypatch, tmp_path, script):
        done = cli("ask", "cordon node05")
    assert done.code == Exit.WAITS


@pytest.mark.usefixtures("engine")
def test_a_result_that_the_model_got_in_part_is_shown_whole(cli: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with endpoint(monkeypatch, tmp_path, following(("tail_log", {"job": "4821"}), "The log is in [1].")) as server:
        done = cli("ask", "show the log of 4821", "show 1", "--json")
    given, whole = told(server), done.objects[1]
    assert "(The operator reads all of it with: show 1)" in given
    assert "characters before]" in given
    assert "node07: task 9" in given, "the end of a log is what a model is given"
    assert "iteration      400" not in given
    assert "iteration      400" in whole["text"]
    assert whole["intent"] == "show"
