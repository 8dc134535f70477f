"""Every setting of Nightshift. The line below a field is its manual: `nightshift config show` prints it.

All have defaults that work on one machine. Whole folders of content (playbooks, reasons, filters, the policy) are no settings:
they lie in `content`. What the watch tells the world outside (notifications, metrics, a sign of life) is off until a site names
where to; its addresses hold secrets (a Slack token, a mail password, the id of a heartbeat), so the settings name files that hold
them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path

__all__ = [
    "SCHEDULERS",
    "TRANSPORTS",
    "About",
    "AuditSettings",
    "ChatSettings",
    "EvaluationSettings",
    "HeartbeatSettings",
    "MetricsSettings",
    "ModelSettings",
    "NotifySettings",
    "Settings",
    "Severity",
    "SinkSettings",
    "SlurmSettings",
    "SshSettings",
    "WatchSettings",
    "above",
    "one_of",
]


class Severity(StrEnum):
    """How much something matters, mildest first."""

    INFO = "info"
    WARNING = "warning"
    CRITICAL = "critical"

    @property
    def rank(self) -> int:
        """Higher is worse."""
        return list(Severity).index(self)


class About(StrEnum):
    """What a notification is about."""

    OPENED = "opened"
    """An incident was opened."""
    RECOVERED = "recovered"
    ESCALATED = "escalated"
    """An incident needs a person."""
    APPROVAL = "approval"
    """A call waits for `nightshift approve`."""
    ACTION = "action"
    """Something was changed, or could not be."""
    OWNER = "owner"
    """The owner of a job must change something."""
    BREAKER = "breaker"
    KILL_SWITCH = "kill_switch"
    POLICY = "policy"
    """The policy cannot be read whole, so every change is refused; or it is whole again."""
    BLIND = "blind"
    """No pass of the watch saw everything for a while."""
    LEADER = "leader"
    """Another watch took over."""


@dataclass(frozen=True)
class SinkSettings:
    """One place that is told."""

    url_file: Path
    """File of Apprise URLs, one a line, readable by Nightshift alone: `slack://…`, `mailtos://…`, `pagerduty://…`, `jsons://…`."""
    severity: Severity = Severity.WARNING
    """The mildest that is told: `info`, `warning` or `critical`."""
    about: tuple[About, ...] = ()
    """Only these; none for all."""
    owners: tuple[str, ...] = ()
    """Globs of job owners. Such a sink gets what their owners must do and nothing else; `{owner}` in a URL is the owner's name."""
    mask: bool = False
    """Whether host and user names are replaced by stand-ins, because the service is not the site's own."""

    def covers(self, owner: str) -> bool:
        """Tell whether it is for an owner."""
        from fnmatch import fnmatchcase

        return any(fnmatchcase(owner, pattern) for pattern in self.owners)


@dataclass(frozen=True)
class NotifySettings:
    """Who is told of what the watch does."""

    sinks: Mapping[str, SinkSettings] = field(default_factory=dict)
    """Places by name: `[notify.sinks.oncall]` with `url_file`, and `severity`, `about`, `owners`, `mask` where wanted."""
    cluster: str = ""
    """Name in front of each message; default: this host's name."""
    cooldown_min: float = 60.0
    """Minutes for which the same thing is told only once."""
    group_s: float = 15.0
    """Seconds to wait for more to tell, so that a storm becomes one message."""
    group_over: int = 3
    """Of more than so many at once one message is made."""
    timeout_s: float = 10.0
    """Seconds that a service may take; then it is tried again, ever later, up to every 15 minutes."""
    blind_min: float = 10.0
    """Minutes without a pass that saw everything, after which that is told."""

    def __post_init__(self) -> None:
        above("notify.cooldown_min", self.cooldown_min, -1)
        above("notify.group_s", self.group_s, -1)
        above("notify.group_over", self.group_over, 0)
        above("notify.timeout_s", self.timeout_s, 0)
        above("notify.blind_min", self.blind_min, 0)


