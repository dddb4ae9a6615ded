"""Checks of data for broken and odd pictures, copies, class sizes and shortcuts."""

# N pictures, D features

import itertools
import re
from collections import Counter
from difflib import SequenceMatcher
from statistics import fmean

import numpy as np
import torch

from counterpoint.audit.audit_record import MOST_NAMED, TEST_PARTS, Observation, amount, counted, needed_max_bad
from counterpoint.audit.class_cues import FILE_CUES
from counterpoint.audit.set_evidence import MOSTLY, Check, SetEvidence, warned
from counterpoint.core.numerics import unit_rows
from counterpoint.diagnostics.checks.label_checks import NOISE
from counterpoint.diagnostics.label_agreement import nearest_votes

FEW_SAMPLES, VERY_FEW = 500, 50  # different samples
UNEVEN, VERY_UNEVEN = 3.0, 10.0  # largest class over smallest
SMALL_CLASS = 10  # samples; a fifth of them, held out, are two
FILE_SKILL, COLOUR_SKILL = 0.10, 0.50  # from which a cue of files, or another one, is named
NEARLY_CERTAIN = 0.80  # from which another one is worth a warning: where the ink of a digit lies tells it with 0.5
CUT_SHORT = 0.1  # share of the height
NOISE_GRAIN = 0.15  # 600 pictures of CIFAR-10 and 600 cue-conflict ones have 0.5 or more
ALIKE_NAMES, MOST_CLASS_NAMES = 0.93, 1000  # likeness of names, by difflib
SURELY_WRONG = 0.9  # of the votes by which another class leads: at most 1 of 1,797 scanned digits as they are
SHARED = 0.2  # of the pictures of the smaller class
REMOVE = "leave the copies out with --source.exclude FILE (`counterpoint recommend` writes that file)"
CONVERT = "convert the files of all classes to one format, size and quality"
COLLECT = "collect pictures without it, or use views that remove it: crops against borders, jitter against colours"


def check_unreadable(evidence: SetEvidence) -> Observation | None:
    """Report files that hold no picture, or only a part of one."""
    headers = evidence.seen.headers if evidence.seen else ()
    bad = [place for place, header in enumerate(headers) if header.reason]
    reasons = Counter(headers[place].reason for place in bad)
    is_all = len(bad) == len(headers)
    needed = needed_max_bad(len(bad), max(len(headers), 1))
    remedy = "copy them again from their source, or delete them; `train` leaves them out"
    remedy += " and names them" if needed is None else f" with --source.max-bad {needed:g}"
    return warned(
        bad,
        code="unreadable",
        level="severe" if is_all else "warning",
        title=f"unreadable: {amount(len(bad), 'file')} of {len(headers):,} ({counted(reasons, 3)})",
        text="A truncated or damaged file decodes to nothing, or to wrong pixels.",
        remedy="copy the files again from their source" if is_all else remedy,
        names=evidence.named(bad),
        beside=tuple(headers[place].reason for place in bad[:MOST_NAMED]),
    )


def check_blank(evidence: SetEvidence) -> Observation | None:
    """Report pictures of one colour."""
    return evidence.observed(
        np.flatnonzero(evidence.is_blank_N).tolist(),
        "nothing to see, hardly more than one colour",
        code="blank",
        text="All of them look alike, so that each repels copies of itself in a contrastive loss.",
        remedy="leave them out with --source.exclude FILE (`counterpoint recommend` writes that file)",
    )


def check_cut(evidence: SetEvidence) -> Observation | None:
    """Report pictures whose lower part is the grey with which decoders fill what is missing."""
    cut_N = evidence.seen.looks.cut_N if evidence.seen else np.zeros(len(evidence.names))
    return evidence.observed(
        np.flatnonzero((cut_N >= CUT_SHORT) & evidence.is_good_N & ~evidence.is_blank_N).tolist(),
        "grey below some row",
        code="cut-short",
        text="A truncated file was decoded and saved again: the rest of the picture is lost.",
        remedy="copy the pictures again from their source, or list them in a file for --source.exclude",
    )


