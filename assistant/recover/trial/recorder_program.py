"""Write down what a command would ask of Slurm, and answer as if it was done: sbatch, srun and the like inside a trial's sandbox.

It travels as text, so it imports nothing but the standard library and runs on Python 3.6. It asks nobody and starts nothing. A
submission gets an id that no cluster gives so soon; who asks for jobs is told that there are none.
"""

# What a newer Python would write does not run on the nodes' 3.6.
# ruff: noqa: T201, PTH104, PTH109, PTH116, PTH119, PTH123, PTH208, UP006, UP035

import json
import os
import stat
import sys
import tempfile
import time
from typing import List

FOLDER = "@FOLDER@"
"""Where it writes: the sandbox puts its own folder here."""
JOB_ID = "67043327"
MOST_RECORDS = 16
MOST_TEXT = 256 * 1024
MOST_VARIABLE = 4096


def text_of(path: str) -> str:
    """Return the text of a small regular file; empty for anything else."""
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            return ""
        with open(path, errors="replace") as file:
            return file.read(MOST_TEXT)
    except OSError:
        return ""


def record(name: str, words: List[str]) -> None:
    """Write down what was asked."""
    if len([entry for entry in os.listdir(FOLDER) if entry.startswith("record-")]) >= MOST_RECORDS:
        return
    texts = {}  # type: dict[str, str]
    for word in words if name == "sbatch" else []:
        if len(texts) < 2 and text_of(word):
            texts[word] = text_of(word)
    script = sys.stdin.read(MOST_TEXT) if name == "sbatch" and not texts and not sys.stdin.isatty() else ""
    value = {
        "name": name, "words": words, "folder": os.getcwd(), "texts": texts, "stdin": script, "at": time.time(),
        "environment": {key: text for key, text in os.environ.items() if len(text) <= MOST_VARIABLE},
    }  # fmt: skip
    number, path = tempfile.mkstemp(prefix="record-", dir=FOLDER)
    with os.fdopen(number, "w") as file:
        json.dump(value, file)
    os.rename(path, path + ".json")


def main(name: str, words: List[str]) -> int:
    """Record a call and return its exit status."""
    record(name, words)
    if name == "sbatch":
        print(JOB_ID if "--parsable" in words else "Submitted batch job " + JOB_ID)
    return 1 if name == "scontrol" else 0


if __name__ == "__main__":
    sys.exit(main(os.path.basename(sys.argv[0]), sys.argv[1:]))
