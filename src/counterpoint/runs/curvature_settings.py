"""The settings of a spectrum of the Hessian. Loads without torch."""

from typing import Annotated, Literal

from pydantic import Field

from counterpoint.core.data_settings import Auto, Count, Settings


class CurvatureSettings(Settings):
    """Which operator, and how much of its spectrum.

    Attributes:
        steps: of Lanczos, each one Hessian-vector product.
        probes: random vectors that it starts from.
        batch_size: pairs of views that the loss is taken over; the loss depends on it.
        checkpoint: step of a saved checkpoint, or all; None takes the last state.
        threshold: tau: eigenvalues are counted below -tau, within, and above tau.
        top: eigenvalues at each end that are named with their errors.
        batch_norm: statistics of the batch, as in training, or those that training gathered.
        precision: of the products.
        chunk_size: pairs that are encoded at once, at least, where the whole graph does not fit.
        memory: MiB that the graph of the whole batch may keep; auto is half of what is free.
        seed: of the probes.
    """

    steps: Count = Field(default=100, description="Lanczos steps, each one Hessian-vector product")
    probes: Count = Field(default=1, description="random vectors that Lanczos starts from")
    batch_size: Annotated[int, Field(ge=2)] | Auto = Field(
        default="auto", description="pairs of views in the batch, on which the loss depends; auto is 256, or all"
    )
    checkpoint: str | None = Field(
        default=None, description="step of a saved checkpoint, or all (default: the last state)"
    )
    threshold: Annotated[float, Field(ge=0)] = Field(
        default=1.0, description="tau: eigenvalues are counted below -tau, from -tau to tau, and above tau"
    )
    top: Count = Field(default=5, description="eigenvalues at each end that are named with their errors")
    batch_norm: Literal["batch", "frozen"] = Field(
        default="batch",
        description="BatchNorm with the statistics of the batch, as in training, or with its running ones",
    )
    precision: Literal["float64", "float32"] = Field(default="float64", description="of the products")
    chunk_size: Count = Field(
        default=64, description="pairs encoded at once, at least, where the whole graph does not fit"
    )
    memory: Annotated[float, Field(ge=0)] | Auto = Field(
        default="auto", description="MiB that the graph of the whole batch may keep; auto is half of what is free"
    )
    seed: Annotated[int, Field(ge=0)] = Field(default=0, description="of the probes")
