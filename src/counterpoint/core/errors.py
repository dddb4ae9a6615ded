"""Errors a user can act on, and the nearest known name to a mistyped one."""

import difflib
from collections.abc import Iterable, Sequence

from counterpoint.core.terminal_text import shown

MOST_NAMED = 5  # names in one message, if nothing else is said
MAX_LINE = 300  # characters of another's message in ours
# Settings, verbs and formats of earlier versions, and their replacements.
GONE = {
    "engine.backend": "training runs on plain torch alone, which gave the same results",
    "csv": "--json has everything",
    "markdown": "--json has everything",
    "compare --evaluation": "name the files themselves, RUN/evaluations/NAME.json",
    "geometry --out": "the answer is text, or JSON with --json; cp.theory returns the records to draw from",
    "engine.average": "the encoder has the weights of the last update",
    "engine.accumulate": "--engine.chunk-size N takes as little memory, and the loss sees the whole batch",
    "engine.sync_norm": "several ranks always have the BatchNorm of one process",
    "optim.layer_decay": "all layers have one learning rate; requires_grad_(False) keeps layers of an own encoder",
    "calibrate": "`python benchmarks/calibrate_diagnosis.py` of the source tree takes the same words",
    "pretrained_weights": "`--encoder timm:NAME --init FILE` takes the file",
    "pretrained-weights": "`--encoder timm:NAME --init FILE` takes the file",
    "resume --epochs": "`train --init RUN --out NEW --epochs N` begins another run with its weights",
    "resume --allow-changed": "what no weight depends on is taken over, and named",
    "train --allow-changed": "what no weight depends on is taken over, and named",
    "reproduce": "`python -m reproductions` in the source tree takes the same words",
    "--data mnist": "torchvision.datasets.MNIST has its arrays (data, targets), which cp.train takes",
    "--data fashion-mnist": "torchvision.datasets.FashionMNIST has its arrays (data, targets), which cp.train takes",
    "--data dsprites": "numpy.load reads its arrays: cp.train(imgs * 255)",
    "--data dsprites-rendered": "reproductions/ncl2024/sprites.py in the source tree draws it; or patterns-rendered",
    "--data svhn": "a folder of its pictures with a sub-folder per digit takes its place",
    "torchscript": "onnx is for other programs, folder for torch without Counterpoint",
    "torch-export": "onnx is for other programs, folder for torch without Counterpoint",
    "own-shards-only": "each part makes its own shards alone",
    "embed --merge": "a folder of shards is read wherever a table is; docs/scale.md makes one file of it by pyarrow",
    "search --shards": "search the run without it: its samples are embedded",
    "search --second": "`cp.load(RUN, second=True).embed(x)` gives vectors to compare with those of cp.embed(RUN)",
    "diagnose --layers": "`embed RUN --layer NAME --out layer.npz`, then `diagnose layer.npz`, layer by layer",
    "diagnose --groups": "labels=GROUPS (--labels GROUPS.npy) says how far neighbours are of one group",
    "diagnose --loss": "`loss.importance(z0, z1)` weighs the pairs of two views",
    "rebuild": "features come from the cache, which knows samples and weights by their hashes",
    "search --dims": "all dimensions are compared; `evaluate RUN --selection all` says what fewer would keep",
    "search --method": "every row is compared; docs/search.md has a few lines for a graph of usearch",
    "search --exact": "every row is compared",
    "compare --out": "`counterpoint report RUN RUN` draws runs side by side, and --json has every figure of anything",
    "evaluate --baseline": "evaluate the other encoder separately (--encoder NAME --weights FILE --data DATA)",
    "evaluate --baseline-weights": "evaluate the other encoder separately (--encoder NAME --weights FILE --data DATA)",
    "evaluate --same-classes": "give the classes one name in both data sets",
    "evaluate --absent-classes": "--source.classes takes the classes that both sides have",
    "evaluate --reference": "the accuracies under corruptions of two evaluations give any ratio",
    "evaluate --rank-on": "orders are made from the labelled samples",
    "evaluate --similarity": "neighbours are near by cosine",
    "evaluate --part": "`embed --shards --part` encodes in several processes, and `evaluate FOLDER` measures",
    "evaluate --weighting": "neighbours vote with exp(cosine / temperature)",
    "export --layout": "the graph takes (batch, height, width, channels)",
    "export --opset": "the graph has the operators of ONNX 18, which onnxruntime and its converters read",
    "export --samples": "30 samples are compared",
    "export --evaluate": "`counterpoint evaluate RUN` and `counterpoint diagnose RUN` go before the export",
    "search --export": "docs/search.md shows how the table of `counterpoint embed` goes into a database in a few lines",
    "export_index": "docs/search.md shows how the table of cp.embed(run) goes into a database in a few lines",
    "bounds": "`python -m reproductions.mio2021.linear_rate RUN` in the source tree reads what `spectrum RUN` wrote",
    "runs --delete": "remove the folder of the run; nothing of it is stored elsewhere",
    "spectrum --vectors": "eigsh of SciPy finds them from the products of a loss (docs/curvature.md, Your own loss)",
    "spectrum --chunk-size": "batch_size (--batch-size) decides how much memory the graph of the whole batch takes",
    "spectrum --memory": "batch_size (--batch-size) decides how much memory the graph of the whole batch takes",
    "search --out": "cp.search(..., pictures=True).pictures has pictures to draw; the report shows what lies nearest",
    "watch": "log the run with --engine.tensorboard true (or wandb); `counterpoint report` draws what is there",
    "--encoder FILE.onnx": "onnxruntime computes features, which evaluate and diagnose take (docs/foreign-encoders.md)",
    "--encoder solo-learn:NAME": "torchvision:NAME takes its weights; docs/foreign-encoders.md has its stem for small "
    "images as a function",
    "list protocols": "docs/evaluation-reference.md has the metrics and layers of each published table",
    "protocol": "docs/evaluation-reference.md has the metrics and layers of each published table",
    "metric knn 20": "`--metrics knn --k 20` is the same",
    "metric knn 200": "`--metrics knn --k 200` is the same",
    **dict.fromkeys(
        (
            "metric adam probe",
            "metric sgd probe",
            "metric fast sgd probe",
            "metric lars probe",
            "metric mig",
            *(f"metric sepin{end}" for end in ("", "@1", "@10", "@100")),
        ),
        "`python -m reproductions` in the source tree measures it for the tables of its paper",
    ),
    "runs --where": "`counterpoint runs --json` has every value for jq or Python to choose by",
}


