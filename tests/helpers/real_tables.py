"""Embedding tables of the real machines: all 1,200 clips of a fan and of a bearing."""

from __future__ import annotations

import numpy as np
from shared_data import shared

import daco


def real_table(*machines: str, embeddings: str = "mn04") -> daco.EmbeddingTable:
    """One table; domain, split and label are in the challenge's file names."""
    vectors, names, kinds = [], [], []
    for machine in machines:
        data = np.load(shared("real", "embeddings", f"{machine}_{embeddings}.npz"))
        vectors.append(data["embedding"])
        names += data["file_name"].tolist()
        kinds += [machine] * len(data["file_name"])
    parts = [name.split("/")[-1].split("_") for name in names]
    return daco.EmbeddingTable.from_arrays(
        np.concatenate(vectors),
        machine=kinds,
        domain=[part[2] for part in parts],
        split=[part[3] for part in parts],
        label=[int(part[4] == "anomaly") for part in parts],
        path=names,
        metadata={"backbone": embeddings},
    )
