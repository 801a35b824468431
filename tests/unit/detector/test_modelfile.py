"""The model file: the same bytes every time, whole or not at all, and hard to fool."""

from __future__ import annotations

import copy
import hashlib
import json
import os
import struct
import subprocess
import sys
import tracemalloc

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
from daco.detector.modelfile import MAX_HEADER, is_model
from daco.detector.ranges import learn_ranges
from daco.detector.revision import add_normals, calibrate_with
from daco.errors import DacoError, DataError, InputError, ModelError
from daco.method.bank import NormalBank
from daco.method.config import blind_pool

POOL = [config.name for config in blind_pool()]
TENSORS = ("reference_scores", "embeddings", "clip_domains", "reference_domains", "clip_names")

MODELS = ROOT / "tests" / "golden" / "models"
HASHES = [f"{row:064x}" for row in range(50)]
LIMITS = {name: [0.0, 1.0] for name in QUANTITIES}
BASIS = {"kind": "training", "clips": 9, "when": None}


@pytest.fixture(scope="module")
def model():
    return small_model(frontend=LOGMEL, config="conf-soft-m0-k1", false_alarm_rate=0.05)


@pytest.fixture(scope="module")
def content(model):
    return model.to_bytes()


@pytest.fixture
def parts(content):
    """Header and body of a sound file, to be spoilt."""
    return take_apart(content)


def take_apart(content):
    length = struct.unpack_from("<Q", content)[0]
    return json.loads(content[8 : 8 + length]), content[8 + length :]


def put_together(header, body, *, document=None, rehash=True):
    """The bytes of a file; with the hash an attacker would write, so that later checks speak."""
    header = copy.deepcopy(header)
    metadata = header.get("__metadata__")
    if document is not None:
        metadata["model"] = modelfile._canonical(document)
    if rehash and isinstance(metadata, dict) and isinstance(metadata.get("model"), str):
        canonical = modelfile._canonical(json.loads(metadata["model"]))
        text = f"daco-model {metadata.get('schema')}\n{canonical}\n".encode()
        metadata["sha256"] = hashlib.sha256(text + body).hexdigest()
    text = json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + body


def document_of(header):
    return json.loads(header["__metadata__"]["model"])


def refused(data, message=None):
    with pytest.raises(DacoError, match=message) as caught:
        MachineModel.from_bytes(data)
    assert str(caught.value).isprintable()  # whatever the file holds, a terminal is not steered
    assert len(str(caught.value)) < 500


