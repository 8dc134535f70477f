"""Commands by which owners carry their runs on, on real Slurm: asked in the sandbox what they would submit, not run outside."""

from __future__ import annotations

import hashlib
import json
import pwd
import shutil
from pathlib import Path

import pytest

from assistant.engine import Engine
from assistant.ports import Reply
from assistant.records import IncidentState
from assistant.recover.resume.means import OwnerCommand
from assistant.recover.trial.recorded import recorded_submission, recording_command
from tests.live.conftest import DevCluster
from tests.live.test_one_node import ADA, User, engine
from tests.live.test_strangers_queue import TIMEOUT
from tests.live.test_strangers_submission import ended, over, restarted, watched
from tests.live.test_trial_starts import PICKLED, REGISTRY, digests, trials

pytestmark = [pytest.mark.live, pytest.mark.timeout(400)]
__all__ = ["engine"]

BY_MARK = """mark = os.environ.get("STAND")
    return getattr(store, "read")("ckpt/stand_%s.bin" % mark[1:])["n"] if mark else 0"""
"""What a variable holds that names no path, no step and no file: only its owner's own command makes it."""
AGAIN = """#!/bin/bash
# tools/again LAB        [options of sbatch]   the newest stand is where the run of LAB continues
cd "$(dirname "$0")/.." || exit 1
busy=$(squeue -h -n "lab-$1" -o %A)
[ -z "$busy" ] || exit 1
mark=$(ls ckpt/stand_*.bin | tail -n 1 | sed 's/.*_//; s/[.]bin//')
number=$(SBATCH --parsable -J "lab-$1" --export="ALL,LAB=$1,STAND=s$mark" run.sh)
echo "$1 $number" >> history.txt
"""
WILD = """#!/bin/bash
# ./wild resumes
SBATCH --parsable run.sh; sbatch run.sh; SCANCEL 1; env -i SBATCH run.sh
/proc/1/root/SBATCH run.sh
unshare -Urm sh -c 'umount SBATCH; SBATCH run.sh'
cp SBATCH mine; ./mine run.sh
SCONTROL update JobId=1 TimeLimit=1
python3 -c 'import socket; socket.create_connection(("10.203.0.1", 6817), 2)' && echo CONNECTED
python3 -c 'import socket; socket.socket(socket.AF_UNIX).connect("/run/munge/munge.socket.2")' && echo CONNECTED
rm -rf ckpt; echo changed > ../outside; echo changed > /tmp/left-behind
(sleep 60; SBATCH run.sh) & setsid sleep 61 &
"""


@pytest.fixture
def owner(devcluster: DevCluster, tmp_path: Path) -> User:
    user = User(devcluster, devcluster.shared / tmp_path.name)
    (user.folder / "error.txt").write_text(TIMEOUT)
    (user.folder / "store.py").write_text(PICKLED)
    begin = REGISTRY.index('name = os.environ.get("WARM")')
    end = REGISTRY.index("if name else 0") + len("if name else 0")
    (user.folder / "x.py").write_text(REGISTRY[:begin] + BY_MARK + REGISTRY[end:])
    for name in ("ckpt", "tools"):
        (user.folder / name).mkdir()
    (user.folder / "history.txt").write_text("first\n")
    return user


def command(owner: User, name: str, text: str) -> None:
    """Write a command of the owner's, with the programs of Slurm by their absolute paths."""
    for program in ("sbatch", "scancel", "scontrol"):
        text = text.replace(program.upper(), shutil.which(program) or program)
    (owner.folder / name).write_text(text)
    (owner.folder / name).chmod(0o755)
    account = pwd.getpwnam(ADA)
    for path in (owner.folder / name, (owner.folder / name).parent):
        shutil.chown(path, account.pw_uid, account.pw_gid)


def test_what_the_command_of_its_owner_would_submit_is_proven_and_then_submitted(engine: Engine, owner: User) -> None:
    command(owner, "tools/again", AGAIN)
    owner.script("run.sh", ': "${LAB:?started without tools/again}"', "srun python3 -u x.py")
    first = owner.sbatch("-J", "lab-blue", "--export=ALL,LAB=blue,STAND=", "run.sh")
    ended(engine, first)
    incident = watched(engine, first, over, 200)
    assert incident.state is IncidentState.RECOVERED, incident.note
    [trial] = trials(engine, first)
    assert (trial["proven"], trial["variable"]) == ("yes", "STAND=s0040"), trial
    assert "tools/again blue" in str(trial["note"])
    log = next(owner.folder.glob(f"*{restarted(engine, first)}*")).read_text()
    assert "begin at 40" in log, log[:500]
    assert (owner.folder / "history.txt").read_text() == "first\n", "the command itself was never run outside"
    calls = [
        call for one in engine.store.incidents(job=first) for call in engine.store.calls(one.id) if call.tool == "resubmit_job"
    ]
    assert any("STAND=s0040" in call.preview for call in calls), "what was approved is what runs"


