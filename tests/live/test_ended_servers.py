"""A server of a stranger whose node broke, and the training that asks it: the server comes back as it was, the training at it."""

from __future__ import annotations

import shutil
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assistant.config import WatchSettings
from assistant.engine import Engine
from assistant.engine.outages import OutageLimits
from assistant.engine.ownership import owner_name
from assistant.policy import Mode, load_policy
from assistant.ports import SystemClock
from assistant.records import EventKind, IncidentState, JobState
from assistant.recover import verify
from assistant.wiring import build
from tests.live.conftest import TORCH, DevCluster, until
from tests.live.test_strangers_submission import Owner, ended, over, restarted, watched

pytestmark = [pytest.mark.live, pytest.mark.timeout(600)]
SERVER = """import argparse, json, os, socket, sys, threading, time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
parser = argparse.ArgumentParser()
parser.add_argument("--port", type=int, default=8000)
parser.add_argument("--url-file", default="url.txt")
args = parser.parse_args()
def score(text):
    if os.path.exists("broken." + socket.gethostname()):
        print("RuntimeError: CUDA error: uncorrectable ECC error encountered", file=sys.stderr, flush=True)
        os._exit(1)
    return float(len(text) % 7)
class Handler(BaseHTTPRequestHandler):
    def do_POST(self):
        text = self.rfile.read(int(self.headers["Content-Length"])).decode()
        body = json.dumps({"reward": score(text)}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
server = ThreadingHTTPServer(("0.0.0.0", args.port), Handler)
address = f"http://{socket.gethostname()}:{server.server_address[1]}"
with open(args.url_file, "w") as file:
    file.write(address + "\\n")
print(f"reward model loaded, listening on {address}", flush=True)
server.serve_forever()
"""
CLIENT = """import glob, json, os, sys, time, urllib.request
import torch
url, tries = sys.argv[1], int(sys.argv[2])
def reward(text):
    for attempt in range(tries):
        try:
            with urllib.request.urlopen(url + "/score", data=text.encode(), timeout=5) as reply:
                return json.load(reply)["reward"]
        except OSError as error:
            print(f"reward server {url} does not answer ({error}); retrying in 1s", flush=True)
            time.sleep(1)
    raise RuntimeError(f"reward server {url} does not answer: [Errno 111] Connection refused")
saves = sorted(glob.glob("ckpt/step_*.pt"), key=lambda path: int(path.split("_")[1][:-3]))
first = 1
if saves:
    print(f"Resumed from checkpoint: {saves[-1]}", flush=True)
    first = torch.load(saves[-1])["step"] + 1
os.makedirs("ckpt", exist_ok=True)
for step in range(first, 2000):
    print(f"step {step} loss {3 - step / 1000:.4f} reward {reward('x' * step)}", flush=True)
    if step % 10 == 0:
        torch.save({"step": step, "model": {"w": torch.ones(4)}, "optimizer": {}}, f"ckpt/step_{step}.new")
        os.rename(f"ckpt/step_{step}.new", f"ckpt/step_{step}.pt")
    time.sleep(0.1)
"""


KEEPING = SERVER.replace(
    "        body =", "        answers[text] = 1\n        json.dump(answers, open('answers.json', 'w'))\n        body ="
).replace("class Handler", "answers = {}\nclass Handler")
TWO_SERVERS = CLIENT.replace("reward('x' * step)}", "reward('x' * step)} judged {judge(step)}").replace(
    "saves = sorted",
    """def judge(step):
    global url
    own, url = url, sys.argv[3]
    try:
        return reward("y" * step)
    finally:
        url = own
saves = sorted""",
)
REREADING = CLIENT.replace(
    "for attempt in range(tries):", "for attempt in range(tries):\n        url = open('url.txt').read().strip()"
)