class TestRoundTrip:
    @pytest.mark.parametrize("config", [*POOL, "conf-hard-m12.5-k2", "zscore-hard-k4"])
    def test_everything_comes_back(self, config, tmp_path):
        model = small_model(config=config, frontend=LOGMEL)
        path = tmp_path / "press.daco"
        model.save(path)
        loaded = MachineModel.load(path)
        for name in ("machine", "config", "frontend", "domains", "clip_names", "reason", "basis"):
            assert getattr(loaded, name) == getattr(model, name)
        for name in ("embeddings", "reference_scores", "reference_domains", "clip_domains"):
            np.testing.assert_array_equal(getattr(loaded, name), getattr(model, name))
        assert loaded.thresholds == model.thresholds
        assert loaded.false_alarm_rate == model.false_alarm_rate
        assert dict(loaded.provenance) == json.loads(json.dumps(model.provenance))
        assert loaded.sha256 == model.sha256
        clips = normals(seed=5)[0]
        for name, values in vars(model.score(clips)).items():
            np.testing.assert_array_equal(vars(loaded.score(clips))[name], values)
        loaded.save(tmp_path / "again.daco")
        assert (tmp_path / "again.daco").read_bytes() == path.read_bytes()

    def test_the_same_inputs_give_the_same_bytes_in_another_process(self, content):
        code = (
            "import sys; sys.path.insert(0, 'tests/helpers')\n"
            "from field_models import *\n"
            "options = {'config': 'conf-soft-m0-k1', 'false_alarm_rate': 0.05}\n"
            "sys.stdout.buffer.write(small_model(frontend=LOGMEL, **options).to_bytes())"
        )
        root = str(ROOT)
        found = subprocess.run([sys.executable, "-c", code], capture_output=True, cwd=root)
        assert found.returncode == 0, found.stderr
        assert found.stdout == content

    def test_safetensors_itself_can_read_it(self, model, tmp_path):
        path = tmp_path / "press.daco"
        model.save(path)
        tensors = safetensors.numpy.load_file(path)
        assert sorted(tensors) == sorted(TENSORS)
        np.testing.assert_array_equal(tensors["embeddings"], model.embeddings)
        with safetensors.safe_open(path, "np") as file:
            metadata = file.metadata()
        assert metadata["schema"] == "5"
        assert metadata["sha256"] == model.sha256
        assert json.loads(metadata["model"])["machine"] == "press"

    def test_what_safetensors_writes_again_is_still_a_model(self, model, tmp_path):
        """Another program may order the header otherwise; the content is the same."""
        path = tmp_path / "press.daco"
        model.save(path)
        with safetensors.safe_open(path, "np") as file:
            metadata = file.metadata()
        safetensors.numpy.save_file(safetensors.numpy.load_file(path), path, metadata)
        assert MachineModel.load(path).sha256 == model.sha256

    def test_hashes_of_recordings_come_back_and_grow_with_updates(self, tmp_path):
        hashes = ("", *(f"{row:064x}" for row in range(1, 50)))
        model = small_model(clip_sha256=hashes)
        model.save(tmp_path / "press.daco")
        safetensors.numpy.load_file(tmp_path / "press.daco")
        found = MachineModel.load(tmp_path / "press.daco")
        assert (found.clip_sha256, found.sha256) == (hashes, model.sha256)
        assert model.sha256 != small_model().sha256
        X, _ = normals(7)
        more = ["a" * 64, "b" * 64]
        names = ["x", "y"]
        updated = add_normals(model, X[:2], "source", names, clip_sha256=more)
        assert updated.clip_sha256 == (*hashes, *more)
        assert add_normals(model, X[:2], "source", names).clip_sha256 == (*hashes, "", "")
        late = add_normals(small_model(), X[:2], "source", names, clip_sha256=more)
        assert late.clip_sha256 == (*[""] * 50, *more)
        assert add_normals(small_model(), X[:2], "source", names).clip_sha256 == ()

    def test_sessions_new_clips_and_ranges_come_back(self):
        X, _ = normals(seed=7)
        ranges = learn_ranges(np.full((3, len(QUANTITIES)), -40.0), [16000])
        groups = ["", *(f"Schicht {row // 5}" for row in range(1, 50))]
        model = small_model(groups=groups, ranges=ranges)
        model = calibrate_with(model, X[:3], ["target"] * 3, ["a.wav", "ü.wav", "a.wav"])
        content = model.to_bytes()
        loaded = MachineModel.from_bytes(content)
        assert loaded.to_bytes() == content
        assert loaded.sha256 == model.sha256 == loaded.at_rate(model.false_alarm_rate).sha256
        assert (loaded.sessions, loaded.ranges) == (tuple(groups), ranges)
        assert loaded.new_names == ("a.wav", "ü.wav", "a.wav")
        np.testing.assert_array_equal(loaded.new_embeddings, X[:3])
        assert loaded.new_domains.tolist() == [1, 1, 1]
        assert loaded.basis == model.basis
        assert loaded.basis["target"]["kind"] == "new"
        assert loaded.basis["source"]["kind"] == "sessions"
        assert loaded.thresholds == model.thresholds
        bare = small_model().to_bytes()
        for name in (b"sessions", b"new_embeddings", b"new_domains", b"new_names"):
            assert name in content
            assert name not in bare

    @pytest.mark.parametrize(
        ("hashes", "says"), [(["a" * 64], "1 hashes for 50"), (["A" * 64] * 50, "must be a SHA")]
    )
    def test_hashes_that_are_none_are_refused(self, hashes, says):
        with pytest.raises(InputError, match=says):
            small_model(clip_sha256=hashes)

    def test_names_of_any_script_and_updates(self, tmp_path):
        names = ["a b.wav", "ü/ö.wav", "line\nbreak.wav"]
        model = small_model(machine="Presse №2 “süd”")
        model = add_normals(model, normals(seed=2)[0][:3], "ночь", names)
        model.save(tmp_path / "m.daco")
        loaded = MachineModel.load(tmp_path / "m.daco")
        assert loaded.machine == "Presse №2 “süd”"
        assert loaded.clip_names[-3:] == ("a b.wav", "ü/ö.wav", "line\nbreak.wav")
        assert loaded.domains == ("source", "target", "ночь")

    def test_a_failed_write_leaves_the_old_file(self, model, tmp_path, monkeypatch):
        path = tmp_path / "press.daco"
        small_model(seed=1).save(path)
        before = path.read_bytes()

        def fail(*_):
            raise OSError(28, "No space left on device")

        monkeypatch.setattr(os, "fsync", fail)
        with pytest.raises(DataError, match="Free some space"):
            model.save(path)
        assert path.read_bytes() == before
        assert [each.name for each in tmp_path.iterdir()] == ["press.daco"]

    def test_a_description_that_grows_too_large_is_refused_when_written(self):
        with pytest.raises(ModelError, match="provenance"):
            small_model(provenance={"diary": "x" * MAX_HEADER}).to_bytes()

    @pytest.mark.parametrize("schema", [1, 2, 3, 4])
    def test_files_of_every_schema_are_read_and_written_as_the_newest(self, schema):
        content = (MODELS / f"schema{schema}.daco").read_bytes()
        found = MachineModel.from_bytes(content)
        assert found.sha256.encode() in content
        votes = schema == 4
        assert (found.machine, len(found)) == ("press", 14)
        assert found.config == ("vote" if votes else "conf-soft-m0-k1")
        assert found.domain_sizes == found.reference.sizes == {"new": 4, "old": 10}
        two = Views(("mod", "cep"), (2, 2), (1, 1))
        assert found.bands == {1: 1, 2: 2, 3: 2, 4: two}[schema]
        assert found.frontend == (LOGMEL if schema == 1 else None)
        assert found.clip_sha256[1:2] == ((f"{1:064x}",) if schema > 2 else ())
        # 1e-6 is ten times the rounding of a float32 distance between these vectors
        own = found.bank.leave_one_out(found.config)[:, 0]
        np.testing.assert_allclose(own, found.reference_scores, atol=1e-5 if votes else 1e-6)
        assert found.reference.kinds == dict.fromkeys(found.domains, "training")
        assert "training recordings only" in found.basis_sentence()
        scored = found.score(-found.embeddings)
        assert (scored.alarms == (scored.p_values <= 0.1)).all()
        written = found.to_bytes()
        assert b'"schema":"5"' in written
        again = MachineModel.from_bytes(written)
        assert again.to_bytes() == written
        assert again.thresholds == found.thresholds
        grown = add_normals(found, -found.embeddings[:1], "new", ["x"])
        assert grown.reference.sizes == {"new": 5, "old": 10}

    @pytest.mark.parametrize("schema", [1, 2, 3, 4])
    @pytest.mark.parametrize("code", [-1, 2, 2**31 - 1, -(2**31)])
    def test_old_files_with_domains_that_are_none_are_refused(self, schema, code):
        """A number of any size costs an error, and not the memory to count so far."""
        header, body = take_apart((MODELS / f"schema{schema}.daco").read_bytes())
        start = header["clip_domains"]["data_offsets"][0]
        spoilt = body[:start] + np.array([code], "<i4").tobytes() + body[start + 4 :]
        tracemalloc.start()
        refused(put_together(header, spoilt), "none of the 2 domains")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1 << 20
        for domains in (["new", ["old"]], [{}, "old"], ["new", 5]):
            document = document_of(header) | {"domains": domains}
            refused(put_together(header, body, document=document), "domain is a text")

    @pytest.mark.parametrize("value", ["0.9", None, True])
    def test_old_files_need_the_threshold_that_is_no_longer_used(self, value):
        header, body = take_apart((MODELS / "schema3.daco").read_bytes())
        document = document_of(header) | {"threshold": value}
        if value is not True:
            refused(put_together(header, body, document=document), "threshold cannot be")
        del document["threshold"]
        refused(put_together(header, body, document=document), "description must hold .*threshold")

    def test_loading_computes_no_distances(self, content, monkeypatch):
        for name in ("leave_one_out", "examine", "score"):
            monkeypatch.setattr(NormalBank, name, lambda *_: pytest.fail("computed"))
        assert MachineModel.from_bytes(content).machine == "press"


