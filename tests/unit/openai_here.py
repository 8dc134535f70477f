"""A server on this machine that speaks as OpenAI-compatible endpoints do, well or badly; and files to download."""

from __future__ import annotations

import json
import re
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


class Asked:
    """One request, and the means to answer it."""

    def __init__(self, handler: BaseHTTPRequestHandler, body: bytes) -> None:
        self.handler, self.path, self.headers = handler, handler.path, dict(handler.headers.items())
        self.json: dict[str, Any] = json.loads(body) if body else {}

    def reply(self, status: int, body: bytes | str | Mapping[str, Any], **headers: str) -> None:
        raw = json.dumps(body).encode() if isinstance(body, Mapping) else body.encode() if isinstance(body, str) else body
        self.handler.send_response(status)
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        for name, value in {"content-type": "application/json", "content-length": str(len(raw)), **named}.items():
            self.handler.send_header(name, value)
        self.handler.end_headers()
        self.handler.wfile.write(raw)

    def stream(self, *parts: Mapping[str, Any] | str | float) -> None:
        """Send objects as events, texts as they are; a number waits so many seconds."""
        self.handler.send_response(200)
        self.handler.send_header("content-type", "text/event-stream")
        self.handler.end_headers()
        for part in parts:
            if isinstance(part, (int, float)):
                time.sleep(part)
                continue
            self.handler.wfile.write(part.encode() if isinstance(part, str) else f"data: {json.dumps(part)}\n\n".encode())
            self.handler.wfile.flush()


Answers = Callable[[Asked], None]


class Server:
    """A running server."""

    def __init__(self, port: int) -> None:
        self.url = f"http://127.0.0.1:{port}/v1"
        self.asked: list[Asked] = []


@contextmanager
def serving(answers: Answers) -> Iterator[Server]:
    """Serve until the end of the block."""

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = Asked(self, self.rfile.read(int(self.headers.get("content-length", 0))))
            server.asked.append(asked)
            try:
                answers(asked)
            except (BrokenPipeError, ConnectionResetError):
                self.close_connection = True

        do_GET = do_POST  # noqa: N815
        do_HEAD = do_POST  # noqa: N815

        def log_message(self, format: str, *args: Any) -> None:
            return

    listening = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    listening.daemon_threads = True
    server = Server(listening.server_address[1])
    thread = threading.Thread(target=listening.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield server
    finally:
        listening.shutdown()
        listening.server_close()
        thread.join()


def said(text: str, finish: str | None = None) -> dict[str, Any]:
    """Return one object of a stream that says a text."""
    return {"choices": [{"index": 0, "delta": {"content": text}, "finish_reason": finish}]}


def called(name: str, *arguments: str, finish: str = "tool_calls") -> list[dict[str, Any]]:
    """Return the objects of a stream that calls a tool, its arguments in pieces."""
    first = {"index": 0, "id": "c1", "type": "function", "function": {"name": name, "arguments": ""}}
    calls = [first, *({"index": 0, "function": {"arguments": piece}} for piece in arguments)]
    parts: list[dict[str, Any]] = [
        {"choices": [{"index": 0, "delta": {"tool_calls": [call]}, "finish_reason": None}]} for call in calls
    ]
    return [*parts, {"choices": [{"index": 0, "delta": {}, "finish_reason": finish}]}]


def speak(asked: Asked, turn: str | tuple[str, dict[str, Any]], *, takes: Sequence[str] = ("schema", "tools", "words")) -> None:
    """Say an answer, or make a call, in the form that was asked for; a form that is not taken is refused as servers do."""
    form = "schema" if "response_format" in asked.json else "tools" if "tools" in asked.json else "words"
    if form not in takes:
        key = {"schema": "response_format", "tools": "tools"}.get(form, "messages")
        asked.reply(400, {"error": {"message": f"'{key}' is not supported by this server"}})
    elif isinstance(turn, str) and form == "tools":
        asked.stream(*(said(piece) for piece in re.findall(r"\S+\s*", turn)), said("", "stop"), USAGE, DONE)
    elif form == "tools":
        asked.stream(*called(turn[0], json.dumps(turn[1])), USAGE, DONE)
    else:
        text = json.dumps({"answer": turn} if isinstance(turn, str) else {"tool": turn[0], "args": turn[1]})
        pieces = [text[at : at + 7] for at in range(0, len(text), 7)]
        asked.stream(*map(said, pieces), said("", "stop"), USAGE, DONE)


DONE = "data: [DONE]\n\n"
USAGE = {"choices": [], "usage": {"prompt_tokens": 11, "completion_tokens": 3, "total_tokens": 14}}
