"""The challenge's autoencoder baselines, beside slow versions of everything that is fast."""

from __future__ import annotations

import subprocess
import sys

import numpy as np
import pytest
import soundfile
import torch
from shared_data import shared

from daco.audio.decode import read_audio
from daco.data.clips import Clip, ClipTable, read_clips
from daco.errors import (
    AudioError,
    DacoError,
    DataError,
    InputError,
    MissingExtraError,
    NotEnoughClipsError,
)
from daco.experiments.autoencoders import autoencoder, features, scoring
from daco.experiments.autoencoders.autoencoder import build_network, train
from daco.experiments.autoencoders.features import context_vectors, log_mel, mel_bank
from daco.experiments.autoencoders.run import run_baselines
from daco.experiments.autoencoders.scoretable import (
    ScoreTable,
    read_score_table,
    system_metrics,
    write_score_files,
    write_score_table,
)
from daco.experiments.autoencoders.scoring import clip_scores, covariances, precisions

RATE = 16_000


@pytest.fixture(autouse=True)
def one_thread():
    """Slow versions beside other processes wait for their threads more than they compute."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


def tone_in_noise(seconds=1.0):
    t = np.arange(int(seconds * RATE)) / RATE
    noise = np.random.default_rng(0).standard_normal(len(t))
    return (0.1 * np.sin(2 * np.pi * 440 * t) + 0.02 * noise).astype(np.float32)


# --- features -------------------------------------------------------------------------------


def textbook_log_mel(wave, rate):
    """One frame, one band, one bin after the other, in float64."""

    def hertz(mel):
        return 200 / 3 * mel if mel < 15 else 1000 * 6.4 ** ((mel - 15) / 27)

    top = 15 + 27 * np.log(rate / 2 / 1000) / np.log(6.4)
    edges = [hertz(top * i / 129) for i in range(130)]
    window = [0.5 - 0.5 * np.cos(2 * np.pi * i / 1024) for i in range(1024)]
    padded = np.concatenate([np.zeros(512), wave.astype(np.float64), np.zeros(512)])
    frames = []
    for start in range(0, len(padded) - 1023, 512):
        power = np.abs(np.fft.rfft(padded[start : start + 1024] * window)) ** 2
        bands = []
        for low, centre, high in zip(edges, edges[1:], edges[2:], strict=False):
            total = 0.0
            for k in range(513):
                f = k * rate / 1024
                rising, falling = (f - low) / (centre - low), (high - f) / (high - centre)
                total += max(0.0, min(rising, falling)) * 2 / (high - low) * power[k]
            bands.append(10 * np.log10(max(total, 2.2e-16)))
        frames.append(bands)
    return np.array(frames)


def test_bands_are_those_of_librosa():
    """Values of librosa 0.11.0: melspectrogram with the baseline's arguments, in decibels."""
    bands = log_mel(tone_in_noise(), RATE)
    assert bands.shape == (32, 128)
    expected = {
        (0, 0): -14.398128509521484,
        (0, 1): -26.97617530822754,
        (5, 3): -23.061424255371094,
        (14, 1): -16.7736873626709,
        (14, 14): -18.38283348083496,
        (27, 17): -18.114120483398438,
        (60, 20): -21.865636825561523,
        (127, 31): -21.64394187927246,
        (127, 0): -21.483654022216797,
    }
    # librosa adds in float32, in another order: 3e-5 dB at most over all 4,096 values
    for (band, frame), value in expected.items():
        assert bands[frame, band] == pytest.approx(value, abs=1e-4)


def test_triangles_are_those_of_librosa():
    bank = mel_bank(RATE)
    assert np.count_nonzero(bank) == 1009
    peaks = bank.argmax(axis=1)[::16]
    assert peaks.tolist() == [1, 25, 49, 74, 109, 161, 237, 348]
    heights = [0.028577780, 0.030179674, 0.031781565, 0.028013155]
    heights += [0.020523004, 0.016116360, 0.010575535, 0.007528678]
    np.testing.assert_allclose(bank[np.arange(0, 128, 16), peaks], heights, atol=5e-9)