class TestTheFileOnDisk:
    def test_is_named_in_the_error(self, tmp_path, content):
        path = tmp_path / "press.daco"
        path.write_bytes(content[:-1])
        with pytest.raises(ModelError, match=r"press\.daco: truncated"):
            MachineModel.load(path)

    def test_may_be_a_link_to_a_model_but_nothing_else(self, tmp_path, content):
        (tmp_path / "real.daco").write_bytes(content)
        (tmp_path / "link.daco").symlink_to("real.daco")
        assert MachineModel.load(tmp_path / "link.daco").machine == "press"
        (tmp_path / "dangling.daco").symlink_to("nowhere.daco")
        (tmp_path / "loop.daco").symlink_to("loop.daco")
        (tmp_path / "folder.daco").mkdir()
        (tmp_path / "empty.daco").touch()
        os.mkfifo(tmp_path / "pipe.daco")  # opening one for reading waits for a writer, for ever
        for name, message in (
            ("nowhere", "does not exist"),
            ("dangling", "does not exist"),
            ("loop", "cannot be opened"),
            ("folder", "is a folder"),
            ("empty", "0 bytes are too few"),
            ("pipe", "not a regular file"),
        ):
            with pytest.raises(ModelError, match=message):
                MachineModel.load(tmp_path / f"{name}.daco")
        with pytest.raises(ModelError, match="not a regular file"):
            MachineModel.load(type(tmp_path)("/dev/zero"))

    def test_a_sparse_giant_is_not_read(self, tmp_path):
        path = tmp_path / "giant.daco"
        with path.open("wb") as file:
            file.truncate(1 << 40)
        with pytest.raises(ModelError, match="more than a model can have"):
            MachineModel.load(path)

    def test_a_glance_tells_models_from_other_files(self, tmp_path, content):
        (tmp_path / "a").write_bytes(content)
        (tmp_path / "b").write_bytes(b"RIFF" + bytes(100))
        (tmp_path / "c").touch()
        found = [is_model(tmp_path / name) for name in ("a", "b", "c", "d")]
        assert found == [True, False, False, False]


