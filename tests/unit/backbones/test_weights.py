"""Checkpoints: found, verified before they are opened, and checked key by key."""

from __future__ import annotations

import hashlib
import pickle
import zipfile

import numpy as np
import pytest

import daco.backbones
from daco.backbones import weights as w
from daco.errors import WeightsError

torch = pytest.importorskip("torch")

EXPECTED = {"a.weight": (2, 3), "a.bias": (2,), "b.weight": (4,)}


@pytest.fixture(autouse=True)
def _empty_weights_folder(monkeypatch, tmp_path_factory):
    monkeypatch.setenv("DACO_WEIGHTS_DIR", str(tmp_path_factory.mktemp("weights")))


def tensors(**changes):
    return {name: torch.ones(shape) for name, shape in (EXPECTED | changes).items()}


def load(weights, name="mn04", **options):
    return w.load_weights(name, weights, expected=EXPECTED, **options)


def same(state_dict):
    assert set(state_dict) == set(EXPECTED)
    assert all(torch.equal(state_dict[name], torch.ones(EXPECTED[name])) for name in EXPECTED)


class Recorder:
    """An object whose unpickling would be noticed."""

    opened: list[str] = []  # noqa: RUF012

    def __reduce__(self):
        return Recorder.opened.append, ("opened",)


def test_every_downloadable_network_has_a_pinned_https_source():
    assert set(w.SOURCES) == set(daco.backbones.NAMES) - {"logmel"}
    for name, source in w.SOURCES.items():
        assert source.name == name
        assert "" not in (source.file_name, source.licence)
        assert source.url.startswith("https://")
        assert len(bytes.fromhex(source.sha256)) == 32


@pytest.mark.parametrize("wrap", [lambda t: t, lambda t: {"cfg": {"layers": 12}, "model": t}])
@pytest.mark.parametrize("legacy", [False, True])
def test_torch_files_bare_and_wrapped(tmp_path, wrap, legacy):
    path = tmp_path / "own.pt"
    torch.save(wrap(tensors()), path, _use_new_zipfile_serialization=not legacy)
    found, sha256 = load(path, clean=lambda c: c.get("model", c))
    same(found)
    assert sha256 == hashlib.sha256(path.read_bytes()).hexdigest()


def test_safetensors_are_recognised_by_content(tmp_path):
    safetensors = pytest.importorskip("safetensors.torch")
    path = tmp_path / "own.pt"
    safetensors.save_file(tensors(), path)
    same(load(str(path))[0])
    path.write_bytes(path.read_bytes()[:-4])
    with pytest.raises(WeightsError, match="damaged"):
        load(path)


@pytest.mark.parametrize("module", ["numpy._core.multiarray", "numpy.core.multiarray"])
def test_numpy_objects_of_a_training_script_are_no_obstacle(tmp_path, module):
    path = tmp_path / "own.pth"
    sampler = {
        "indexes": [np.arange(3), np.zeros(2, np.float32)],
        "pointer": np.int64(7),
        "map": np.float64(0.4),
    }
    torch.save({"model": tensors(), "iteration": 5, "sampler": sampler}, path)
    # NumPy 1 wrote its functions under another module, in files that are still around.
    with zipfile.ZipFile(path) as archive:
        entries = {name: archive.read(name) for name in archive.namelist()}
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in entries.items():
            archive.writestr(name, data.replace(b"numpy._core.multiarray", module.encode()))
    same(load(path, clean=lambda c: c["model"])[0])


def test_a_pinned_file_with_another_hash_is_not_opened(tmp_path, monkeypatch):
    path = tmp_path / w.SOURCES["mn04"].file_name
    path.write_bytes(pickle.dumps(Recorder(), protocol=2))
    monkeypatch.setattr(w, "_read", lambda *_: pytest.fail("the file was opened"))
    with pytest.raises(WeightsError) as caught:
        load(path)
    hashes = w.SOURCES["mn04"].sha256, hashlib.sha256(path.read_bytes()).hexdigest()
    assert all(each in str(caught.value) for each in hashes)


def test_a_file_that_would_run_code_is_refused(tmp_path):
    path = tmp_path / "own.pt"
    torch.save({"model": tensors(), "extra": Recorder()}, path)
    Recorder.opened.clear()
    with pytest.raises(WeightsError, match="could run code"):
        load(path)
    assert Recorder.opened == []


@pytest.mark.parametrize("content", [b"", b"not a checkpoint", b"PK\x03\x04 cut short", {}, [1, 2]])
def test_a_file_without_tensors_is_refused(tmp_path, content):
    path = tmp_path / "own.pt"
    path.write_bytes(content) if isinstance(content, bytes) else torch.save(content, path)
    with pytest.raises(WeightsError, match=r"own\.pt (cannot be read|holds no state dict)"):
        load(path)


def test_missing_unexpected_and_misshaped_entries_are_named():
    heads = {f"head.{i}": torch.ones(1) for i in range(40)}
    wrong = {**tensors(**{"a.bias": (3,)}), **heads, "a.weight": np.ones((2, 3))}
    wrong = {"b.wieght": wrong.pop("b.weight"), **wrong}
    with pytest.raises(WeightsError) as caught:
        load(wrong)
    for part in (
        "1 not tensors: a.weight",
        "1 missing: b.weight",
        "41 unexpected: b.wieght Did you mean 'b.weight'?, head.0, head.1 and 38 more",
        "1 of another shape: a.bias (3,), not (2,)",
    ):
        assert part in str(caught.value)


def test_weights_are_found_in_the_folder_of_the_environment(monkeypatch, tmp_path):
    monkeypatch.setenv("DACO_WEIGHTS_DIR", str(tmp_path))
    flat = tmp_path / "model.safetensors"
    flat.touch()
    assert w.find_weights("eat") == flat
    own = tmp_path / "eat" / "model.safetensors"
    own.parent.mkdir()
    own.touch()
    assert w.find_weights("eat") == own
    assert w.find_weights("eat", flat) == flat
    assert w.find_weights("eat", tmp_path) == own


@pytest.mark.parametrize(
    ("given", "parts"),
    [
        (None, (w.SOURCES["panns"].file_name, w.SOURCES["panns"].url, "DACO_WEIGHTS_DIR")),
        ("nowhere.pt", ("nowhere.pt does not exist", "daco download weights panns")),
        (".", (f"has no {w.SOURCES['panns'].file_name}",)),
    ],
)
def test_without_weights_the_error_says_which_file_and_how_to_get_it(tmp_path, given, parts):
    with pytest.raises(WeightsError) as caught:
        w.find_weights("panns", given and tmp_path / given)
    assert all(part in str(caught.value) for part in parts)
