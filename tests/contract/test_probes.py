"""One body over every probe: it is complete, it judges its recorded cases, and it never calls a node bad for want of an answer.

A case is a file tests/cases/probes/<probe>/<name>.toml: what the command printed (`out`, `err`, `status`; `runs` when it did not
end), what is known besides (`[known]`; `earlier` holds the counters of earlier checks, oldest first), and the finding that must
come of it (`[expect]`); `[limits]` sets limits of nodes.
"""

from __future__ import annotations

import importlib
import pkgutil
import tomllib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from assistant.content.devices import limits
from assistant.counting import Kept, Reading, past
from assistant.ports import Reply
from assistant.probing import Circumstances, Finding, Health, worst
from assistant.tooling import Probe
from assistant.tools import probes as package
from assistant.tools.probes import probes
from assistant.tools.probes._check import judged_by

CASES = Path(__file__).parent.parent / "cases" / "probes"
PATHS = sorted(CASES.glob("*/*.toml"))
TODAY = datetime(2026, 2, 11, 12, 0, tzinfo=UTC)
READ_THE_KERNEL = {probe.name for probe in probes() if probe.witness == "kernel"}
NO_NEED_TO_READ = {"reachable", *READ_THE_KERNEL}


def named(name: str) -> Probe:
    return next(probe for probe in probes() if probe.name == name)


def circumstances(known: Mapping[str, Any], own_limits: Mapping[str, Any]) -> Circumstances:
    shipped = limits()
    node = replace(shipped.node, **own_limits)
    now, booted, earlier = known.get("now", TODAY), known.get("booted"), known.get("earlier", [])
    kept = tuple(Reading(one["at"], one.get("booted", booted), one["counts"]) for one in earlier)
    return Circumstances(
        limits=replace(shipped, node=node),
        now=now,
        past=past(Kept(kept), now, booted, timedelta(hours=node.counters_window_h)),
        since=known.get("since", datetime(2000, 1, 1, tzinfo=UTC)),
        asked=known.get("asked"),
        job_started=known.get("job_started"),
        busy=known.get("busy"),
        booted=booted,
    )


@pytest.mark.parametrize("probe", probes(), ids=lambda probe: probe.name)
def test_a_probe_says_what_it_runs_needs_and_rests_on(probe: Probe) -> None:
    assert probe.command
    assert probe.needs
    assert probe.source
    assert probe.witness
    assert probe.keeps in ("head", "tail")
    assert probe.hardware in ("", "nvidia", "amd", "bmc")


@pytest.mark.parametrize("probe", probes(), ids=lambda probe: probe.name)
def test_a_shell_is_used_only_for_constant_text_on_one_line(probe: Probe) -> None:
    assert "\n" not in "".join(probe.command)
    assert probe.command[0] != "sh" or probe.command[1] == "-c"


@pytest.mark.parametrize("probe", probes(), ids=lambda probe: probe.name)
def test_a_probe_has_recorded_cases(probe: Probe) -> None:
    assert list((CASES / probe.name).glob("*.toml"))


def test_every_folder_of_cases_belongs_to_a_probe() -> None:
    assert {path.parent.name for path in PATHS} <= {probe.name for probe in probes()}


