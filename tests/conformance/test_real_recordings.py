"""Recordings of real machines: embeddings that others made, injected faults, levels, bad normals.

40 source and 10 target normals of a fan and of a bearing, 10 test normals and 10 faults of each.
"""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from pathlib import Path

import numpy as np
import pytest
import soundfile
import soxr
import textbook_readouts as textbook
from numpy.testing import assert_allclose
from real_tables import real_table
from shared_data import shared

import daco
from daco.backbones import load
from daco.data.clips import stem_of
from daco.data.sources import read_clips
from daco.detector.fit import fit_machines
from daco.detector.verdict import verdict_of
from daco.embedding.frontend import Listener
from daco.embedding.normals import normals_of_recordings
from daco.errors import DataError
from daco.method.viability import ADVANTAGE_SHARES, pseudo_scores, viability_veto
from daco.synthetic.fault_tables import injected
from daco.synthetic.injection import Plan, choose_recordings, inject_recordings

pytestmark = [
    pytest.mark.shared("real", "audio"),
    pytest.mark.shared("real", "embeddings"),
]

MACHINES = ("bearing", "fan")
RATE = 16_000
GRID = [config.name for config in daco.paper_grid()]
DEGENERATE = "ldn-diff-K16"


def recordings(machine: str, embeddings: str) -> tuple[np.ndarray, dict[str, np.ndarray]]:
    """Waveforms (70, 160000) of the machine's clips, and their rows of the reference arrays."""
    paths = sorted(shared("real", "audio", machine).glob("*/*.flac"))
    assert len(paths) == 70
    reference = np.load(shared("real", "embeddings", f"{machine}_{embeddings}.npz"))
    row = {Path(name).stem: index for index, name in enumerate(reference["file_name"])}
    rows = [row[path.stem] for path in paths]
    waves = np.stack([soundfile.read(path, dtype="float32")[0] for path in paths])
    return waves, {name: reference[name][rows] for name in reference.files}


@pytest.mark.parametrize("machine", MACHINES)
@pytest.mark.parametrize(
    # Measured: 7e-7 and 1.8e-6, rounding to float32; 1.8e-3 and 2.0e-3, rounding to float16.
    ("view", "table", "tolerance"),
    [("mod", "logmel_mod", 1e-5), ("cep", "cep", 1e-3), ("env", "env", 4e-3),
     ("mod60", "mod60", 4e-3)],
)  # fmt: skip
def test_weight_free_view_of_every_clip(machine, view, table, tolerance):
    waves, reference = recordings(machine, table)
    expected = reference["embedding" if view == "mod" else view].astype(np.float32)
    assert_allclose(load("logmel").embed(waves, view), expected, atol=tolerance)


@cache
def mn04():
    pytest.importorskip("torch")
    return load("mn04", weights=shared("real", "mn04_as_mAP_432.pt"))


@pytest.mark.parametrize("machine", MACHINES)
def test_mn04_embeddings_and_readouts_of_every_third_clip(machine):
    from scipy.signal import resample_poly

    net, names = mn04(), ["mean", "band", "rdp"]
    assert net.weights_sha256 == daco.backbones.weights.SOURCES["mn04"].sha256
    assert (net.sample_rate, net.default_readout) == (32000, "mean")
    waves, reference = recordings(machine, "mn04")
    waves = resample_poly(waves[::3], 2, 1, axis=1).astype(np.float32)
    batches = [net.embed_many(waves[i : i + 12], names) for i in (0, 12)]
    found = {name: np.concatenate([batch[name] for batch in batches]) for name in names}
    # Measured: 1.1e-5; embeddings have a root mean square of 0.24.
    assert_allclose(found["mean"], reference["embedding"][::3], atol=1e-4)
    bands = found["band"].reshape(24, 4, 384)
    assert_allclose(bands.mean(1), found["mean"], atol=1e-6)
    # Stored as float16: 11 bits. Measured beside them: 1.1e-5.
    _, reference = recordings(machine, "mn04_band")
    assert_allclose(bands, reference["band"][::3], rtol=2**-11, atol=5e-5)
    # The clip came in a batch of twelve, whose convolutions round differently: up to 1e-5.
    frames = net.grid(waves[:1])[0].astype(np.float64)
    assert_allclose(found["rdp"][0], np.ravel(textbook.rdp(frames, 4)), rtol=1e-4, atol=3e-5)


