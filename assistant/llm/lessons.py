"""What the line ranker learns from: every example of the knowledge base, and wordings with their slots filled in."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

from assistant.content.reading import Wordings, filters, wordings
from assistant.content.reasons import Reason, Role, reasons
from assistant.llm.ranker import NONE
from assistant.llm.training import TrainingExample
from assistant.records import LearnedRule, RuleKind

_ROOT = {Role.ROOT: 1.0, Role.SYMPTOM: 0.6, Role.CONFIRMATION: 0.4, Role.CASCADE: 0.2}
"""How likely a line of each role is what an expert cites; lines of the other roles speak for no reason."""
_KINDS = {"root": 1.0, "symptom": 0.6}
_SLOT = re.compile(r"\{(\w+)\}")
_WORDS = (
    "hidden_states num_layers rope_scaling mask buckets router state vocab offsets corpus alpha default llama shard_index".split()
)
_MODULES = "flash_attn apex deepspeed xformers transformer_engine nvfuser tokenizers mylib.models einops triton".split()
_CLASSES = "LlamaForCausalLM GPTModel Trainer DistributedOptimizer DataArgs MoELayer T5Stack ParallelMLP".split()
_PATHS = ("/mnt/data/runs/exp7/step_1200", "/home/ada/llm/train.py", "/lustre/corpora/web/part-0041", "/opt/app/config.yaml")
_HOSTS = ("node017", "gpu-12", "nid001182", "worker3.cluster.local", "h100-a-07", "ip-10-0-3-17")
_FILLS: dict[str, tuple[str, ...]] = {
    "word": tuple(_WORDS),
    "mod": tuple(_MODULES),
    "cls": tuple(_CLASSES),
    "path": _PATHS,
    "host": _HOSTS,
    "url": ("https://hub.example.org/api/v2/items", "http://10.3.0.4:9000/bucket", "https://tracker.corp.example:8443/runs"),
    "ip": ("10.12.4.7", "172.16.0.33", "192.168.81.5"),
    "pci": ("0000:c1:00", "0000:18:00.0", "0008:01:00"),
    "date": ("2026-02-11T07:24:57", "2025-10-03T22:01:10"),
    "time": ("07:24:57", "22:01"),
}
_MESSAGES = ("{word}", "{word} is not valid for {word}", "could not finish {word} ({n})", "step {n}: {word} of {path} failed")
"""What may follow an exception class of which only the name is known."""


def lessons(
    site: Path | None = None,
    learned: Iterable[LearnedRule] = (),
    confirmed: Iterable[tuple[str, str]] = (),
    *,
    seed: int = 0,
) -> list[TrainingExample]:
    """Return everything that can be learned from, each line once, in the same order for the same content.

    Args:
        site: Folder of the site's own content.
        learned: Rules that the store has learned since; only signatures that count are used.
        confirmed: Lines of confirmed incidents, each with the reason that was found in the end.
        seed: Of what fills the slots.

    Raises:
        ContentError: A file is malformed.
    """
    chance = random.Random(seed)
    examples = [
        *(example for entry in wordings(site).values() for example in _of_wordings(entry, chance)),
        *(example for reason in reasons(site).values() for example in _of_reason(reason, chance)),
        *(TrainingExample(line, NONE, 0.0, entry.id) for entry in filters(site) for line in entry.examples),
        *(
            TrainingExample(line, rule.of, 1.0, rule.id)
            for rule in learned
            if rule.kind is RuleKind.SIGNATURE and rule.state.counts
            for line in rule.examples
        ),
        *(
            TrainingExample(line, reason, 1.0, line)
            for line, reason in confirmed
            if reason in reasons(site) and reason != "unknown"
        ),
    ]
    return list({example.text: example for example in examples}.values())


def _of_wordings(entry: Wordings, chance: random.Random) -> Iterator[TrainingExample]:
    for kind, root in _KINDS.items():
        for place, line in enumerate(entry.lines(kind)):
            yield TrainingExample(filled(line, chance), entry.reason, root, f"{entry.reason}/{kind}/{place}")
    for place, line in enumerate(entry.lines("quiet")):
        yield TrainingExample(filled(line, chance), NONE, 0.0, f"{entry.reason}/quiet/{place}")


def _of_reason(reason: Reason, chance: random.Random) -> Iterator[TrainingExample]:
    for signature in reason.signature:
        root = _ROOT.get(signature.role, 0.0) if reason.name != "unknown" else 0.0
        for line in signature.examples:
            yield TrainingExample(line, reason.name if root else NONE, root, signature.id)
    for herring in reason.herring:
        for line in herring.examples:
            yield TrainingExample(line, NONE, 0.0, herring.id)
    for name in reason.exceptions if reason.name != "unknown" else ():
        for message in _MESSAGES[:2]:
            yield TrainingExample(f"{name}: {filled(message, chance)}", reason.name, 1.0, f"class {name}")


def filled(line: str, chance: random.Random) -> str:
    """Return a wording with something plausible in each of its slots; what is no slot of ours stays as it is."""
    return _SLOT.sub(lambda match: _fill(match.group(1), match.group(0), chance), line)


def _fill(slot: str, as_it_is: str, chance: random.Random) -> str:
    if slot == "n":
        return str(chance.choice((0, 1, 3, 7, 12, 64, 511, 4096, 81920, 734003)))
    if slot == "job":
        return str(chance.randint(10_000, 9_999_999))
    if slot == "hex":
        return f"{chance.getrandbits(40):010x}"
    return chance.choice(_FILLS[slot]) if slot in _FILLS else as_it_is
