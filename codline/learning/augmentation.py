"""Augmentation of whole batches on their device. B images, C channels, H by W pixels."""

from typing import TYPE_CHECKING

from pydantic import NonNegativeInt, PositiveInt

from codline.core.params import Section

if TYPE_CHECKING:
    from torch import Generator, Tensor

    from codline.models.networks.batch_parts import BatchPart


class Augmentation(Section):
    crop: NonNegativeInt = 0  # pixels of black border added on each side before a random crop to the original size
    flip: bool = False
    size: PositiveInt | None = None  # side of a square cut out at a random position; default: the whole image

    def __call__(self, images_BCHW: "Tensor", generator: "Generator", part: "BatchPart | None" = None) -> "Tensor":
        """The images are the given part of a batch, or a whole one."""
        from codline.learning.image_transforms import random_flip, random_shift, random_square
        from codline.models.networks.batch_parts import BatchDraws, whole_batch

        draws = BatchDraws(generator, part or whole_batch(len(images_BCHW)))
        if self.flip:
            images_BCHW = random_flip(images_BCHW, draws)
        if self.crop:
            images_BCHW = random_shift(images_BCHW, self.crop, draws)
        return random_square(images_BCHW, self.size, draws) if self.size else images_BCHW

    def with_masks(
        self, images_BCHW: "Tensor", masks_BHW: "Tensor", generator: "Generator", part: "BatchPart | None" = None
    ) -> "tuple[Tensor, Tensor]":
        """Augment uint8 images and their masks alike. Padding has no class (255) in the masks."""
        import torch

        # Padding is filled with 0. Adding 1 makes the value for no class, 255, wrap around to 0.
        both_BCHW = self(torch.cat([images_BCHW, masks_BHW[:, None] + 1], 1), generator, part)
        return both_BCHW[:, :-1], both_BCHW[:, -1] - 1
