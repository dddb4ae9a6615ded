"""`counterpoint export`."""

import argparse
import textwrap
from pathlib import Path

from counterpoint.cli.arguments import add_fields, fields_from
from counterpoint.cli.outputs import add_forms, print_found
from counterpoint.cli.parsers import Parser, add_run
from counterpoint.core.rundir import open_run
from counterpoint.export.export_settings import ALL, FORMATS, ExportSettings

LINES = "\n".join(
    textwrap.fill(text, 80, initial_indent=f"  {name:<13}", subsequent_indent=" " * 15)
    for name, text in FORMATS.items()
)
PLACE, SUMMARY = 65, "write the encoder for other programs"
TEACH = f"""Write the encoder of a run for other programs, with a model card. Each file is opened again and compared
with torch on the run's own samples, in batches of 1, 2 and 7, before the folder appears; what differs by more than
1e-4 of a row's largest value is refused, and nothing is left behind.

formats:
{LINES}

examples:
  counterpoint export runs/ncl --out ncl-model
  counterpoint export runs/ncl --to onnx --out ncl-onnx
  counterpoint export runs/ncl --to safetensors,folder --out hub --licence mit
  counterpoint export runs/ncl --to onnx --layer embedding --out z"""


def add_flags(parser: Parser) -> None:
    """Add the arguments."""
    add_run(parser)
    parser.add_argument(
        "--to", default=ALL, metavar="FORMAT", help=f"{', '.join(FORMATS)}, several with commas, or all"
    )
    parser.add_argument("--out", required=True, metavar="FOLDER", help="folder to make")
    parser.add_argument("--data", help="samples to compare on, where the run's own have moved or were an array")
    parser.add_argument("--overwrite", action="store_true", help="replace an export that stands there")
    add_fields(parser, ExportSettings)
    add_forms(parser)


def run(flags: argparse.Namespace) -> int:
    """Export, and print the table."""
    asked = fields_from(flags, ExportSettings)
    open_run(Path(flags.run))  # before torch is loaded
    from counterpoint.data.formats.npz_files import read_npy  # deferred: loads torch
    from counterpoint.export.exporting import export  # deferred: loads torch

    data = read_npy(Path(flags.data)) if flags.data is not None and Path(flags.data).suffix == ".npy" else flags.data
    found = export(flags.run, flags.to, out=flags.out, data=data, overwrite=flags.overwrite, quiet=flags.quiet, **asked)
    print_found(found, flags, None)
    return 0
