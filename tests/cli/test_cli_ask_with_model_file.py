"""`nightshift ask` by a GGUF in a real llama.cpp, from end to end: the tiny model on a recorded cluster, and files of no use."""

from __future__ import annotations

import re
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest

from assistant.agent.grounding import MARK
from assistant.agent.toolbox import Toolbox, ToolOffer
from assistant.cli.output import Exit
from assistant.engine import Engine
from assistant.llm.models import close_models
from assistant.tooling import found
from tests.cli.conftest import Run
from tests.recorded_states import recorded_state
from tests.unit.tiny_gguf import write_tiny

TINY = Path(__file__).parents[1] / "models" / "tiny-dialogue.gguf"
STATE = Path(__file__).parents[1] / "cases" / "agent" / "states" / "night.toml"
needs_llama = pytest.mark.skipif(find_spec("llama_cpp") is None, reason="llama-cpp-python is not installed: make deps-llama")
ASKED: list[tuple[str, str, dict[str, Any]]] = [
    ("why did 4821 die?", "explain_job", {"job": "4821"}),
    ("why did job 4822 fail?", "explain_job", {"job": "4822"}),
    ("what killed 4790?", "explain_job", {"job": "4790"}),
    ("status of 4831", "show_job", {"job": "4831"}),
    ("is 4830 running?", "show_job", {"job": "4830"}),
    ("show the log of 4821", "tail_log", {"job": "4821"}),
    ("kernel log of node07", "kernel_log", {"nodes": ["node07"]}),
    ("status of node12", "node_states", {"nodes": ["node12"]}),
    ("explain incident 2", "show_incident", {"incident": 2}),
    ("list the checkpoints of job 4821", "list_checkpoints", {"job": "4821"}),
    ("what waits for me?", "list_approvals", {}),
    ("list incidents", "list_incidents", {}),
]