@dataclass(frozen=True)
class AuditSettings:
    """Where the head of the audit goes, so that a rewritten or older store shows."""

    anchor: tuple[str, ...] = ()
    """Places: `syslog` (journald takes it, too), `file:/PATH`, `ssh:HOST:/PATH`, `sink:NAME` of [notify.sinks]."""
    anchor_every_min: float = 10.0
    """Minutes between two heads while the audit grows; after a change of the cluster one goes out with the next pass."""

    def __post_init__(self) -> None:
        above("audit.anchor_every_min", self.anchor_every_min, 0)
        for place in self.anchor:
            kind, _, target = place.partition(":")
            host, _, path = target.partition(":")
            right = {
                "syslog": place == "syslog",
                "file": target.startswith("/"),
                "ssh": host and path.startswith("/"),
                "sink": target,
            }
            if not right.get(kind):
                raise ValueError(f"audit.anchor: wanted syslog, file:/PATH, ssh:HOST:/PATH or sink:NAME, found {place!r}")


@dataclass(frozen=True)
class MetricsSettings:
    """Figures for Prometheus."""

    textfile: Path | None = None
    """File for node_exporter's textfile collector, such as /var/lib/prometheus/node-exporter/nightshift.prom."""
    listen: str = ""
    """Address of an own /metrics, such as 127.0.0.1:9469; it knows no passwords, so keep it on this host."""

    def __post_init__(self) -> None:
        host, colon, port = self.listen.rpartition(":")
        if self.listen and not (host and colon and port.isdecimal() and int(port) < 65536):
            raise ValueError(f"metrics.listen: must be an address and a port such as 127.0.0.1:9469, not {self.listen!r}")


@dataclass(frozen=True)
class HeartbeatSettings:
    """A sign of life for a service that raises the alarm when it stops."""

    url_file: Path | None = None
    """File that holds the URL alone; it is asked for after each pass that saw everything."""
    method: str = "GET"
    """How it is asked for: GET or POST."""
    timeout_s: float = 5.0
    """Seconds that the service may take."""

    def __post_init__(self) -> None:
        one_of("heartbeat.method", self.method, ("GET", "POST"))
        above("heartbeat.timeout_s", self.timeout_s, 0)


@dataclass(frozen=True)
class ChatSettings:
    """How the chat calls a person who looks elsewhere."""

    bell: bool = False
    """Whether the terminal's bell rings when something needs a person: a change that waits, a case that is handed over."""
    notify: str = "none"
    """Which desktop notification the terminal is asked for then: none, osc9 (iTerm2, kitty, WezTerm) or osc777 (foot, urxvt)."""

    def __post_init__(self) -> None:
        one_of("chat.notify", self.notify, NOTIFICATIONS)


# What values of settings are held against; a message begins with the setting's key, to which the loader adds file and line.


def above(key: str, value: float, limit: float) -> None:
    """Refuse a number that is not above a limit.

    Raises:
        ValueError: It is not, or is NaN.
    """
    # turned round, so that NaN is refused too
    if not value > limit:
        raise ValueError(f"{key}: must be above {limit:g}, not {value:g}")


def one_of(key: str, value: str, allowed: tuple[str, ...]) -> None:
    """Refuse a word that is not known.

    Raises:
        ValueError: It is not; the message has the nearest one.
    """
    import difflib

    if value not in allowed:
        near = difflib.get_close_matches(value, allowed, n=1)
        hint = f" did you mean {near[0]!r}?" if near else ""
        raise ValueError(f"{key}: {value!r} is unknown;{hint} known: {', '.join(allowed)}")


def scheduler_names() -> tuple[str, ...]:
    """Return the schedulers there are: a module or folder of `assistant/schedulers` each; parts of one have `_` in their names."""
    import pkgutil

    modules = pkgutil.iter_modules([str(Path(__file__).parents[1] / "schedulers")])
    return tuple(sorted(module.name for module in modules if "_" not in module.name))


SCHEDULERS = scheduler_names()
TRANSPORTS = ("local", "ssh", "recorded")
LOGS = ("auto", "text", "json")
NOTIFICATIONS = ("none", "osc9", "osc777")


