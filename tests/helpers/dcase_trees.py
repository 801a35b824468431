"""Builders of small DCASE data sets and truths, with files of one byte."""

from __future__ import annotations

import random


def make(root, *paths):
    """Files of one byte: no reader opens a recording."""
    for path in paths:
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        (root / path).write_bytes(b"x")
    return root


def train(n_source=3, n_target=2, tail="", first=0):
    """Names of training clips as in every year."""
    counts = (("source", n_source), ("target", n_target))
    return [
        f"section_00_{domain}_train_normal_{first + i:04d}{tail}.wav"
        for domain, count in counts
        for i in range(count)
    ]


def make_machine(root, machine, *, test=(), tail="", supplemental=()):
    make(root, *(f"{machine}/train/{name}" for name in train(tail=tail)))
    make(root, *(f"{machine}/test/{name}" for name in test))
    return make(root, *(f"{machine}/supplemental/{name}" for name in supplemental))


def labelled_test(tail=""):
    return [
        f"section_00_{domain}_test_{label}_{i:04d}{tail}.wav"
        for domain in ("source", "target")
        for label in ("normal", "anomaly")
        for i in range(2)
    ]


def anonymous(count=4, first=0):
    return [f"section_00_{first + i:04d}.wav" for i in range(count)]


def make_truth(folder, machine, names, *, shuffled=False, stems=None, attributes=True):
    """Truth in which odd clips are anomalies and the second half is of the target domain."""
    rows = []
    for i, name in enumerate(names):
        label, domain = i % 2, int(i >= len(names) / 2)
        words = f"{('source', 'target')[domain]}_test_{('normal', 'anomaly')[label]}"
        stem = stems[i] if stems else f"section_00_{words}_{i:04d}_spd_{i}"
        rows.append((name, label, domain, stem))
    if shuffled:
        random.Random(1).shuffle(rows)
    file = f"ground_truth_{machine}_section_00_test.csv"
    for kind, column in (("data", 1), ("domain", 2), ("attributes", 3)):
        if kind == "attributes" and not attributes:
            continue
        target = folder / f"ground_truth_{kind}" / file
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_text("".join(f"{row[0]},{row[column]}\n" for row in rows))
    return folder


def only(table, **equal):
    (clip,) = table.select(**equal)
    return clip
