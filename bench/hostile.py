"""Cost of a hostile byte against an ordinary one: redaction, cutting and diagnosis of lines made to keep a machine busy.

The ordinary bytes are log lines of the shipped cases; each family repeats a text that detectors begin at. Ratios are of CPU time
a byte within this run. Limit: 3.
"""

from __future__ import annotations

import argparse
import math
import time
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory

from assistant.logs.lines import LONGEST_UNCUT, clean, cut_line
from assistant.redact import redact

DIAGNOSED_BYTES = 1 << 20
BLOCKS = {
    "tracebacks, each another": (
        'Traceback (most recent call last):\n  File "/a/b{0}.py", line {0}, in f{0}\n'
        '    raise ValueError("x{0}")\nValueError: x{0}\n'
    ),
    "errors, each another": "ERROR worker {0}: CUDA error {0}: an illegal memory access was encountered at /a/b{0}.cu:{0}\n",
    "exits, each another": "srun: error: node{0}: task {0}: Exited with exit code 1\n",
    "kernel lines, each another": "[{0}.5] NVRM: Xid (PCI:0000:{0}:00): 79, pid={0}, GPU has fallen off the bus.\n",
}
"""Blocks of lines that look like failures, numbered: thousands of places to be weighed."""
LIMIT = 3.0
ROUNDS = 6
FAMILIES = {
    "aaaa": "a",
    "a.a.": "a.",
    "hexadecimal": "0123456789abcdef",
    "brackets": "[",
    "nested": "[{(",
    "equals": "=",
    "quotes": "\"'",
    "digits": "7",
    "spaces": " ",
    "letters of other scripts": "é漢",
    "://": "://",
    "://a:b@": "://a:b@",
    "-----BEGIN": "-----BEGIN",
    "BEGIN PRIVATE KEY": "-----BEGIN PRIVATE KEY-----",
    "eyJ": "eyJ",
    "backslashes": "\\",
    "key=": "key=",
    "password=": "password=",
    "token ": "token ",
    "Bearer ": "Bearer ",
    "curl -u ": "curl -u ",
    "ghp_": "ghp_",
    "heroku ": "heroku x ",
    "twitter=": "twitter=",
    "JSON": '{"a": [1, 2, "x"], ',
    "short lines": "a\n",
    "a password is": "password is ",
    "echo |": "echo abcd | sudo ",
    "+ echo": "+ echo abcd\n",
    "colours": "\x1b[0m",
    "recovery codes": "recovery codes\n",
    "codes": "recovery codes\nab12-cd34\n",
    "table": "|password|x|\n",
    "rows": "user,password\na,b\n",
    "below a name": "│└ 'abcd'\n",
    "constructors": "key=Some(Some(",
    "lists": "password=['a', 'b', ",
    "joined strings": "password='x1!aaaa' + ",
    "elements": "<password>   ",
    "hyperlinks": "\x1b]8;;password=a1b2c3d4\x07",
    "wide colons": "password：",
    "escaped letters": "pass\\u0077ord=",
    "SQL": "insert into x(password) values ('a1!bcd'),",
    "COPY": "copy x(password) from stdin\n",
    "numbered rows": "  a token\n1 b c\n",
    "here string": "kinit <<< ",
    "file of a secret": "echo a > key ",
    "client": "client('a', ",
    "mixed": "aB3",
    "wrapped": "aB3xY7qQ9\n",
    "wrapped at 40": "aB3xY7qQ9kL2mN5pR8tV1wZ4cF6hJ0dGsX3bY7eU\n",
}
NAMES = (
    "password pass passwd pwd psk pat secret signature sig sas session salt token otp auth api_key key credentials cookie "
    "community csrf bearer jwt webhook mnemonic hmac license dsn"
).split()
SEPARATORS = (
    ":",
    "=",
    ": ",
    "= ",
    " ",
    ">",
    "->",
    " is ",
    ".x:",
    " x:",
    "(",
    "['",
    "=a,",
    "=[",
    "=Some(",
    "=&a ",
    "=Ab1&",
    "=\n",
    ":\n",
    "='",
    '\\": \\"',
)
"""What stands behind a name of a secret: each name by each way to write a value behind it."""


