"""The model file: the same bytes every time, whole or not at all, and hard to fool."""

from __future__ import annotations

import copy
import json
import os
import struct
import subprocess
import sys
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
import safetensors
import safetensors.numpy
from field_models import LOGMEL, normals, small_model
from shared_data import ROOT

from daco.backbones.levels import QUANTITIES
from daco.data.views import Views
from daco.detector import modelfile
from daco.detector.model import MachineModel
from daco.detector.modelfields import FIELDS, canonical_json
from daco.detector.modelfile import MAX_DESCRIPTION, is_model
from daco.detector.ranges import learn_ranges
from daco.detector.revision import add_normals, calibrate_with
from daco.embedding.frontend import Frontend
from daco.errors import DacoError, DataError, ModelError
from daco.method.bank import NormalBank

GOLDEN = ROOT / "tests" / "golden" / "models" / "model.daco"


@pytest.fixture(scope="module")
def model():
    """A model in which every field holds something."""
    X, _ = normals(seed=7)
    ranges = learn_ranges(np.full((3, len(QUANTITIES)), -40.0), [16000])
    env = Frontend("logmel", "env", 16000, 0, "fp32", "soxr", None, 10.0)
    made = small_model(
        views=Views(("mod", "env"), (5, 3)),
        frontend=replace(LOGMEL, others=(env,)),
        clip_sha256=["", *(f"{row:064x}" for row in range(1, 50))],
        groups=["", *(f"Schicht {row // 5}" for row in range(1, 50))],
        machine="Presse №2 “süd”",
        ranges=ranges,
        siblings=2,
    )
    made = calibrate_with(made, X[:3], ["target"] * 3, ["a.wav", "ü.wav", "a.wav"])
    return add_normals(made, X[4:6], "ночь", ["line\nbreak.wav", "b"])


@pytest.fixture(scope="module")
def content(model):
    return model.to_bytes()


@pytest.fixture
def parts(content):
    """The tensors of a sound file, to be spoilt."""
    return safetensors.numpy.load(content)


def put_together(tensors, *, document=None, rehash=True):
    """The bytes of a file; with the hash an attacker would write, so that later checks speak."""
    tensors = dict(tensors)
    if document is not None:
        text = document if isinstance(document, bytes) else canonical_json(document)
        tensors["model"] = np.frombuffer(text, np.uint8)
    if rehash:
        hashed = {name: each for name, each in tensors.items() if name != "sha256"}
        tensors["sha256"] = np.frombuffer(modelfile._digest(hashed), np.uint8)
    return safetensors.numpy.save(tensors, {"format": "daco-model"})


def document_of(tensors):
    return json.loads(tensors["model"].tobytes())


def refused(data, token=None):
    with pytest.raises(DacoError, match=token) as caught:
        MachineModel.from_bytes(data)
    assert str(caught.value).isprintable()  # whatever the file holds, a terminal is not steered
    assert len(str(caught.value)) < 500


