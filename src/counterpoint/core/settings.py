"""Every setting of a training run, as frozen pydantic models: the one definition for YAML, Python and the command line.

A field that is ``auto`` is filled in by ``runs.resolve`` when the data and the method are known, and the reason is
written to ``resolved.yaml``. Field descriptions are the command line's help. This module does not import torch, so that
``counterpoint --help`` answers at once.
"""

from typing import Annotated, Literal

from pydantic import Field

from counterpoint.core.data_settings import Auto, Count, Off, Settings, SourceSettings, ViewSettings, option


class ProjectorSettings(Settings):
    """The head between representation and loss."""

    kind: Literal["auto", "none", "linear", "mlp", "low-rank", "diagonal", "sparse"] = option(
        "auto: the method's; low-rank is fixed at random, diagonal a trained scale per dimension, sparse keeps the "
        "largest values (as `counterpoint sparsify` trains it)",
        "auto",
    )
    layers: Annotated[int, Field(ge=2, le=8)] | Auto = option("layers of the mlp (auto: the method's)", "auto")
    hidden: Count | Auto = option("hidden width of the mlp (auto: the larger of both ends)", "auto")
    features: Annotated[int, Field(ge=2)] | Auto = option("dimensions of the embedding (auto: 128)", "auto")
    norm: Literal["auto", "none", "batch", "batch-plain"] = option(
        "BatchNorm after the mlp's hidden layers, plain without trained scale and shift (auto: the method's)",
        "auto",
    )
    output_norm: Literal["auto", "none", "batch", "batch-plain"] = option(
        "the same after its last layer, where its hidden layers have one (auto: the method's)", "auto"
    )
    rank: Count | Auto = option("rank of the low-rank projector (auto: half the width)", "auto")
    active: Count = option("values that the sparse projector keeps of each sample", 8)


class TargetSettings(Settings):
    """The other branch of methods that have one: momentum encoder, queue, predictor."""

    momentum: Annotated[float, Field(ge=0, le=1)] | Auto = option(
        "share of the momentum encoder that a step keeps (auto: the method's)", "auto"
    )
    queue_size: Count | Auto = option("past keys that MoCo contrasts with (auto: 4096, or what the data allow)", "auto")
    predictor_hidden: Count | Auto = option(
        "hidden width of the predictor of byol and simsiam (auto: the method's)", "auto"
    )


class OutputSettings(Settings):
    """The map from projector output to the vectors the loss compares."""

    nonnegative: Literal["auto", "none", "relu", "softplus", "sigmoid", "relu-gelu"] = option(
        "map onto non-negative values (relu-gelu: forward ReLU, gradient of GELU)", "auto"
    )
    d0: Annotated[int, Field(ge=1)] | Literal["auto", "all"] = option(
        "use only the first d0 dimensions (DirectCLR's sub-vector)", "auto"
    )


class LossSettings(Settings):
    """The contrastive loss."""

    name: str = option(
        "a member of the loss catalogue, see `counterpoint list losses` (auto: the method's), or "
        "package.module:name of a function of your own that makes one",
        "auto",
    )
    epsilon: Annotated[float, Field(ge=0)] = option(
        "weight of the positive pair in the denominator: 1 is NT-Xent, 0 is DCL", 1.0
    )
    negatives: Literal["auto", "two-view", "cross-view", "same-view"] = option(
        "which other vectors repel an anchor (auto: the method's)", "auto"
    )
    options: dict[str, bool | int | float | str | None] = option(
        "further arguments of the loss, such as {margin: 0.5} for triplet", {}
    )


class OptimSettings(Settings):
    """The optimiser and its schedule."""

    name: Literal["adamw", "adam", "sgd", "lars"] = option("optimiser", "adamw")
    learning_rate: Annotated[float, Field(gt=0)] | Auto = option(
        "peak learning rate (auto: 2e-3 for adamw and adam; 0.06 x batch / 128 for sgd; 0.3 x batch / 256 for lars)",
        "auto",
        hint="common values are 1e-3 for adamw and 0.06 for sgd",
    )
    weight_decay: Annotated[float, Field(ge=0)] | Auto = option(
        "decay of matrices and kernels, not of biases and norms", "auto"
    )
    decay_all: bool = option("decay biases, scales and shifts as well, as in torch's optimisers", False)
    momentum: Annotated[float, Field(ge=0, lt=1)] = option("momentum of sgd and lars", 0.9)
    trust: Annotated[float, Field(gt=0)] = option(
        "trust coefficient of lars: length of a layer's step over that of its weights", 1e-3
    )
    trust_clip: bool = option("lars: never step longer than the learning rate alone would (as NCL's code)", False)
    schedule: Literal["cosine", "epoch-cosine", "constant"] = option(
        "after the warm-up: cosine per step, cosine per epoch, or constant", "cosine"
    )
    warmup_epochs: Annotated[float, Field(ge=0)] | Auto = option("epochs of linear warm-up (auto: 5 % of all)", "auto")
    peak_epochs: Annotated[float, Field(ge=0)] = option("epochs at the peak, between warm-up and cosine", 0.0)
    cosine_epochs: Annotated[float, Field(gt=0)] | Off = option(
        "epochs from the peak to the cosine's end, after which the rate rises again (none: all that are left)", "none"
    )
    final_share: Annotated[float, Field(ge=0, le=1)] = option("where the cosine ends, as a share of the peak", 0.0)
    clip: Annotated[float, Field(gt=0)] | Off = option(
        "largest norm of the gradient; a longer one is scaled down to it", "none"
    )


