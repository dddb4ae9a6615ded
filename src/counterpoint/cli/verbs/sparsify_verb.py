"""Train a sparse code on the frozen features of a run, of an encoder from elsewhere or of a table: each sample
keeps the k largest of many non-negative values, which is a few bytes, and single units have a meaning. The features
are encoded once; training takes minutes on a CPU.

The new folder is a run whose embedding is the code: embed, evaluate, diagnose, search and export take it. Printed are
the share of silent units, what the code reconstructs and kNN, beside PCA, a random projection and truncation of equal
bytes.

examples:
  counterpoint sparsify runs/ncl -k 8 --dims 4096
  counterpoint sparsify features.npy --labels labels.npy -k 2,4,8 --out code
  counterpoint sparsify --encoder timm:resnet18 --init m.pth --data photos/
  counterpoint sparsify runs/ncl --codes codes.npz"""

from typing import Any

import counterpoint as cp
from counterpoint.cli.arguments import JsonFlags, Names, option, subject_from
from counterpoint.cli.outputs import print_found
from counterpoint.core.errors import UsageError
from counterpoint.core.settings import Count

PLACE, SUMMARY = 27, "put a sparse non-negative code on features"
SETTINGS = ("data", "out", "encoder", "init", "epochs", "batch_size", "temperature", "seed", "source", "views", "optim")


class SparsifyFlags(JsonFlags):
    """Settings of ``sparsify``: the features, and the size of their codes."""

    subject: str | None = option("run folder, or features in a file (.npy, .parquet, ...)", place="RUN|FILE")
    k: Names = option("active units of a sample; several with commas are trained at once", ("8",), flag="-k --k")
    dims: Count = option("units", 4096)
    labels: str | None = option("file with one label per sample: .npy, or .csv (file,label)")
    supervised: bool = option("pairs are samples of one class, by --labels or those of the data", False)
    codes: str | None = option("file for the codes of all samples: sparse rows of SciPy (.npz), or lists (.parquet)")
    overwrite: bool = option("replace the run in --out if there is one", False)


def run(flags: SparsifyFlags, settings: dict[str, Any]) -> None:
    """Train the code, print its figures, and name the run folder."""
    subject = subject_from(flags.subject, settings.pop("encoder", None))
    if odd := [text for text in flags.k if not (text.isascii() and text.isdigit())]:
        raise UsageError(f"k must be whole numbers, such as -k 8 or -k 2,4,8, got {odd[0]}")
    how = {"labels": flags.labels, "supervised": flags.supervised, "codes": flags.codes}
    how |= {"overwrite": flags.overwrite, "quiet": flags.quiet, "k": [int(text) for text in flags.k]}
    result = cp.sparsify(subject, dims=flags.dims, data=settings.pop("data", None), **how, **settings)
    print_found(result, as_json=flags.as_json, folder=result.run.path)
