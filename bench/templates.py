"""Measure the template miner beside Drain3: grouping accuracy with the same masks on the same lines, and speed.

    python -m bench.templates [--lines 2000] [--speed-lines 400000] [--misses]

The lines are made: fifteen kinds of programs (templates.toml), values drawn, frequent templates and rare ones (Zipf). Grouping
accuracy is the share of lines whose group is exactly that of their template, the stricter of the usual figures. Each source is run
alone and in three orders of its lines; what is printed is the mean.
"""

from __future__ import annotations

import argparse
import random
import string
import sys
import time
import tomllib
from collections import defaultdict
from collections.abc import Callable, Hashable, Sequence
from pathlib import Path
from typing import Any

from assistant.logs import prefix
from assistant.logs.templates import Miner, homes

Lines = list[tuple[int, str]]
"""Number of the template and the line."""

_CHOICES = {
    "user": "root admin test oracle guest ubuntu postgres mysql ada grace linus ken dennis barbara alan git nagios deploy",
    "unit": "B KB MB GB",
    "zkstate": "LOOKING FOLLOWING LEADING",
    "onoff": "on off",
    "partition": "gpu cpu debug batch long",
    "nic": "ib0 ib1 eth0 eth1 bond0 ens3f0 enp65s0",
    "hca": "mlx5_0 mlx5_1 mlx5_2 mlx5_5 mlx5_bond_0",
    "fabric": "IB RoCE",
    "envname": "IB_TIMEOUT SOCKET_NTHREADS NSOCKS_PERTHREAD MIN_NCHANNELS P2P_LEVEL BUFFSIZE IB_QPS_PER_CONNECTION CROSS_NIC",
    "module": "__main__ data.loader trainer utils.ckpt model.gpt eval.harness",
    "model": "llama-7b gpt2-xl mistral-7b-v0.3 falcon qwen2-72b internlm2-20b bert-base-uncased",
    "ns": "default kube-system training monitoring",
    "container": "trainer sidecar init-data exporter proxy logger",
    "proc": "python python3 pt_main_thread java dockerd nv-hostengine sshd kworker/u96:2",
    "lib": "libc.so.6 libnccl.so.2.21.5 libtorch_cuda.so libpthread-2.31.so libcuda.so.535.104.05",
    "disk": "sda1 nvme0n1p1 dm-0 md127 sdb",
    "volume": "scratch-OST0004 home-MDT0000 storage129 storage442 lustre2-OST001f",
    "cfile": "client.c import.c osc_request.c ldlm_lib.c niobuf.c",
    "func": "ptlrpc_check_set osc_build_rpc ll_file_open target_handle_connect run_job init_table do_recv",
    "lustreop": "ost_read ost_write ldlm_enqueue mds_connect ost_statfs obd_ping",
    "apparmor": "ALLOWED DENIED STATUS",
    "operation": "open exec mknod getattr file_mmap profile_replace",
    "argument": "adam_beta1 bf16 hidden_size lr seq_length global_batch_size train_iters weight_decay zero_enabled "
    "fp16_enabled clip_grad num_layers",
    "argvalue": "True False None 0.9 8192 1024 cosine 0.0003 [1] gpt adam",
    "split": "train valid test",
    "timer": "forward-backward optimizer all-grads-sync save-checkpoint batch-generator params-all-gather",
    "layer": "mlp.linear_fc1 mlp.linear_fc2 self_attention.linear_qkv self_attention.linear_proj input_layernorm",
    "backend": "nccl gloo mpi ccl",
    "yarn": "NEW UNASSIGNED ASSIGNED RUNNING SUCCEEDED KILLED INITED SETUP COMMITTING SUCCESS_CONTAINER_CLEANUP",
    "javaclass": "org.apache.hadoop.mapreduce.v2.app.job.event.JobEventType org.apache.hadoop.mapreduce.jobhistory.EventType "
    "org.apache.hadoop.mapreduce.v2.app.speculate.Speculator",
    "bucket": "datasets checkpoints tokens home scratch web-crawl code logs",
    "health": "healthy degraded lost recovering",
    "waits": "subops rw-locks journal degraded-object",
    "fstype": "ext4 xfs lustre nfs4 tmpfs",
}
_PHRASES = (
    *("disk is full", "NHC: check_hw_ib failed", "maintenance of rack 7", "image pull"),
    *("bad cable on port 12", "reg.io/a/b:v1.2", "curl/8.1", "pvc-data"),
)


