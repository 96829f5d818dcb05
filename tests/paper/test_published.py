"""published.yaml: complete, and consistent with what the paper says of its own numbers."""

import numpy as np
import pytest

from codline.paper import published
from codline.paper.published import TITLES


def test_class_iou_has_19_classes_whose_mean_is_the_printed_one() -> None:
    table = published.numbers()["class_iou"]
    for arm in ("Random", "Random + L_U"):
        assert len(table[arm]) == 19
        assert np.mean(table[arm]) == pytest.approx(table["mean"][arm], abs=0.11)  # 59.0 of rounded cells, 58.9 printed
    assert sum(table["proportion"]) == pytest.approx(100, abs=0.5)


@pytest.mark.parametrize(("dataset", "gains"), [("cifar10", [0.4, 2.4, 2.7]), ("cifar100", [3.8, 5.0, 6.2])])
def test_forty_percent_has_the_printed_gains_over_base(dataset: str, gains: list[float]) -> None:
    row = published.numbers()["forty_percent"][dataset]
    assert len(row) == 8
    found = [row[arm] - row["Random"] for arm in ("Random + L_U", "Ours-Task", "Ours-Semi")]
    assert found == pytest.approx(gains)


def test_tables_of_settings_have_a_row_for_each_dataset() -> None:
    for table in ("datasets", "details"):
        rows = published.numbers()[table]
        assert [*rows] == [*TITLES]
        assert len({tuple(row) for row in rows.values()}) == 1


def test_numbers_that_were_printed_as_a_curve_only_are_absent() -> None:
    assert published.forty_percent("cifar10", "CoreGCN") is None
    assert published.forty_percent("svhn", "Ours-Semi") is None
    assert published.forty_percent("cifar10", "Full Training") == 93.1
