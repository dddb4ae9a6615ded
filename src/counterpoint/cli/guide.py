"""`counterpoint` alone: asks what the person has and for what, and answers with commands. Loads no torch.

Only verbs that are there are named: each command is looked up in the list of verbs first. Without a terminal nothing is
asked, and the same choices are printed as text.
"""

import ast
import os
import shlex
import sys
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from counterpoint.cli.parsers import VERBS
from counterpoint.core.catalogues import held
from counterpoint.core.shown import shown

ENOUGH = 100_000  # files after which counting stops
MANY_CLASSES = 1000
HOLDINGS = {
    "pictures": "a folder of pictures",
    "table": "a table or an array: .npy, .npz, .csv, .parquet",
    "encoder": "an encoder that was trained elsewhere, or features that it computed",
    "nothing": "nothing yet, show me",
}
GOALS = {
    "search": "search and organise them",
    "features": "features for a classifier or another program",
    "losses": "compare losses",
    "check": "know whether an embedding of them is any good",
}
EXAMPLES = {"pictures": "photos", "table": "table.npy", "encoder": "timm:resnet50"}  # where nobody is asked
FEATURE_FILES = (".npy", ".npz", ".csv", ".parquet", ".arrow", ".feather")


@dataclass(frozen=True)
class Step:
    """One command and what it is for."""

    words: tuple[str, ...]
    why: str

    def __str__(self) -> str:
        """As it is typed."""
        return shown(f"counterpoint {shlex.join(self.words)}")


@dataclass(frozen=True)
class Asked:
    """What the person has and wants.

    Attributes:
        holding: a key of ``HOLDINGS``.
        subject: a path, or the name of an encoder; empty for nothing.
        goal: a key of ``GOALS``; not used for an encoder and for nothing.
        pictures: of an encoder: a folder of pictures; empty for a file of features.
    """

    holding: str
    subject: str = ""
    goal: str = ""
    pictures: str = ""


def steps(asked: Asked) -> list[Step]:
    """The commands for an answer, in their order, without those whose verb this version does not have."""
    if asked.holding == "nothing":
        found = [
            Step(("demo",), "trains on drawn patterns and on digits, and writes a report; two minutes"),
            Step(("list", "data"), "names the data sets that can be trained on"),
        ]
    elif asked.holding == "encoder":
        found = _of_encoder(asked)
    else:
        found = _of_samples(asked)
    return [step for step in found if step.words[0] in VERBS]


def _of_encoder(asked: Asked) -> list[Step]:
    """For an encoder from elsewhere, or a file of its features."""
    if not asked.pictures:
        return [
            Step(("diagnose", asked.subject), "says whether the features are healthy, worst finding first"),
            Step(("evaluate", asked.subject), "measures them by their labels (give a file with --labels FILE)"),
        ]
    encoder = ("--encoder", asked.subject, "--data", asked.pictures)
    return [
        Step(("evaluate", *encoder), "measures it by labels, beside raw pixels; give its weights with --weights FILE"),
        Step(("diagnose", *encoder), "says whether its features are healthy, worst finding first"),
        Step(
            ("embed", "--encoder", asked.subject, asked.pictures, "--out", "features.npz"),
            "writes one row of features for each picture",
        ),
    ]


