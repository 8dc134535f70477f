"""Find the URL that a refused path came from: `file://tmp/a` names a host `tmp` and the path `/a`, and not the file `/tmp/a`.

Programs that take a file by URL (rendezvous of torch.distributed, MLflow, SQLAlchemy, Spark) drop the host without a word, and then
complain of a path that nobody wrote.
"""

from __future__ import annotations

import re

from assistant.diagnose.facts import Facts
from assistant.diagnose.readers.origin import message_of
from assistant.records import Citation

_TROUBLE = re.compile(r"Permission denied|No such file or directory|Read-only file system|[Uu]nable to open|[Cc]annot open")
_PATH = re.compile(r"(?<![\w./:-])(/[\w.@+=~-]{1,120}(?:/[\w.@+=~-]{1,120}){0,20})")
_URL = re.compile(
    r"\b(?P<scheme>file|sqlite|duckdb)://(?P<host>[A-Za-z][\w.-]{0,60})(?P<path>/[\w.@+=~-]{1,120}(?:/[\w.@+=~-]{1,120}){0,20})"
)
"""A URL with a host where its writer meant the first folder."""
_LOCAL = frozenset({"localhost"})
MOST_AROUND, MOST_OF_LINE = 60, 600


def url_account(cited: Citation, facts: Facts) -> str:
    """Return what to write in place of the URL that a refused path came from; empty where the path came from none."""
    text = " ".join(message_of(cited, facts)[:4])
    if cited.file != "job.log" or not _TROUBLE.search(text):
        return ""
    paths = {match[1].rstrip(".") for match in _PATH.finditer(text)}
    for line in reversed(facts.between(max(1, cited.line - MOST_AROUND), cited.line + MOST_AROUND)):
        for match in _URL.finditer(line.text[:MOST_OF_LINE]):
            if match["path"] in paths and match["host"] not in _LOCAL:
                slashes = "///" if match["scheme"] == "file" else "////"
                written, corrected = match[0], f"{match['scheme']}:{slashes}{match['host']}{match['path']}"
                return (
                    f"The path {match['path']} comes from {written} (job.log:{line.number}), which names a host {match['host']} "
                    f"and not a folder: write {corrected}, in a folder that the account may write. No right has to be changed."
                )
    return ""
