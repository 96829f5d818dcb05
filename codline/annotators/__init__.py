"""Annotator plug-ins. To add one: write its module and add its class to this union."""

from typing import Annotated

from pydantic import Field

from codline.annotators.people import People
from codline.annotators.simulated import Simulated

AnyAnnotator = Annotated[Simulated | People, Field(discriminator="name")]