@pytest.mark.parametrize("rate", [8_000, 16_000, 22_050])
def test_bands_are_those_of_the_textbook(rate):
    wave = tone_in_noise(0.3)
    np.testing.assert_allclose(log_mel(wave, rate), textbook_log_mel(wave, rate), atol=2e-4)


def test_silence_is_at_the_floor():
    assert np.unique(log_mel(np.zeros(8192, np.float32), RATE)) == pytest.approx(-156.5758)


def test_ten_seconds_are_309_vectors_of_640():
    frames = log_mel(np.zeros(160_000, np.float32), RATE)
    assert context_vectors(frames).shape == (309, 640)


def test_a_context_is_five_frames_one_after_the_other():
    frames = np.random.default_rng(0).normal(size=(9, 128)).astype(np.float32)
    expected = [np.concatenate([frames[t + i] for i in range(5)]) for t in range(5)]
    np.testing.assert_array_equal(context_vectors(frames), expected)


def test_a_clip_without_five_frames_is_refused():
    assert log_mel(np.ones(2048, np.float32), RATE).shape == (5, 128)
    with pytest.raises(AudioError, match="at least 2048 samples"):
        log_mel(np.ones(2047, np.float32), RATE)


# --- scores ---------------------------------------------------------------------------------


@pytest.fixture
def residual():
    return np.random.default_rng(1).normal(0.3, 1, size=(7, 640)).astype(np.float32)


@pytest.fixture
def inverses():
    rng = np.random.default_rng(2)
    roots = {name: rng.normal(size=(128, 128)) / 12 for name in ("source", "target")}
    return {name: root @ root.T + 0.1 * np.eye(128) for name, root in roots.items()}


def test_the_simple_score_is_the_mean_squared_residual(residual, inverses):
    expected = np.mean(residual.astype(float) ** 2)
    assert clip_scores(residual, inverses)["ae-mse"] == pytest.approx(expected, rel=1e-12)


def test_the_published_distance_is_the_mean_of_all_entries_of_the_product(residual, inverses):
    """As coded: E P E' over all pairs of rows, averaged; which is ebar' P ebar."""
    rows = np.array([v[128 * i : 128 * i + 128] for v in residual for i in range(5)], dtype=float)
    everything = {name: rows @ inverse @ rows.T for name, inverse in inverses.items()}
    assert everything["source"].shape == (35, 35)
    expected = min(float(product.mean()) for product in everything.values())
    found = clip_scores(residual, inverses)
    assert found["ae-maha"] == pytest.approx(expected, rel=1e-12)
    ebar = rows.mean(axis=0)
    for name, product in everything.items():
        assert product.mean() == pytest.approx(ebar @ inverses[name] @ ebar, rel=1e-12)


def test_the_textbook_distance_is_the_mean_over_rows(residual, inverses):
    expected = min(
        np.mean([row @ inverse @ row for v in residual for row in v.reshape(5, 128).astype(float)])
        for inverse in inverses.values()
    )
    found = clip_scores(residual, inverses)
    assert found["ae-maha-row"] == pytest.approx(expected, rel=1e-12)
    assert found["ae-maha-row"] > found["ae-maha"]


def test_opposite_residuals_cancel_in_the_published_distance_alone(inverses):
    residual = np.random.default_rng(3).normal(size=(4, 640)).astype(np.float32)
    found = clip_scores(np.concatenate([residual, -residual]), inverses)
    assert found["ae-maha"] == pytest.approx(0, abs=1e-12)
    assert found["ae-maha-row"] > 1


def textbook_covariance(batches, code):
    """Row by row, around the mean of the domain's rows in the batch; over vectors less one."""
    total, vectors = np.zeros((128, 128)), 0
    for residual, codes in batches:
        rows = []
        for vector, mine in zip(residual.astype(float), codes, strict=True):
            if mine == code:
                rows += [vector[128 * i : 128 * i + 128] for i in range(5)]
                vectors += 1
        for row in rows:
            centred = row - np.mean(rows, axis=0)
            total += np.outer(centred, centred)
    return total / (vectors - 1), vectors