@dataclass(frozen=True)
class WatchSettings:
    """When the watch speaks up."""

    poll_s: float = 30.0
    """Seconds between two looks at the queue and the logs."""
    hang_after_s: float = 1800.0
    """Seconds without a sign of life after which a job hangs: a third where its heartbeat, a sixth where GPUs and stacks say so."""
    hang_factor: float = 5.0
    """Times the longest gap of the same phase that a job came back from: sooner nobody looks into a silence."""
    spike_patience_steps: int = 50
    """Logged steps for which a raised loss may still come back by itself; after that it is a loss spike."""
    slow_ratio: float = 1.4
    """How many times longer a step takes of a job that counts as slow, against what it took before, or takes its peers."""
    slow_after_s: float = 900.0
    """Seconds for which it must be slow; it is told of when the time lost has come to more than a restart costs, or after 4 h."""
    late_checkpoints: float = 3.0
    """After how many of its own intervals without a checkpoint a person is told."""
    shared_settle_s: float = 60.0
    """Seconds for which a failure that names a service or a path waits for others of the same cause."""
    shared_apart_s: float = 20.0
    """Seconds between the restarts of two jobs that failed of one cause."""
    shared_patience_s: float = 7200.0
    """Seconds for which a shared cause is probed before a person has to go on with its jobs."""

    def __post_init__(self) -> None:
        above("watch.poll_s", self.poll_s, 0)
        above("watch.hang_after_s", self.hang_after_s, 0)
        above("watch.hang_factor", self.hang_factor, 1)
        above("watch.spike_patience_steps", self.spike_patience_steps, 0)
        above("watch.slow_ratio", self.slow_ratio, 1)
        above("watch.slow_after_s", self.slow_after_s, 0)
        above("watch.late_checkpoints", self.late_checkpoints, 1)
        for key in ("shared_settle_s", "shared_apart_s", "shared_patience_s"):
            above(f"watch.{key}", getattr(self, key), 0)


@dataclass(frozen=True)
class SshSettings:
    """How nodes are reached with transport = "ssh"; who and where is in ssh_config, as for the `ssh` command."""

    config: Path | None = None
    """Another ssh_config file in place of ~/.ssh/config and /etc/ssh/ssh_config."""
    fan_out: int = 64
    """How many nodes are asked side by side; one that is silent for a second does not count."""
    connect_timeout_s: float = 10.0
    """Seconds for connecting and logging in, where ssh_config has no ConnectTimeout; the command's own limit counts, too."""
    keepalive_s: float = 30.0
    """Seconds between two signs of life on a kept connection, where ssh_config has no ServerAliveInterval."""
    idle_close_s: float = 600.0
    """Seconds after which a connection that nobody used is closed."""
    output_limit_bytes: int = 16 * 1024 * 1024
    """What one command may say on one node; one that says more is ended and counts as not reached."""
    output_total_bytes: int = 64 * 1024 * 1024
    """What all nodes of one round may say together; beyond it those are ended that said more than an equal share."""

    def __post_init__(self) -> None:
        for key in ("fan_out", "connect_timeout_s", "keepalive_s", "idle_close_s", "output_limit_bytes", "output_total_bytes"):
            above(f"ssh.{key}", getattr(self, key), 0)