@pytest.mark.parametrize("path", PATHS, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_a_recorded_answer_is_judged_as_it_should_be(path: Path) -> None:
    case = tomllib.loads(path.read_text(encoding="utf-8"))
    reply = Reply("node01", True, case.get("status", 0), case.get("out", "").removeprefix("\n"), case.get("err", ""))
    reply = replace(reply, status=None) if case.get("runs") else reply
    found = judged_by(named(path.parent.name), reply, circumstances(case.get("known", {}), case.get("limits", {})))
    expect = case["expect"]
    assert worst(one.status for one in found) == expect["status"], found
    for wanted in [expect["text"]] if isinstance(expect.get("text"), str) else expect.get("text", []):
        assert any(wanted in one.text for one in found), found
    for unwanted in expect.get("not_text", []):
        assert not any(unwanted in one.text for one in found), found
    of_status = [one for one in found if one.status == expect["status"]]
    for key in ("value", "limit", "unit", "weight"):
        if key in expect:
            assert expect[key] in [getattr(one, key) for one in of_status], found
    if "count" in expect:
        assert len(found) == expect["count"], found
    complete(found)


def complete(found: Sequence[Finding]) -> None:
    """Assert what holds of every finding."""
    assert found
    for one in found:
        assert one.text
        assert "{}" not in one.text
        assert one.status is not Health.UNKNOWN or one.weight == "never"
        if one.status in (Health.WARNING, Health.CRITICAL):
            assert one.remedy, one


GARBAGE = [
    "",
    "\n",
    "garbage \x00 \ufffd",
    "1 2 3",
    "<xml/>",
    "{}",
    "[]",
    "\ufffd" * 5000,
    "Fehler: Datei nicht gefunden\n",
    "Welcome to gpu001!\n",
]


@pytest.mark.parametrize("out", GARBAGE)
@pytest.mark.parametrize("probe", [p for p in probes() if p.name not in NO_NEED_TO_READ], ids=lambda p: p.name)
def test_an_answer_that_cannot_be_read_is_unknown_never_bad(probe: Probe, out: str) -> None:
    assert [one.status for one in probe.parse(Reply("node01", True, 0, out, ""), circumstances({}, {}))] == ["unknown"]


@pytest.mark.parametrize("out", GARBAGE)
@pytest.mark.parametrize("probe", [p for p in probes() if p.counts], ids=lambda p: p.name)
def test_an_answer_that_cannot_be_read_has_no_counters(probe: Probe, out: str) -> None:
    assert probe.counts is not None
    assert probe.counts(Reply("node01", True, 0, out, ""), circumstances({}, {})) == {}


@pytest.mark.parametrize("out", GARBAGE)
@pytest.mark.parametrize("name", sorted(READ_THE_KERNEL))
def test_a_kernel_log_that_cannot_be_read_is_never_bad(name: str, out: str) -> None:
    found = named(name).parse(Reply("node01", True, 0, out, ""), circumstances({}, {}))
    assert {one.status for one in found} <= {"ok", "unknown"}


@pytest.mark.parametrize(
    "reply",
    [
        Reply("n", False, None, "", "no route to host"),
        Reply("n", True, 127, "", "not found"),
        Reply("n", True, 126, "", "permission denied"),
        Reply("n", True, 141, "y\n" * 400_000, ""),
        Reply("n", True, 124, "", ""),
        Reply("n", True, None, "", ""),
        Reply("n", True, 1, "", "dmesg: read kernel buffer failed: Operation not permitted"),
    ],
    ids=["unreachable", "missing", "forbidden", "endless", "stopped", "runs", "refused"],
)
@pytest.mark.parametrize("probe", probes(), ids=lambda probe: probe.name)
def test_what_could_not_be_asked_is_unknown_never_bad(probe: Probe, reply: Reply) -> None:
    found = judged_by(probe, reply, circumstances({}, {}))
    assert [one.status for one in found] == ["unknown"]
    assert found[0].weight == "never"


@pytest.mark.parametrize("probe", [p for p in probes() if p.package], ids=lambda probe: probe.name)
def test_a_missing_program_is_named_with_the_package_to_install(probe: Probe) -> None:
    (found,) = judged_by(probe, Reply("n", True, 127, "", ""), circumstances({}, {}))
    assert probe.needs in found.text
    assert probe.package in found.remedy
    assert found.missing


def test_every_probe_of_the_folder_is_run_and_has_a_name_of_its_own() -> None:
    modules = [importlib.import_module(f"{package.__name__}.{module.name}") for module in pkgutil.iter_modules(package.__path__)]
    defined = {id(value): value for module in modules for value in vars(module).values() if isinstance(value, Probe)}
    assert sorted(probe.name for probe in defined.values()) == sorted(probe.name for probe in probes())
    assert len(defined) > 25


def test_reachable_comes_first() -> None:
    assert probes()[0].name == "reachable"