def test_covariances_are_those_of_a_loop_over_rows():
    rng = np.random.default_rng(4)
    batches = [
        (rng.normal(size=(n, 640)).astype(np.float32), rng.integers(0, 2, n)) for n in (12, 9)
    ]
    found = covariances(batches, ["source", "target"])
    for code, name in enumerate(("source", "target")):
        expected, vectors = textbook_covariance(batches, code)
        np.testing.assert_allclose(found[name].matrix, expected, atol=1e-12)
        assert found[name].vectors == vectors


def test_a_covariance_is_about_five_times_the_usual_one():
    rows = np.random.default_rng(5).normal(size=(4000, 640)).astype(np.float32)
    found = covariances([(rows, np.zeros(4000, int))], ["source"])["source"]
    usual = np.cov(rows.reshape(-1, 128).astype(float), rowvar=False)
    np.testing.assert_allclose(found.matrix, usual * (20_000 - 1) / (4000 - 1), atol=1e-10)


def test_a_domain_without_an_inverse_is_left_out():
    rng = np.random.default_rng(6)
    many, few = (rng.normal(size=(n, 640)).astype(np.float32) for n in (200, 3))
    codes = np.repeat([0, 1], [200, 3])
    found = covariances([(np.concatenate([many, few]), codes)], ["source", "target"])
    assert list(precisions(found)) == ["source"]


def test_no_inverse_at_all_is_an_error_with_the_numbers():
    rows = np.random.default_rng(7).normal(size=(20, 640)).astype(np.float32)
    with pytest.raises(NotEnoughClipsError, match=r"20 of 'source'.*Add training clips"):
        precisions(covariances([(rows, np.zeros(20, int))], ["source"]))


# --- network and training -------------------------------------------------------------------


def machine_frames(n_clips=6, frames=40, seed=0):
    """Clips that an autoencoder can learn: few patterns, mixed."""
    rng = np.random.default_rng(seed)
    patterns = rng.normal(0, 4, size=(3, 128))
    return [
        (rng.normal(size=(frames, 3)) @ patterns - 40 + rng.normal(size=(frames, 128))).astype(
            np.float32
        )
        for _ in range(n_clips)
    ]


DOMAINS = ["source"] * 4 + ["target"] * 2


def test_the_network_has_the_published_layers():
    model = build_network()
    widths = [(m.in_features, m.out_features) for m in model if isinstance(m, torch.nn.Linear)]
    assert [w for w, _ in widths] == [640, 128, 128, 128, 128, 8, 128, 128, 128, 128]
    assert widths[-1] == (128, 640)
    kinds = [type(module).__name__ for module in model]
    assert kinds == ["Linear", "BatchNorm1d", "ReLU"] * 9 + ["Linear"]


def test_batch_normalisation_follows_the_published_convention():
    """torch's momentum: one hundredth of the new batch; eps 1e-3 under the root."""
    x = torch.from_numpy(np.random.default_rng(8).normal(3, 2, size=(50, 640)).astype(np.float32))
    model = build_network().train()
    before = model[0](x).detach()
    after = model[1](before)
    mean, var = before.mean(dim=0), before.var(dim=0, unbiased=False)
    torch.testing.assert_close(after, (before - mean) / (var + 1e-3).sqrt(), rtol=0, atol=1e-5)
    torch.testing.assert_close(model[1].running_mean, 0.01 * mean)
    unbiased = before.var(dim=0, unbiased=True)
    torch.testing.assert_close(model[1].running_var, 0.99 + 0.01 * unbiased)


