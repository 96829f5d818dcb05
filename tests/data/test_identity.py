"""Ids from content: the first 63 bits of a SHA-256; different files with the same id are refused."""

import hashlib
from typing import Any

import numpy as np
import pytest
from hypothesis import given, strategies as st

from codline.core.errors import DataError
from codline.data.identity import DIGEST, DistinctImages, content_ids, find_distinct_images

contents = st.lists(st.binary(max_size=2), min_size=1, max_size=40)


def find(names: list[str], digests: list[bytes], labels: list[int], **options: Any) -> DistinctImages:
    is_test = np.zeros(len(names), bool)
    arrays = np.array(digests, DIGEST), np.array(labels, np.int32), is_test
    return find_distinct_images("here", names, *arrays, str, **options)


@given(contents)
def test_content_ids_are_the_first_63_bits(cells: list[bytes]) -> None:
    digests = [hashlib.sha256(cell).digest() for cell in cells]
    assert content_ids(np.array(digests, DIGEST)).tolist() == [int(digest.hex(), 16) >> 193 for digest in digests]


def test_content_ids_count_zeros_at_the_end_of_a_digest() -> None:
    digest = bytes([1] * 7 + [0] * 25)
    assert content_ids(np.array([digest], DIGEST)).tolist() == [int.from_bytes(digest[:8], "big") >> 1]


@given(contents, st.randoms(use_true_random=False))
def test_find_distinct_images_does_not_depend_on_the_order_of_the_files(cells: list[bytes], random: Any) -> None:
    files = [(f"{number}.png", hashlib.sha256(cell).digest(), len(cell)) for number, cell in enumerate(cells)]
    shuffled = random.sample(files, len(files))
    first, second = (find(*map(list, zip(*some, strict=True))) for some in (files, shuffled))
    assert first.ids.tolist() == second.ids.tolist()
    assert len(first.ids) == len(set(cells))
    assert first.labels.tolist() == second.labels.tolist()
    assert first.files.equals(second.files)
    assert [files[row][0] for row in first.rows] == [shuffled[row][0] for row in second.rows]


def test_find_distinct_images_refuses_a_collision() -> None:
    digests = [bytes(8) + bytes([number] * 24) for number in (1, 2)]
    with pytest.raises(
        DataError, match=r"^a.png and b.png: different files whose SHA-256 begins with the same 63 bits"
    ):
        find(["a.png", "b.png"], digests, [0, 0])


def test_find_distinct_images_takes_the_label_of_an_identical_file() -> None:
    found = find(["a.png", "b.png", "c.png"], [bytes(32), bytes(32), bytes([1] * 32)], [-1, 4, -1])
    assert found.labels.tolist() == [4, -1]
