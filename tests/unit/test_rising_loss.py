"""A loss that is no number any more went off where it began to rise; its learning rate is blamed where the same lines show it."""

from __future__ import annotations

import math
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from assistant.diagnose.case import Case
from assistant.diagnose.knowledge import Knowledge
from assistant.diagnose.verdict import diagnose
from assistant.engine.evidence.job_sources import rate_setting
from assistant.records import Action, Diagnosis
from assistant.recover.comparison import said_over
from assistant.recover.job_reading import job_of_script

ROLLBACK, FIX = Action.ROLLBACK_AND_SKIP_DATA, Action.FIX_AND_RESUBMIT


@pytest.fixture(scope="module")
def knowledge() -> Knowledge:
    return Knowledge.load()


def unknown_form(step: int, loss: float, rate: float) -> str:
    return f"step {step:4d}/160  lr {rate:.6f}  recon_loss {loss:.5f}"


def megatron(step: int, loss: float, rate: float) -> str:
    return f" iteration {step:8d}/     160 | learning rate: {rate:.6E} | lm loss: {loss:.6E} | grad norm: 0.3 |"


def of_epochs(step: int, loss: float, rate: float) -> str:
    return f"epoch {step // 20} step {step} lr {rate:.6f} recon_loss {loss:.5f}"


def losses(onset: int, lost: int) -> list[float]:
    """Return the loss of the steps 2, 4, … 100: it falls to a level, grows from one step on, and is NaN from another."""
    rng = random.Random(3)
    values = []
    for step in range(2, 101, 2):
        level = 0.4 + 2 * math.exp(-step / 10) + rng.gauss(0, 0.001)
        values.append(math.nan if step >= lost else level * 2.2 ** ((step - onset) / 2 + 1) if step >= onset else level)
    return values


def diagnosed(folder: Path, knowledge: Knowledge, form: Callable[[int, float, float], str], onset: int, rate: float) -> Diagnosis:
    """Diagnose a log whose rate grows by so much each step (a negative one stands), with a loss that is NaN from step 84 on."""
    path = folder / "job.log"
    lines = [form(2 * at, loss, rate * 2 * at if rate > 0 else -rate) for at, loss in enumerate(losses(onset, 84), 1)]
    path.write_text("\n".join([*lines, "FloatingPointError: recon_loss was nan for 5 steps in a row (step 100)"]) + "\n")
    return diagnose(Case.from_parts(path, "", "", None, None, None), knowledge)


@pytest.mark.parametrize(
    ("form", "onset", "rate", "action", "spike_step", "warms"),
    [
        pytest.param(unknown_form, 70, 0.006, FIX, 70, True, id="grows while an unusual rate warms up"),
        pytest.param(megatron, 70, 0.006, FIX, 70, True, id="the same in a known form"),
        pytest.param(unknown_form, 70, -0.6, ROLLBACK, 70, False, id="grows at a rate that stands"),
        pytest.param(unknown_form, 70, 3e-6, ROLLBACK, 70, True, id="grows while a usual rate warms up"),
        pytest.param(megatron, 70, 3e-6, ROLLBACK, 70, True, id="a usual one in a known form"),
        pytest.param(unknown_form, 200, 0.006, ROLLBACK, 84, False, id="lost at once: data or a machine"),
        pytest.param(megatron, 200, 0.006, ROLLBACK, 84, False, id="lost at once in a known form"),
        pytest.param(of_epochs, 70, 0.006, FIX, None, True, id="counts within epochs"),
    ],
)
def test_a_loss_went_off_where_it_began_to_rise(
    form: Callable[[int, float, float], str],
    onset: int,
    rate: float,
    action: Action,
    spike_step: int | None,
    *,
    warms: bool,
    tmp_path: Path,
    knowledge: Knowledge,
) -> None:
    found = diagnosed(tmp_path, knowledge, form, onset, rate)
    assert (found.reason, found.action, found.spike_step) == ("loss_spike", action, spike_step), found.summary
    assert ("still warming up" in found.advice) is warms
    assert ("rose from" in found.advice) is (onset < 84)


@pytest.mark.parametrize(
    ("script", "place"),
    [
        ("python train.py conf/vae.yaml", "conf/vae.yaml:2 (lr: 0.6   # warm up)"),
        ("python train.py --config=conf/vae.yaml", "conf/vae.yaml:2 (lr: 0.6   # warm up)"),
        ("python train.py --learning-rate 0.6", "--learning-rate on the command line (0.6)"),
        ("python train.py", ""),
        ("python train.py conf/away.yaml", ""),
    ],
)
def test_the_place_of_the_learning_rate_is_named(script: str, place: str, tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "vae.yaml").write_text("max_steps: 160\nlr: 0.6   # warm up\n")
    assert rate_setting(job_of_script(f"#!/bin/bash\nsrun {script}\n", name="vae", work_dir=tmp_path)) == place


@pytest.mark.parametrize(
    ("text", "over"),
    [
        ("finished", True),
        ("2026-11-27 04:05:31 finished", True),
        ("[2026-11-27 04:05:31,120] INFO: training done.", True),
        ("Training abgeschlossen.", True),
        ("training finished after 150 steps", True),
        ("epoch 3 finished, loss 2.31", False),
        ("checkpoint 40 done", False),
        ("step 120 mae 0.0578", False),
        ("loading is not finished", False),
        ("", False),
    ],
)
def test_a_last_line_says_that_a_program_is_through(text: str, *, over: bool) -> None:
    assert said_over(text) is over
