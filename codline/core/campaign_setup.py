"""What params.yaml says about a campaign as a whole: dataset, model and strategy, by name."""

from typing import Any, NamedTuple

from codline.core.errors import UserError


class CampaignSetup(NamedTuple):
    dataset: str
    model: str
    strategy: str


# Where params.yaml has the names; a stage that takes a CampaignSetup tracks these parameters.
KEYS = CampaignSetup("prepare.dataset.name", "prepare.model.name", "score.strategy.name")


def parse_setup(raw: dict[str, Any]) -> CampaignSetup:
    return CampaignSetup(*(name_at(raw, key) for key in KEYS))


def name_at(raw: dict[str, Any], key: str) -> str:
    value: Any = raw
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    if not isinstance(value, str):
        raise UserError(f"params.yaml: {key}: found {value!r}, expected a name")
    return value
