"""Pseudo-anomalies of embeddings: how far they are, what they are made of, how they are found."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from daco.data.table import EmbeddingTable
from daco.errors import DataError, InputError, NotEnoughClipsError
from daco.method.bank import NormalBank
from daco.method.pseudo_anomalies import SHUFFLED, SWAPPED, injected, moved_normals


def normals(seed=0, n_old=30, n_new=8, dim=24):
    rng = np.random.default_rng(seed)
    X = np.vstack([rng.normal(1, 0.3, (n_old, dim)), rng.normal(1.5, 0.6, (n_new, dim))])
    return X, ["old"] * n_old + ["new"] * n_new


def cosine(a, b):
    return 1 - (a * b).sum(1) / np.linalg.norm(a, axis=1) / np.linalg.norm(b, axis=1)


@settings(max_examples=20)
@given(st.integers(0, 10**6), st.floats(0.1, 3))
def test_every_pseudo_anomaly_is_as_far_as_its_strength_says(seed, strength):
    X, domains = normals(seed)
    made = moved_normals(X, domains, strengths=[strength], repeats=1, seed=seed)
    own = NormalBank(X, domains).leave_one_out("raw-k1")[:, 0]
    for domain in ("old", "new"):
        inside = made.domains[made.origin] == domain
        expected = strength * np.median(own[np.array(domains) == domain])
        distance = cosine(made.vectors[inside], made.clean[made.origin[inside]])
        assert distance == pytest.approx(expected, abs=1e-9)


def test_a_pseudo_anomaly_lies_between_its_clip_and_a_mixture_of_others():
    X, domains = normals()
    made = moved_normals(X, domains, seed=4)
    lengths = np.linalg.norm(made.vectors, axis=1)
    assert lengths == pytest.approx(np.linalg.norm(made.clean[made.origin], axis=1))
    for kind, least, most in ((SHUFFLED, 0.8, 0.98), (SWAPPED, 0.5, 0.9)):
        untouched = []
        for row in np.flatnonzero(made.kinds == kind):
            # Turning scales all untouched features of the clip alike.
            ratio = made.vectors[row] / made.clean[made.origin[row]]
            untouched.append(np.isclose(ratio, np.median(ratio), rtol=1e-6).mean())
        assert least - 0.1 < np.mean(untouched) < most + 0.1


def test_the_same_seed_gives_the_same_and_few_clips_are_all_held_out():
    X, domains = normals()
    first, again, other = (moved_normals(X, domains, per_domain=10, seed=s) for s in (0, 0, 1))
    assert np.array_equal(first.vectors, again.vectors)
    assert not np.array_equal(first.rows, other.rows)
    assert (first.domains == "new").sum() == 8
    assert (first.domains == "old").sum() == 10
    assert np.array_equal(first.clean, X[first.rows])
    assert np.array_equal([domains[row] for row in first.rows], first.domains)


def test_odd_clips_make_no_nan():
    X, domains = normals(dim=3)
    X[3] = 0
    X[5:9] = X[4]
    made = moved_normals(X, domains, per_domain=40)
    assert np.isfinite(made.vectors).all()
    assert np.isfinite(moved_normals(X[:3], ["a", "b", "b"]).vectors).all()
    with pytest.raises(NotEnoughClipsError):
        moved_normals(X[:1])


@pytest.mark.parametrize("options", [{"strengths": []}, {"strengths": [0]}, {"repeats": 0}])
def test_what_cannot_be_made_is_said(options):
    with pytest.raises(InputError):
        moved_normals(normals()[0], **options)


def faults(paths, kinds, **columns):
    return EmbeddingTable.from_arrays(
        np.arange(2 * len(paths), dtype=float).reshape(-1, 2), path=paths, fault=kinds, **columns
    )


def test_recordings_are_found_by_path_and_else_by_a_name_that_only_one_has():
    names = ["old/1.wav", "new/1.wav", "old/2.wav"]
    table = faults(
        ["new/1.wav"] * 2 + ["x/2.flac"] * 2 + ["x/1.flac"] * 2,
        ["", "rub"] * 3,
        domain=["a", "a", "b", "b", "c", "c"],
    )
    made = injected(table, names, ["old", "new", "old"])
    assert made.rows.tolist() == [1, 2, -1]
    assert made.domains.tolist() == ["new", "old", "c"]


def table_of(X, paths, domain="own", fault=0.5):
    """Each row clean and with a fault."""
    vectors = np.repeat(np.asarray(X, float), 2, axis=0)
    vectors[1::2, 0] += fault
    names = [path for path in paths for _ in range(2)]
    return EmbeddingTable.from_arrays(
        vectors, path=names, fault=["", "rub"] * len(paths), domain=domain
    )


def test_recordings_are_found_by_sound_whatever_they_are_called():
    X, domains = normals()
    names = [f"train/{row}.wav" for row in range(len(X))]
    # 3 and 35 were renamed; 9 bears the name of another recording, of the other domain.
    table = table_of(2 * X[[3, 35, 9]], ["copy.wav", "again.wav", "x/33.wav"])
    made = injected(table, names, domains, X=X)
    assert made.rows.tolist() == [3, 35, 9]
    assert made.domains.tolist() == ["old", "new", "old"]
    assert injected(table, names, domains).rows.tolist() == [-1, -1, 33]  # what names would say


def test_a_recording_that_is_not_among_the_normals_holds_out_none_of_them():
    X, domains = normals()
    strangers = normals(seed=1)[0][[0, 1]]
    names = [f"train/{row}.wav" for row in range(len(X))]
    table = table_of(strangers, ["train/35.wav", "elsewhere.wav"])
    made = injected(table, names, domains, X=X)
    assert made.rows.tolist() == [-1, -1]
    assert made.domains.tolist() == ["own", "own"]


def test_names_decide_between_copies_and_for_the_nearest_of_all():
    X, domains = normals()
    X[7] = X[5]
    names = [f"train/{row}.wav" for row in range(len(X))]
    rounded = X[[2, 4]] + np.random.default_rng(0).normal(0, 0.01, (2, X.shape[1]))
    table = table_of(
        [X[5], X[5], X[5], *rounded],
        ["train/7.wav", "x/7.flac", "copy.wav", "train/2.wav", "other.wav"],
    )
    assert injected(table, names, domains, X=X).rows.tolist() == [7, 7, 5, 2, -1]


@pytest.mark.parametrize("shape", [(3, 24), (38, 5)])
def test_normals_of_another_shape_are_refused(shape):
    X, domains = normals()
    with pytest.raises(InputError, match="X must have one row for each of the 38 names"):
        injected(table_of(X[:2], ["a", "b"]), ["n"] * 38, domains, X=np.ones(shape))


@pytest.mark.parametrize(
    ("paths", "kinds", "match"),
    [
        (["a", "a"], ["", ""], "clean rows and rows with"),
        (["a", "a"], ["rub", "rub"], "clean rows and rows with"),
        (["a", "b"], ["", "rub"], "b have none or several"),
        (["a", "a", "a"], ["", "", "rub"], "Some recordings have none or several"),
    ],
)
def test_a_table_of_faults_without_clean_rows_is_refused(paths, kinds, match):
    with pytest.raises(DataError, match=match):
        injected(faults(paths, kinds, domain="x"), [])


def test_another_table_is_no_table_of_faults():
    with pytest.raises(DataError, match="daco inject"):
        injected(EmbeddingTable.from_arrays(np.eye(3)), [])
