"""Models and estimators of several views, and what a vote's verdict says."""

from __future__ import annotations

import json

import numpy as np
import pytest

import daco
from daco.data.table import EmbeddingTable
from daco.data.views import Views
from daco.detector.fit import fit_machines
from daco.detector.model import MachineModel
from daco.detector.normals import Normals, clips_to_judge, normals_of_table
from daco.detector.revision import add_normals, calibrate_with
from daco.detector.verdict import judge_embeddings
from daco.embedding.frontend import Frontend, Frontends, Listener
from daco.errors import DacoError, InputError, NotEnoughClipsError

DOMAINS = ["old"] * 40 + ["new"] * 10


@pytest.fixture(scope="module")
def clips():
    rng = np.random.default_rng(0)
    return {"mod": rng.normal(size=(50, 6)) + 2, "cep": rng.normal(size=(50, 4)) + 2}


@pytest.fixture(scope="module")
def model(clips):
    return MachineModel.fit(clips, DOMAINS, machine="press", config="recommended")


@pytest.fixture(scope="module")
def query():
    rng = np.random.default_rng(1)
    return {"cep": rng.normal(size=(8, 4)) + 2, "mod": rng.normal(size=(8, 6)) - 1}


def test_a_model_of_views_votes_and_says_why(model, clips, query):
    assert model.config == "vote"
    assert "configurations vote" in model.reason
    assert model.bands == Views(("mod", "cep"), (6, 4), (1, 1))
    assert model.readout == "mod+cep"
    bank = daco.NormalBank({name: X.astype(np.float32) for name, X in clips.items()}, DOMAINS)
    np.testing.assert_allclose(model.score(query).scores, bank.score(query, "vote")[:, 0])


def test_auto_with_several_views_is_a_vote(clips):
    assert MachineModel.fit(clips, DOMAINS, machine="press").config == "vote"


def test_a_model_of_views_is_the_same_in_a_file(model, query):
    content = model.to_bytes()
    loaded = MachineModel.from_bytes(content)
    assert loaded.to_bytes() == content
    assert loaded.bands == model.bands
    assert loaded.sha256 == model.sha256
    np.testing.assert_array_equal(loaded.score(query).scores, model.score(query).scores)


def test_a_model_of_views_takes_more_normals(model, clips, query):
    more = {name: X[:5] + 0.1 for name, X in clips.items()}
    larger = add_normals(model, more, "new", ["a", "b", "c", "d", "e"])
    assert len(larger) == 55
    assert larger.bands == model.bands
    assert np.isfinite(larger.score(query).scores).all()
    with pytest.raises(InputError):
        add_normals(model, {"mod": more["mod"]}, "new", list("abcde"))
    new = {name: X[:5] + 0.2 for name, X in clips.items()}
    assert calibrate_with(larger, new, ["new"] * 5).reference.sizes == {"new": 5, "old": 40}


@pytest.mark.parametrize(
    "bands",
    [
        {"names": ["mod", "cep"], "sizes": [6, 3], "bands": [1, 1]},
        {"names": ["mod", "mod"], "sizes": [6, 4], "bands": [1, 1]},
        {"names": ["mod"], "sizes": [6, 4], "bands": [1, 1]},
        {"names": ["mod", "cep"], "sizes": [6, 4], "bands": [1, 3]},
        {"names": ["mod", "cep"], "sizes": [6, "4"], "bands": [1, 1]},
        {"names": "mod", "sizes": [6, 4], "bands": [1, 1]},
        {"names": ["mod", 3], "sizes": [6, 4], "bands": [1, 1]},
        {"names": [["mod"], ["cep"]], "sizes": [6, 4], "bands": [1, 1]},
        {"names": ["mod+env", "cep"], "sizes": [6, 4], "bands": [1, 1]},
        {"names": ["mod", "cep"], "sizes": [6, 4]},
        3,
    ],
)
def test_a_file_whose_views_do_not_fit_is_refused(model, bands):
    values = vars(model)
    from daco.detector import modelfile

    document = modelfile._document(values) | {"bands": bands}
    tensors = modelfile._pack(values)
    digest = modelfile._hash(5, document, tensors)
    text, old = json.dumps, modelfile._canonical(modelfile._document(values))
    content = model.to_bytes()
    body = content[8 + int.from_bytes(content[:8], "little") :]
    header = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])
    assert header["__metadata__"]["model"] == old
    header["__metadata__"] |= {"model": modelfile._canonical(document), "sha256": digest}
    packed = text(header).encode()
    packed += b" " * (-len(packed) % 8)
    with pytest.raises(DacoError):
        MachineModel.from_bytes(len(packed).to_bytes(8, "little") + packed + body)


