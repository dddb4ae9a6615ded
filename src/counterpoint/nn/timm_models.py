"""Any timm model by name as an encoder; the only module that imports timm (extra ``vision``)."""

from typing import Any

from torch import nn

from counterpoint.core.errors import UsageError, nearest


def check_timm_name(name: str) -> Any:
    """Require a name that timm knows, and return timm.

    Raises:
        UsageError: timm is not installed, or does not know the name.
    """
    try:
        import timm  # deferred: the extra `vision` may be absent, and timm takes seconds to import
    except ImportError:
        raise UsageError(
            f"encoder timm:{name} needs timm; install it with: pip install 'counterpoint[vision]'"
        ) from None
    known = timm.list_models()
    if name not in known:
        raise UsageError(f"timm has no model {name!r}{nearest(name, known)}")
    return timm


def build_timm(name: str, in_shape: tuple[int, ...]) -> nn.Module:
    """Build an untrained timm model that returns pooled features.

    Args:
        name: timm's model name, such as ``resnet18`` or ``vit_tiny_patch16_224``.
        in_shape: (channels, height, width) of the images.

    Raises:
        UsageError: timm is not installed, does not know the name, or cannot build it for this image size.
    """
    timm = check_timm_name(name)
    channels, height, width = in_shape
    options: dict[str, Any] = {"num_classes": 0, "in_chans": channels}
    try:
        return timm.create_model(name, img_size=(height, width), **options)
    except TypeError:
        return timm.create_model(name, **options)  # convolutional models take any size and no such argument
    except (AssertionError, ValueError, RuntimeError) as error:
        raise UsageError(f"timm:{name} cannot be built for {height} x {width} images: {error}") from None
