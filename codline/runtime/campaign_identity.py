"""Which campaign params.yaml describes, and the names under which MLflow and Prefect show it."""

import hashlib
import json
import re
from functools import cached_property
from typing import Any

from codline.core.errors import UserError
from codline.runtime.pipeline import Pipeline

# Sections of params.yaml in which two states of the same campaign may differ: it can be continued with more cycles.
LENGTH_SECTIONS = ("cycles", "queries", "report")
SEPARATOR = " · "


class CampaignIdentity:
    def __init__(self, params: dict[str, Any]) -> None:
        self.all_params = params

    @cached_property
    def params(self) -> dict[str, Any]:
        """The parameters that make it this campaign and no other."""
        return {key: value for key, value in self.all_params.items() if key not in LENGTH_SECTIONS}

    @cached_property
    def key(self) -> str:
        return hashlib.sha256(json.dumps(self.params, sort_keys=True).encode()).hexdigest()[:32]

    @property
    def dataset(self) -> str:
        return str(self.all_params["prepare"]["dataset"]["name"])

    @property
    def method(self) -> str:
        """The strategy, unless all images are labeled from the start and no query is ever selected."""
        everything_labeled = self.all_params["prepare"]["start"] == "all" and not self.all_params["queries"]
        return "full training" if everything_labeled else str(self.all_params["score"]["strategy"]["name"])

    @property
    def seed(self) -> int:
        return int(self.all_params["seed"])

    @property
    def title(self) -> str:
        """For example `digits · cod · seed 0`."""
        return SEPARATOR.join((self.dataset, self.method, f"seed {self.seed}"))

    @property
    def slug(self) -> str:
        """The title in lower-case letters, digits and dashes, with enough of the key to tell campaigns apart."""
        return re.sub(r"[^a-z0-9]+", "-", f"{self.title} {self.key[:8]}".lower()).strip("-")


def current_campaign() -> CampaignIdentity:
    """The campaign of the params.yaml in the current directory."""
    return CampaignIdentity(Pipeline().params)


def current_key() -> str | None:
    """Its key, or None for a stage that is run by hand where there is no params.yaml."""
    try:
        return current_campaign().key
    except UserError:
        return None
