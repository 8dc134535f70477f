"""A program that is read to keep no state is started again without a checkpoint; whatever may save is not taken for one."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from pathlib import Path

import pytest

from assistant.records import Job, JobSpec, JobState
from assistant.recover.checkpoints.search import SaveState, search_checkpoints
from assistant.recover.verify import STATELESS_S, Restart, Standing, judge_restart
from tests.unit.logged_job import START, job_in, write

SERVER = "import http.server, sys\nhttp.server.HTTPServer(('', 8000), Handler).serve_forever()\n"
STATELESS = {
    "a server of its own": ("python serve.py --port 8000", SERVER),
    "a server that answers": ("python serve.py", f"{SERVER}self.wfile.write(b'ok')\n"),
    "a server that leaves its address": (
        "python serve.py --note where",
        f"{SERVER.replace('http.server.HTTPServer', 'server = http.server.HTTPServer').replace('.serve_forever()', '')}"
        "with open('where.new', 'w') as note:\n    note.write('http://n1:8000')\nserver.serve_forever()\n",
    ),
    "one that serves in a thread": (
        "python serve.py",
        "import http.server, threading\nserver = http.server.HTTPServer(('', 0), Handler)\n"
        "with open('where', 'w') as note:\n    note.write('http://n1')\nthreading.Thread(target=server.serve_forever).start()\n",
    ),
    "flask": ("python serve.py", "import flask\napp = flask.Flask(__name__)\napp.run(host='0.0.0.0', port=8000)\n"),
    "one that puts its address in place": (
        "python serve.py",
        "import json, os\nfrom http.server import HTTPServer\nserver = HTTPServer(('', 0), Handler)\n"
        "with open('where.new', 'w') as note:\n    json.dump({'port': 1}, note)\nos.replace('where.new', 'where')\n"
        "server.serve_forever()\n",
    ),
    "vllm": ("vllm serve Qwen/Qwen2.5-3B --port 8001", ""),
    "vllm as a module": ("python -m vllm.entrypoints.openai.api_server --model m", ""),
    "sglang": ("python -m sglang.launch_server --model m", ""),
    "an evaluation": ("python serve.py", "import json, transformers\njson.dump({'acc': 1}, open('r.json', 'w'))\n"),
}
MAY_SAVE = {
    "a trainer": ("python serve.py", "import torch\ntorch.save(model, 'out/step_1.pt')\n"),
    "a library that may save": ("python serve.py", "from mylab import main\nmain()\n"),
    "a library that trains": ("python serve.py", "from transformers import Trainer\nTrainer(args).train()\n"),
    "it writes a file": ("python serve.py", "open('state.bin', 'wb').write(state)\n"),
    "it writes by hand": ("python serve.py", "import pickle\nfile.write(pickle.dumps(state))\n"),
    "it starts others": ("python serve.py", "import subprocess\nsubprocess.run(['python', 'train.py'])\n"),
    "a server that writes down what it is asked": (
        "python serve.py",
        f"class Handler:\n    def do_POST(self):\n        out = open('asked.txt', 'w')\n        out.write(self.body)\n{SERVER}",
    ),
    "a server that keeps answers in JSON": (
        "python serve.py",
        f"import json\nclass Handler:\n    def do_POST(self):\n        json.dump(answers, open('answers.json', 'w'))\n{SERVER}",
    ),
    "a data base": ("python serve.py", "import sqlite3\nsqlite3.connect('s.db').execute('insert')\n"),
    "a server beside a trainer": ("vllm serve m &\npython serve.py", "import torch\ntorch.save(model, 'out/step_1.pt')\n"),
    "no source": ("python other.py", SERVER),
}


def job(folder: Path, command: str, source: str, log: str = "INFO serving\n") -> Job:
    """Return a job in whose folder another one's checkpoints are written."""
    (folder / "serve.py").write_text(source)
    write(folder / "slurm-812.out", log, START + timedelta(minutes=5))
    for step in (10, 20):
        write(folder / f"out/step_{step}.pt", "", START + timedelta(minutes=4)).write_bytes(b"\x80" + bytes(9000))
    made = job_in(folder, command, state=JobState.FAILED, ended=START + timedelta(minutes=5))
    return replace(made, spec=JobSpec("serve", f"#!/bin/bash\n{command}\n", work_dir=folder))


