"""The unsupervised objectives. To add one: write its file, and its class into this union."""

from typing import Annotated

from pydantic import Field

from codline.objectives.cyclic import Cyclic
from codline.objectives.ema import Ema
from codline.objectives.ll4al import Ll4al
from codline.objectives.none import Nothing

AnyObjective = Annotated[Nothing | Ema | Cyclic | Ll4al, Field(discriminator="name")]
