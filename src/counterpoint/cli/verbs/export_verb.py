"""Write the encoder of a run for other programs, with a model card. Each file is reopened and compared
with torch on the run's own samples, in batches of 1, 2 and 7, before the folder appears; what differs by more than
1e-4 of a row's largest value is refused, and nothing is left behind.

formats:
{formats}

examples:
  counterpoint export runs/ncl --to onnx --out ncl-onnx
  counterpoint export runs/ncl --to safetensors,folder --out hub --licence mit
  counterpoint export runs/ncl --to onnx --layer embedding --out z
  counterpoint export runs/ncl --to folder --out hub --push-to-hub ada/birds"""

import sys
import textwrap

import counterpoint as cp
from counterpoint.cli.arguments import RunFlags, array_or_name, chosen, option
from counterpoint.cli.outputs import print_found
from counterpoint.export.export_record import ALL, FORMATS, ExportSettings

LINES = "\n".join(
    textwrap.fill(text, 80, initial_indent=f"  {name:<13}", subsequent_indent=" " * 15)
    for name, text in FORMATS.items()
)
__doc__ = str(__doc__).format(formats=LINES)

PLACE, SUMMARY = 65, "write the encoder for other programs"


class ExportFlags(RunFlags, ExportSettings):
    """Settings of ``export``: the formats, and the folder for the files."""

    to: str = option(f"{', '.join(FORMATS)}, several with commas, or all", ALL)
    out: str = option("folder to create", ...)
    data: str | None = option("samples for the comparison, if the run's own have moved or were an array")
    push_to_hub: str | None = option("OWNER/NAME of the Hugging Face Hub that the folder is then uploaded to")
    private: bool = option("with --push-to-hub: a new repository is private", False)
    overwrite: bool = option("replace an existing export", False)


def run(flags: ExportFlags) -> None:
    """Export, and print the table."""
    options = chosen(flags, ExportFlags, but=("run", "data", "push_to_hub", "private", "as_json"))
    print_found(cp.export(flags.run, data=array_or_name(flags.data), **options), as_json=flags.as_json)
    if flags.push_to_hub is not None:
        print(cp.push_to_hub(flags.out, flags.push_to_hub, private=flags.private), file=sys.stderr)
