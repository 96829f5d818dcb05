"""Amounts of images: shares of the pool, or numbers."""

from hypothesis import given, strategies as st

from codline.data.splits import resolve_amount


@given(st.floats(0, 1, exclude_min=True, exclude_max=True), st.integers(1, 10**6))
def test_resolve_amount_of_a_share_is_between_one_image_and_all(share: float, total: int) -> None:
    assert 1 <= resolve_amount(share, total) <= total
    assert abs(resolve_amount(share, total) - share * total) <= 1


@given(st.integers(1, 10**6), st.integers(1, 10**6))
def test_resolve_amount_of_a_number_is_that_number(count: int, total: int) -> None:
    assert resolve_amount(count, total) == count