@dataclass(frozen=True)
class SlurmSettings:
    """How Slurm is reached and with whose rights."""

    folder: Path | None = None
    """Folder of squeue, sbatch and so on; default: PATH and the usual places."""
    conf: Path | None = None
    """The slurm.conf to use; default: Slurm's own choice."""
    timeout_s: float = 30.0
    """Seconds that a Slurm command may take; after that it is ended and nothing is known."""
    users: tuple[str, ...] = ()
    """Whose jobs Nightshift looks after: names, or `*` for everybody; default: the user that runs Nightshift."""
    admin: tuple[str, ...] = ()
    """Words before a scontrol that changes nodes or reservations, such as `["sudo", "-n"]`; it must never ask for a password."""
    submit_as: tuple[str, ...] = ()
    """Words before the sbatch of somebody else's job, such as `["sudo", "-n", "-u", "{user}"]`; default: only one's own jobs."""
    lowest_uid: int = 1000
    """Jobs of accounts with a smaller uid, root's and the system's own, are never submitted by somebody else."""
    job_environment: tuple[str, ...] = ("*",)
    """Globs of the variables of a job that it gets again, such as `["PATH", "NCCL_*"]`; what loads foreign code it never gets."""
    sbatch: tuple[str, ...] = ()
    """Options added to each submission."""
    history_h: float = 24.0
    """Hours for which ended jobs are looked up in the accounting (sacct), when there is one."""
    logs: tuple[str, ...] = ()
    """Files that jobs log into and that neither Slurm nor their scripts name, such as `/logs/%x/%j/rank-%t.log`."""
    controller_log: Path | None = None
    """slurmctld.log where this machine can read it; default: the path in Slurm's configuration."""

    def __post_init__(self) -> None:
        above("slurm.timeout_s", self.timeout_s, 0)
        above("slurm.history_h", self.history_h, 0)


@dataclass(frozen=True)
class EvaluationSettings:
    """What `nightshift evaluate` may use."""

    folder: Path | None = None
    """Where runs keep their outputs; all nodes must see it. Default: evaluations in the state folder."""
    memory: str = ""
    """Folder in a node's memory for models; {node} is its name. Default: one of this user's own in /dev/shm."""
    memory_limit_gib: float = 0.0
    """What models may take of a node's memory; 0: what is free."""
    fetch: str = ""
    """Command that copies a model from {source} to {target}, where the nodes do not see it as files."""
    gpus_per_node: int = 1
    """How many trials run side by side on a node."""
    cpus_per_node: int = 4
    """How many metrics do."""
    gpu_option: str = "--gres=gpu:{gpus}"
    """The scheduler's option that asks for GPUs."""
    no_gpu_option: str = "--gres=none"
    """The one that asks for none; empty where there is no such option."""
    partition: str = ""
    """Where trials run; default: the scheduler's own choice."""
    metric_partition: str = ""
    """Where metrics run; default: where trials do."""
    options: tuple[str, ...] = ()
    """More options of the scheduler for each job, as words: account, QOS, time."""
    python: str = ""
    """The Python of the nodes; default: the one that runs Nightshift."""
    load_s: float = 30.0
    """Seconds from a node's memory into a GPU, for plans."""
    fetch_s: float = 120.0
    """Seconds from storage into a node's memory, for plans."""
    poll_s: float = 2.0
    """Seconds between two looks at the scheduler."""

    def __post_init__(self) -> None:
        above("evaluation.memory_limit_gib", self.memory_limit_gib, -1)
        above("evaluation.gpus_per_node", self.gpus_per_node, 0)
        above("evaluation.cpus_per_node", self.cpus_per_node, 0)
        above("evaluation.load_s", self.load_s, -1)
        above("evaluation.fetch_s", self.fetch_s, -1)
        above("evaluation.poll_s", self.poll_s, 0)


@dataclass(frozen=True)
class ModelSettings:
    """The language model, where there is one; without it rules, memory and the embedded model do their work alone."""

    path: Path | None = None
    """A GGUF file; `nightshift model pull` gets one, `nightshift model list` says which sizes suit this machine."""
    sha256: str = ""
    """Of that file: another file is refused. Empty: any is taken."""
    url: str = ""
    """An OpenAI-compatible endpoint instead of a file, with `/v1` at its end."""
    name: str = ""
    """What the endpoint calls the model."""
    key_file: Path | None = None
    """File that holds the endpoint's key alone, readable by nobody else."""
    context: int = 0
    """Tokens of one conversation; 0 for what suits the model."""
    threads: int = 0
    """Threads of a GGUF model; 0 for half of the processors."""
    timeout_s: float = 120.0
    """Seconds that one answer may take; then the answer without a model stays."""
    mask: bool = True
    """Whether names of hosts and users are hidden from an endpoint on another machine; its answers name them all the same."""

    def __post_init__(self) -> None:
        above("model.context", self.context, -1)
        above("model.threads", self.threads, -1)
        above("model.timeout_s", self.timeout_s, 0)
        if self.sha256 and (len(self.sha256) != 64 or set(self.sha256.lower()) - set("0123456789abcdef")):
            raise ValueError(f"model.sha256: must be 64 hexadecimal digits, not {self.sha256!r}")