@pytest.fixture
def engine(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    """The recorded bad night instead of this machine's cluster."""
    with recorded_state(STATE, tmp_path_factory) as (made, cluster):
        monkeypatch.setattr("assistant.cli.ask._engine", lambda door: made)
        monkeypatch.setenv("NIGHTSHIFT_MODEL__THREADS", "1")
        yield made
        close_models()
        assert cluster.changes == []


def false_sentences(text: str, engine: Engine) -> list[str]:
    """Return the sentences without a mark that are not so, by the records; those that claim nothing of a kind known here are so."""
    jobs = {job.id: str(job.state) for job in engine.scheduler.jobs()}
    nodes = {node.name: str(node.state) for node in engine.scheduler.nodes()}
    wrong = []
    for sentence in re.split(r"(?<=\.)\s+(?!\[not)", text):
        if MARK in sentence:
            continue
        if told := re.search(r"[Jj]ob (\d+) failed: (\w+)", sentence):
            reason = engine.gate.call("explain_job", {"job": told[1]}, why="test", by="test").value["reason"]
            wrong += [sentence] if (jobs[told[1]], reason) != ("failed", told[2]) else []
        elif told := re.search(r"[Jj]ob (\d+) (?:is )?(\w+) \[", sentence):
            wrong += [sentence] if told[2] in set(jobs.values()) and jobs[told[1]] != told[2] else []
        elif told := re.search(r"(node\d+) is (\w+)", sentence):
            wrong += [sentence] if nodes[told[1]] != told[2] else []
        elif told := re.search(r"[Ii]ncident (\d+) is (\w+)", sentence):
            wrong += [sentence] if str(engine.store.incident(int(told[1])).state) != told[2] else []
    return wrong


@pytest.mark.slow
@needs_llama
def test_a_tiny_model_makes_calls_reads_results_and_says_nothing_false_without_a_mark(
    engine: Engine, cli: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NIGHTSHIFT_MODEL__PATH", str(TINY))
    made: list[tuple[str, dict[str, Any]]] = []
    call = Toolbox.call

    def told(box: Toolbox, offer: ToolOffer, given: dict[str, Any]) -> str:
        made.append((offer.name, given))
        return call(box, offer, given)

    monkeypatch.setattr(Toolbox, "call", told)
    right = by_itself = 0
    for question, tool, arguments in ASKED:
        done = cli("ask", question, "--json")
        answer = done.objects[0]
        assert done.code in (Exit.DONE, Exit.ERROR)
        assert false_sentences(answer["text"], engine) == []
        if answer["mode"] == "semantic":
            assert "this is the answer without a model" in answer["notes"][-1]
        else:
            by_itself += 1
            assert re.search(r"\[\d+\]", answer["text"])
        right += (tool, arguments) in made
    assert right >= 10
    assert by_itself >= 5


@needs_llama
def test_what_it_says_streams_under_the_grammar_and_names_only_what_exists(
    engine: Engine, cli: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("NIGHTSHIFT_MODEL__PATH", str(TINY))
    known = {job.id for job in engine.scheduler.jobs()}
    for question in ("why did 9999 die?", "status of 31337", "show the log of llm-7b", "\u4f60\u597d 👩‍🚀 4821?"):
        for source in cli("ask", question, "--json").objects[0]["sources"]:
            assert source["tool"] in found()
            assert source["arguments"].get("job", "4821") in known


@needs_llama
@pytest.mark.usefixtures("engine")
def test_a_model_that_is_too_slow_leaves_the_answer_without_it(cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NIGHTSHIFT_MODEL__PATH", str(TINY))
    monkeypatch.setenv("NIGHTSHIFT_MODEL__TIMEOUT_S", "0.001")
    _stands(cli, "no whole answer within 0.001 s")


@needs_llama
@pytest.mark.usefixtures("engine")
def test_a_model_that_babbles_leaves_the_answer_without_it(cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = write_tiny(tmp_path / "babble.gguf", {"a": "b", "b": "c", "c": '"', '"': "a", "{": '"', "\n": "a"}, context=20_480)
    monkeypatch.setenv("NIGHTSHIFT_MODEL__PATH", str(file))
    monkeypatch.setenv("NIGHTSHIFT_MODEL__CONTEXT", "20480")
    _stands(cli, "it names no source")


def _cut(folder: Path) -> dict[str, Any]:
    file = write_tiny(folder / "cut.gguf", {})
    file.write_bytes(file.read_bytes()[:-1000])
    return {"PATH": file}


def _page(folder: Path) -> dict[str, Any]:
    (folder / "page.gguf").write_bytes(b"<!DOCTYPE html>")
    return {"PATH": folder / "page.gguf"}


USELESS = {
    "is cut": (_cut, "is cut short"),
    "is a web page": (_page, "a web page"),
    "is missing": (lambda folder: {"PATH": folder / "none.gguf"}, "none.gguf"),
    "has another architecture": (
        lambda folder: {"PATH": write_tiny(folder / "bert.gguf", {}, architecture="bert")},
        "found the architecture 'bert'",
    ),
    "is newer than llama.cpp": (
        lambda folder: {"PATH": write_tiny(folder / "newer.gguf", {}, architecture="llama9")},
        "found the architecture 'llama9'",
    ),
    "has no template": (lambda folder: {"PATH": write_tiny(folder / "base.gguf", {}, template="")}, "take its instruct variant"),
    "is too large": (
        lambda folder: {"PATH": write_tiny(folder / "large.gguf", {}, context=2_000_000_000), "CONTEXT": 2_000_000_000},
        "GB are free",
    ),
    "is another one": (
        lambda folder: {"PATH": write_tiny(folder / "other.gguf", {}), "SHA256": "0" * 64},
        "not the file that was meant",
    ),
    "has room for nothing": (
        lambda folder: {"PATH": write_tiny(folder / "small.gguf", {}, context=512)},
        "the model has room for 512",
    ),
}


@needs_llama
@pytest.mark.usefixtures("engine")
@pytest.mark.parametrize("name", USELESS)
def test_a_file_that_is_no_use_leaves_the_answer_without_it(
    name: str, cli: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    make, why = USELESS[name]
    for key, value in make(tmp_path).items():
        monkeypatch.setenv(f"NIGHTSHIFT_MODEL__{key}", str(value))
    _stands(cli, why)


def _stands(cli: Run, why: str) -> None:
    done = cli("ask", "why did 4821 die?")
    assert done.code == Exit.DONE
    assert "ecc_error" in done.out
    assert "node07" in done.out
    (note,) = [line for line in done.out.splitlines() if line.startswith("Note: ")]
    assert why in note
    assert "this is the answer without a model" in note
    assert "Traceback" not in done.out + done.err