class TestDamage:
    def test_cut_off_anywhere(self, content):
        """At every byte of the length and around every border, and a sample of the rest."""
        length = struct.unpack_from("<Q", content)[0]
        body = 8 + length
        borders = [0, 8, body, body + 400, body + 400 + 50 * 8 * 4, body + 400 + 1600 + 200]
        near = {border + step for border in borders for step in range(-9, 10)}
        lengths = near | set(range(0, len(content), 97))
        for cut in sorted(cut for cut in lengths if 0 <= cut < len(content)):
            refused(content[:cut], "truncated|too few|damaged|not a model")

    def test_bytes_moved_removed_and_put_in(self, content):
        rng = np.random.default_rng(1)
        for _ in range(500):
            a, b = sorted(rng.integers(0, len(content), 2))
            for data in (
                content[:a] + content[b:],
                content[:a] + content[a:b][::-1] + content[b:],
                content[:a] + rng.bytes(b - a) + content[b:],
                content[:a] + rng.bytes(9) + content[a:],
            ):
                if data != content:
                    refused(data)

    def test_anything_else(self, content):
        rng = np.random.default_rng(2)
        for size in (0, 1, 7, 8, 9, 10, 100, 5000):
            for _ in range(20):
                refused(rng.bytes(size))
        for text in (b"{}", b"[]", b"null", b'"x"', b"{" * 50, b"1" * 5000, b"\xff\xfe" * 4):
            refused(struct.pack("<Q", len(text)) + text, "not a model|damaged")
        for more in (b"\0", bytes(8), content):
            refused(content + more, "damaged")

    def test_no_flipped_bit_goes_unnoticed(self, content):
        """Thousands of mutations of one to four bytes: an error, or the very same model."""
        rng = np.random.default_rng(0)
        original = MachineModel.from_bytes(content)
        clips = normals(seed=5)[0]
        scores = original.score(clips).scores
        length = struct.unpack_from("<Q", content)[0]
        survived = 0
        for number in range(4000):
            data = bytearray(content)
            # half of them in the header, which is the smaller part and the riskier one
            stop = 8 + length if number % 2 else len(data)
            for at in rng.integers(0, stop, size=rng.integers(1, 5)):
                data[at] ^= 1 << rng.integers(8)
            if bytes(data) == content:
                continue
            try:
                found = MachineModel.from_bytes(bytes(data))
            except DacoError:
                continue
            survived += 1
            np.testing.assert_array_equal(found.score(clips).scores, scores)
            assert found.thresholds == original.thresholds
        assert survived < 40  # white space at the end of the header is all there is to change