def main() -> int:
    """Print a line for each family and return 1 when one costs more than the limit."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bytes", type=int, default=64_000, help="length of the line of each family")
    parser.add_argument("--log", type=Path, help="ordinary lines; those of the shipped cases when left out")
    options = parser.parse_args()
    ordinary = _ordinary(options.log, options.bytes)
    base = _cost(_through_line, ordinary)
    raw = _cost(redact, ordinary)
    print(f"ordinary bytes: {base * 1e9:.0f} ns through cut and redaction, {raw * 1e9:.0f} ns in redaction alone")
    worst = 0.0
    for name, piece in FAMILIES.items():
        text = (piece * (options.bytes // len(piece) + 1))[: options.bytes]
        cut, alone, longer = _cost(_through_line, text) / base, _cost(redact, text) / raw, _cost(redact, text * 4) / raw
        worst = max(worst, cut)
        print(f"{name:26} as a line of a log {cut:5.2f}x   redaction alone {alone:5.2f}x, four times as long {longer:5.2f}x a byte")
    names = _names_ratio(ordinary)
    print(f"worst as a line of a log: {max(worst, names):.2f}x (limit {LIMIT:.0f}x)")
    return int(max(worst, names, _matching(options.log)) > LIMIT)


def _names_ratio(ordinary: str) -> float:
    """Print the dearest names of secrets, again and again, as a line of a log; return the worst ratio to ordinary bytes."""
    size = len(ordinary)
    texts = {piece: (piece * (size // len(piece) + 1))[:size] for piece in (name + end for name in NAMES for end in SEPARATORS)}
    costs = {piece: _cost(_through_line, text, 1) for piece, text in texts.items()}
    dearest = sorted(costs, key=lambda piece: costs[piece], reverse=True)[:12]
    base, least = math.inf, dict.fromkeys(dearest, math.inf)
    for _ in range(ROUNDS):  # in turns with ordinary bytes: a shared machine has fast and slow seconds
        base = min(base, _cost(_through_line, ordinary, 1))
        least = {piece: min(cost, _cost(_through_line, texts[piece], 1)) for piece, cost in least.items()}
    ratios = {piece: cost / base for piece, cost in least.items()}
    print(f"of {len(texts)} names and separators: " + ", ".join(f"{ratio:.2f}x {piece!r}" for piece, ratio in ratios.items()))
    return max(ratios.values())


def _matching(log: Path | None) -> float:
    """Print what whole logs cost in a diagnosis without opinions: scan, signatures, filters, facts; return the worst ratio."""
    from assistant.diagnose.case import Case
    from assistant.diagnose.knowledge import Knowledge
    from assistant.diagnose.verdict import diagnose

    knowledge = Knowledge.load()
    worst = base = 0.0
    with TemporaryDirectory() as folder:
        for name, piece in {"": "", **FAMILIES, **dict.fromkeys(BLOCKS, "")}.items():
            if name in BLOCKS:
                count = DIAGNOSED_BYTES // len(BLOCKS[name].format(0).encode())
                text = "".join(BLOCKS[name].format(number) for number in range(count))
            elif name:
                line = ((piece * (LONGEST_UNCUT // len(piece) + 1))[:LONGEST_UNCUT]).rstrip("\n") + "\n"
                text = line * (DIAGNOSED_BYTES // len(line.encode()))
            else:
                text = _ordinary(log, DIAGNOSED_BYTES)
            # every log fails in the same way, so that each is diagnosed to its end
            path = Path(folder) / "job.log"
            path.write_text(text + "\nRuntimeError: CUDA error: an illegal memory access was encountered\n", encoding="utf-8")
            cost = _cost(lambda _text: diagnose(Case("hostile", Path(folder) / "job.log"), knowledge), text, 1)
            base = base or cost
            worst = max(worst, cost / base)
            print(f"{name or 'ordinary bytes':26} diagnosed {cost / base:5.2f}x ({cost * 1e9:.0f} ns a byte)")
    print(f"worst in a diagnosis: {worst:.2f}x (limit {LIMIT:.0f}x)")
    return worst


def _through_line(text: str) -> str:
    """Do with a text what is done with lines of a log: cut, clean, redact."""
    return redact("\n".join(clean(cut_line(line)) for line in text.encode().split(b"\n")))


def _cost(work: Callable[[str], object], text: str, rounds: int = 3) -> float:
    """Return seconds of CPU a byte, the best of some rounds."""
    size = len(text.encode())
    times = []
    for _ in range(rounds):
        start = time.process_time()
        work(text)
        times.append(time.process_time() - start)
    return min(times) / size


def _ordinary(log: Path | None, size: int) -> str:
    paths = [log] if log is not None else sorted(Path("tests/cases").rglob("*.log"))
    return "".join(path.read_text(encoding="utf-8", errors="replace") for path in paths[:200])[:size]


if __name__ == "__main__":
    raise SystemExit(main())
