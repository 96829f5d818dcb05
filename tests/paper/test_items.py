"""The items and protocols: every figure and table of the paper, with campaigns that exist at every scale."""

from importlib import import_module

import pytest

from codline.core.errors import UserError
from codline.paper.items import ITEMS, Item, find_item
from codline.paper.protocols import find_scale, protocols
from codline.paper.published import TITLES

DRAWN = [item for item in ITEMS if not item.is_diagram]


def test_items_are_all_figures_and_tables_of_the_paper() -> None:
    places = {item.place for item in ITEMS}
    expected = {f"Figure {i}" for i in range(1, 15)} | {f"Table {i}" for i in range(1, 6)}
    assert places == expected | {"Supplementary, proofs"}
    assert len({item.name for item in ITEMS}) == len(ITEMS)


@pytest.mark.parametrize("item", DRAWN, ids=lambda item: item.name)
def test_item_names_a_function_that_draws_it_and_arms_and_datasets_that_exist(item: Item) -> None:
    module, _, function = item.draw.partition(".")
    assert callable(getattr(import_module(f"codline.paper.{module}"), function))
    assert {*item.arms} <= {*protocols().arms}
    assert {*item.datasets} <= {*TITLES}


def test_every_arm_is_needed_by_an_item() -> None:
    assert {arm for item in ITEMS for arm in item.arms} == {*protocols().arms}


@pytest.mark.parametrize("scale", protocols().scales)
def test_every_scale_has_a_dataset_for_each_of_the_paper_s(scale: str) -> None:
    assert all(find_scale(scale).candidates(dataset) for dataset in TITLES)


def test_smoke_scale_needs_no_data() -> None:
    assert all(each.data == "embedded" for each in find_scale("smoke").datasets.values())


@pytest.mark.parametrize("name", ["classification", "figure-7", "Figure 7", "FIGURE_7"])
def test_item_is_found_by_name_and_by_place(name: str) -> None:
    assert find_item(name).name == "classification"


def test_unknown_item_and_unknown_scale_are_refused_with_a_suggestion() -> None:
    with pytest.raises(UserError, match="unknown item 'clasification'; did you mean classification"):
        find_item("clasification")
    with pytest.raises(UserError, match="--scale: unknown scale 'smal'; did you mean small"):
        find_scale("smal")


def test_scaled_decay_spans_the_share_of_steps_that_the_paper_s_spans() -> None:
    objective = {"name": "ema", "decay": 0.999}
    assert find_scale("small").objective(objective) == {"name": "ema", "horizon": pytest.approx(1000 / 7200, abs=1e-6)}
    assert find_scale("paper").objective(objective) == objective
