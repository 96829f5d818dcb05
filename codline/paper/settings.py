"""The tables of datasets and of implementation details: what the `-paper` presets have, next to what is published."""

from typing import Any, NamedTuple

from codline.paper import published
from codline.paper.campaigns import Request
from codline.paper.drawing import Drawing, Table
from codline.paper.published import TITLES


class OfficialFiles(NamedTuple):
    """What is in the official files of a dataset, before images are put aside."""

    task: str
    content: str
    classes: int
    size: str
    train: int
    test: int


OFFICIAL = {
    "cifar10": OfficialFiles("image classification", "natural images", 10, "32x32", 50_000, 10_000),
    "cifar100": OfficialFiles("image classification", "natural images", 100, "32x32", 50_000, 10_000),
    "svhn": OfficialFiles("image classification", "street view house numbers", 10, "32x32", 73_257, 26_032),
    "caltech101": OfficialFiles("image classification", "natural images", 101, "224x224", 8_677, 0),  # no test split
    "cityscapes": OfficialFiles("semantic segmentation", "driving video frames", 19, "2048x1024", 2_975, 500),
}


def datasets(request: Request) -> Drawing:
    """Table 4."""
    columns = ["task", "content", "classes", "size", "train", "validation", "test"]
    rows = two_rows_each({name: dataset_row(name, raw) for name, raw in request.presets.items()}, "datasets", columns)
    notes = [
        "Size: of the images that are trained on. Caltech-101 is 8,677 images without the background class, as in the "
        "authors' code; the paper counts 9,146 with it."
    ]
    return Drawing(None, Table(["dataset", *columns], rows), notes)


def dataset_row(name: str, raw: dict[str, Any]) -> dict[str, Any]:
    files, prepare = OFFICIAL[name], raw["prepare"]
    validation = prepare["validation"]
    test = files.test or prepare["dataset"]["test"]
    pool = files.train - validation - (0 if files.test else test)
    crop = raw["train"]["augment"].get("size")
    size = f"{crop}x{crop}" if crop else files.size
    return files._asdict() | {"size": size, "train": pool, "validation": validation, "test": test}


def details(request: Request) -> Drawing:
    """Table 5."""
    columns = ["start", "budget", "cycles", "optimizer", "learning rate", "momentum", "weight decay", "epochs", "batch",
               "alpha", "lambda"]  # fmt: skip
    rows = two_rows_each({name: details_row(raw) for name, raw in request.presets.items()}, "details", columns)
    return Drawing(
        None,
        Table(["dataset", *columns], rows),
        ["alpha: decay of the moving average; lambda: weight of the unsupervised loss."],
    )


def details_row(raw: dict[str, Any]) -> dict[str, Any]:
    train = raw["train"]
    ema = next(each for each in train["objectives"] if each["name"] == "ema")
    return {
        "start": f"{raw['prepare']['start']:.0%}",
        "budget": f"{raw['select']['budget']:.0%}",
        "cycles": len(raw["cycles"]),
        "optimizer": train.get("optimizer", "sgd"),
        "learning rate": train["learning_rate"],
        "momentum": train["momentum"] or "-",
        "weight decay": train["weight_decay"] or "-",
        "epochs": train["epochs"],
        "batch": train["batch_size"],
        "alpha": ema["decay"],
        "lambda": ema["weight"],
    }


def two_rows_each(ours: dict[str, dict[str, Any]], section: str, columns: list[str]) -> list[list[str]]:
    """For each dataset a row of the preset and a row of the paper."""
    rows = []
    for name, values in ours.items():
        theirs = published.numbers()[section][name]
        for label, row in ((f"{TITLES[name]}, preset", values), (f"{TITLES[name]}, paper", theirs)):
            rows.append([label, *(f"{row[c]:,}" if isinstance(row[c], int) else str(row[c]) for c in columns)])
    return rows
