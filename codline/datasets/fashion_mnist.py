"""Fashion-MNIST: grey pictures of clothes of 28x28 pixels; 60,000 in the pool, 10,000 for testing."""

from pathlib import Path
from typing import Literal

import numpy as np

from codline.data import downloads
from codline.data.raw_dataset import RawDataset
from codline.datasets.official import Official, understood


class FashionMnist(Official):
    """Neither the paper nor its code uses it. Once unpacked, the files have no checksums: torchvision takes them as they are."""

    name: Literal["fashion_mnist"] = "fashion_mnist"

    def load(self, rng: np.random.Generator) -> RawDataset:
        from torchvision.datasets import FashionMNIST  # two seconds to import

        folder = Path(self.root) / "FashionMNIST" / "raw"
        files = [(folder / name, f"{FashionMNIST.mirrors[0]}{name}", md5) for name, md5 in FashionMNIST.resources]

        def bring() -> None:
            for path, url, md5 in files:
                if not path.with_suffix("").is_file():
                    downloads.gunzipped(self.fetched(path, url, md5), path.with_suffix(""))

        self.provide(lambda: all(path.with_suffix("").is_file() for path, _, _ in files), bring)
        with understood(folder):
            train, test = FashionMNIST(self.root, train=True), FashionMNIST(self.root, train=False)
        parts = [(part.data.numpy()[:, None], part.targets.numpy()) for part in (train, test)]
        return self.split(parts, FashionMNIST.classes, rng)
