"""Downloads from a server on this machine: breaks, lies, and what is left behind."""

from __future__ import annotations

import hashlib
from pathlib import Path

import pytest

from assistant.errors import InputError, NightshiftError, Unavailable, UsageError
from assistant.llm.pull import files_of, pull, source_of
from tests.unit.openai_here import Asked, serving
from tests.unit.tiny_gguf import write_tiny


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    return write_tiny(tmp_path_factory.mktemp("pull") / "t.gguf", {}).read_bytes()


class Files:
    """Serves one file, with breaks."""

    def __init__(self, content: bytes, *, breaks: int = 0, etag: str = '"v1"', ranges: bool = True, linked: str = "") -> None:
        self.content, self.breaks, self.etag, self.ranges, self.linked = content, breaks, etag, ranges, linked
        self.given = 0

    def __call__(self, asked: Asked) -> None:
        wanted = asked.headers.get("Range", "") if self.ranges and asked.headers.get("If-Range", self.etag) == self.etag else ""
        first = int(wanted.removeprefix("bytes=").rstrip("-") or 0)
        rest = self.content[first:]
        handler = asked.handler
        handler.send_response(206 if first else 200)
        handler.send_header("content-length", str(len(rest)))
        handler.send_header("etag", self.etag)
        if self.linked:
            handler.send_header("x-linked-etag", f'"{self.linked}"')
        if first:
            handler.send_header("content-range", f"bytes {first}-{len(self.content) - 1}/{len(self.content)}")
        handler.end_headers()
        if self.breaks:
            self.breaks -= 1
            rest = rest[: len(rest) // 2]
        self.given += len(rest)
        handler.wfile.write(rest)


def test_a_file_comes_whole_and_only_then_has_its_name(model: bytes, tmp_path: Path) -> None:
    heard: list[tuple[int, int]] = []
    with serving(Files(model)) as server:
        found = pull(
            source_of(f"{server.url}/t.gguf", {}), tmp_path / "new", report_progress=lambda done, size: heard.append((done, size))
        )
    assert found.path.read_bytes() == model
    assert (found.sha256, found.checked) == (hashlib.sha256(model).hexdigest(), "")
    assert heard[-1] == (len(model), len(model))
    assert [path.name for path in (tmp_path / "new").iterdir()] == ["t.gguf"]


def test_a_line_that_breaks_is_taken_up_where_it_broke(model: bytes, tmp_path: Path) -> None:
    files = Files(model, breaks=3)
    with serving(files) as server:
        found = pull(source_of(f"{server.url}/t.gguf", {}), tmp_path, sha256=hashlib.sha256(model).hexdigest().upper())
    assert (found.path.read_bytes(), found.checked) == (model, "given")
    assert files.given == len(model)


def test_the_next_command_goes_on_where_the_last_one_stopped(model: bytes, tmp_path: Path) -> None:
    files = Files(model, breaks=1)

    class Interrupted(Exception):
        pass

    def stop(done: int, size: int) -> None:
        if done >= size // 2:
            raise Interrupted

    with serving(files) as server:
        source = source_of(f"{server.url}/t.gguf", {})
        with pytest.raises(Interrupted):
            pull(source, tmp_path, report_progress=stop)
        assert (tmp_path / "t.gguf.part").stat().st_size > 0
        pull(source, tmp_path)
    assert (tmp_path / "t.gguf").read_bytes() == model
    assert files.given == len(model)


def test_a_file_that_changed_meanwhile_begins_anew(model: bytes, tmp_path: Path) -> None:
    (tmp_path / "t.gguf.part").write_bytes(b"x" * 1000)
    with serving(Files(model, etag='"v2"')) as server:
        (tmp_path / "t.gguf.part.json").write_text(f'{{"url": "{server.url}/t.gguf", "etag": "\\"v1\\""}}')
        pull(source_of(f"{server.url}/t.gguf", {}), tmp_path)
    assert (tmp_path / "t.gguf").read_bytes() == model


def test_a_server_without_ranges_begins_anew(model: bytes, tmp_path: Path) -> None:
    with serving(Files(model, breaks=2, ranges=False)) as server:
        pull(source_of(f"{server.url}/t.gguf", {}), tmp_path)
    assert (tmp_path / "t.gguf").read_bytes() == model


def test_a_wrong_checksum_leaves_nothing_and_the_old_file(model: bytes, tmp_path: Path) -> None:
    (tmp_path / "t.gguf").write_bytes(b"old")
    with serving(Files(model)) as server, pytest.raises(InputError, match="wanted 0000"):
        pull(source_of(f"{server.url}/t.gguf", {}), tmp_path, sha256="0" * 64)
    assert [path.name for path in tmp_path.iterdir()] == ["t.gguf"]
    assert (tmp_path / "t.gguf").read_bytes() == b"old"


def test_the_sha256_that_hugging_face_gives_is_checked(model: bytes, tmp_path: Path) -> None:
    right = hashlib.sha256(model).hexdigest()
    with serving(Files(model, linked=right)) as server:
        assert pull(source_of("o/r/t.gguf", {"HF_ENDPOINT": server.url}), tmp_path).checked == "the server's"
        assert server.asked[0].path == "/v1/o/r/resolve/main/t.gguf"
    with serving(Files(model, linked="1" * 64)) as server, pytest.raises(InputError, match="its sha256 is"):
        pull(source_of("o/r/t.gguf", {"HF_ENDPOINT": server.url}), tmp_path)


@pytest.mark.parametrize(
    ("answers", "kind", "why"),
    [
        (lambda asked: asked.reply(404, "no"), UsageError, "there is no such file"),
        (lambda asked: asked.reply(403, "no"), UsageError, "set HF_TOKEN"),
        (lambda asked: asked.reply(200, "<html>", content_type="text/html"), InputError, "answers a web page"),
        (lambda asked: asked.reply(200, "version https://git-lfs"), InputError, "what came is no model and is deleted"),
        (lambda asked: asked.reply(500, "no"), Unavailable, "HTTP 500; 0 bytes are kept"),
        (lambda asked: asked.handler.wfile.write(b"garbage\r\n\r\n"), Unavailable, "are kept"),
    ],
    ids=["404", "403", "a web page", "a pointer", "500", "garbage"],
)
def test_what_is_no_model_is_named_and_leaves_no_file(
    answers: object, kind: type[NightshiftError], why: str, tmp_path: Path
) -> None:
    with serving(answers) as server, pytest.raises(kind, match=why):  # type: ignore[arg-type]
        pull(source_of(f"{server.url}/t.gguf", {}), tmp_path)
    assert not (tmp_path / "t.gguf").exists()


def test_more_than_the_disk_holds_is_refused_before_it_comes(tmp_path: Path) -> None:
    def huge(asked: Asked) -> None:
        asked.handler.send_response(200)
        asked.handler.send_header("content-length", str(10**17))
        asked.handler.end_headers()

    with serving(huge) as server, pytest.raises(UsageError, match="are still to come"):
        pull(source_of(f"{server.url}/t.gguf", {}), tmp_path)


def test_a_repository_lists_its_models() -> None:
    tree = '[{"path": "README.md", "size": 1}, {"path": "q4.gguf", "size": 4}, {"path": "sub/q8.gguf", "size": 8}]'
    with serving(lambda asked: asked.reply(200, tree)) as server:
        assert files_of("o/r", {"HF_ENDPOINT": server.url}) == [("q4.gguf", 4), ("sub/q8.gguf", 8)]
    with serving(lambda asked: asked.reply(404, "no")) as server, pytest.raises(UsageError, match="no such repository"):
        files_of("o/r", {"HF_ENDPOINT": server.url})
    with serving(lambda asked: asked.reply(200, "<html>")) as server, pytest.raises(Unavailable, match="did not list"):
        files_of("o/r", {"HF_ENDPOINT": server.url})


def test_the_token_goes_to_hugging_face_only() -> None:
    environ = {"HF_TOKEN": "hf_x"}
    assert source_of("o/r@v2/a b.gguf", environ).headers == {"Authorization": "Bearer hf_x"}
    assert source_of("o/r@v2/a b.gguf", environ).url == "https://huggingface.co/o/r/resolve/v2/a%20b.gguf"
    assert source_of("https://example.org/x.gguf", environ).headers == {}


@pytest.mark.parametrize("what", ["nothing", "o/r", "o/r/", "https://example.org/", "https://example.org/..", "o/r/../../x/.ssh"])
def test_what_names_no_file_is_refused(what: str) -> None:
    with pytest.raises(UsageError):
        source_of(what, {})


def test_a_proxy_of_the_environment_is_used(model: bytes, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with serving(Files(model)) as proxy:
        monkeypatch.setenv("http_proxy", proxy.url.removesuffix("/v1"))
        pull(source_of("http://models.example/t.gguf", {}), tmp_path)
    assert proxy.asked[0].path == "http://models.example/t.gguf"
    assert (tmp_path / "t.gguf").read_bytes() == model
