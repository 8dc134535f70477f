"""Who had used up the memory of a node, by the kernel's own lines."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from assistant.diagnose.readers.kernel import MemoryUser, memory_hogs, memory_users
from assistant.engine.evidence.resource_holders import room_again
from assistant.tools.holders import _AMOUNT, _LIVE_PROCESS, _MEMORY_PROGRAM

AT = "2026-11-27T04:06:{second},054038+00:00 "
KILLED = (
    "Out of memory: Killed process {pid} ({name}) total-vm:1kB, anon-rss:{kib}kB, file-rss:{file}kB, shmem-rss:0kB, UID:{uid} "
    "pgtables:24100kB oom_score_adj:0"
)
NEW = "\n".join(
    (
        "# gpu001",
        AT.format(second=40) + "Rscript invoked oom-killer: gfp_mask=0x140cca(GFP_HIGHUSER_MOVABLE|__GFP_COMP), order=0",
        AT.format(second=41) + KILLED.format(pid=4471, name="Rscript", kib=962003412, file=0, uid=2417),
        AT.format(second=42) + KILLED.format(pid=118, name="python3", kib=9120044, file=2048, uid=2001),
        "# gpu002",
        AT.format(second=42) + KILLED.format(pid=119, name="python3", kib=1, file=0, uid=2001),
    )
)
MANY = "[Tue Jun  3 10:08:57 2025] "
TABLE = "\n".join(
    MANY + line
    for line in (
        "[  pid  ]   uid  tgid total_vm      rss rss_anon rss_file rss_shmem pgtables_bytes swapents oom_score_adj name",
        "[   4471]  2417  4471 245300778 240500853 240500853        0         0 1884000        0             0 Rscript",
        "[   8812]  1042  8812   460803   253083   253083        0         0   3321        0             0 python3",
        "oom-kill:constraint=CONSTRAINT_NONE,nodemask=(null),cpuset=step_0,mems_allowed=0-1,global_oom,"
        "task_memcg=/system.slice/slurmstepd.scope/job_812/step_0,task=python3,pid=8812,uid=1042",
        KILLED.format(pid=8812, name="python3", kib=1012332, file=0, uid=1042),
    )
)
GROUP = TABLE.splitlines()[-1].replace("Out of memory", "Memory cgroup out of memory")
HOG = MemoryUser("gpu001", 4471, "Rscript", 2417, 962_003_412, killed=True)
OWN = MemoryUser("gpu001", 118, "python3", 2001, 9_122_092, killed=True)


def test_the_kernel_names_each_process_that_it_killed() -> None:
    users = memory_users(NEW, [NEW.splitlines()[3]], ("gpu001", "gpu002"))
    assert users == [HOG, OWN]
    assert memory_hogs(users, 2001, "1") == (HOG, (OWN,))


def test_the_table_names_who_was_not_killed() -> None:
    users = memory_users(TABLE, [TABLE.splitlines()[-1]])
    assert [(user.name, user.uid, user.killed, user.job) for user in users] == [
        ("Rscript", 2417, False, ""),
        ("python3", 1042, True, "812"),
    ]
    assert users[0].gib == pytest.approx(917, abs=1)
    found = memory_hogs(users, 1042, "812")
    assert found is not None
    assert found[0].pid == 4471


@pytest.mark.parametrize(
    "users",
    [
        (HOG,),  # none of the job's own was killed by the kernel
        (replace(HOG, resident_kib=3 * OWN.resident_kib), OWN),  # the job's own need was no small one
        (replace(HOG, uid=2001), OWN),  # of the same owner
        (replace(HOG, uid=None), OWN),
        (HOG, replace(OWN, uid=None)),
        (HOG, replace(OWN, job="7")),  # of another job of the same owner
        (HOG, replace(OWN, killed=False)),
        (OWN,),
    ],
)
def test_nobody_else_is_the_cause_where_the_lines_do_not_say_so(users: tuple[MemoryUser, ...]) -> None:
    assert memory_hogs(users, 2001, "1") is None


def test_a_limit_of_a_cgroup_and_an_earlier_shortage_are_no_lines_of_it() -> None:
    assert memory_users(GROUP, [GROUP]) == []
    earlier = NEW.replace("2026-11-27T04:06:41", "2026-11-26T04:06:41")
    assert memory_users(earlier, [NEW.splitlines()[3]], ("gpu001",)) == [OWN]
    assert memory_users(NEW, []) == []


GIB = 1 << 30


@pytest.mark.parametrize(
    ("row", "free"),
    [
        ({"total_bytes": 1000 * GIB, "available_bytes": 900 * GIB, "processes": []}, True),
        ({"total_bytes": 1000 * GIB, "available_bytes": 50 * GIB, "processes": []}, False),
        ({"total_bytes": 100 * GIB, "available_bytes": 12 * GIB, "processes": []}, False),  # less than twice what the job held
        ({"total_bytes": 1000 * GIB, "available_bytes": 900 * GIB, "processes": [{"pid": 4471, "uid": 2417, "name": "R"}]}, False),
        ({"total_bytes": 1000 * GIB, "available_bytes": 900 * GIB, "processes": [{"pid": 4471, "uid": 0, "name": "sh"}]}, True),
    ],
)
def test_a_node_has_room_again_where_the_process_is_gone_and_memory_is_free(row: dict[str, Any], free: bool) -> None:
    assert room_again(row, HOG, [OWN]) is free


def test_a_node_tells_its_memory_and_who_lives() -> None:
    command = ["sh", "-c", _MEMORY_PROGRAM, "sh", "1", "4194999"]
    printed = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert {name for name, _ in _AMOUNT.findall(printed)} == {"MemTotal", "MemAvailable"}
    name = Path("/proc/1/comm").read_text().strip()
    assert [(pid, comm) for pid, _, comm in _LIVE_PROCESS.findall(printed)] == [("1", name)]
    assert printed.endswith("end\n")
