"""Fashion-MNIST: gray images of clothes of 28x28 pixels; 60,000 for training, 10,000 for testing."""

from pathlib import Path
from typing import Literal

import numpy as np

from codline.core.files import user_path
from codline.data import downloads
from codline.data.raw_dataset import RawDataset
from codline.datasets.official import OfficialDataset, translate_torchvision_errors


class FashionMnist(OfficialDataset):
    """Not used in the paper. There are no checksums of the unpacked files, so these are not verified."""

    name: Literal["fashion_mnist"] = "fashion_mnist"

    def load(self, rng: np.random.Generator) -> RawDataset:
        from torchvision.datasets import FashionMNIST  # takes two seconds to import

        root = user_path(self.root)
        folder = root / "FashionMNIST" / "raw"
        archives = {folder / name: md5 for name, md5 in FashionMNIST.resources}

        def missing() -> list[Path]:
            return [path for path in archives if not path.with_suffix("").is_file()]

        def download() -> None:
            for path in missing():
                url = f"{FashionMNIST.mirrors[0]}{path.name}"
                downloads.gunzip(self.fetch(path, url, archives[path]), path.with_suffix(""))

        self.ensure_files(lambda: not missing(), download)
        with translate_torchvision_errors(folder):
            splits = FashionMNIST(root, train=True), FashionMNIST(root, train=False)
        train, test = ((split.data.numpy()[:, None], split.targets.numpy()) for split in splits)
        return self.assemble(train, test, FashionMNIST.classes, rng)
