"""Sizes that give a damaged checkpoint away: empty files, and files smaller than their sisters of this or the previous step."""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Mapping, Sequence

from assistant.recover.checkpoints.bundles import bundle_prefix
from assistant.recover.checkpoints.dcp import named
from assistant.recover.checkpoints.layout import Entry

SHRUNK_SHARE = 0.9
"""A file smaller than this share of the one of the step before is suspicious; optimiser state never shrinks in a run."""
SISTER_SHARE = 0.5
"""The same against the median of the shards beside it, which differ more: a last pipeline stage holds other layers."""
IGNORED_BYTES = 4096
"""Differences below this are those of small pickles and JSON."""
GROWS = re.compile(r"\.(?:json|jsonl|txt|log)$")
"""Files that grow with the run: `trainer_state.json` holds its history, so an early one is smaller. JSON is parsed instead."""
MARKERS = re.compile(
    r"\.step$|(?:^|/|[._-])(?:done|completed?|success|finished|ready|ok|committed|saved|uploaded|synced)(?:\.(?:txt|marker|flag))?$"
    r"|(?:^|/)__init__\.py$|-unfinished$|\.lock$",
    re.IGNORECASE,
)
"""Files that say by being there, and hold nothing: `DONE`, `_SUCCESS`, `.complete`, `weights.ok`."""


DESCRIPTIONS = re.compile(
    r"\.(?:json|jsonl|txt|md|jinja|ya?ml|model|log|py)$|(?:^|/)(?:_METADATA|_CHECKPOINT_METADATA|_sharding|\.z\w+)$|(?:^|/)array_metadatas/"
)
"""Files that describe a checkpoint and hold none of its state: where one is needed, the check of the format asks for it."""


def size_problems(entry: Entry, others: Sequence[Entry]) -> list[str]:
    """Return the files of a checkpoint whose size speaks against it.

    Args:
        entry: The checkpoint.
        others: All checkpoints of the same folder, to compare with; it may be among them.
    """
    # of a shard without a tensor TensorFlow leaves an empty file, and its index says which
    indexed = {name for name in entry.files if bundle_prefix(name.rpartition("/")[2])}
    empty = [name for name, stat in entry.files.items() if stat.size == 0 and name not in indexed and not MARKERS.search(name)]
    problems = [f"holds empty files: {named(empty)}"] if empty else []
    normal = _usual_sizes(entry, others)
    small = [
        name
        for name, stat in entry.files.items()
        if stat.size and not GROWS.search(name) and _shrunk(stat.size, normal.get(role(entry, name)))
    ]
    if small:
        name = small[0]
        usual = normal[role(entry, name)]
        about = f"{name} has {entry.files[name].size:,} bytes, in other steps {usual:,}"
        problems.append(about + (f", and {len(small) - 1} more files are smaller" if len(small) > 1 else ""))
    if not normal:
        problems += _odd_sisters(entry)
    return problems


def role(entry: Entry, name: str) -> str:
    """Return the name of a file without the step, so that it is the same in each checkpoint."""
    return re.sub(rf"(?<!\d)0*{entry.step}(?!\d)", "#", name) if entry.step else name


def _usual_sizes(entry: Entry, others: Sequence[Entry]) -> Mapping[str, int]:
    """Return the median size of each file over the other checkpoints of this format."""
    sizes: dict[str, list[int]] = defaultdict(list)
    for other in others:
        if other.path == entry.path or other.format is not entry.format or other.temporary:
            continue
        for name, stat in other.files.items():
            if stat.size:
                sizes[role(other, name)].append(stat.size)
    # median_high: of two, the larger one; a second cut checkpoint must not make the first look normal
    return {name: statistics.median_high(found) for name, found in sizes.items()}


def _shrunk(size: int, usual: int | None) -> bool:
    return usual is not None and size < usual * SHRUNK_SHARE and usual - size > IGNORED_BYTES


def _odd_sisters(entry: Entry) -> list[str]:
    """Compare shards among themselves, for a checkpoint that is the only one."""
    groups: dict[str, list[str]] = defaultdict(list)
    for name, stat in entry.files.items():
        if stat.size:
            groups[re.sub(r"\d+", "#", name)].append(name)
    problems = []
    for names in groups.values():
        if len(names) < 3 or names[0].endswith(".json"):
            continue
        usual = int(statistics.median(entry.files[name].size for name in names))
        odd = [n for n in names if entry.files[n].size < usual * SISTER_SHARE and usual - entry.files[n].size > IGNORED_BYTES]
        if odd and len(odd) * 4 <= len(names):
            problems.append(f"{odd[0]} has {entry.files[odd[0]].size:,} bytes, its sister shards about {usual:,}")
    return problems


def shard_count_problem(entry: Entry, others: Sequence[Entry]) -> list[str]:
    """Return a problem when a checkpoint has fewer data files than others of its format.

    It has one when each of at least two others has more, or when most others have more and none has just these: two saves that
    were cut short do not excuse each other, a run that went on with fewer ranks does. Descriptions (JSON, text, tokenizers) are not
    counted, and checkpoints that list their own shards are not compared.
    """
    if any(name == ".metadata" or name.endswith("/.metadata") for name in entry.files):
        return []
    own = _data_files(entry)
    alike = [_data_files(o) for o in others if o.format is entry.format and o.path != entry.path and not o.temporary]
    more = [len(names) for names in alike if len(names) > len(own)]
    if len(more) >= 2 and len(more) == len(alike):
        return [f"has {len(own)} data files, every other checkpoint has at least {min(more)}"]
    if len(more) >= 2 and 2 * len(more) > len(alike) and own not in alike:
        return [f"has {len(own)} data files, most other checkpoints have at least {min(more)}"]
    return []


def _data_files(entry: Entry) -> frozenset[str]:
    """Return the names of a checkpoint's data files without its step."""
    return frozenset(name.replace(str(entry.step), "") for name in entry.files if not DESCRIPTIONS.search(name))
