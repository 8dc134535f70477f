"""Whether a checkpoint is complete: markers, shards against their own numbering, sizes and the manifest.

Sizes give a damaged checkpoint away: empty files, and files smaller than their sisters of this or the previous step. The manifest
of `assistant.training`, written last, says which files there must be, of which size and checksum.
"""

from __future__ import annotations

import re
import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from assistant.recover.checkpoints.arrays import dcp_problems, named
from assistant.recover.checkpoints.bundles import bundle_prefix, bundle_problems
from assistant.recover.checkpoints.entry import Entry, Format
from assistant.recover.checkpoints.files import crc32_of
from assistant.recover.checkpoints.layout import DISTCP, RANK_WORD, UNKNOWN_STEP, step_in_name
from assistant.untrusted import is_folder, is_regular, open_regular, read_json, whole_number

SHRUNK_SHARE = 0.9
"""A file smaller than this share of the one of the step before is suspicious; optimiser state never shrinks in a run."""
SISTER_SHARE = 0.5
"""The same against the median of the shards beside it, which differ more: a last pipeline stage holds other layers."""
IGNORED_BYTES = 4096
"""Differences below this are those of small pickles and JSON."""
GROWS = re.compile(r"\.(?:json|jsonl|txt|log)$")
"""Files that grow with the run: `trainer_state.json` holds its history, so an early one is smaller. JSON is parsed instead."""
MARKERS = re.compile(
    r"\.step$|(?:^|/|[._-])(?:done|completed?|success|finished|ready|ok|committed|saved|uploaded|synced)"
    r"(?:[._-]{0,2}(?:rank|step|part|shard|node|task|r|p)?[._-]?\d{1,12}){0,4}(?:\.(?:txt|marker|flag))?$"
    r"|(?:^|/)__init__\.py$|-unfinished$|\.lock$",
    re.IGNORECASE,
)
"""Files that say by being there, and hold nothing: `DONE`, `_SUCCESS`, `.complete`, `weights.ok`, `.ok-12-0-1`, `done_rank3`."""


DESCRIPTIONS = re.compile(
    r"\.(?:json|jsonl|txt|md|jinja|ya?ml|model|log|py)$|(?:^|/)(?:_METADATA|_CHECKPOINT_METADATA|_sharding|\.z\w+)$|(?:^|/)array_metadatas/"
)
"""Files that describe a checkpoint and hold none of its state: where one is needed, the check of the format asks for it."""


def size_problems(entry: Entry, sisters: Sequence[Entry]) -> list[str]:
    """Return the files of a checkpoint whose size speaks against it.

    Args:
        entry: The checkpoint.
        sisters: All checkpoints of the same folder, to compare with; it may be among them.
    """
    # of a shard without a tensor TensorFlow leaves an empty file, and its index says which
    indexed = {name for name in entry.files if bundle_prefix(name.rpartition("/")[2])}
    empty = [name for name, stat in entry.files.items() if stat.size == 0 and name not in indexed and not MARKERS.search(name)]
    problems = [f"holds empty files: {named(empty)}"] if empty else []
    normal = _usual_sizes(entry, sisters)
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


def _usual_sizes(entry: Entry, sisters: Sequence[Entry]) -> Mapping[str, int]:
    """Return the median size of each file over the other checkpoints of this format."""
    sizes: dict[str, list[int]] = defaultdict(list)
    for sister in sisters:
        if sister.path == entry.path or sister.format is not entry.format or sister.temporary:
            continue
        for name, stat in sister.files.items():
            if stat.size:
                sizes[role(sister, name)].append(stat.size)
    # median_high: of two, the larger one; a second cut checkpoint must not make the first look normal
    return {name: statistics.median_high(file_sizes) for name, file_sizes in sizes.items()}


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


