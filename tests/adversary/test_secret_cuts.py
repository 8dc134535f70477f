"""Property: of a secret of any shape, at any place of a line of any length, no door that cuts lines shows eight characters."""

from __future__ import annotations

import contextlib
import io
import json
from collections.abc import Callable
from functools import cache
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assistant.cli.main import main
from assistant.diagnose.answer import cut, pack
from assistant.diagnose.case import Case
from assistant.diagnose.facts import gather
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.learning.learn import evidence_text
from assistant.diagnose.verdict import judge
from assistant.display import json_text, shorten
from assistant.redact import ends_of, head_of, line_texts, piece_of, redact, redact_lines, tail_of
from tests.adversary.test_secrets import SHAPES
from tests.secret_shapes import MARKED, MECHANISMS, keys, left_of, ordinary, plain, shapes

CALM = settings(max_examples=150, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
FEW = settings(max_examples=6, deadline=None, derandomize=True, suppress_health_check=[HealthCheck.function_scoped_fixture])
MISSED = {"feishu signing"}
"""Shapes of ours that redaction does not know, with or without a cut: a name that nobody else uses."""
EVERY = [
    shape
    for shape in (*SHAPES.first, *SHAPES.second, *(shape for name in MECHANISMS for shape in shapes(name)))
    if not any(words in shape for words in MISSED) and not left_of(shape, redact(plain(shape)))
]
ONE_LINE = [shape for shape in EVERY if "\n" not in shape and all(len(secret) >= 8 for secret in MARKED.findall(shape))]
FILLERS = ("node hop ", "z", "x=1, ", '{"a": 1}, ', "gpu0: 71C | ", "日志 ", "/data/run/", "0123456789")
ERRORS = (
    "RuntimeError: CUDA error: uncorrectable ECC error encountered ",
    "[rank3]: ValueError: bad DSN ",
    "ERROR proxy failed ",
    "slurmstepd: error: Detected 1 oom_kill event in StepId=4821.0. ",
    "ConnectionRefusedError: [Errno 111] Connection refused: ",
    "torch.distributed.DistBackendError: NCCL error: ",
)


def padded(filler: str, length: int) -> str:
    return (filler * (length // len(filler) + 1))[:length]


LINES = st.builds(
    lambda shape, filler, before, behind: (shape, f"{padded(filler, before)} {plain(shape)} {padded(filler, behind)}"),
    st.sampled_from(ONE_LINE),
    st.sampled_from(FILLERS),
    st.integers(0, 1_400),
    st.integers(0, 1_400),
)


def known(shape: str, line: str) -> bool:
    """Tell whether redaction hides the secret in the line as it is: what it does not know is no matter of cuts."""
    return not left_of(shape, redact(line))


def test_most_shapes_stand() -> None:
    assert len(EVERY) > 400


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_shapes_of_a_mechanism_are_hidden(mechanism: str) -> None:
    for shape in shapes(mechanism):
        clean = redact(plain(shape))
        assert any(words in shape for words in MISSED) or left_of(shape, clean) == [], shape
        assert clean.count("\n") == shape.count("\n")
        assert redact(clean) == clean


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_shapes_with_other_random_values_are_hidden(mechanism: str) -> None:
    total = missed = 0
    for seed in range(5):
        for shape in shapes(mechanism, seed):
            total += 1
            missed += bool(left_of(shape, redact(plain(shape))))
    assert missed <= total // 20


@pytest.mark.parametrize(("name", "shape"), list(keys()))
def test_no_row_of_a_key_is_left_whole_cut_or_line_by_line(name: str, shape: str) -> None:
    text = plain(shape)
    lines = text.split("\n")
    assert left_of(shape, redact(text)) == []
    assert left_of(shape, "\n".join(redact_lines(lines))) == []
    assert left_of(shape, json_text({"lines": lines})) == []
    assert left_of(shape, json_text({"lines": [{"n": number, "text": line} for number, line in enumerate(lines)]})) == []
    # the last row alone, of which only the rows before it say what it is
    number = max(number for number, line in enumerate(shape.split("\n")) if "«" in line)
    assert left_of(shape, line_texts([number], dict(enumerate(lines)).get)[number]) == []
    assert "step 1 loss 2.5" in redact(text)
    assert "step 2 loss 2.4" in redact(text)


def test_ordinary_lines_stay() -> None:
    lines = ordinary(3_000)
    assert sum(redact(line) != line for line in lines) < 3
    assert sum(clean != line for clean, line in zip(redact_lines(lines), lines, strict=True)) < 3


CUTS: tuple[Callable[[str, int], str], ...] = (
    lambda text, at: head_of(text, at),
    lambda text, at: tail_of(text, at),
    lambda text, at: piece_of(text, at // 2, at),
    lambda text, at: ends_of(text, at, 50),
    lambda text, at: ends_of(text, 50, at),
    lambda text, at: cut(text, at + 60),
    lambda text, at: shorten(text, at + 1),
)


@CALM
@given(line=LINES, at=st.integers(0, 1_600), number=st.integers(0, len(CUTS) - 1))
def test_no_cut_leaves_a_piece(line: tuple[str, str], at: int, number: int) -> None:
    shape, text = line
    if known(shape, text):
        assert left_of(shape, redact(CUTS[number](text, at))) == []


@pytest.mark.parametrize("take", CUTS)
def test_a_cut_at_every_place_of_a_secret_leaves_nothing_of_it(take: Callable[[str, int], str]) -> None:
    for shape in ONE_LINE[::23]:
        text = f"{'node hop ' * 9} {plain(shape)} {'node hop ' * 9}"
        if known(shape, text):
            for at in range(60, len(text), 3):
                assert left_of(shape, redact(take(text, at))) == [], (shape, at)


def test_a_cut_text_stays_within_its_bound_and_keeps_ordinary_text() -> None:
    text = "all is well " * 100
    assert head_of(text, 100) == text[:100]
    assert tail_of(text, 100) == text[-100:]
    assert ends_of(text, 60, 50) == f"{text[:60].rstrip()} … {text[-50:].lstrip()}"
    assert head_of(text, 2_000) is text


def printed(*words: str) -> str:
    out = io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.suppress(SystemExit):
        main(list(words))
    return out.getvalue()


@FEW
@given(line=LINES, error=st.sampled_from(ERRORS), second=st.sampled_from(ERRORS))
def test_no_door_leaves_a_piece(line: tuple[str, str], error: str, second: str, tmp_path: Path) -> None:
    shape, text = line
    if not known(shape, error + text):
        return
    log = tmp_path / "job.log"
    log.write_text(f"step 1 loss 2.5\n{second}\n{error}{text}\nstep 2 loss 2.4\n{text}\n{error}{text}\n", encoding="utf-8")
    for words in (
        ("logs", "tail", "-n", "3", str(log)),
        ("logs", "search", str(log), "."),
        ("logs", "compress", str(log)),
        ("logs", "compress", "--budget", "700", str(log)),
        ("logs", "compress", "--tokens", "900", str(log)),
        ("diagnose", "--shipped", str(log)),
    ):
        for form in ((), ("--json",)):
            out = printed(*words, *form)
            assert out, words
            assert left_of(shape, out) == [], words


@cache
def knowledge() -> Knowledge:
    return Knowledge.load(None)


@CALM
@given(line=LINES, error=st.sampled_from(ERRORS), second=st.sampled_from(ERRORS))
def test_no_sentence_and_no_evidence_of_a_diagnosis_has_a_piece(
    line: tuple[str, str], error: str, second: str, tmp_path: Path
) -> None:
    shape, text = line
    if not known(shape, error + text):
        return
    log = tmp_path / "job.log"
    log.write_text(f"step 1 loss 2.5\n{second}{text}\nstep 2 loss 2.4\n{error}{text}\n", encoding="utf-8")
    facts = gather(Case.from_path(log), knowledge())
    diagnosis = judge(facts, knowledge())
    assert left_of(shape, json_text(json.loads(json.dumps(_plain(diagnosis))))) == []
    assert left_of(shape, redact(evidence_text(facts, diagnosis.root_cause))) == []
    assert left_of(shape, redact(pack(facts, 600).text)) == []


def _plain(value: object) -> object:
    from assistant.tooling import to_json

    return to_json(value)
