"""Campaigns have names that tell what they are and keys that tell them apart."""

import re

from hypothesis import given, strategies as st

from codline.core import params
from codline.runtime.campaign_identity import CampaignIdentity
from tests.workspace import REPOSITORY

PARAMS = params.read_yaml(REPOSITORY / "params.yaml")


@given(dataset=st.sampled_from(["digits", "fashion_mnist"]), strategy=st.text(min_size=1), seed=st.integers(0))
def test_slug_is_a_valid_artifact_key_and_differs_between_campaigns(dataset: str, strategy: str, seed: int) -> None:
    changed = PARAMS | {
        "prepare": PARAMS["prepare"] | {"dataset": {"name": dataset}},
        "score": PARAMS["score"] | {"strategy": {"name": strategy}},
        "seed": seed,
    }
    campaign = CampaignIdentity(changed)
    assert re.fullmatch(r"[a-z0-9]+(-[a-z0-9]+)*", campaign.slug)
    assert campaign.slug != CampaignIdentity(changed | {"train": {"epochs": 1}}).slug