def shard_count_problem(entry: Entry, sisters: Sequence[Entry]) -> list[str]:
    """Return a problem when a checkpoint has fewer data files than others of its format.

    It has one when each of at least two others has more, or when most others have more and none has just these: two saves that
    were cut short do not excuse each other, a run that went on with fewer ranks does. Descriptions (JSON, text, tokenizers) are not
    counted, and checkpoints that list their own shards are not compared.
    """
    if any(name == ".metadata" or name.endswith("/.metadata") for name in entry.files):
        return []
    own = _data_files(entry)
    alike = [_data_files(o) for o in sisters if o.format is entry.format and o.path != entry.path and not o.temporary]
    more = [len(names) for names in alike if len(names) > len(own)]
    if len(more) >= 2 and len(more) == len(alike):
        return [f"has {len(own)} data files, every other checkpoint has at least {min(more)}"]
    if len(more) >= 2 and 2 * len(more) > len(alike) and own not in alike:
        return [f"has {len(own)} data files, most other checkpoints have at least {min(more)}"]
    return []


def _data_files(entry: Entry) -> frozenset[str]:
    """Return the names of a checkpoint's data files without its step."""
    return frozenset(name.replace(str(entry.step), "") for name in entry.files if not DESCRIPTIONS.search(name))


NAME = "manifest.json"
NEWEST_VERSION = 2
XXH3 = "xxh3_64"


def manifest_problems(entry: Entry, read_bytes: int) -> list[str]:
    """Check size and checksum of every file that a manifest lists.

    Args:
        entry: The checkpoint.
        read_bytes: How much of its content may be read to compare checksums.
    """
    if NAME not in entry.files:
        return [f"has no {NAME}: the save did not finish, it is written last"]
    try:
        manifest = read_json(entry.file(NAME))
        version = whole_number(manifest.get("version", 1))
        files: dict[str, Mapping[str, Any]] = {str(name): dict(about) for name, about in manifest["files"].items()}
        sizes = {name: whole_number(about["size"]) for name, about in files.items()}
    except (ValueError, KeyError, TypeError, AttributeError):
        return [f"{NAME} cannot be read: the save did not finish"]
    if version > NEWEST_VERSION:
        return [f"{NAME} is of version {version}, known is {NEWEST_VERSION}: update Nightshift, or load it with what saved it"]
    problems = []
    for name, size in sizes.items():
        have = entry.files.get(name)
        if have is None:
            problems.append(f"{name} is missing")
        elif have.size != size:
            problems.append(f"{name} has {have.size:,} bytes, its manifest says {size:,}")
        elif size <= read_bytes:
            read_bytes -= size
            problems += _content_problem(entry, name, files[name])
    return problems


def saves_of(entry: Entry) -> Mapping[str, Any]:
    """Return what a manifest says of the save's cost; empty where it says nothing.

    Keys: `blocked_s` of the training, `persist_s` in the background, `saved_at` in seconds since 1970.
    """
    try:
        save = read_json(entry.file(NAME)).get("save", {})
    except (OSError, ValueError, AttributeError):
        return {}
    return save if isinstance(save, dict) else {}


def _content_problem(entry: Entry, name: str, about: Mapping[str, Any]) -> list[str]:
    if "crc32" in about:
        return [] if crc32_of(entry.file(name)) == about["crc32"] else [_damaged(name, "CRC-32")]
    if XXH3 in about:
        from assistant.training.checkpoints.files import of_stream

        with open_regular(entry.file(name)) as stream:
            value = of_stream(stream, XXH3)
        if value is None:
            return [f"{name} cannot be compared: its checksum is {XXH3}; pip install xxhash"]
        return [] if value == about[XXH3] else [_damaged(name, XXH3)]
    return [f"{name} has no checksum in {NAME} that is known here"]


def _damaged(name: str, checksum: str) -> str:
    return f"{name} is damaged: its {checksum} is not the one in the manifest"


