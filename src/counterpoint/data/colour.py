"""Colour views of a batch, each image with its own parameters, after torchvision's ColorJitter."""

# B images, C channels, H height, W width

import itertools
from collections.abc import Callable

import torch
from torch import Tensor

LUMA = (0.2989, 0.587, 0.114)
ORDERS = tuple(itertools.permutations(range(4)))
HUE_SHARE = 0.25  # the usual recipes shift hue by a quarter of the other strengths (simclr2020, appendix A)


def colour_jitter(images_BCHW: Tensor, uniforms_B5: Tensor, strength: float) -> Tensor:
    """Change brightness, contrast, saturation and hue, in an order drawn per image.

    Args:
        images_BCHW: values in [0, 1]; grey images keep to brightness and contrast.
        uniforms_B5: numbers in [0, 1): four factors and the order.
        strength: factors lie in 1 +- strength, hue moves by up to strength / 4 of the circle.
    """
    factor_B4 = 1.0 + strength * (2.0 * uniforms_B5[:, :4] - 1.0)
    factor_B4[:, 3] = HUE_SHARE * (factor_B4[:, 3] - 1.0)
    order_B4 = torch.tensor(ORDERS, device=images_BCHW.device)[(uniforms_B5[:, 4] * len(ORDERS)).long()]
    operations = OPERATIONS if images_BCHW.shape[1] == 3 else OPERATIONS[:2]
    images_BCHW = images_BCHW.clone()
    for place, (number, operation) in itertools.product(range(4), enumerate(operations)):
        rows = (order_B4[:, place] == number).nonzero()[:, 0]
        images_BCHW[rows] = operation(images_BCHW[rows], factor_B4[rows, number][:, None, None, None])
    return images_BCHW


def to_grey(images_BCHW: Tensor) -> Tensor:
    """Luma, repeated over the channels; grey images stay as they are."""
    return _luma(images_BCHW).expand_as(images_BCHW)


def _luma(images_BCHW: Tensor) -> Tensor:
    """Weighted sum of the channels, (b, 1, h, w)."""
    if images_BCHW.shape[1] == 1:
        return images_BCHW
    red, green, blue = images_BCHW.unbind(1)
    return (LUMA[0] * red + LUMA[1] * green + LUMA[2] * blue)[:, None]


def _blend(images_BCHW: Tensor, other_BCHW: Tensor | float, factor_B111: Tensor) -> Tensor:
    """Move from ``other`` (factor 0) through the image (factor 1) and beyond."""
    return (factor_B111 * images_BCHW + (1.0 - factor_B111) * other_BCHW).clamp(0.0, 1.0)


def _brightness(images_BCHW: Tensor, factor_B111: Tensor) -> Tensor:
    return _blend(images_BCHW, 0.0, factor_B111)


def _contrast(images_BCHW: Tensor, factor_B111: Tensor) -> Tensor:
    # In two steps: the mean of one large image at once is split over threads and rounds differently from a batch's.
    mean_B111 = _luma(images_BCHW).mean(dim=3, keepdim=True).mean(dim=2, keepdim=True)
    return _blend(images_BCHW, mean_B111, factor_B111)


def _saturation(images_BCHW: Tensor, factor_B111: Tensor) -> Tensor:
    return _blend(images_BCHW, _luma(images_BCHW), factor_B111)


def _hue(images_BCHW: Tensor, shift_B111: Tensor) -> Tensor:
    """Turn the hue by a share of the circle (HSV and back)."""
    red, green, blue = images_BCHW.unbind(1)
    value, low = images_BCHW.amax(1), images_BCHW.amin(1)
    chroma = value - low
    safe = torch.where(chroma == 0, 1.0, chroma)
    sixth = torch.where(
        value == red,
        (green - blue) / safe,
        torch.where(value == green, 2.0 + (blue - red) / safe, 4.0 + (red - green) / safe),
    )
    sixth = (sixth + 6.0 * shift_B111[:, 0]) % 6.0
    # One formula for all three channels (smith1978): each is value - chroma * clamp(min(k, 4 - k), 0, 1).
    turned = []
    for start in (5.0, 3.0, 1.0):
        k = (start + sixth) % 6.0
        turned.append(value - chroma * torch.minimum(k, 4.0 - k).clamp(0.0, 1.0))
    return torch.stack(turned, dim=1)


OPERATIONS: tuple[Callable[[Tensor, Tensor], Tensor], ...] = (_brightness, _contrast, _saturation, _hue)
