"""Talk to an OpenAI-compatible endpoint: send a request, yield the objects that it streams back, and let no name leave.

Redirects are not followed, for the key would go with them. Proxies of the environment are honoured. No message of an error ever
holds the key. Names of hosts and users never reach an endpoint elsewhere; its answers speak of them by their names all the same.
"""

from __future__ import annotations

import codecs
import json
import re
import time
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from typing import Any
from urllib.parse import urlsplit

import httpx

from assistant.errors import ConfigError, ModelError, NightshiftError, Unavailable
from assistant.redact import Mask, redact

CONNECT_S = 10.0
LARGEST_ANSWER = 8 << 20
"""Bytes of one streamed answer."""
_ENDS = {"stop", "length", "tool_calls", "function_call", "content_filter", "eos"}


class RefusedRequest(ModelError):
    """The endpoint does not take a request in this form; another form may do."""


class Endpoint:
    """Where requests go."""

    def __init__(self, url: str, key: str = "", *, timeout_s: float = 120.0, transport: httpx.BaseTransport | None = None) -> None:
        """Keep the address; nothing is sent yet.

        Args:
            url: Up to and with `/v1`.
            key: Sent as `Authorization: Bearer`; empty for none.
            timeout_s: Seconds that a whole answer may take.
            transport: Another way to send, for tests.

        Raises:
            ConfigError: The URL is none, or the key cannot be sent.
        """
        self.url = url.rstrip("/").removesuffix("/chat/completions")
        if not self.url.startswith(("http://", "https://")):
            raise ConfigError(f"model.url: must begin with http:// or https://, not {url!r}")
        if not key.isascii() or any(sign.isspace() for sign in key):
            raise ConfigError("model.key_file: must hold the key alone on one line, found blanks or letters that no key has")
        self.key, self.timeout_s = key, timeout_s
        self._less: list[str] = []
        """What this endpoint refused: later requests leave it out from the beginning."""
        headers = {"Authorization": f"Bearer {key}"} if key else {}
        try:
            limits = httpx.Timeout(timeout_s, connect=min(CONNECT_S, timeout_s))
            self.client = httpx.Client(headers=headers, timeout=limits, transport=transport)
        except (ValueError, OSError) as error:
            raise ConfigError(f"model.url: cannot be used: {self.clean(error)}") from error

    def close(self) -> None:
        """Close the connections."""
        self.client.close()

    def names(self) -> list[str]:
        """Return the models that the endpoint says it has; none when it does not say."""
        try:
            reply = self.client.get(f"{self.url}/models", timeout=min(10.0, self.timeout_s))
            return [str(model["id"]) for model in reply.json()["data"]] if reply.status_code == 200 else []
        except (httpx.HTTPError, ValueError, KeyError, TypeError):
            return []

    def stream(self, payload: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Send a request for a chat completion and yield what comes back, object by object.

        Raises:
            Unavailable: Down, slow, overloaded, or what answers is no such endpoint; the message says which and what to do.
            ConfigError: The key is refused, the model or the path is unknown.
            RefusedRequest: It does not take a request of this form.
            ModelError: The request is too long.
        """
        request, until = dict(payload), time.monotonic() + self.timeout_s
        for refused_key in self._less:
            request = _without(request, refused_key)
        for _ in range(4):
            try:
                with self.client.stream("POST", f"{self.url}/chat/completions", json=request) as reply:
                    if reply.status_code == 200:
                        yield from self._objects(reply, until)
                        return
                    text = self._beginning(reply, until)
                    key = _refused_key(request, text) if reply.status_code in (400, 422) else None
                    if key is None:
                        raise self._refused(reply, text, str(request.get("model")))
                    self._less.append(key)
                    request = _without(request, key)
            except httpx.TimeoutException as error:
                raise self._slow() from error
            except httpx.HTTPError as error:
                raise Unavailable(
                    f"{self.url}: cannot be reached: {self.clean(error) or type(error).__name__}; is it running?"
                ) from error
            except (httpx.InvalidURL, UnicodeError) as error:
                raise ConfigError(f"model.url: {self.url!r} is no URL: {error}") from error
        raise RefusedRequest(f"{self.url}: refuses every form of the request; is it OpenAI-compatible?")

    def clean(self, text: object) -> str:
        """Return text without the key and other secrets, cut to what a message may hold."""
        cleaned = str(text).replace(self.key, "[redacted]") if self.key else str(text)
        return " ".join(redact(cleaned).split())[:300]

    def _objects(self, reply: httpx.Response, until: float) -> Iterator[dict[str, Any]]:
        kind = reply.headers.get("content-type", "")
        if "event-stream" not in kind:
            yield self._whole(kind, self._beginning(reply, until, LARGEST_ANSWER))
            return
        finished = False
        for line in self._lines(reply, until):
            name, _, data = line.partition(":")
            data = data.strip()
            if name != "data" or not data:
                # `event:`, `id:` and comments by which a server says that it is alive
                if line and name not in ("", "event", "id", "retry", "data"):
                    raise self._garbage(line)
                continue
            if data == "[DONE]":
                return
            event = self._object(data)
            finished |= any(
                choice.get("finish_reason") in _ENDS for choice in event.get("choices") or [] if isinstance(choice, dict)
            )
            yield event
        if not finished:
            raise Unavailable(f"{self.url}: closed the line before the answer's end; ask again")

    def _object(self, data: str) -> dict[str, Any]:
        try:
            event = json.loads(data)
        except ValueError:
            raise self._garbage(data) from None
        if not isinstance(event, dict):
            raise self._garbage(data)
        if event.get("error"):
            raise Unavailable(f"{self.url}: says: {self.clean(_message(event))}")
        return event

    def _lines(self, reply: httpx.Response, until: float) -> Iterator[str]:
        remaining, size, decode = "", 0, codecs.getincrementaldecoder("utf-8")("replace").decode
        for block in reply.iter_bytes():
            if time.monotonic() > until:
                raise self._slow()
            size += len(block)
            if size > LARGEST_ANSWER:
                raise Unavailable(f"{self.url}: answers more than {LARGEST_ANSWER >> 20} MiB; it is ended")
            *lines, remaining = (remaining + decode(block)).split("\n")
            yield from (line.strip() for line in lines)
        yield remaining.strip()

    def _beginning(self, reply: httpx.Response, until: float, most: int = 64 << 10) -> str:
        parts, size = [], 0
        for block in reply.iter_bytes():
            parts.append(block)
            size += len(block)
            if size > most or time.monotonic() > until:
                break
        return b"".join(parts).decode("utf-8", "replace")

    def _whole(self, kind: str, text: str) -> dict[str, Any]:
        """Return the answer of a server that does not stream, in the form of one that does."""
        if "html" in kind or text.lstrip()[:1] == "<":
            raise self._web_page()
        reply = self._object(text)
        choices = reply.get("choices")
        if not isinstance(choices, list):
            raise self._garbage(text)
        return {
            **reply,
            "choices": [{**choice, "delta": choice.get("message", {})} for choice in choices if isinstance(choice, dict)],
        }

    def _web_page(self) -> Unavailable:
        return Unavailable(
            f"{self.url}: answers a web page, not a chat completion; does model.url end with /v1, is a proxy between?"
        )

    def _garbage(self, text: str) -> Unavailable:
        return Unavailable(f"{self.url}: streams {self.clean(text)[:60]!r}, which is no chat completion; is it OpenAI-compatible?")

    def _slow(self) -> Unavailable:
        return Unavailable(
            f"{self.url}: no whole answer within {self.timeout_s:g} s (model.timeout_s); ask about less, or wait longer"
        )

    def _refused(self, reply: httpx.Response, text: str, name: str) -> NightshiftError:
        status, reason = reply.status_code, self.clean(_message(text))
        if status in (401, 403):
            with_key = "the key of model.key_file" if self.key else "a request without a key; set model.key_file"
            return ConfigError(f"{self.url}: refuses {with_key} (HTTP {status}): {reason}")
        if status == 404:
            return self._not_found(text, reason, name)
        if 300 <= status < 400:
            return ConfigError(
                f"{self.url}: sends on to {self.clean(reply.headers.get('location', '?'))}; set model.url to the right place"
            )
        if status in (429, 503):
            after = reply.headers.get("retry-after", "")
            when = f"try again in {after} s" if after.isdigit() else f"try again after {after[:40]}" if after else "try again later"
            return Unavailable(f"{self.url}: has too much to do (HTTP {status}); {when}: {reason}")
        if status in (400, 413, 422):
            long = any(
                word in text.lower() for word in ("context length", "context_length", "too long", "maximum context", "exceed")
            )
            if long or status == 413:
                return ModelError(f"{self.url}: refuses the request (HTTP {status}): {reason}; ask about less")
            return RefusedRequest(f"{self.url}: refuses the request (HTTP {status}): {reason}")
        if status in (500, 501) and any(word in text.lower() for word in ("schema", "grammar", "response_format", "tool_choice")):
            return RefusedRequest(f"{self.url}: refuses the request (HTTP {status}): {reason}")
        if "html" in reply.headers.get("content-type", "") and status < 500:
            return self._web_page()
        return Unavailable(f"{self.url}: answers HTTP {status}: {reason}")

    def _not_found(self, text: str, reason: str, name: str) -> NightshiftError:
        has = self.names()
        if has and name not in has:
            return ConfigError(f"{self.url}: has no model {name!r} (model.name); it has: {', '.join(has[:20])}")
        if "model" in text.lower() and "html" not in text.lower():
            return ConfigError(f"{self.url}: has no model {name!r} (model.name): {reason}")
        return ConfigError(f"{self.url}/chat/completions: does not exist there (HTTP 404); does model.url end with /v1?")


def _message(error: Any) -> str:
    """Return what an error says, in any of the forms in use."""
    if isinstance(error, str):
        try:
            error = json.loads(error)
        except ValueError:
            return "a web page" if error.lstrip()[:1] == "<" else error
    if isinstance(error, dict):
        inner = error.get("error", error.get("message", error.get("detail", error)))
        return str(inner.get("message", inner)) if isinstance(inner, dict) else str(inner)
    return str(error)


def _refused_key(payload: Mapping[str, Any], text: str) -> str | None:
    """Return the key of a request that a server says it does not know; None when it refuses something else."""
    if "max_completion_tokens" in text and "max_tokens" in payload:
        return "max_tokens"
    return next((key for key in ("stream_options", "temperature", "seed") if key in payload and key in text), None)


def _without(payload: Mapping[str, Any], key: str) -> dict[str, Any]:
    """Return the request without a key; the limit of an answer has a newer name instead."""
    less = {name: value for name, value in payload.items() if name != key}
    return {**less, "max_completion_tokens": payload[key]} if key == "max_tokens" and key in payload else less


_UNFINISHED_ALIAS = re.compile(r"(?:host|hos|ho|h|user|use|us|u|(?:host|user)-[0-9a-f]{0,64})\Z")
"""The end of a piece of text that may be the beginning of a stand-in."""
_UNMASKED_KEYS = frozenset({"model"})
"""Keys of a request whose value is for the endpoint itself."""


def is_here(url: str) -> bool:
    """Tell whether an endpoint runs on this machine."""
    host = urlsplit(url).hostname or ""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost" or host.endswith(".localhost")


def masked(value: Any, mask: Mask) -> Any:
    """Return a request with stand-ins for names in all of its texts, those of schemas and of earlier answers too."""
    if isinstance(value, str):
        return mask.hide(value)
    if isinstance(value, Mapping):
        return {key: item if key in _UNMASKED_KEYS else masked(item, mask) for key, item in value.items()}
    return [masked(item, mask) for item in value] if isinstance(value, (list, tuple)) else value


def unmasked(objects: Iterator[dict[str, Any]], mask: Mask) -> Iterator[dict[str, Any]]:
    """Yield the objects of a stream with names for stand-ins; one that arrives in pieces is held back until it is whole."""
    text, arguments = _AliasBuffer(mask), dict[int, _AliasBuffer]()
    last: dict[str, Any] = {}
    for event in objects:
        last = event
        choices = event.get("choices")
        first = choices[0] if isinstance(choices, list) and choices and isinstance(choices[0], dict) else None
        if first is not None and isinstance(first.get("delta"), dict):
            ends = bool(first.get("finish_reason"))
            delta = _delta(first["delta"], text, arguments, mask, ends=ends)
            yield {**event, "choices": [{**first, "delta": delta}]}
        else:
            yield event
    remaining = text.flush()
    if remaining:
        yield {**{key: value for key, value in last.items() if key != "usage"}, "choices": [{"delta": {"content": remaining}}]}


def _delta(
    delta: Mapping[str, Any], text: _AliasBuffer, arguments: dict[int, _AliasBuffer], mask: Mask, *, ends: bool
) -> dict[str, Any]:
    masked_delta = dict(delta)
    if isinstance(masked_delta.get("content"), str) or (ends and text.waits):
        piece = masked_delta.get("content") or ""
        masked_delta["content"] = text.take(piece) + (text.flush() if ends else "")
    calls = []
    for place, call in enumerate(masked_delta.get("tool_calls") or []):
        function = dict(call.get("function") or {})
        unmasker = arguments.setdefault(call.get("index", place), _AliasBuffer(mask))
        if isinstance(function.get("arguments"), str):
            function["arguments"] = unmasker.take(function["arguments"]) + (unmasker.flush() if ends else "")
        calls.append({**call, "function": function})
    if calls:
        masked_delta["tool_calls"] = calls
    return masked_delta


class _AliasBuffer:
    """Text that comes in pieces."""

    def __init__(self, mask: Mask) -> None:
        self._mask, self._pending = mask, ""

    @property
    def waits(self) -> bool:
        """Whether a piece of text is held back."""
        return bool(self._pending)

    def take(self, piece: str) -> str:
        """Return the text that cannot be the beginning of a stand-in any more."""
        whole = self._pending + piece
        match = _UNFINISHED_ALIAS.search(whole)
        cut = match.start() if match else len(whole)
        self._pending = whole[cut:]
        return self._mask.show(whole[:cut])

    def flush(self) -> str:
        """Return what was held back: nothing more comes."""
        remaining, self._pending = self._mask.show(self._pending), ""
        return remaining
