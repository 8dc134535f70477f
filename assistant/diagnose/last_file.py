"""Name the file that a loader was at where its error names none: the last one that the log says it reads."""

from __future__ import annotations

import re
from dataclasses import replace

from assistant.diagnose.facts import Facts
from assistant.records import Citation, Diagnosis

LOOK_BACK = 2_000
"""Lines before the error: a large shard lasts for many steps."""
MOST_OF_LINE = 600
_FILE = r"(?P<path>[\w.@+=~-]{0,120}(?:/[\w.@+=~-]{1,160}){1,30}|[\w.@+=-]{1,160}\.(?:%s)(?:\.(?:gz|zst|xz|bz2))?)"
_DATA = "bin|idx|jsonl?|parquet|arrow|tar|csv|tsv|txt|npy|npz|h5|hdf5|tfrecords?|mds|lmdb|pkl|zst|gz"
_WEIGHTS = "pt|pth|bin|safetensors|ckpt|distcp|npz|pkl|h5|msgpack"
_READS = r"\b(?:load|open|read|pars|decod|unpack|stream|iterat|map|restor|resum)(?:s|ing|ed|e)?\b[^\n]{0,60}?[\s'\"=:(]"
_ENDING = re.compile(rf"\.(?:{_DATA}|{_WEIGHTS})$", re.IGNORECASE)
_BY_REASON = {
    "dataset_loading_error": re.compile(_READS + _FILE % _DATA, re.IGNORECASE),
    "model_loading_error": re.compile(_READS + _FILE % _WEIGHTS, re.IGNORECASE),
}
_CHECKPOINT = re.compile(r"check-?point|\bckpt\b|weights|resum|restor", re.IGNORECASE)
_REMOTE = re.compile(r"https?:|Client Error|Server Error|\bHub\b|HubHTTP|Repo(?:sitory)?\b|RepoError", re.IGNORECASE)
_OF_A_RUN = re.compile(r"check-?point|ckpt|step|iter|epoch|shard|part-", re.IGNORECASE)
_HAS_PATH = re.compile(r"['\"\s=(](?:[\w.@+~-]+)?/[\w.@+=~-]+|\w\.(?:bin|jsonl?|parquet|arrow|tar|safetensors|pt|ckpt|npy)\b")


def with_last_file(found: Diagnosis, facts: Facts) -> Diagnosis:
    """Return a diagnosis of a loader's error that names the last file that the log says it read; as it is where the error does."""
    pattern = _BY_REASON.get(found.reason)
    cited = next((one for one in found.root_cause if one.file == "job.log"), None)
    if pattern is None or cited is None or any(_HAS_PATH.search(one.text) or _REMOTE.search(one.text) for one in found.root_cause):
        return found
    named = _last_named(cited, found.reason, pattern, facts)
    if named is None:
        return found
    path, line = named
    name, number = facts.combined.place(line) if facts.combined is not None else ("", line)
    said = f"The last file that the log says it read is {path} ({name or 'job.log'}:{number})."
    return replace(found, summary=f"{found.summary} {said}", advice=f"{found.advice} {said}")


def _last_named(cited: Citation, reason: str, pattern: re.Pattern[str], facts: Facts) -> tuple[str, int] | None:
    episode = next((one for one in facts.episodes if one.first <= cited.line <= one.last), None)
    before = episode.first if episode is not None else cited.line
    stream = facts.streams.body(cited.text).stream
    for line in reversed(facts.between(max(1, before - LOOK_BACK), before - 1)):
        body = facts.streams.body(line.text[:MOST_OF_LINE])
        of_weights = _CHECKPOINT.search(body.text) is not None
        if body.stream != stream or (reason == "dataset_loading_error" and of_weights):
            continue
        match = pattern.search(body.text)
        if match is not None and _is_file(path := match["path"].rstrip(".")):
            return path, line.number
    return None


def _is_file(path: str) -> bool:
    """Tell a path from a count (`16/30`) and from the name of a repository (`org/model`)."""
    if not any(character.isalpha() for character in path):
        return False
    repository = path.count("/") == 1 and not path.startswith(("/", ".", "~"))
    name = path.rpartition("/")[2]
    return not repository or _ENDING.search(name) is not None or _OF_A_RUN.search(name) is not None