class TestTheHeader:
    def test_of_a_newer_schema_is_refused_by_name(self, parts):
        header, body = parts
        header["__metadata__"]["schema"] = "6"
        message = r"made by a newer daco \(schema 6, this one reads up to 5\): upgrade"
        refused(put_together(header, body), message)
        # whatever else a newer one may look like
        other = {"__metadata__": {"format": "daco-model", "schema": "7"}, "x": []}
        refused(put_together(other, b""), "schema 7")

    def test_must_name_a_number_of_bands_that_divides_the_vectors(self, parts):
        header, body = parts
        document = document_of(header)
        for bands in ("2", 7, 0, True, None, {}, [2]):
            refused(put_together(header, body, document=document | {"bands": bands}), "bands|views")
        old, body = take_apart((MODELS / "schema2.daco").read_bytes())
        document = document_of(old)
        for bands in ("2", 7, 0, True):
            refused(put_together(old, body, document=document | {"bands": bands}), "bands")
        views = {"names": ["a", "b"], "sizes": [2, 2], "bands": [1, 1]}
        refused(put_together(old, body, document=document | {"bands": views}), "in this schema")

    def test_of_a_schema_has_the_tensors_of_that_schema(self, parts):
        header, body = parts
        for schema in "1234":
            header["__metadata__"]["schema"] = schema
            refused(put_together(header, body), "a model holds the tensors own_scores")
        old, body = take_apart((MODELS / "schema1.daco").read_bytes())
        for schema, message in (("2", "description must hold"), ("3", "clip_sha256"), ("5", "ref")):
            old["__metadata__"]["schema"] = schema
            refused(put_together(old, body), message)

    @pytest.mark.parametrize("write", [lambda: small_model(clip_sha256=HASHES).to_bytes(),
                                       (MODELS / "schema3.daco").read_bytes])  # fmt: skip
    def test_must_have_one_hash_of_each_clip(self, write):
        header, body = take_apart(write())
        clips = header["clip_sha256"]["shape"][0]
        header["clip_sha256"]["shape"] = [clips // 2, 64]
        refused(put_together(header, body), f"{clips} clips need {clips} hashes of 32 bytes")

    @pytest.mark.parametrize("schema", ["", "0", "-1", "1.0", "one", "²", "9" * 5000])
    def test_whose_schema_is_no_number_is_refused(self, parts, schema):
        header, body = parts
        header["__metadata__"]["schema"] = schema
        refused(put_together(header, body), "schema must be a number")

    def test_of_another_program_is_refused(self, parts):
        header, body = parts
        for metadata in (None, {}, [], "x", {"format": "pt"}, {"format": 1}):
            refused(put_together({**header, "__metadata__": metadata}, body), "not a model of daco")
        del header["__metadata__"]
        refused(put_together(header, body), "not a model of daco")

    def test_may_not_be_larger_than_its_bound_whatever_the_file_holds(self, content):
        for length in (MAX_HEADER + 1, 2**31, 2**63, 2**64 - 1):
            refused(struct.pack("<Q", length) + content[8:], "not a model of daco, or damaged")
        padding = MAX_HEADER + 1
        refused(struct.pack("<Q", padding) + b"{" + b" " * padding, "not a model of daco")
        refused(struct.pack("<Q", len(content)) + content[8:], "truncated")

    def test_may_not_be_deep(self, parts):
        header, body = parts
        deep = "[" * 100_000 + "]" * 100_000
        for text in (deep, '{"x": ' + deep + "}"):
            refused(struct.pack("<Q", len(text)) + text.encode(), "not JSON")
        document = document_of(header)
        nested: list = []
        for _ in range(20):
            nested = [nested]
        document["provenance"]["x"] = nested
        refused(put_together(header, body, document=document), "nested more than")

    def test_may_name_no_key_twice(self, parts):
        header, body = parts
        text = json.dumps(header)
        for twice in (
            text[:-1] + ', "embeddings": ' + json.dumps(header["embeddings"]) + "}",
            text.replace('"dtype": "F32"', '"dtype": "F32", "dtype": "F32"'),
            text.replace('"schema": "5"', '"schema": "9", "schema": "5"'),
        ):
            refused(struct.pack("<Q", len(twice)) + twice.encode() + body, "names a key twice")
        document = header["__metadata__"]["model"]
        header["__metadata__"]["model"] = document.replace('"config"', '"config":"x","config"', 1)
        refused(put_together(header, body, rehash=False), "names a key twice")

    @pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e999", "1" * 5000])
    def test_may_hold_no_number_that_is_none(self, parts, number):
        header, body = parts
        text = header["__metadata__"]["model"]
        for known in ('"false_alarm_rate":0.05', '"clips":40', '"seconds":10.0'):
            broken = text.replace(known, f"{known.split(':')[0]}:{number}")
            assert broken != text
            header["__metadata__"]["model"] = broken
            refused(put_together(header, body, rehash=False), "NaN or infinity|not JSON")

    def test_that_is_no_utf8_is_refused(self, content, parts):
        header, body = parts
        refused(content[:20] + b"\xff" + content[21:], "not UTF-8")
        text = header["__metadata__"]["model"].replace('"press"', '"\\ud800"')
        header["__metadata__"]["model"] = text
        refused(put_together(header, body, rehash=False), "UTF-8|hash")


class TestTheTensors:
    @pytest.mark.parametrize("name", TENSORS)
    def test_must_be_there_and_no_others(self, parts, name):
        header, body = parts
        refused(put_together({**header, "extra": header[name]}, body), "damaged")
        for other in ("extra", "\ud800"):
            renamed = {key if key != name else other: value for key, value in header.items()}
            refused(put_together(renamed, body), "holds the tensors|damaged")
        del header[name]
        refused(put_together(header, body), "damaged")

    @pytest.mark.parametrize(
        ("field", "values"),
        [
            ("dtype", ["F16", "BF16", "I64", "BOOL", "f4", "", None, 4, []]),
            (
                "shape",
                [
                    *([], [50], [50, 8, 1], [8, 51], [-50, -8], [50.0, 8], ["50", 8], [True, 400]),
                    *([0, 8], [2**62, 2**62], [2**31, 2**31], None, "50x8", {"0": 50}),
                ],
            ),
            (
                "data_offsets",
                [
                    *([0, 0], [400, 399], [-8, 1592], [400, 2001], [401, 2001], [400], None),
                    *([2**63, 2**63 + 1600], [400, 2000, 0], [400.0, 2000], ["400", 2000]),
                ],
            ),
        ],
    )
    def test_must_be_declared_as_they_are(self, parts, field, values):
        header, body = parts
        for name in TENSORS:
            for value in values:
                spoilt = copy.deepcopy(header)
                if spoilt[name][field] != value:
                    spoilt[name][field] = value
                    refused(put_together(spoilt, body), "damaged")

    def test_may_not_overlap_or_leave_gaps(self, parts):
        header, body = parts
        for name, offsets in (("reference_scores", [8, 408]), ("clip_domains", [0, 200])):
            moved = copy.deepcopy(header)
            moved[name]["data_offsets"] = offsets  # into another tensor
            refused(put_together(moved, body), "damaged")
        for name in set(TENSORS) - {"reference_scores"}:
            header[name]["data_offsets"] = [each + 8 for each in header[name]["data_offsets"]]
        refused(put_together(header, body[:400] + bytes(8) + body[400:]), "damaged")

    def test_must_agree_about_the_number_of_clips(self, parts):
        header, body = parts
        header["embeddings"]["shape"] = [25, 16]
        refused(put_together(header, body), "50 clip names for 25 clips")

    def test_of_sizes_nobody_has_allocate_nothing(self, parts):
        """A declared terabyte costs an error: memory follows the file, not its claims."""
        header, body = parts
        header["embeddings"] = {"dtype": "F32", "shape": [2**19, 2**19], "data_offsets": [0, 2**40]}
        data = put_together(header, body)
        tracemalloc.start()
        refused(data, "damaged|truncated")
        peak = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert peak < 1 << 20

    @pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf])
    def test_must_be_finite(self, parts, value):
        header, body = parts
        for name, dtype in (("embeddings", "<f4"), ("reference_scores", "<f8")):
            start = header[name]["data_offsets"][0]
            bad = np.array([value], dtype).tobytes()
            spoilt = body[: start + 16] + bad + body[start + 16 + len(bad) :]
            refused(put_together(header, spoilt), f"{name} contain NaN or inf")

    @pytest.mark.parametrize("code", [-1, 2, 2**31 - 1, -(2**31)])
    def test_must_name_domains_that_are_known(self, parts, code):
        header, body = parts
        start = header["clip_domains"]["data_offsets"][0]
        spoilt = body[:start] + np.array([code], "<i4").tobytes() + body[start + 4 :]
        refused(put_together(header, spoilt), "none of the 2 domains")
        start = header["reference_domains"]["data_offsets"][0]
        spoilt = body[:start] + np.array([code], "<i4").tobytes() + body[start + 4 :]
        refused(put_together(header, spoilt), "2 domains must have a reference score")

    def test_of_new_clips_must_be_complete_and_fit(self):
        X, _ = normals(seed=7)
        model = calibrate_with(small_model(), X[:3], ["target"] * 3)
        header, body = take_apart(model.to_bytes())
        for name in ("new_embeddings", "new_domains", "new_names"):
            rest = {key: value for key, value in header.items() if key != name}
            refused(put_together(rest, body), "damaged")
        start = header["new_domains"]["data_offsets"][0]
        spoilt = body[:start] + np.array([2], "<i4").tobytes() + body[start + 4 :]
        refused(put_together(header, spoilt), "domain of a new clip is none of the 2")
        start, stop = header["new_names"]["data_offsets"]
        spoilt = body[:start] + b"0_1_2" + body[stop:]
        assert stop - start == 5
        refused(put_together(header, spoilt), "1 clip names for 3 clips")
        header["new_embeddings"]["shape"] = [6, 4]
        refused(put_together(header, body), "3 clip names for 6|new_embeddings must be|6 clip")

    def test_must_name_every_clip(self, parts):
        header, body = parts
        start, stop = header["clip_names"]["data_offsets"]
        names = body[start:stop]
        refused(put_together(header, body[:start] + names.replace(b"\0", b"_", 1)), "49 clip names")
        refused(put_together(header, body[:start] + b"\xff" + names[1:]), "not UTF-8")
        blank = b"\0" * 49 + b"x" * (len(names) - 49)
        refused(put_together(header, body[:start] + blank), "clip name")


