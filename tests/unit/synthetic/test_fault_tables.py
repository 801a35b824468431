"""Tables of injected faults: which normal each recording is, and which machine of a study."""

from __future__ import annotations

import numpy as np
import pytest

from daco.data.table import EmbeddingTable
from daco.errors import DataError, InputError
from daco.synthetic.fault_tables import faults_of, injected, read_faults

X = np.random.default_rng(0).normal(1, 0.5, (38, 24))
DOMAINS = ["old"] * 30 + ["new"] * 8
NAMES = [f"train/{row}.wav" for row in range(38)]


def table_of(rows, paths, domain="own", metadata=None, **columns):
    """Each row clean and with a fault."""
    vectors = np.repeat(np.asarray(rows, float), 2, axis=0)
    vectors[1::2, 0] += 0.5
    names = [path for path in paths for _ in range(2)]
    columns |= {"path": names, "fault": ["", "rub"] * len(paths), "domain": domain}
    return EmbeddingTable.from_arrays(vectors, metadata=metadata, **columns)


def test_recordings_are_found_by_their_sound_whatever_they_are_called():
    # 3 and 35 were renamed; 9 has the name of another recording, of the other domain
    table = table_of(2 * X[[3, 35, 9]], ["copy.wav", "again.wav", "x/33.wav"])
    made = injected(table, NAMES, DOMAINS, X=X)
    assert made.rows.tolist() == [3, 35, 9]
    assert made.domains.tolist() == ["old", "new", "old"]
    assert made.origin.tolist() == [0, 1, 2]
    assert made.kinds.tolist() == ["rub"] * 3
    strangers = table_of(X[:2] + 1, ["train/35.wav", "elsewhere.wav"])
    made = injected(strangers, NAMES, DOMAINS, X=X)
    assert made.rows.tolist() == [-1, -1]
    assert made.domains.tolist() == ["own", "own"]


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
        (["a", "a"], ["", ""], "none or several"),
        (["a", "b"], ["", "rub"], "b have none or several"),
        (["a", "a", "a"], ["", "", "rub"], "Some recordings have none or several"),
    ],
)
def test_a_table_without_faults_or_clean_rows_is_refused(paths, kinds, match):
    table = EmbeddingTable.from_arrays(np.eye(len(paths)), path=paths, domain="x", fault=kinds)
    with pytest.raises(DataError, match=match):
        injected(table, ["a"], X=np.eye(len(paths))[:1])


@pytest.mark.parametrize("shape", [(3, 24), (38, 5)])
def test_normals_of_another_shape_are_refused(shape):
    with pytest.raises(InputError, match="38 rows of 24 values"):
        injected(table_of(X[:2], ["a", "b"]), NAMES, DOMAINS, X=np.ones(shape))


def study_faults(tables, machine="fan", **options):
    return faults_of(tables, machine, names=NAMES, domains=DOMAINS, X=X, **options)


def test_a_machine_of_a_study_gets_the_faults_of_its_name_section_and_year():
    fan = table_of(X[:2], NAMES[:2], machine="fan", year=2024)
    other = table_of(X[2:4], NAMES[2:4], machine="fan", section="01")
    assert study_faults([fan, other], year=2024).rows.tolist() == [0, 1]
    assert study_faults([fan, other], section="01", year=2024).rows.tolist() == [2, 3]
    assert study_faults([fan, other], year=2025) is None
    assert study_faults([fan, other], "pump") is None
    with pytest.raises(InputError, match="fan: two tables have its faults"):
        study_faults([fan, fan])


def test_recordings_that_are_not_normals_of_the_study_need_a_domain_of_it():
    table, other = (
        table_of(X[:2] + 1, ["x", "y"], domain=each, machine="fan") for each in ("old", "day")
    )
    assert study_faults([table]).domains.tolist() == ["old", "old"]
    with pytest.raises(InputError, match="the study's own normals"):
        study_faults([other])


def test_the_readout_of_the_study_must_be_there():
    with pytest.raises(InputError, match="'mean'"):
        study_faults([table_of(X[:2], NAMES[:2], machine="fan")], readout="mean")


def test_faults_of_another_network_are_refused(tmp_path):
    table = table_of(X[:2], NAMES[:2], machine="fan", metadata={"backbone": "mn04"})
    table.write(tmp_path / "faults.parquet")
    (read,) = read_faults([tmp_path / "faults.parquet"], [{"backbone": "mn04"}, {}])
    assert read.columns["fault"].tolist() == table.columns["fault"].tolist()
    with pytest.raises(InputError, match=r"faults\.parquet was made with backbone mn04.*logmel"):
        read_faults([tmp_path / "faults.parquet"], [{"backbone": "logmel"}])
    with pytest.raises(DataError, match="no column 'fault'"):
        read_faults([EmbeddingTable.from_arrays(np.eye(2))])
