"""The request and the result of an export: its files, and how far each differs from torch. Loads without torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from counterpoint.core.schemas import Listed, Record
from counterpoint.core.settings import Settings, option
from counterpoint.core.terminal_text import Printed, TextTable, shown

ALL = "all"
FORMATS: Mapping[str, str] = {
    "onnx": "model.onnx: uint8 pictures in, representation and embedding out, for onnxruntime and such (extra `onnx`)",
    "safetensors": "model.safetensors and encoder.json: weights with the card of the encoder, which cp.load opens",
    "folder": "the same, with config.json and a loader of one file that needs torch and safetensors only",
}


class ExportSettings(Settings):
    """The settings of an export: outputs, checkpoint, folder of the named data, and licence."""

    layer: Literal["both", "representation", "embedding"] = option("what the graph of onnx returns", "both")
    checkpoint: str | None = option("step of a kept checkpoint whose encoder is taken (default: the last state)")
    root: str | None = option("folder of the named data sets, where it has moved")
    licence: str | None = option("licence of the weights for the model card, such as mit")


HEAD = ("format", "file", "MB", "largest difference", "rows compared", "versions")
SCALE = "Differences are |exported - torch| over the largest |value| of the same row in torch; bits means none at all."


class ExportedFormat(Record):
    """One exported format, after it was opened again and compared with torch.

    Attributes:
        name: name of the format.
        files: names of its files in the folder.
        bytes: size of all of them, in bytes.
        difference: largest difference from torch, over the largest value of the same row (over 1 in a row of zeros).
        num_rows: number of rows that were compared, in batches of 1, 2 and 7.
        sizes: sizes of the pictures that were compared.
        outputs: names of the outputs that were compared.
        opset: version of the operators of ONNX.
        versions: versions of the packages that wrote it and opened it again.
        seconds: time of writing, opening and comparing, in seconds.
    """

    name: str
    files: Annotated[tuple[str, ...], Listed]
    bytes: int
    difference: float
    num_rows: int
    sizes: Annotated[tuple[str, ...], Listed] = ()
    outputs: Annotated[tuple[str, ...], Listed] = ()
    opset: int | None = None
    versions: Mapping[str, str] = Field(default_factory=dict)
    seconds: float | None = None

    def cells(self) -> list[str]:
        """The cells of the format's line in the table."""
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        opset = f"opset {self.opset}, " if self.opset else ""
        difference = f"{self.difference:.1e}" if self.difference else "bits"
        size = f"{self.bytes / 1e6:.2f}"
        return [self.name, self.files[0], size, difference, str(self.num_rows), f"{opset}{versions}"]


class Exported(Record, Printed):
    """The record ``export.json``: the exported run, the samples that were compared, and each format.

    Attributes:
        run: name of the run's folder.
        checkpoint: step of the encoder; None for the last state.
        version: version of Counterpoint that exported.
        samples: name of the data whose samples were compared.
        fingerprint: fingerprint of these data.
        input: the input of the graphs, in words.
        tolerance: largest difference that passes.
        formats: a record of each format.
        left_out: reason why a format was not made, by format.
        sha256s: hash of every file but ``export.json`` itself, by name.
        path: the folder; not written.
    """

    run: str
    checkpoint: str | None = None
    version: str
    samples: str
    fingerprint: str
    input: str
    tolerance: float
    formats: Annotated[tuple[ExportedFormat, ...], Listed]
    left_out: Mapping[str, str] = Field(default_factory=dict)
    sha256s: Mapping[str, str] = Field(default_factory=dict)
    path: Path | None = Field(default=None, exclude=True)

    def format(self, name: str) -> ExportedFormat:
        """Return the format of a name.

        Raises:
            KeyError: the format was not exported.
        """
        return {each.name: each for each in self.formats}[name]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as in ``export.json``, with the folder."""
        return {"path": None if self.path is None else str(self.path), **self.model_dump(mode="json")}

    @property
    def table(self) -> TextTable:
        """Table with a line for each format."""
        return TextTable(HEAD, [each.cells() for each in self.formats], "llrrrl")

    def __str__(self) -> str:
        left_out = [f"Left out: {name}: {why}" for name, why in self.left_out.items()]
        title = f"{shown(self.run)} in {shown(self.path)}, compared with torch on samples of {shown(self.samples)}"
        return "\n".join([title, *self.table.lines, SCALE, *left_out])
