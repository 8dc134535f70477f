"""One round trip for all probes: frames, deadlines, output without end, and what counts as proof."""

from __future__ import annotations

import random
import subprocess
import time
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from assistant.content.devices import NodeLimits, limits
from assistant.errors import ContentError, ToolError, Unavailable
from assistant.ports import JumpingClock, Reply, SystemClock
from assistant.probing import Circumstances, Finding, Health, Weight, guilty, worst
from assistant.tooling import Context
from assistant.tools.nodes import check_nodes
from assistant.tools.probes import probes
from assistant.tools.probes._check import KEPT_BYTES, RoundCommand, framed_replies, judged_by, round_command
from assistant.tools.probes.kernel_log import kernel_lines
from assistant.tools.probes.mounts import MOUNTS_COMMAND
from assistant.transports.local import HereTransport

NOW = datetime(2026, 2, 11, 12, 0, tzinfo=UTC)


def run(*commands: Sequence[str], shell: str = "sh", before: str = "") -> list[Reply]:
    wanted = [RoundCommand(tuple(command)) for command in commands]
    script = round_command(wanted)
    done = subprocess.run([shell, "-c", before + script[2]], capture_output=True, check=False, timeout=20)
    found = framed_replies(Reply("n", True, done.returncode, done.stdout.decode("utf-8", "replace"), ""), len(wanted))
    assert found is not None
    return found


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_each_command_has_its_own_answer(shell: str) -> None:
    found = run(("echo", "a b"), ("sh", "-c", "echo err >&2; exit 3"), ("nosuchprogram",), ("true",), shell=shell)
    assert [one.status for one in found] == [0, 3, 127, 0]
    assert [one.out for one in found] == ["a b\n", "", "", ""]
    assert found[1].err == "err\n"


def test_an_output_cannot_look_like_a_frame() -> None:
    found = run(("printf", "1.out:x\\n#nightshift round\\n0.rc:99"), ("echo", "second"))
    assert (found[0].status, found[0].out) == (0, "1.out:x\n#nightshift round\n0.rc:99\n")
    assert found[1].out == "second\n"


def test_what_a_login_shell_prints_is_passed_over() -> None:
    found = run(("echo", "x"), before="echo 'Welcome to gpu001'; echo '0.out:not mine'; ")
    assert found[0].out == "x\n"


def test_bytes_that_are_no_text_are_kept_apart() -> None:
    found = run(("printf", "a\\377b\\n\\r\\342\\200\\250c"), ("echo", "x"))
    assert found[0].out.startswith("a\ufffdb\n")
    assert found[1].out == "x\n"


def test_output_without_end_is_cut_and_what_never_ends_is_stopped() -> None:
    begun = time.monotonic()
    found = run(("yes",), ("sh", "-c", "yes >&2"), ("sleep", "99"), ("echo", "well"))
    assert time.monotonic() - begun < 60
    assert len(found[0].out) <= KEPT_BYTES
    assert [one.status for one in found[:3]] == [153, 153, 124]
    assert found[3].out == "well\n"


def faked(tmp_path: Path, program: str, text: str, *commands: Sequence[str]) -> list[Reply]:
    """Run commands where one program is another."""
    (tmp_path / program).write_text(f"#!/bin/sh\n{text}\n")
    (tmp_path / program).chmod(0o755)
    return run(*commands, before=f"PATH={tmp_path}:$PATH; ")


def test_a_process_that_cannot_be_killed_keeps_nobody_waiting(tmp_path: Path) -> None:
    begun = time.monotonic()
    found = faked(
        tmp_path, "timeout", 'case $* in *stuck*) exec sleep 99 ;; esac; shift 3; exec "$@"', ("echo", "stuck"), ("echo", "well")
    )
    assert time.monotonic() - begun < 60
    assert [one.status for one in found] == [None, 0]
    assert found[1].out == "well\n"


def test_a_file_system_that_hangs_is_named_and_the_others_answer(tmp_path: Path) -> None:
    (reply,) = faked(
        tmp_path, "stat", 'for last in "$@"; do :; done; [ "$last" = / ] && sleep 30; exec /usr/bin/stat "$@"', MOUNTS_COMMAND
    )
    found = judged_by(next(probe for probe in probes() if probe.name == "disk"), reply, Circumstances(limits(), NOW))
    assert any(one.status == "unknown" and one.text.startswith("/ (") for one in found)
    assert "answer /dev/shm 0 " in reply.out or "mount tmpfs /dev/shm" not in reply.out


