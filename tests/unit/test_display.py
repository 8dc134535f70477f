"""Escaping for each destination: what may not come out never does, whatever goes in; ordinary text stays as it is."""

from __future__ import annotations

import email.message
import json
import re
import shlex
import subprocess
import unicodedata
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st
from markdown_it import MarkdownIt
from prometheus_client import CollectorRegistry, Gauge, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from assistant import display

TEXT = st.text(
    st.one_of(
        st.characters(codec=None),
        st.sampled_from(
            "\x00\x1b\x07\r\n\t\x7f\x85\x9b\xad\u034f\u061c\u200b\u200d\u200f\u2028\u2029\u202e\u2066\ufe0f\ufeff\U000e0041"
        ),
        st.sampled_from("[]()<>`*_|~@!#$&\\'\"{};:/ aeo0\u0301оеа‐🔥⚠"),
    ),
    max_size=60,
)
CALM = settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""A loaded machine is no failure."""
ALLOWED_IN_PICTURES = "\u200d\ufe0f"
TO_A_LINE: list[Callable[[str], str]] = [
    display.line,
    display.unambiguous,
    display.markdown,
    display.markdown_code,
    display.notice_line,
    display.json_text,
    lambda text: display.shell_words([text, text]),
    display.file_stem,
]
TO_A_BLOCK: list[Callable[[str], str]] = [
    display.block,
    display.markdown_tamed,
    display.removed,
    lambda text: "\n".join(display.markdown_fence(text)),
    lambda text: display.prompt_data(text, text),
]


def hidden(text: str, but: str = "") -> list[str]:
    """Return the characters that no output may hold, by Unicode's own tables."""
    return [
        f"{ord(sign):x}"
        for sign in text
        if sign not in but + ALLOWED_IN_PICTURES and unicodedata.category(sign) in ("Cc", "Cf", "Cs", "Co", "Zl", "Zp")
    ]


@pytest.mark.parametrize("escape", TO_A_LINE)
@given(text=TEXT)
@CALM
def test_a_line_is_one_line_without_hidden_characters(escape: Callable[[str], str], text: str) -> None:
    shown = escape(text)
    assert hidden(shown) == []
    assert len(shown.splitlines()) <= 1
    shown.encode("utf-8")


@pytest.mark.parametrize("escape", TO_A_BLOCK)
@given(text=TEXT)
@CALM
def test_a_block_holds_newlines_and_tabs_at_most(escape: Callable[[str], str], text: str) -> None:
    shown = escape(text)
    assert hidden(shown, "\n\t") == []
    shown.encode("utf-8")


@pytest.mark.parametrize("escape", [display.line, display.block, display.unambiguous, display.removed, display.file_stem])
@given(text=TEXT)
@example("\xa0²")
@example("0ª²")
@example("0оＡ")
@example("оA\u0301\u037e；")
@example("；\u0301 \u2800损")
@CALM
def test_escaping_what_is_escaped_changes_nothing(escape: Callable[[str], str], text: str) -> None:
    assert escape(escape(text)) == escape(text)


def test_a_selector_or_joiner_stays_in_an_emoji_only() -> None:
    assert display.line("⚠️ 👩‍🚀 ❤️‍🔥") == "⚠️ 👩‍🚀 ❤️‍🔥"
    assert display.line("node\ufe0f1 a\u200db 🔥\u200dnode") == r"node\ufe0f1 a\u200db 🔥\u200dnode"


@pytest.mark.parametrize("text", ["step 12 loss 2.31", r"C:\new\x1b", "größer 损失 потеря é e\u0301", "a  b", "[red]x[/] *b*"])
def test_ordinary_text_stays(text: str) -> None:
    assert display.line(text) == display.block(text) == text


def test_marks_do_not_pile_up() -> None:
    assert display.line("e" + "\u0301" * 6) == "e" + "\u0301" * 4 + r"\u0301\u0301"


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("n\u043ede1", r"n\u043ede1"),
        ("node\u20111", r"node\u20111"),
        ("scancel 7\u037e reboot", r"scancel 7\u037e reboot"),
        ("a \u037e \uff1b \ufe54 b", r"a \u037e \uff1b \ufe54 b"),
        ("rm\u2800-r \u2800", r"rm\u2800-r \u2800"),
        ("node0\u0330 e\u0301\u0302 \u0301", r"node0\u0330 e\u0301\u0302 \u0301"),
        ("\u043eA\u0301", r"\u043eA\u0301"),
        ("损失，增加（两倍）…", "损失，增加（两倍）…"),
        ("node\uff11", r"node\uff11"),
        ("node1\u00a0", r"node1\xa0"),
        ("\u0430\u0440\u0435", r"\u0430\u0440\u0435"),
        ("n\u0131ghtly", r"n\u0131ghtly"),
        ("gpu\u0661", r"gpu\u0661"),
        ("\U0001d5eeda", r"\U0001d5eeda"),
        ("a\u2215b", r"a\u2215b"),
        ("训练v2", "训练v2"),
        ("café-größe", "café-größe"),
        ("обучение", "обучение"),
        ("cordon node[001-004] on this cluster…", "cordon node[001-004] on this cluster…"),
    ],
)
def test_a_look_alike_is_seen_where_somebody_decides(name: str, shown: str) -> None:
    assert display.unambiguous(name) == shown


NO_SECRET = TEXT.filter(lambda name: "[redacted]" not in display.json_text({name: "0"}))
"""Keys whose value is shown: what stands behind `PW` or `token` never is."""
VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | TEXT, lambda inner: st.lists(inner) | st.dictionaries(NO_SECRET, inner)
)


