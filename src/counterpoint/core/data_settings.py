"""Settings of the data, of a verb's subject, and of views, as frozen pydantic models.

With the base of all settings. Like ``core.settings``, this module does not import torch.
"""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, Strict

Auto = Literal["auto"]
Off = Literal["none"]
Pair = Annotated[tuple[float, float], Strict(False)]  # YAML writes a pair as a list


class Settings(BaseModel):
    """Frozen and strict: wrong types and unknown keys are errors."""

    # Strict: "1" is no number, and 1.0 no count. Frozen: what a run records is what it was given.
    model_config = ConfigDict(frozen=True, strict=True, extra="forbid", allow_inf_nan=False)


def option(description: str, default: Any = None, **extra: Any) -> Any:
    """A field of settings.

    Args:
        description: help; a field without one has no flag.
        default: ``...`` where it must be given.
        extra: ``hint``, the remedy shown after the allowed range when a value is refused; and what a field says of its
            flag beside its type: ``place`` (it is given by its place, under this name), ``flag`` (its own), ``whole``
            (commas belong to the name), ``alone`` (what the flag without a value means).
    """
    return Field(default=default, description=description, json_schema_extra=extra)


Probability = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]


class SourceSettings(Settings):
    """What is read from the data."""

    labels: str = option(
        "where labels come from: auto (sub-folder names, the npz's labels), none, "
        "or a .csv (file,label) / .npy file; training never needs them",
        "auto",
    )
    image_size: Annotated[int, Field(ge=8, le=1024)] | Auto = option(
        "side in pixels to which photographs are resized before the views",
        "auto",
        hint="common values are 32, 64, 96, 224",
    )
    holdout: Annotated[float, Field(ge=0, lt=1)] | Auto = option(
        "share of the samples kept out of training for evaluation (auto: 0.2 where labels are known, else 0)", "auto"
    )
    max_bad: Annotated[float, Field(ge=0, le=1)] = option(
        "stop when more than this share of the files cannot be read", 0.01
    )
    root: str = option("folder of the named data sets (cifar10, stl10, ...), in torchvision's layout", "data")
    split: str = option("part of a named data set: train (auto), test, ...", "auto")
    classes: str = option("names of the classes whose samples are taken, separated by commas, such as cat,dog", "all")
    exclude: str = option(
        "text file with the names of samples to leave out, one per line, as `counterpoint recommend` "
        "writes it: names of files relative to the data, or numbers of rows",
        "none",
    )
    image_column: str = option("tables: column of images or vectors (auto: by its type)", "auto")
    label_column: str = option("tables, tar shards: column or field of labels (auto: by its name)", "auto")
    drop_columns: str = option(
        "tables: columns to leave out, separated by commas; or unusable: dates, texts, ids, constants", "none"
    )
    columns: str = option("tables: run whose columns, categories and medians are taken (auto: the table's own)", "auto")
    altered: Literal["refuse", "reindex"] = option(
        "samples whose content changed since the data were indexed: refuse them, or take them as they are now", "refuse"
    )
    imbalance: Literal["none", "exponential", "step"] = option(
        "cut the training classes to a long tail (exponential) or to two sizes (step)", "none"
    )
    imbalance_ratio: Annotated[float, Field(ge=1)] = option(
        "size of the largest class over that of the smallest", 100.0
    )
    class_counts: list[Count] | Off = option(
        "training samples of each class in the order of class names, such as [500, 50, 5]", "none"
    )
    label_share: Annotated[float, Field(gt=0, le=1)] = option(
        "share of each class's training samples that are trained on, at least one; the others are left out",
        1.0,
        hint="0.01 and 0.1 are common in fine-tuning with few labels",
    )
    sampling: Literal["natural", "balanced", "fixed"] = option(
        "draw samples as often as they occur, or every class equally often, or the same batches in each "
        "epoch, in the order of the data",
        "natural",
    )


