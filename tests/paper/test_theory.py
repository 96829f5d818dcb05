"""The checks of the proofs hold; their statements are in docs/method.md."""

import pytest
import torch

from codline.paper import theory


@pytest.mark.parametrize("name", ["Theorem 1, as an inequality", "Other images", "Remark 1"])
def test_check_of_the_proofs_holds(name: str) -> None:
    torch.set_default_dtype(torch.float64)
    try:
        assert theory.CHECKS[name]()
    finally:
        torch.set_default_dtype(torch.float32)