MEGATRON_RANK = re.compile(r"^(mp_rank_\d+(?:_\d+)*)/(.+)$")
ZERO_SHARD = re.compile(r"^(?:bf16_|fp16_)?zero_pp_rank_(\d{1,18})_mp_rank_(\d{1,18})_(optim|model)_states\.pt$")
INTERNEVO_SHARD = re.compile(r"^(model|optimizer)((?:_[a-z]+\d+)+)\.pt$")
HF_SHARD = re.compile(r"^(.+)-(\d{1,18})-of-(\d{1,18})\.(safetensors|bin)$")
HF_WEIGHTS = re.compile(r"^(?:model|pytorch_model|adapter_model|tf_model|consolidated)[\w.-]*\.(?:safetensors|bin|pt|pth)$")
ACCELERATE_STATE = re.compile(r"^random_states_\d+\.pkl$")
LEFTOVER = re.compile(r"(?:^|/)(?:tmp[-_.]|\.tmp)|\.(?:tmp|temp|part|partial|incomplete)$", re.IGNORECASE)
TRAINER_STATE_BYTES = 64 << 20
"""The trainer's whole history of metrics stands in `trainer_state.json`."""
WRITTEN_LAST = (
    (re.compile(r"^model_and_optim/"), (".metadata.json",)),  # allenai/OLMo-core, train/checkpoint.py, dir_is_checkpoint()
    # stanford-crfm/levanter, checkpoint.py, is_checkpoint_dir(), and Megatron-Core; google-research/t5x, checkpoints.py, saves in a
    # folder `checkpoint_N.tmp-…`, writes `checkpoint` and renames the folder
    (re.compile(r"/\.zarray$"), ("metadata.json", "checkpoint")),
)
"""What tells a layout, and the files without any of which the frameworks that write it pass over a checkpoint."""
BUNDLED = (Format.TENSORFLOW, Format.SAVES, Format.EPOCHS, Format.PLAIN)
"""Formats of which TensorFlow may have written the files."""
UNTOLD = "its step neither by its name nor inside"
EPOCH_ALONE = "only its epoch, beside others that tell their step"
NO_STEP = (UNTOLD, EPOCH_ALONE)
"""How the only problem of a file ends that may be whole, and of which nobody knows which step it is."""
MOST_PARTS = 100_000
"""Ranks or layers of one checkpoint: a name that counts further is not believed."""


def missing_problems(entry: Entry, *, read_bytes: int = 0) -> list[str]:
    """Return what is missing or unfinished in one checkpoint, in plain words.

    Args:
        entry: The checkpoint as it was found.
        read_bytes: How much of its content may be read to compare a manifest's checksums.
    """
    problems = ["its name marks it as not finished"] if entry.temporary else []
    if entry.unreadable:
        return [*problems, f"cannot be judged: {entry.unreadable}"]
    if not entry.files:
        return [*problems, "is an empty folder"]
    leftovers = [name for name in entry.files if LEFTOVER.search(name)]
    if leftovers:
        problems.append(f"holds unfinished files: {named(leftovers)}")
    if entry.format is Format.NIGHTSHIFT:
        return problems + manifest_problems(entry, read_bytes)
    if entry.format in (Format.PLAIN, Format.DCP):
        lacking = {
            last[0]
            for form, last in WRITTEN_LAST
            if not any(name in entry.files for name in last) and any(form.search(name) for name in entry.files)
        }
        problems += [f"{last} is missing: the save did not finish, it is written last" for last in sorted(lacking)]
    if entry.format in BUNDLED:
        problems += bundle_problems({name: stat.size for name, stat in entry.files.items()}, entry.file, read_bytes=read_bytes)
    check = CHECKS.get(entry.format)
    return problems + (check(entry) if check else [])


def _gaps(numbers: Iterable[int]) -> list[int]:
    present = set(numbers)
    return sorted(set(range(min(max(present, default=-1), MOST_PARTS) + 1)) - present)


