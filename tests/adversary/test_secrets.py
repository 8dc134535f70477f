"""Secrets that jobs leave in their names, scripts, environments and logs come out of no door."""

from __future__ import annotations

import logging
import re
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assistant import display
from assistant.cli.main import crashed, main
from assistant.content.reading import build, read_toml
from assistant.logs.lines import LONGEST_UNCUT, cut_line
from assistant.ports import SystemClock
from assistant.records import JobSpec
from assistant.redact import redact, syntax
from assistant.redact.forms import secret_forms
from assistant.redact.values import Strength, is_secret_value
from assistant.rules.patterns import RefusedPattern, shape_of
from assistant.schedulers.local import LocalScheduler
from assistant.tui import sessions

CASES = Path(__file__).parent.parent / "cases" / "redact"


@dataclass(frozen=True)
class Shapes:
    """The file."""

    first: tuple[str, ...]
    second: tuple[str, ...]


SHAPES = build(Shapes, read_toml(CASES / "shapes.toml"), CASES / "shapes.toml")
MARKED = re.compile("«(.*?)»", re.DOTALL)


def plain(shape: str) -> str:
    return re.sub("[«»]", "", shape)


def left_of(shape: str, text: str) -> list[str]:
    """Return what is left of the secrets of a shape in a text: whole ones, and any eight characters of one."""
    secrets = MARKED.findall(shape)
    parts = {part for secret in secrets for part in (secret, *(secret[n : n + 8] for n in range(len(secret) - 7)))}
    return sorted(part for part in parts if part in text)


@pytest.mark.parametrize("shape", [*SHAPES.first, *SHAPES.second])
def test_nothing_of_a_secret_is_left(shape: str) -> None:
    assert MARKED.search(shape), "a shape without a secret proves nothing"
    clean = redact(plain(shape))
    assert left_of(shape, clean) == []
    assert redact(clean) == clean
    assert clean.count("\n") == shape.count("\n")


@pytest.mark.slow
@pytest.mark.parametrize("before", ["x " * 1_020, "x" * 2_030, '{"a": 1, ' * 226, "a" * 1_900 + " "])
@pytest.mark.parametrize("shape", [shape for shape in SHAPES.first if "\n" not in shape][::9])
def test_the_cut_of_a_long_line_splits_no_secret(shape: str, before: str) -> None:
    secret = plain(shape)
    for shift in range(0, len(secret) + 20, 7):
        head = before[: len(before) - shift]
        for line in (f"{head} {secret} {'y ' * 5_000}", f"{'y ' * 5_000}{secret} {before[: 1_024 - shift]}"):
            cut = cut_line(line.encode()).decode()
            assert len(cut) < len(line)
            assert left_of(shape, redact(cut)) == []


@settings(max_examples=60, deadline=None)
@given(st.binary(max_size=64), st.integers(min_value=1, max_value=400))
def test_a_cut_line_is_short_and_says_what_is_gone(piece: bytes, times: int) -> None:
    line = (piece * times).replace(b"\n", b" ")
    cut = cut_line(line)
    assert (cut == line) == (len(line) <= LONGEST_UNCUT) or b"[redacted]" in cut
    assert len(cut) <= LONGEST_UNCUT + 1_500


def test_what_tells_of_a_failure_stays_in_the_middle_of_a_long_line() -> None:
    line = b"a" * 40_000 + b" RuntimeError: CUDA error: out of memory " + b"b" * 40_000
    assert b"RuntimeError: CUDA error: out of memory" in cut_line(line)


@pytest.mark.parametrize("form", secret_forms().form, ids=lambda form: form.id)
def test_no_form_can_be_tried_in_too_many_ways(form: object) -> None:
    pattern = re.sub(r"\(\?(?:<?[=!])(?:[^()]|\([^()]*\))*\)", "", form.pattern)  # type: ignore[attr-defined]
    assert _refusal(pattern) in ("", "look-around")
    assert not re.search(r"[^\\][*+](?![^\[]*\])", pattern), "every repeat needs an end"


NAMES = "password pass pwd psk pat secret sig sas session salt token otp auth api_key key cred cookie bearer jwt dsn".split()
BETWEEN = (":", "=", ": ", " ", ">", " is ", ".x:", "(", "=a,", "=Ab1&", "=\n", ":\n", "='")


