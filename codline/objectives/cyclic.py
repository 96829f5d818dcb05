"""Squared output discrepancy to the previous cycle's model, kept fixed. The first cycle trains on labels alone."""

from typing import TYPE_CHECKING, Literal

from codline.objectives.base import DiscrepancyObjective, TrainingContext

if TYPE_CHECKING:
    from codline.models.networks.network import Network
    from codline.objectives.modules.previous_model import PreviousModel


class CyclicObjective(DiscrepancyObjective):
    name: Literal["cyclic"] = "cyclic"

    def make_auxiliary(self, network: "Network", context: TrainingContext) -> "PreviousModel | None":
        from codline.objectives.modules.previous_model import PreviousModel

        return PreviousModel(context.previous_network, self) if context.previous_network is not None else None
