"""BEATs, EAT and PANNs against the golden vectors: name-seeded weights, five seeded clips each.

Forward passes take seconds: those of a clip are made once, and the tests share them.
"""

from __future__ import annotations

import json
import zlib

import numpy as np
import pytest
from shared_data import shared

torch = pytest.importorskip("torch")

from daco.backbones import beats, eat, panns, transformer  # noqa: E402
from daco.errors import AudioError, WeightsError  # noqa: E402

# Float32 against float64 moves these embeddings by 2e-6; a LayerNorm eps of 1e-5 instead of 1e-6,
# the tanh GELU, another window or another bucket distance move them by 2e-5 and more.
TOLERANCE = 1e-5
LARGEST = 2.5
"""Of the values of most embeddings. Rounding grows with them: PANNs on silence reaches 19."""
# The references' filter banks in decibels or natural logarithms, before normalisation.
FEATURE_TOLERANCE = 5e-3
# Means and scales that BEATs and EAT normalise natural logarithms with.
NORMALISATION = {"beats": (15.41663, 2 * 6.55582), "eat": (-4.268, 9.138)}
# Noise on the features moves the tokens of the last layer by up to 50 and 2 times as much (noise of
# 1e-6, 1e-5 and 1e-4), and features of two processors differ by 1e-5: tokens by 8e-5 and 4e-6.
# Means over tokens have less of it and are held to TOLERANCE.
TOKEN_TOLERANCE = {"beats": 50 * 1e-5, "eat": 2 * 1e-5}
CLIPS = ("s10", "s12", "s2", "odd", "silence2")
PAIR = ("s2", "silence2")  # clips of one length
MODULES = {"beats": beats, "eat": eat, "panns": panns}


def read_json(name: str):
    return json.loads(shared("golden", "backbones", name).read_text(encoding="utf-8"))


def wave(clip: str) -> np.ndarray:
    """One of the five clips: noise and six tones, or silence."""
    seed, n, kind = read_json("meta.json")["clips"][clip]
    if kind == "silence":
        return np.zeros(n, np.float32)
    rng = np.random.default_rng(seed)
    seconds = np.arange(n) / 16000.0
    wave = 0.05 * rng.standard_normal(n)
    frequencies = rng.uniform(60, 7000, size=6)
    sizes = rng.uniform(0.01, 0.15, size=6)
    phases = rng.uniform(0, 2 * np.pi, size=6)
    for frequency, size, phase in zip(frequencies, sizes, phases, strict=True):
        wave = wave + size * np.sin(2 * np.pi * frequency * seconds + phase)
    wave = wave * (1 + 0.5 * np.sin(2 * np.pi * 1.3 * seconds)) + 0.01
    return wave.astype(np.float32)


def seeded(name: str, shape: tuple[int, ...]) -> np.ndarray:
    """The golden value of a weight: drawn with a seed made of its name, scaled by its kind."""
    last = name.rsplit(".", 1)[-1]
    tied = "relative_attention_bias.weight"  # one table for the twelve layers
    drawn_as = f"encoder.layers.0.self_attn.{tied}" if name.endswith(tied) else name
    rng = np.random.default_rng(zlib.crc32(drawn_as.encode()))
    z = rng.standard_normal(shape).astype(np.float32)
    if name.endswith(tied):
        value = z
    elif last == "running_mean":
        value = -20 + 5 * z if name.startswith("bn0.") else 0.1 * z
    elif last == "running_var":
        value = (1 + 0.1 * np.abs(z)) * (200 if name.startswith("bn0.") else 1)
    elif last == "extra_tokens":
        value = 0.5 * z
    elif last == "bias":
        value = 0.1 * z
    elif last in ("weight_g", "grep_a") or len(shape) == 1:  # the latter of a normalisation
        value = 1 + 0.1 * z
    else:
        damped = name.endswith(("out_proj.weight", "attn.proj.weight", "fc2.weight"))
        value = z * np.float32((0.5 if damped else 1.4) / np.sqrt(np.prod(shape[1:])))
    return np.asarray(value, dtype=np.float32)


def checkpoint(name: str) -> dict[str, torch.Tensor]:
    """The state dict of the reference network: all its entries, needed or not."""
    constants = {eat.POSITIONS: eat.positions()} if name == "eat" else {}
    if name == "panns":
        with np.load(shared("golden", "backbones", "panns.npz")) as file:
            constants[panns.MEL] = torch.from_numpy(file["melW"])
    tensors = {}
    for entry in read_json(f"{name}_state_dict.json"):
        key, shape = entry["name"], tuple(entry["shape"])
        if entry["dtype"] == "int64":
            tensors[key] = torch.zeros(shape, dtype=torch.int64)
        elif key in constants:
            tensors[key] = constants[key]
        else:
            tensors[key] = torch.from_numpy(seeded(key, shape))
    return tensors


