"""Recordings with injected faults as pseudo-anomalies: which normal each recording is."""

from __future__ import annotations

import numpy as np
import pytest

from daco.data.table import EmbeddingTable
from daco.errors import DataError, InputError
from daco.synthetic.fault_tables import injected

X = np.random.default_rng(0).normal(1, 0.5, (38, 24))
DOMAINS = ["old"] * 30 + ["new"] * 8
NAMES = [f"train/{row}.wav" for row in range(38)]


def table_of(rows, paths, domain="own"):
    """Each row clean and with a fault."""
    vectors = np.repeat(np.asarray(rows, float), 2, axis=0)
    vectors[1::2, 0] += 0.5
    names = [path for path in paths for _ in range(2)]
    faults = ["", "rub"] * len(paths)
    return EmbeddingTable.from_arrays(vectors, path=names, fault=faults, domain=domain)


def test_without_embeddings_paths_decide_or_a_name_that_only_one_has():
    names = ["old/1.wav", "new/1.wav", "old/2.wav"]
    table = table_of(np.eye(3), ["new/1.wav", "x/2.flac", "x/1.flac"])
    made = injected(table, names, ["old", "new", "old"])
    assert made.rows.tolist() == [1, 2, -1]
    assert made.domains.tolist() == ["new", "old", "own"]
    assert made.origin.tolist() == [0, 1, 2]
    assert made.kinds.tolist() == ["rub"] * 3


def test_with_embeddings_recordings_are_found_whatever_they_are_called():
    # 3 and 35 were renamed; 9 has the name of another recording, of the other domain
    table = table_of(2 * X[[3, 35, 9]], ["copy.wav", "again.wav", "x/33.wav"])
    made = injected(table, NAMES, DOMAINS, X=X)
    assert made.rows.tolist() == [3, 35, 9]
    assert made.domains.tolist() == ["old", "new", "old"]
    strangers = table_of(X[:2] + 1, ["train/35.wav", "elsewhere.wav"])
    assert injected(strangers, NAMES, DOMAINS, X=X).rows.tolist() == [-1, -1]


def test_names_decide_between_copies_and_for_the_nearest_of_all():
    copied = X.copy()
    copied[7] = copied[5]
    near = X[[2, 4]] + np.random.default_rng(0).normal(0, 0.01, (2, 24))
    paths = ["train/7.wav", "x/7.flac", "copy.wav", "train/2.wav", "other.wav"]
    table = table_of([X[5], X[5], X[5], *near], paths)
    assert injected(table, NAMES, DOMAINS, X=copied).rows.tolist() == [7, 7, 5, 2, -1]


@pytest.mark.parametrize(
    ("paths", "kinds", "match"),
    [
        (["a", "a"], ["", ""], "clean rows and rows with"),
        (["a", "b"], ["", "rub"], "b have none or several"),
        (["a", "a", "a"], ["", "", "rub"], "Some recordings have none or several"),
        (["a"], None, "daco inject"),
    ],
)
def test_a_table_without_faults_or_clean_rows_is_refused(paths, kinds, match):
    columns = {} if kinds is None else {"fault": kinds}
    table = EmbeddingTable.from_arrays(np.eye(len(paths)), path=paths, domain="x", **columns)
    with pytest.raises(DataError, match=match):
        injected(table, [])


def test_normals_of_another_shape_are_refused():
    for shape in ((3, 24), (38, 5)):
        with pytest.raises(InputError, match="one row for each of the 38 names"):
            injected(table_of(X[:2], ["a", "b"]), NAMES, DOMAINS, X=np.ones(shape))
