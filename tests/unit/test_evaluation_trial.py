"""What a trial does on its node: each piece once, whatever happens to the job; one model loaded for many pieces."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from assistant.evaluation import metric, trial
from assistant.evaluation.files import TRIAL, Journal, claim
from assistant.evaluation.jobs import Submitter
from assistant.evaluation.suite import load_asked
from assistant.evaluation.trial import Server, ServerError
from assistant.evaluation.work import Piece, Trial
from tests.scenarios.evaluating import World

PIECES = (Piece("a", 0, 10), Piece("a", 10, 20), Piece("b", 0, 10))
SERVER = """
import json, os, sys, time
print(json.dumps({"ready": True}), flush=True)
for line in sys.stdin:
    piece = json.loads(line)
    with open(sys.argv[1] + "/served", "a") as file:
        file.write(f"{os.getpid()} {piece['dataset']} {piece['first']}\\n")
    print("loading shards: 100%", flush=True)
    if piece["dataset"] == "b" and os.path.exists(sys.argv[1] + "/dies"):
        os.kill(os.getpid(), 9)
    if piece["dataset"] == "b" and os.path.exists(sys.argv[1] + "/hangs"):
        time.sleep(600)
    if piece["dataset"] == "b" and os.path.exists(sys.argv[1] + "/complains"):
        print(json.dumps({"ok": False, "error": "context too long"}), flush=True)
        continue
    with open(piece["out"], "w") as file:
        file.write("".join(f"{item}\\n" for item in range(piece["first"], piece["last"])))
    print(json.dumps({"ok": True}), flush=True)
"""


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setenv("SLURMD_NODENAME", "node01")
    return World(tmp_path)


def prepare(world: World, pieces: tuple[Piece, ...] = PIECES) -> Path:
    """Write the job's folder as the coordinator would, and return it."""
    sender = Submitter(world.folder, load_asked(world.folder), Journal(world.folder), lambda number, spec: "77")
    sender.trial("node01", Trial(pieces, 1.0, 1.0))
    return world.folder.job(max(Journal(world.folder).state.jobs))


def test_a_job_that_slurm_starts_again_does_only_what_was_not_done(world: World) -> None:
    job = prepare(world)
    assert trial.main(job) == 0
    world.folder.out(PIECES[1]).unlink()
    assert trial.main(job) == 0
    assert world.times("infer") == {"a 0 10": 1, "a 10 20": 2, "b 0 10": 1}


def test_a_piece_that_another_trial_made_meanwhile_is_left_alone(world: World) -> None:
    job = prepare(world)
    other = world.folder.out(PIECES[0])
    other.parent.mkdir(parents=True)
    other.write_text("made elsewhere")
    assert trial.main(job) == 0
    assert "a 0 10" not in world.times("infer")
    assert other.read_text() == "made elsewhere"


def test_a_second_job_of_the_same_number_leaves_at_once(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    job = prepare(world)
    assert trial.main(job) == 0
    world.folder.out(PIECES[0]).unlink()
    monkeypatch.setenv("SLURM_JOB_ID", "78")
    assert trial.main(job) == 0
    assert world.times("infer")["a 0 10"] == 1


def test_what_the_coordinator_took_away_is_not_begun(world: World) -> None:
    job = prepare(world)
    assert claim(world.folder.claim_file(1, PIECES[2]), trial.WITHDRAWN) == trial.WITHDRAWN
    assert trial.main(job) == 0
    assert world.times("infer") == {"a 0 10": 1, "a 10 20": 1}


def test_a_command_that_writes_nothing_fails_and_says_so(world: World) -> None:
    world.of("a", infer="/bin/true {out}")
    assert trial.main(prepare(world)) == 1
    assert "wrote nothing to {out}" in world.folder.failed(1, PIECES[0]).read_text()
    assert world.folder.out(PIECES[2]).exists()


def served(world: World) -> Path:
    (world.root / "serve.py").write_text(SERVER)
    for name in "ab":
        world.of(name, infer=f"{sys.executable} -S {world.root}/serve.py {world.root} {{pieces}}")
    return prepare(world)


def servers(world: World) -> list[str]:
    return [line.split()[0] for line in (world.root / "served").read_text().splitlines()]


def test_one_program_gets_all_pieces_that_have_the_same_command(world: World) -> None:
    assert trial.main(served(world)) == 0
    assert len(servers(world)) == 3
    assert len(set(servers(world))) == 1
    made = [json.loads(world.folder.timing_file(piece).read_bytes()) for piece in PIECES]
    assert [("load_s" in one) for one in made] == [True, False, False]


@pytest.mark.parametrize(
    ("how", "why"), [("dies", "ended by SIGKILL"), ("complains", "context too long"), ("hangs", "did not answer within 1 s")]
)
def test_a_program_that_fails_on_a_piece_is_started_again_for_the_next(world: World, how: str, why: str) -> None:
    world.let(how)
    world.ask(infer_timeout_s=1.0)
    served(world)
    job = prepare(world, (PIECES[0], PIECES[2], PIECES[1]))
    assert trial.main(job) == 1
    number = max(note.number for note in Journal(world.folder).state.live(TRIAL))
    assert why in world.folder.failed(number, PIECES[2]).read_text()
    assert world.folder.out(PIECES[1]).exists()
    assert len(set(servers(world))) == (1 if how == "complains" else 2)


def test_a_program_that_never_gets_ready_is_given_up(tmp_path: Path) -> None:
    with pytest.raises(ServerError, match="did not answer within 0 s"):
        Server([sys.executable, "-S", "-c", "import time; time.sleep(60)"], timeout_s=0.3, environment={})
    with pytest.raises(ServerError, match="exit status 3"):
        Server(["/bin/sh", "-c", "exit 3"], timeout_s=10, environment={})
    with pytest.raises(ServerError, match="cannot be started"):
        Server(["no-such-server"], timeout_s=10, environment={})


@pytest.mark.parametrize(
    ("written", "why"),
    [
        ("", "is no JSON"),
        ("[1]", "no number as `score`"),
        ('{"score": "high"}', "no number as `score`"),
        ('{"score": true}', "no number as `score`"),
        ('{"score": NaN}', "no number as `score`"),
    ],
)
def test_what_is_no_score_is_refused_for_good(world: World, tmp_path: Path, written: str, why: str) -> None:
    (tmp_path / "text").write_text(written)
    world.of("a", metric=f"cp {tmp_path}/text {{score}}")
    assert trial.main(prepare(world)) == 0
    sender = Submitter(world.folder, load_asked(world.folder), Journal(world.folder), lambda number, spec: "77")
    sender.metric([load_asked(world.folder).dataset("a")])
    assert metric.main(world.folder.job(2)) == 1
    failed = json.loads((world.folder.job(2) / "failed" / "a.json").read_bytes())
    assert why in failed["why"]
    assert failed["final"]


def test_without_a_metric_the_outputs_of_ranges_count_by_their_items(world: World) -> None:
    world.of("a", metric="", infer='/bin/sh -c \'echo "{\\"score\\": $1}" > "$2"\' - {first} {out}')
    assert trial.main(prepare(world, (Piece("a", 0, 5), Piece("a", 5, 20)))) == 0
    sender = Submitter(world.folder, load_asked(world.folder), Journal(world.folder), lambda number, spec: "77")
    sender.metric([load_asked(world.folder).dataset("a")])
    assert metric.main(world.folder.job(2)) == 0
    assert world.scores()["a"] == pytest.approx(5 * 15 / 20)
