"""Secrets go, everything that diagnosis reads stays."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assistant.content.reading import build, read_toml
from assistant.redact import redact, redact_lines, redact_value
from tests.secret_shapes import SYNTAXES, left_of, plain, shapes

CASES = Path(__file__).parent.parent / "cases" / "redact"


@dataclass(frozen=True)
class Secret:
    name: str
    text: str
    clean: str


@dataclass(frozen=True)
class Secrets:
    case: tuple[Secret, ...]


@dataclass(frozen=True)
class Harmless:
    keep: tuple[str, ...]


SECRETS = build(Secrets, read_toml(CASES / "secrets.toml"), CASES / "secrets.toml").case
HARMLESS = build(Harmless, read_toml(CASES / "harmless.toml"), CASES / "harmless.toml").keep


@pytest.mark.parametrize("secret", SECRETS, ids=lambda secret: secret.name)
def test_a_secret_is_masked_and_the_rest_stays(secret: Secret) -> None:
    assert redact(secret.text) == secret.clean
    assert redact(secret.clean) == secret.clean


@pytest.mark.parametrize("text", HARMLESS)
def test_a_harmless_line_stays_as_it_is(text: str) -> None:
    assert redact(text) == text


@given(st.text(alphabet=st.sampled_from("AKIAab_=:/@ '\"\n-hf"), max_size=200))
def test_the_number_of_lines_stays_and_twice_is_once(text: str) -> None:
    once = redact(text)
    assert once.count("\n") == text.count("\n")
    assert redact(once) == once


def test_values_under_names_of_secrets_are_masked_whole() -> None:
    value = {"token": "x y", "tokens": 12, "nested": [{"db_password": "a"}, "HF_TOKEN=abcdef"], "api_key": "", "key": "plain"}
    assert redact_value(value) == {
        "token": "[redacted]",
        "tokens": 12,
        "nested": [{"db_password": "[redacted]"}, "HF_TOKEN=[redacted]"],
        "api_key": "",
        "key": "plain",
    }


@pytest.mark.parametrize("group", SYNTAXES)
def test_no_syntax_of_a_value_leaves_a_piece_of_it(group: str) -> None:
    for seed in range(2):
        for shape in shapes(group, seed):
            text = plain(shape)
            clean = redact(text)
            assert left_of(shape, clean) == [], clean
            assert left_of(shape, "\n".join(redact_lines(text.split("\n")))) == [], shape
            assert redact(clean) == clean
            assert clean.count("\n") == text.count("\n")


def test_the_same_syntaxes_without_a_secret_stay() -> None:
    lines = shapes("dull")
    assert [line for line in lines if redact(line) != line] == []
    assert redact_lines(lines) == lines


def test_a_hyperlink_loses_its_secret_and_keeps_the_rest() -> None:
    link = "\x1b]8;;https://etl:Zx81kQpVb2sY@h1/ckpt\x07open\x1b]8;;\x07 at step 12"
    assert redact(link) == "\x1b]8;;https://[redacted]@h1/ckpt\x07open\x1b]8;;\x07 at step 12"
