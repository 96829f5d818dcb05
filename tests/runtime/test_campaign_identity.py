"""Campaigns have names that tell what they are and keys that tell them apart."""

import re

import pytest
from hypothesis import given, strategies as st

from codline.core import params
from codline.runtime.campaign_identity import TITLE, CampaignIdentity
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


def test_flow_title_of_a_point_of_a_study_is_that_of_the_point(monkeypatch: pytest.MonkeyPatch) -> None:
    assert CampaignIdentity(PARAMS).flow_title == "digits · cod · seed 0"
    monkeypatch.setenv(TITLE, "digits-objectives · without unsupervised loss · seed 0")
    assert CampaignIdentity(PARAMS).flow_title == "digits-objectives · without unsupervised loss · seed 0"
    assert CampaignIdentity(PARAMS).title == "digits · cod · seed 0"