def textbook_training(clips, epochs, seed):
    """All vectors in memory, torch's plain Adam, one slice after the other."""
    vectors = torch.from_numpy(np.concatenate([context_vectors(clip) for clip in clips]))
    order = torch.Generator().manual_seed(seed)
    shuffled = torch.randperm(len(vectors), generator=order)
    learned = vectors[shuffled[len(vectors) // 10 :]]
    torch.manual_seed(seed)
    model = build_network().train()
    optimiser = torch.optim.Adam(model.parameters(), lr=0.001, foreach=False)
    losses = []
    for _ in range(epochs):
        mixed = learned[torch.randperm(len(learned), generator=order)]
        squares = 0.0
        for first in range(0, len(mixed), 256):
            x = mixed[first : first + 256]
            loss = ((model(x) - x) ** 2).mean()
            optimiser.zero_grad()
            loss.backward()
            optimiser.step()
            squares += loss.item() * len(x)
        losses.append(squares / len(mixed))
    return losses


def test_training_is_that_of_the_textbook():
    clips = machine_frames(10, 60)  # 560 vectors, 504 learned: a full batch and a shorter one
    state = torch.random.get_rng_state()
    found = train(clips, ["source"] * 10, epochs=3, seed=5)
    assert torch.equal(torch.random.get_rng_state(), state)  # the caller's draws stay theirs
    # the fused optimiser rounds otherwise, and later steps build on it
    np.testing.assert_allclose(found.losses, textbook_training(clips, 3, 5), rtol=1e-4)


def test_a_seed_determines_everything():
    clips = machine_frames()
    one, two, other = (train(clips, DOMAINS, epochs=2, seed=s) for s in (1, 1, 2))
    assert one.losses == two.losses
    assert one.losses != other.losses
    np.testing.assert_array_equal(one.residual(clips[0]), two.residual(clips[0]))
    for name in ("source", "target"):
        np.testing.assert_array_equal(one.inverses[name], two.inverses[name])


def test_training_gives_the_threads_back():
    torch.set_num_threads(2)
    train(machine_frames(), DOMAINS, epochs=1)
    assert torch.get_num_threads() == 2


def test_covariances_rest_on_the_learned_vectors_alone(monkeypatch):
    kept = {}
    monkeypatch.setattr(
        autoencoder, "precisions", lambda found: kept.update(found) or precisions(found)
    )
    clips = machine_frames()
    train(clips, DOMAINS, epochs=1)
    total = sum(len(context_vectors(clip)) for clip in clips)
    assert sum(each.vectors for each in kept.values()) == total - total // 10


def test_a_residual_is_the_input_less_the_reconstruction_in_eval_mode():
    clips = machine_frames()
    trained = train(clips, DOMAINS, epochs=2)
    x = context_vectors(clips[0]).astype(np.float64)
    hidden = x
    state = {name: value.double().numpy() for name, value in trained.model.state_dict().items()}
    for layer in range(0, 27, 3):
        hidden = hidden @ state[f"{layer}.weight"].T + state[f"{layer}.bias"]
        mean, var = (state[f"{layer + 1}.running_{kind}"] for kind in ("mean", "var"))
        scaled = (hidden - mean) / np.sqrt(var + 1e-3)
        scaled = scaled * state[f"{layer + 1}.weight"] + state[f"{layer + 1}.bias"]
        hidden = np.maximum(scaled, 0)
    expected = x - (hidden @ state["27.weight"].T + state["27.bias"])
    np.testing.assert_allclose(trained.residual(clips[0]), expected, atol=2e-4)


def test_a_last_batch_of_one_vector_is_skipped():
    clips = machine_frames(1, 4 + 285)  # 285 vectors, 257 learned
    assert np.isfinite(train(clips, ["source"], epochs=1).losses[0])


def test_a_missing_target_is_no_obstacle():
    clips = machine_frames(4)
    trained = train(clips, ["source"] * 4, epochs=1)
    assert list(trained.inverses) == ["source"]
    assert trained.missing == ()


def test_a_domain_of_too_few_vectors_is_told():
    clips = [*machine_frames(4), machine_frames(1, 8, seed=9)[0]]
    trained = train(clips, ["source"] * 4 + ["target"], epochs=1)
    assert list(trained.inverses) == ["source"]
    assert trained.missing == ("target",)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: train(machine_frames(2), ["source"]), "2 clips and 1 domains"),
        (lambda: train([], []), "normal clips to train on"),
        (lambda: train(machine_frames(1, 4), ["source"]), "at least 5 frames"),
        (lambda: train(machine_frames(2), ["a", "b"], epochs=0), "at least 1"),
        (lambda: train(machine_frames(2), ["a", "b"], device="nonsense"), "device 'nonsense'"),
    ],
)
def test_what_cannot_be_trained_is_refused(call, message):
    with pytest.raises(DacoError, match=message):
        call()


