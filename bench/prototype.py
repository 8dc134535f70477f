"""Excerpts of the prototype that the embedded model has to beat: written by others, with root wordings that it held out.

Its generator lies beside the checkout and is read from there; nothing of it is kept here. Which of its wordings are like a line
that our own training may see is counted, and the rest is judged apart.
"""

from __future__ import annotations

import importlib.util
import random
import sys
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from assistant.content.reasons import reasons
from assistant.llm import features
from assistant.llm.features import places
from assistant.ports import Ranker
from bench.diagnosis import ROOT
from bench.encoder import Excerpt, judged

FOLDER = ROOT.parent / "shared" / "prototypes" / "llm"
REACHED = "root 0.955, reason 0.848, 99.4% right at p >= 0.9, 56% coverage"
"""What the prototype's notes say of its own model on its own held-out wordings."""
EACH = 30
"""Excerpts of each reason."""
SPLIT = "ood"
"""The generator's name for root wordings, noise and cascades that its own model did not see."""


def reason_of(name: str) -> str:
    """Return our name of one of the paper's reasons: `S3StorageError` is `s3_storage_error`.

    Raises:
        ValueError: It is none of ours.
    """
    ours = {known.replace("_", ""): known for known in reasons()}
    if name.lower() not in ours:
        raise ValueError(f"{name}: is none of our reasons")
    return ours[name.lower()]


def excerpts(folder: Path, each: int = EACH, seed: int = 0) -> list[Excerpt]:
    """Return so many excerpts of every reason.

    Raises:
        FileNotFoundError: The generator is not there.
        ValueError: It has a reason that we do not know.
    """
    generator, chance = _module(folder / "gen.py"), random.Random(seed)
    return [
        Excerpt(lines, root, reason_of(name))
        for name in generator.ROOT
        for lines, root, name in (generator.excerpt(chance, SPLIT, name) for _ in range(each))
    ]


def names(folder: Path) -> dict[str, str]:
    """Return the generator's names of reasons by ours.

    Raises:
        FileNotFoundError: The generator is not there.
        ValueError: It has a reason that we do not know.
    """
    return {reason_of(name): name for name in _module(folder / "gen.py").ROOT}


def known_wordings(cases: Sequence[Excerpt]) -> set[str]:
    """Return the root wordings, as the encoder sees them, that are like a line that training may see."""
    data = _module(ROOT / "training" / "encoder" / "lines.py")
    marks = [set(places(line.text)) for own in data.pool().by_reason.values() for line in own]
    roots = {case.lines[case.root] for case in cases}
    return {features.prepared_line(text) for text in roots if data.like_any(set(places(text)), marks)}


def report(folder: Path, rankers: dict[str, Ranker], *, wrong: bool = False) -> int:
    """Print the figures of rankers; 1 where the generator is not there."""
    try:
        cases = excerpts(folder)
    except FileNotFoundError:
        print(f"prototype       skipped: no generator at {folder / 'gen.py'}")
        return 1
    known = known_wordings(cases)
    unlike = [case for case in cases if features.prepared_line(case.lines[case.root]) not in known]
    wordings = {features.prepared_line(case.lines[case.root]) for case in cases}
    print(f"prototype's held-out excerpts; its own model: {REACHED}")
    print(
        f"  of {len(wordings)} root wordings {len(known)} are like a line of our training, in {len(cases) - len(unlike)} excerpts:"
    )
    for reason in sorted({case.reason for case in cases}):
        own = sorted({features.prepared_line(case.lines[case.root]) for case in cases if case.reason == reason} & known)
        print(f"    {reason}: {len(own)}, as {own[0][:90]!r}" if own else f"    {reason}: none")
    for name, ranker in rankers.items():
        print(f"  {name:8} all {len(cases)}: {judged(cases, ranker)}")
        print(f"  {name:8} the {len(unlike)} unlike: {judged(unlike, ranker, wrong=wrong and name == 'both')}")
    return 0


def _module(path: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"_of_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise FileNotFoundError(path)
    found = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = found
    spec.loader.exec_module(found)
    return found