def _megatron(entry: Entry) -> list[str]:
    pair = [name for name in ("common.pt", "metadata.json") if name not in entry.files]
    half = [f"{pair[0]} is missing"] if len(pair) == 1 else []
    if any(DISTCP.search(name) for name in entry.files) or ".metadata" in entry.files:
        return dcp_problems(entry) + half
    if any(name.endswith("/.zarray") for name in entry.files):  # Megatron-Core's older format
        return [f"{name} is missing: the save did not finish, it is written last" for name in pair if name == "metadata.json"]
    ranks: dict[str, set[str]] = {}
    for name in entry.files:
        if match := MEGATRON_RANK.match(name):
            ranks.setdefault(match.group(1), set()).add(match.group(2))
    if not ranks:
        return ["holds neither mp_rank_* folders nor distributed shards"]
    problems = _grid_gaps([tuple(map(int, rank.removeprefix("mp_rank_").split("_"))) for rank in ranks], "mp_rank")
    every = set().union(*ranks.values())
    if not any(re.fullmatch(r"model_(?:optim_)?rng\.pt|weights.*", name) for name in every):
        problems.append("no rank has model_optim_rng.pt")
    short = [f"{rank}/{name}" for name in sorted(every) for rank, names in sorted(ranks.items()) if name not in names]
    # The data-parallel optimiser is written by some ranks only, so its files need not be everywhere.
    lacking = [name for name in short if "distrib_optim" not in name and "optim_param" not in name]
    if lacking:
        problems.append(f"files that sibling ranks have are missing: {named(lacking)}")
    return problems


def _grid_gaps(places: Sequence[tuple[int, ...]], word: str) -> list[str]:
    """Return what a full rectangle of ranks (tensor x pipeline x expert) lacks."""
    if len({len(place) for place in places}) != 1:
        return [f"mixes {word} folders of different depth"]
    sizes = [max(axis) + 1 for axis in zip(*places, strict=True)]
    expected = 1
    for size in sizes:
        expected *= size
    have = len(set(places))
    return [f"has {have} of {expected} {word} parts"] if have < expected else []


def _deepspeed(entry: Entry) -> list[str]:
    shards: dict[tuple[str, int], set[int]] = {}
    for name in entry.files:
        if match := ZERO_SHARD.match(name):
            shards.setdefault((match.group(3), int(match.group(2))), set()).add(int(match.group(1)))
    problems = []
    widest = max((max(ranks) + 1 for ranks in shards.values()), default=0)
    for (kind, rank), have in sorted(shards.items()):
        if len(have) < widest:
            problems.append(f"has {len(have)} of {widest} {kind} shards of mp_rank {rank:02}")
    models = [name for name in entry.files if name.endswith("model_states.pt")]
    if not models:
        problems.append("has no *_model_states.pt")
    gaps = _gaps(int(m.group(1)) for name in models if (m := re.match(r"mp_rank_(\d{1,18})_model_states", name)))
    if gaps:
        problems.append(f"model states of mp_rank {named([str(gap) for gap in gaps])} are missing")
    layers = _gaps(int(m.group(1)) for name in models if (m := re.match(r"layer_(\d{1,18})-model", name)))
    # Pipelines number only the layers with weights, so a single gap is normal and half of them is not.
    if len(layers) > len(models):
        problems.append("more than half of the layer files are missing")
    if not any("optim_states" in name for name in entry.files) and any("zero" in name for name in entry.files):
        problems.append("has no optimiser states")
    return problems


HF_FILE = re.compile(
    r"(?:model|pytorch_model|adapter|config|generation_config|optimizer|scheduler|scaler|rng_state|trainer_state|training_args|tokenizer"
    r"|special_tokens|added_tokens|vocab|merges|preprocessor|global_step\d|latest$|zero_to_fp32|README)|.*\.distcp$"
)
"""Files that the Trainer writes into a checkpoint. Source: transformers, trainer.py (_save_checkpoint)."""