class TestTheDescription:
    @pytest.mark.parametrize(
        ("name", "value", "message"),
        [
            ("machine", 5, "machine cannot be"),
            ("machine", "", "machine is a text"),
            ("config", "raw-k0", "Unknown configuration"),
            ("config", "raw-k" + "9" * 5000, "at most 64 characters"),
            ("config", "conf-oracle-m0-k1", "true domain"),
            ("config", "conf-soft-m" + "9" * 40 + ".5-k1", "Unknown configuration"),
            ("config", "raw-k300", "256 at most"),
            ("config", "conf-soft-m0-k200", "needs a bank of 201 clips"),
            ("config", None, "config cannot be"),
            ("frontend", [], "frontend cannot be"),
            ("frontend", {}, "not complete"),
            ("frontend", {"backbone": "logmel"}, "not complete"),
            ("domains", ["target", "source"], "different and sorted"),
            ("domains", ["source", "source"], "different and sorted"),
            ("domains", ["source"], "none of the 1 domains"),
            ("domains", ["source", "target", "third"], "3 domains must have a clip"),
            ("domains", ["source", 5], "domain is a text"),
            ("domains", ["source", ["target"]], "domain is a text"),
            ("domains", [], "different and sorted"),
            ("domains", "source", "domains cannot be"),
            ("false_alarm_rate", 1.5, "between 0 and 1"),
            ("false_alarm_rate", 0.0, "between 0 and 1"),
            ("false_alarm_rate", -0.1, "between 0 and 1"),
            ("false_alarm_rate", 1, "false_alarm_rate cannot be"),
            ("false_alarm_rate", True, "false_alarm_rate cannot be"),
            ("basis", [], "basis cannot be"),
            ("basis", {}, "basis must describe"),
            ("basis", {"source": BASIS}, "basis must describe"),
            ("basis", {"source": BASIS, "third": BASIS}, "basis must describe"),
            ("basis", {"source": BASIS, "target": []}, "basis must describe"),
            ("basis", {"source": BASIS, "target": {}}, "basis must describe"),
            ("basis", {"source": BASIS, "target": BASIS | {"kind": "old"}}, "basis must describe"),
            (
                "basis",
                {"source": BASIS, "target": BASIS | {"kind": ["new"]}},
                "basis must describe",
            ),
            ("basis", {"source": BASIS, "target": BASIS | {"clips": -1}}, "basis must describe"),
            ("basis", {"source": BASIS, "target": BASIS | {"clips": "9"}}, "basis must describe"),
            ("basis", {"source": BASIS, "target": BASIS | {"when": 2026}}, "basis must describe"),
            (
                "basis",
                {"source": BASIS, "target": BASIS | {"when": "x" * 99}},
                "basis must describe",
            ),
            ("ranges", [], "ranges cannot be"),
            ("ranges", {}, "ranges of a model are numbers"),
            ("ranges", {"clips": 10**400, "sample_rates": [], "limits": LIMITS}, "are numbers"),
            ("ranges", {"clips": "3", "sample_rates": [], "limits": LIMITS}, "are numbers"),
            ("reason", ["x"], "reason cannot be"),
            ("reason", "x" * 10_000, "reason is a text"),
            ("provenance", [], "provenance cannot be"),
            ("provenance", {"updates": "x"}, "list of objects"),
            ("provenance", {"updates": [1]}, "list of objects"),
            ("provenance", {"updates": [], "earlier_updates": -1}, "list of objects"),
        ],
    )
    def test_must_be_one_that_a_model_can_have(self, parts, name, value, message):
        header, body = parts
        document = document_of(header) | {name: value}
        refused(put_together(header, body, document=document), message)

    @pytest.mark.parametrize(
        ("name", "value", "message"),
        [
            ("backbone", "siren", "No such network"),
            ("backbone", ["logmel"], "No such network"),
            ("sample_rate", 10**12, "cannot be 1000000000000 Hz"),
            ("sample_rate", "16000", "No such network"),
            ("channel", -1, "channel must be"),
            ("channel", [0], "channel must be"),
            ("precision", "fp4", "No such network"),
            ("resampler", "best", "No such network"),
            ("weights_sha256", "../../etc/passwd", "SHA-256"),
            ("seconds", -1.0, "in seconds"),
            ("readout", None, "readout is a text"),
        ],
    )
    def test_must_name_a_network_that_exists(self, parts, name, value, message):
        header, body = parts
        document = document_of(header)
        document["frontend"] |= {name: value}
        refused(put_together(header, body, document=document), message)

    def test_must_be_complete_and_hold_nothing_else(self, parts):
        header, body = parts
        document = document_of(header)
        for name in document:
            rest = {key: value for key, value in document.items() if key != name}
            refused(put_together(header, body, document=rest), "description must hold")
        refused(put_together(header, body, document=document | {"x": 1}), "description must hold")
        header["__metadata__"]["model"] = "[]"
        refused(put_together(header, body), "not a JSON object")