class CounterpointError(Exception):
    """Any failure with a cause the user can remove; its text is one line and says how."""

    def __str__(self) -> str:
        """The line, with characters that a terminal would obey made visible."""
        return shown(super().__str__())


class UsageError(CounterpointError, ValueError):
    """A setting, argument or flag is wrong."""


class DataError(CounterpointError, ValueError):
    """The data cannot be used as asked."""


class StoreError(CounterpointError):
    """An object store refuses, is away, or has another object; no ValueError, which readers take for damaged data."""


class RunError(CounterpointError):
    """A run folder, checkpoint or output cannot be used as asked."""


class StaleFileError(RunError):
    """A file of a run folder is of another run, or of weights that the run no longer has."""


class TrainingError(CounterpointError):
    """Training cannot continue."""


class LoneTrainingError(TrainingError):
    """Training cannot continue for a reason that only this rank knows."""


class InterruptedRunError(CounterpointError):
    """The user or the system asked training to stop; the run was saved first."""

    def __init__(self, message: str, *, exit_code: int) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class NonFiniteError(CounterpointError, ValueError):
    """A tensor holds NaN or infinity."""


def gone(name: str) -> str:
    """Say why a setting, verb or format of an earlier version was removed; empty for any other name.

    >>> gone("engine.backend")
    'engine.backend is gone: training runs on plain torch alone, which gave the same results'
    """
    key = name if name in GONE else name.replace("_", "-")
    return f"{key} is gone: {GONE[key]}" if key in GONE else ""


def nearest(name: str, candidates: Iterable[str]) -> str:
    """Return ``"; did you mean 'x'?"`` for the closest known name, or nothing when none is close.

    >>> nearest("simclrr", ["simclr", "ncl"])
    "; did you mean 'simclr'?"
    >>> nearest("zzz", ["simclr", "ncl"])
    ''
    """
    matches = difflib.get_close_matches(name.lower(), list(candidates), n=1, cutoff=0.6)
    return f"; did you mean '{matches[0]}'?" if matches else ""


def first_line(error: Exception) -> str:
    """The first line of an error's text, cut where it quotes a file at length, or its kind when it has no text."""
    text = str(error).splitlines()[0] if str(error) else type(error).__name__
    return text if len(text) <= MAX_LINE else f"{text[:MAX_LINE]} ..."


def some(names: Sequence[str], most: int = MOST_NAMED) -> str:
    """A limited number of names in one text.

    >>> some(list("abcdefg"))
    'a, b, c, d, e and 2 more'
    """
    more = f" and {len(names) - most} more" if len(names) > most else ""
    return ", ".join(names[:most]) + more


def unknown_name(kind: str, name: str, names: Iterable[str]) -> UsageError:
    """Build the error for a name that no catalogue holds.

    >>> print(unknown_name("method", "simcrl", ["ncl", "simclr"]))
    unknown method 'simcrl'; did you mean 'simclr'? (known: ncl, simclr)
    """
    names = list(names)
    return UsageError(f"unknown {kind} {name!r}{nearest(name, names)} (known: {', '.join(names)})")
