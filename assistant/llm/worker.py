"""The process that holds a GGUF model: reads one JSON object a line, answers with some. `process` starts it and ends it.

It is a process of its own because llama.cpp ends its process on a broken file, a broken grammar or too little memory; then only
this one ends; so a grammar is checked first (`check_grammar`). What it answers carries the number of the request: `piece` (text),
then `done`; or `error` with its kind.
"""

from __future__ import annotations

import json
import os
import queue
import re
import signal
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from assistant.errors import ModelError
from assistant.llm.grammar import LARGEST_REPEAT

Messages = Sequence[Mapping[str, str]]

LEAST_ANSWER = 64
"""Tokens that must be left for an answer; one that ends for want of more says that it was cut."""
KINDS = ("room", "grammar", "template", "load", "missing", "bad")
"""What an error is about: no room for the text, a grammar, the chat template, the file, llama_cpp itself, the request."""


class _Refused(Exception):
    """The request cannot be met; the process goes on."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(why)
        self.kind = kind


class ServedModel:
    """A loaded model."""

    def __init__(self, path: str, context: int, threads: int) -> None:
        try:
            import llama_cpp
        except (ImportError, OSError, RuntimeError) as error:
            raise _Refused("missing", str(error)) from error
        self.cpp = llama_cpp
        try:
            self.model = llama_cpp.Llama(path, n_ctx=context, n_threads=threads, n_threads_batch=threads, verbose=False)
        except (ValueError, OSError, RuntimeError) as error:
            raise _Refused("load", str(error)) from error
        self.room = self.model.n_ctx()
        self.vocab = llama_cpp.llama_model_get_vocab(self.model.model)
        self.marks = self._marks()
        self.stopped = False
        """Set by the signal with which the other side ends an answer early."""

    def _marks(self) -> re.Pattern[str] | None:
        """Return what matches the texts of the vocabulary that steer the model: they must never come from a message."""
        cpp, steering = self.cpp, set()
        for token in range(cpp.llama_vocab_n_tokens(self.vocab)):
            attributes = cpp.llama_vocab_get_attr(self.vocab, token)
            if attributes & (cpp.LLAMA_TOKEN_ATTR_CONTROL | cpp.LLAMA_TOKEN_ATTR_USER_DEFINED):
                text = (cpp.llama_vocab_get_text(self.vocab, token) or b"").decode("utf-8", "replace")
                if len(text) > 2 and not text.isalnum() and not text.isspace():
                    steering.add(text)
        return re.compile("|".join(map(re.escape, sorted(steering, key=len, reverse=True)))) if steering else None

    def prompt(self, messages: Messages) -> str:
        """Return the text that the model's own template makes of messages."""
        from llama_cpp.llama_chat_format import Jinja2ChatFormatter

        template = self.model.metadata.get("tokenizer.chat_template")
        if not template:
            raise _Refused(
                "template", "the file has no chat template: it goes on with text and does not answer; take its instruct variant"
            )
        formatter = Jinja2ChatFormatter(
            template, eos_token=self._text(self.model.token_eos()), bos_token=self._text(self.model.token_bos())
        )
        cleaned = [{"role": message["role"], "content": self.harmless(message["content"])} for message in messages]
        why: Exception | None = None
        for tried in (joined(cleaned), joined(without_system(cleaned))):
            try:
                return str(formatter(messages=tried).prompt)  # type: ignore[arg-type]
            except Exception as error:  # noqa: BLE001 - a template is a program of somebody else and may raise anything
                why = error
        raise _Refused("template", f"the file's chat template does not take these messages: {why}")

    def harmless(self, text: str) -> str:
        """Return text in which nothing is a mark of the model's own: `<|im_start|>` in a log must not begin a message."""
        return self.marks.sub(lambda match: f"{match[0][0]} {match[0][1:]}", text) if self.marks else text

    def _text(self, token: int) -> str:
        return "" if token < 0 else self.model._model.token_get_text(token)

    def tokens(self, messages: Messages, opening: str) -> list[int]:
        """Return what the model is given."""
        prompt = self.prompt(messages)
        if prompt.rstrip().endswith("<think>"):
            # the grammar leaves no room for thinking: it is over before it began
            opening = "\n</think>\n\n"
        prompt += opening
        first = self._text(self.model.token_bos())
        begins = bool(first) and prompt.startswith(first)
        return list(self.model.tokenize(prompt.encode("utf-8", "replace"), add_bos=not begins, special=True))

    def grammar(self, gbnf: str) -> Any:
        """Return a grammar that llama.cpp has read once already: it ends the process on one that it cannot read."""
        try:
            check_grammar(gbnf)
        except ModelError as error:
            raise _Refused("grammar", str(error)) from error
        sampler = self.cpp.llama_sampler_init_grammar(self.vocab, gbnf.encode(), b"root")
        if not sampler:
            raise _Refused("grammar", "llama.cpp cannot read the grammar")
        self.cpp.llama_sampler_free(sampler)
        from llama_cpp.llama_grammar import LlamaGrammar

        return LlamaGrammar(_grammar=gbnf)

    def answer(self, request: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
        """Yield the pieces of an answer, then what it took."""
        began, most = time.monotonic(), int(request["max_tokens"])
        tokens = self.tokens(request["messages"], request.get("opening", ""))
        if len(tokens) + min(most, LEAST_ANSWER) > self.room:
            raise _Refused(
                "room", f"{len(tokens):,} tokens in the messages and {most:,} for the answer, the model has room for {self.room:,}"
            )
        most = min(most, self.room - len(tokens))
        grammar = self.grammar(request["gbnf"]) if request.get("gbnf") else None
        cached_count = _shared(tokens, self.model._input_ids)
        finish, count, self.stopped = "stop", 0, False
        for part in self.model.create_completion(
            tokens,
            max_tokens=most,
            temperature=float(request.get("temperature", 0.0)),
            seed=int(request.get("seed", 0)),
            stop=list(request.get("stop", ())),
            grammar=grammar,
            stream=True,
        ):
            choice: Any = part["choices"][0]  # type: ignore[index]
            finish = choice["finish_reason"] or finish
            if choice["text"]:
                count += 1
                yield {"piece": choice["text"]}
            late = time.monotonic() - began > float(request["timeout_s"])
            if (self.stopped or late) and not choice["finish_reason"]:
                finish = "cancelled" if self.stopped else "timeout"
                break
        produced = max(count, self.model.n_tokens - len(tokens))
        took = {"input_tokens": len(tokens), "output_tokens": produced, "cached_tokens": cached_count, "limit": most}
        yield {"done": {"finish": finish, **took}}


def joined(messages: Messages) -> list[dict[str, str]]:
    """Return messages with neighbours of one role made one: many templates want the roles in turn."""
    together: list[dict[str, str]] = []
    for message in messages:
        if together and together[-1]["role"] == message["role"]:
            together[-1]["content"] += "\n\n" + message["content"]
        else:
            together.append(dict(message))
    return together


def without_system(messages: Messages) -> list[dict[str, str]]:
    """Return messages in which the user says what the system said, for models without that role."""
    return [
        {"role": "user" if message["role"] == "system" else message["role"], "content": message["content"]} for message in messages
    ]


def _shared(tokens: Sequence[int], before: Any) -> int:
    count = 0
    for token, earlier_token in zip(tokens, before, strict=False):
        if token != earlier_token:
            break
        count += 1
    return count


def _quieten() -> Any:
    """Keep standard output for answers: what libraries print goes to standard error."""
    answers = os.fdopen(os.dup(1), "w", encoding="utf-8")
    os.dup2(2, 1)
    return answers


def _first_to_go() -> None:
    """Let the kernel end this process, not the daemon, when memory runs out."""
    try:
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as file:  # noqa: PTH123
            file.write("800")
    except OSError:
        return


def serve(requests: Iterator[str], say: Any) -> None:
    """Answer requests until there are none; the first one loads the model."""
    served: ServedModel | None = None

    def stop(*_: object) -> None:
        if served is not None:
            served.stopped = True

    signal.signal(signal.SIGUSR1, stop)
    for line in requests:
        request = json.loads(line)
        number = request["id"]
        try:
            if request["do"] == "load":
                served = ServedModel(request["path"], request["context"], request["threads"])
                say({"id": number, "done": {"room": served.room, "pid": os.getpid()}})
            elif served is None:
                raise _Refused("bad", "no model is loaded")
            else:
                for part in served.answer(request):
                    say({"id": number, **part})
        except _Refused as error:
            say({"id": number, "error": str(error), "kind": error.kind})


def _requests() -> Iterator[str]:
    """Yield requests as they come; when the other side is gone, however it went, this process ends in mid-answer."""
    waiting: queue.SimpleQueue[str] = queue.SimpleQueue()

    def listen() -> None:
        for line in iter(sys.stdin.readline, ""):
            waiting.put(line)
        # nobody is left to answer: a long prompt must not be read to its end for that
        os._exit(0)

    threading.Thread(target=listen, name="requests", daemon=True).start()
    while True:
        yield waiting.get()


def main() -> None:
    """Be the process."""
    answers = _quieten()
    _first_to_go()

    def say(answer: Mapping[str, Any]) -> None:
        answers.write(json.dumps(answer) + "\n")
        answers.flush()

    try:
        serve(_requests(), say)
    except (BrokenPipeError, KeyboardInterrupt):
        # the other side is gone: there is nobody to answer
        os._exit(1)


LARGEST = 400_000
"""Characters of a grammar."""


MOST_EXPANDED = 30_000
"""Rules that llama.cpp makes of all counts together."""


DEEPEST = 200


_RULE = re.compile(r"([a-z][a-z0-9-]*) ::= (.*)")


_ESCAPE = r"\\(?:x[0-9A-F]{2}|u[0-9A-F]{4}|U[0-9A-F]{8})"


_ITEM = re.compile(
    rf'(?:(?P<text>"(?:[^"\\\x00-\x1f]|{_ESCAPE})*")|(?P<chars>\[(?:[a-zA-Z0-9]|{_ESCAPE})(?:-?(?:[a-zA-Z0-9]|{_ESCAPE}))*\])|(?P<name>[a-z][a-z0-9-]*))'
    r"(?P<count>[?*+]|\{(?P<least>\d{1,4})(?P<to>,(?P<most>\d{1,4})?)?\})?(?= |$)"
)


class _Item(NamedTuple):
    name: str
    """Of a rule; empty for a text or characters."""
    empty: bool
    """Whether it may be nothing."""
    repeated: bool


def check_grammar(gbnf: str) -> None:
    """Let a grammar pass.

    Raises:
        ModelError: llama.cpp might not survive it, or would take too long; the message has the rule.
    """
    if len(gbnf) > LARGEST:
        raise _unsafe("root", f"it has {len(gbnf):,} characters, {LARGEST:,} are the limit")
    rules: dict[str, list[list[_Item]]] = {}
    expanded = 0
    for line in gbnf.splitlines():
        match = _RULE.fullmatch(line)
        if match is None or match[1] in rules:
            raise _unsafe(line[:40], "it is no rule, or there are two of its name")
        options, grown = _options(match[1], match[2])
        rules[match[1]] = options
        expanded += grown
        if expanded > MOST_EXPANDED:
            raise _unsafe(match[1], f"its counts add up to more than {MOST_EXPANDED:,} rules")
    if "root" not in rules:
        raise _unsafe("root", "there is no rule of that name")
    _walk(rules)


def _unsafe(rule: str, why: str) -> ModelError:
    return ModelError(f"a grammar was wanted for llama.cpp; its rule {rule!r} is refused: {why}")


def _options(rule: str, body: str) -> tuple[list[list[_Item]], int]:
    options: list[list[_Item]] = [[]]
    at, expanded = 0, 1
    while at < len(body):
        if body.startswith("| ", at):
            options.append([])
            at += 2
            continue
        match = _ITEM.match(body, at)
        if match is None:
            raise _unsafe(rule, f"{body[at : at + 20]!r} is not in the form that is known to be safe")
        least, most = _counts(match)
        if least > most or most > LARGEST_REPEAT:
            raise _unsafe(rule, f"it counts from {least} to {most}; llama.cpp counts to {LARGEST_REPEAT}")
        expanded += max(least, most, 1)
        options[-1].append(_Item(match["name"] or "", match["text"] == '""' or not least, bool(match["count"])))
        at = match.end() + 1
    if [] in options:
        raise _unsafe(rule, "one of its options is missing")
    return options, expanded


def _counts(match: re.Match[str]) -> tuple[int, int]:
    count = match["count"]
    if not count:
        return 1, 1
    if count in "?*+":
        return int(count == "+"), 1
    least = int(match["least"])
    return least, int(match["most"]) if match["most"] else max(least, 1) if match["to"] else least


def _walk(rules: dict[str, list[list[_Item]]]) -> None:
    """Go down from each rule: names exist, no rule reaches itself, nothing empty is repeated."""
    empty: dict[str, bool] = {}
    open_rules: dict[str, None] = {}

    def visit(name: str) -> bool:
        if name in empty:
            return empty[name]
        if name in open_rules:
            raise _unsafe(name, "it reaches itself")
        if name not in rules:
            raise _unsafe(name, "it is used, but there is no rule of that name")
        if len(open_rules) > DEEPEST:
            raise _unsafe(name, f"rules are nested deeper than {DEEPEST}")
        open_rules[name] = None
        maybe = [[_empty(name, item) for item in option] for option in rules[name]]
        del open_rules[name]
        empty[name] = any(all(option) for option in maybe)
        return empty[name]

    def _empty(rule: str, item: _Item) -> bool:
        inner = visit(item.name) if item.name else False
        if inner and item.repeated:
            raise _unsafe(rule, f"it repeats {item.name!r}, which may be nothing")
        return item.empty or inner

    for name in rules:
        visit(name)


if __name__ == "__main__":
    main()