class Golden:
    """A network with the golden weights, its vectors, and what it computes of every clip."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.module = MODULES[name]
        with np.load(shared("golden", "backbones", f"{name}.npz")) as file:
            self.vectors = dict(file)
        self.state_dict = self.module.clean(checkpoint(name))
        self.net = self.module.build(self.state_dict, "cpu", "fp32")
        self.outputs: dict[str, dict] = {}

    def __getitem__(self, field: str) -> np.ndarray:
        return self.vectors[field]

    def output(self, clip: str) -> dict[int, tuple[np.ndarray, dict[str, np.ndarray]]]:
        """Grid and own readouts of one clip after every layer."""
        if clip not in self.outputs:
            # The two clips of two seconds go together: a batch is held to the same numbers.
            clips = PAIR if clip in PAIR else (clip,)
            layers = set(range(1, self.net.depth + 1)) or {0}
            with torch.inference_mode():
                found = self.net._outputs(np.stack([wave(each) for each in clips]), layers)
            for row, each in enumerate(clips):
                self.outputs[each] = {
                    layer: (grid[row].numpy(), {name: own[name][row].numpy() for name in own})
                    for layer, (grid, own) in found.items()
                }
        return self.outputs[clip]

    def embedding(self, clip: str, layer: int) -> np.ndarray:
        grid, own = self.output(clip)[layer]
        return own[self.net.default_readout] if own else grid.mean((0, 1))

    @property
    def quick(self) -> str:
        """A readout that takes a twelfth of the network, where it has layers."""
        return "layer1" if self.net.depth else self.net.default_readout

    def features(self, clip: str) -> np.ndarray:
        waveforms = torch.from_numpy(wave(clip)[None])
        if self.name == "panns":
            return panns.log_mel(waveforms, self.state_dict[panns.MEL])[0].numpy()
        return self.module.features(waveforms)[0].numpy()


@pytest.fixture(scope="module", params=MODULES)
def golden(request):
    """One network at a time: drawing and building it takes seconds."""
    return Golden(request.param)


def error(ours: np.ndarray, theirs: np.ndarray) -> float:
    assert ours.shape == theirs.shape
    return float(np.abs(ours - theirs).max())


def fbank_tolerance(rows: np.ndarray, name: str) -> np.ndarray:
    """Of each cell of a normalised filter bank.

    A Fourier transform rounds in units of its loudest line, so that the logarithm of a cell is off
    by some ulps times the ratio of amplitudes. Pre-emphasis has cancelled low frequencies by
    1 / (1 - 0.97) before, and a power is off by twice as much as an amplitude.
    """
    mean, scale = NORMALISATION[name]
    logarithm = rows.astype(np.float64) * scale + mean
    ratio = np.exp((logarithm.max(axis=1, keepdims=True) - logarithm) / 2)
    ulps = 2 / (1 - transformer.PREEMPHASIS) * np.finfo(np.float32).eps
    return np.minimum(ulps * (ratio + np.abs(logarithm)) / scale, FEATURE_TOLERANCE)


def test_features_of_every_clip(golden):
    kind = "logmel" if golden.name == "panns" else "fbank"

    def agree(ours: np.ndarray, theirs: np.ndarray) -> None:
        assert ours.shape == theirs.shape
        tolerance = FEATURE_TOLERANCE if kind == "logmel" else fbank_tolerance(theirs, golden.name)
        assert (np.abs(ours - theirs) <= tolerance).all()

    for clip in CLIPS:
        features = golden.features(clip)
        agree(features[golden[f"{clip}.{kind}_idx"]], golden[f"{clip}.{kind}_rows"])
        flat = features.astype(np.float64)
        stats = [*flat.shape, flat.mean(), flat.std(), flat.min(), flat.max(), np.abs(flat).sum()]
        np.testing.assert_allclose(stats, golden[f"{clip}.{kind}_stats"], rtol=1e-5, atol=1e-5)
        if f"{clip}.{kind}_full" in golden.vectors:
            full = golden[f"{clip}.{kind}_full"]
            agree(features[: len(full)], full)


@pytest.mark.parametrize("clip", CLIPS)
def test_embedding_layers_and_tokens(golden, clip):
    depth = golden.net.depth
    embedding, expected = golden.embedding(clip, depth), golden[f"{clip}.embedding"]
    tolerance = TOLERANCE * max(1, np.abs(expected).max() / LARGEST)
    assert error(embedding, expected) <= tolerance
    if f"{clip}.embedding_f64" in golden.vectors:
        assert error(embedding, golden[f"{clip}.embedding_f64"]) <= tolerance
    grid, own = golden.output(clip)[depth]
    if golden.name == "panns":
        assert grid.shape == (int(golden[f"{clip}.logmel_stats"][0]) // 32, 1, 2048)
        return
    tokens = np.concatenate([*(own[name][None] for name in own), grid.reshape(-1, 768)])
    assert len(tokens) == golden[f"{clip}.tokens_n"]
    rows = tokens[golden[f"{clip}.token_idx"]]
    assert error(rows, golden[f"{clip}.token_rows"]) <= TOKEN_TOLERANCE[golden.name]
    layers = np.stack([golden.embedding(clip, layer) for layer in range(1, depth + 1)])
    kind = "layer_mean" if golden.name == "beats" else "layer_cls"
    assert error(layers, golden[f"{clip}.{kind}"][-depth:]) <= TOLERANCE


def test_the_frame_rate_is_that_of_the_grid(golden):
    net = golden.net
    assert net.frame_rate == (3.125 if golden.name == "panns" else 6.25)
    if golden.name == "eat":  # which sees 10.24 s of any clip
        assert len(golden.output("s2")[net.depth][0]) == 64
        return
    step = round(net.sample_rate / net.frame_rate)
    steps = [
        net.grid(np.zeros((1, net.shortest + n * step), np.float32)).shape[1] for n in (0, 1, 5)
    ]
    assert np.diff(steps).tolist() == [1, 4]


@pytest.fixture
def without_onednn():
    """Some virtual machines announce bfloat16 matrix instructions that they cannot run."""
    before = torch.backends.mkldnn.set_flags(False)[0]
    yield
    torch.backends.mkldnn.set_flags(before)


@pytest.mark.usefixtures("without_onednn")
def test_bfloat16_stays_near(golden):
    waveforms = wave("s2")[None, : golden.net.shortest + 1600]
    net = golden.module.build(golden.state_dict, "cpu", "bf16")
    ours, theirs = (each.embed(waveforms, golden.quick)[0] for each in (net, golden.net))
    assert 1 - ours @ theirs / np.linalg.norm(ours) / np.linalg.norm(theirs) < 2e-4
    assert error(ours, theirs) < 0.1


def test_the_shortest_clip_works_and_a_shorter_one_is_refused_with_its_length(golden):
    net = golden.net
    shortest = np.ones((1, net.shortest), np.float32)
    assert np.isfinite(net.embed(shortest, golden.quick)).all()
    with pytest.raises(AudioError, match=f"at least {net.shortest} samples"):
        net.embed(shortest[:, 1:])


def test_nan_gives_nan_for_that_clip_only(golden):
    waveforms = np.stack([wave(clip)[:8000] for clip in PAIR])
    waveforms[0, 4000] = np.nan
    embedding = golden.net.embed(waveforms, golden.quick)
    assert np.isnan(embedding).any(axis=1).tolist() == [True, False]


def test_the_tensors_of_the_public_checkpoint_are_needed_or_known_to_be_needless(golden):
    shapes = {key: tuple(value.shape) for key, value in golden.state_dict.items()}
    assert shapes == golden.module.expected_shapes()
    listed = {entry["name"] for entry in read_json(f"{golden.name}_state_dict.json")}
    # Of PANNs: Fourier kernels, BatchNorm counters, classifier.
    assert len(listed - set(shapes)) == (2 + 13 + 2 if golden.name == "panns" else 0)
    wrapped = {"model": dict(golden.state_dict), "cfg": {"deep_norm": True}, "iteration": 800_000}
    if golden.name == "beats":
        wrapped["model"]["predictor.weight"] = torch.zeros(527, 768)
    assert golden.module.clean(wrapped).keys() == shapes.keys()


def test_beats_of_another_kind_or_with_untied_bias_is_refused():
    with pytest.raises(WeightsError, match="layer_norm_first"):
        beats.clean({"cfg": {"layer_norm_first": True}, "model": {}})
    bias = {beats.HEAD_BIAS.format(layer): torch.full((320, 12), 1.0 * layer) for layer in (0, 1)}
    with pytest.raises(WeightsError, match="shares one position bias"):
        beats.clean(bias)


def test_eat_names_may_lack_their_prefix_and_the_position_table():
    cleaned = eat.clean({"pre_norm.weight": torch.ones(768)})
    assert set(cleaned) == {"model.pre_norm.weight", eat.POSITIONS}
    table = cleaned[eat.POSITIONS].view(768, 8, 768)
    # Band first, then time; each half is [sin, cos] with frequencies from 1 down to 1e-4.
    assert table[5, 3, 0] == pytest.approx(np.sin(3.0))
    assert table[5, 3, 192] == pytest.approx(np.cos(3.0))
    assert table[5, 3, 384] == pytest.approx(np.sin(5.0))
    assert table[5, 3, 767] == pytest.approx(np.cos(5.0 * 10000 ** (-191 / 192)))
