"""The datasets. To add one: write its file, and its class into this union."""

from codline.datasets.digits import Digits

AnyDataset = Digits