def _of_samples(asked: Asked) -> list[Step]:
    """For pictures or a table: look, train, and go on to the goal."""
    data, run, is_seen = asked.subject, "runs/mine", asked.holding == "pictures"
    if asked.goal == "check" and not is_seen:
        return _of_encoder(Asked("encoder", data))
    if asked.goal == "losses":
        others = ("runs/simclr", "runs/ncl")
        return [
            Step(("train", "--data", data, "--method", "simclr", "--out", others[0]), "trains with SimCLR's loss"),
            Step(
                ("train", "--data", data, "--method", "ncl", "--out", others[1]), "the same with non-negative outputs"
            ),
            Step(("compare", *others), "says which differences are real"),
            Step(("report", *others, "--out", "side_by_side.html"), "sets both side by side on one page"),
        ]
    ends = {
        "search": [
            *([Step(("search", run, "query.jpg"), "finds what is most like a picture")] * is_seen),
            Step(("report", run), "one page: is it any good, what did it learn, a gallery by concept"),
        ],
        "features": [
            Step(("evaluate", run), "measures the features by labels, beside raw input and an untrained encoder"),
            Step(("embed", run, "--out", "features.npz"), "writes one row of features for each sample"),
            Step(("export", run, "--to", "onnx", "--out", "exported"), "writes the encoder for other programs"),
        ],
        "check": [
            Step(("diagnose", run), "says whether it is healthy, worst finding first, with something to try"),
            Step(("report", run), "one page with the evidence"),
        ],
    }
    return [*_training(asked, run), *ends[asked.goal]]


def _training(asked: Asked, run: str) -> list[Step]:
    """From data to a trained encoder: as is recommended for pictures, else with what is chosen by the data."""
    plain = Step(("train", "--data", asked.subject, "--out", run), "trains an encoder; needs no labels")
    if asked.holding != "pictures":
        return [plain]
    audit = Step(("audit", asked.subject), "says what is there: broken files, duplicates, classes, too few pictures")
    if "recommend" not in VERBS:
        return [audit, Step(("preview", "--data", asked.subject), "draws pictures beside their views"), plain]
    return [
        audit,
        Step(("recommend", asked.subject, "--out", "recommended.yaml"), "chooses the settings, each with its reason"),
        Step(("train", "--config", "recommended.yaml", "--out", run), "trains an encoder with them; needs no labels"),
    ]


# --- what is there


def look(path: str) -> tuple[str, str]:
    """What a path holds: a key of ``HOLDINGS`` (or nothing known: an empty text), and a sentence.

    Nothing is opened: files are counted by their names.
    """
    place = os.path.expanduser(path)
    if os.path.isdir(place):
        return _look_into(Path(place))
    if not os.path.isfile(place):
        return "", f"There is no {shown(path)}."
    suffix = Path(place).suffix.lower()
    if suffix in FEATURE_FILES or suffix in (".tar", ".txt"):
        return "table", f"A file {suffix} of {os.path.getsize(place):,} bytes."
    return "", f"{shown(path)} is no folder and no file of a form that is known ({', '.join(FEATURE_FILES)})."


def _look_into(folder: Path) -> tuple[str, str]:
    """Pictures of a folder by their names, and the classes that its sub-folders make."""
    suffixes, classes, others = _picture_suffixes(), Counter[str](), 0
    for directory, folders, files in os.walk(folder):
        folders[:] = sorted(name for name in folders if not name.startswith("."))
        top = Path(directory).relative_to(folder).parts[:1]
        for name in (name for name in files if not name.startswith(".")):
            is_picture = os.path.splitext(name)[1].lower() in suffixes
            classes["".join(top)] += is_picture
            others += not is_picture
        if classes.total() + others > ENOUGH:
            break
    return _told(folder, +classes, others)


def _told(folder: Path, classes: Counter[str], others: int) -> tuple[str, str]:
    """What was counted, in a sentence."""
    number = classes.total()
    if not number:
        return "", f"There is no picture in {shown(folder)}, {others:,} other files."
    more = "more than " if number + others > ENOUGH else ""
    words = f"{more}{number:,} pictures" if number > 1 else "1 picture"
    if others:
        words += f", {others:,} other files" if others > 1 else ", 1 other file"
    named = sorted(name for name in classes if name)
    if 1 < len(named) <= MANY_CLASSES:
        few = ", ".join(map(shown, named[:4])) + (", ..." if len(named) > 4 else "")
        words += f"; {len(named)} sub-folders, which are taken for labels ({few})"
    else:
        words += "; no labels, which training does not need"
    return "pictures", f"{words[:1].upper()}{words[1:]}."