class EngineSettings(Settings):
    """Where and how the run is computed."""

    device: Literal["auto", "cpu", "cuda"] = option("auto: the GPU if there is one", "auto")
    precision: Literal["auto", "fp32", "bf16", "fp16"] = option(
        "of the encoder; losses and normalisation stay in float32 (auto: bf16 mixed precision on a GPU "
        "that has it, else fp32)",
        "auto",
    )
    compile: bool = option("compile the encoder with torch.compile (needs a C++ compiler)", False)
    strategy: Literal["auto", "ddp", "fsdp"] = option(
        "several ranks: a copy of the encoder on each (auto: ddp), or shards of it (fsdp)", "auto"
    )
    chunk_size: Count | Off = option(
        "samples encoded at once by gradient caching: large batches, with all their negatives, on little memory", "none"
    )
    chunk_norm: bool = option("with chunk_size: allow BatchNorm, with the statistics of each chunk", False)
    encode_views: Literal["auto", "together", "apart"] = option(
        "both views in one pass of the encoder, with BatchNorm statistics of both, or in one each", "auto"
    )
    workers: Annotated[int, Field(ge=0, le=64)] = option("threads that fetch ahead; changes no bit of the result", 0)
    checkpoint_every: Count | Auto = option("epochs between checkpoints (auto: about ten per run)", "auto")
    checkpoint_steps: Count | Off = option(
        "also save after this many steps, in the middle of an epoch or at its end", "none"
    )
    checkpoint_at: list[Count] | Off = option(
        "epochs after which a checkpoint is saved that stays, such as [100, 300, 500]", "none"
    )
    keep: Count = option("number of newest checkpoints kept", 2)
    knn_every: Count | Off = option(
        "epochs between kNN checks on held-out samples while training (needs labels)", "none"
    )
    tensorboard: bool = option("write TensorBoard events to RUN/tensorboard (extra)", False)
    wandb: bool = option("log to Weights & Biases (extra)", False)


class TrainSettings(Settings):
    """Train an encoder by contrast."""

    data: str | None = option(
        "a named set (see `counterpoint list data`), a folder of images or tar shards, or a file: "
        ".npy, .npz, .csv, .tar, .parquet, .arrow, .feather"
    )
    recipe: str | None = option(
        "settings of a published table, see `counterpoint list recipes`; whatever is given beside it wins"
    )
    method: str = option("see `counterpoint list methods`", "simclr")
    out: str | None = option("run folder to create (default: runs/DATA-METHOD, or runs/DATA-RECIPE)")
    encoder: str = option(
        "convnet, resnet9-narrow, resnet9, resnet18, resnet50, mlp, identity, or timm:NAME (auto: by the kind and "
        "size of data)",
        "auto",
    )
    stem: Literal["auto", "small", "small-padded", "small-cut", "large"] = option(
        "of the built-in ResNets: small keeps the side of the images, padded adds two pixels to it and cut "
        "takes two, large leaves a quarter of it (auto: large above 64 px)",
        "auto",
    )
    initial: Literal["uniform", "normal", "normal-zero"] = option(
        "how kernels of the built-in ResNets are drawn: uniform as torch does, normal as torchvision, zero "
        "with residual branches that begin at 0",
        "uniform",
    )
    init: str | None = option(
        "weights to begin with: a run folder, a file of any framework (.safetensors, .pth, .ckpt) for "
        "--encoder; nothing is ever downloaded"
    )
    epochs: Annotated[int, Field(ge=1)] | Auto = option("passes over the training samples", "auto")
    batch_size: Annotated[int, Field(ge=2)] | Auto = option(
        "distinct samples per step; each is seen in two views",
        "auto",
        hint="a contrastive loss needs at least one other sample to repel; common values are 128 to 1024",
    )
    temperature: Annotated[float, Field(gt=0)] | Auto = option(
        "similarity scale of the loss", "auto", hint="common values are 0.1 to 0.5"
    )
    seed: Annotated[int, Field(ge=0, lt=2**63)] = option("fixes order, views and weights", 0)
    source: SourceSettings = SourceSettings()
    views: ViewSettings = ViewSettings()
    projector: ProjectorSettings = ProjectorSettings()
    target: TargetSettings = TargetSettings()
    output: OutputSettings = OutputSettings()
    loss: LossSettings = LossSettings()
    optim: OptimSettings = OptimSettings()
    engine: EngineSettings = EngineSettings()