def _values(rng: random.Random) -> dict[str, Callable[[], str]]:
    """Return for each kind of value a function that draws one."""

    def several(draw: Callable[[], str], between: str) -> Callable[[], str]:
        return lambda: between.join(draw() for _ in range(rng.randint(1, 4)))

    def token() -> str:
        return "".join(rng.choices(string.ascii_letters + string.digits, k=rng.randint(12, 20)))

    def ip() -> str:
        return ".".join(str(rng.randint(1, 254)) for _ in range(4))

    def integer() -> str:
        return str(int(10 ** rng.uniform(1, 7)))

    def hexa() -> str:
        return f"0x{rng.getrandbits(rng.choice((16, 32, 48))):x}"

    def node() -> str:
        return rng.choice(("node", "gpu-", "n")) + f"{rng.randint(1, 999):03}"

    def clock() -> str:
        return f"{rng.randint(0, 23):02}:{rng.randint(0, 59):02}:{rng.randint(0, 59):02}"

    drawn: dict[str, Callable[[], str]] = {
        "id": lambda: str(rng.randint(-(2**62), 2**62)),
        "ip": ip,
        "ips": several(lambda: f"{ip()}:{rng.randint(1024, 65535)}", " "),
        "port": lambda: str(rng.randint(1024, 65535)),
        "int": integer,
        "ints": several(integer, ", "),
        "small": lambda: str(rng.randint(0, 64)),
        "wide": lambda: f"{rng.randint(1, 500_000):8}",
        "gpu": lambda: str(rng.randint(0, 7)),
        "float": lambda: f"{rng.uniform(0, 4000):.{rng.randint(1, 3)}f}",
        "exp": lambda: f"{rng.uniform(0, 10):.6E}",
        "hexa": hexa,
        "path": lambda: (
            "/"
            + "/".join(
                rng.choice(("data", "lustre", "home", "mnt", "ckpt", "run-7", "x.bin", "user_12")) for _ in range(rng.randint(2, 5))
            )
        ),
        "url": lambda: rng.choice(("s3://", "hdfs://", "https://")) + f"{node()}/{token()}",
        "host": lambda: rng.choice((f"{node()}.cluster.local", f"{ip().replace('.', '-')}.dyn.example.net", ip())),
        "node": node,
        "nodelist": lambda: rng.choice(
            (node(), f"node[{rng.randint(1, 99):03}-{rng.randint(100, 999)}]", f"gpu-[{rng.randint(1, 9)},{rng.randint(10, 99)}]")
        ),
        "alt": lambda: f"alt{rng.randint(0, 3)}",
        "token": token,
        "quote": lambda: f'"{rng.choice(_PHRASES)}"',
        "bus": lambda: f"0000:{rng.randint(0, 255):02x}:00.{rng.randint(0, 1)}",
        "trees": lambda: " ".join(
            f"[{n}] {rng.randint(0, 7)}/-1/-1->{rng.randint(0, 7)}->{rng.randint(-1, 7)}" for n in range(rng.randint(1, 4))
        ),
        "affinity": lambda: ",".join(f"{rng.getrandbits(32):08x}" for _ in range(rng.randint(1, 4))),
        "time": lambda: f"2026-02-{rng.randint(1, 28):02} {clock()},{rng.randint(0, 999):03}",
        "glog": lambda: f"02{rng.randint(1, 28):02} {clock()}.{rng.randint(0, 999999):06}",
        "uuid": lambda: "-".join(f"{rng.getrandbits(4 * n):0{n}x}" for n in (8, 4, 4, 4, 12)),
        "pod": lambda: f"{rng.choice(('llm', 'gpt', 'eval'))}-worker-{rng.randint(0, 63)}",
        "dots": lambda: "." * rng.randint(10, 48),
        "attempt": lambda: f"attempt_{rng.randint(10**12, 10**13)}_{rng.randint(1, 99):04}_m_{rng.randint(0, 99):06}_0",
        "options": several(lambda: rng.choice(("rw", "relatime", "nosuid", "flock", "noatime", "localflock")), ","),
    }
    return drawn | {name: _one_of(rng, words.split()) for name, words in _CHOICES.items()}


def _one_of(rng: random.Random, words: Sequence[str]) -> Callable[[], str]:
    return lambda: rng.choice(words)


def sources() -> dict[str, list[str]]:
    """Return the templates of each source."""
    found: dict[str, list[str]] = tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))
    return found


def made(templates: Sequence[str], count: int, seed: str) -> Lines:
    """Return lines of a source, the same for the same seed."""
    rng = random.Random(seed)
    draw = _values(rng)
    ranked = rng.sample(range(len(templates)), len(templates))
    weights = [1 / (1 + ranked[number]) for number in range(len(templates))]
    parts = [_parsed(template) for template in templates]
    chosen = rng.choices(range(len(templates)), weights, k=count)
    return [(number, "".join(text + (draw[name]() if name else "") for text, name in parts[number])) for number in chosen]


def _parsed(template: str) -> list[tuple[str, str | None]]:
    return [(text, name) for text, name, _, _ in string.Formatter().parse(template)]


