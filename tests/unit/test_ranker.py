"""The line ranker: what it sees of a line, how it is trained, kept and read, and that nothing broken is believed."""

from __future__ import annotations

import json
import random
import struct
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from assistant.content.reading import wordings
from assistant.content.reasons import reasons
from assistant.errors import ContentError
from assistant.llm.features import places, words_of
from assistant.llm.ranker import (
    FILE,
    NONE,
    LinearRanker,
    TrainingExample,
    TrainingTerms,
    cross_validate,
    file_of,
    filled,
    lessons,
    load_ranker,
    save_ranker,
    train,
)
from assistant.records import LearnedRule, RuleKind, RuleState

QUICK = TrainingTerms(passes=3, copies=1)


@pytest.fixture(scope="module")
def examples() -> list[TrainingExample]:
    kept = ("network_error", "permission_error", "zero_division_error", NONE)
    return [example for example in lessons() if example.reason in kept]


@pytest.fixture(scope="module")
def trained(examples: list[TrainingExample]) -> LinearRanker:
    return LinearRanker(train(examples, QUICK))


@pytest.fixture(scope="module")
def shipped() -> LinearRanker:
    return load_ranker(file_of())


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ("[rank3]: RuntimeError: bucket 7 overflows", "12: RuntimeError: bucket 4 overflows"),
        ("2026-03-01 10:00:01,123 ERROR cannot read /data/a/b.bin", "ERROR cannot read /mnt/x/y/z.bin"),
        ("[Tue Mar  4 10:00:01 2025] eth0: link is down", "Mar 14 11:10:01 eth7: link is down"),
        ("connect to 10.0.0.1:29500 refused", "connect to 172.16.3.9:1 refused"),
    ],
)
def test_what_differs_from_run_to_run_is_not_seen(one: str, other: str) -> None:
    assert places(one) == places(other)


def test_numbers_that_are_words_are_seen() -> None:
    assert places("OSError: [Errno 28] x") != places("OSError: [Errno 13] x")


def test_classes_fall_into_their_words() -> None:
    assert words_of("torch.OutOfMemoryError: boom") == ["torch", "out", "of", "memory", "error", "boom"]


@pytest.mark.parametrize("text", ["", "   ", "12345", "\x00\x00", "é" * 5000, "a" * 200_000, "/" * 3000])
def test_any_text_gets_a_score(shipped: LinearRanker, text: str) -> None:
    (score,) = shipped.rank([text])
    assert 0 <= score.root <= 1
    assert len(score.reasons) >= 3
    assert sum(score.reasons.values()) <= 1.0001


def test_every_reason_of_the_paper_has_wordings_and_no_reason_fewer_than_25() -> None:
    known = wordings()
    of_the_paper = {name for name, reason in reasons().items() if reason.prior is not None}
    # any other may be known by its signatures alone
    assert of_the_paper <= set(known) - {NONE} <= set(reasons()) - {"unknown"}
    few = {name: len(entry.lines("root")) + len(entry.lines("symptom")) for name, entry in known.items() if name != NONE}
    assert {name: count for name, count in few.items() if count < 25} == {}


def test_every_slot_of_a_wording_is_filled() -> None:
    chance = random.Random(1)
    left = [line for entry in wordings().values() for kind in ("root", "symptom", "quiet") for line in entry.lines(kind)]
    assert [line for line in left if "{word}" in filled(line, chance) or "{n}" in filled(line, chance)] == []


def test_an_unseen_wording_finds_its_reason(trained: LinearRanker) -> None:
    denied, lost = trained.rank(["open(/srv/x): permission denied for uid 12", "eth3: carrier lost, network link down"])
    assert next(iter(denied.reasons)) == "permission_error"
    assert next(iter(lost.reasons)) == "network_error"
    assert next(iter(denied.reasons.values())) > 0.5


def test_a_line_that_speaks_for_nothing_is_no_root(shipped: LinearRanker) -> None:
    cause, routine = shipped.rank(["OSError: [Errno 28] No space left on device", "step 120 loss 2.31 tokens/s 51200"])
    assert cause.root > 0.7 > 0.3 > routine.root