def test_a_command_that_edits_files_is_told_and_not_done(engine: Engine, owner: User) -> None:
    (owner.folder / "x.py").write_text(REGISTRY.replace('os.environ.get("WARM")', 'open("start.txt").read().strip()'))
    (owner.folder / "start.txt").write_text("\n")
    makefile = "continue:\n\tls ckpt/*.bin | tail -n 1 > start.txt\n\tsbatch $(FLAGS) run.sh\n"
    (owner.folder / "Makefile").write_text(makefile)
    owner.script("run.sh", "srun python3 -u x.py")
    first = owner.sbatch("run.sh")
    ended(engine, first)
    before = digests(owner.folder)
    incident = watched(engine, first, over, 200)
    assert incident.state is IncidentState.ESCALATED, incident.note
    assert "`make continue` (Makefile:1) would change" in incident.note, incident.note
    assert "start.txt and then run `sbatch run.sh`" in incident.note
    assert digests(owner.folder) == before


def test_nothing_of_a_command_leaves_the_sandbox(devcluster: DevCluster, engine: Engine, owner: User) -> None:
    owner.script("run.sh", "sleep 1")
    command(owner, "wild", WILD)
    first = owner.sbatch("--hold", "run.sh")
    job = engine.scheduler.job(first)
    jobs = {listed.id for listed in engine.scheduler.jobs()}
    before = {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in devcluster.shared.rglob("*") if path.is_file()}
    wild = OwnerCommand(("./wild",), "wild:2", str(owner.folder / "wild"))
    words = recording_command(job, wild, uid=pwd.getpwnam(ADA).pw_uid, folder=owner.folder / "ckpt")
    node = engine.scheduler.nodes()[0].name
    reply = Reply(node, True, 0, devcluster.on(node, *words), "")
    value = json.loads(reply.out.splitlines()[-1].removeprefix("NIGHTSHIFT-TRIAL "))
    assert value["status"] == "ran", value
    assert "CONNECTED" not in value["output"].split(), value["output"]
    names = [json.loads(text)["name"] for text in value["records"]]
    assert names.count("sbatch") >= 3, (names, value["output"])
    assert {"scancel", "scontrol"} <= set(names), "also where they are called by their paths"
    outcome = recorded_submission(job, wild, reply)
    assert isinstance(outcome, str), "and nothing of it is done"
    assert {listed.id for listed in engine.scheduler.jobs()} == jobs, "nothing reached the controller"
    assert {path: hashlib.sha256(path.read_bytes()).hexdigest() for path in before if path.exists()} == before
    left = devcluster.on(node, "sh", "-c", "ls -d /tmp/left-behind /tmp/nightshift-*; pgrep -f 'sleep 6[01]'; true")
    assert left.strip() == "", left
    owner.cluster.run("scancel", first)


def test_the_command_that_a_program_names_when_it_is_tried_is_asked_as_well(engine: Engine, owner: User) -> None:
    refusal = """if not os.environ.get("STAND") and os.listdir("ckpt"):
    sys.exit("ckpt is not empty: use `./more` to resume")
n = HOOKS["warm"]()"""
    text = (owner.folder / "x.py").read_text().replace('n = HOOKS["warm"]()', refusal, 1)
    (owner.folder / "x.py").write_text(text.replace("import importlib, os, time", "import importlib, os, sys, time"))
    command(owner, "more", '#!/bin/sh\nSTAND=s$(ls ckpt | tail -n 1 | tr -dc 0-9) SBATCH run.sh "$@"\n')
    owner.script("run.sh", "srun python3 -u x.py")
    first = owner.sbatch("run.sh")
    ended(engine, first)
    incident = watched(engine, first, over, 200)
    assert incident.state is IncidentState.RECOVERED, incident.note
    [trial] = trials(engine, first)
    assert (trial["proven"], trial["variable"]) == ("yes", "STAND=s0040"), trial
    assert "begin at 40" in next(owner.folder.glob(f"*{restarted(engine, first)}*")).read_text()


def test_a_key_of_an_ini_file_is_set_on_the_command_line(engine: Engine, owner: User) -> None:
    reads = """import configparser
def settings(words):
    values = configparser.ConfigParser()
    values.read("base.ini")
    for word in words:
        name, _, value = word.partition("=")
        section, _, key = name.partition(".")
        values.set(section, key, value)
    return values
"""
    (owner.folder / "conf.py").write_text(reads)
    (owner.folder / "base.ini").write_text("[save]\nfolder = ckpt\n; a stand to go on from\nrestart_from =\n")
    begin = 'import conf, sys\nsettings = conf.settings(sys.argv[1:])\nname = settings["save"]["restart_from"]\n'
    begin += 'n = getattr(store, "read")(name)["n"] if name else 0'
    (owner.folder / "x.py").write_text(REGISTRY.replace('n = HOOKS["warm"]()', begin))
    owner.script("run.sh", 'exec python3 -u x.py save.folder=ckpt "$@"')
    first = owner.sbatch("run.sh")
    ended(engine, first)
    incident = watched(engine, first, over, 200)
    assert incident.state is IncidentState.RECOVERED, incident.note
    assert "begin at 40" in next(owner.folder.glob(f"*{restarted(engine, first)}*")).read_text()