class TestRoundTrip:
    def test_everything_comes_back(self, model, content, tmp_path):
        path = tmp_path / "press.daco"
        model.save(path)
        assert path.read_bytes() == content
        loaded = MachineModel.load(path)
        for name in FIELDS:
            expected = getattr(model, name)
            if isinstance(expected, np.ndarray):
                np.testing.assert_array_equal(getattr(loaded, name), expected)
            else:
                assert getattr(loaded, name) == expected, name
        assert loaded.sha256 == model.sha256 == modelfile.content_hash(vars(loaded))
        assert loaded.to_bytes() == content
        clips = normals(seed=5)[0]
        for name, values in vars(model.score(clips)).items():
            np.testing.assert_array_equal(vars(loaded.score(clips))[name], values)

    def test_the_same_inputs_give_the_same_bytes_in_another_process(self):
        code = (
            "import sys; sys.path.insert(0, 'tests/helpers')\n"
            "from field_models import *\n"
            "sys.stdout.buffer.write(small_model(frontend=LOGMEL).to_bytes())"
        )
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=str(ROOT))
        assert found.stdout == small_model(frontend=LOGMEL).to_bytes(), found.stderr

    def test_the_golden_file_is_read_and_scores_as_pinned(self):
        """Written by the first version of this schema; a change of the format must fail here."""
        golden = json.loads(GOLDEN.with_suffix(".json").read_text())
        found = MachineModel.load(GOLDEN)
        assert found.sha256 == golden["sha256"]
        assert found.to_bytes() == GOLDEN.read_bytes()
        scored = found.score(np.array(golden["clips"], np.float32))
        # float32 distances of these vectors differ by up to 1e-6 between processors
        for name in ("scores", "p_values", "weights", "by_view"):
            np.testing.assert_allclose(getattr(scored, name), golden[name], atol=1e-4)
        assert found.thresholds == pytest.approx(golden["thresholds"], abs=1e-6)

    def test_a_failed_write_leaves_the_old_file(self, model, tmp_path, monkeypatch):
        path = tmp_path / "press.daco"
        small_model(seed=1).save(path)
        before = path.read_bytes()

        def fail(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(DataError, match="No space left"):
            model.save(path)
        assert path.read_bytes() == before
        assert [each.name for each in tmp_path.iterdir()] == ["press.daco"]

    def test_a_description_that_grows_too_large_is_refused_when_written(self):
        with pytest.raises(ModelError, match="provenance"):
            small_model(provenance={"diary": "x" * MAX_DESCRIPTION}).to_bytes()

    def test_loading_computes_no_distances(self, content, monkeypatch):
        for name in ("leave_one_out", "examine", "score"):
            monkeypatch.setattr(NormalBank, name, lambda *_: pytest.fail("computed"))
        assert len(MachineModel.from_bytes(content)) == 52


class TestTheFileOnDisk:
    def test_must_be_a_regular_file_of_a_model(self, tmp_path, content):
        (tmp_path / "real.daco").write_bytes(content)
        (tmp_path / "link.daco").symlink_to("real.daco")
        assert len(MachineModel.load(tmp_path / "link.daco")) == 52
        (tmp_path / "cut.daco").write_bytes(content[:-1])
        (tmp_path / "dangling.daco").symlink_to("nowhere.daco")
        (tmp_path / "loop.daco").symlink_to("loop.daco")
        (tmp_path / "folder.daco").mkdir()
        (tmp_path / "empty.daco").touch()
        os.mkfifo(tmp_path / "pipe.daco")  # opening one for reading waits for a writer, for ever
        with (tmp_path / "giant.daco").open("wb") as file:
            file.truncate(1 << 40)
        for name, message in (
            ("cut", r"cut\.daco: .*truncated"),
            ("nowhere", "does not exist"),
            ("dangling", "does not exist"),
            ("loop", "cannot be opened"),
            ("folder", "is a folder"),
            ("empty", "not a model"),
            ("pipe", "not a regular file"),
            ("giant", "more than a model can have"),
        ):
            with pytest.raises(ModelError, match=message):
                MachineModel.load(tmp_path / f"{name}.daco")

    def test_a_glance_tells_models_from_other_files(self, tmp_path, content):
        (tmp_path / "a").write_bytes(content)
        (tmp_path / "b").write_bytes(b"RIFF" + bytes(100))
        (tmp_path / "c").touch()
        found = [is_model(tmp_path / name) for name in ("a", "b", "c", "d")]
        assert found == [True, False, False, False]


class TestDamage:
    def test_cut_off_anywhere(self, content):
        header = 8 + struct.unpack_from("<Q", content)[0]
        near = {border + step for border in (9, header) for step in range(-9, 10)}
        for cut in sorted(near | set(range(0, len(content), 97))):
            refused(content[:cut])

    def test_no_flipped_bit_goes_unnoticed(self, content):
        """Thousands of mutations of one to four bytes: an error, or the very same model."""
        rng = np.random.default_rng(0)
        header = 8 + struct.unpack_from("<Q", content)[0]
        survived = 0
        for number in range(3000):
            data = bytearray(content)
            stop = header if number % 2 else len(data)  # half of them in the header
            for at in rng.integers(0, stop, size=rng.integers(1, 5)):
                data[at] ^= 1 << rng.integers(8)
            try:
                found = MachineModel.from_bytes(bytes(data))
            except DacoError:
                continue
            survived += 1
            assert found.to_bytes() == content
        assert survived < 60  # the metadata of safetensors and blanks do not count

    def test_a_declared_terabyte_allocates_nothing(self, content):
        length = struct.unpack_from("<Q", content)[0]
        header = json.loads(content[8 : 8 + length])
        header["embeddings"] |= {"shape": [2**19, 2**19], "data_offsets": [0, 2**40]}
        text = json.dumps(header).encode()
        data = struct.pack("<Q", len(text)) + text + content[8 + length :]
        tracemalloc.start()
        refused(data, "damaged")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1 << 20


class TestTheTensors:
    def test_must_have_their_types_and_shapes(self, parts):
        for name in set(parts) - {"model", "sha256"}:
            other = parts[name].astype(np.float64 if "embeddings" in name else np.float32)
            refused(put_together({**parts, name: other}), name)
            refused(put_together({**parts, name: parts[name].astype(np.int64)}), "I64")
            if parts[name].dtype != np.uint8:
                refused(put_together({**parts, name: parts[name][:-1]}), "must be")
                refused(put_together({**parts, name: parts[name][..., None]}), "must be")

    @pytest.mark.parametrize(
        ("name", "value"),
        [
            *((name, np.nan) for name in ("embeddings", "new_embeddings", "reference_scores")),
            *((name, 3) for name in ("clip_domains", "new_domains", "reference_domains")),
            ("clip_domains", -1),
            ("clip_names", 0xFF),  # no UTF-8
            ("clip_names", 0),  # a name more
        ],
    )
    def test_must_have_possible_values(self, parts, name, value):
        spoilt = parts[name].copy()
        spoilt.flat[1] = value
        refused(put_together({**parts, name: spoilt}))

    def test_that_do_not_fit_their_hash_are_damaged(self, parts):
        spoilt = parts["embeddings"].copy()
        spoilt[0, 0] += 1
        refused(put_together({**parts, "embeddings": spoilt}, rehash=False), "fit its hash")
        turned = parts["embeddings"].reshape(8, -1)
        refused(put_together({**parts, "embeddings": turned}, rehash=False), "fit its hash")
        document = document_of(parts) | {"machine": "x"}
        refused(put_together(parts, document=document, rehash=False), "fit its hash")


class TestTheDescription:
    @pytest.mark.parametrize("schema", [5, 7, "6", None])
    def test_of_another_schema_says_what_to_do(self, parts, schema):
        document = document_of(parts) | {"schema": schema}
        refused(put_together(parts, document=document), "another version.*Fit the model again")

    def test_must_be_written_in_one_way(self, parts):
        text = parts["model"].tobytes()
        twice = text.replace(b'"machine":', b'"machine":"x","machine":', 1)
        for other in (text + b" ", twice, text.replace(b"0.1", b"1e-1", 1)):
            refused(put_together(parts, document=other), "not written as daco writes it")
        deep = b"[" * 100_000 + b"]" * 100_000
        for other in (b"[]", b"{}", b"x", deep, b'{"format":NaN}', b"\xff", b" " * (1 << 21)):
            refused(put_together(parts, document=other), "not a model of daco")

    def test_must_be_complete_and_hold_nothing_else(self, parts):
        document = document_of(parts)
        for name in set(document) - {"format", "schema"}:
            rest = {key: value for key, value in document.items() if key != name}
            refused(put_together(parts, document=rest), "a model holds")
        refused(put_together(parts, document=document | {"x": 1}), "a model holds")

    @pytest.mark.parametrize(
        ("path", "values"),
        [
            ("machine", [5, "", "x\0y", "x" * 2000]),
            ("config", [None, "raw", "conf-oracle-m0-k1", "raw-k200", "raw-k300"]),
            ("reason", [["x"], ""]),
            ("domains", [[], ["source", "target"], ["target", "source", "ночь"], [["x"]], "x"]),
            ("false_alarm_rate", ["0.1", 0, 1, True]),
            ("siblings", [-1, True, "all", None, 1.5]),
            ("views", [{}, [], {"names": ["a"], "sizes": [8]}, {"names": "ab", "sizes": [5, 3]}]),
            ("views/names", [["a", "a"], ["a+b", "c"], ["a", 3], [["a"], ["b"]]]),
            ("views/sizes", [[5, 4], [5, "3"], [8], [8, 0]]),
            ("frontend/backbone", ["siren", ["logmel"], None]),
            ("frontend/sample_rate", [10**12, "16000", True]),
            ("frontend/channel", [-1, [0], "0", True]),
            ("frontend/precision", ["fp4", None]),
            ("frontend/weights_sha256", ["../../etc/passwd", 5]),
            ("frontend/seconds", [-1.0, "10"]),
            ("frontend/package", ["x", 5]),
            ("frontend/others", [[], {}, [{}], [5]]),
            ("frontend", [{}, [], 5, None]),
            ("basis", [{}, [], {"source": {}}]),
            ("basis/source", [[], {}, {"kind": "training"}]),
            ("basis/source/kind", ["old", ["new"], None]),
            ("basis/source/clips", [-1, "9", None, True]),
            ("basis/source/when", [2026, "x" * 2000]),
            ("ranges", [[], {}, 5]),
            ("ranges/clips", [10**400, "3"]),
            ("ranges/limits", [{}, {"level": [0, 1]}]),
            ("ranges/limits/level", [[1], [1, 2, 3], ["a", "b"], 5]),
            ("provenance", [[], None]),
            ("provenance/updates", ["x", [1]]),
            ("provenance/earlier_updates", [-1, "1"]),
        ],
    )
    def test_must_hold_values_that_a_model_can_have(self, parts, path, values):
        *outer, last = path.split("/")
        for value in values:
            if (path, value) == ("frontend", None):
                continue  # a model of the user's own embeddings
            document = copy.deepcopy(document_of(parts))
            inner = document
            for key in outer:
                inner = inner[key]
            inner[last] = value
            refused(put_together(parts, document=document))