class TestTheContent:
    def test_that_does_not_fit_its_hash_is_damaged(self, parts):
        header, body = parts
        document = document_of(header) | {"machine": "Press"}
        refused(put_together(header, body, document=document, rehash=False), "fit its hash")
        spoilt = body[:500] + bytes([body[500] ^ 1]) + body[501:]
        refused(put_together(header, spoilt, rehash=False), "fit its hash")
        header["__metadata__"]["sha256"] = "0" * 64
        refused(put_together(header, body, rehash=False), "fit its hash")
        for pin in ("", "x", "\x1b[31m", "\ud800" * 64, "0" * 63 + "O"):
            header["__metadata__"]["sha256"] = pin
            refused(put_together(header, body, rehash=False), "not a SHA-256")


def test_a_model_of_bands_comes_back_with_them_and_scores_the_same(tmp_path):
    rng = np.random.default_rng(4)
    X = rng.normal(size=(60, 12)) + 1
    model = MachineModel.fit(
        X,
        ["old"] * 50 + ["new"] * 10,
        machine="press",
        config="conf-soft-m0-beam-varmin-K4",
        bands=3,
    )
    model.save(tmp_path / "press.daco")
    again = MachineModel.load(tmp_path / "press.daco")
    assert again.bands == again.bank.bands == 3
    assert again.sha256 == model.sha256
    query = rng.normal(size=(9, 12))
    np.testing.assert_array_equal(again.score(query).scores, model.score(query).scores)
    other = MachineModel.fit(
        X, ["old"] * 50 + ["new"] * 10, machine="press", config="conf-soft-m0-varmin-K4"
    )
    assert (other.score(query).scores != model.score(query).scores).any()
    assert add_normals(model, query, "new", [f"n{i}" for i in range(9)]).bands == 3