@given(value=VALUES)
@CALM
def test_json_comes_back_as_it_was_with_visible_escapes(value: object) -> None:
    loaded = json.loads(display.json_text(value))
    assert loaded == json.loads(display.json_text(value, indent=2))
    assert not [text for text in _texts(loaded) if STEERING.search(text)]
    if not [text for text in _texts(value) if not text.isprintable()]:
        assert loaded == value


STEERING = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069\ufeff\U000e0000-\U000e007f]")


def _texts(value: object) -> list[str]:
    if isinstance(value, str):
        return [value]
    inner = [*value.keys(), *value.values()] if isinstance(value, dict) else value if isinstance(value, list) else []
    return [text for item in inner for text in _texts(item)]


def test_loaded_json_shows_what_would_act_on_a_terminal_and_keeps_names_of_files() -> None:
    value = {"path": "a\x1b]0;x\x07\u202eb\u061c\U000e0041.log", "text": "one\n\ttwo\r", "raw": "f\udc80.log"}
    assert json.loads(display.json_text(value)) == {
        "path": "a\\x1b]0;x\\x07\\u202eb\\u061c\\U000e0041.log",
        "text": "one\n\ttwo\\r",
        "raw": "f\udc80.log",
    }


def test_json_has_null_for_what_it_cannot_say() -> None:
    assert display.json_text({"a": [float("inf"), float("nan"), 1.5]}) == '{"a": [null, null, 1.5]}'


@given(text=TEXT)
@CALM
def test_markdown_shows_the_text_and_nothing_active(text: str) -> None:
    parser = MarkdownIt("commonmark", {"linkify": False}).enable(["table", "strikethrough"])
    tokens = parser.parse(display.markdown(text).strip())
    inner = [child for token in tokens for child in token.children or ()]
    assert {token.type for token in tokens} <= {"paragraph_open", "inline", "paragraph_close"}
    assert {child.type for child in inner} <= {"text", "code_inline", "text_special", "softbreak"}
    told = "".join(child.content for child in inner)
    assert "".join(told.split()) == "".join(display.line(text).split())
    # what a service would make a link or a mention of itself stands in code
    assert not any(mark in child.content for child in inner if child.type == "text" for mark in ("://", "@"))


@given(text=TEXT)
@CALM
def test_a_fence_ends_where_it_should(text: str) -> None:
    tokens = MarkdownIt("commonmark").parse("\n".join(display.markdown_fence(text)))
    assert [token.type for token in tokens] == ["fence"]
    assert tokens[0].content == display.block(text) + "\n"


@pytest.mark.parametrize(
    "text", ["<script>alert(1)</script>", "![x](http://evil/pixel.png)", "<img src=x>", "!\u200b[x](y)", "</details><!-- -->"]
)
def test_markdown_of_a_model_loads_nothing(text: str) -> None:
    tokens = MarkdownIt("commonmark").parse(display.markdown_tamed(text))
    kinds = {child.type for token in tokens for child in token.children or ()} | {token.type for token in tokens}
    assert not kinds & {"image", "html_inline", "html_block"}


@pytest.mark.parametrize(
    "text",
    [
        "<!channel>",
        "<@U123>",
        "@everyone",
        "@here now",
        "<http://e|click>",
        "[click](http://e)",
        "```\nx",
        "||spoiler||",
        "<at>a</at>",
    ],
)
def test_a_notice_pings_nobody(text: str) -> None:
    shown = display.notice_line(text)
    for mark in ("<!", "<@", "@everyone", "@here", "<h", "](", "```", "||", "<a"):
        assert mark not in shown


@given(text=TEXT)
@CALM
def test_a_notice_is_a_header_of_a_mail(text: str) -> None:
    message = email.message.EmailMessage()
    message["Subject"] = display.notice_line(text)
    assert message.keys() == ["Subject"]


@given(text=TEXT)
@CALM
def test_data_for_a_model_ends_once(text: str) -> None:
    told = display.prompt_data(text, text)
    assert told.lower().count("</data") == 1
    assert told.lower().count("<data ") == 1
    assert told.split("\n")[0].count('"') == 2


@given(words=st.lists(TEXT.filter(lambda text: "\x00" not in text), min_size=1, max_size=4))
@CALM
def test_a_command_is_read_as_its_words(words: list[str]) -> None:
    shown = display.shell_words(words)
    if all(word.isprintable() for word in words):
        assert shlex.split(shown) == words


def test_bash_reads_back_what_hides() -> None:
    words = ["a\nb", "$(reboot)", "-x", "'; rm -rf /; '", "\x1b[2J\x7f", "\u202eevil", "t\\n'\t", "n\u043ede1"]
    done = subprocess.run(
        ["bash", "-c", f"printf '%s\\0' {display.shell_words(words)}"], capture_output=True, check=True, env={"LC_ALL": "C.UTF-8"}
    )
    assert done.stdout.decode().split("\0")[:-1] == words


@pytest.mark.parametrize("text", ["../../etc/passwd", ".bashrc", "-rf", "", "a/b\x00c", "\u202e", "..", "COM1\n"])
def test_a_stem_stays_in_its_folder(text: str) -> None:
    stem = display.file_stem(text)
    assert stem
    assert stem[0] not in ".-"
    assert stem.isascii()
    assert not set(stem) & set("/\\\x00\n ")


@given(text=TEXT)
@CALM
def test_prometheus_reads_back_a_label(text: str) -> None:
    registry = CollectorRegistry()
    Gauge("jobs", "Jobs.", ["name"], registry=registry).labels(display.line(text)).set(1)
    families = list(text_string_to_metric_families(generate_latest(registry).decode()))
    assert [sample.labels["name"] for family in families for sample in family.samples] == [display.line(text)]
