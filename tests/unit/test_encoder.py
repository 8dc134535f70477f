"""The encoder that comes with Nightshift: its figures on what training never saw, odd texts, and what stands in for it."""

from __future__ import annotations

import dataclasses
import os
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from assistant.content.reasons import reasons
from assistant.errors import ContentError
from assistant.llm import embedded, features
from assistant.llm.embedded import HashingEmbedder
from assistant.llm.encoder import (
    _AT_ONCE,
    DIGEST,
    DIMS,
    FOLDER,
    GGUF,
    HEADS,
    MOST_TOKENS,
    NONE,
    SITE_HEADS,
    EncoderRanker,
    Heads,
    Intents,
    LlamaEncoder,
    load_heads,
    open_heads,
    open_words,
    refit,
    save_heads,
)
from assistant.llm.ranker import LinearRanker
from bench.encoder import Excerpt, chosen, excerpts, judged, memory_mb, real_lines, retrieval, sentences

pytest.importorskip("llama_cpp", reason="llama-cpp-python is not built: make deps-llama")


@pytest.fixture(scope="module")
def encoder() -> LlamaEncoder:
    return LlamaEncoder()


@pytest.fixture(scope="module")
def heads(encoder: LlamaEncoder) -> Heads:
    return open_heads(encoder)


@pytest.fixture(scope="module")
def ranker(encoder: LlamaEncoder, heads: Heads) -> EncoderRanker:
    return EncoderRanker(encoder, heads, open_words())


@pytest.fixture(scope="module")
def cases() -> list[Excerpt]:
    return excerpts()


@pytest.fixture
def broken(tmp_path: Path) -> Path:
    for path in FOLDER.iterdir():
        (tmp_path / path.name).symlink_to(path) if path.name == GGUF else shutil.copy(path, tmp_path)
    return tmp_path


def test_it_finds_the_root_line_and_its_reason_in_wordings_that_training_never_saw(
    cases: list[Excerpt], ranker: EncoderRanker
) -> None:
    found = judged(cases, ranker)
    assert found.root >= 0.89
    assert found.reason >= 0.79
    assert found.named >= 0.85
    assert found.sure_right >= 0.92
    assert found.sure >= 0.35


def test_it_is_better_than_words_alone(cases: list[Excerpt], ranker: EncoderRanker) -> None:
    both, words = judged(cases, ranker), judged(cases, open_words())
    assert both.reason > words.reason
    assert both.root > words.root


@pytest.mark.parametrize(("head", "least"), [("intent", 0.86), ("question", 0.91)])
def test_it_chooses_what_sentences_ask_for_that_training_never_saw(
    encoder: LlamaEncoder, heads: Heads, head: str, least: float
) -> None:
    assert chosen(sentences(head), Intents(encoder, heads, head)).right >= least


@pytest.mark.slow
def test_memory_finds_more_with_it_than_with_hashed_words() -> None:
    with_it, without = retrieval(embedded.EmbeddedEmbedder()), retrieval(HashingEmbedder())
    assert with_it.nearest > without.nearest
    assert with_it.surer_half > without.surer_half


NEWER = {"killed", "output_file_error"}
"""Reasons that came after the encoder was trained: rules and ranker know them, `make model` teaches it."""


def test_it_knows_the_reasons_that_the_content_knows(heads: Heads) -> None:
    assert set(heads.classes["reason"]) == set(reasons()) - {"unknown"} - NEWER | {NONE}


def test_vectors_have_length_one_and_texts_without_words_have_none(encoder: LlamaEncoder) -> None:
    first, second, empty = encoder.embed(["CUDA out of memory", "disk full", " 12 !! "])
    assert [sum(value * value for value in vector) for vector in (first, second)] == pytest.approx([1.0, 1.0], abs=1e-4)
    assert not any(empty)
    assert encoder.embed([]) == []


def test_a_text_has_the_same_vector_alone_and_among_others(encoder: LlamaEncoder) -> None:
    lines = real_lines(40)
    together, alone = LlamaEncoder().embed(lines), [LlamaEncoder.embed(encoder, [line])[0] for line in lines[:10]]
    for one, other in zip(together, alone, strict=False):
        assert sum(a * b for a, b in zip(one, other, strict=True)) > 0.999


