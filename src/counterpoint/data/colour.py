"""Colour views of a batch, each image with its own parameters, after torchvision's ColorJitter, in place.

Brightness, contrast and saturation are one formula with three numbers per image, so a round of them costs the same
whatever each image drew. Hue costs more; it is done once per image, on neighbours without a copy.
"""

# B images, C channels, H height, W width

import itertools
from dataclasses import dataclass

import torch
from torch import Tensor

from counterpoint.data.row_changes import change_rows, for_images

LUMA = (0.2989, 0.587, 0.114)  # as torchvision; ITU-R BT.601
BRIGHTNESS, CONTRAST, SATURATION, HUE = range(4)
ORDERS = tuple(itertools.permutations(range(4)))
HUE_PLACES = torch.tensor([order.index(HUE) for order in ORDERS])
BLENDS = torch.tensor([[number for number in order if number != HUE] for order in ORDERS])
HUE_SHARE = 0.25  # the usual recipes shift hue by a quarter of the other strengths (simclr2020, appendix A)
PRIMARIES = (0.0, 2.0, 4.0)  # red, green and blue on a circle of six
LEAST_CHROMA = 1e-20


@dataclass(frozen=True)
class Jitter:
    """What each image of a batch drew, on the CPU.

    Attributes:
        factor_B4: factors of brightness, contrast and saturation; share of the circle by which the hue turns.
        order_B: number of the order in ``ORDERS``.
    """

    factor_B4: Tensor
    order_B: Tensor

    @property
    def hue_place_B(self) -> Tensor:
        """How many operations come before the hue: images sorted by this are jittered fastest."""
        return HUE_PLACES[self.order_B]


def draw_jitter(uniforms_B5: Tensor, strength: float, saturation: float = 1.0) -> Jitter:
    """Turn random numbers into factors and an order.

    Args:
        uniforms_B5: numbers in [0, 1): four factors and the order.
        strength: factors lie in 1 +- strength, hue moves by up to strength / 4 of the circle.
        saturation: share of the strength that saturation gets.
    """
    reach_4 = strength * torch.tensor([1.0, 1.0, saturation, HUE_SHARE])
    middle_4 = torch.tensor([1.0, 1.0, 1.0, 0.0])
    factor_B4 = middle_4 + reach_4 * (2.0 * uniforms_B5[:, :4] - 1.0)
    return Jitter(factor_B4, (uniforms_B5[:, 4] * len(ORDERS)).long())


def colour_jitter(images_BCHW: Tensor, jitter: Jitter) -> Tensor:
    """Change brightness, contrast, saturation and hue, each image in its own order; in place.

    Args:
        images_BCHW: values in [0, 1]; grey images keep to brightness and contrast.
        jitter: what the images drew.
    """
    is_grey = images_BCHW.shape[1] == 1
    blend_B3 = BLENDS[jitter.order_B]
    for place in range(4):
        if place > 0:
            number_B = blend_B3[:, place - 1]
            factor_B = jitter.factor_B4.gather(1, number_B[:, None])[:, 0]
            _blend(images_BCHW, torch.where(number_B == SATURATION, 1.0, factor_B) if is_grey else factor_B, number_B)
        if not is_grey:
            is_here_B = jitter.hue_place_B == place
            change_rows(images_BCHW, is_here_B, lambda part, rows: turn_hue(part, jitter.factor_B4[rows, HUE]))
    return images_BCHW


def turn_hue(images_B3HW: Tensor, shift_B: Tensor) -> Tensor:
    """Turn the hue by a share of the circle (HSV and back); in place.

    With value v = max, low m = min and chroma c = v - m, the hue lies h = 2 + (g + b - r - v) / c sixths from red, on
    the side of the larger of g and b; a channel whose primary p lies d away on the circle is m + c * clamp(2 - d, 0, 1)
    (smith1978 without the case by case). Turning the hue by s is moving each p by -s; with p and h in [-3, 3],
    2 - d = ||h - p| - 3| - 1.
    """
    red, green, blue = images_B3HW.unbind(1)
    value = torch.maximum(torch.maximum(red, green), blue)
    low = torch.minimum(torch.minimum(red, green), blue)
    chroma = value - low
    distance = (green + blue).sub_(red).sub_(value).div_(chroma.clamp(min=LEAST_CHROMA)).add_(2.0)
    hue = torch.copysign(distance, green - blue)
    primary_B3 = (torch.tensor(PRIMARIES) - 6.0 * shift_B[:, None] + 3.0) % 6.0 - 3.0
    primary_B3 = primary_B3.to(images_B3HW.device, non_blocking=True)
    turned = torch.sub(hue[:, None], primary_B3[:, :, None, None], out=images_B3HW).abs_().sub_(3.0).abs_()
    turned.clamp_(1.0, 2.0).mul_(chroma[:, None]).add_(low.sub_(chroma)[:, None])
    return images_B3HW


def to_grey(images_BCHW: Tensor) -> Tensor:
    """Luma, repeated over the channels; grey images stay as they are."""
    return _luma(images_BCHW).expand_as(images_BCHW)


def solarize(images_BCHW: Tensor) -> Tensor:
    """Invert values from 0.5 on: the smaller of x and 1 - x."""
    return torch.minimum(images_BCHW, 1.0 - images_BCHW)


def _luma(images_BCHW: Tensor) -> Tensor:
    """Weighted sum of the channels, (b, 1, h, w)."""
    if images_BCHW.shape[1] == 1:
        return images_BCHW.clone()
    red, green, blue = images_BCHW.split(1, dim=1)
    # Products and sums as operations of their own: a fused one may round differently at the end of a vector register.
    luma, term = red * LUMA[0], green * LUMA[1]
    luma.add_(term)
    return luma.add_(torch.mul(blue, LUMA[2], out=term))


def _blend(images_BCHW: Tensor, factor_B: Tensor, number_B: Tensor) -> None:
    """Move away from black (brightness), the mean luma (contrast) or the luma (saturation) by a factor; in place."""
    rest_B = 1.0 - factor_B
    of_luma_B = torch.where(number_B == SATURATION, rest_B, 0.0)
    of_mean_B = torch.where(number_B == CONTRAST, rest_B, 0.0)
    luma = _luma(images_BCHW)
    # In two steps: the mean of one large image at once is split over threads and rounds differently from a batch's.
    mean_B111 = luma.mean(dim=2, keepdim=True).mean(dim=3, keepdim=True)
    luma.mul_(for_images(of_luma_B, luma)).add_(mean_B111.mul_(for_images(of_mean_B, luma)))
    images_BCHW.mul_(for_images(factor_B, luma)).add_(luma).clamp_(0.0, 1.0)