class PartSettings(Settings):
    """The data of a verb; None keeps the run's value."""

    split: str | None = None
    classes: str | None = None
    root: str | None = None
    image_size: int | None = None
    max_bad: float | None = None
    altered: Literal["refuse", "reindex"] | None = None
    label_column: str | None = None
    drop_columns: str | None = None

    @property
    def part(self) -> dict[str, Any]:
        """The settings of ``source`` that were given."""
        return self.model_dump(include=set(PartSettings.model_fields), exclude_none=True)


class LookSettings(PartSettings):
    """The encoder of a verb, and its device."""

    weights: str | None = option("with --encoder: its weights: .safetensors, or a .pth, .ckpt or .bin of tensors")
    mean: Annotated[tuple[float, ...], Strict(False)] | None = option(
        "with --encoder: mean of its input in [0, 1], by channel (default: as its library has it)"
    )
    std: Annotated[tuple[float, ...], Strict(False)] | None = option(
        "with --encoder: standard deviation of its input, likewise"
    )
    checkpoint: str | None = option(
        "step of a saved checkpoint whose encoder is taken, or all (default: the last state)"
    )
    device: Literal["auto", "cpu", "cuda"] = option("auto: the GPU if there is one", "auto")
    cache: bool = option("keep features in the cache, and take them from there", True)


class ViewSettings(Settings):
    """How views of one sample are drawn; a field left at auto comes from the preset."""

    preset: str = option(
        "a recipe, see `counterpoint list views` (auto: by the kind of data), or package.module:name of a "
        "function that makes views of your own",
        "auto",
    )
    crop_scale: Pair | Auto = option("share of the area a random resized crop keeps, lowest and highest", "auto")
    flip: Probability | Auto = option("probability of a left-right flip", "auto")
    jitter: Probability | Auto = option("probability of colour jitter", "auto")
    jitter_strength: Annotated[float, Field(ge=0, le=1)] | Auto = option(
        "brightness, contrast and saturation change by up to this share, hue by a quarter of it", "auto"
    )
    jitter_saturation: Annotated[float, Field(ge=0, le=1)] | Auto = option(
        "saturation's share of jitter_strength: 1 is the same strength, 0 leaves it alone", "auto"
    )
    grayscale: Probability | Auto = option("probability of dropping the colour", "auto")
    blur: Probability | Auto = option("probability of a Gaussian blur", "auto")
    blur_second: Probability | Auto = option(
        "the same for the second view, where the two differ (auto: the preset's)", "auto"
    )
    blur_sigma: Pair | Auto = option("blur width in pixels, lowest and highest", "auto")
    solarize: Probability | Auto = option("probability of inverting the bright half of the values", "auto")
    solarize_second: Probability | Auto = option("the same for the second view (auto: the preset's)", "auto")
    interpolation: Literal["auto", "bilinear", "bicubic"] = option("interpolation that resizes a crop", "auto")
    affine: Probability | Auto = option("probability of rotating, shifting, scaling and shearing", "auto")
    rotate: Annotated[float, Field(ge=0, le=180)] | Auto = option("largest rotation in degrees", "auto")
    translate: Annotated[float, Field(ge=0, le=1)] | Auto = option("largest shift as a share of the side", "auto")
    zoom: Pair | Auto = option("scaling of the affine view, lowest and highest", "auto")
    shear: Annotated[float, Field(ge=0, le=60)] | Auto = option("largest shear in degrees", "auto")
    fill: Literal["auto", "black", "edge"] = option(
        "what surrounds a picture that is moved: black, or the nearest pixels of its edge", "auto"
    )
    noise: Annotated[float, Field(ge=0)] | Auto = option(
        "vectors: standard deviation of added noise, in standard deviations of the feature", "auto"
    )
    dropout: Annotated[float, Field(ge=0, lt=1)] | Auto = option("vectors: share of features set to their mean", "auto")
    local_crops: Annotated[int, Field(ge=0, le=64)] = option(
        "multi-crop: local views beside the two global ones, for losses of a distribution", 0, hint="6 is usual"
    )
    local_side: Annotated[float, Field(gt=0, le=1)] | Auto = option(
        "side of a local view as a share of a global one's (auto: 0.5)", "auto"
    )
    local_scale: Pair | Auto = option("share of the area that a local view's crop keeps, lowest and highest", "auto")