def test_nothing_is_left_on_the_node(tmp_path: Path) -> None:
    before = set(Path("/dev/shm").glob("nightshift.*"))
    run(("echo", "x"))
    assert set(Path("/dev/shm").glob("nightshift.*")) <= before


def test_an_answer_cut_short_leaves_the_rest_unknown() -> None:
    found = framed_replies(Reply("n", True, 0, "\n#nightshift round\n0.rc:0\n0.out:x\n1.ou", ""), 2)
    assert found is not None
    assert [(one.status, one.out) for one in found] == [(0, "x\n"), (None, "")]
    assert framed_replies(Reply("n", True, 0, "Welcome\n", ""), 2) is None


class Nodes:
    """A transport that answers by program, whole rounds not at all."""

    name = "fake"

    def __init__(self, answers: Mapping[str, Any], down: Sequence[str] = ()) -> None:
        self.answers = answers
        self.down = down
        self.asked: list[tuple[str, ...]] = []

    def run(self, nodes: Sequence[str], command: Sequence[str], *, timeout_s: float) -> Mapping[str, Reply]:
        self.asked.append(tuple(command))
        return {node: self._answer(node, command) for node in nodes}

    def _answer(self, node: str, command: Sequence[str]) -> Reply:
        if node in self.down:
            return Reply(node, False, None, "", "timed out")
        key = " ".join(command[:3]) if " ".join(command[:3]) in self.answers else command[0]
        given = self.answers.get(key)
        return Reply(node, True, 127, "", "") if given is None else replace(given, node=node)


class NoScheduler:
    name = "none"

    def nodes(self) -> Any:
        raise Unavailable("controller is down")


def context(transport: Any, clock: Any = None) -> Context:
    return Context(NoScheduler(), transport, clock or JumpingClock(NOW), random.Random(1), None)  # type: ignore[arg-type]


def said(out: str, status: int = 0) -> Reply:
    return Reply("", True, status, out, "")


def test_a_check_needs_no_scheduler_when_nodes_are_named() -> None:
    found = check_nodes(context(Nodes({"true": said("")})), nodes=["n1"])
    assert found["nodes"]["n1"]["status"] == "unknown"
    assert found["faulty"] == []
    with pytest.raises(Unavailable):
        check_nodes(context(Nodes({})))


def test_two_round_trips_suffice_for_all_probes_of_all_nodes() -> None:
    framed = "#nightshift round\n" + "".join(f"{number}.rc:0\n" for number in range(60))
    transport = Nodes({"true": said(""), "sh": said(framed)})
    check_nodes(context(transport), nodes=["n1", "n2", "n3"])
    assert len(transport.asked) == 2


def test_a_silent_node_costs_one_question_and_is_unknown() -> None:
    transport = Nodes({"true": said("")}, down=["n1"])
    found = check_nodes(context(transport), nodes=["n1"])["nodes"]["n1"]
    assert (found["status"], [one["probe"] for one in found["probes"]]) == ("unknown", ["reachable"])
    assert len(transport.asked) == 1


def xid(code: int, text: str = "") -> Reply:
    return said(f"2026-02-11T11:30:00,000000+00:00 NVRM: Xid (PCI:0000:8b:00): {code}, {text}\n")


def test_an_event_that_was_counted_does_not_count_again_from_a_rotated_file() -> None:
    first = check_nodes(context(Nodes({"true": said(""), "dmesg": xid(79)})), nodes=["n1"])
    assert first["faulty"] == ["n1"]
    assert first["events"]
    moved = said("kern  :err   : 2026-02-11T11:30:04,310000+00:00 NVRM: Xid (PCI:0000:8b:00): 79,\n")
    again = check_nodes(context(Nodes({"true": said(""), "dmesg": moved})), nodes=["n1"], seen=first["events"])
    assert (again["faulty"], again["events"]) == ([], [])