@pytest.mark.slow
def test_the_same_texts_give_the_same_bytes_in_every_process() -> None:
    code = (
        "import hashlib; from assistant.llm.encoder import LlamaEncoder; from bench.encoder import real_lines;"
        "print(hashlib.sha256(LlamaEncoder().vectors(real_lines(60)).tobytes()).hexdigest())"
    )
    told = {
        subprocess.run(
            [sys.executable, "-c", code], env={**os.environ, "PYTHONHASHSEED": seed}, check=True, capture_output=True, text=True
        ).stdout
        for seed in ("1", "2", "3")
    }
    assert len(told) == 1


@pytest.mark.parametrize(
    "text", ["x" * 100_000, "wort " * 20_000, "長い行 " * 5_000, "\u202e\x00🔥" * 900, "a_b.C-d/" * 9_000, "ÿ" * 3_000]
)
def test_odd_and_endless_texts_are_cut_not_refused(encoder: LlamaEncoder, ranker: EncoderRanker, text: str) -> None:
    assert len(encoder.embed([text])[0]) == DIMS
    assert 0.0 <= ranker.rank([text])[0].root <= 1.0
    assert encoder.vectors([features.prepared_sentence(text) or "empty"]).shape == (1, DIMS)
    assert len(features.prepared_line(text).split()) < MOST_TOKENS


def test_what_differs_from_run_to_run_is_seen_once() -> None:
    one = features.prepared_line("[rank3]: 2026-03-01 10:00:01 step 12: bucket 7 of /mnt/a/b.bin overflows")
    assert one == features.prepared_line("[rank9]: 2026-04-01 11:10:01 step 99: bucket 1 of /home/x/y.bin overflows")
    assert features.prepared_sentence("why did 4821 die?") == features.prepared_sentence("why did {job} die?")


def test_codes_and_what_is_not_there_are_seen() -> None:
    assert features.prepared_line("OSError: [Errno 28] x failed") != features.prepared_line("OSError: [Errno 13] x failed")
    assert features.prepared_line("0 errors in node check") != features.prepared_line("7 errors in node check")