@pytest.mark.parametrize("name", NAMES)
def test_a_text_of_names_of_secrets_is_not_judged_name_by_name(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # characters that are judged, of which 16 * 1024 of ordinary text have a few hundred: `auth:auth:` had two million
    judged: list[int] = []

    def judge(value: str, strength: Strength) -> bool:
        judged.append(len(value))
        return is_secret_value(value, strength)

    monkeypatch.setattr(syntax, "is_secret_value", judge)
    for separator in BETWEEN:
        judged.clear()
        text = (name + separator) * (16_384 // len(name + separator))
        clean = redact(text)
        assert len(judged) <= 2 * 64 * (len(text) + len(clean)) / 4_096, separator
        assert sum(judged) <= 24 * (len(text) + len(clean)), separator
        assert redact(clean) == clean, separator
        assert clean.count("\n") == text.count("\n"), separator


def _refusal(pattern: str) -> str:
    """Return why the analyser of learned rules refuses a pattern; empty when it does not."""
    try:
        shape_of(pattern)
    except RefusedPattern as refused:
        return "look-around" if "look-around" in str(refused) else str(refused)
    return ""


CANARY = "zq7Canary{:02d}Xw9Kd3"
"""Looks like no secret by itself: a door that does not redact shows it."""
PLANTED = {
    "name": "llm-api_key={}",
    "comment": "token={} owner",
    "environment": "{}",
    "argument": "--password={}",
    "script": "export DB_PASSWORD='{}'",
    "log": "ConnectionError: cannot reach postgresql://bob:{}@db:5432/runs",
    "json": 'ERROR {{"client_secret": "{}"}}',
    "last": "RuntimeError: 401 for Authorization: Bearer {}",
}
VALUES = {place: CANARY.format(number) for number, place in enumerate(PLANTED)}


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    for name in ("XDG_STATE_HOME", "XDG_CONFIG_HOME", "XDG_DATA_HOME"):
        monkeypatch.setenv(name, str(tmp_path / name.lower()))
    monkeypatch.setenv("NO_COLOR", "1")
    yield tmp_path
    logging.getLogger("assistant").handlers.clear()
    logging.getLogger("assistant").setLevel(logging.NOTSET)


def planted_job(home: Path) -> tuple[str, Path]:
    """Run a job that fails, with a secret in each place, and return its id and its log."""
    text = {place: form.format(VALUES[place]) for place, form in PLANTED.items()}
    lines = [text["log"], text["json"], text["last"]]
    script = "#!/bin/bash\n" + text["script"] + "\ncat <<'END'\n" + "\n".join(lines) + "\nEND\nexit 1\n"
    scheduler = LocalScheduler(home / "xdg_state_home" / "nightshift" / "local", SystemClock())
    job = scheduler.submit(
        JobSpec(
            text["name"],
            script,
            work_dir=home,
            comment=text["comment"],
            environment={"WANDB_API_KEY": text["environment"]},
            arguments=(text["argument"],),
        )
    )
    for _ in range(100):
        if scheduler.job(job).state.ended:
            break
        time.sleep(0.05)
    log = scheduler.job(job).log
    assert log is not None
    assert VALUES["last"] in log.read_text(encoding="utf-8"), "the secrets were never there"
    return job, log


OUTPUTS = (
    *(display.line, display.block, display.unambiguous, display.json_text, display.notice_line),
    *(display.markdown, display.markdown_code, display.markdown_fence, display.markdown_tamed),
    *(sessions.escaped, sessions.fenced, sessions.code),
    lambda text: display.prompt_data("log", text),
    lambda text: display.prompt_data(text, "log"),
)
"""What screens of the chat, its export, notifications, reports and prompts of models write text with."""


@pytest.mark.parametrize("output", OUTPUTS, ids=lambda output: output.__name__)
def test_no_way_to_show_text_shows_a_secret(output: Callable[[str], object]) -> None:
    for place, form in PLANTED.items():
        if place != "environment":  # a value without its name
            assert VALUES[place] not in str(output(form.format(VALUES[place])))


def test_the_crash_log_holds_no_secret(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = PLANTED["log"].format(VALUES["log"])
    try:
        raise RuntimeError(text)
    except RuntimeError as error:
        crashed(type(error), error, error.__traceback__)
    assert VALUES["log"] not in "".join(capsys.readouterr())
    logs = [path for path in home.rglob("*") if path.is_file()]
    assert [path for path in logs if b"RuntimeError" in path.read_bytes()]
    assert [path for path in logs if VALUES["log"].encode() in path.read_bytes()] == []


def test_jobs_print_neither_script_nor_environment_unless_asked(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    planted_job(home)
    main(["jobs", "--json"])
    assert "#!/bin/bash" not in capsys.readouterr().out
    main(["jobs", "--json", "--spec"])
    out = capsys.readouterr().out
    assert "#!/bin/bash" in out
    assert '"WANDB_API_KEY": "[redacted]"' in out