def test_the_verdict_of_an_alarm_says_how_members_judge(model, query):
    verdicts = list(judge_embeddings(model, query, [f"{row}.wav" for row in range(8)]))
    alarms = [verdict for verdict in verdicts if verdict.alarm]
    assert alarms
    members = sum(map(len, model.bank.members().values()))
    for verdict in alarms:
        (said,) = [reason for reason in verdict.reasons if reason.startswith("vote: ")]
        assert f" of {members} members call it anomalous" in said
    anomalous = int(alarms[0].reasons[-1].split()[1])
    assert members / 3 < anomalous <= members
    plain = MachineModel.fit(model.embeddings, DOMAINS, machine="m", config="raw-k1")
    (verdict,) = judge_embeddings(plain, model.embeddings[:1] - 9, ["a.wav"])
    assert not any(reason.startswith("vote") for reason in verdict.reasons)


def test_estimators_take_views_by_name(clips, query):
    detector = daco.DACo("vote").fit(clips, domains=DOMAINS)
    expected = daco.NormalBank(clips, DOMAINS).score(query, "vote")[:, 0]
    np.testing.assert_allclose(detector.anomaly_score(query), expected)
    assert detector.n_features_in_ == 10
    assert set(detector.predict(query)) <= {-1, 1}
    assert detector.domain_weights(query).shape == (8, 2)
    search = daco.LabelFreeSearch(["raw-k1", "vote"], n_splits=5).fit(clips, domains=DOMAINS)
    assert search.results_["config"].tolist() == ["raw-k1", "vote"]
    assert np.isfinite(search.anomaly_score(query)).all()


def test_many_machines_of_views_are_thinned_in_all_of_them(clips):
    both = np.hstack([clips["mod"], 1000 * clips["cep"]]).astype(np.float32)
    names = tuple(map(str, range(50)))
    views = Views(("mod", "cep"), (6, 4), (1, 1))
    thinned = [
        dict(
            fit_machines(
                [Normals("fan", X, tuple(DOMAINS), names, None, {}, views)],
                config="vote",
                max_normals=20,
            )
        )[0]
        for X in (both, both / np.repeat([1, 1000], [6, 4]))
    ]
    assert thinned[0].clip_names == thinned[1].clip_names  # lengths of views do not count
    assert len(thinned[0]) == 20


def test_a_table_of_views_is_fitted_and_judged(tmp_path, clips):
    file = tmp_path / "emb.parquet"
    columns = {"machine": "fan", "domain": DOMAINS, "split": "train", "label": 0,
               "path": [f"{row}.wav" for row in range(50)]}  # fmt: skip
    EmbeddingTable.from_arrays(clips, **columns).write(file)
    first = normals_of_table(file).machines[0]
    assert first.bands == 1
    both = normals_of_table(file, all_views=True).machines[0]
    assert both.bands == Views(("mod", "cep"), (6, 4), (1, 1))
    turned = normals_of_table(file, readout="cep+mod").machines[0]
    np.testing.assert_array_equal(turned.embeddings[:, 4:], both.embeddings[:, :6])
    ((_, model),) = fit_machines([turned], config="vote")
    matrix, names, _ = clips_to_judge(file, model.frontend, model.readout)
    np.testing.assert_array_equal(matrix, turned.embeddings)
    assert names[3] == "3.wav"


