"""However many words a command has, no word that its user chose hides another one from the person who is asked about it."""

from __future__ import annotations

import time
import tomllib
from pathlib import Path

import pytest

from assistant.records import JobSpec
from assistant.redact import redact
from assistant.rendering import RenderedChange, method_lines

CASES = tomllib.loads((Path(__file__).parents[1] / "cases" / "adversary" / "hiding_words.toml").read_text(encoding="utf-8"))
MUST = ("sbatch", "--nodes=1", "--chdir=/home/ada", "--uid=ada", "SCRIPT[sha256:", "scontrol release NEW_JOB_ID", "was on n1")


def shown(name: str, options: tuple[str, ...], comment: str = "tag again", arguments: tuple[str, ...] = ()) -> str:
    spec = JobSpec(
        name=name,
        script="#!/bin/sh\n",
        user="ada",
        work_dir=Path("/home/ada"),
        options=options,
        comment=comment,
        arguments=arguments,
    )
    commands = (*method_lines("submit", [spec], {}), "scontrol release NEW_JOB_ID")
    return RenderedChange(commands, "job of ada, was on n1").text


def missing(text: str, *more: str) -> list[str]:
    return [word for word in (*MUST, *more) if word not in text]


@pytest.mark.parametrize("word", CASES["word"])
def test_a_word_hides_no_other_behind_any_number_of_options(word: str) -> None:
    for count in CASES["harmless"]:
        options = tuple(f"--opt{chr(97 + place % 26)}=v{place}" for place in range(count))
        for comment in ("tag again", f"tag {word}"):
            text = shown(word, options, comment)
            assert missing(text, *options) == [], count
            assert redact(text) == text
            assert comment != "tag again" or "tag again" in text


@pytest.mark.parametrize("word", CASES["word"])
def test_any_number_of_hostile_words_hide_themselves_only(word: str) -> None:
    for count in CASES["hostile"]:
        options = tuple(f"--opt{chr(97 + place % 26)}={word}" for place in range(count))
        text = shown(word, options)
        assert missing(text, *(option.partition("=")[0] for option in options)) == [], count
        assert redact(text) == text


@pytest.mark.parametrize("secret", CASES["secret"], ids=lambda words: words[0])
@pytest.mark.parametrize("count", [0, 60])
def test_a_secret_in_words_of_its_own_stays_hidden(secret: list[str], count: int) -> None:
    options = tuple(f"--opt{chr(97 + place % 26)}=v{place}" for place in range(count))
    for text in (shown("llm", (*options, *secret)), shown("llm", options, arguments=tuple(secret))):
        assert not any(piece in text for piece in ("S3cr3t", "0a1b2c3d0a1b"))
        assert missing(text, "--job-name=llm", *options) == []


def test_the_time_is_linear_in_the_number_of_words() -> None:
    def cost(count: int) -> float:
        begin = time.process_time()
        shown("x password=", ("--gres=Cookie:",) * count)
        return time.process_time() - begin

    cost(10)
    small = min(cost(200) for _ in range(3))
    assert cost(2_000) < 25 * small, "ten times the words"