def check_noise(evidence: SetEvidence) -> Observation | None:
    """Report pictures of noise, if most pictures are not noise."""
    if evidence.seen is None:
        return None
    is_noise_N = (evidence.seen.looks.grain_N <= NOISE_GRAIN) & evidence.is_good_N & ~evidence.is_blank_N
    if is_noise_N.sum() > MOSTLY * evidence.is_good_N.sum():
        return None
    return evidence.observed(
        np.flatnonzero(is_noise_N).tolist(),
        "noise: neighbouring pixels have nothing in common",
        code="noise",
        text="A damaged sensor, file or conversion leaves such pictures; they show nothing to learn.",
        remedy="look at them, and list them in a file for --source.exclude",
    )


def check_confined(evidence: SetEvidence) -> Observation | None:
    """Report single classes that a cue without content distinguishes from all others."""
    _, sure = evidence.cues
    remedies = dict.fromkeys(CONVERT if cue.name in FILE_CUES else COLLECT for cue in sure)
    return warned(
        sure,
        code="class-cue",
        title=f"{amount(len({cue.label for cue in sure}), 'label')} can be predicted without the pictures' content",
        text="AUC: share of pairs that this alone ranks right, class above others. An encoder may learn it instead.",
        remedy="; ".join(remedies),
        names=tuple(f"{cue.name}: {cue.label} (AUC {cue.auc:.3f})" for cue in sure),
    )


def check_names(evidence: SetEvidence) -> Observation | None:
    """Report classes whose names differ in case, plural, spaces or one letter, or that share many pictures."""
    labels, names = evidence.collection.labels_N, evidence.collection.class_names
    if labels is None or len(names) > MOST_CLASS_NAMES:
        return None
    plain = [re.sub(r"[\W_]+", "", name.casefold()).removesuffix("s") for name in names]
    shared = Counter(
        (min(pair), max(pair))
        for group in evidence.all_copies
        for pair in [(int(labels[group[0]]), int(labels[at])) for at in group[1:]]
        if pair[0] != pair[1] and min(pair) >= 0
    )
    counts = evidence.class_counts
    inseparable = Counter(pair for _, _, agreement in evidence.agreements for pair in agreement.shared)
    alike_pairs = []
    for first, second in itertools.combinations(range(len(names)), 2):
        alike = SequenceMatcher(None, plain[first], plain[second]).ratio() if plain[first][:1] else 0.0
        is_named = plain[first] == plain[second] or (alike >= ALIKE_NAMES and min(map(len, plain)) > 0)
        smaller = min(counts.get(names[first], 0), counts.get(names[second], 0))
        if is_named and not any(map(str.isdigit, plain[first] + plain[second])):
            alike_pairs.append(f"{names[first]} and {names[second]}")
        elif smaller and shared[first, second] >= SHARED * smaller:
            alike_pairs.append(f"{names[first]} and {names[second]}: {shared[first, second]} pictures in both")
        elif inseparable[first, second] > MOSTLY * len(evidence.agreements):
            alike_pairs.append(f"{names[first]} and {names[second]}: their {evidence.noun} are not told apart")
    return warned(
        alike_pairs,
        code="alike-classes",
        title=f"classes that may be one: {amount(len(alike_pairs), 'pair')}",
        text="Their names, or what is in them, are nearly the same.",
        remedy="look at both, and join them if they are one class",
        names=tuple(alike_pairs[:MOST_NAMED]),
    )


def check_same(evidence: SetEvidence) -> Observation | None:
    """Report samples with the same content."""
    return evidence.observed(
        [at for group in evidence.equal for at in group[1:]],
        "copies with equal pixels" if evidence.seen else "copies, number by number",
        f" ({amount(len(evidence.equal), 'group')})",
        code="same-pixels",
        text="A copy counts twice in every figure, and in a contrastive loss a picture repels its own copy.",
        remedy=REMOVE,
        groups=evidence.copies(evidence.equal),
    )


