"""Write presets.md from the layers in presets/: python docs/presets.py"""

from pathlib import Path
from typing import Any

from codline.core.files import write_text
from codline.orchestration import presets

HERE = Path(__file__).parent
FOLDER = HERE.parent / "presets"
BASE = ("recipes/base", "methods/codline")
KINDS = ("paper", "released", "codline", "full")
INTRODUCTION = """\
# Presets

*Written by `python docs/presets.py` from the files in [presets/](../presets); a test compares. Change those, not this page.*

A preset is a complete params.yaml, composed of layers in which every value is written once: datasets, recipes (network and schedule) and methods.
Why not Hydra: [decision 10](decisions/0010-presets.md).

    codline presets                                              lists them
    codline run --preset digits --seed 1 -S train.epochs=10      the other options are laid over the preset
    codline preset digits && dvc exp run                         written into params.yaml, then run by DVC; or dvc repro
    prefect deployment run campaign/local -p preset=digits       the same through a deployment

Each way writes params.yaml whole and checks it first; a preset that is refused changes nothing. Files are looked for in `raw/`, which is not tracked;
`-S prepare.dataset.root=...`, or `-S 'prepare.dataset.train=[...]'` for Parquet files, says where else they are.

*Supplementary* and *paper* are Huang et al., ICCV 2021; `main_TOD.py`, `config/` and `models/` are files of the authors' code,
github.com/siyuhuang/TOD at 883494b. Where the two differ, the preset `-paper` has the one and `-released` the other. `-full` is full training: everything
labelled, one cycle, the same recipe. The paper does not say how long it trained there; a campaign of seven warm-started cycles trains seven times as long.
"""
LIMITS = """\
## What no preset says

These differ between the paper and its code, too, and have no parameter here:

| topic | paper | released |
|---|---|---|
| images of Caltech-101 | 9,146 with the background: 7,316 in the pool (here 6,847) | 8,677 without it, as here: 7,766 in the pool |
| size of Caltech-101's images | resized to 256x256 whatever their shape, then the middle 224x224 | the same; here the shape is kept, and the middle cut out |
| segmentation | described | not released |

Both count three runs: `--seed 0`, `1` and `2`.
"""


def page() -> str:
    names = presets.names(FOLDER)
    families = sorted({name.rpartition("-")[0] for name in names if name.endswith(("-paper", "-released"))})
    grouped = {
        family: [name for name in names if name in {f"{family}-{kind}" for kind in KINDS}] for family in families
    }
    single = [name for name in names if not any(name in group for group in grouped.values())]
    alone = {
        name: [name for name in (name, f"{name}-full") if name in single]
        for name in single
        if name.removesuffix("-full") == name
    }
    tables = [compared(family, sorted(group, key=order)) for family, group in grouped.items()] + [
        compared(*group) for group in alone.items()
    ]
    return "\n".join([INTRODUCTION, listed(names), base(), *tables, LIMITS])


def order(name: str) -> int:
    return KINDS.index(name.rpartition("-")[2])


def listed(names: list[str]) -> str:
    rows = []
    for name in names:
        layer = presets.read(presets.file(name, FOLDER))
        rows.append(
            [
                f"[{name}](../presets/{name}.yaml)",
                layer.about,
                ", ".join(f"[{part}](../presets/{part}.yaml)" for part in layer.extends),
            ]
        )
    return "## All of them\n\n" + table(["preset", "what it is", "stands on"], rows)


def base() -> str:
    layers = beneath()
    values, origins = presets.leaves(presets.composed(layers)), presets.origins(layers)
    rows = [[f"`{key}`", spelled(value), origins[key]] for key, value in values.items()]
    return (
        "## The base\n\nWhat a preset has unless it says otherwise: the layers recipes/base and methods/codline.\n\n"
        + table(["parameter", "value", "source"], rows)
    )


def beneath() -> dict[str, presets.Layer]:
    return {name: layer for top in BASE for name, layer in presets.lineage(top, FOLDER).items()}


def compared(title: str, names: list[str]) -> str:
    """Every parameter in which one of the presets differs from the base, or has its value from elsewhere than another."""
    ground = presets.composed(beneath())
    lineages = [presets.lineage(name, FOLDER) for name in names]
    values = [presets.leaves(presets.composed(layers)) for layers in lineages]
    origins = [presets.origins(layers) for layers in lineages]
    columns = [presets.leaves(ground), *values]
    told = [
        key
        for key in dict.fromkeys(key for found in values for key in found)
        if differs(key, columns) or differs(key, origins)
    ]
    rows = [
        [
            f"`{key}`",
            *(spelled(found[key]) if key in found else "" for found in columns),
            sourced([found.get(key, "") for found in origins]),
        ]
        for key in sorted(told, key=lambda key: list(ground).index(key.partition(".")[0]))
    ]
    return f"## {title}\n\n" + table(["parameter", "base", *names, "source"], rows)


def differs(key: str, columns: list[dict[str, Any]]) -> bool:
    return any(key not in found or found[key] != columns[0].get(key) for found in columns)


def sourced(origins: list[str]) -> str:
    """In the order of the columns, each once."""
    return "; ".join(dict.fromkeys(origin for origin in origins if origin))


def spelled(value: Any) -> str:
    return {"None": "null", "True": "true", "False": "false"}.get(str(value), str(value))


def table(head: list[str], rows: list[list[str]]) -> str:
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [head, ["---"] * len(head), *rows]) + "\n"


if __name__ == "__main__":
    write_text(HERE / "presets.md", page())
