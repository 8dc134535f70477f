"""Get a model from Hugging Face or any URL: in pieces that survive a break, checked before it takes its name.

What has come so far lies beside the goal as `NAME.part`; the next try goes on there. Proxies of the environment and HF_ENDPOINT are
honoured; HF_TOKEN goes to that host only.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from io import BufferedRandom
from pathlib import Path
from urllib.parse import quote, unquote, urlsplit

import httpx

from assistant.errors import InputError, Unavailable, UsageError
from assistant.llm.gguf import read_gguf

TRIES = 5
"""In a row without a single new byte."""
SPARE_BYTES = 64 << 20
_REPOSITORY = re.compile(r"[\w.-]+/[\w.-]+")
_SHA256 = re.compile(r'"?([0-9a-f]{64})"?')
_NAME = re.compile(r"\w[\w.+ -]{0,200}")

ProgressReport = Callable[[int, int], None]
"""Called with the bytes that have come, and all bytes, 0 when unknown."""


@dataclass(frozen=True)
class DownloadSource:
    """Where a file is."""

    url: str
    name: str
    """Of the file, without folders."""
    headers: Mapping[str, str]


@dataclass(frozen=True)
class PulledFile:
    """A file that came whole."""

    path: Path
    sha256: str
    size_bytes: int
    checked: str
    """What its sha256 was compared with: `given`, `the server's`, or empty for nothing."""


def source_of(model_name: str, environ: Mapping[str, str]) -> DownloadSource:
    """Return where a file is.

    Args:
        model_name: A URL, or `OWNER/REPOSITORY/FILE` on Hugging Face, with `@REVISION` behind the repository for another than main.
        environ: HF_ENDPOINT names a mirror, HF_TOKEN lets in.

    Raises:
        UsageError: It is neither, or names no file.
    """
    if model_name.startswith(("http://", "https://")):
        return DownloadSource(model_name, _name(unquote(urlsplit(model_name).path).rpartition("/")[2], model_name), {})
    owner, _, path = model_name.removeprefix("hf:").partition("/")
    repository, _, file = path.partition("/")
    repository, _, revision = repository.partition("@")
    if not _REPOSITORY.fullmatch(f"{owner}/{repository}") or not file:
        raise UsageError(
            f"wanted a URL or OWNER/REPOSITORY/FILE, found {model_name!r}; nightshift model pull OWNER/REPOSITORY lists its files"
        )
    host = (environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
    token = environ.get("HF_TOKEN", "")
    url = f"{host}/{owner}/{repository}/resolve/{quote(revision or 'main', safe='')}/{quote(file)}"
    return DownloadSource(url, _name(file.rpartition("/")[2], model_name), {"Authorization": f"Bearer {token}"} if token else {})


def files_of(repository: str, environ: Mapping[str, str]) -> list[tuple[str, int]]:
    """Return the GGUF files of a repository on Hugging Face with their sizes in bytes.

    Raises:
        UsageError: There is no such repository, or it may not be seen.
        Unavailable: Hugging Face, or its mirror, did not answer.
    """
    host = (environ.get("HF_ENDPOINT") or "https://huggingface.co").rstrip("/")
    token = environ.get("HF_TOKEN", "")
    url = f"{host}/api/models/{repository}/tree/main?recursive=true"
    try:
        reply = httpx.get(url, headers={"Authorization": f"Bearer {token}"} if token else {}, timeout=30, follow_redirects=True)
        if reply.status_code in (401, 403, 404):
            raise UsageError(
                f"{repository}: there is no such repository at {host}, or it wants HF_TOKEN (HTTP {reply.status_code})"
            )
        reply.raise_for_status()
        return [
            (str(entry["path"]), int(entry.get("size", 0)))
            for entry in reply.json()
            if str(entry.get("path", "")).endswith(".gguf")
        ]
    except (httpx.HTTPError, ValueError, TypeError, AttributeError) as error:
        raise Unavailable(
            f"{host}: did not list {repository}: {error}; is there a network, is HF_ENDPOINT or a proxy needed?"
        ) from error


def pull(
    source: DownloadSource, folder: Path, *, sha256: str = "", report_progress: ProgressReport = lambda received_bytes, size: None
) -> PulledFile:
    """Download a file, going on with what has come before.

    Args:
        source: Where it is.
        folder: Where it goes; made when it is not there.
        sha256: That it must have; without it the server's word counts, where it gives one.
        report_progress: Called with the bytes so far and the size of the file.

    Raises:
        InputError: What came is not what was meant, or no model; it is gone, and the goal is as it was.
        Unavailable: The line broke again and again; what has come is kept.
        UsageError: There is no such file, no room, or another pull of it is under way.
    """
    goal, part = folder / source.name, folder / f"{source.name}.part"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with _only_one(part) as file:
            get = _Download(source, part, file, report_progress)
            get.all()
            return _finished(get, goal, part, sha256.lower())
    except OSError as error:
        raise UsageError(f"{goal}: cannot be written: {error.strerror or error}; name another folder with --folder") from error


class _Download:
    """Fetches the bytes that are missing."""

    def __init__(self, source: DownloadSource, part: Path, file: BufferedRandom, report_progress: ProgressReport) -> None:
        self.source, self.part, self.file, self.report_progress = source, part, file, report_progress
        self.size = 0
        self.mark = _kept_mark(part, source.url)
        """The server's ETag of what lies in the part."""
        self.servers_sha256 = ""

    def all(self) -> None:
        """Fetch until everything is there."""
        failures, whole = 0, False
        with httpx.Client(follow_redirects=True, timeout=httpx.Timeout(60, connect=20)) as client:
            while not whole:
                before = self.have()
                try:
                    whole = self.some(client)
                except (httpx.InvalidURL, httpx.UnsupportedProtocol) as error:
                    raise UsageError(f"{self.source.url}: is no URL: {error}") from error
                except httpx.HTTPError as error:
                    failures = 0 if self.have() > before else failures + 1
                    if failures >= TRIES:
                        kept_text = f"{self.have():,} bytes are kept, the same command goes on there"
                        raise Unavailable(f"{self.source.url}: {error or type(error).__name__}; {kept_text}") from error

    def have(self) -> int:
        return self.file.seek(0, os.SEEK_END)

    def some(self, client: httpx.Client) -> bool:
        """Fetch what one request gives; True when nothing is missing."""
        at = self.have() if self.mark else 0
        headers = {**self.source.headers, "Accept-Encoding": "identity"}
        if at:
            headers |= {"Range": f"bytes={at}-", "If-Range": self.mark}
        with client.stream("GET", self.source.url, headers=headers) as reply:
            if reply.status_code == 416:
                self.file.truncate(0)
                self.mark = ""
                return False
            self._checked(reply)
            begins = _first_byte(reply) if reply.status_code == 206 else 0
            if begins not in (0, at):
                raise Unavailable(f"{self.source.url}: was asked for the bytes from {at:,} on and gives those from {begins:,} on")
            self._meet(reply, begins)
            self.file.seek(begins)
            self.file.truncate(begins)
            have_bytes = begins
            for block in reply.iter_raw():
                self.file.write(block)
                have_bytes += len(block)
                self.report_progress(have_bytes, self.size)
        self.file.flush()
        if self.size and have_bytes < self.size:
            raise httpx.RemoteProtocolError(f"the line ended after {have_bytes:,} of {self.size:,} bytes")
        return True

    def _checked(self, reply: httpx.Response) -> None:
        status = reply.status_code
        if status in (200, 206):
            if "text/html" in reply.headers.get("content-type", ""):
                raise InputError(f"{self.source.url}: answers a web page, not a file; is it the link to the file itself?")
            return
        if status in (401, 403):
            raise UsageError(f"{self.source.url}: may not be seen (HTTP {status}); accept its terms there and set HF_TOKEN")
        if status in (404, 410):
            raise UsageError(f"{self.source.url}: there is no such file (HTTP {status})")
        raise httpx.RemoteProtocolError(f"the server answers HTTP {status}")

    def _meet(self, reply: httpx.Response, begins: int) -> None:
        """Take down what the server says about the whole file, and make sure of the room."""
        length = reply.headers.get("content-length", "")
        self.size = begins + int(length) if length.isdigit() else 0
        matches = [_SHA256.fullmatch(answer.headers.get("x-linked-etag", "")) for answer in (*reply.history, reply)]
        self.servers_sha256 = next((match[1] for match in matches if match), "")
        self.mark = reply.headers.get("etag", "")
        if self.mark.startswith("W/"):
            # a weak mark promises no equal bytes: a broken download begins anew
            self.mark = ""
        _mark_file(self.part).write_text(json.dumps({"url": self.source.url, "etag": self.mark}), encoding="utf-8")
        free = shutil.disk_usage(self.part.parent).free
        if self.size - begins + SPARE_BYTES > free:
            raise UsageError(
                f"{self.part.parent}: {(self.size - begins) / 1e9:.1f} GB are still to come, {free / 1e9:.1f} GB are free; "
                "make room, or name another folder with --folder"
            )