def check_near(evidence: SetEvidence) -> Observation | None:
    """Report pictures that show the same after a change; each pair is listed separately."""
    pairs = evidence.near.pairs_P2.tolist()
    return evidence.observed(
        sorted({at for pair in pairs for at in pair}),
        "nearly the same as another, compressed, resized, cropped, turned, mirrored, framed or marked",
        f" ({amount(len(pairs), 'pair')})",
        code="near-copies",
        text="A contrastive loss pushes copies apart though they are one picture, and tests on them say too much. "
        "Some pairs may be different things of one kind: nothing is left out automatically.",
        remedy="look at the pairs; `counterpoint recommend --drop-near-copies` leaves one of each out",
        # The clearest first: what follows may be two things of one kind.
        groups=tuple(sorted(evidence.copies(pairs), key=lambda pair: -(pair.similarity or 0.0))),
    )


def check_leakage(evidence: SetEvidence) -> Observation | None:
    """Report copies of training pictures in a part that is kept for tests."""
    is_test = np.array([share.name.lower() in TEST_PARTS for share in evidence.collection.shares], bool)
    is_test_N = is_test[evidence.collection.part_of]
    if not is_test_N.any() or is_test_N.all():
        return None
    groups = [group for group in evidence.all_copies if len({bool(is_test_N[at]) for at in group}) == 2]
    tested = [at for group in groups for at in group if is_test_N[at]]
    share = len(tested) / int(is_test_N.sum())
    return evidence.observed(
        tested,
        "test samples that are also in the training part",
        f" ({share:.1%})",
        code="leakage",
        level="severe" if share > 0.01 else "warning",
        text="Their accuracy is too high for an encoder that saw them in training.",
        remedy=REMOVE.replace("the copies", "their copies in training"),
        measured=share,
        reference=0.0,
        reference_name="of parts that share nothing",
        groups=evidence.copies(groups),
    )


def check_conflicts(evidence: SetEvidence) -> Observation | None:
    """Report copies of one picture with different labels."""
    labels = evidence.collection.labels_N
    if labels is None:
        return None
    groups = [group for group in evidence.all_copies if len({int(labels[at]) for at in group if labels[at] >= 0}) > 1]
    return warned(
        groups,
        code="label-conflict",
        title=f"copies with different labels: {amount(len(groups), 'group')}",
        text="At least one of the labels of each is wrong, or the picture shows both.",
        remedy="look at each and keep one label",
        names=evidence.named(at for group in groups for at in group),
        groups=evidence.copies(groups),
    )


def check_labels(evidence: SetEvidence) -> Observation | None:
    """Report samples whose neighbours are of another class, if outlines or numbers separate the classes."""
    labels_N = evidence.collection.labels_N
    if labels_N is None:
        return None
    odd: list[tuple[int, str]] = []
    lows, accuracies = [], []
    for places, features, agreement in evidence.agreements:
        if agreement.noise.low is None:
            continue
        lows.append(agreement.noise.low)
        accuracies.append(agreement.accuracy)
        number_of, label_N = torch.from_numpy(labels_N[places]).unique(return_inverse=True)
        votes_NC = nearest_votes(unit_rows(features.double()), label_N, len(number_of))
        for at in agreement.suspects.tolist():
            if votes_NC[at].max() - votes_NC[at, label_N[at]] >= SURELY_WRONG:
                other = evidence.collection.class_names[int(number_of[votes_NC[at].argmax()])]
                odd.append((int(places[at]), other))
    if not odd:
        return None
    own = evidence.collection.class_names
    return Observation(
        code="wrong-label",
        level="warning" if fmean(lows) >= NOISE else "note",
        title=f"labels that look wrong: {amount(len(odd), evidence.noun)}, as nearly all of the most similar have "
        "another",
        text=f"By {'outlines' if evidence.seen else 'their numbers'}, neighbours name the label of "
        f"{fmean(accuracies):.0%}. Two of three wrong labels are found so where classes are easily told, and none on "
        "photographs: train, then see `label-noise` of `counterpoint diagnose`.",
        remedy="look at each and correct it",
        count=len(odd),
        names=evidence.named(at for at, _ in odd),
        beside=tuple(f"{own[labels_N[at]]}; most similar: {other}" for at, other in odd[:MOST_NAMED]),
    )