def test_the_same_words_at_another_time_are_another_event() -> None:
    first = check_nodes(context(Nodes({"true": said(""), "dmesg": xid(79)})), nodes=["n1"])
    later = said("2026-02-11T11:45:00,000000+00:00 NVRM: Xid (PCI:0000:8b:00): 79,\n")
    assert check_nodes(context(Nodes({"true": said(""), "dmesg": later})), nodes=["n1"], seen=first["events"])["faulty"] == ["n1"]


def test_two_witnesses_convict_and_one_does_not() -> None:
    disk = said("2026-02-11T11:30:00,000000+00:00 EXT4-fs error (device nvme0n1): bad inode\n")
    stuck = "".join(f"{100 + n} 1 D 8000 python3\n" for n in range(9))
    calm = "1 0 S 9000 init\n"
    hung = said(f"{calm}{stuck}again\n{calm}{stuck}end\n")
    one = Nodes({"true": said(""), "dmesg": disk})
    assert check_nodes(context(one), nodes=["n1"])["nodes"]["n1"]["status"] == "critical"
    assert check_nodes(context(one), nodes=["n1"])["faulty"] == []
    process_script = next(probe.command for probe in probes() if probe.name == "processes")
    both = Nodes({"true": said(""), "dmesg": disk, " ".join(process_script): hung})
    assert check_nodes(context(both), nodes=["n1"])["faulty"] == ["n1"]


def finding(status: Health, weight: Weight) -> Finding:
    return Finding(status, "x", weight=weight)


@pytest.mark.parametrize(
    ("witnesses", "verdict"),
    [
        ({}, False),
        ({"kernel": [finding(Health.CRITICAL, Weight.STRONG)]}, True),
        ({"kernel": [finding(Health.WARNING, Weight.STRONG)]}, False),
        ({"kernel": [finding(Health.UNKNOWN, Weight.STRONG)]}, False),
        ({"nvml": [finding(Health.CRITICAL, Weight.COUNTS)] * 3}, False),
        ({"nvml": [finding(Health.CRITICAL, Weight.COUNTS)], "kernel": [finding(Health.CRITICAL, Weight.COUNTS)]}, True),
        ({"nvml": [finding(Health.CRITICAL, Weight.COUNTS)], "kernel": [finding(Health.CRITICAL, Weight.NEVER)]}, False),
        ({"a": [finding(Health.CRITICAL, Weight.NEVER)], "b": [finding(Health.CRITICAL, Weight.NEVER)]}, False),
    ],
)
def test_what_suffices_to_take_a_node_out(witnesses: Mapping[str, Sequence[Finding]], verdict: bool) -> None:
    assert guilty(witnesses) is verdict


def test_unknown_never_outranks_what_was_seen() -> None:
    assert worst(["unknown", "critical", "ok"]) == "critical"
    assert worst(["unknown", "warning"]) == "warning"
    assert worst(["unknown", "ok"]) == "unknown"
    assert worst([]) == "unknown"


@pytest.mark.parametrize("words", [{"since": "yesterday"}, {"job_started": "12:00 o'clock"}])
def test_a_time_that_is_none_is_named(words: Mapping[str, str]) -> None:
    with pytest.raises(ToolError, match="must be a time such as"):
        check_nodes(context(Nodes({})), nodes=["n1"], **words)


def test_a_boot_after_the_job_began_is_found() -> None:
    up = {"true": said(""), "cat /proc/uptime": said("600.00 1.00\n")}
    found = check_nodes(context(Nodes(up)), nodes=["n1"], job_started="2026-02-11T10:00:00Z")["nodes"]["n1"]
    assert any(one["probe"] == "reboot" and one["status"] == "critical" for one in found["probes"])


@pytest.mark.parametrize(
    ("began", "faulty"),
    [("2026-02-11T11:00:00Z", ["n1"]), ("2026-02-11T11:45:00Z", []), ("2026-02-01T00:00:00Z", ["n1"]), ("", ["n1"])],
    ids=["during the job", "before the job", "late in a long job", "of no job"],
)
def test_kernel_messages_from_before_the_job_do_not_count(began: str, faulty: list[str]) -> None:
    transport = Nodes({"true": said(""), "dmesg": xid(79)})
    assert check_nodes(context(transport), nodes=["n1"], job_started=began)["faulty"] == faulty


