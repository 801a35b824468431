"""BEATs, EAT and PANNs against the golden vectors: name-seeded weights, five seeded clips each."""

from __future__ import annotations

import json
import zlib
from dataclasses import dataclass, field

import numpy as np
import pytest
from shared_data import shared

torch = pytest.importorskip("torch")

from daco.backbones import beats, eat, panns, transformer  # noqa: E402
from daco.backbones.network import Network  # noqa: E402
from daco.errors import AudioError, InputError, WeightsError  # noqa: E402

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


@dataclass
class Run:
    """One clip's way through a network."""

    embedding: np.ndarray
    grid: np.ndarray
    layers: list[np.ndarray] = field(default_factory=list)


class Golden:
    """A network with the golden weights, its vectors, and every clip's run, made once."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.module = MODULES[name]
        with np.load(shared("golden", "backbones", f"{name}.npz")) as file:
            self.vectors = dict(file)
        self.state_dict = self.module.clean(checkpoint(name))
        self.net = self.module.build(self.state_dict, "cpu", "fp32")
        self.runs: dict[str, Run] = {}

    def __getitem__(self, field: str) -> np.ndarray:
        return self.vectors[field]

    def run(self, clip: str) -> Run:
        if clip not in self.runs:
            # The two clips of two seconds go together: a batch is held to the same numbers.
            clips = ("s2", "silence2") if clip in ("s2", "silence2") else (clip,)
            layers: list[torch.Tensor] = []
            watched = (
                [] if self.name == "panns" else [self.net.encoder.norm, *self.net.encoder.layers]
            )
            hooks = [
                each.register_forward_hook(lambda module, args, output: layers.append(output))
                for each in watched
            ]
            with torch.inference_mode():
                grid, own = self.net._forward(np.stack([wave(each) for each in clips]))
            for hook in hooks:
                hook.remove()
            vectors = own.get(self.net.default_readout, grid.mean((1, 2)))
            for index, each in enumerate(clips):
                self.runs[each] = Run(
                    vectors[index].numpy(),
                    grid[index].numpy(),
                    [layer[index].numpy() for layer in layers],
                )
        return self.runs[clip]

    def features(self, clip: str) -> np.ndarray:
        waveforms = torch.from_numpy(wave(clip)[None])
        if self.name == "panns":
            return panns.log_mel(waveforms, self.state_dict[panns.MEL])[0].numpy()
        return self.module.features(waveforms)[0].numpy()


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


@pytest.fixture(params=[1, 2], ids=["1 thread", "2 threads"])
def threads(request):
    before = torch.get_num_threads()
    torch.set_num_threads(request.param)
    yield request.param
    torch.set_num_threads(before)


@pytest.mark.parametrize("clip", CLIPS)
def test_features(golden, clip, threads):
    kind = "logmel" if golden.name == "panns" else "fbank"
    features = golden.features(clip)

    def agree(ours: np.ndarray, theirs: np.ndarray) -> None:
        assert ours.shape == theirs.shape
        tolerance = FEATURE_TOLERANCE if kind == "logmel" else fbank_tolerance(theirs, golden.name)
        assert (np.abs(ours - theirs) <= tolerance).all()

    agree(features[golden[f"{clip}.{kind}_idx"]], golden[f"{clip}.{kind}_rows"])
    flat = features.astype(np.float64)
    stats = [*flat.shape, flat.mean(), flat.std(), flat.min(), flat.max(), np.abs(flat).sum()]
    np.testing.assert_allclose(stats, golden[f"{clip}.{kind}_stats"], rtol=1e-5, atol=1e-5)
    if f"{clip}.{kind}_full" in golden.vectors:
        full = golden[f"{clip}.{kind}_full"]
        agree(features[: len(full)], full)


@pytest.mark.parametrize("clip", CLIPS)
def test_embedding(golden, clip):
    embedding, expected = golden.run(clip).embedding, golden[f"{clip}.embedding"]
    tolerance = TOLERANCE * max(1, np.abs(expected).max() / LARGEST)
    assert error(embedding, expected) <= tolerance
    if f"{clip}.embedding_f64" in golden.vectors:
        assert error(embedding, golden[f"{clip}.embedding_f64"]) <= tolerance


@pytest.mark.parametrize("clip", CLIPS)
def test_tokens_and_layers(golden, clip):
    run = golden.run(clip)
    if golden.name == "panns":
        frames = int(golden[f"{clip}.logmel_stats"][0])
        assert run.grid.shape == (frames // 32, 1, 2048)
        return
    tokens = run.layers[-1]
    assert len(tokens) == golden[f"{clip}.tokens_n"]
    rows = tokens[golden[f"{clip}.token_idx"]]
    assert error(rows, golden[f"{clip}.token_rows"]) <= TOKEN_TOLERANCE[golden.name]
    if golden.name == "beats":
        means = np.stack([layer.mean(axis=0) for layer in run.layers[1:]])
        assert error(means, golden[f"{clip}.layer_mean"]) <= TOLERANCE
        assert np.array_equal(run.grid.reshape(-1, 768), tokens)
    else:
        cls = np.stack([layer[0] for layer in run.layers])
        assert error(cls, golden[f"{clip}.layer_cls"]) <= TOLERANCE
        assert np.array_equal(run.grid.reshape(-1, 768), tokens[1:])


def test_readouts_come_from_one_pass_and_agree_with_it(golden):
    net, waveforms = golden.net, np.stack([wave("s2"), wave("silence2")])
    both = net.embed_many(waveforms, [net.default_readout, "std"])
    embedding = both[net.default_readout]
    assert embedding.dtype == np.float32
    assert error(embedding[0], golden["s2.embedding"]) <= TOLERANCE
    steps, bands, dim = golden.run("s2").grid.shape
    assert both["std"].shape == (2, bands * dim)
    assert net.grid(torch.from_numpy(waveforms[:1])).shape == (1, steps, bands, dim)


@pytest.fixture
def without_onednn():
    """Some virtual machines announce bfloat16 matrix instructions that they cannot run."""
    before = torch.backends.mkldnn.set_flags(False)[0]
    yield
    torch.backends.mkldnn.set_flags(before)


@pytest.mark.usefixtures("without_onednn")
def test_bfloat16_stays_near(golden):
    waveforms = wave("s2")[None, :8000]
    net = golden.module.build(golden.state_dict, "cpu", "bf16")
    ours, theirs = net.embed(waveforms)[0], golden.net.embed(waveforms)[0]
    assert 1 - ours @ theirs / np.linalg.norm(ours) / np.linalg.norm(theirs) < 2e-4
    assert error(ours, theirs) < 0.1


def test_the_shortest_clip_works_and_a_shorter_one_is_refused_with_its_length(golden):
    net = golden.net
    assert np.isfinite(net.embed(np.ones((1, net.shortest), np.float32))).all()
    with pytest.raises(AudioError, match=f"at least {net.shortest} samples"):
        net.embed(np.ones((1, net.shortest - 1), np.float32))


def test_nan_gives_nan_for_that_clip_only(golden):
    waveforms = np.stack([wave("s2"), wave("silence2")])[:, :8000].copy()
    waveforms[0, 4000] = np.nan
    embedding = golden.net.embed(waveforms)
    assert np.isnan(embedding[0]).any()
    assert np.isfinite(embedding[1]).all()


def test_expected_shapes_are_those_of_the_cleaned_checkpoint(golden):
    shapes = {key: tuple(value.shape) for key, value in golden.state_dict.items()}
    assert shapes == golden.module.expected_shapes()


def test_every_entry_of_the_public_checkpoint_is_used_or_known_to_be_needless(golden):
    listed = {entry["name"] for entry in read_json(f"{golden.name}_state_dict.json")}
    needless = listed - set(golden.state_dict)
    # Of PANNs: Fourier kernels, BatchNorm counters, classifier.
    assert len(needless) == (2 + 13 + 2 if golden.name == "panns" else 0)


def test_checkpoint_wrappers_and_heads_are_taken_off(golden):
    wrapped = {"model": dict(golden.state_dict), "cfg": {"deep_norm": True}, "iteration": 800_000}
    if golden.name == "beats":
        wrapped["model"]["predictor.weight"] = torch.zeros(527, 768)
    assert golden.module.clean(wrapped).keys() == golden.state_dict.keys()


def test_beats_of_another_kind_or_with_untied_bias_is_refused():
    with pytest.raises(WeightsError, match="layer_norm_first"):
        beats.clean({"cfg": {"layer_norm_first": True}, "model": {}})
    bias = {beats.HEAD_BIAS.format(layer): torch.full((320, 12), 1.0 * layer) for layer in (0, 1)}
    with pytest.raises(WeightsError, match="shares one position bias"):
        beats.clean(bias)


def test_the_position_bias_is_cached_for_a_few_lengths():
    encoder = beats.Encoder.__new__(beats.Encoder)
    torch.nn.Module.__init__(encoder)
    encoder.head_bias = torch.nn.Parameter(torch.randn(320, 12), requires_grad=False)
    encoder._position_bias = {}
    bias = encoder.position_bias(200)
    assert encoder.position_bias(200) is bias
    for tokens in range(8, 200, 8):
        encoder.position_bias(tokens)
    assert len(encoder._position_bias) <= beats.CACHED_LENGTHS


def test_eat_names_may_lack_their_prefix_and_the_position_table():
    cleaned = eat.clean({"pre_norm.weight": torch.ones(768)})
    assert set(cleaned) == {"model.pre_norm.weight", eat.POSITIONS}
    table = cleaned[eat.POSITIONS].view(768, 8, 768)
    # Band first, then time; each half is [sin, cos] with frequencies from 1 down to 1e-4.
    assert table[5, 3, 0] == pytest.approx(np.sin(3.0))
    assert table[5, 3, 192] == pytest.approx(np.cos(3.0))
    assert table[5, 3, 384] == pytest.approx(np.sin(5.0))
    assert table[5, 3, 767] == pytest.approx(np.cos(5.0 * 10000 ** (-191 / 192)))


class Frames(torch.nn.Module):
    """Frames of four samples as a grid, and the first of them."""

    def forward(self, features):
        grid = features.view(len(features), -1, 1, 4)
        return grid, {"first": grid[:, 0, 0]}


def tiny(**options) -> Network:
    return Network(
        "tiny",
        lambda waveforms: waveforms,
        Frames(),
        sample_rate=8,
        shortest=4,
        own_readouts=("first",),
        default_readout="first",
        **options,
    )


def test_waveforms_may_be_floats_of_numpy_or_torch():
    expected = np.array([[-1.0, 0.0, 0.5, 0.25]], np.float32)
    frozen = expected.copy()
    frozen.flags.writeable = False
    for given in (
        expected,
        frozen,
        expected.astype(np.float64),
        expected.astype(">f4"),
        expected.tolist(),
        torch.from_numpy(expected),
    ):
        embedding = tiny().embed(given)
        assert embedding.dtype == np.float32
        assert np.array_equal(embedding, expected)


@pytest.mark.parametrize(
    ("waveforms", "options", "message"),
    [
        (np.zeros(8, np.float32), {}, "2-D"),
        (np.zeros((0, 8), np.float32), {}, "at least one clip"),
        (np.zeros((1, 8), np.int16), {}, "divide 16-bit samples by 32768"),
        (np.array([["a"]]), {}, "must be floats"),
        (np.zeros((1, 8), np.float32), {"device": "nowhere"}, "Use device='cpu'"),
    ],
)
def test_wrong_input_is_refused(waveforms, options, message):
    with pytest.raises(InputError, match=message):
        tiny(**options).embed(waveforms)


def test_bfloat16_rounds_the_features_and_returns_float32():
    embedding = tiny(precision="bf16").embed(np.full((1, 4), 1 / 3, np.float32))
    assert embedding.dtype == np.float32
    assert embedding[0, 0] == float(torch.tensor(1 / 3).bfloat16())
