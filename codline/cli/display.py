"""Terminal output of a campaign: progress bars, the learning curve, the status table."""

import threading
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from codline.core.files import read_json
from codline.core.primary_metric import primary_metric
from codline.orchestration.learning_curve import evaluated_metrics
from codline.runtime import state_directory
from codline.runtime.log import stage_warnings
from codline.runtime.pipeline import Pipeline
from codline.runtime.progress import speed_text, worker_text

REFRESH_SECONDS = 0.2
console = Console(highlight=False)


class CampaignProgress:
    """Two progress bars: the stages of the campaign that are done, and the progress of the running stage."""

    def __init__(self, activity: str) -> None:
        self.total = len(Pipeline().stage_names())
        self.running: list[str] = []
        self.finished: set[str] = set()
        self.bars = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}", justify="left"),
            BarColumn(),
            TextColumn("{task.fields[count]}"),
            TimeElapsedColumn(),
            console=console,
        )
        self.campaign_bar = self.bars.add_task("campaign", total=self.total, count="")
        self.stage_bar = self.bars.add_task(activity, total=None, count="")
        self.is_over = threading.Event()
        self.refresher = threading.Thread(target=self.refresh_until_over, daemon=True)

    def __enter__(self) -> "CampaignProgress":
        self.bars.start()
        self.refresher.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.is_over.set()
        self.refresher.join()
        self.update_campaign_bar()  # stages may have ended since the last refresh
        self.bars.update(self.stage_bar, visible=False)
        self.bars.stop()

    def on_stage_event(self, stage: str, outcome: str, seconds: float) -> None:
        """Listener of flows.tasks; called from the threads of the tasks."""
        if outcome == "started":
            self.running.append(stage)
            return
        self.running.remove(stage)
        for sentence in stage_warnings(stage):
            print_line(f"  {stage}: {sentence}", style="yellow")
        # A task may retry a stage that failed, and the report may need one once more.
        if outcome in ("waits", "failed") or stage in self.finished:
            return
        self.finished.add(stage)
        name, _, cycle = stage.partition("@")
        if name == "evaluate":
            metrics = read_json(Pipeline().path("evaluate", "metrics", cycle))
            note = "" if outcome == "ran" else "  (was up to date)"
            print_line(f"  {cycle}  {metrics['labels']:>6,} labels  {format_metrics(metrics)}{note}")
        elif not console.is_terminal and outcome == "ran":
            console.print(f"  {stage} {seconds:.1f} s")

    def refresh_until_over(self) -> None:
        while not self.is_over.wait(REFRESH_SECONDS):
            self.update_campaign_bar()
            for stage in list(self.running):
                self.update_stage_bar(stage)

    def update_campaign_bar(self) -> None:
        done = len(self.finished)
        self.bars.update(self.campaign_bar, completed=done, count=f"{done} of {self.total} stages")

    def update_stage_bar(self, stage: str) -> None:
        note = state_directory.read_note("progress", stage)
        if note is None:
            self.bars.update(self.stage_bar, description=stage, total=None, count="")
        else:
            count = format_progress(note)
            self.bars.update(
                self.stage_bar, description=stage, total=note["total"], completed=note["done"], count=count
            )


def format_progress(note: dict[str, Any]) -> str:
    curve = note.get("curve")
    loss = f", loss {curve[-1]['task_loss']:.3f}" if curve else ""
    return f"{note['unit']} {note['done']} of {note['total']}{loss}{worker_text(note)}{speed_text(note)}"


# Columns after the primary metric: key in metrics.json or diagnostics.json, heading, format. Campaigns have some.
COLUMNS = (
    ("balanced_accuracy", "balanced\naccuracy", ".1%"),
    ("macro_f1", "macro\nF1", ".1%"),
    ("loss", "loss", ".3f"),
    ("loss_ratio", "query\nloss", ".2f"),
    ("spearman", "Spearman", "+.2f"),
)