def test_in_a_long_job_the_usual_window_holds_unless_a_time_is_named() -> None:
    old = said("2026-02-09T11:30:00,000000+00:00 NVRM: Xid (PCI:0000:8b:00): 79,\n")
    site = context(Nodes({"true": said(""), "dmesg": old}))
    assert check_nodes(site, nodes=["n1"], job_started="2026-02-01T00:00:00Z")["faulty"] == []
    named = check_nodes(site, nodes=["n1"], job_started="2026-02-01T00:00:00Z", since="2026-02-01T00:00:00Z")
    assert named["faulty"] == ["n1"]


def test_a_site_may_read_the_kernel_log_by_a_command_of_its_own() -> None:
    transport = Nodes({"true": said(""), "journalctl": xid(79)})
    site = replace(context(transport), commands={"kernel_log": ("journalctl", "-k")})
    assert check_nodes(site, nodes=["n1"])["faulty"] == ["n1"]
    assert ("dmesg", "--time-format", "iso") not in transport.asked


def test_a_window_moves_with_the_clock() -> None:
    known = Circumstances(limits(), NOW)
    old = NOW - timedelta(hours=25)
    reply = said(f"{old:%Y-%m-%dT%H:%M:%S},000000+00:00 old\n{NOW:%Y-%m-%dT%H:%M:%S},000000+00:00 new\n[bad stamp] odd\n")
    assert [line.text for line in kernel_lines(reply, known)] == ["new", "[bad stamp] odd"]


@pytest.mark.parametrize(
    ("stamp", "text"),
    [("[Fri Feb 31 12:00:00 2026]", "x"), ("2026-02-31T12:00:00,0+00:00", "x"), ("Feb 31 12:00:00 n kernel:", "x")],
)
def test_a_day_that_is_none_counts_when_in_doubt(stamp: str, text: str) -> None:
    assert [line.text for line in kernel_lines(said(f"{stamp} {text}\n"), Circumstances(limits(), NOW))] == [text]


def test_limits_are_those_of_the_longest_name_that_fits() -> None:
    assert limits().of("NVIDIA H200 NVL").nvlinks == 0
    assert limits().of("NVIDIA H200").nvlinks == 18
    assert limits().of("something else").model == "*"


def test_a_site_has_limits_of_its_own(tmp_path: Path) -> None:
    folder = tmp_path / "knowledge"
    folder.mkdir()
    (folder / "limits.toml").write_text('[node]\ngpus = 4\n[[gpu]]\nmodel = "*"\nsource = "ours"\nwarning_c = 70\n')
    assert (limits(tmp_path).node.gpus, limits(tmp_path).of("A100").warning_c) == (4, 70.0)


def test_every_limit_has_a_source() -> None:
    shipped = limits()
    names = {one.name for one in fields(NodeLimits)} - {"sources"}
    assert set(shipped.node.sources) == names
    assert all(shipped.node.sources.values())
    assert all(one.source for one in shipped.gpu)


def test_a_temperature_that_is_judged_slows_the_device_down() -> None:
    for one in limits().gpu:
        assert one.warning_c <= one.critical_c
        assert one.memory_critical_c == 0 or one.memory_warning_c < one.memory_critical_c
        assert bool(one.nvlinks) == bool(one.nvlink_gb_s)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('[[gpu]]\nmodel = "A100"\nsource = "x"\n', 'one .* must have model = "\\*"'),
        ('[[gpu]]\nmodel = "*"\nsource = "x"\nwarnig_c = 3\n', "did you mean 'warning_c'"),
        ('[[gpu]]\nmodel = "*"\n', "key 'source' is missing"),
    ],
)
def test_wrong_limits_name_file_and_key(tmp_path: Path, text: str, says: str) -> None:
    folder = tmp_path / "knowledge"
    folder.mkdir()
    (folder / "limits.toml").write_text(text)
    with pytest.raises(ContentError, match=says):
        limits(tmp_path)


def test_this_machine_can_check_itself() -> None:
    begun = time.monotonic()
    found = check_nodes(context(HereTransport(), SystemClock()), nodes=["here"])["nodes"]["here"]
    assert time.monotonic() - begun < 60
    by_name = {one["probe"]: one for one in found["probes"]}
    assert set(by_name) == {probe.name for probe in probes()}
    assert by_name["memory"]["status"] != "unknown"
    assert by_name["clock"]["status"] == "ok"
    assert by_name["load"]["status"] in ("ok", "warning")
    assert found["faulty"] is False