# --- on real recordings ---------------------------------------------------------------------


@pytest.fixture(scope="module")
def fan():
    folder = shared("real", "audio", "fan")
    table = read_clips(folder)
    frames = {clip.path: log_mel(read_audio(folder / clip.path), RATE) for clip in table}
    normals = [clip for clip in table if clip.split == "train"]
    trained = train(
        [frames[clip.path] for clip in normals], [str(c.domain) for c in normals], epochs=10
    )
    return table, frames, trained


def test_a_real_machine_is_learned(fan):
    _, _, trained = fan
    assert (np.diff(trained.losses[:8]) < 0).all()
    # Training enlarges roundings: on two processors it ended at 0.017 and 0.022 of the first loss.
    assert trained.losses[-1] < 0.05 * trained.losses[0]
    assert trained.validation_loss < 0.05 * trained.losses[0]
    assert trained.missing == ()


def test_scores_of_real_clips_are_finite_and_those_of_scrambled_ones_high(fan):
    table, frames, trained = fan
    rng = np.random.default_rng(0)
    for clip in table:
        scores = clip_scores(trained.residual(frames[clip.path]), trained.inverses)
        assert np.isfinite(list(scores.values())).all()
        scrambled = rng.permuted(frames[clip.path], axis=1)  # bands in another order per frame
        noise = clip_scores(trained.residual(scrambled), trained.inverses)
        assert scores["ae-mse"] < noise["ae-mse"]
        assert scores["ae-maha-row"] < noise["ae-maha-row"]


# --- the table ------------------------------------------------------------------------------


def score_table(**changes):
    import pandas as pd

    columns = {
        "path": ["fan/test/a.wav", "fan/test/b.wav"],
        "year": [2025, 2025],
        "machine": ["fan", "fan"],
        "section": ["00", "00"],
        "domain": ["source", None],
        "split": ["test", "test"],
        "label": [1, None],
        "system": ["ae-mse", "ae-mse"],
        "score": [0.1, 0.2],
    }
    return pd.DataFrame({**columns, **changes}).astype({"year": "Int64", "label": "Int64"})


def test_a_score_table_comes_back_as_it_was_written(tmp_path):
    import pandas as pd

    table = ScoreTable(score_table(), {"epochs": 3, "machines": {}})
    write_score_table(table, tmp_path / "s.parquet")
    again = read_score_table(tmp_path / "s.parquet")
    pd.testing.assert_frame_equal(again.rows, table.rows)
    assert again.about == table.about
    assert again.systems == ("ae-mse",)


def test_four_columns_are_enough(tmp_path):
    score_table()[["path", "machine", "system", "score"]].to_parquet(tmp_path / "s.parquet")
    rows = read_score_table(tmp_path / "s.parquet").rows
    assert rows["section"].tolist() == ["00", "00"]
    assert rows["year"].isna().all()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"score": [0.1, float("nan")]}, "1 score missing or not finite: fan/test/b.wav"),
        ({"path": ["a.wav", "x/a.wav"]}, r"1 clip more than once: x/a\.wav"),
        ({"machine": ["fan", None]}, "'machine' must hold text"),
        ({"label": [2, 0]}, "'label' must hold 1"),
    ],
)
def test_a_damaged_score_table_is_refused(changes, message, tmp_path):
    score_table(**changes).to_parquet(tmp_path / "s.parquet")
    with pytest.raises(DataError, match=message):
        read_score_table(tmp_path / "s.parquet")


