"""Names under which other programs keep the same weights: a network's children by number, and a ResNet's four layouts.

A ResNet's layouts differ in words only, and each has the same operations in the same order. One that does not is no
layout but another network: what lightly's CIFAR benchmarks rebuild from a ResNet's children has lost the first ReLU.
"""

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from torch import nn

STAGES = ("layer1", "layer2", "layer3", "layer4")
TOP = ("conv1", "bn1", *STAGES)
# Places in our residual branch: convolution, norm, ReLU, and so on.
OUR_PARTS = {"conv1": "residual.0", "bn1": "residual.1", "conv2": "residual.3", "bn2": "residual.4",
             "conv3": "residual.6", "bn3": "residual.7", "downsample": "shortcut"}  # fmt: skip


@dataclass(frozen=True)
class ResNetLayout:
    """How a program names the parts of a ResNet that torchvision calls ``TOP`` and ``layer1.0.conv1``.

    Attributes:
        top: its words for ``TOP``.
        parts: its words for parts of a block that it names otherwise.
        is_flat: whether blocks are numbered through all stages; ``top`` then has the same word for each stage.
    """

    top: tuple[str, ...]
    parts: Mapping[str, str] = field(default_factory=dict)
    is_flat: bool = False

    def spelled(self, usual: Iterable[str]) -> dict[str, str]:
        """This layout's names by torchvision's."""
        usual = list(usual)
        # The number of blocks before each stage.
        counts = [len({name.split(".")[1] for name in usual if name.startswith(f"{stage}.")}) for stage in STAGES]
        before = {stage: sum(counts[:place]) if self.is_flat else 0 for place, stage in enumerate(STAGES)}
        words: dict[str, str] = dict(zip(TOP, self.top, strict=True))
        found = {}
        for name in usual:
            head, *rest = name.split(".")
            if head in before:
                place, part, *end = rest
                rest = [str(int(place) + before[head]), self.parts.get(part, part), *end]
            found[name] = ".".join([words[head], *rest])
        return found

    def usual(self, names: Iterable[str]) -> dict[str, str] | None:
        """Torchvision's names by this layout's; None if they are not all of this layout."""
        names = list(names)
        if self.is_flat:
            # A stage begins with the first block, and where a shortcut has weights.
            with_shortcut = {int(found[1]) for name in names if (found := re.match(r"blocks\.(\d+)\.shortcut\.", name))}
            starts = sorted({0, *with_shortcut})[: len(STAGES)]
        else:
            starts = [0] * len(STAGES)
        parts = {word: part for part, word in self.parts.items()}
        found = {name: _usual_name(name, self.top, parts, starts) for name in names}
        return found if all(found.values()) else None  # type: ignore[return-value]


def _usual_name(name: str, top: tuple[str, ...], parts: Mapping[str, str], starts: list[int]) -> str | None:
    for usual, word in zip(TOP[:2], top, strict=False):
        if name.startswith(f"{word}."):
            return usual + name.removeprefix(word)
    found = re.fullmatch(r"(\w+)\.(\d+)\.(\w+(?:\.\d+)?)\.(\w+)", name)
    if found is None or found[1] not in top[2:]:
        return None
    head, block, part, end = found.groups()
    place = int(block)
    stage = sum(place >= start for start in starts) - 1 if len(set(top[2:])) == 1 else top[2:].index(head)
    word = next((own for own in parts if part == own or part.startswith(f"{own}.")), None)
    part = parts[word] + part.removeprefix(word) if word else part
    if part.split(".")[0] not in OUR_PARTS:
        return None
    return f"{STAGES[stage]}.{place - starts[stage]}.{part}.{end}"


def spellings(module: nn.Module, names: Iterable[str]) -> list[dict[str, str]]:
    """Names that files may have for a module's weights, its own first: its own names by the file's.

    Args:
        module: what the weights are for.
        names: of its weights.
    """
    found = []
    for spelled in _spellings(module, list(names)):
        found += [] if spelled in found else [spelled]
    return found


def _spellings(module: nn.Module, names: list[str]) -> Iterator[dict[str, str]]:
    """The same, some more than once."""
    yield {name: name for name in names}
    # What `nn.Sequential(*module.children())` calls them.
    places = {name: str(place) for place, (name, _) in enumerate(module.named_children())}
    if not all(name == place for name, place in places.items()) and all(name.split(".")[0] in places for name in names):
        yield {".".join([places[name.split(".")[0]], *name.split(".")[1:]]): name for name in names}
    for own in RESNET_LAYOUTS.values():
        usual = own.usual(names)
        if usual is not None:
            for other in RESNET_LAYOUTS.values():
                spelled = other.spelled(usual.values())
                yield {spelled[usual[name]]: name for name in names}
            return


RESNET_LAYOUTS: Mapping[str, ResNetLayout] = {
    "torchvision, timm, solo-learn": ResNetLayout(TOP),
    "children of torchvision's by number": ResNetLayout(("0", "1", "4", "5", "6", "7")),
    "lightly": ResNetLayout(TOP, {"downsample": "shortcut"}),
    "counterpoint": ResNetLayout(("stem.0", "stem.1", *["blocks"] * len(STAGES)), OUR_PARTS, is_flat=True),
}