@dataclass(frozen=True)
class Settings:
    """How Nightshift runs here."""

    scheduler: str = "local"
    """Where jobs run: local (processes on this machine), slurm, or simulated (a cluster in memory)."""
    transport: str = "local"
    """How commands get to nodes: local, ssh, or recorded (answers from a file)."""
    state_folder: Path = Path()
    """Folder of everything that Nightshift keeps; default $XDG_STATE_HOME/nightshift."""
    store: Path = Path()
    """The store, one SQLite file on a local disk; default nightshift.db in the state folder."""
    content: Path | None = None
    """Folder with the site's own playbooks/ and knowledge/; a file there replaces the shipped one of the same name."""
    commands: Mapping[str, tuple[str, ...]] = field(default_factory=lambda: {"kernel_log": ("dmesg", "--time-format", "iso")})
    """Programs that the site's nodes have for a purpose, as lists of words; `kernel_log` prints the kernel's messages."""
    command_timeout_s: float = 20.0
    """Seconds that a command on a node may take before the node counts as not reached."""
    checkpoints: Mapping[str, Path] = field(default_factory=dict)
    """Checkpoint folder by glob of the job's name, where neither the job's script nor its log says it: `"llm-*" = "/ckpt/llm"`."""
    approval_expires_h: float = 24.0
    """Hours after which a question that nobody answered is refused."""
    lease_s: float = 300.0
    """Seconds for which a process holds an incident without renewing; then another one may go on with it."""
    busy_timeout_s: float = 5.0
    """Seconds to wait while another process writes to the store."""
    watch: WatchSettings = field(default_factory=WatchSettings)
    """When the watch speaks up."""
    slurm: SlurmSettings = field(default_factory=SlurmSettings)
    """How Slurm is reached and with whose rights; for `scheduler = "slurm"`."""
    ssh: SshSettings = field(default_factory=SshSettings)
    """How nodes are reached over SSH."""
    evaluation: EvaluationSettings = field(default_factory=EvaluationSettings)
    """What evaluations may use."""
    model: ModelSettings = field(default_factory=ModelSettings)
    """The language model."""
    log: str = "auto"
    """How the watch logs: auto (fields for journald under systemd, else text), text, or json (an object a line on stderr)."""
    notify: NotifySettings = field(default_factory=NotifySettings)
    """Who is told of what the watch does."""
    metrics: MetricsSettings = field(default_factory=MetricsSettings)
    """Figures for Prometheus."""
    heartbeat: HeartbeatSettings = field(default_factory=HeartbeatSettings)
    """A sign of life."""

    chat: ChatSettings = field(default_factory=ChatSettings)
    """How the chat calls a person."""
    audit: AuditSettings = field(default_factory=AuditSettings)
    """Where the head of the audit goes, so that tampering shows."""

    def __post_init__(self) -> None:
        one_of("scheduler", self.scheduler, SCHEDULERS)
        one_of("transport", self.transport, TRANSPORTS)
        one_of("log", self.log, LOGS)
        above("command_timeout_s", self.command_timeout_s, 0)
        above("approval_expires_h", self.approval_expires_h, 0)
        above("lease_s", self.lease_s, 0)
        above("busy_timeout_s", self.busy_timeout_s, 0)
        for name, words in self.commands.items():
            if not words:
                raise ValueError(f"commands.{name}: must hold the program and its arguments, found an empty list")

    def checkpoint_folder(self, job_name: str) -> Path | None:
        """Return the checkpoint folder of the first glob that a job's name matches, None when none does."""
        from fnmatch import fnmatchcase

        return next((folder for pattern, folder in self.checkpoints.items() if fnmatchcase(job_name, pattern)), None)
