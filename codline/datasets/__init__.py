"""Dataset plug-ins. To add one: write its module and add its class to this union."""

from typing import Annotated

from pydantic import Field

from codline.datasets.caltech101 import Caltech101
from codline.datasets.camvid import Camvid
from codline.datasets.cifar10 import Cifar10
from codline.datasets.cifar100 import Cifar100
from codline.datasets.cityscapes import Cityscapes
from codline.datasets.digits import Digits
from codline.datasets.fashion_mnist import FashionMnist
from codline.datasets.folder import Folder
from codline.datasets.parquet import Parquet
from codline.datasets.streets import Streets
from codline.datasets.svhn import Svhn

AnyDataset = Annotated[
    Digits | Parquet | Folder | Streets | Camvid | Cityscapes | FashionMnist | Cifar10 | Cifar100 | Svhn | Caltech101,
    Field(discriminator="name"),
]
