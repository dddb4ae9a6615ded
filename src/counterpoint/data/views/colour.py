"""Colour views of a batch, each image with its own parameters, after torchvision's ColorJitter, in place.

Brightness, contrast and saturation are one formula with three numbers per image, so a round of them costs the same
whatever each image drew. Hue costs more; it is done once per image, on neighbours without a copy.
"""

# B images, R chosen rows, C channels, H height, W width

import itertools
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

Rows = slice | Tensor
Change = Callable[[Tensor, Rows], Tensor]

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
    """Random jitter of images. Brightness, contrast and saturation follow each other in each image's own order.

    Attributes:
        factor_B3: factor of the image itself, in each of the three.
        of_luma_B3: factor of the luma that is added, in each of the three.
        of_mean_B3: factor of the mean luma that is added, in each of the three.
        primary_B3: places of red, green and blue on the circle of six when the hue turns.
        hue_place_B: number of the three that come before the hue; images sorted by this are jittered fastest.
    """

    factor_B3: Tensor
    of_luma_B3: Tensor
    of_mean_B3: Tensor
    primary_B3: Tensor
    hue_place_B: Tensor


def draw_jitter(uniforms_B5: Tensor, strength: float, saturation: float = 1.0) -> Jitter:
    """Turn random numbers into each image's jitter.

    Args:
        uniforms_B5: numbers in [0, 1): factors of brightness, contrast, saturation and hue, and the order.
        strength: factors lie in 1 +- strength, hue moves by up to strength / 4 of the circle.
        saturation: share of the strength that saturation gets.
    """
    # Brightness, contrast, saturation, hue.
    reach_4 = strength * torch.tensor([1.0, 1.0, saturation, HUE_SHARE])
    change_B4 = reach_4 * (2.0 * uniforms_B5[:, :4] - 1.0)
    # One of 24 orders; of the three blends alone there are 6, each with 4 places for the hue.
    order_B = (uniforms_B5[:, 4] * len(ORDERS)).long()
    number_B3 = BLENDS[order_B]
    # A blend is f x + (1 - f) y, with f = 1 + change: y is black, the mean luma or the luma.
    rest_B3 = -change_B4.gather(1, number_B3)
    return Jitter(
        factor_B3=1.0 - rest_B3,
        of_luma_B3=rest_B3 * (number_B3 == SATURATION),
        of_mean_B3=rest_B3 * (number_B3 == CONTRAST),
        primary_B3=turned_primaries(change_B4[:, HUE]),
        hue_place_B=HUE_PLACES[order_B],
    )


def turned_primaries(shift_B: Tensor) -> Tensor:
    """Places of the primaries, in [-3, 3), when hues turn by a share of the circle, (b, 3)."""
    return (torch.tensor(PRIMARIES) - 6.0 * shift_B[:, None] + 3.0) % 6.0 - 3.0


def colour_jitter(images_BCHW: Tensor, jitter: Jitter) -> Tensor:
    """Change brightness, contrast, saturation and hue, each image in its own order; in place.

    Args:
        images_BCHW: values in [0, 1]; grey images keep to brightness and contrast.
        jitter: the images' random jitter, ``hue_place_B`` on the CPU.
    """
    # At each place: the blend before it, for all images, then the hue of those whose turn it is.
    for place in range(4):
        if place > 0:
            numbers = (jitter.factor_B3, jitter.of_luma_B3, jitter.of_mean_B3)
            blend(images_BCHW, *(number_B3[:, place - 1] for number_B3 in numbers))
        if images_BCHW.shape[1] == 3:
            is_here_B = jitter.hue_place_B == place
            change_rows(images_BCHW, is_here_B, lambda part, rows: turn_hue(part, jitter.primary_B3[rows]))
    return images_BCHW


def blend(images_BCHW: Tensor, factor_B: Tensor, of_luma_B: Tensor, of_mean_B: Tensor) -> Tensor:
    """Clamp factor x image + share x luma + share x mean luma to [0, 1]; in place."""
    luma = _luma(images_BCHW)
    # In two steps: the mean of one large image at once is split over threads and rounds differently from a batch's.
    mean_B111 = luma.mean(dim=2, keepdim=True).mean(dim=3, keepdim=True)
    luma.mul_(for_images(of_luma_B, luma)).add_(mean_B111.mul_(for_images(of_mean_B, luma)))
    # One clamp after each blend, as torchvision: the next change starts from valid colours.
    return images_BCHW.mul_(for_images(factor_B, luma)).add_(luma).clamp_(0.0, 1.0)


