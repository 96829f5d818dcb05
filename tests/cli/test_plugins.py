"""The listings of plug-ins."""

import pytest

from codline.cli.plugins import UNIONS, members, plugins_table


@pytest.mark.parametrize("family", UNIONS)
def test_plugins_table_lists_every_member_with_a_description(family: str) -> None:
    table = plugins_table(family)
    assert table.row_count == len(members(family)) > 0
    assert all(str(cell) for cell in table.columns[2].cells)