def _finished(get: _Download, goal: Path, part: Path, sha256: str) -> PulledFile:
    get.file.seek(0)
    digest = hashlib.file_digest(get.file, "sha256").hexdigest()
    expected = sha256 or get.servers_sha256
    if expected and digest != expected:
        _forget(part)
        raise InputError(
            f"{get.source.url}: its sha256 is {digest}, wanted {expected}; what came is deleted: try again, or another source"
        )
    if goal.suffix == ".gguf":
        try:
            read_gguf(part)
        except InputError as error:
            _forget(part)
            raise InputError(f"{get.source.url}: what came is no model and is deleted: {error}") from error
    os.fsync(get.file.fileno())
    part.replace(goal)
    _mark_file(part).unlink(missing_ok=True)
    return PulledFile(goal, digest, goal.stat().st_size, "given" if sha256 else "the server's" if expected else "")


@contextmanager
def _only_one(part: Path) -> Iterator[BufferedRandom]:
    with part.open("a+b") as locked:
        try:
            fcntl.flock(locked, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as error:
            raise UsageError(f"{part}: another pull of it is under way; wait for it") from error
        # the lock is of the open file; writing in the middle needs another mode
        with part.open("r+b") as file:
            yield file


def _forget(part: Path) -> None:
    part.unlink(missing_ok=True)
    _mark_file(part).unlink(missing_ok=True)


def _mark_file(part: Path) -> Path:
    return part.with_name(f"{part.name}.json")


def _kept_mark(part: Path, url: str) -> str:
    """Return the mark of what lies in the part; empty when it came from elsewhere or is not known."""
    try:
        mark = json.loads(_mark_file(part).read_text(encoding="utf-8"))
        return str(mark["etag"]) if mark["url"] == url else ""
    except (OSError, ValueError, KeyError, TypeError):
        return ""


def _first_byte(reply: httpx.Response) -> int:
    match = re.match(r"bytes (\d+)-", reply.headers.get("content-range", ""))
    return int(match[1]) if match else -1


def _name(text: str, source_text: str) -> str:
    if not _NAME.fullmatch(text):
        raise UsageError(f"{source_text}: names no file at its end; name the .gguf file itself")
    return text
