"""`nightshift bench agent`: figures for whatever answers, without a model and with one."""

from __future__ import annotations

import shutil
from importlib.util import find_spec
from pathlib import Path

import pytest

from assistant.llm.models import close_models
from tests.cli.conftest import Run
from tests.unit.openai_here import serving, speak

CASES = Path(__file__).parents[1] / "cases" / "agent"
TINY = Path(__file__).parents[1] / "models" / "tiny-dialogue.gguf"


@pytest.fixture
def few(tmp_path: Path) -> Path:
    """A folder with few cases on the recorded states."""
    shutil.copytree(CASES / "states", tmp_path / "few" / "states")
    (tmp_path / "few" / "cases.toml").write_text(
        'case = [\n  { ask = ["why did 4821 die?"], intent = ["explain_job"], facts = ["ecc_error"] },\n'
        '  { ask = ["explain incident 2"], intent = ["explain_incident"], facts = ["waiting"], tags = ["hard"] },\n'
        '  { ask = ["what should I eat?"], intent = ["out_of_scope"], kind = "unknown", tags = ["no answer"] },\n]\n'
    )
    return tmp_path / "few"


@pytest.mark.parametrize("model", ["none", "words"])
def test_without_a_model_everything_here_is_done_and_nothing_by_a_model(model: str, cli: Run, few: Path) -> None:
    first, *rest = cli("bench", "agent", few, "--model", model, "--json").objects
    assert (first["name"], first["cases"], first["tool"], first["success"], first["by_model"]) == ("all", 3, 1.0, 1.0, 0.0)
    assert {one["name"] for one in rest} == {"easy", "hard", "no answer"}


@pytest.mark.skipif(find_spec("llama_cpp") is None, reason="llama-cpp-python is not installed: make deps-llama")
def test_a_file_is_measured_and_what_it_answers_itself_is_told_apart(cli: Run, few: Path) -> None:
    found = cli("bench", "agent", few, "--model", TINY, "--json").objects[0]
    close_models()
    assert found["cases"] == 3
    assert 0.0 < found["by_model"] <= 1.0


def test_an_endpoint_is_measured_by_the_tools_that_it_uses(cli: Run, few: Path) -> None:
    with serving(lambda asked: speak(asked, "Nothing is known.")) as server:
        found = cli("bench", "agent", few, "--model", server.url, "--name", "m", "--json").objects
    shares = {one["name"]: (one["tool"], one["success"], one["by_model"]) for one in found}
    assert shares["all"][2] == 1.0
    assert shares["easy"][:2] == (0.0, 0.0), "it used no tool"
    assert shares["no answer"][0] == 1.0, "and none was right"


@pytest.mark.parametrize(
    ("words", "why"),
    [
        (["configured"], "no language model is configured"),
        (["nowhere.gguf"], "nowhere.gguf"),
        (["http://localhost:1/v1"], "model.name"),
    ],
)
def test_a_model_that_there_is_not_is_an_error_in_one_line(words: list[str], why: str, cli: Run, few: Path) -> None:
    done = cli("bench", "agent", few, "--model", *words)
    assert done.code == 2
    assert why in done.err
    assert len(done.err.splitlines()) == 1
