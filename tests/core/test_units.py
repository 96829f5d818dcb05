"""Quantities as text for users."""

import pytest

from codline.core.units import format_bytes


@pytest.mark.parametrize(
    ("count", "text"), [(999, "999 bytes"), (1000, "1.0 kB"), (14.8e9, "14.8 GB"), (7.04e16, "70400.0 TB")]
)
def test_sizes_are_formatted_in_decimal_units(count: float, text: str) -> None:
    assert format_bytes(count) == text
