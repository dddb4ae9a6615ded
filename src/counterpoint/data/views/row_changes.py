"""Change some images of a batch in place."""

# B images, R chosen rows

from collections.abc import Callable

from torch import Tensor

Rows = slice | Tensor
Change = Callable[[Tensor, Rows], Tensor]


def change_rows(images_BCHW: Tensor, is_chosen_B: Tensor, change: Change) -> None:
    """Replace the chosen images by what ``change`` makes of them.

    Args:
        images_BCHW: images on any device; changed in place.
        is_chosen_B: bool, on the CPU, so that no device has to be waited for.
        change: maps (chosen images, their rows: a slice, or numbers on the CPU) to changed images; may work in place.
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
    there_R = rows_R.to(images_BCHW.device, non_blocking=True)
    images_BCHW.index_copy_(0, there_R, change(images_BCHW.index_select(0, there_R), rows_R).contiguous())


def for_images(values_B: Tensor, images_BCHW: Tensor) -> Tensor:
    """One number per image, on the images' device, ready to multiply with them."""
    return values_B.to(images_BCHW.device, non_blocking=True)[:, None, None, None]
