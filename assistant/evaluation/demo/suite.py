"""Write the model, the data and the suite of the small evaluator into a folder."""

from __future__ import annotations

from pathlib import Path

from assistant.evaluation.demo import tasks

COUNTS = {"sums": 400, "differences": 400, "larger": 300, "even": 200, "programs": 30}


def write_demo(folder: Path, *, sets: int = 2, item_ms: float = 2.0, padding_bytes: int = 32 << 20) -> Path:
    """Train the model, make up datasets, and return the path of the suite.

    Args:
        folder: Made when missing.
        sets: How many datasets of each task.
        item_ms: How long the model rests for each item, as a larger one would compute.
        padding_bytes: What makes the model as large as a small real one.
    """
    from assistant.evaluation.demo.model import train

    folder.mkdir(parents=True, exist_ok=True)
    train().save(folder / "model", padding_bytes=padding_bytes)
    infer = '"{python} -m assistant.evaluation.demo.infer {model} ' + f'{item_ms:g} {{pieces}}"'
    metric = '"{python} -m assistant.evaluation.demo.score exact {out} {score}"'
    lines = ['title = "demo"', 'model = "model"', "", "[defaults]", f"infer = {infer}", f"metric = {metric}"]
    for number in range(1, sets + 1):
        for task, count in COUNTS.items():
            data = Path("data") / f"{task}-{number}.jsonl"
            tasks.write_items(folder / data, task, count, seed=1000 + number)
            lines += ["", "[[dataset]]", f'name = "{task}-{number}"', f'data = "{data}"']
            lines += [f"infer_s = {count * item_ms / 1000:g}", "prepare_s = 0"]
            if task == "programs":
                lines += [f"metric = {metric.replace(' exact ', ' programs ')}", "sandbox = true", "metric_timeout_s = 60"]
                lines += ["metric_s = 3"]
            else:
                lines += ["metric_s = 0.2"]
    path = folder / "suite.toml"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path