def test_threads_may_share_it(encoder: LlamaEncoder) -> None:
    lines, found = real_lines(24), {}

    def work(number: int) -> None:
        found[number] = encoder.embed(lines)

    threads = [threading.Thread(target=work, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert all(found[number] == found[0] for number in range(4))


def test_it_takes_little_memory() -> None:
    before = memory_mb()
    LlamaEncoder().embed(real_lines(50))
    assert memory_mb() - before < 120


def test_shares_sum_to_one_at_most_and_the_likeliest_come_first(ranker: EncoderRanker) -> None:
    for score in ranker.rank(real_lines(30)):
        assert list(score.reasons.values()) == sorted(score.reasons.values(), reverse=True)
        assert sum(score.reasons.values()) <= 1.0001
        assert NONE not in score.reasons
        assert len(score.reasons) >= 3


def test_only_allowed_intents_are_chosen(encoder: LlamaEncoder, heads: Heads) -> None:
    intents = Intents(encoder, heads)
    assert {one.name for one in intents.choose("drain node017", ["node_states", "kernel_log"])} == {"node_states", "kernel_log"}
    assert intents.choose("  ") == []


def _no_model(folder: Path) -> None:
    (folder / GGUF).unlink()


def _cut_model(folder: Path) -> None:
    raw = (folder / GGUF).read_bytes()
    (folder / GGUF).unlink()
    (folder / GGUF).write_bytes(raw[: len(raw) // 2])


def _no_digest(folder: Path) -> None:
    (folder / DIGEST).unlink()


def _not_a_digest(folder: Path) -> None:
    (folder / DIGEST).write_text("e3b0\n")


def _garbage_with_its_own_digest(folder: Path) -> None:
    import hashlib

    (folder / GGUF).unlink()
    (folder / GGUF).write_bytes(b"GGUF" + b"\x07" * 4000)
    (folder / DIGEST).write_text(hashlib.sha256((folder / GGUF).read_bytes()).hexdigest())


@pytest.mark.parametrize("spoil", [_no_model, _cut_model, _no_digest, _not_a_digest, _garbage_with_its_own_digest])
def test_a_broken_model_is_said_and_hashing_and_the_linear_ranker_stand_in(broken: Path, spoil: object) -> None:
    spoil(broken)  # type: ignore[operator]
    found = embedded.status(broken)
    assert (found.works, "stand in" in found.says) == (False, True)
    assert embedded.EmbeddedEmbedder(broken).name == HashingEmbedder.name
    assert len(embedded.EmbeddedEmbedder(broken).embed(["disk full"])[0]) == HashingEmbedder.dims
    assert isinstance(embedded.ranker(None, broken), LinearRanker)
    assert embedded.intents(None, "intent", broken) is None


def test_heads_of_another_encoder_are_refused(encoder: LlamaEncoder, heads: Heads, tmp_path: Path) -> None:
    save_heads(dataclasses.replace(heads, about={**heads.about, "encoder": "0" * 64}), tmp_path / HEADS)
    with pytest.raises(ContentError, match="another encoder"):
        load_heads(tmp_path / HEADS, encoder.digest)


@pytest.mark.parametrize("raw", [b"", b"PK\x03\x04", b"\x93NUMPY", b"x" * 100])
def test_broken_heads_are_refused(tmp_path: Path, raw: bytes) -> None:
    (tmp_path / HEADS).write_bytes(raw)
    with pytest.raises(ContentError, match=HEADS):
        load_heads(tmp_path / HEADS)


def test_pickles_in_heads_are_never_run(tmp_path: Path) -> None:
    import numpy as np

    np.savez(tmp_path / HEADS, about=np.array([{"version": 1}], dtype=object))
    with pytest.raises(ContentError, match="broken"):
        load_heads(tmp_path / HEADS)


def test_the_same_heads_give_the_same_bytes(heads: Heads, tmp_path: Path) -> None:
    for name in ("a.npz", "b.npz"):
        save_heads(heads, tmp_path / name)
    assert (tmp_path / "a.npz").read_bytes() == (tmp_path / "b.npz").read_bytes()
    assert load_heads(tmp_path / "a.npz").classes == heads.classes


STRANGE = [
    ("fluxgate: coil 7 lost its lock, beam dumped", "node_failure"),
    ("fluxgate: coil 9 lost its lock, beam dumped by operator", "node_failure"),
    ("blorp: quorum of the zeta ring is gone", "network_error"),
]


def test_what_a_site_teaches_is_known_and_hardly_anything_else_moves(
    tmp_path: Path, cases: list[Excerpt], encoder: LlamaEncoder
) -> None:
    made = embedded.relearn(STRANGE, tmp_path)
    assert made is not None
    assert (made.lines, made.right_after) == (3, 3)
    fitted = EncoderRanker(encoder, open_heads(encoder, tmp_path), open_words())
    assert fitted.heads.about["lessons"] == 3
    for line, reason in STRANGE:
        assert next(iter(fitted.rank([line])[0].reasons)) == reason
    few = cases[:120]
    assert judged(few, fitted).reason >= judged(few, EncoderRanker(encoder, open_heads(encoder), open_words())).reason - 0.02


def test_a_label_that_is_no_reason_cannot_be_learnt(heads: Heads, encoder: LlamaEncoder) -> None:
    with pytest.raises(ContentError, match="gremlins"):
        refit(heads, "reason", encoder.vectors(["a line"]), ["gremlins"])


def test_broken_heads_of_the_site_leave_the_shipped_ones(tmp_path: Path, encoder: LlamaEncoder, heads: Heads) -> None:
    (tmp_path / "knowledge").mkdir()
    (tmp_path / "knowledge" / SITE_HEADS).write_bytes(b"broken")
    said: list[str] = []
    assert open_heads(encoder, tmp_path, warn=said.append).about == heads.about
    assert "shipped heads are used" in said[0]


def test_room_is_made_for_the_texts_of_one_batch_and_only_while_it_loads() -> None:
    from llama_cpp import llama_cpp

    asked = llama_cpp.llama_max_parallel_sequences
    own = LlamaEncoder()
    own.check()
    assert own._model.context_params.n_seq_max == _AT_ONCE
    assert llama_cpp.llama_max_parallel_sequences is asked
