"""The request and the result of an export: its files, and how far each differs from torch. Loads without torch."""

from collections.abc import Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

from pydantic import Field

from counterpoint.core.run_records import Listed, Record
from counterpoint.core.settings import Settings, option
from counterpoint.core.terminal_text import Printed, TextTable, shown

ALL = "all"
FORMATS: Mapping[str, str] = {
    "onnx": "model.onnx: uint8 pictures in, representation and embedding out, for onnxruntime and such (extra `onnx`)",
    "safetensors": "model.safetensors and encoder.json: weights with the card of the encoder, which cp.load opens",
    "folder": "the same, with config.json and a loader of one file that needs torch and safetensors only",
}


class ExportSettings(Settings):
    """What of an encoder is exported, and how it is checked."""

    layer: Literal["both", "representation", "embedding"] = option("what the graph of onnx returns", "both")
    checkpoint: str | None = option("step of a kept checkpoint whose encoder is taken (default: the last state)")
    root: str | None = option("folder of the named data sets, where it has moved")
    licence: str | None = option("licence of the weights for the model card, such as mit")


HEAD = ("format", "file", "MB", "largest difference", "rows compared", "versions")
SCALE = "Differences are |exported - torch| over the largest |value| of the same row in torch; bits means none at all."


class ExportedFormat(Record):
    """One format, opened again and compared.

    Attributes:
        name: of the format.
        files: that belong to it, in the folder.
        bytes: of all of them.
        difference: largest difference from torch, over the largest value of the same row (over 1 in a row of zeros).
        num_rows: rows that were compared, in batches of 1, 2 and 7.
        sizes: of the pictures that were compared.
        outputs: that were compared.
        opset: of ONNX.
        versions: of the packages that wrote it and opened it again.
        seconds: that writing, opening and comparing took.
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
        """A line of the table."""
        versions = ", ".join(f"{name} {version}" for name, version in self.versions.items())
        opset = f"opset {self.opset}, " if self.opset else ""
        difference = f"{self.difference:.1e}" if self.difference else "bits"
        size = f"{self.bytes / 1e6:.2f}"
        return [self.name, self.files[0], size, difference, str(self.num_rows), f"{opset}{versions}"]


class Exported(Record, Printed):
    """``export.json``: what was exported, from what, and each of its files.

    Attributes:
        run: name of the run's folder.
        checkpoint: whose encoder it is; None for the last state.
        version: that exported.
        samples: name of the data that were compared on.
        fingerprint: theirs.
        input: what the graphs take, in words.
        tolerance: largest difference that passes.
        formats: one each.
        left_out: format by format, why it was not made.
        sha256s: of every file but ``export.json`` itself, by name.
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
        """One of the formats.

        Raises:
            KeyError: it was not exported.
        """
        return {each.name: each for each in self.formats}[name]

    def to_dict(self) -> dict[str, Any]:
        """Plain values, as in ``export.json``, with the folder."""
        return {"path": None if self.path is None else str(self.path), **self.model_dump(mode="json")}

    @property
    def table(self) -> TextTable:
        """A line for each format."""
        return TextTable(HEAD, [each.cells() for each in self.formats], "llrrrl")

    def __str__(self) -> str:
        left_out = [f"Left out: {name}: {why}" for name, why in self.left_out.items()]
        title = f"{shown(self.run)} in {shown(self.path)}, compared with torch on samples of {shown(self.samples)}"
        return "\n".join([title, *self.table.lines, SCALE, *left_out])
