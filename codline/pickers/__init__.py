"""Picker plug-ins. To add one: write its module and add its class to this union."""

from typing import Annotated

from pydantic import Field

from codline.pickers.class_balanced import ClassBalanced
from codline.pickers.power import Power
from codline.pickers.softmax import Softmax
from codline.pickers.top import Top

AnyPicker = Annotated[Top | Power | Softmax | ClassBalanced, Field(discriminator="name")]
