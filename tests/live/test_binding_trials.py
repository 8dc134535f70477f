"""What a trial start has shown binds what is submitted: a torn file is refused, a proven start is made exactly as it was proven."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.engine import Engine
from assistant.records import IncidentState
from tests.live.conftest import DevCluster
from tests.live.test_one_node import User, engine
from tests.live.test_script_arguments import log_of, previews
from tests.live.test_strangers_queue import TIMEOUT
from tests.live.test_strangers_submission import ended, over, restarted, watched
from tests.live.test_trial_starts import trials

pytestmark = [pytest.mark.live, pytest.mark.timeout(500)]
__all__ = ["engine"]

AQUIFER = """import json, os, struct, sys, time
from pathlib import Path
KEPT, CELLS = Path("kept"), 700
def store(name, day, heads, whole=True):
    body = json.dumps({"day": day}).encode().ljust(64) + struct.pack(f"<{CELLS}f", *heads)
    with open(KEPT / name, "wb") as file:
        file.write(struct.pack("<I", len(body)))
        file.write(body if whole else body[:900])
def fetch(path):
    data = Path(path).read_bytes()
    wanted = struct.unpack("<I", data[:4])[0]
    if len(data) - 4 != wanted:
        raise ValueError(f"{path} holds {len(data) - 4} of {wanted} bytes")
    return json.loads(data[4:68])["day"], list(struct.unpack(f"<{CELLS}f", data[68:]))
saves = sorted(KEPT.glob("*.sav"), key=lambda path: path.stat().st_mtime)
begin = os.environ.get("RESTART_FILE") or (saves[-1] if saves else None)
day, heads = fetch(begin) if begin else (0, [0.0] * CELLS)
print("first day is", day + 1, "out of", begin, flush=True)
while day < 120:
    day += 1
    heads = [head * 0.99 + day / 1000 for head in heads]
    time.sleep(0.05 if day < 46 else 0.3)
    print(f"step {day} residual {3.0 - day / 100:.4f}", flush=True)
    if day % 10 == 0:
        store(f"zone_{day:04d}.sav", day, heads)
    if day == 45 and not os.path.exists("failed"):
        open("failed", "w").close()
        store("crash.sav", day, heads, whole=False)
        raise RuntimeError(open("error.txt").read())
