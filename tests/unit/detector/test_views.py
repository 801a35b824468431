"""Models of several views, from arrays, tables and recordings."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import daco
from daco.data.table import EmbeddingTable
from daco.data.views import Views
from daco.detector.fit import fit_machines
from daco.detector.model import MachineModel
from daco.detector.revision import add_normals, calibrate_with
from daco.embedding.frontend import Frontend, Listener
from daco.embedding.normals import Normals, clips_to_judge, normals_of_table
from daco.errors import InputError

DOMAINS = ["old"] * 40 + ["new"] * 10
VIEWS = Views(("mod", "cep"), (6, 4))


@pytest.fixture(scope="module")
def clips():
    rng = np.random.default_rng(0)
    return {"mod": rng.normal(size=(50, 6)) + 2, "cep": rng.normal(size=(50, 4)) + 2}


@pytest.fixture(scope="module")
def model(clips):
    return MachineModel.fit(clips, DOMAINS, machine="press")


@pytest.fixture(scope="module")
def query():
    rng = np.random.default_rng(1)
    return {"cep": rng.normal(size=(8, 4)) + 2, "mod": rng.normal(size=(8, 6)) - 1}


def test_a_model_of_views_blends_them(model, clips, query):
    assert (model.config, model.views, model.readout) == ("blend", VIEWS, "mod+cep")
    bank = daco.NormalBank({name: X.astype(np.float32) for name, X in clips.items()}, DOMAINS)
    scored = model.score(query)
    np.testing.assert_array_equal(scored.scores, bank.score(query, "blend")[:, 0])
    np.testing.assert_allclose(scored.by_view.mean(axis=1), scored.scores)
    rows = np.hstack([query["mod"], query["cep"]])
    np.testing.assert_array_equal(model.score(rows).scores, scored.scores)
    divided = MachineModel.fit(model.embeddings, DOMAINS, machine="press", views=VIEWS)
    np.testing.assert_array_equal(divided.score(rows).scores, scored.scores)


def test_other_configurations_score_the_first_view(clips, query):
    both = MachineModel.fit(clips, DOMAINS, machine="press", config="raw-k1")
    first = MachineModel.fit(clips["mod"], DOMAINS, machine="press", config="raw-k1")
    np.testing.assert_array_equal(both.score(query).scores, first.score(query["mod"]).scores)
    assert both.score(query).by_view is None


def test_a_model_of_views_takes_more_normals_of_all_of_them(model, clips):
    more = {name: X[:5] + 0.1 for name, X in clips.items()}
    larger = add_normals(model, more, "new", list("abcde"))
    assert (len(larger), larger.views) == (55, VIEWS)
    with pytest.raises(InputError, match="cep"):
        add_normals(model, {"mod": more["mod"]}, "new", list("abcde"))
    new = {name: X[:5] + 0.2 for name, X in clips.items()}
    assert calibrate_with(larger, new, ["new"] * 5).reference.sizes == {"new": 5, "old": 40}


def test_many_machines_of_views_are_thinned_in_all_of_them(clips):
    """The lengths of views do not count."""
    both = np.hstack([clips["mod"], 1000 * clips["cep"]]).astype(np.float32)
    names = tuple(map(str, range(50)))
    thinned = []
    for X in (both, both / np.repeat([1, 1000], [6, 4]).astype(np.float32)):
        normals = Normals("fan", X, tuple(DOMAINS), names, None, {}, VIEWS)
        ((_, model),) = fit_machines([normals], max_normals=20)
        thinned.append(model.clip_names)
    assert thinned[0] == thinned[1]
    assert len(thinned[0]) == 20


def test_a_table_of_views_is_fitted_and_judged(tmp_path, clips):
    file = tmp_path / "emb.parquet"
    columns = {"machine": "fan", "domain": DOMAINS, "split": "train", "label": 0,
               "path": [f"{row}.wav" for row in range(50)]}  # fmt: skip
    EmbeddingTable.from_arrays(clips, **columns).write(file)
    first, both, turned = (
        normals_of_table(file, **options).machines[0]
        for options in ({}, {"all_views": True}, {"readout": "cep+mod"})
    )
    assert first.views == Views(("mod",), (6,))
    assert both.views == VIEWS
    np.testing.assert_array_equal(turned.embeddings[:, 4:], both.embeddings[:, :6])
    ((_, model),) = fit_machines([turned])
    matrix, names, _ = clips_to_judge(file, model.frontend, model.readout)
    np.testing.assert_array_equal(matrix, turned.embeddings)
    assert names[3] == "3.wav"
    EmbeddingTable.from_arrays({"mod": clips["mod"]}).write(tmp_path / "e.parquet")
    with pytest.raises(InputError, match="no 'cep'"):
        clips_to_judge(tmp_path / "e.parquet", model.frontend, model.readout)


def test_a_recording_passes_through_all_views_of_a_model():
    rng = np.random.default_rng(0)
    names = ("mod", "env", "cep")
    frontends = [Frontend("logmel", name, 16000, 0, "fp32", "soxr", None) for name in names]
    listener = Listener(replace(frontends[0], others=tuple(frontends[1:])))
    waves = rng.normal(scale=0.1, size=(12, 32000)).astype(np.float32)
    rows = np.vstack([listener.embed_waveform(wave, 16000).embeddings for wave in waves])
    given = {"machine": "press", "frontend": listener.frontend}
    model = MachineModel.fit(rows, views=Views(names, (112, 640, 40)), **given)
    assert MachineModel.from_bytes(model.to_bytes()).frontend == listener.frontend
    embedded = listener.embed_waveform(waves[0], 16000)
    assert np.isfinite(model.score(embedded.embeddings).by_view).all()
    with pytest.raises(InputError, match="3 views"):
        MachineModel.fit(rows, **given)
