"""Finished campaigns made up for drawing: the files that figures and tables read, with known numbers."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from codline.core.params import cycle_chain
from codline.orchestration import presets
from codline.paper.campaigns import Campaign, PanelCampaigns, Request
from codline.paper.items import Item
from codline.paper.published import TITLES
from tests.workspace import REPOSITORY

CYCLES, POOL = 7, 200
CLASSES = [f"class {i}" for i in range(19)]  # as many as Cityscapes has


def make_files(folder: Path, seed: int) -> list[dict[str, Any]]:
    """Files of a campaign and its learning curve: the accuracy rises by 5 points a cycle from 40%, 1 more by seed."""
    (folder / "data").mkdir(parents=True)
    shutil.copy(REPOSITORY / "dvc.yaml", folder)
    (folder / "params.yaml").write_text(json.dumps(cycle_chain(CYCLES)))
    pq.write_table(pa.table({"id": np.arange(POOL)}), folder / "data/pool.parquet")
    curve = []
    for i in range(CYCLES):
        value = 0.40 + 0.05 * i + 0.01 * seed
        curve.append({"cycle": f"c{i + 1}", "labels": 20 + 10 * i, "accuracy": value, "mean_iou": value, "loss": 1.0})
        (folder / f"cycles/c{i + 1}").mkdir(parents=True)
        (folder / f"cycles/c{i + 1}/details.json").write_text(json.dumps(details(value)))
        (folder / f"cycles/c{i + 1}/diagnostics.json").write_text(json.dumps(diagnostics(i)))
    return curve


def details(value: float) -> dict[str, Any]:
    shares = dict.fromkeys(CLASSES, 1 / len(CLASSES))
    return {"per_class_accuracy": dict.fromkeys(CLASSES, value), "per_class_iou": dict.fromkeys(CLASSES, value),
            "pixel_share": shares}  # fmt: skip


def diagnostics(cycle: int) -> dict[str, Any]:
    capture = (np.arange(1, 101) / 100).tolist()
    within = {"steps": [5, 10], "all": [4.0 + cycle, 5.0 + cycle], "variation": [0.2, 0.3]}
    return {
        "mean_discrepancy": 0.5 / (cycle + 1),
        "mean_loss": 2.0 / (cycle + 1),
        "bucket_losses": np.linspace(2, 0, 20).tolist(),
        "capture": capture,
        "squared_gradient_norm": {"all": 5.0 + cycle, "variation": 0.3, "within_cycle": within},
        "tod": {"10": {"capture": capture}, "100": {"capture": capture}},
    }


def make_request(item: Item, root: Path, scale: str = "paper", missing: tuple[str, ...] = ()) -> Request:
    """A request with two seeds per arm; all arms have the same files. Datasets in `missing` have no data."""
    folders = {seed: root / f"seed-{seed}" for seed in (0, 1)}
    curves = {seed: make_files(folder, seed) for seed, folder in folders.items()}
    campaigns = [Campaign(arm, seed, folders[seed], curves[seed]) for arm in item.arms for seed in (0, 1)]
    panels = [
        PanelCampaigns(dataset, "", TITLES[dataset], f"give --data {dataset}=FOLDER", [])
        if dataset in missing
        else PanelCampaigns(dataset, dataset, TITLES[dataset], "", campaigns)
        for dataset in item.datasets
    ]
    return Request(item.name, scale, panels, {} if item.datasets else paper_presets())


def paper_presets() -> dict[str, dict[str, Any]]:
    return {name: presets.resolve(f"{name}-paper", REPOSITORY / "presets") for name in TITLES}
