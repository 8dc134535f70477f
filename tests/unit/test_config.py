"""Settings: which source wins, what each mistake says, and that every field has its manual."""

from __future__ import annotations

from pathlib import Path

import pytest

from assistant.config import load
from assistant.config.loading import describe, toml_text
from assistant.errors import ConfigError


def write(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def _all(value: int, *, skip: int = 0) -> str:
    keys = ("lease_s", "command_timeout_s", "approval_expires_h", "busy_timeout_s", "watch.poll_s")
    return "".join(f"{key} = {value}\n" for key in keys[skip:])


@pytest.fixture
def system(tmp_path: Path) -> Path:
    return tmp_path / "etc"


@pytest.fixture
def environ(tmp_path: Path) -> dict[str, str]:
    return {"HOME": str(tmp_path / "home"), "XDG_CONFIG_HOME": str(tmp_path / "user")}


def test_without_anything_the_defaults_hold(environ: dict[str, str], system: Path) -> None:
    loaded = load(environ, system=system)
    assert loaded.files == ()
    assert set(loaded.origins.values()) == {"default"}
    assert loaded.settings.scheduler == "local"
    assert loaded.settings.state_folder == Path(environ["HOME"]) / ".local/state/nightshift"
    assert loaded.settings.store == loaded.settings.state_folder / "nightshift.db"


def test_each_source_wins_over_the_one_before(environ: dict[str, str], system: Path, tmp_path: Path) -> None:
    main = write(
        system / "config.toml",
        _all(1),
    )
    first = write(system / "conf.d" / "10-a.toml", _all(2, skip=1))
    write(system / "conf.d" / "05-b.toml", "command_timeout_s = 9\n")
    user = write(tmp_path / "user" / "nightshift" / "config.toml", _all(3, skip=2))
    environ |= {"NIGHTSHIFT_BUSY_TIMEOUT_S": "4", "NIGHTSHIFT_WATCH__POLL_S": "4.5"}
    loaded = load(environ, {"watch.poll_s": 5.0, "lease_s": None}, system=system)
    settings = loaded.settings
    assert (settings.lease_s, settings.command_timeout_s, settings.approval_expires_h) == (1, 2, 3)
    assert (settings.busy_timeout_s, settings.watch.poll_s) == (4, 5)
    assert loaded.origins["lease_s"] == f"{main}:1"
    assert loaded.origins["command_timeout_s"] == f"{first}:1"
    assert loaded.origins["approval_expires_h"] == f"{user}:1"
    assert loaded.origins["busy_timeout_s"] == "NIGHTSHIFT_BUSY_TIMEOUT_S"
    assert loaded.origins["watch.poll_s"] == "command line"
    assert loaded.origins["watch.hang_after_s"] == "default"


def test_an_option_that_was_not_given_changes_nothing(environ: dict[str, str], system: Path) -> None:
    write(system / "config.toml", 'scheduler = "simulated"\n')
    assert load(environ, {"scheduler": None}, system=system).settings.scheduler == "simulated"


def test_a_named_file_stands_for_all_files(environ: dict[str, str], system: Path, tmp_path: Path) -> None:
    write(system / "config.toml", "lease_s = 1\n")
    named = write(tmp_path / "own.toml", "busy_timeout_s = 2\n")
    environ["NIGHTSHIFT_CONFIG"] = str(named)
    loaded = load(environ, system=system)
    assert loaded.files == (named,)
    assert (loaded.settings.lease_s, loaded.settings.busy_timeout_s) == (300, 2)
    assert load(environ, system=system, config=write(tmp_path / "b.toml", "busy_timeout_s = 7")).settings.busy_timeout_s == 7


def test_tables_are_joined_and_lists_replaced(environ: dict[str, str], system: Path) -> None:
    text = '[commands]\nsmi = ["nvidia-smi"]\n[checkpoints]\n"llm-*" = "/ckpt/llm"\n"*" = "~/all"\n'
    write(system / "config.toml", text)
    settings = load(environ, system=system).settings
    assert settings.commands == {"kernel_log": ("dmesg", "--time-format", "iso"), "smi": ("nvidia-smi",)}
    assert settings.checkpoint_folder("llm-7b") == Path("/ckpt/llm")
    assert settings.checkpoint_folder("x") == Path.home() / "all"
    write(system / "config.toml", '[commands]\nkernel_log = ["journalctl", "-k"]\n')
    assert load(environ, system=system).settings.commands == {"kernel_log": ("journalctl", "-k")}


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('\nsheduler = "local"', "config.toml:2: sheduler: unknown key; did you mean 'scheduler'?"),
        ('\nscheduler = "slrum"', "config.toml:2: scheduler: 'slrum' is unknown; did you mean 'slurm'? known: local, simulated"),
        ('scheduler = "simulted"', "did you mean 'simulated'?"),
        ("lease_s = 5\n[watch]\npol_s = 3", "config.toml:3: pol_s: unknown key; did you mean 'poll_s'?"),
        ("lease_s = 5\n[watch]\npoll_s = 0", "config.toml:3: watch.poll_s: must be above 0, not 0"),
        ("lease_s = nan", "config.toml:1: lease_s: must be above 0, not nan"),
        ('lease_s = "long"', "config.toml:1: lease_s: must be float, not 'long'"),
        ("[commands]\nkernel_log = []", "config.toml:2: commands.kernel_log: must hold the program"),
        ("lease_s = ", "is not valid TOML"),
    ],
)
def test_a_mistake_in_a_file_names_file_line_and_key(environ: dict[str, str], system: Path, text: str, message: str) -> None:
    write(system / "config.toml", text)
    with pytest.raises(ConfigError) as caught:
        load(environ, system=system)
    assert message in str(caught.value)


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [
        ("NIGHTSHIFT_SHEDULER", "local", "there is no setting 'sheduler'; did you mean NIGHTSHIFT_SCHEDULER?"),
        ("NIGHTSHIFT_WATCH__POL_S", "3", "did you mean NIGHTSHIFT_WATCH__POLL_S?"),
        ("NIGHTSHIFT_LEASE_S", "long", "NIGHTSHIFT_LEASE_S: lease_s: must be float, not 'long'"),
        ("NIGHTSHIFT_SCHEDULER", "nomad", "NIGHTSHIFT_SCHEDULER: scheduler: 'nomad' is unknown"),
        (
            "NIGHTSHIFT_CONFIG",
            "/nowhere/config.toml",
            "/nowhere/config.toml: named by NIGHTSHIFT_CONFIG, but there is no such file",
        ),
    ],
)
def test_a_mistake_in_a_variable_names_the_variable(
    environ: dict[str, str], system: Path, name: str, value: str, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(environ | {name: value}, system=system)
    assert message in str(caught.value)


def test_a_folder_that_cannot_be_looked_at_is_named(environ: dict[str, str], tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="wanted to look for settings, found: File name too long"):
        load(environ, system=tmp_path / ("x" * 300))


def test_a_wrong_override_names_the_command_line(environ: dict[str, str], system: Path) -> None:
    with pytest.raises(ConfigError, match="command line: scheduler: 'nomad' is unknown"):
        load(environ, {"scheduler": "nomad"}, system=system)


@pytest.mark.parametrize("name", ["RESUME_FROM", "STEP", "SKIP_FROM", "SKIP_TO", "ATTEMPT", "SOMETHING_ELSE"])
def test_variables_of_jobs_are_no_settings(environ: dict[str, str], system: Path, name: str) -> None:
    assert load(environ | {f"NIGHTSHIFT_{name}": "12"}, system=system).settings == load(environ, system=system).settings


def test_a_variable_gives_text_lists_and_names_of_tables(environ: dict[str, str], system: Path, tmp_path: Path) -> None:
    environ |= {
        "NIGHTSHIFT_STORE": "42",
        "NIGHTSHIFT_COMMANDS__KERNEL_LOG": '["journalctl", "-k"]',
        "NIGHTSHIFT_CHECKPOINTS__LLM": str(tmp_path),
        "NIGHTSHIFT_WATCH__SPIKE_PATIENCE_STEPS": "7",
    }
    loaded = load(environ, system=system)
    assert loaded.settings.store == Path("42")
    assert loaded.settings.commands["kernel_log"] == ("journalctl", "-k")
    assert loaded.settings.checkpoints == {"llm": tmp_path}
    assert loaded.settings.watch.spike_patience_steps == 7
    assert loaded.origins["checkpoints.llm"] == "NIGHTSHIFT_CHECKPOINTS__LLM"


def test_the_state_folder_follows_xdg_and_the_store_follows_it(environ: dict[str, str], system: Path, tmp_path: Path) -> None:
    state = tmp_path / "state"
    assert load(environ | {"XDG_STATE_HOME": str(state)}, system=system).settings.store == state / "nightshift" / "nightshift.db"
    assert load(environ | {"XDG_STATE_HOME": "relative"}, system=system).settings.store.is_absolute()
    assert load(environ, {"state_folder": state}, system=system).settings.store == state / "nightshift.db"


def test_every_setting_has_a_manual() -> None:
    entries = describe()
    assert "watch.poll_s" in {entry.key for entry in entries}
    assert [entry.key for entry in entries if len(entry.doc) < 20] == []


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, ""),
        (True, "true"),
        (0.5, "0.5"),
        (30.0, "30.0"),
        (3, "3"),
        ('a"b', '"a\\"b"'),
        (("a", "b"), '["a", "b"]'),
        ({"a-*": 1}, '{ "a-*" = 1 }'),
    ],
)
def test_a_value_is_shown_as_toml_writes_it(value: object, text: str) -> None:
    assert toml_text(value) == text