# Faults injected into some of the recordings, and a bank of all 1,000 training clips. True scores
# are read only to say what was cut.


@cache
def fault_scores(machine, embeddings, per_domain=10, levels=(-18.0, -10.0, -4.0)):
    """Pseudo scores of injected faults."""
    table = real_table(machine, embeddings=embeddings).select(split="train")
    X, domains = table.matrix(), table.column("domain").astype(str)
    names, net = table.column("path").tolist(), mn04() if embeddings == "mn04" else load("logmel")
    clips = choose_recordings(read_clips(shared("real", "audio", machine)), per_domain)
    made = injected(inject_recordings(clips, net, Plan(levels=levels)), names, domains, X=X)
    assert [stem_of(names[row]) for row in made.rows] == [stem_of(clip.path) for clip in clips]
    assert np.allclose(made.clean, X[made.rows], atol=2e-5)
    return pseudo_scores(X, domains, made, GRID)


@pytest.mark.parametrize("given", [("bearing", "logmel_mod"), ("fan", "mn04", 8, (-10.0,))])
def test_injected_faults_cut_the_degenerate_configuration_alone(given):
    found = fault_scores(*given)
    veto = viability_veto(found)
    assert list(veto.reasons) == [DEGENERATE]
    assert found.basis == "injected faults"
    advantage = ADVANTAGE_SHARES[found.basis] * (veto.score - 0.5) / (veto.limit - 0.5)
    cut = GRID.index(DEGENERATE)
    assert advantage[cut] < 0.76
    assert np.delete(advantage, cut).min() > 0.83
    if "logmel_mod" in given:  # which does not hold steady faults
        assert found.detectable == ("impacts", "tones", "rub", "modulation")


# Levels: new normals stay inside the ranges, what is not the machine does not.


@pytest.fixture(scope="module", params=MACHINES)
def machine(request):
    """A model, its listener, and the samples of the test normals of other sessions."""
    folder = shared("real", "audio", request.param)
    gathered = normals_of_recordings(folder, load("logmel"), readout="mod")
    ((_, model),) = fit_machines(gathered.machines, config="raw-k1")
    paths = sorted((folder / "test").glob("*_normal_*.flac"))
    assert len(paths) == 10
    waves = [soundfile.read(path, dtype="float32")[0] for path in paths]
    return model, Listener(model.frontend), waves


def noise(wave, rng, rms):
    return rms * rng.normal(size=len(wave))


def hall(wave, rng):
    """Mains hum and pink noise, 20 dB below the machine."""
    hertz = np.fft.rfftfreq(len(wave), 1 / RATE)
    pink = np.fft.irfft(np.fft.rfft(rng.normal(size=len(wave))) / np.sqrt(np.maximum(hertz, 1)))
    seconds = np.arange(len(wave)) / RATE
    hum = sum(np.sin(2 * np.pi * 50 * order * seconds) / order for order in (1, 2, 3, 4))
    return 0.1 * wave.std() * (pink / pink.std() + hum / hum.std()) / np.sqrt(2)


SOUNDS = {
    "new normals": (lambda wave, rng: wave, {"normal", "anomalous"}),
    "a tenth of the level": (lambda wave, rng: 0.1 * wave, {"off"}),
    "ten times the level": (lambda wave, rng: 10 * wave, {"out of range"}),
    "white noise": (lambda wave, rng: noise(wave, rng, wave.std()), {"out of range"}),
    "quiet noise": (lambda wave, rng: noise(wave, rng, 1e-3), {"off", "out of range"}),
    "a humming hall": (hall, {"off"}),
    "silence": (lambda wave, rng: 0 * wave, {"recorder fault"}),
    "clipping": (lambda wave, rng: wave * 5 / wave.std(), {"recorder fault"}),
}


@pytest.mark.parametrize("sound", SOUNDS)
def test_what_is_not_the_machine_is_outside_its_ranges(machine, sound):
    model, listener, waves = machine
    (change, states), rng = SOUNDS[sound], np.random.default_rng(0)
    changed = [np.clip(change(wave, rng), -1, 1).astype(np.float32) for wave in waves]
    heard = [listener.embed_waveform(wave, RATE) for wave in changed]
    assert {verdict_of(model, each, name="a").state for each in heard} <= states


