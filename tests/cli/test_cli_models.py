"""`nightshift model`: getting, choosing, showing and testing language models."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest

from assistant.cli.config import with_table
from assistant.cli.model import _filter_text, _matches, _opening
from assistant.content.reasons import reasons
from assistant.llm.models import ModelTrial, SummaryCase, cases, good_summary, tried_filters, tried_reasons, tried_summaries
from assistant.store import Store
from tests.cli.conftest import Run
from tests.unit.openai_here import Asked, serving, speak
from tests.unit.tiny_gguf import write_tiny


@pytest.fixture
def tiny(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return write_tiny(tmp_path / "tiny.gguf", {"a": "b", "b": '"', '"': "a", "{": '"', "\n": "a"}, context=8192)


def test_a_file_is_used_with_its_sha256_and_other_settings_stay(cli: Run, tiny: Path, tmp_path: Path) -> None:
    own = tmp_path / "xdg_config_home" / "nightshift" / "config.toml"
    own.parent.mkdir(parents=True)
    own.write_text('# mine\nlease_s = 60.0\n[model]\nurl = "http://old/v1"\n[watch]\npoll_s = 5\n')
    assert cli("model", "use", str(tiny)).code == 0
    text = own.read_text()
    assert text.startswith("# mine\nlease_s = 60.0\n[watch]\npoll_s = 5\n")
    assert hashlib.sha256(tiny.read_bytes()).hexdigest() in text
    assert "http://old" not in text
    shown = cli("model", "info", "--json").objects[0]
    assert (shown["family"], shown["context"], shown["converses"]) == ("other", 8192, True)
    assert cli("model", "use", "none").code == 0
    assert "[model]" not in own.read_text()
    assert cli("model", "info").out.startswith("model  none")


def test_an_endpoint_is_used_by_name(cli: Run, tmp_path: Path) -> None:
    said_ = cli("model", "use", "http://localhost:8000/v1")
    assert (said_.code, "--name" in said_.err) == (2, True)
    assert cli("model", "use", "http://localhost:8000/v1", "--name", "m", "--print").out.splitlines() == [
        "[model]",
        'url = "http://localhost:8000/v1"',
        'name = "m"',
    ]


def test_a_file_that_cannot_be_used_changes_nothing(cli: Run, tmp_path: Path) -> None:
    bad = tmp_path / "page.gguf"
    bad.write_bytes(b"<!DOCTYPE html>")
    done = cli("model", "use", str(bad))
    assert done.code == 2
    assert "a web page" in done.err
    assert not (tmp_path / "xdg_config_home").exists()


def test_models_here_are_listed_with_broken_ones_and_sizes(cli: Run, tiny: Path, tmp_path: Path) -> None:
    (tmp_path / "cut.gguf").write_bytes(tiny.read_bytes()[:5000])
    done = cli("model", "list", "--folder", str(tmp_path))
    assert done.code == 0
    assert "tiny.gguf" in done.out
    assert "cut short" in done.out
    assert "7B to 9B" in done.out


def test_a_model_is_pulled_and_says_how_to_use_it(cli: Run, tiny: Path, tmp_path: Path) -> None:
    content = tiny.read_bytes()
    with serving(lambda asked: asked.reply(200, content, content_type="application/octet-stream")) as server:
        done = cli("model", "pull", f"{server.url}/new.gguf", "--folder", str(tmp_path / "models"), "--json")
    assert done.objects[0]["sha256"] == hashlib.sha256(content).hexdigest()
    assert (tmp_path / "models" / "new.gguf").read_bytes() == content


def test_a_wrong_sha256_is_an_error(cli: Run, tiny: Path, tmp_path: Path) -> None:
    with serving(lambda asked: asked.reply(200, tiny.read_bytes(), content_type="application/octet-stream")) as server:
        done = cli("model", "pull", f"{server.url}/new.gguf", "--folder", str(tmp_path / "models"), "--sha256", "0" * 64)
    assert done.code == 2
    assert "what came is deleted" in done.err


def test_the_files_of_a_repository_are_listed(cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lambda asked: asked.reply(200, '[{"path": "q4.gguf", "size": 4000000000}]')) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        assert "o/r/q4.gguf  4.0 GB" in cli("model", "pull", "o/r").out


@pytest.mark.slow
@pytest.mark.skipif(find_spec("llama_cpp") is None, reason="llama-cpp-python is not installed: make deps-llama")
def test_a_model_that_knows_nothing_is_trusted_with_nothing(cli: Run, tiny: Path) -> None:
    assert cli("model", "use", str(tiny)).code == 0
    done = cli("model", "test", "--json")
    assert [(one["task"], one["passed"]) for one in done.objects] == [("reason", False), ("filter", False), ("summary", False)]
    assert cli("model", "info", "--json").objects[0]["handed to it"] == "nothing"


def test_an_endpoint_that_does_better_is_trusted(cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    expected = {case.lines[0]: case.expect for case in cases().reason}
    told = {case.lines[0]: " ".join(fact.split("|")[0] for fact in case.facts) for case in cases().summary}

    def answers(asked: Asked) -> None:
        text = asked.json["messages"][-1]["content"]
        reason = next((reason for line, reason in expected.items() if line in text), "")
        facts = next((facts for line, facts in told.items() if line in text), "")
        if facts:
            speak(asked, ("write_summary", {"summary": f"{facts} [1]."}))
        elif reason:
            speak(asked, ("name_reason", {"line": 1, "reason": reason}))
        else:
            speak(asked, ("write_filter", {"pattern": "^.*$"}))

    with serving(answers) as server:
        monkeypatch.setenv("NIGHTSHIFT_MODEL__URL", server.url)
        monkeypatch.setenv("NIGHTSHIFT_MODEL__NAME", "m")
        done = cli("model", "test", "--json")
    found = [(one["task"], one["model"], one["passed"]) for one in done.objects]
    assert found == [("reason", 20, True), ("filter", 0, False), ("summary", 8, True)]


def test_an_endpoint_that_is_broken_is_no_model_that_knows_nothing(cli: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(lambda asked: asked.reply(500, "no")) as server:
        monkeypatch.setenv("NIGHTSHIFT_MODEL__URL", server.url)
        monkeypatch.setenv("NIGHTSHIFT_MODEL__NAME", "m")
        done = cli("model", "test")
    assert (done.code, "HTTP 500" in done.err) == (1, True)


def test_without_a_model_there_is_nothing_to_test(cli: Run) -> None:
    done = cli("model", "test")
    assert (done.code, "there is no language model to test" in done.err) == (2, True)


def test_a_task_is_handed_over_only_to_the_model_that_beat_the_baseline(store: Store) -> None:
    now = store.clock.now()
    store.keep_trial("a", "reason", {"cases": 3, "model": 2, "baseline": 1}, now)
    store.keep_trial("b", "reason", {"cases": 3, "model": 1, "baseline": 1}, now)
    assert [store.may(model, "reason") for model in ("a", "b", "c", "")] == [True, False, False, False]
    assert not store.may("a", "filter")
    store.keep_trial("a", "reason", {"cases": 3, "model": 0, "baseline": 1}, now)
    assert not store.may("a", "reason")


def test_the_cases_of_the_trial_name_known_reasons_and_the_baseline_is_fair() -> None:
    known = set(reasons())
    assert {case.expect for case in cases().reason} <= known
    assert tried_filters(cases().filter, lambda lines: "", _filter_text, _matches).baseline >= 5


@pytest.mark.parametrize("case", cases().summary, ids=lambda case: case.lines[0].split(":")[0])
def test_a_summary_is_right_with_all_facts_a_source_and_few_words(case: SummaryCase) -> None:
    facts = ", ".join(fact.split("|")[0] for fact in case.facts)
    assert good_summary(f"{facts} [2].", case)
    assert not good_summary(facts, case), "no source"
    assert not good_summary(f"{facts} [99].", case), "a source that there is not"
    assert not good_summary(f"{facts} [2]. {case.forbidden[0]}", case)
    assert not good_summary("It failed [2].", case)
    assert not good_summary(f"{facts} [2]. " + "and so on " * 30, case)


def test_without_a_model_some_summaries_are_right_and_not_all() -> None:
    trial = tried_summaries(cases().summary, lambda lines: "", _opening)
    assert 0 < trial.baseline < trial.cases


def test_a_pattern_that_hides_a_failure_is_wrong() -> None:
    trial = tried_filters(cases().filter, lambda lines: "^.*$", lambda lines: "", _matches)
    assert (trial.model, trial.passed) == (0, False)


def test_errors_of_a_model_count_as_wrong_answers() -> None:
    from assistant.errors import Unavailable

    def fails(lines: object) -> str:
        raise Unavailable("slow")

    assert tried_reasons(cases().reason, fails, lambda lines: "") == ModelTrial("reason", 20, 0, 0, 20)


@pytest.mark.parametrize(
    "words", [["--help"], ["model", "--help"], ["model", "list", "--folder", "/nonexistent"], ["incidents"]], ids=" ".join
)
def test_commands_that_need_no_model_load_none(words: list[str], store: Store) -> None:
    program = "import sys; from assistant.cli.main import main; main(sys.argv[1:]); print(*sys.modules, file=sys.stderr)"
    done = subprocess.run([sys.executable, "-c", program, *words], capture_output=True, text=True, check=True, env=dict(os.environ))
    assert {"langchain", "langchain_core", "langgraph", "llama_cpp", "numpy", "httpx", "pydantic"} & set(
        done.stderr.split()
    ) == set()


def test_another_model_table_replaces_the_old_one_only() -> None:
    text = 'a = 1\n\n[model]\nurl = "x"\n\n[watch]\npoll_s = 5\n'
    assert with_table(text, ["[model]", 'url = "y"']) == 'a = 1\n\n[watch]\npoll_s = 5\n\n[model]\nurl = "y"\n'
    assert with_table("", []) == ""


def checked(cli: Run) -> dict[str, str]:
    """Return what the doctor finds of the language model."""
    return next(found for found in cli("doctor", "--json").objects if found["name"] == "language model")


@pytest.mark.slow
def test_the_doctor_says_what_the_language_model_is_and_may_do(cli: Run, tiny: Path, tmp_path: Path, store: Store) -> None:
    assert "without one" in checked(cli)["text"]
    own = tmp_path / "xdg_config_home" / "nightshift" / "config.toml"
    assert cli("model", "use", str(tiny)).code == 0
    found = checked(cli)
    assert (found["health"], found["todo"]) == ("ok", "nightshift model test")
    assert "trusted with no task" in found["text"]
    tiny.write_bytes(tiny.read_bytes()[:3000])
    found = checked(cli)
    assert (found["health"], "the file is cut" in found["text"] or "3,000" in found["text"]) == ("warn", True)
    own.write_text('[model]\nurl = "http://127.0.0.1:1/v1"\nname = "m"\n')
    assert checked(cli)["text"].startswith("m at http://127.0.0.1:1/v1; answers questions")
    own.write_text('[model]\nurl = "http://127.0.0.1:1/v1"\n')
    assert checked(cli)["health"] == "warn"