def test_what_is_no_score_table_is_refused(tmp_path):
    (tmp_path / "text.parquet").write_text("no")
    score_table().drop(columns="system").to_parquet(tmp_path / "other.parquet")
    for name, message in (
        ("text.parquet", "not a readable Parquet"),
        ("other.parquet", "no column 'system'"),
        ("nothing.parquet", "cannot be read"),
        ("", "is a folder"),
    ):
        with pytest.raises(DataError, match=message):
            read_score_table(tmp_path / name)


def test_metrics_need_complete_labels():
    labels = {"label": [1, 0], "domain": ["source", "source"]}
    assert system_metrics(score_table(**labels))["ae-mse"]["auc_source"] == 0
    assert system_metrics(score_table())["ae-mse"] is None
    assert system_metrics(score_table(label=[1, 0], domain=["target", "source"]))["ae-mse"] is None


def test_score_files_of_two_years_are_refused(tmp_path):
    with pytest.raises(InputError, match="several years"):
        write_score_files(score_table(year=[2024, 2025]), tmp_path)


# --- the run --------------------------------------------------------------------------------


@pytest.fixture
def clips(tmp_path):
    """Two machines: eight source and three target normals, four test clips of 0.7 s each."""
    rng = np.random.default_rng(0)
    found = []
    for machine in ("fan", "pump"):
        for n in range(15):
            split = "train" if n < 11 else "test"
            domain = "target" if n in (8, 9, 10, 13, 14) else "source"
            path = f"{machine}/{split}/{n:02d}.wav"
            (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
            soundfile.write(tmp_path / path, rng.normal(0, 0.1, 11_200), RATE)
            label = 0 if split == "train" else n % 2
            found.append(Clip(path, machine, 2025, "00", domain, split, label))
    return ClipTable(tmp_path, tuple(found))


def relabelled(clips, **changes):
    from dataclasses import replace

    return ClipTable(
        clips.root, tuple(replace(c, **changes) if c.split == "test" else c for c in clips)
    )


def no_training(*_args, **_options):
    raise AssertionError("nothing was to be trained")


def test_a_finished_machine_is_not_trained_again(clips, tmp_path, monkeypatch):
    out = tmp_path / "b.parquet"
    calls = []
    first = run_baselines(
        clips, out, machines=["fan"], epochs=1, progress=lambda *call: calls.append(call)
    )
    assert (first.trained, first.reused) == (("fan (2025)",), ())
    assert calls[-1] == ("machines", 1, 1)
    assert ("fan (2025): clips", 15, 15) in calls
    assert ("fan (2025): epochs", 1, 1) in calls
    both = run_baselines(clips, out, epochs=1)
    assert (both.trained, both.reused) == (("pump (2025)",), ("fan (2025)",))
    monkeypatch.setattr(autoencoder, "train", no_training)
    before = out.read_bytes()
    run_baselines(clips, out, epochs=1)
    assert out.read_bytes() == before
    # 2 machines x 4 test clips x 3 systems
    assert len(both.table.rows) == 24
    fan = both.table.rows.query("machine == 'fan'").reset_index(drop=True)
    assert fan.equals(first.table.rows)


def test_an_interrupted_run_keeps_what_is_finished(clips, tmp_path, monkeypatch):
    out = tmp_path / "b.parquet"

    def interrupt(stage, done, _total):
        if stage.startswith("pump"):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_baselines(clips, out, epochs=1, progress=interrupt)
    assert set(read_score_table(out).rows["machine"]) == {"fan"}
    assert run_baselines(clips, out, epochs=1).reused == ("fan (2025)",)


def test_labels_that_come_later_need_no_training(clips, tmp_path, monkeypatch):
    out = tmp_path / "b.parquet"
    blind = run_baselines(relabelled(clips, label=None, domain=None), out, epochs=1)
    assert blind.table.rows["label"].isna().all()
    monkeypatch.setattr(autoencoder, "train", no_training)
    known = run_baselines(clips, out, epochs=1)
    assert known.table.rows["label"].notna().all()
    assert known.table.rows["score"].equals(blind.table.rows["score"])


def test_a_changed_recording_is_trained_again(clips, tmp_path):
    out = tmp_path / "b.parquet"
    run_baselines(clips, out, epochs=1)
    soundfile.write(tmp_path / "fan/train/00.wav", np.zeros(11_200), RATE)
    again = run_baselines(clips, out, epochs=1)
    assert (again.trained, again.reused) == (("fan (2025)",), ("pump (2025)",))


def test_results_of_other_settings_are_never_mixed_nor_overwritten(clips, tmp_path):
    out = tmp_path / "b.parquet"
    run_baselines(clips, out, machines=["fan"], epochs=1)
    before = out.read_bytes()
    with pytest.raises(DataError, match="made with epochs 1, not 2"):
        run_baselines(clips, out, epochs=2)
    assert out.read_bytes() == before
    score_table().to_parquet(tmp_path / "other.parquet")
    with pytest.raises(DataError, match="not made by this command"):
        run_baselines(clips, tmp_path / "other.parquet", epochs=1)


def changed(clips, at, **changes):
    from dataclasses import replace

    listed = list(clips.clips)
    listed[at] = replace(listed[at], **changes)
    return ClipTable(clips.root, tuple(listed))


@pytest.mark.parametrize(
    ("make", "options", "message"),
    [
        (lambda c: c, {"machines": ["valve"]}, "no machine 'valve'. There are fan, pump"),
        (lambda c: changed(c, 0, label=1), {}, "1 training clip labelled as anomaly"),
        (lambda c: c.select(split="train"), {}, "fan .2025. has no test clip"),
        (lambda c: c.select(split="test"), {}, "fan .2025. has no training clip"),
        (lambda c: changed(c, 3, path="fan/nothing.wav"), {}, "nothing.wav: cannot be opened"),
        (lambda c: c, {"out": "b.txt"}, "extension .parquet"),
        (lambda c: c, {"out": "nowhere/b.parquet"}, "nowhere is not a folder"),
        (lambda c: c, {"device": "nonsense"}, "device 'nonsense'"),
    ],
)
def test_what_makes_no_sense_is_refused(make, options, message, clips, tmp_path):
    out = tmp_path / options.pop("out", "b.parquet")
    with pytest.raises(DacoError, match=message):
        run_baselines(make(clips), out, epochs=1, **options)


def test_recordings_of_two_rates_are_refused(clips, tmp_path):
    soundfile.write(tmp_path / "fan/train/01.wav", np.ones(8000), 8000)
    with pytest.raises(AudioError, match=r"01\.wav: recorded at 8000 Hz, 00\.wav at 16000 Hz"):
        run_baselines(clips, tmp_path / "b.parquet", epochs=1)


def test_a_short_recording_is_named(clips, tmp_path):
    soundfile.write(tmp_path / "fan/train/01.wav", np.ones(500), RATE)
    with pytest.raises(AudioError, match=r"fan/train/01\.wav: the autoencoder needs clips of at"):
        run_baselines(clips, tmp_path / "b.parquet", epochs=1)


def test_without_torch_the_extra_is_named(clips, tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "torch", None)
    with pytest.raises(MissingExtraError, match=r'pip install "daco-asd\[torch\]"'):
        run_baselines(clips, tmp_path / "b.parquet")


def test_reading_scores_needs_no_torch():
    code = "import sys, daco.experiments.run, daco.commands.baseline; print('torch' in sys.modules)"
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout.strip() == "False"


def test_the_published_sizes():
    assert (features.FRAME, features.HOP, features.MELS, features.DIM) == (1024, 512, 128, 640)
    assert (autoencoder.BATCH, autoencoder.EPOCHS, autoencoder.SEED) == (256, 100, 13711)
    assert scoring.SYSTEMS == ("ae-mse", "ae-maha", "ae-maha-row")
