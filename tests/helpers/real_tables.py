"""Embedding tables of the real machines: all 1,200 clips of a fan and of a bearing."""

from __future__ import annotations

from functools import cache

import numpy as np
from shared_data import shared

import daco

NO_NETWORK = "logmel_mod+mod60+env+cep"


@cache
def real_table(*machines: str, embeddings: str = "mn04") -> daco.EmbeddingTable:
    """One table; domain, split and label are in the challenge's file names.

    Several embeddings, as in ``"env+cep"``, are the readouts of one table.
    """
    readouts: dict[str, list] = {name: [] for name in embeddings.split("+")}
    names, kinds = [], []
    for machine in machines:
        for readout, vectors in readouts.items():
            data = np.load(shared("real", "embeddings", f"{machine}_{readout}.npz"))
            (key,) = set(data.files) - {"file_name"}
            vectors.append(data[key].astype(np.float32))
            clips = data["file_name"].tolist()  # in one order in all files of a machine
        names += clips
        kinds += [machine] * len(clips)
    parts = [name.split("/")[-1].split("_") for name in names]
    matrices = {name: np.concatenate(vectors) for name, vectors in readouts.items()}
    return daco.EmbeddingTable.from_arrays(
        matrices if len(matrices) > 1 else matrices[embeddings],
        machine=kinds,
        domain=[part[2] for part in parts],
        split=[part[3] for part in parts],
        label=[int(part[4] == "anomaly") for part in parts],
        path=names,
        metadata={"backbone": embeddings},
    )