def _huggingface(entry: Entry) -> list[str]:
    if any(ACCELERATE_STATE.match(name) for name in entry.files):
        return _accelerate(entry)  # Accelerate and Diffusers name their folders alike and write no trainer state
    if entry.files and not any(HF_FILE.match(name) for name in entry.files):
        return []  # programs of people's own name their folders alike, too
    problems = []
    state = entry.file("trainer_state.json")
    if "trainer_state.json" not in entry.files:
        problems.append("has no trainer_state.json: the save did not finish, it is written near its end")
    else:
        try:
            step = read_json(state, TRAINER_STATE_BYTES).get("global_step")
            if step is not None and step != entry.step:
                problems.append(f"trainer_state.json is of step {step}, the folder of step {entry.step}")
        except (ValueError, AttributeError):
            pass  # told by the check of the file itself
    sharded_inside = any(name.startswith("global_step") for name in entry.files) or any(DISTCP.search(n) for n in entry.files)
    problems += _parts_inside(entry)
    if not sharded_inside and not any(HF_WEIGHTS.match(name) for name in entry.files):
        problems.append("has no weights (model*.safetensors, pytorch_model*.bin, adapter_model*)")
    return problems + _indexed(entry) + _numbered(entry)


def _parts_inside(entry: Entry) -> list[str]:
    """Check what DeepSpeed or FSDP have put into folders of a Trainer's or Accelerate's checkpoint."""
    problems = dcp_problems(entry) if any(DISTCP.search(name) for name in entry.files) else []
    for top in sorted({name.split("/")[0] for name in entry.files if name.endswith("_states.pt") and "/" in name}):
        inner = {name.removeprefix(f"{top}/"): stat for name, stat in entry.files.items() if name.startswith(f"{top}/")}
        problems += [f"{top}: {problem}" for problem in _deepspeed(replace(entry, files=inner))]
    return problems


def _accelerate(entry: Entry) -> list[str]:
    """Check a folder of `Accelerator.save_state`: weights, optimiser, and each rank's random states, which are written last."""
    problems = _parts_inside(entry) + _indexed(entry) + _numbered(entry)
    ranks = [int(match.group(1)) for name in entry.files if (match := re.match(r"random_states_(\d{1,9})\.pkl$", name))]
    if gaps := _gaps(ranks):
        problems.append(f"random states of rank {named([str(gap) for gap in gaps])} are missing")
    if not ranks:
        problems.append("has no random_states_*.pkl: the save did not finish, they are written last")
    if not any(HF_WEIGHTS.match(name) or "/" in name for name in entry.files):
        problems.append("has no weights (model*.safetensors, pytorch_model*.bin, or a folder of shards)")
    return problems


def _orbax(entry: Entry) -> list[str]:
    """Check a folder of Orbax: it is renamed when whole, so what is left to check is what each item describes."""
    tops = {
        name.rpartition("/")[0] for name in entry.files if name.endswith("manifest.ocdbt") and "/ocdbt.process_" not in f"/{name}"
    }
    metadata = {name.rpartition("/")[0] for name in entry.files if name.endswith("/_METADATA") or name == "_METADATA"}
    lacking = sorted(folder or "." for folder in metadata - tops if any(n.startswith(f"{folder}/ocdbt.") for n in entry.files))
    problems = [f"manifest.ocdbt is missing in {named(lacking)}"] if lacking else []
    if not tops and not metadata:
        problems.append("has neither _METADATA nor manifest.ocdbt")
    return problems


def _ranks_of_one_step(entry: Entry) -> list[str]:
    """Check the files of the ranks of one step against their own numbering."""
    if is_folder(entry.path):
        return dcp_problems(entry) if any(DISTCP.search(name) or name.endswith(".metadata") for name in entry.files) else []
    ranks = [int(match.group(1)) for name in entry.files if (match := RANK_WORD.search(name))]
    gaps = _gaps(ranks) if len(ranks) > 1 else []
    problems = [f"files of rank {named([str(gap) for gap in gaps])} are missing"] if gaps else []
    if entry.step == UNKNOWN_STEP and step_in_name(entry.path.name) != UNKNOWN_STEP:
        problems.append(f"tells {EPOCH_ALONE if entry.format is Format.EPOCHS else UNTOLD}")
    return problems


