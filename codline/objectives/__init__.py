"""The objectives, whose losses training adds to the task loss. To add one: write its file and add its class here."""

from typing import Annotated

from pydantic import Field

from codline.objectives.cyclic import CyclicObjective
from codline.objectives.ema import EmaObjective
from codline.objectives.fixmatch import FixmatchObjective
from codline.objectives.ll4al import Ll4alObjective

AnyObjective = Annotated[
    EmaObjective | CyclicObjective | FixmatchObjective | Ll4alObjective, Field(discriminator="name")
]
