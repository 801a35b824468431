"""A small study of three development and two evaluation machines, on disk."""

from __future__ import annotations

import numpy as np
from dcase_trees import write_truth_of

from daco.data.table import EmbeddingTable
from daco.experiments.study import study

DEV = ("fan", "pump", "valve")
EVAL = ("Sander", "ToothBrush")
GRID = ("raw-k1", "conf-soft-m0-k1", "ratio-hard-k1", "conf-soft-m30-k1")
METADATA = {"backbone": "logmel", "weights_sha256": "0" * 64, "sample_rate": "16000"}
N_TEST = 24


def machine_table(path, machines, *, labelled=True, seed=0):
    """Embeddings as a Parquet file: 30 source and 10 target normals, 24 test clips."""
    rng = np.random.default_rng(seed)
    rows, vectors = [], []
    for machine in machines:
        for domain, count in (("source", 30), ("target", 10)):
            for i in range(count):
                name = f"{machine}/train/section_00_{domain}_train_normal_{i:04d}.wav"
                rows.append((name, machine, "train", domain, 0))
                vectors.append(rng.normal(size=6) + 2 + (domain == "target"))
        for i in range(N_TEST):
            domain, label = ("source", "target")[i >= N_TEST / 2], i % 2
            known = (domain, label) if labelled else (None, None)
            rows.append((f"{machine}/test/section_00_{i:04d}.wav", machine, "test", *known))
            fault = label * rng.normal(size=6)
            vectors.append(rng.normal(size=6) + 2 + (domain == "target") + fault)
    fields = ("path", "machine", "split", "domain", "label")
    columns = {
        name: list(column) for name, column in zip(fields, zip(*rows, strict=True), strict=True)
    }
    table = EmbeddingTable.from_arrays(
        np.array(vectors, dtype=np.float32), **columns, metadata=METADATA
    )
    table.write(path)
    return path


def small_study(folder, *, labelled=False, grid=GRID, **options):
    """The run in ``folder/run``; evaluation labels, where asked, from an evaluator's checkout."""
    folder.mkdir(parents=True, exist_ok=True)
    if labelled:
        known = machine_table(folder / "labelled.parquet", EVAL, seed=1)
        write_truth_of(EmbeddingTable.read(known), folder / "evaluator")
        options["truth"] = folder / "evaluator"
    return study(
        machine_table(folder / "dev.parquet", DEV),
        machine_table(folder / "eval.parquet", EVAL, labelled=False, seed=1),
        grid=grid,
        out=folder / "run",
        **{"workers": 1, "n_splits": 3, **options},
    )
