"""ssh_config: what the files say about a host is what OpenSSH would make of them."""

from __future__ import annotations

import os
import tomllib
from pathlib import Path
from typing import Any

import pytest

from assistant.errors import ConfigError
from assistant.transports.ssh_hosts import Hosts, Me

CASES = tomllib.loads((Path(__file__).parents[1] / "cases" / "ssh" / "config.toml").read_text())["case"]


def hosts(home: Path, files: dict[str, str]) -> Hosts:
    for name, text in {"known_hosts": "", **files}.items():
        path = home / ".ssh" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    me = Me(user="alice", home=home, uid=1000, machine="admin1.example.org", environment={"KEYS": "/keys"})
    found = Hosts(me=me, system=home / "etc")
    found.refresh()
    return found


def plain(value: Any, home: Path) -> Any:
    if isinstance(value, tuple):
        return [plain(each, home) for each in value]
    return str(value).replace(str(home), "HOME") if isinstance(value, Path | str) else value


@pytest.mark.parametrize("case", [pytest.param(case, id=case["title"]) for case in CASES])
def test_settings_are_read_as_openssh_reads_them(case: dict[str, Any], tmp_path: Path) -> None:
    if "says" in case:
        with pytest.raises(ConfigError) as refused:
            hosts(tmp_path, case.get("files", {})).route(case["host"])
        assert case["says"] in str(refused.value)
        return
    route = hosts(tmp_path, case.get("files", {})).route(case["host"])
    for key, wanted in case.get("is", {}).items():
        assert plain(getattr(route[-1], key), tmp_path) == wanted, key
    if "route" in case:
        assert [f"{host.user}@{host.hostname}:{host.port}" for host in route] == case["route"]


def test_a_file_that_changes_is_read_again(tmp_path: Path) -> None:
    found = hosts(tmp_path, {"config": "User first\n"})
    assert found.route("node03")[-1].user == "first"
    (tmp_path / ".ssh" / "config").write_text("User second_one\n")
    found.refresh()
    assert found.route("node03")[-1].user == "second_one"


def test_the_files_of_the_machine_come_after_ones_own(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "ssh_config").write_text("User of_machine\nPort 2222\nInclude extra\n")
    (tmp_path / "etc" / "extra").write_text("HostName by_extra\n")
    found = hosts(tmp_path, {"config": "User of_alice\n"}).route("node03")[-1]
    assert (found.user, found.port, found.hostname) == ("of_alice", 2222, "by_extra")
    assert str(tmp_path / "etc" / "ssh_known_hosts") in [str(path) for path in found.known_hosts]


def test_a_file_of_ones_choice_stands_alone(tmp_path: Path) -> None:
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc" / "ssh_config").write_text("Port 2222\n")
    (tmp_path / "mine").write_text("User chosen\n")
    found = Hosts(tmp_path / "mine", me=Me(user="alice", home=tmp_path, environment={}), system=tmp_path / "etc")
    found.refresh()
    assert (found.route("node03")[-1].user, found.route("node03")[-1].port) == ("chosen", 22)


@pytest.mark.skipif(os.geteuid() == 0, reason="root reads everything")
def test_a_file_that_may_not_be_read_holds_nothing(tmp_path: Path) -> None:
    found = hosts(tmp_path, {"config": "User secret\n"})
    (tmp_path / ".ssh" / "config").chmod(0)
    found.refresh()
    assert found.route("node03")[-1].user == "alice"


def test_a_thousand_nodes_with_a_block_each_are_found_in_a_moment(tmp_path: Path) -> None:
    found = hosts(tmp_path, {"config": "".join(f"Host node{n}\n  HostName 10.0.0.{n % 250}\n" for n in range(1000))})
    assert len({found.route(f"node{n}")[-1].hostname for n in range(0, 1000, 100)}) == 5