@pytest.mark.slow
def test_the_same_seed_gives_the_same_bytes(examples: list[TrainingExample], tmp_path: Path) -> None:
    for name in ("one", "two"):
        save_ranker(train(examples, QUICK), tmp_path / name)
    save_ranker(train(examples, replace(QUICK, seed=7)), tmp_path / "three")
    assert (tmp_path / "one").read_bytes() == (tmp_path / "two").read_bytes() != (tmp_path / "three").read_bytes()


def test_a_written_file_ranks_as_the_model_did(trained: LinearRanker, tmp_path: Path) -> None:
    save_ranker(trained.weights, tmp_path / FILE)
    again = load_ranker(tmp_path / FILE)
    lines = ["ZeroDivisionError: float modulo", "eth0: link down"]
    assert again.rank(lines) == trained.rank(lines)
    assert again.name == trained.name


def test_the_shipped_file_is_small_and_was_trained_on_the_content_as_it_is(shipped: LinearRanker) -> None:
    assert file_of().stat().st_size < 3 << 20
    assert set(wordings()) <= set(shipped.weights.classes) <= (set(reasons()) - {"unknown"}) | {NONE}


def _header(change: Callable[[dict[str, object]], object]) -> Callable[[bytes], bytes]:
    def changed(raw: bytes) -> bytes:
        (length,) = struct.unpack_from("<Q", raw)
        header = json.loads(raw[8 : 8 + length])
        change(header)
        text = json.dumps(header).encode()
        return struct.pack("<Q", len(text)) + text + raw[8 + length :]

    return changed


def _about(header: dict[str, object], **values: str) -> None:
    about = header["__metadata__"]
    assert isinstance(about, dict)
    about.update(values)


BROKEN: dict[str, Callable[[bytes], bytes]] = {
    "empty": lambda raw: b"",
    "cut off": lambda raw: raw[: len(raw) // 2],
    "text": lambda raw: b"not a model at all, but a text of some length",
    "a length beyond the file": lambda raw: struct.pack("<Q", 1 << 60) + raw[8:],
    "no metadata": _header(lambda header: header.pop("__metadata__")),
    "another version": _header(lambda header: _about(header, version="99")),
    "too few classes": _header(lambda header: _about(header, classes='["none", "key_error"]')),
    "a missing table": _header(lambda header: header.pop("table")),
    "another shape": _header(lambda header: header.update(scale={"dtype": "F32", "shape": [1], "data_offsets": [0, 4]})),
    "an unknown type": _header(lambda header: header.update(scale={"dtype": "F99", "shape": [1], "data_offsets": [0, 4]})),
}


@pytest.mark.parametrize("how", BROKEN)
def test_a_broken_file_is_refused_with_its_name_and_what_to_do(trained: LinearRanker, tmp_path: Path, how: str) -> None:
    path = tmp_path / FILE
    save_ranker(trained.weights, path)
    path.write_bytes(BROKEN[how](path.read_bytes()))
    with pytest.raises(ContentError, match="train-ranker") as error:
        load_ranker(path)
    assert str(path) in str(error.value)


def test_a_missing_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ContentError, match="No such file"):
        load_ranker(tmp_path / FILE)


def test_the_site_s_file_goes_before_the_shipped_one(tmp_path: Path) -> None:
    own = tmp_path / "knowledge" / FILE
    assert file_of(tmp_path) == file_of()
    own.parent.mkdir()
    own.touch()
    assert file_of(tmp_path) == own


def test_what_the_store_learned_is_learned_from() -> None:
    at = datetime(2026, 3, 1, tzinfo=UTC)
    rule = LearnedRule(
        "hang.learned-1", RuleKind.SIGNATURE, "flux", ("flux stands still",), "hang", RuleState.ACTIVE, "operator:ada", "", at
    )
    retired = replace(rule, id="hang.learned-2", examples=("old flux",), state=RuleState.RETIRED)
    found = {
        example.text: example.reason for example in lessons(learned=[rule, retired], confirmed=[("warp core gone", "node_failure")])
    }
    assert found["flux stands still"] == "hang"
    assert found["warp core gone"] == "node_failure"
    assert "old flux" not in found


@pytest.mark.slow
def test_cross_validation_holds_whole_wordings_out(examples: list[TrainingExample]) -> None:
    tried = cross_validate(examples, 3, QUICK)
    assert tried.lines > 100
    assert 0.6 < tried.reason <= tried.third <= 1
    assert set(tried.by_reason) == {"network_error", "permission_error", "zero_division_error"}