def _picture_suffixes() -> frozenset[str]:
    """Ends of names of pictures, read from the module that decodes them, which would load torch."""
    (known,) = held("data/formats/image_files.py", "SUFFIXES")
    assert isinstance(known.value, ast.Call)
    return frozenset(ast.literal_eval(known.value.args[0]))


# --- the dialogue


def is_asked() -> bool:
    """Whether a person sits at both ends."""
    return sys.stdin.isatty() and sys.stdout.isatty()


def ask(run: Callable[[Sequence[str]], int]) -> int:
    """Ask, print the commands, and run the first one after a yes.

    Args:
        run: runs a command line and returns its exit code.

    Returns:
        The exit code: 0, or that of the command.

    Raises:
        KeyboardInterrupt: the person broke off.
    """
    try:
        found = steps(_answers())
        print("\nThese commands do it, one after the other:\n")
        print(*_lines(found), sep="\n")
        print("\ncounterpoint VERB --help explains each.")
        if input("\nRun the first one now? [y/N] ").strip().lower() not in ("y", "yes"):
            return 0
    except EOFError:
        print()
        return 0
    return run(found[0].words)


def _answers() -> Asked:
    """Put the questions."""
    print("Counterpoint learns representations by contrast and shows what it learned.\n")
    holding = _choice("What have you got?", HOLDINGS)
    if holding == "nothing":
        return Asked(holding)
    if holding == "encoder":
        return _encoder()
    holding, subject = _path(f"Where is it? A folder, or a file ({', '.join(FEATURE_FILES)}): ")
    return Asked(holding, subject, _choice("What for?", GOALS))


def _encoder() -> Asked:
    """Ask for a file of features, or a name and a folder of pictures."""
    print(
        "\nA file of features, or a name such as timm:resnet50, torchvision:resnet50, FILE.onnx, package.module:name."
    )
    while not (subject := input("Which? ").strip()):
        pass
    if Path(subject).suffix.lower() in FEATURE_FILES:
        return Asked("encoder", subject)
    return Asked("encoder", subject, pictures=_path("Pictures to look at with it, a folder: ")[1])


def _path(question: str) -> tuple[str, str]:
    """Ask until a path holds something that can be used; it is looked at and told."""
    print()
    while True:
        # A path that is dragged into a terminal comes with quotes.
        path = input(question).strip().strip("'\"")
        if not path:
            continue
        holding, sentence = look(path)
        print(sentence)
        if holding:
            return holding, f"./{path}" if path.startswith("-") else path


def _choice(question: str, options: dict[str, str]) -> str:
    """Ask for one of a few by its number."""
    names = list(options)
    print(f"\n{question}" if question != "What have you got?" else question)
    print(*(f"  {number}  {options[name]}" for number, name in enumerate(names, start=1)), sep="\n")
    while True:
        answer = input(f"1 to {len(names)}: ").strip().lower()
        if answer in names:
            return answer
        if answer.isdecimal() and 1 <= int(answer) <= len(names):
            return names[int(answer) - 1]


def _lines(found: Sequence[Step]) -> list[str]:
    """Each command with its sentence below."""
    return [line for step in found for line in (f"  {step}", f"      {step.why}")]


def decision() -> str:
    """The same questions and answers as text, for those who cannot be asked."""
    lines = ["What have you got, and what for?"]
    for holding, what in HOLDINGS.items():
        lines += ["", what]
        goals = GOALS if holding in ("pictures", "table") else {"": ""}
        for goal, aim in goals.items():
            pictures = "photos" if holding == "encoder" else ""
            found = steps(Asked(holding, EXAMPLES.get(holding, ""), goal, pictures))
            lines += [f"  {aim}:"] * bool(aim)
            lines += [f"    {step}" for step in found]
    return "\n".join([*lines, ""])