def check_classes(evidence: SetEvidence) -> Observation | None:
    """Report classes of very different sizes, too few samples in one, or one class only."""
    if evidence.labels is None:
        return Observation(
            code="no-labels",
            title="no labels were found",
            text="Training needs no labels; accuracies do.",
            remedy="if there are labels: sub-folders by class, or --source.labels FILE.csv with the columns file,label",
        )
    counts = evidence.class_counts
    if len(counts) < 2:
        return Observation(
            code="one-class",
            level="warning",
            title=f"all samples have the one label {next(iter(counts), '')!r}",
            text="No accuracy can be measured with one class.",
            remedy="train as if there were no labels: --source.labels none",
            count=len(counts),
        )
    few = {name: count for name, count in counts.items() if count < SMALL_CLASS}
    ratio = max(counts.values()) / min(counts.values())
    if not few and ratio < UNEVEN:
        return None
    smallest = dict(sorted(counts.items(), key=lambda item: item[1])[:3])
    return Observation(
        code="uneven-classes",
        level="warning" if few or ratio >= VERY_UNEVEN else "note",
        title=f"the largest class has {ratio:.3g} times the samples of the smallest"
        + (f"; {len(few)} have fewer than {SMALL_CLASS}" if few else ""),
        text=f"Smallest: {', '.join(f'{name} {count:,}' for name, count in smallest.items())}. An accuracy says little "
        "of such classes, and rare ones may merge in the embedding (minority collapse).",
        remedy="look at the accuracy of each class; --source.sampling balanced draws classes equally often",
        measured=ratio,
        reference=1.0,
        reference_name="of classes of one size",
        count=len(few),
        names=tuple(few),
    )


def check_cues(evidence: SetEvidence) -> Observation | None:
    """Report classes that can be predicted without the content of the pictures."""
    # Better than chance, and any clear effect of files, half of the way to certainty by others.
    cues, _ = evidence.cues
    least = {cue.name: FILE_SKILL if cue.name in FILE_CUES else COLOUR_SKILL for cue in cues}
    strong = [cue for cue in cues if (cue.low or 0.0) > (cue.majority or 0.0) and cue.skill >= least[cue.name]]
    if not strong:
        return None
    first = max(strong, key=lambda cue: cue.skill)
    others = ", ".join(f"{cue.name} {cue.accuracy:.0%}" for cue in strong if cue is not first)
    return Observation(
        code="class-shortcut",
        level="warning" if any(cue.name in FILE_CUES or cue.skill >= NEARLY_CERTAIN for cue in strong) else "note",
        title=f"the class of {first.accuracy:.0%} of the pictures follows from {first.name} alone"
        + (f" (also: {others})" if others else ""),
        text="An encoder may learn this instead of what the pictures show, and fail where it does not hold.",
        remedy=CONVERT if first.name in FILE_CUES else f"see whether this holds outside of these data, or {COLLECT}",
        measured=first.accuracy,
        low=first.low,
        high=first.high,
        reference=first.majority,
        reference_name="largest class",
        count=len(strong),
        names=tuple(cue.name for cue in strong),
    )


def check_few(evidence: SetEvidence) -> Observation | None:
    """Report that there are too few samples to learn a representation."""
    number = len(evidence.unique)
    if number >= FEW_SAMPLES:
        return None
    return Observation(
        code="few-samples",
        level="severe" if number < VERY_FEW else "warning",
        title=f"few samples to learn from: {number:,} different {evidence.noun}",
        text="A contrastive loss needs many different samples to tell apart; with few, it memorises them.",
        remedy="add samples, or begin with weights of a larger set: --init FILE",
        measured=number,
        reference=FEW_SAMPLES,
        reference_name="usually enough to begin",
        count=number,
    )


SET_CHECKS: tuple[Check, ...] = (
    check_leakage,
    check_few,
    check_conflicts,
    check_same,
    check_near,
    check_labels,
    check_classes,
    check_names,
)
PICTURE_CHECKS: tuple[Check, ...] = (
    check_unreadable,
    check_blank,
    check_cut,
    check_noise,
    check_cues,
    check_confined,
)