def _indexed(entry: Entry) -> list[str]:
    """Check the shards that an index names."""
    problems = []
    for name in entry.files:
        if not name.endswith(".index.json"):
            continue
        try:
            shard_names = set(read_json(entry.file(name))["weight_map"].values())
        except (ValueError, KeyError, AttributeError, TypeError):
            problems.append(f"{name} is no index of weights")
            continue
        absent = sorted(str(file) for file in shard_names if file not in entry.files)
        if absent:
            problems.append(f"{name} names shards that are not there: {named(absent)}")
    return problems


def _numbered(entry: Entry) -> list[str]:
    """Check `x-00001-of-00004` against its own count, and that the index is there by which such shards are loaded."""
    sets: dict[tuple[str, int, str], set[int]] = {}
    for name in entry.files:
        if match := HF_SHARD.match(name):
            sets.setdefault((match.group(1), int(match.group(3)), match.group(4)), set()).add(int(match.group(2)))
    problems = [f"has {len(have)} of {count} {stem} shards" for (stem, count, _), have in sets.items() if len(have) < count]
    indexes = {f"{stem}.{kind}.index.json" for (stem, count, kind) in sets if count > 1} - set(entry.files)
    return problems + [f"{name} is missing: without it the shards are not loaded" for name in sorted(indexes)]


def _internevo(entry: Entry) -> list[str]:
    marker = f"{entry.step}.step"
    inside = marker in entry.files
    problems = [] if inside or is_regular(entry.path.parent / marker) else [f"has no {marker}: the save did not finish"]
    grids: dict[tuple[str, str], list[tuple[int, ...]]] = {}
    for name in entry.files:
        if match := INTERNEVO_SHARD.match(name):
            axes = re.findall(r"_([a-z]+)(\d{1,18})", match.group(2))
            key = (match.group(1), "_".join(axis for axis, _ in axes))
            grids.setdefault(key, []).append(tuple(int(number) for _, number in axes))
    if not any(kind == "model" for kind, _ in grids):
        problems.append("has no model_*.pt")
    for (kind, word), places in sorted(grids.items()):
        problems += _grid_gaps(places, f"{kind}_{word}")
    return problems


def _nemo(entry: Entry) -> list[str]:
    problems = ["its -unfinished marker is still there: the save did not finish"] if entry.marked else []
    if not is_folder(entry.path):
        return problems + _ranks_of_one_step(entry)
    if any(DISTCP.search(name) or name.endswith(".metadata") for name in entry.files):
        problems += dcp_problems(entry)
        if not any(name.endswith(("meta.pt", "common.pt")) for name in entry.files):  # Lightning's and NeMo's, beside the shards
            problems.append("has neither meta.pt nor common.pt: optimiser and step would be lost")
    if any(name.startswith("weights/") for name in entry.files):
        pair = [name for name in ("weights/common.pt", "weights/metadata.json") if name not in entry.files]
        problems += [f"{pair[0]} is missing"] if len(pair) == 1 else []
    if any(name.endswith("_states.pt") for name in entry.files):
        problems += _parts_inside(entry)
    return problems


CHECKS: dict[Format, Callable[[Entry], list[str]]] = {
    Format.MEGATRON: _megatron,
    Format.DEEPSPEED: _deepspeed,
    Format.DCP: dcp_problems,
    Format.HUGGINGFACE: _huggingface,
    Format.INTERNEVO: _internevo,
    Format.NEMO: _nemo,
    Format.TORCHTITAN: dcp_problems,
    Format.ACCELERATE: _accelerate,
    Format.COMPOSER: _ranks_of_one_step,
    Format.ORBAX: _orbax,
    Format.PLAIN: _ranks_of_one_step,
    Format.EPOCHS: _ranks_of_one_step,
    Format.TENSORFLOW: _ranks_of_one_step,
    Format.SAVES: _ranks_of_one_step,
    Format.PLACED: _ranks_of_one_step,
}
