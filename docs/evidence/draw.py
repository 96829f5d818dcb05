"""Draws fashion-mnist.png from fashion-mnist.json: python docs/evidence/draw.py"""

from pathlib import Path

from codline.core.files import read_json
from codline.evaluation.study_statistics import summarize_study
from codline.report.chart_layout import to_png
from codline.report.study_figure import study_chart

HERE = Path(__file__).parent
NAME, TITLE = "fashion-mnist", "Fashion-MNIST, small CNN, no unsupervised loss"
ARMS = ("cod", "margin", "ll4al", "random")


def main() -> None:
    campaigns = read_json(HERE / f"{NAME}.json")
    points = [
        {
            "arm": each["arm"],
            "seed": each["seed"],
            "curve": [{"labels": labels, "accuracy": accuracy} for labels, accuracy in each["curve"]],
        }
        for each in campaigns
        if each["arm"] in ARMS
    ]
    study = {"title": TITLE, "reference": "random", "arms": [{"arm": arm} for arm in ARMS], "points": points}
    (HERE / f"{NAME}.png").write_bytes(to_png(study_chart(summarize_study(study))))


if __name__ == "__main__":
    main()
