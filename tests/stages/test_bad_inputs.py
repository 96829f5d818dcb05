"""Every stage refuses tables, models and outputs that cannot be right: one sentence, exit code 3, nothing written."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from codline.core.errors import DataError
from codline.data import output_store
from codline.learning import model_file
from tests.workspace import Workspace

Damage = Callable[[Path], None]


def rewrite(change: Callable[[pa.Table], pa.Table]) -> Damage:
    """Replace a table by a changed one, as a program other than codline would write it."""

    def damage(path: Path) -> None:
        table = pq.read_table(path)
        pq.write_table(change(table).cast(table.schema), path)

    return damage


def set_last(column: str, value: Any) -> Damage:
    def change(table: pa.Table) -> pa.Table:
        values = [*table[column].to_pylist()[:-1], value]
        index = table.column_names.index(column)
        return table.set_column(index, table.field(index), pa.array(values, table.field(index).type))

    return rewrite(change)


def set_weight(value: float) -> Damage:
    def damage(path: Path) -> None:
        tensors, meta = model_file.read_tensors(path)
        next(tensor for tensor in tensors.values() if tensor.is_floating_point()).view(-1)[0] = value
        model_file.write_tensors(path, tensors, meta)

    return damage


def set_logit(value: float) -> Damage:
    """In the stored outputs; codline itself refuses to write it."""

    def damage(path: Path) -> None:
        table = pq.read_table(path)
        logits = table["logits"].combine_chunks()
        values = logits.values.to_numpy().copy()
        values[0] = value
        changed = pa.FixedSizeListArray.from_arrays(pa.array(values), type=table.schema.field("logits").type)
        pq.write_table(pa.table([table["id"].combine_chunks(), changed], schema=table.schema), path)

    return damage


twice = rewrite(lambda table: pa.concat_tables([table, table.slice(0, 1)]))
empty = rewrite(lambda table: table.slice(0, 0))
TWICE, EMPTY, FINITE = "occurs more than once", "has no rows, expected at least one", "not a finite number"
LABEL, LOGITS = "has label 10, expected 0 to 9", "has outputs that are not finite numbers"

CASES: list[tuple[str, str, Damage, str]] = [
    ("train", "labeled", twice, TWICE),
    ("train", "labeled", empty, EMPTY),
    ("train", "labeled", set_last("label", 10), LABEL),
    ("train", "labeled", set_last("label", -1), "has label -1, expected 0 to 9"),
    ("train", "pool", twice, TWICE),
    ("train", "pool", empty, EMPTY),
    ("train", "previous_model", set_weight(float("nan")), FINITE),
    ("train", "previous_auxiliary", set_weight(float("inf")), FINITE),
    ("score", "labeled", twice, TWICE),
    ("score", "labeled", set_last("label", 10), LABEL),
    ("score", "pool", empty, EMPTY),
    ("score", "model", set_weight(float("-inf")), FINITE),
    ("score", "previous_outputs", set_logit(float("nan")), LOGITS),
    ("select", "pool", empty, EMPTY),
    ("select", "scores", set_last("score", float("nan")), "has no score (NaN)"),
    ("annotate", "answers", set_last("label", 10), LABEL),
    ("annotate", "query", twice, TWICE),
    ("annotate", "query", empty, EMPTY),
    ("merge", "previous_labeled", twice, TWICE),
    ("merge", "previous_labeled", set_last("label", 10), LABEL),
    ("merge", "annotations", set_last("label", 10), LABEL),
    ("evaluate", "test", twice, TWICE),
    ("evaluate", "test", empty, EMPTY),
    ("evaluate", "test", set_last("label", 10), LABEL),
    ("evaluate", "model", set_weight(float("nan")), FINITE),
    ("diagnose", "oracle", set_last("label", 10), LABEL),
    ("diagnose", "scores", empty, EMPTY),
    ("diagnose", "scores", set_last("score", float("nan")), "has no score (NaN)"),
    ("diagnose", "model", set_weight(float("nan")), FINITE),
    ("diagnose", "outputs", set_logit(float("inf")), LOGITS),
]


@pytest.mark.parametrize(("stage", "argument", "damage", "problem"), CASES)
def test_stage_refuses(workspace: Workspace, stage: str, argument: str, damage: Damage, problem: str) -> None:
    path = workspace.path(stage, argument, "c2")
    damage(path)
    written = workspace.outputs(stage, "c2")
    for output in written:
        output.unlink()
    with pytest.raises(DataError) as refused:
        workspace.run(stage, "c2")
    assert str(refused.value).startswith(f"{path.relative_to(workspace.root)}: ")
    assert problem in str(refused.value)
    assert "\n" not in str(refused.value)
    assert not any(output.exists() for output in written)


def test_report_refuses_a_label_outside_the_classes(workspace: Workspace) -> None:
    set_last("label", 10)(workspace.path("annotate", "annotations", "c1"))
    with pytest.raises(DataError, match=r"^cycles/c1/annotations\.parquet: id \d+ has label 10, expected 0 to 9$"):
        workspace.run("report")


@pytest.mark.parametrize("stage", ["score", "evaluate"])
def test_stage_refuses_a_model_whose_outputs_overflow(workspace: Workspace, stage: str) -> None:
    """Finite weights may still give infinite outputs."""
    path = workspace.path(stage, "model", "c2")
    tensors, meta = model_file.read_tensors(path)
    for key, tensor in tensors.items():
        if key.endswith("weight"):
            tensor.fill_(1e30)
    model_file.write_tensors(path, tensors, meta)
    with pytest.raises(DataError, match="the model's outputs are not finite numbers"):
        workspace.run(stage, "c2")


def test_output_writer_refuses_what_half_precision_cannot_store(tmp_path: Path) -> None:
    dense = np.full((2, 3, 4, 4), 1e5, np.float32)
    with (
        pytest.raises(DataError, match="not finite, or too large to be stored"),
        output_store.output_writer(tmp_path / "outputs", (3, 4, 4), "c1") as write,
    ):
        write(np.arange(2), dense)
    assert not list(tmp_path.iterdir())