@pytest.mark.parametrize("name", STATELESS)
def test_of_a_program_without_state_nothing_beside_it_is_its_own(name: str, tmp_path: Path) -> None:
    search = search_checkpoints(job(tmp_path, *STATELESS[name]), {}, ["INFO serving"], now=START + timedelta(minutes=6))
    assert (search.state, search.stateless, search.inventory) == (SaveState.NEVER_SAVED, True, None), search.note


@pytest.mark.parametrize("name", MAY_SAVE)
def test_a_program_that_may_save_is_looked_for_as_ever(name: str, tmp_path: Path) -> None:
    search = search_checkpoints(job(tmp_path, *MAY_SAVE[name]), {}, ["INFO serving"], now=START + timedelta(minutes=6))
    assert not search.stateless, search.note


READY = "INFO:     Uvicorn running on http://0.0.0.0:7100 (Press CTRL+C to quit)"


@pytest.mark.parametrize(
    ("command", "line", "is_server"),
    [
        ("python -m lab.serve_reward --model m --port 7100", READY, True),
        ("python -m lab.serve_reward --model m --save_every 10", READY, False),
        ("python -m lab.serve_reward --model m --output_dir out", READY, False),
        ("python -m lab.serve_reward --model m", "reward server ready on port 7100", True),
        ("python -m lab.serve_reward --model m --db answers", READY, False),
        ("rm-server --data-dir store", "listening on 0.0.0.0:7100", False),
        ("python -m lab.serve_reward --model m", "INFO loading", False),
        ("python -m lab.reward_trainer --model m", READY, False),
        ("python -m lab.serve_reward --model m &\npython -m lab.ppo", READY, False),
        ("python -m lab.serve_reward", "tcp_utils.cc:130] The server starts to listen on 0.0.0.0:51234", False),
    ],
)
def test_a_server_that_cannot_be_read_is_known_by_name_log_and_options(
    command: str, line: str, is_server: bool, tmp_path: Path
) -> None:
    search = search_checkpoints(job(tmp_path, command, ""), {}, [line, "INFO 200 OK"], now=START + timedelta(minutes=6))
    assert search.stateless is is_server, search.note


@pytest.mark.parametrize(
    "source",
    [
        f"import shelve\nanswers = shelve.open('answers')\n{SERVER}",
        f"import os\nclass Handler:\n    def do_POST(self):\n        os.replace('new', 'answers.json')\n{SERVER}",
    ],
    ids=["a store", "a file put in place"],
)
def test_of_a_server_that_keeps_state_it_is_not_said_that_it_saved_nothing(source: str, tmp_path: Path) -> None:
    search = search_checkpoints(job(tmp_path, "python serve.py", source), {}, ["INFO serving"], now=START + timedelta(minutes=6))
    assert (search.stateless, search.state) == (False, SaveState.UNKNOWN), search.note


@pytest.mark.parametrize("line", ["step 40 loss 2.5", "Saved checkpoint to out/step_20.pt"])
def test_a_log_that_tells_of_steps_or_saves_is_believed_before_the_source(line: str, tmp_path: Path) -> None:
    search = search_checkpoints(job(tmp_path, *STATELESS["vllm"]), {}, [line, line], now=START + timedelta(minutes=6))
    assert not search.stateless


@pytest.mark.parametrize(("lived_s", "standing"), [(STATELESS_S - 1, Standing.RUNNING_AGAIN), (STATELESS_S, Standing.RECOVERED)])
def test_a_server_is_back_once_it_has_run_for_a_while(lived_s: float, standing: Standing, tmp_path: Path) -> None:
    running = job_in(tmp_path)
    verdict = judge_restart(Restart(running, (), (), 0, None, now=START + timedelta(seconds=lived_s), stateless=True))
    assert verdict.standing is standing


def test_a_restart_whose_log_proves_a_failure_is_none_whatever_its_code(tmp_path: Path) -> None:
    done = job_in(tmp_path, state=JobState.COMPLETED, exit_code=0, ended=START + timedelta(minutes=5))
    verdict = judge_restart(Restart(done, (), (), 0, None, now=START + timedelta(minutes=6), hidden_failure="its training failed"))
    assert (verdict.standing, verdict.note) == (Standing.ENDED_AGAIN, "its training failed")
