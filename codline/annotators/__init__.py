"""The annotators. To add one: write its file, and its class into this union."""

from typing import Annotated

from pydantic import Field

from codline.annotators.people import People
from codline.annotators.simulated import Simulated

AnyAnnotator = Annotated[Simulated | People, Field(discriminator="name")]
