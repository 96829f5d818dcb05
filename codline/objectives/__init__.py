"""The unsupervised objectives. To add one: write its file and add its class to this union."""

from typing import Annotated

from pydantic import Field

from codline.objectives.cyclic import CyclicObjective
from codline.objectives.ema import EmaObjective
from codline.objectives.ll4al import Ll4alObjective
from codline.objectives.none import NoObjective

AnyObjective = Annotated[NoObjective | EmaObjective | CyclicObjective | Ll4alObjective, Field(discriminator="name")]