def test_a_model_keeps_the_frontend_of_each_view(clips):
    one = Frontend("logmel", "mod", 16000, 0, "fp32", "soxr", None, 10.0)
    other = Frontend("logmel", "cep", 16000, 0, "fp32", "soxr", None)
    both = Frontends(**vars(one), others=(other,))
    model = MachineModel.fit(clips, DOMAINS, machine="press", frontend=both, config="vote")
    loaded = MachineModel.from_bytes(model.to_bytes())
    assert loaded.frontend == both
    with pytest.raises(InputError, match="2 views"):
        MachineModel.fit(clips["mod"], DOMAINS, machine="press", frontend=both)


def test_a_recording_passes_through_all_views_of_a_model():
    rng = np.random.default_rng(0)
    names = ("mod", "env", "cep")
    frontends = [Frontend("logmel", name, 16000, 0, "fp32", "soxr", None) for name in names]
    listener = Listener(Frontends(**vars(frontends[0]), others=tuple(frontends[1:])))
    waves = rng.normal(scale=0.1, size=(12, 32000)).astype(np.float32)
    rows = np.vstack([listener.embed_waveform(wave, 16000).embeddings for wave in waves])
    views = Views(names, (112, 640, 40), (1, 1, 1))
    model = MachineModel.fit(
        rows, machine="press", frontend=listener.frontend, bands=views, config="vote"
    )
    heard = listener.embed_waveform(waves[0], 16000)
    assert heard.embeddings.shape == (1, 792)
    assert np.isfinite(model.score(heard.embeddings).scores).all()


def test_normals_that_are_all_equal_still_give_alarms():
    X = np.tile(np.arange(1.0, 7.0), (10, 1))
    model = MachineModel.fit(X, machine="off", config="vote")
    scored = model.score(np.stack([X[0], -X[0], X[0][::-1]]))
    assert scored.alarms.tolist() == [False, True, True]


def test_two_normals_are_too_few_for_a_vote():
    with pytest.raises(NotEnoughClipsError, match="needs a bank of 3 clips"):
        MachineModel.fit(np.eye(2, 5), machine="press", config="vote")


def test_a_model_of_one_named_view_takes_it_by_name_also_from_a_file(clips):
    model = MachineModel.fit({"mod": clips["mod"]}, DOMAINS, machine="press", config="vote")
    loaded = MachineModel.from_bytes(model.to_bytes())
    expected = model.score(clips["mod"][:3]).scores
    for each in (model, loaded):
        np.testing.assert_array_equal(each.score({"mod": clips["mod"][:3]}).scores, expected)


def test_bands_of_a_view_that_is_not_there_are_refused(clips):
    with pytest.raises(InputError, match="modx"):
        daco.NormalBank(clips, DOMAINS, bands={"modx": 2})
    with pytest.raises(InputError, match="View 'cep'"):
        daco.NormalBank(clips | {"cep": np.full((50, 4), np.nan)}, DOMAINS)


def test_a_table_without_the_views_of_a_model_is_refused_by_name(tmp_path, model, clips):
    EmbeddingTable.from_arrays({"mod": clips["mod"]}).write(tmp_path / "e.parquet")
    with pytest.raises(InputError, match="has no 'cep', which are views of the model"):
        clips_to_judge(tmp_path / "e.parquet", model.frontend, model.readout)


def test_a_readout_whose_name_has_a_plus_is_no_view(tmp_path, clips):
    table = EmbeddingTable.from_arrays(
        {"embedding": clips["mod"], "mean+std": clips["cep"]}, machine="m", domain=DOMAINS
    )
    table.write(tmp_path / "e.parquet")
    (normals,) = normals_of_table(tmp_path / "e.parquet", training=False, all_views=True).machines
    assert normals.embeddings.shape == (50, 6)


def test_the_length_of_a_view_does_not_change_a_choice(clips):
    pool = ["raw-k1", "conf-soft-m0-k1", "ldn-diff-K16"]
    scores = [
        daco.LabelFreeSearch(pool, n_splits=3)
        .fit({"mod": clips["mod"], "cep": scale * clips["cep"]}, domains=DOMAINS)
        .results_["pseudo_score"]
        for scale in (1e-3, 1.0, 1e3)
    ]
    np.testing.assert_allclose(scores[1:], scores[:1] * 2, atol=0.02)
