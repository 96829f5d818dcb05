"""The table of sampling times, measured anew on the files of finished campaigns."""

import contextlib
import tempfile
import time
from pathlib import Path
from typing import Any

from ruamel.yaml import YAML

from codline.core.files import read_json
from codline.evaluation.study_statistics import Estimate, estimate
from codline.paper import published
from codline.paper.campaigns import Campaign, PanelCampaigns, Request
from codline.paper.drawing import Drawing, Table, format_estimate, format_published, panel_notes

METHODS = {"Core-set": "Core-set", "VAAL": "VAAL", "LL4AL": "LL4AL", "Ours-Task": "COD (ours)"}
EXTRA_MODEL = ("VAAL", "LL4AL")


def sampling_times(request: Request) -> Drawing:
    """Table 3: seconds of score and select in the last query; learning of extra models in columns of its own.

    VAAL learns when it samples: its sampling is measured with one step of learning, the rest is learning. LL4AL's loss
    predictor learns with the model: its learning is what the training took longer than one without it.
    """
    panels = [panel for panel in request.panels if panel.campaigns]
    columns = ["method"]
    for panel in panels:
        columns += [f"{panel.title}, sampling", "learning", "paper"]
    rows = []
    for arm, label in METHODS.items():
        row = [label]
        for panel in panels:
            sampling, learning = measure_arm(panel, arm)
            theirs = published.numbers()["sampling_seconds"][arm].get(panel.dataset)
            row += [format_estimate(sampling, 2), format_estimate(learning, 2), format_published(theirs)]
        rows.append([*row, "yes" if arm in EXTRA_MODEL else "no"])
    counts = [f"{panel.title} {query_text(panel)}" for panel in panels]
    notes = [
        "Seconds, measured on this machine on the files of the last query; the paper's are of an NVIDIA GTX 1080 Ti, "
        "and it does not say whether they include learning.",
        f"Scored and selected images: {'; '.join(counts)}.",
        *panel_notes(request.panels),
    ]
    return Drawing(None, Table([*columns, "extra model?"], rows), notes)


def query_text(panel: PanelCampaigns) -> str:
    campaign = panel.campaigns[0]
    before, after = (row["labels"] for row in campaign.curve[-2:])
    return f"{campaign.pool - before:,} and {after - before:,}"


def measure_arm(panel: PanelCampaigns, arm: str) -> tuple[Estimate | None, Estimate | None]:
    """Seconds of sampling and of learning, over seeds."""
    campaigns = panel.of(arm)
    if not campaigns:
        return None, None
    sampling, learning = [], []
    for campaign in campaigns:
        strategy = campaign.pipeline.params["score"]["strategy"]
        one_step = {"steps": 1} if arm == "VAAL" else {}
        seconds = score_seconds(campaign, strategy | one_step)
        sampling.append(seconds)
        if arm == "VAAL":
            learning.append(max(score_seconds(campaign, strategy) - seconds, 0.0))
        if arm == "LL4AL" and (longer := longer_training(campaign, panel.of("Random"))) is not None:
            learning.append(longer)
    return estimate(sampling), estimate(learning) if learning else None


def score_seconds(campaign: Campaign, strategy: dict[str, Any]) -> float:
    """Seconds that score and select take in the last query cycle, as functions, the second time."""
    from stages import score, select
    from stages.runner import stage_arguments

    cycle, raw = campaign.queries[-1], campaign.pipeline.params
    with tempfile.TemporaryDirectory() as name, contextlib.chdir(name):  # notes of progress go there
        folder = Path(name)
        with (folder / "params.yaml").open("w", encoding="utf-8") as file:
            YAML(typ="safe", pure=True).dump(raw | {"score": raw["score"] | {"strategy": strategy}}, file)
        outs = {argument: folder / f"{argument}.parquet" for argument in ("outputs", "scores", "query")}
        calls = []
        for stage in (score.score, select.select):
            arguments: dict[str, Any] = campaign.pipeline.arguments(stage.__name__, cycle)
            paths = {key: value if key == "cycle" else campaign.folder / value for key, value in arguments.items()}
            ours = {key: path for key, path in outs.items() if key in paths}
            calls.append((stage, paths | ours | {"params": folder / "params.yaml"}))
        for _ in range(2):
            began = time.perf_counter()
            for stage, arguments in calls:
                stage(**stage_arguments(stage, arguments))
            seconds = time.perf_counter() - began
    return seconds


def longer_training(campaign: Campaign, others: list[Campaign]) -> float | None:
    """How many seconds longer the training before the last query took than that of the same seed without a predictor.

    None if one of them was not run, but taken from the cache.
    """
    cycle = campaign.queries[-1]
    same_seed = [other for other in others if other.seed == campaign.seed]
    notes = [each.folder / ".codline/seconds" / f"train@{cycle}.json" for each in (campaign, *same_seed)]
    if len(notes) < 2 or not all(note.exists() for note in notes):
        return None
    ours, theirs = (float(read_json(note)["seconds"]) for note in notes)
    return max(ours - theirs, 0.0)