print("training done", flush=True)
"""
"""It takes the newest file of its folder by time, also what it wrote last and in part; a README names the way around that."""
WALKER = """use strict;
$| = 1;
my ($settings, $saved) = @ARGV;
open(my $in, '<', $settings) or die "$settings: $!";
my %set = map { chomp; split /=/ } <$in>;
my ($sweep, @site) = (0, map { $_ * 0.5 } 1 .. 600);
if (defined $saved) {
    open(my $from, '<:raw', $saved) or die "$saved: $!";
    my $data = do { local $/; <$from> };
    my ($mark, $size) = unpack('a4 N', $data);
    if ($mark ne 'WLK2' or length($data) != $size) { print STDERR "walker: $saved: premature end of the save\\n"; exit 5 }
    ($sweep, @site) = unpack('x8 N d>*', $data);
    print "carries on with $saved behind sweep $sweep\\n";
} else { print "new chain\\n" }
sub keep {
    my ($name, $share) = @_;
    my $body = pack('N d>*', $sweep, @site);
    print "writing $name at sweep $sweep\\n";
    open(my $to, '>:raw', $name) or die "$name: $!";
    print $to substr(pack('a4 N', 'WLK2', 8 + length $body) . $body, 0, $share);
    close $to;
    print "$name complete\\n" if $share > 4000;
}
open(my $chain, $saved ? '>>' : '>', 'chain.txt');
while ($sweep < $set{sweeps}) {
    $sweep++;
    select(undef, undef, undef, $sweep < 37 ? 0.05 : 0.3);
    printf "sweep %d energy %.4f\\n", $sweep, -1 - $sweep / 1000;
    print $chain "$sweep\\n";
    next if $sweep % 7;
    my $name = ($sweep / 7) % 2 ? 'save.odd' : 'save.even';
    if ($sweep == 35 and not -e 'failed') {
        open(my $mark, '>', 'failed');
        keep($name, 1500);
        open(my $error, '<', 'error.txt');
        print STDERR <$error>;
        exit 1;
    }
    keep($name, 1e9);
}
print "training done\\n";
"""
"""Two files in turn, which tell their step neither by name nor in a form that is known; without an argument it begins anew."""


@pytest.fixture
def owner(devcluster: DevCluster, tmp_path: Path) -> User:
    user = User(devcluster, devcluster.shared / tmp_path.name)
    (user.folder / "error.txt").write_text(TIMEOUT)
    return user


def test_a_torn_newest_file_is_not_started_from_and_the_documented_variable_is(engine: Engine, owner: User) -> None:
    (owner.folder / "aquifer.py").write_text(AQUIFER)
    (owner.folder / "kept").mkdir()
    readme = "It goes on from the newest of kept/; from another one: sbatch --export=ALL,RESTART_FILE=kept/zone_0010.sav go.sh\n"
    (owner.folder / "README").write_text(readme)
    owner.script("go.sh", "srun python3 -u aquifer.py")
    first = owner.sbatch("go.sh")
    ended(engine, first)
    incident = watched(engine, first, over, 300)
    assert incident.state is IncidentState.RECOVERED, incident.note
    [trial] = trials(engine, first)
    assert (trial["proven"], trial["variable"]) == ("yes", "RESTART_FILE={checkpoint}"), trial
    second = restarted(engine, first)
    assert f"first day is 41 out of {owner.folder}/kept/zone_0040.sav" in log_of(owner, second)
    assert f"RESTART_FILE={owner.folder}/kept/zone_0040.sav" in previews(engine, first), "what was proven is what was submitted"
    assert (owner.folder / "kept/crash.sav").stat().st_size == 904, "nothing was moved, for nothing had to be"


def test_without_a_documented_way_the_torn_file_is_moved_aside_and_the_start_as_it_is_proven(engine: Engine, owner: User) -> None:
    (owner.folder / "aquifer.py").write_text(AQUIFER.replace('os.environ.get("RESTART_FILE") or ', ""))
    (owner.folder / "kept").mkdir()
    owner.script("go.sh", "srun python3 -u aquifer.py")
    first = owner.sbatch("go.sh")
    ended(engine, first)
    incident = watched(engine, first, over, 300)
    assert incident.state is IncidentState.RECOVERED, incident.note
    [trial] = trials(engine, first)
    assert (trial["proven"], trial["set_aside"]) == ("yes", [f"{owner.folder}/kept/crash.sav"]), trial
    assert "first day is 41 out of kept/zone_0040.sav" in log_of(owner, restarted(engine, first))
    assert (owner.folder / "kept/nightshift-refused/crash.sav").stat().st_size == 904, "it is kept"


def test_a_start_that_was_proven_from_a_file_that_tells_no_step_is_submitted(engine: Engine, owner: User) -> None:
    (owner.folder / "walker.pl").write_text(WALKER)
    (owner.folder / "chain.cfg").write_text("sweeps=90\n")
    comment = "# first: sbatch walk.sh    restart: sbatch walk.sh save.odd   (or save.even, the later one)"
    owner.script("walk.sh", comment, "perl walker.pl chain.cfg $1")
    first = owner.sbatch("walk.sh")
    ended(engine, first)
    assert (owner.folder / "save.odd").stat().st_size == 1500
    incident = watched(engine, first, over, 300)
    assert incident.state is IncidentState.RECOVERED, incident.note
    [trial] = trials(engine, first)
    assert (trial["proven"], trial["step"]) == ("yes", 28), trial
    assert trial["arguments"] in (["save.even"], [f"{owner.folder}/save.even"]), trial
    log = log_of(owner, restarted(engine, first))
    assert f"carries on with {trial['arguments'][0]} behind sweep 28" in log
    assert (owner.folder / "chain.txt").read_text().startswith("1\n2\n"), "it did not begin anew"