# One bad recording among ten target normals: without the gate a silent recording mutes the model;
# with it, the model is that of the other 49. Clips of the two machines differ no more from each
# other than normals of one of them do, in none of the views: the gate does not leave out one in the
# place of the other, but asks to listen to it.

OTHER = {"bearing": "fan", "fan": "bearing"}
BAD = {"silent": "silent: ", "short": "short: 1 s", "low": "rate: 8000 Hz", "clipped": "clipped: "}


@pytest.fixture(scope="module")
def normals(tmp_path_factory):
    """The normals of both machines, and bad versions of a target normal of each, by machine."""
    root, net = shared("real", "audio"), load("logmel")
    views = "+".join(net.default_views)
    found = normals_of_recordings(root, net, readout=views).machines
    bad = {}
    for machine in MACHINES:
        folder = tmp_path_factory.mktemp(machine)
        clips = sorted((root / machine / "train").glob("*target*"))
        wave, rate = soundfile.read(clips[-1], dtype="float32")
        soundfile.write(folder / "silent.wav", 0 * wave, rate)
        soundfile.write(folder / "short.wav", wave[:rate], rate)
        soundfile.write(folder / "low.wav", soxr.resample(wave, rate, rate // 2), rate // 2)
        soundfile.write(folder / "clipped.wav", np.clip(wave / wave.std(), -1, 1), rate)
        other, rate = soundfile.read(sorted((root / OTHER[machine] / "train").glob("*"))[0])
        soundfile.write(folder / "other.wav", other, rate)
        (bad[machine],) = normals_of_recordings(folder, net, readout=views, training=False).machines
    return {each.machine: each for each in found}, bad


@pytest.fixture(scope="module")
def faults(normals):
    """Embeddings of the ten faults of each machine."""
    found = {}
    for machine in MACHINES:
        listener = Listener(normals[0][machine].frontend)
        paths = sorted((shared("real", "audio") / machine / "test").glob("*anomaly*"))
        found[machine] = np.concatenate([listener.embed(path).embeddings for path in paths])
    return found


def last_target(normals):
    return max(row for row, domain in enumerate(normals.domains) if domain == "target")


def contaminated(given, machine, kind):
    """The last target normal replaced by a bad recording."""
    normals, bad = given[0][machine], given[1][machine]
    at, row = last_target(normals), bad.names.index(f"{kind}.wav")
    changed = {}
    for field in ("embeddings", "levels"):
        changed[field] = getattr(normals, field).copy()
        changed[field][at] = getattr(bad, field)[row]
    for field in ("names", "sha256s", "qualities"):
        values = getattr(normals, field)
        changed[field] = (*values[:at], getattr(bad, field)[row], *values[at + 1 :])
    return replace(normals, **changed)


def fitted(normals, **options):
    ((_, model),) = fit_machines([normals], **options)
    return model


@pytest.mark.parametrize("machine", MACHINES)
def test_a_bad_normal_is_left_out_with_its_reason_and_changes_nothing(normals, faults, machine):
    honest = normals[0][machine]
    clean = fitted(honest)
    assert len(clean) == 50
    assert "left_out" not in clean.provenance
    others = fitted(honest.take([row for row in range(50) if row != last_target(honest)]))
    expected = others.score(faults[machine])
    assert expected.anomalous.sum() >= 4
    for kind, begins in BAD.items():
        model = fitted(contaminated(normals, machine, kind))
        found = model.score(faults[machine])
        assert found.p_values == pytest.approx(expected.p_values, abs=1e-6)
        ((name, reason),) = model.provenance["left_out"].items()
        assert name == f"{kind}.wav"
        assert reason.startswith(begins)
    # A normal of the other machine is named and costs two faults at most.
    model = fitted(contaminated(normals, machine, "other"))
    assert "other.wav" in model.provenance["doubtful"]
    alarms = [each.score(faults[machine]).anomalous.sum() for each in (model, clean)]
    assert abs(int(alarms[0]) - int(alarms[1])) <= 2


@pytest.mark.parametrize("machine", MACHINES)
def test_a_model_that_a_silent_normal_mutes_is_refused(normals, machine):
    failure = fitted(contaminated(normals, machine, "silent"), keep_suspicious=True)
    assert isinstance(failure, DataError)
    assert machine in str(failure)
