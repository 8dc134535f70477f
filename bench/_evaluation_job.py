"""A job of the baseline: one dataset, the model from the store for itself, the metric while the slot is held.

python -m bench._evaluation_job STORE JOB.json
"""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
import tempfile
from pathlib import Path

from assistant.evaluation.stage import argv
from assistant.evaluation.trial import Server
from bench._file_store import get


def main() -> None:
    """Load, infer, score."""
    store, job = Path(sys.argv[1]), json.loads(Path(sys.argv[2]).read_bytes())
    out, score = Path(job["out"]), Path(job["score"])
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        model = Path(folder) / "model"
        get(store, job["model"], model)
        values = {"python": sys.executable, "model": str(model), "pieces": "-"}
        server = Server(argv(job["infer"], values, job["name"]), timeout_s=600, environment=os.environ)
        piece = {"dataset": job["name"], "data": job["data"], "first": 0, "last": job["items"], "out": str(out)}
        answer = server.ask(piece, 600)
        server.close()
    if not answer["ok"]:
        raise SystemExit(f"{job['name']}: {answer}")
    words = argv(job["metric"], {"python": sys.executable, "out": str(out), "score": str(score)}, job["name"])
    print(shlex.join(words))
    subprocess.run(words, check=True)


if __name__ == "__main__":
    main()
