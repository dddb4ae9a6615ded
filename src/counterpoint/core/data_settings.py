"""What is read from the data, what a verb looks at, and how views are drawn, as frozen pydantic models.

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


def hint(text: str) -> Any:
    """Remedy shown after the allowed range when a value is refused."""
    return {"hint": text}


Probability = Annotated[float, Field(ge=0, le=1)]
Count = Annotated[int, Field(ge=1)]


class SourceSettings(Settings):
    """What is read from the data."""

    labels: str = Field(
        default="auto",
        description="where labels come from: auto (sub-folder names, the npz's labels), none, "
        "or a .csv (file,label) / .npy file; training never needs them",
    )
    image_size: Annotated[int, Field(ge=8, le=1024)] | Auto = Field(
        default="auto",
        description="side in pixels to which photographs are brought before the views",
        json_schema_extra=hint("common values are 32, 64, 96, 224"),
    )
    holdout: Annotated[float, Field(ge=0, lt=1)] | Auto = Field(
        default="auto",
        description="share of the samples kept out of training for evaluation (auto: 0.2 where labels are known, "
        "else 0)",
    )
    max_bad: Annotated[float, Field(ge=0, le=1)] = Field(
        default=0.01, description="stop when more than this share of the files cannot be read"
    )
    root: str = Field(
        default="data", description="folder of the named data sets (cifar10, stl10, ...), as torchvision keeps them"
    )
    split: str = Field(default="auto", description="part of a named data set: train (auto), test, ...")
    classes: str = Field(
        default="all", description="names of the classes whose samples are taken, separated by commas, such as cat,dog"
    )
    exclude: str = Field(
        default="none",
        description="text file with the names of samples to leave out, one per line, as `counterpoint recommend` "
        "writes it: names of files relative to the data, or numbers of rows",
    )
    image_column: str = Field(default="auto", description="tables: column of images or vectors (auto: by its type)")
    label_column: str = Field(
        default="auto", description="tables, tar shards: column or field of labels (auto: by its name)"
    )
    altered: Literal["refuse", "reindex"] = Field(
        default="refuse",
        description="samples whose content changed since the data were indexed: refuse them, or take them as they are "
        "now",
    )
    imbalance: Literal["none", "exponential", "step"] = Field(
        default="none", description="cut the training classes to a long tail (exponential) or to two sizes (step)"
    )
    imbalance_ratio: Annotated[float, Field(ge=1)] = Field(
        default=100.0, description="size of the largest class over that of the smallest"
    )
    class_counts: list[Count] | Off = Field(
        default="none", description="training samples of each class in the order of class names, such as [500, 50, 5]"
    )
    label_share: Annotated[float, Field(gt=0, le=1)] = Field(
        default=1.0,
        description="share of each class's training samples that are trained on, at least one; the others are left out",
        json_schema_extra=hint("0.01 and 0.1 are common in fine-tuning with few labels"),
    )
    sampling: Literal["natural", "balanced", "fixed"] = Field(
        default="natural",
        description="draw samples as often as they occur, or every class equally often, or the same batches in each "
        "epoch, in the order of the data",
    )


class PartSettings(Settings):
    """What of the data a verb looks at; what is None stays as the run has it."""

    split: str | None = None
    classes: str | None = None
    root: str | None = None
    image_size: int | None = None
    max_bad: float | None = None
    altered: Literal["refuse", "reindex"] | None = None

    @property
    def part(self) -> dict[str, Any]:
        """The settings of ``source`` that were given."""
        return self.model_dump(include=set(PartSettings.model_fields), exclude_none=True)


class LookSettings(PartSettings):
    """With which encoder a verb looks at samples, and where it computes."""

    weights: str | None = Field(
        default=None, description="with --encoder: its weights: .safetensors, or a .pth, .ckpt or .bin of tensors"
    )
    mean: Annotated[tuple[float, ...], Strict(False)] | None = Field(
        default=None,
        description="with --encoder: mean of its input in [0, 1], by channel (default: as its library has it)",
    )
    std: Annotated[tuple[float, ...], Strict(False)] | None = Field(
        default=None, description="with --encoder: standard deviation of its input, likewise"
    )
    checkpoint: str | None = Field(
        default=None, description="step of a saved checkpoint whose encoder is taken, or all (default: the last state)"
    )
    device: Literal["auto", "cpu", "cuda"] = Field(default="auto", description="auto: the GPU if there is one")
    cache: bool = Field(default=True, description="keep features in the cache, and take them from there")


class DiagnosisSettings(LookSettings):
    """The same of ``diagnose``, and what it looks at beyond representation and embedding."""

    layers: bool = Field(default=False, description="measure every layer of backbone and projector, too")


class ViewSettings(Settings):
    """How two views of one sample are drawn; a field left at auto comes from the preset."""

    preset: str = Field(
        default="auto",
        description="a recipe, see `counterpoint list views` (auto: by the kind of data), or package.module:name of a "
        "function that makes views of your own",
    )
    crop_scale: Pair | Auto = Field(
        default="auto", description="share of the area a random resized crop keeps, lowest and highest"
    )
    flip: Probability | Auto = Field(default="auto", description="probability of a left-right flip")
    jitter: Probability | Auto = Field(default="auto", description="probability of colour jitter")
    jitter_strength: Annotated[float, Field(ge=0, le=1)] | Auto = Field(
        default="auto",
        description="brightness, contrast and saturation change by up to this share, hue by a quarter of it",
    )
    jitter_saturation: Annotated[float, Field(ge=0, le=1)] | Auto = Field(
        default="auto", description="saturation's share of jitter_strength: 1 is the same strength, 0 leaves it alone"
    )
    grayscale: Probability | Auto = Field(default="auto", description="probability of dropping the colour")
    blur: Probability | Auto = Field(default="auto", description="probability of a Gaussian blur")
    blur_second: Probability | Auto = Field(
        default="auto", description="the same for the second view, where the two differ (auto: as the preset has it)"
    )
    blur_sigma: Pair | Auto = Field(default="auto", description="blur width in pixels, lowest and highest")
    solarize: Probability | Auto = Field(
        default="auto", description="probability of inverting the bright half of the values"
    )
    solarize_second: Probability | Auto = Field(
        default="auto", description="the same for the second view (auto: as the preset has it)"
    )
    interpolation: Literal["auto", "bilinear", "bicubic"] = Field(
        default="auto", description="how a crop is brought to size"
    )
    affine: Probability | Auto = Field(
        default="auto", description="probability of rotating, shifting, scaling and shearing"
    )
    rotate: Annotated[float, Field(ge=0, le=180)] | Auto = Field(
        default="auto", description="largest rotation in degrees"
    )
    translate: Annotated[float, Field(ge=0, le=1)] | Auto = Field(
        default="auto", description="largest shift as a share of the side"
    )
    zoom: Pair | Auto = Field(default="auto", description="scaling of the affine view, lowest and highest")
    shear: Annotated[float, Field(ge=0, le=60)] | Auto = Field(default="auto", description="largest shear in degrees")
    fill: Literal["auto", "black", "edge"] = Field(
        default="auto", description="what surrounds a picture that is moved: black, or the nearest pixels of its edge"
    )
    noise: Annotated[float, Field(ge=0)] | Auto = Field(
        default="auto", description="vectors: standard deviation of added noise, in standard deviations of the feature"
    )
    dropout: Annotated[float, Field(ge=0, lt=1)] | Auto = Field(
        default="auto", description="vectors: share of features set to their mean"
    )
