"""The datasets. To add one: write its file, and its class into this union."""

from typing import Annotated

from pydantic import Field

from codline.datasets.camvid import Camvid
from codline.datasets.cityscapes import Cityscapes
from codline.datasets.digits import Digits
from codline.datasets.folder import Folder
from codline.datasets.parquet import Parquet
from codline.datasets.streets import Streets

AnyDataset = Annotated[Camvid | Cityscapes | Digits | Folder | Parquet | Streets, Field(discriminator="name")]
