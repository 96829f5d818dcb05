"""Copies the results of finished campaigns of a study into a file of this directory, for the tables of docs/log.md.

python docs/evidence/collect.py .codline/studies/evidence-cifar10 cifar10

Adds to what the file has: the campaigns of a study may be spread over machines.
"""

import json
import sys
from pathlib import Path
from typing import Any

from codline.core.files import read_json
from codline.evaluation.rank_statistics import capture_gain
from codline.paper.campaigns import Campaign
from codline.paper.losses import cod_capture

HERE = Path(__file__).parent
KEYS = ("spearman", "capture_gain", "loss_ratio")


def campaign_results(campaign: Campaign, seconds: float) -> dict[str, Any]:
    """The learning curve, and how well each query's scores rank images by their true loss."""
    return {
        "arm": campaign.arm,
        "seed": campaign.seed,
        "seconds": round(seconds),
        "curve": [[row["labels"], row["accuracy"]] for row in campaign.curve],
        "queries": [query_results(campaign, index) for index in range(len(campaign.queries))],
    }


def query_results(campaign: Campaign, index: int) -> dict[str, float]:
    """`cod_capture_gain`: of COD on the models of an LL4AL campaign, which has none in its first cycle."""
    content = campaign.diagnosis(campaign.queries[index]).content
    found = {key: content[key] for key in KEYS if content.get(key) is not None}
    if campaign.arm == "ll4al" and index:
        found["cod_capture_gain"] = capture_gain(cod_capture(campaign, index) / 100)
    return {key: round(float(value), 4) for key, value in found.items()}


def main(study: Path, name: str) -> None:
    path = HERE / f"{name}.json"
    results = {(each["arm"], each["seed"]): each for each in (read_json(path) if path.exists() else [])}
    for record in sorted(study.glob("*-s*.json")):
        point = read_json(record)
        campaign = Campaign(point["arm"], point["seed"], record.with_suffix(""), point["curve"])
        results[campaign.arm, campaign.seed] = campaign_results(campaign, point["seconds"])
    rows = (json.dumps(results[key]) for key in sorted(results))
    path.write_text("[\n" + ",\n".join(rows) + "\n]\n", encoding="utf-8")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