def grouping_accuracy(truth: Sequence[Hashable], groups: Sequence[Hashable]) -> float:
    """Return the share of lines whose group holds all lines of their template and no other."""
    places: tuple[dict[Hashable, list[int]], dict[Hashable, list[int]]] = (defaultdict(list), defaultdict(list))
    for number, pair in enumerate(zip(truth, groups, strict=True)):
        for side, label in zip(places, pair, strict=True):
            side[label].append(number)
    found = {tuple(group) for group in places[1].values()}
    return sum(len(group) for group in places[0].values() if tuple(group) in found) / len(truth)


def ours(texts: Sequence[str]) -> tuple[list[Hashable], float]:
    """Return the group of each line and the seconds it took."""
    block = "\n".join(texts).encode()
    begin = time.process_time()
    miner = Miner()
    step = 1 << 20
    keys: list[str] = []
    start = 0
    while start < len(block):
        end = block.find(b"\n", min(start + step, len(block)))
        end = len(block) if end < 0 else end
        keys += miner.feed(block[start:end])
        start = end + 1
    home = homes(keys, miner.templates())
    groups: list[Hashable] = [home[key] for key in keys]
    return groups, time.process_time() - begin


def drain3(texts: Sequence[str]) -> tuple[list[Hashable], float]:
    """Return the same of Drain3 with our masks and else its defaults."""
    import logging

    from drain3 import TemplateMiner
    from drain3.masking import MaskingInstruction
    from drain3.template_miner_config import TemplateMinerConfig

    logging.disable(logging.CRITICAL)
    config = TemplateMinerConfig()
    forms = [(prefix.QUOTES, "QUOTED"), (prefix.DAY, "TIME"), *((form, mask.name) for mask, form in prefix.FORMS.items())]
    config.masking_instructions = [MaskingInstruction(form, name) for form, name in forms]
    begin = time.process_time()
    miner: Any = TemplateMiner(config=config)
    groups: list[Hashable] = [miner.add_log_message(text)["cluster_id"] for text in texts]
    return groups, time.process_time() - begin


def _accuracy(lines: Lines, mine: Callable[[Sequence[str]], tuple[list[Hashable], float]], orders: int = 3) -> float:
    total = 0.0
    for order in range(orders):
        shuffled = lines if order == 0 else random.Random(order).sample(lines, len(lines))
        groups, _ = mine([text for _, text in shuffled])
        total += grouping_accuracy([number for number, _ in shuffled], groups)
    return total / orders


def _misses(name: str, lines: Lines, templates: Sequence[str]) -> None:
    groups, _ = ours([text for _, text in lines])
    of_template: dict[int, set[Hashable]] = defaultdict(set)
    of_group: dict[Hashable, set[int]] = defaultdict(set)
    for (number, _), group in zip(lines, groups, strict=True):
        of_template[number].add(group)
        of_group[group].add(number)
    for number, found in sorted(of_template.items()):
        if len(found) > 1:
            print(
                f"  {name} split  {len(found):3} {templates[number][:90]}  e.g. {prefix.readable(str(min(map(str, found))))[:90]}"
            )
    for group, numbers in of_group.items():
        if len(numbers) > 1:
            print(f"  {name} merged {prefix.readable(str(group))[:80]}: {[templates[number][:50] for number in sorted(numbers)]}")


def main() -> int:
    """Print the figures; fail when Drain3 groups better or the miner is slower than 100,000 lines a second."""
    parser = argparse.ArgumentParser(description="template miner: grouping accuracy and speed, beside Drain3")
    parser.add_argument("--lines", type=int, default=2000, help="lines of each source")
    parser.add_argument("--speed-lines", type=int, default=400_000)
    parser.add_argument("--misses", action="store_true", help="list what the miner split or merged")
    wanted = parser.parse_args()
    known = sources()
    print(f"grouping accuracy, {wanted.lines} lines of each source, mean of three orders: ours, Drain3 with the same masks")
    totals = [0.0, 0.0]
    for name, templates in known.items():
        lines = made(templates, wanted.lines, f"{name} 1")
        figures = _accuracy(lines, ours), _accuracy(lines, drain3)
        totals = [total + figure for total, figure in zip(totals, figures, strict=True)]
        print(f"  {name:<11}{figures[0]:6.3f} {figures[1]:6.3f}  {len(templates)} templates")
        if wanted.misses:
            _misses(name, lines, templates)
    means = [total / len(known) for total in totals]
    print(f"  {'mean':<11}{means[0]:6.3f} {means[1]:6.3f}")
    each = wanted.speed_lines // len(known)
    mixed = [text for name, templates in known.items() for _, text in made(templates, each, f"{name} 2")]
    random.Random(3).shuffle(mixed)
    rate = len(mixed) / ours(mixed)[1]
    part = mixed[: len(mixed) // 20]
    peer = len(part) / drain3(part)[1]
    print(f"speed, {len(mixed):,} mixed lines: ours {rate:,.0f} lines/s, Drain3 {peer:,.0f} lines/s (on the first {len(part):,})")
    return 0 if means[0] > means[1] and rate >= 100_000 else 1


if __name__ == "__main__":
    sys.exit(main())