def print_learning_curve() -> None:
    pipeline = Pipeline()
    evaluated = evaluated_metrics(pipeline)
    rows = {cycle: metrics | read_diagnostics(pipeline, cycle) for cycle, metrics in evaluated.items()}
    columns = [column for column in COLUMNS if any(row.get(column[0]) is not None for row in rows.values())]
    is_diagnosed = any(key == "loss_ratio" for key, _, _ in columns)
    caption = "query loss: mean true loss of the query, relative to all unlabelled images" if is_diagnosed else None
    table = Table(title="Learning curve", caption=caption, box=SIMPLE_HEAD, padding=(0, 1, 0, 0))  # fits 80 columns
    headings = ["labels", metric_heading(evaluated), *(heading for _, heading, _ in columns)]
    for heading in ("cycle", *headings):
        table.add_column(heading, justify="left" if heading == "cycle" else "right", no_wrap=True)
    for cycle, row in rows.items():
        values = [row.get(key) for key, _, _ in columns]
        cells = [
            "" if value is None else format(value, column[2]) for value, column in zip(values, columns, strict=True)
        ]
        table.add_row(cycle, f"{row['labels']:,}", str(primary_metric(row)), *cells)
    console.print(table)


def format_metrics(metrics: dict[str, Any]) -> str:
    """The primary metric with its interval, and the means over classes that the task has."""
    metric = primary_metric(metrics)
    names = {"balanced_accuracy": "balanced", "macro_f1": "macro F1"}
    means = [f"{name} {metrics[key]:.1%}" for key, name in names.items() if key in metrics]
    return "  ".join([f"{metric.name} {metric}", *means])


def read_diagnostics(pipeline: Pipeline, cycle: str) -> dict[str, Any]:
    """diagnostics.json of a cycle that has a query and was diagnosed. It shares no key with metrics.json."""
    if cycle not in pipeline.queries:
        return {}
    path = pipeline.path("diagnose", "diagnostics", cycle)
    diagnostics: dict[str, Any] = read_json(path) if path.exists() else {}
    return diagnostics


def print_status(outdated: list[str], running: dict[str, int], missing_labels: list[str]) -> None:
    """Print what is done and what is not, cycle by cycle, with the metrics of the present parameters alone.

    `outdated` lists the stages that are not up to date, and those that follow from them; `running` has the processes
    of those that are being run, `missing_labels` what people have yet to do.
    """
    pipeline = Pipeline()
    current = [cycle for cycle in pipeline.cycles if f"evaluate@{cycle}" not in outdated]
    evaluated = evaluated_metrics(pipeline, current)
    metric = metric_heading(evaluated)
    table = Table(title="Campaign")
    for heading in ("cycle", "labels", metric, "done", "to do"):
        is_number = heading in ("labels", metric)
        table.add_column(heading, justify="right" if is_number else "left", no_wrap=is_number)
    for cycle in pipeline.cycles:
        stages = [name.partition("@")[0] for name in pipeline.stage_names() if name.endswith(f"@{cycle}")]
        to_do = [stage for stage in stages if f"{stage}@{cycle}" in outdated]
        metrics = evaluated.get(cycle)
        cells = [f"{metrics['labels']:,}", str(primary_metric(metrics))] if metrics else ["", ""]
        table.add_row(cycle, *cells, " ".join(stage for stage in stages if stage not in to_do), " ".join(to_do))
    console.print(table)
    for stage, process in running.items():
        note = state_directory.read_note("progress", stage)
        print_line(f"{stage} is running (process {process}){f': {format_progress(note)}' if note else ''}")
    if missing_labels:
        print_line("\n".join(missing_labels))
    elif outdated:
        print_line(f"Up to {len(outdated)} stages to do{'' if running else ': codline run'}")
    else:
        print_line("Everything is up to date.")


def metric_heading(evaluated: dict[str, dict[str, Any]]) -> str:
    name = next((primary_metric(metrics).name for metrics in evaluated.values()), "accuracy")
    return f"{name}\n[95% interval]"


def print_presets(descriptions: dict[str, str]) -> None:
    table = Table(title="presets")
    for heading in ("name", "what it is"):
        table.add_column(heading, overflow="fold")
    for name, description in descriptions.items():
        table.add_row(name, description)
    console.print(table)


def print_outcome(outcome: str) -> None:
    report = Pipeline().path("report", "report") / "index.html"
    print_line(f"{outcome} Open {report} for the report; `codline ui` shows MLflow and Prefect.")


def print_line(text: str, style: str | None = None) -> None:
    """Print without wrapping: a path or command that is wrapped cannot be copied."""
    console.print(text, style=style, soft_wrap=True, markup=False)