@pytest.fixture
def engine(devcluster: DevCluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    monkeypatch.setattr(verify, "CONFIRM_S", 2.0)
    monkeypatch.setattr(verify, "STATELESS_S", 5.0)
    clock = SystemClock()
    settings = devcluster.settings(tmp_path, watch=WatchSettings(poll_s=1, hang_after_s=20))
    made = build(
        settings, clock=clock, policy=replace(load_policy(), mode=Mode.ACT, kill_switch=(tmp_path / "stop",)), since=clock.now()
    )
    made.outages.limits = OutageLimits(settle_s=1.0)
    yield made
    made.store.close()
    devcluster.settle()


class Pair:
    """A server, a training that asks it, and the node of the server."""

    def __init__(self, owner: Owner, *, port: int = 8000, tries: int = 100_000, url: str = "$(cat url.txt)",
                 server: str = SERVER, judge: bool = False) -> None:  # fmt: skip
        self.owner, self.folder = owner, owner.folder
        self.cluster = owner.cluster
        (owner.folder / "reward_server.py").write_text(server)
        (owner.folder / "ppo.py").write_text(TWO_SERVERS if judge else REREADING if url == "each time" else CLIENT)
        owner.script("server.sh", "#SBATCH -J reward -N1 --gres=gpu:1", f"python3 -u reward_server.py --port {port}")
        owner.script(
            "judge.sh", "#SBATCH -J judge -N1 --gres=gpu:1", "python3 -u reward_server.py --port 8001 --url-file judge.txt"
        )
        self.server = owner.sbatch("server.sh")
        until(lambda: self.address != "", 30)
        self.old = self.address
        self.node = self.old.partition(":")[0]
        if judge:
            owner.sbatch("-x", self.node, "judge.sh")
            until(lambda: (owner.folder / "judge.txt").exists(), 30)
        fixed = f"export SERVER_URL=http://{self.old}" if url == "fixed" else f'export SERVER_URL="{url}"'
        owner.script(
            "ppo.sh",
            "#SBATCH -J ppo -N1",
            fixed,
            f'{TORCH}/bin/python -u ppo.py "$SERVER_URL" {tries}{" $(cat judge.txt)" * judge}',
        )
        self.client = owner.sbatch("-x", self.node, "ppo.sh")
        until(lambda: len(list(owner.folder.glob("ckpt/step_*.pt"))) > 1, 60)

    @property
    def address(self) -> str:
        """HOST:PORT as the server wrote it last; empty before."""
        file = self.folder / "url.txt"
        return file.read_text().strip().removeprefix("http://") if file.exists() else ""

    def breaks(self, engine: Engine) -> None:
        """Let a GPU of the server's node lose rows, by which the server ends."""
        engine.tick(owner=owner_name("test"))
        self.cluster.inject(self.node, "xid", code=48, gpu=0)
        (self.folder / f"broken.{self.node}").touch()

    def heals(self) -> None:
        self.cluster.inject(self.node, "clear")

    def names(self) -> list[str]:
        """The names of the jobs that live, sorted."""
        return sorted(self.cluster.run("squeue", "-h", "-o", "%j").split())


@pytest.fixture
def broken(devcluster: DevCluster, tmp_path: Path) -> Iterator[Callable[..., Pair]]:
    pairs: list[Pair] = []

    def make(**options: Any) -> Pair:
        pairs.append(Pair(Owner(devcluster, devcluster.shared / tmp_path.name), **options))
        return pairs[0]

    yield make
    for pair in pairs:
        pair.heals()


def test_a_client_that_waits_for_an_old_address_is_started_again_at_the_new_one(
    engine: Engine, broken: Callable[..., Pair]
) -> None:
    pair = broken(port=0)
    pair.breaks(engine)
    waiting = watched(engine, pair.client, lambda incident: "listens on" in incident.note or over(incident), 90)
    server = restarted(engine, pair.server)
    assert f"job {pair.client} asks" in waiting.note
    assert f"{pair.old} was served by job {pair.server} (reward)" in waiting.note
    assert f"it was started again as job {server} on" in waiting.note
    assert f"which listens on {pair.address}" in waiting.note
    assert pair.address != pair.old
    incident = watched(engine, pair.client, over, 120)
    assert incident.state is IncidentState.RECOVERED, incident.note
    assert engine.scheduler.job(restarted(engine, pair.client)).state is JobState.RUNNING
    assert pair.names() == ["ppo", "reward"]
    (of_server,) = engine.store.incidents(job=pair.server)
    assert (of_server.state, f"listens on {pair.address}" in of_server.note) == (IncidentState.RECOVERED, True), of_server.note


def test_a_client_that_names_the_old_address_as_fixed_text_is_its_owners(engine: Engine, broken: Callable[..., Pair]) -> None:
    pair = broken(url="fixed")
    pair.breaks(engine)
    incident = watched(engine, pair.client, over, 120)
    assert incident.state is IncidentState.ESCALATED
    assert f"line 3 of its script: export SERVER_URL=http://{pair.old}" in incident.note
    assert f"has to write {pair.address} for {pair.old} there" in incident.note
    assert f"scancel {pair.client}" in incident.note
    assert engine.scheduler.job(pair.client).state is JobState.RUNNING
    assert pair.names() == ["ppo", "reward"]


def test_a_client_that_reads_the_address_each_time_goes_on_by_itself(engine: Engine, broken: Callable[..., Pair]) -> None:
    pair = broken(url="each time")
    pair.breaks(engine)
    ended(engine, pair.server)
    watched(engine, pair.server, over, 90)
    for _ in range(20):
        engine.tick(owner=owner_name("test"))
        time.sleep(1)
    assert not [call for entry in engine.store.incidents(job=pair.client) for call in engine.store.calls(entry.id)
                if call.tool in ("cancel_job", "resubmit_job")]  # fmt: skip
    assert engine.scheduler.job(pair.client).state is JobState.RUNNING
    assert pair.names() == ["ppo", "reward"]


def test_a_server_that_its_owner_cancelled_stays_away(engine: Engine, broken: Callable[..., Pair]) -> None:
    pair = broken()
    engine.tick(owner=owner_name("test"))
    pair.cluster.run("scancel", pair.server)
    incident = watched(engine, pair.client, over, 120)
    assert incident.state is IncidentState.ESCALATED
    assert f"was served by job {pair.server} (reward)" in incident.note
    assert "it was cancelled" in incident.note
    assert "Somebody has to start that server again" in incident.note
    assert pair.names() == ["ppo"]


def test_of_two_servers_only_the_one_that_ended_comes_back(engine: Engine, broken: Callable[..., Pair]) -> None:
    pair = broken(port=0, judge=True)
    pair.breaks(engine)
    incident = watched(engine, pair.client, over, 240)
    assert incident.state is IncidentState.RECOVERED, incident.note
    assert pair.names() == ["judge", "ppo", "reward"]
    assert (
        len([call for entry in engine.store.incidents() for call in engine.store.calls(entry.id) if call.tool == "resubmit_job"])
        == 2
    )


def test_a_server_that_keeps_what_it_was_told_is_a_persons(engine: Engine, broken: Callable[..., Pair]) -> None:
    pair = broken(server=KEEPING)
    pair.breaks(engine)
    ended(engine, pair.server)
    assert watched(engine, pair.server, over, 90).state is IncidentState.ESCALATED
    incident = watched(engine, pair.client, over, 120)
    assert incident.state is IncidentState.ESCALATED
    assert f"was served by job {pair.server} (reward)" in incident.note
    assert "was handed to a person" in incident.note
    assert pair.names() == ["ppo"]


def test_clients_that_gave_up_are_started_again_where_their_server_is_now(engine: Engine, broken: Callable[..., Pair]) -> None:
    pair = broken(port=0, tries=3)
    others = {}
    for name, url in (("fixed", f"http://{pair.old}"), ("beside", "$(cat ../url.txt)")):
        (pair.folder / name).mkdir()
        shutil.copy(pair.folder / "ppo.py", pair.folder / name / "ppo.py")
        (pair.folder / name / "run.sh").write_text(f'#!/bin/bash\n{TORCH}/bin/python -u ppo.py "{url}" 3\n')
        at = ("-x", pair.node, "-J", name, "-D", str(pair.folder / name), str(pair.folder / name / "run.sh"))
        others[name] = pair.owner.sbatch(*at)
    until(lambda: all(len(list(pair.folder.glob(f"{name}/ckpt/step_*.pt"))) > 1 for name in others), 60)
    pair.breaks(engine)
    for number in others.values():
        ended(engine, number)
    assert watched(engine, pair.client, over, 240).state is IncidentState.RECOVERED
    assert watched(engine, others["beside"], over, 120).state is IncidentState.RECOVERED
    incident = watched(engine, others["fixed"], over, 120)
    assert incident.state is IncidentState.ESCALATED
    assert f"has to write {pair.address} for {pair.old} there" in incident.note
    assert pair.names() == ["beside", "ppo", "reward"]
    (shared,) = [entry for entry in engine.store.incidents() if entry.kind is EventKind.OUTAGE]
    asked = [call.arguments["cause"] for call in engine.store.calls(shared.id) if call.tool == "probe_cause"]
    assert asked[-1] == pair.address


def test_a_server_that_slurm_queued_again_when_its_node_died_is_followed(engine: Engine, broken: Callable[..., Pair]) -> None:
    pair = broken()
    engine.tick(owner=owner_name("test"))
    pair.cluster.fault(pair.node, "power")
    try:
        incident = watched(engine, pair.client, over, 120)
    finally:
        pair.cluster.heal(pair.node)
    assert incident.state is IncidentState.RECOVERED, incident.note
    assert engine.scheduler.job(pair.server).attempt == 1
    assert pair.names() == ["ppo", "reward"]
    changed = [call.tool for entry in engine.store.incidents() for call in engine.store.calls(entry.id)]
    assert changed.count("resubmit_job") == 1