def turn_hue(images_B3HW: Tensor, primary_B3: Tensor) -> Tensor:
    """Turn the hue (HSV and back) by moving the primaries on the circle of six; in place.

    With value v = max, low m = min and chroma c = v - m, the hue lies h = 2 + (g + b - r - v) / c sixths from red, on
    the side of the larger of g and b; a channel whose primary p lies d away on the circle is m + c * clamp(2 - d, 0, 1)
    (smith1978 without the case by case). Turning the hue by s is moving each p by -s; with p and h in [-3, 3],
    2 - d = ||h - p| - 3| - 1.
    """
    red, green, blue = images_B3HW.unbind(1)
    value = torch.maximum(torch.maximum(red, green), blue)
    low = torch.minimum(torch.minimum(red, green), blue)
    chroma = value - low
    # A grey pixel has 0 / LEAST_CHROMA + 2 in place of NaN: a hue that its chroma of 0 makes harmless.
    distance = (green + blue).sub_(red).sub_(value).div_(chroma.clamp(min=LEAST_CHROMA)).add_(2.0)
    hue = torch.copysign(distance, green - blue)
    primary_B3 = primary_B3.to(images_B3HW.device, non_blocking=True)
    # The image itself is overwritten from here on: hue, chroma and low hold all that is needed of it.
    turned = torch.sub(hue[:, None], primary_B3[:, :, None, None], out=images_B3HW).abs_().sub_(3.0).abs_()
    # m + c * (clamp(x, 1, 2) - 1), with the - 1 taken into m - c.
    turned.clamp_(1.0, 2.0).mul_(chroma[:, None]).add_(low.sub_(chroma)[:, None])
    return images_B3HW


def to_grey(images_BCHW: Tensor) -> Tensor:
    """Luma, repeated over the channels; grey images stay as they are."""
    # A view of one channel: what receives it copies.
    return _luma(images_BCHW).expand_as(images_BCHW)


def solarize(images_BCHW: Tensor) -> Tensor:
    """Invert values from 0.5 on: the smaller of x and 1 - x."""
    return torch.minimum(images_BCHW, 1.0 - images_BCHW)


def _luma(images_BCHW: Tensor) -> Tensor:
    """Weighted sum of the channels, (b, 1, h, w)."""
    if images_BCHW.shape[1] == 1:
        # A copy, since ``blend`` changes the luma in place.
        return images_BCHW.clone()
    red, green, blue = images_BCHW.split(1, dim=1)
    # Products and sums as operations of their own: a fused one may round differently at the end of a vector register.
    luma, term = red * LUMA[0], green * LUMA[1]
    luma.add_(term)
    return luma.add_(torch.mul(blue, LUMA[2], out=term))


def change_rows(images_BCHW: Tensor, is_chosen_B: Tensor, change: Change) -> None:
    """Apply a change to the chosen images.

    Args:
        images_BCHW: images on any device; changed in place.
        is_chosen_B: bool, true for images to change; on the CPU, so that no device has to be waited for.
        change: map of (chosen images, their rows: a slice, or numbers on the CPU) to changed images; may work in place.
    """
    rows_R = is_chosen_B.nonzero()[:, 0]
    if len(rows_R) == 0:
        return
    first, end = int(rows_R[0]), int(rows_R[-1]) + 1
    if end - first == len(rows_R):  # neighbours need no copy
        part = images_BCHW[first:end]
        changed = change(part, slice(first, end))
        if changed is not part:
            part.copy_(changed)
        return
    # The change gets its rows on the CPU, where parameters lie; the images are picked on their device.
    there_R = rows_R.to(images_BCHW.device, non_blocking=True)
    images_BCHW.index_copy_(0, there_R, change(images_BCHW.index_select(0, there_R), rows_R).contiguous())


def for_images(values_B: Tensor, images_BCHW: Tensor) -> Tensor:
    """One number per image, on the images' device, ready to multiply with them."""
    return values_B.to(images_BCHW.device, non_blocking=True)[:, None, None, None]
