"""``daco fit``, ``score``, ``update`` and ``inspect`` as a plant engineer types them."""

from __future__ import annotations

import csv
import io
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import soundfile
from shared_data import shared
from typer.testing import CliRunner

from daco.commands.app import app
from daco.detector.model import MachineModel
from daco.detector.modelfile import SCHEMA
from daco.errors import DataError, InputError, ModelError, WeightsError
from daco.files.hashing import sha256_of_file

RATE = 16000


def run(*arguments, **options):
    return CliRunner().invoke(app, list(map(str, arguments)), env={"COLUMNS": "80"}, **options)


def ok(*arguments, code=0, **options):
    result = run(*arguments, **options)
    assert result.exit_code == code, (result.output, result.exception)
    return result


def program(*arguments, **options):
    """The command in a process of its own, errors shown as users see them."""
    return subprocess.run(
        [sys.executable, "-m", "daco.cli", *map(str, arguments)],
        capture_output=True,
        env={**os.environ, "COLUMNS": "80"},
        **options,
    )


def lines_fit(text):
    return all(len(line) <= 80 for line in text.splitlines())


@pytest.fixture(scope="module")
def models(tmp_path_factory):
    """Models of the two real machines, fitted by one command."""
    folder = tmp_path_factory.mktemp("field") / "models"
    source = shared("real", "audio")
    options = ("--config", "choose", "--false-alarm-rate", 0.1)
    return folder, ok("fit", source, "--out", folder, *options)


@pytest.fixture(scope="module")
def real():
    return shared("real", "audio")


@pytest.fixture(scope="module")
def drill(tmp_path_factory):
    """A made-up machine: hums in two domains, of half a second, and a fitted model."""
    root = tmp_path_factory.mktemp("drill") / "drill"
    for domain, hertz, count in (("day", 200, 16), ("night", 320, 8)):
        for index in range(count):
            hum(root / domain / f"{domain}{index:02}.wav", hertz, index)
    model = root.parent / "drill.daco"
    ok("fit", root, "--out", model, "--false-alarm-rate", 0.2)
    return root, model


def hum(path, hertz, seed, seconds=0.5, modulation=8.0):
    """A hum whose level and wobble differ from clip to clip; an odd wobble is a fault."""
    rng = np.random.default_rng(seed)
    time = np.arange(round(seconds * RATE)) / RATE
    wobble = 1 + 0.3 * np.sin(2 * np.pi * modulation * time + rng.uniform(0, 6))
    wave = 0.2 * wobble * np.sin(2 * np.pi * hertz * time) + rng.normal(0, 0.03, len(time))
    path.parent.mkdir(parents=True, exist_ok=True)
    soundfile.write(path, wave, RATE)
    return path


class TestFit:
    def test_several_machines_give_several_files(self, models):
        folder, result = models
        assert sorted(path.name for path in folder.iterdir()) == ["bearing.daco", "fan.daco"]
        assert lines_fit(result.stdout.replace(str(folder), ""))
        for name in ("bearing", "fan"):
            model = MachineModel.load(folder / f"{name}.daco")
            assert model.machine == name
            assert model.domain_sizes == {"source": 40, "target": 10}
            assert model.frontend.seconds == 10.0
            assert all("_train_" in clip for clip in model.clip_names)  # never a test clip
            assert model.provenance["source"] == "audio"

    def test_it_says_why_and_what_it_will_do(self, models):
        _, result = models
        text = " ".join(result.stdout.split())
        assert text.count("that 1 in 10 healthy recordings is called anomalous") == 2
        assert text.count("run daco calibrate with 25 new healthy recordings") == 2
        assert text.count("false alarms on new recordings") == 2  # a table for each machine
        for jargon in ("onfiguration", "domain", "threshold", "sha256", "view", "conf-soft"):
            assert jargon not in text
        assert "warning" not in text
        verbose = " ".join(ok("inspect", models[0] / "fan.daco", "--verbose").stdout.split())
        assert "Configuration conf-soft-m0-k1: the fixed default" in verbose
        assert "of 100 resamples" in verbose
        fan = MachineModel.load(models[0] / "fan.daco")
        for name in fan.domains:
            assert f"unknown │ {fan.thresholds[name]:.4g}" in verbose

    def test_by_default_scores_are_blended_over_all_weight_free_views(self, drill, tmp_path):
        root, _ = drill
        text = " ".join(ok("fit", root, "--out", tmp_path / "m.daco", "--verbose").stdout.split())
        assert "Configuration blend: " in text
        assert "Views: mod, mod60, env, cep. The view mod finds the most similar normal." in text
        shown = " ".join(ok("inspect", tmp_path / "m.daco", "--verbose").stdout.split())
        assert "readout mod+mod60+env+cep; 984 values" in shown
        hum(tmp_path / "faulty.wav", 200, 98, modulation=1.0)
        (verdict,) = map(json.loads, ok("score", tmp_path / "m.daco", tmp_path / "faulty.wav",
                                        "--json").stdout.splitlines())  # fmt: skip
        assert verdict["anomalous"]
        (reason,) = [each for each in verdict["reasons"] if each.startswith("views: ")]
        assert "rhythm up to 15 Hz: " in reason
        assert "deviations above the normals" in reason
        assert verdict["views"].keys() == {"mod", "mod60", "env", "cep"}
        assert np.mean([*verdict["views"].values()]) == pytest.approx(verdict["score"])
        ok("fit", root, "--out", tmp_path / "one.daco", "--readout", "env")
        assert MachineModel.load(tmp_path / "one.daco").readout == "env"

    def test_it_ends_with_what_would_be_noticed(self, drill, tmp_path):
        root, _ = drill
        lines = ok("fit", root, "--out", tmp_path / "m.daco").stdout
        text = " ".join(lines.split())
        assert "faults in 6 recordings, levels relative to the recording: - impacts: " in text
        assert "tones: " in text
        assert "off: caught from " in text
        ok("embed", root, "--out", tmp_path / "e.parquet")
        text = ok("fit", tmp_path / "e.parquet", "--out", tmp_path / "m.daco").stdout
        assert "can measure which faults the model catches only in recordings" in " ".join(
            text.split()
        )

    def test_a_small_bank_says_what_the_blend_leaves_out(self, drill, tmp_path):
        (tmp_path / "few").mkdir()
        for clip in sorted((drill[0] / "day").iterdir())[:6]:
            shutil.copy(clip, tmp_path / "few")
        text = ok("fit", tmp_path / "few", "--out", tmp_path / "m.daco", "--verbose").stdout
        described = json.loads(ok("inspect", tmp_path / "m.daco", "--json").stdout)
        assert described["left_out_of_blend"] == ["ldn-ratio-K16"]
        assert "too few normals for ldn-ratio-K16 of the blend" in " ".join(text.split())

    def test_hidden_siblings_are_an_option(self, drill, tmp_path):
        root, _ = drill
        for number in ("0", "3"):
            ok("fit", root, "--out", tmp_path / f"{number}.daco", "--siblings", number)
        none, three = (MachineModel.load(tmp_path / f"{number}.daco") for number in ("0", "3"))
        assert (none.siblings, three.siblings) == (0, 3)
        assert three.reference_scores.mean() > none.reference_scores.mean()
        result = run("fit", root, "--out", tmp_path / "m.daco", "--siblings", "few")
        assert "'siblings' parameter must be 'auto' or" in str(result.exception)

    def test_a_rate_that_the_clips_do_not_support_is_warned_about(self, drill, tmp_path):
        root, _ = drill
        result = ok("fit", root, "--out", tmp_path / "m.daco", "--false-alarm-rate", 0.05)
        text = " ".join(result.stdout.split())
        said = f"0.05 is below {1 / 9:.3g}, the smallest that 8 clips of night can support"
        assert f"{said}: the threshold is extrapolated" in text
        assert "Calibrate with at least 19 new normals of night." in text
        assert "16 clips of day" in text

    def test_the_same_command_gives_the_same_bytes(self, drill, tmp_path, monkeypatch):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", "1767323045")
        root, _ = drill
        for name in ("a.daco", "b.daco"):
            ok("fit", root, "--out", tmp_path / name)
        assert (tmp_path / "a.daco").read_bytes() == (tmp_path / "b.daco").read_bytes()

    def test_a_replaced_model_is_kept_and_comes_back(self, drill, tmp_path):
        root, fitted = drill
        model = shutil.copy(fitted, tmp_path / "m.daco")
        before = model.read_bytes()
        text = ok("fit", root, "--out", model, "--false-alarm-rate", 0.1).stdout
        assert "The previous model is kept as m.daco.previous." in " ".join(text.split())
        assert (tmp_path / "m.daco.previous").read_bytes() == before != model.read_bytes()
        ok("update", model, "--undo")
        assert model.read_bytes() == before
        assert "previous" not in ok("fit", root, "--out", tmp_path / "first.daco").stdout

    def test_embeddings_do_instead_of_recordings(self, drill, tmp_path):
        root, model = drill
        ok("embed", root, "--out", tmp_path / "e.parquet", "--readout", "mod+mod60+env+cep")
        ok("fit", tmp_path / "e.parquet", "--out", tmp_path / "m.daco", "--false-alarm-rate", 0.2)
        first, second = MachineModel.load(model), MachineModel.load(tmp_path / "m.daco")
        np.testing.assert_array_equal(first.embeddings, second.embeddings)
        assert first.thresholds == second.thresholds
        X = np.random.default_rng(0).normal(size=(30, 5))
        np.savez(tmp_path / "own.npz", embedding=X, domain=["a"] * 20 + ["b"] * 10)
        ok("fit", tmp_path / "own.npz", "--out", tmp_path / "own.daco", "--config", "raw-k2")
        own = MachineModel.load(tmp_path / "own.daco")
        assert own.frontend is None
        assert own.config == "raw-k2"
        assert "named by the user" in ok("inspect", tmp_path / "own.daco", "--verbose").stdout

    def test_a_broken_recording_stops_or_is_left_out(self, drill, tmp_path):
        root = shutil.copytree(drill[0], tmp_path / "drill")
        (root / "day" / "day03.wav").write_bytes(b"RIFFnothing")
        result = run("fit", root, "--out", tmp_path / "m.daco", "--on-error", "fail")
        assert "day03.wav" in str(result.exception)
        assert not (tmp_path / "m.daco").exists()
        result = ok("fit", root, "--out", tmp_path / "m.daco", code=4)
        assert "Left out 1 recording" in result.stdout
        assert "day03.wav" in result.stdout
        assert len(MachineModel.load(tmp_path / "m.daco")) == 23

    def test_a_folder_of_machines_makes_a_model_of_each(self, drill, tmp_path):
        for machine in ("fan", "motor"):
            shutil.copytree(drill[0], tmp_path / "plant" / machine)
        result = ok("fit", tmp_path / "plant", "--out", f"{tmp_path / 'models'}/")
        assert "Read as 2 machines" in result.stderr
        names = sorted(path.name for path in (tmp_path / "models").iterdir())
        assert names == ["fan.daco", "motor.daco"]

    def test_a_name_with_a_slash_is_a_folder(self, drill, tmp_path):
        ok("fit", drill[0], "--out", f"{tmp_path / 'new'}/")
        assert [path.name for path in (tmp_path / "new").iterdir()] == ["drill.daco"]

    def test_mistakes_are_said_before_any_work(self, drill, tmp_path):
        root, _ = drill
        for arguments, message in (
            (("--config", "conf-soft-k1"), "Did you mean"),
            (("--false-alarm-rate", "0"), "false_alarm_rate"),
            (("--backbone", "beatz"), "Did you mean 'beats'"),
            (("--channel", "left"), "channel"),
            (("--readout", "cls"), "readout"),
        ):
            result = run("fit", root, "--out", tmp_path / "m.daco", *arguments)
            assert message in str(result.exception)
        assert "not a folder" in str(run("fit", root, "--out", tmp_path / "x" / "m").exception)
        (tmp_path / "thesis.daco").write_text("years of work")
        result = run("fit", root, "--out", tmp_path / "thesis.daco")
        assert isinstance(result.exception, DataError)
        assert (tmp_path / "thesis.daco").read_text() == "years of work"
        for name in ("thesis.daco", "new.daco"):  # a file, and a name that only a file may have
            error = run("fit", shared("real", "audio"), "--out", tmp_path / name).exception
            assert "is the name of one file, but there are 2 machines" in str(error)
        assert list(tmp_path.iterdir()) == [tmp_path / "thesis.daco"]

    def test_a_network_with_weights(self, real, tmp_path):
        """mn04 end to end on a few clips of a real machine, through a manifest."""
        weights = shared("real", "mn04_as_mAP_432.pt")
        train = sorted((real / "fan" / "train").glob("*.flac"))
        chosen = [p for p in train if "source" in p.name][:4] + [
            p for p in train if "target" in p.name
        ][:3]
        rows = [(os.path.relpath(p, tmp_path), p.name.split("_")[2]) for p in chosen]
        manifest = "path,domain,machine\n" + "".join(f"{p},{d},fan\n" for p, d in rows)
        (tmp_path / "clips.csv").write_text(manifest)
        options = ("--backbone", "mn04", "--weights", weights)
        ok("fit", tmp_path / "clips.csv", "--out", tmp_path / "m.daco", *options)
        model = MachineModel.load(tmp_path / "m.daco")
        assert model.frontend.backbone == "mn04"
        assert model.frontend.weights_sha256.startswith("899a8c62")
        assert model.views.names == ("mn04", "mod", "mod60", "env", "cep")
        clip = chosen[0]
        result = ok("score", tmp_path / "m.daco", clip, "--json", "--weights", weights)
        verdict = json.loads(result.stdout)
        assert verdict["nearest"].endswith(clip.name)
        assert verdict["nearest_distance"] == pytest.approx(0, abs=1e-6)
        wrong = tmp_path / "mn04_as_mAP_432.pt"
        content = bytearray(Path(weights).read_bytes())
        content[len(content) // 2] ^= 1
        wrong.write_bytes(content)
        result = run("score", tmp_path / "m.daco", clip, "--weights", wrong)
        assert isinstance(result.exception, WeightsError)
        assert not result.stdout

    def test_views_of_several_networks_keep_the_order_of_the_model(self, real, tmp_path):
        """Recordings and a table with its views in another order update a model alike."""
        options = ("--backbone", "mn04", "--weights", shared("real", "mn04_as_mAP_432.pt"))
        train = sorted((real / "fan" / "train").glob("*.flac"))
        for folder, clips in (("first", train[:5]), ("more", train[5:8])):
            (tmp_path / folder).mkdir()
            for number, clip in enumerate(clips):
                shutil.copy(clip, tmp_path / folder / f"{folder}{number}.flac")
            views = ("--backbone", "logmel", "--readout", "mn04+mod")
            ok(
                "embed",
                tmp_path / folder,
                "--out",
                tmp_path / f"{folder}.parquet",
                *options,
                *views,
            )
        updated = []
        for source in ("more", "more.parquet"):
            model = tmp_path / f"of_{source}.daco"
            ok("fit", tmp_path / "first.parquet", "--out", model, "--readout", "mod+mn04")
            weights = options[2:] if source == "more" else ()
            domain = MachineModel.load(model).domains[0]
            ok(
                "update",
                model,
                tmp_path / source,
                "--domain",
                domain,
                "--keep-suspicious",
                *weights,
            )
            updated.append(MachineModel.load(model))
        assert updated[0].views.names == updated[1].views.names == ("mod", "mn04")
        np.testing.assert_allclose(updated[0].embeddings, updated[1].embeddings, atol=1e-5)


class TestScore:
    @pytest.mark.parametrize(("machine", "auc"), [("fan", 0.82), ("bearing", 0.52)])
    def test_anomalies_of_real_machines_rank_higher(self, models, real, machine, auc):
        """Of 100 pairs of an anomaly and a normal; 50 normals tell little about the bearing."""
        folder, _ = models
        result = ok("score", folder / f"{machine}.daco", real / machine / "test", "--json")
        found = [json.loads(line) for line in result.stdout.splitlines()]
        assert len(found) == 20
        anomalous = np.array(["anomaly" in each["name"] for each in found])
        scores = np.array([each["score"] for each in found])
        above = scores[anomalous][:, None] > scores[~anomalous]
        assert above.mean() == pytest.approx(auc, abs=0.021)
        for each in found:
            assert each["machine"] == machine
            assert each["anomalous"] == (each["score"] > each["threshold"])
            assert 0 < each["p_value"] <= 1
            assert sum(each["domain_weights"].values()) == pytest.approx(1)
            assert "_train_" in each["nearest"]

    def test_the_table_fits_a_terminal_and_tells_the_reasons(self, drill, tmp_path):
        _, model = drill
        hum(tmp_path / "good.wav", 200, 99)
        hum(tmp_path / "faulty.wav", 200, 98, modulation=1.0)
        soundfile.write(tmp_path / "dead.wav", np.zeros(8000), RATE)
        loud = np.clip(5 * np.sin(np.arange(8000) * 0.02), -1, 1) * 0.9999
        soundfile.write(tmp_path / "loud.wav", loud, RATE)
        result = ok("score", model, tmp_path)
        assert lines_fit(result.stdout)
        text = " ".join(result.stdout.split())
        assert "silent: -inf dB of full scale" in text
        assert "clipped: " in text
        assert "far: farther from every normal" in text
        assert "ANOMALY" in text
        assert "anomalous (an oddness of 1 or more). The alarm limit" in text
        assert "1 in 5 healthy recordings is called anomalous" in text
        assert "run daco calibrate" in text
        lines = result.stdout.splitlines()
        (good,) = (line for line in lines if "good.wav" in line)
        assert good.split()[0] == "normal"

    def test_a_recording_outside_the_ranges_is_not_judged(self, drill, tmp_path):
        root, model = drill
        wave, _ = soundfile.read(root / "day" / "day00.wav")
        soundfile.write(tmp_path / "quiet.wav", 0.05 * wave, RATE)
        noise = np.random.default_rng(0).normal(0, wave.std(), len(wave))
        soundfile.write(tmp_path / "noise.wav", noise, RATE)
        soundfile.write(tmp_path / "dead.wav", 0 * wave, RATE)
        result = ok("score", model, tmp_path, "--json", "--exit-code")
        found = {each["name"]: each for each in map(json.loads, result.stdout.splitlines())}
        states = {name: each["state"] for name, each in found.items()}
        assert states == {
            "quiet.wav": "off",
            "noise.wav": "out of range",
            "dead.wav": "recorder fault",
        }
        assert not any(each["anomalous"] for each in found.values())
        assert any(each.startswith("range: ") for each in found["noise.wav"]["reasons"])
        text = " ".join(ok("score", model, tmp_path).stdout.split())
        assert "0 of 3 recordings anomalous" in text
        assert (
            "Recordings not judged by their sound: recorder fault (1), out of range (1), off (1)."
            in text
        )
        rows = list(csv.DictReader(io.StringIO(ok("score", model, tmp_path, "--csv").stdout)))
        assert {row["name"]: row["state"] for row in rows} == states

    def test_a_table_has_the_levels_of_its_recordings(self, drill, tmp_path):
        root, model = drill
        wave, _ = soundfile.read(root / "day" / "day00.wav")
        soundfile.write(tmp_path / "quiet.wav", 0.05 * wave, RATE)
        options = ("--readout", "mod+mod60+env+cep")
        ok("embed", tmp_path, "--out", tmp_path / "new.parquet", *options)
        result = ok("score", model, tmp_path / "new.parquet", "--json")
        assert json.loads(result.stdout)["state"] == "off"
        ok("embed", root, "--out", tmp_path / "normals.parquet", *options)
        ok("fit", tmp_path / "normals.parquet", "--out", tmp_path / "m.daco", "--readout",
           "mod+mod60+env+cep")  # fmt: skip
        ranges = [MachineModel.load(path).ranges for path in (model, tmp_path / "m.daco")]
        assert ranges[0] == ranges[1]
        assert ranges[0]["clips"] == 24
        assert ranges[0]["sample_rates"] == [RATE]

    def test_names_that_steer_terminals_are_shown_harmless(self, drill, tmp_path):
        hum(tmp_path / "\x1b[31m[bold]x.wav", 200, 1)
        result = ok("score", drill[1], tmp_path)
        assert "\x1b[31m" not in result.stdout
        assert "[bold]x.wav" in result.stdout

    def test_csv(self, drill, tmp_path):
        root, model = drill
        (tmp_path / "bad, quoted.wav").write_bytes(b"RIFF")
        result = ok("score", model, root / "night", tmp_path / "bad, quoted.wav", "--csv", code=4)
        rows = list(csv.DictReader(io.StringIO(result.stdout)))
        assert len(rows) == 9
        assert {"weight.day", "weight.night", "score", "p_value"} <= set(rows[0])
        assert rows[0]["basis"].startswith("from the training recordings only")
        assert rows[0]["state"] == ("anomalous" if rows[0]["anomalous"] == "1" else "normal")
        assert float(rows[0]["weight.day"]) + float(rows[0]["weight.night"]) == pytest.approx(1)
        assert rows[-1]["name"].endswith("bad, quoted.wav")
        assert rows[-1]["error"]
        assert rows[-1]["score"] == ""
        assert {row["anomalous"] for row in rows[:-1]} <= {"0", "1"}

    def test_a_file_that_cannot_be_read_does_not_stop_the_others(self, drill, tmp_path):
        root, model = drill
        good = root / "day" / "day00.wav"
        (tmp_path / "cut.wav").write_bytes(good.read_bytes()[:5000])
        (tmp_path / "text.wav").write_text("not a sound")
        hum(tmp_path / "tiny.wav", 200, 0, seconds=0.01)
        (tmp_path / "notes.txt").write_text("heard a rattle")
        files = ["cut.wav", "text.wav", "tiny.wav", "gone.wav", "notes.txt"]
        result = ok("score", model, *(tmp_path / name for name in files), good, code=4)
        text = result.stdout
        assert "of 1 recording anomalous" in text
        assert "5 recordings could not be scored:" in text
        for name, reason in zip(
            files, ["truncated", "not readable", "at least", "cannot be opened", "extension"],
            strict=True,
        ):  # fmt: skip
            (line,) = (
                line for line in text.splitlines() if line.strip().startswith(str(tmp_path / name))
            )
            assert reason in line
        result = ok("score", model, tmp_path / "cut.wav", good, "--json", code=4)
        failed, verdict = (json.loads(line) for line in result.stdout.splitlines())
        assert "truncated" in failed["error"]
        assert np.isfinite(verdict["score"])

    def test_exit_code_three_only_when_asked_and_anomalous(self, drill, tmp_path):
        root, model = drill
        normal = root / "day" / "day00.wav"
        faulty = hum(tmp_path / "faulty.wav", 200, 98, modulation=1.0)
        (tmp_path / "bad.wav").write_bytes(b"x")
        ok("score", model, normal, faulty)
        ok("score", model, normal, "--exit-code")
        ok("score", model, normal, faulty, "--exit-code", code=3)
        ok("score", model, tmp_path / "bad.wav", faulty, "--exit-code", code=3)
        ok("score", model, tmp_path / "bad.wav", normal, "--exit-code", code=4)

    def test_stdin_is_one_recording(self, drill):
        root, model = drill
        content = (root / "night" / "night03.wav").read_bytes()
        verdict = json.loads(ok("score", model, "-", "--json", input=content).stdout)
        assert verdict["name"] == "-"
        assert verdict["nearest"].endswith("night03.wav")
        failed = json.loads(ok("score", model, "-", "--json", input=b"", code=4).stdout)
        assert failed == {"name": "-", "error": "the file is empty."}
        result = program("score", model, "-", "--exit-code", input=content)
        assert result.returncode in (0, 3), result.stderr
        assert b"night03.wav" in result.stdout

    def test_another_rate_needs_no_refit(self, drill):
        root, model = drill
        found = {}
        for rate in ("0.5", "0.2", "0.01"):
            result = ok("score", model, root / "day", "--json", "--rate", rate)
            found[rate] = [json.loads(line) for line in result.stdout.splitlines()]
        thresholds = [each[0]["threshold"] for each in found.values()]
        assert thresholds == sorted(thresholds)
        assert len({each[0]["score"] for each in found.values()}) == 1
        result = ok("score", model, root / "day" / "day00.wav", "--rate", "0.01")
        said = " ".join(result.stderr.split())
        assert "A false-alarm rate of 0.01 is below" in said
        assert "Calibrate with at least 99 new normals of night." in said

    def test_long_recordings_by_windows(self, drill, tmp_path):
        _, model = drill
        parts = [soundfile.read(hum(tmp_path / "x" / f"{i}.wav", 200, 50 + i))[0] for i in range(8)]
        parts[5] = soundfile.read(hum(tmp_path / "x" / "f.wav", 200, 98, modulation=1.0))[0]
        long = tmp_path / "long.wav"
        soundfile.write(long, np.concatenate(parts), RATE)
        whole = json.loads(ok("score", model, long, "--json").stdout)
        assert whole["windows"] == 1
        assert whole["reasons"][0].startswith("long: 4 s, the normals have 0.5 s")
        found = {}
        for how in ("max", "top2", "mean"):
            options = ("--window", "0.5", "--aggregate", how, "--json")
            found[how] = json.loads(ok("score", model, long, *options).stdout)
        assert found["max"]["windows"] == 8
        assert found["max"]["worst_window"] == 2.5
        assert found["max"]["anomalous"]
        assert found["max"]["score"] > found["top2"]["score"] > found["mean"]["score"]
        hopped = ok("score", model, long, "--window", "0.5", "--hop", "0.25", "--json")
        assert json.loads(hopped.stdout)["windows"] == 15
        table = ok("score", model, long, "--window", "0.5").stdout
        assert "worst at 2.5 s" in table
        assert "The limit holds for one window" in table

    def test_embeddings_are_scored_too(self, drill, tmp_path):
        root, model = drill
        ok("embed", root, "--out", tmp_path / "e.parquet", "--readout", "mod+mod60+env+cep")
        result = ok("score", model, tmp_path / "e.parquet", "--json")
        found = [json.loads(line) for line in result.stdout.splitlines()]
        assert len(found) == 24
        direct = json.loads(ok("score", model, root / found[3]["name"], "--json").stdout)
        # scored among others, ties of a member may fall the other way
        assert direct["score"] == pytest.approx(found[3]["score"], abs=0.02)

    def test_mistakes_stop_at_once(self, drill, tmp_path):
        root, model = drill
        clip = root / "day" / "day00.wav"
        (tmp_path / "nothing").mkdir()
        for arguments, kind, message in (
            ((clip, clip), ModelError, "not a model"),
            ((model, tmp_path / "nothing"), DataError, "There is no recording in"),
            ((model, clip, "--csv", "--json"), InputError, "one of --csv and --json"),
            ((model, clip, "--aggregate", "most"), InputError, "aggregate"),
            ((model, clip, "--window", "-1"), InputError, "window"),
            ((model, clip, "--hop", "1"), InputError, "hop needs a window"),
            ((model, clip, "--rate", "2"), InputError, "false_alarm_rate"),
            ((model, "-", "-"), InputError, "only once"),
        ):
            result = run("score", *arguments)
            assert isinstance(result.exception, kind), result.output
            assert message in str(result.exception)
        result = program("score", clip, clip)
        assert result.returncode == 2
        assert b"Traceback" not in result.stderr
        assert result.stderr.startswith(b"error: ")

    def test_a_model_of_own_embeddings_cannot_hear(self, drill, tmp_path):
        np.savez(tmp_path / "own.npz", embedding=np.random.default_rng(0).normal(size=(20, 5)))
        ok("fit", tmp_path / "own.npz", "--out", tmp_path / "own.daco")
        result = run("score", tmp_path / "own.daco", drill[0] / "day")
        assert "embeddings of your own" in str(result.exception)
        result = ok("score", tmp_path / "own.daco", tmp_path / "own.npz", "--csv")
        assert len(result.stdout.splitlines()) == 21


class TestUpdate:
    @pytest.fixture
    def model(self, drill, tmp_path):
        return Path(shutil.copy(drill[1], tmp_path / "drill.daco"))

    def night(self, folder, count, first=100):
        for index in range(count):
            hum(folder / f"new{index}.wav", 320, first + index)
        return folder

    def test_a_model_knows_what_its_recordings_hold(self, drill, tmp_path):
        root, fitted = drill
        ok("embed", root, "--backbone", "logmel", "--out", tmp_path / "drill.parquet")
        ok("fit", tmp_path / "drill.parquet", "--out", tmp_path / "drill.daco")
        for path in (fitted, tmp_path / "drill.daco"):
            found = MachineModel.load(path)
            held = zip(found.clip_names, found.clip_sha256, strict=True)
            assert all(sha256_of_file(root / name) == sha256 for name, sha256 in held)
        new = hum(tmp_path / "new" / "day99.wav", 200, 99)
        ok(
            "update",
            fitted,
            new,
            "--domain",
            "day",
            "--out",
            tmp_path / "more.daco",
            "--keep-suspicious",
        )
        more = MachineModel.load(tmp_path / "more.daco")
        assert more.clip_sha256[-1] == sha256_of_file(new)

    def test_louder_normals_must_be_insisted_on_and_widen_the_ranges(self, model, tmp_path):
        before = MachineModel.load(model)
        for index in range(6):
            wave, _ = soundfile.read(hum(tmp_path / "x" / f"{index}.wav", 320, 400 + index))
            (tmp_path / "loud").mkdir(exist_ok=True)
            soundfile.write(tmp_path / "loud" / f"loud{index}.wav", 3 * wave, RATE)
        command = ("update", model, tmp_path / "loud", "--domain", "night")
        result = CliRunner().invoke(app, list(map(str, command)))
        assert "6 of 6 normals of night are suspicious" in str(result.exception)
        assert "range: " in str(result.exception)
        ok(*command, "--keep-suspicious")
        after = MachineModel.load(model).ranges
        assert after["clips"] == before.ranges["clips"] + 6
        for name, (low, high) in before.ranges["limits"].items():
            assert after["limits"][name][0] <= low
            assert after["limits"][name][1] >= high
        assert after["limits"]["level"][1] > before.ranges["limits"]["level"][1] + 5

    def test_more_normals_of_a_domain(self, model, tmp_path):
        before = MachineModel.load(model)
        new = self.night(tmp_path / "new", 6)
        result = ok("update", model, new, "--domain", "night", "--keep-suspicious", "--verbose")
        after = MachineModel.load(model)
        assert after.domain_sizes == {"day": 16, "night": 14}
        text = " ".join(result.stdout.split())
        assert "Added 6 recordings. There are now 30." in text
        assert "8 -> 14" in text
        assert f"{before.thresholds['night']:.4g} -> {after.thresholds['night']:.4g}" in text
        assert "from the training recordings only" in text
        assert lines_fit(result.stdout.replace(str(tmp_path), ""))
        (update,) = after.provenance["updates"]
        assert update["clips"] == 6
        assert update["domain"] == "night"
        assert update["source"] == "new"
        assert after.provenance["created"] == before.provenance["created"]
        assert after.false_alarm_rate == before.false_alarm_rate
        assert "6 clips of night from new" in " ".join(ok("inspect", model).stdout.split())

    def test_the_same_again_changes_nothing(self, model, tmp_path):
        new = self.night(tmp_path / "new", 3)
        ok("update", model, new, "--domain", "night", "--keep-suspicious")
        content = model.read_bytes()
        result = ok("update", model, new, "--domain", "night")
        assert "Left out 3 copies" in " ".join(result.stderr.split())
        assert "There is nothing to add." in result.stdout
        assert model.read_bytes() == content

    def test_copies_are_added_once_and_names_stay_unique(self, model, tmp_path):
        path = hum(tmp_path / "new" / "night" / "night00.wav", 320, 400)
        shutil.copy(path, path.with_name("copy.wav"))
        ok("update", model, tmp_path / "new", "--domain", "night", "--keep-suspicious")
        names = MachineModel.load(model).clip_names
        assert len(set(names)) == len(names) == 25

    def test_a_near_copy_is_pointed_out(self, model, drill, tmp_path):
        wave, _ = soundfile.read(drill[0] / "night" / "night02.wav")
        new = tmp_path / "again.wav"
        soundfile.write(new, wave + np.random.default_rng(0).normal(0, 1e-3, len(wave)), RATE)
        result = ok("update", model, new, "--domain", "night")
        text = " ".join(result.stderr.split())
        assert "again.wav may be a copy of night/night02.wav" in text

    def test_anomalies_are_named_and_need_force(self, model, tmp_path):
        new = self.night(tmp_path / "new", 2)
        for index in range(3):
            hum(new / f"faulty{index}.wav", 1500, 200 + index, modulation=1.0)
        content = model.read_bytes()
        result = run("update", model, new, "--domain", "night")
        assert isinstance(result.exception, DataError)
        message = str(result.exception)
        assert "faulty0.wav" in message
        assert "--keep-suspicious" in message
        assert model.read_bytes() == content
        result = ok("update", model, new, "--domain", "night", "--keep-suspicious")
        assert "They were added because of --keep-suspicious" in " ".join(result.stderr.split())
        assert len(MachineModel.load(model)) == 29
        assert MachineModel.load(model).provenance["updates"][0]["forced"] is True

    def test_a_new_domain_is_said_to_be_one(self, model, tmp_path):
        for index in range(4):
            hum(tmp_path / "winter" / f"w{index}.wav", 90, index)
        result = ok("update", model, tmp_path / "winter", "--domain", "winter",
                    "--out", tmp_path / "four.daco")  # fmt: skip
        text = " ".join(result.stderr.split())
        assert "winter is a new domain beside day, night" in text
        assert "make sure that the clips are normal" in text
        assert MachineModel.load(tmp_path / "four.daco").domains == ("day", "night", "winter")
        assert MachineModel.load(model).domains == ("day", "night")  # --out leaves it alone

    def test_of_a_source_with_domains_one_is_taken(self, model, tmp_path):
        for index in range(2):
            hum(tmp_path / "new" / "night" / f"n{index}.wav", 320, 300 + index)
            hum(tmp_path / "new" / "day" / f"d{index}.wav", 200, 300 + index)
        result = ok("update", model, tmp_path / "new", "--domain", "night", "--keep-suspicious")
        assert "Left out 2 clips of other domains than night" in result.stderr
        assert MachineModel.load(model).domain_sizes == {"day": 16, "night": 10}
        result = run("update", model, tmp_path / "new", "--domain", "dusk")
        assert "none of them is 'dusk'" in str(result.exception)


class TestInspect:
    def test_tells_what_a_person_asks(self, models):
        folder, _ = models
        result = ok("inspect", folder / "fan.daco", "--verbose")
        assert lines_fit(result.stdout)
        text = " ".join(result.stdout.split())
        for said in (
            "fan.daco",
            "logmel (no weights), 16,000 Hz, fp32, readout mod; 112 values",
            "clips of 10 s",
            "cosine distance to the most similar normal, turned into its quantile",
            "The false-alarm rate 0.1 is estimated from the training recordings only",
            "updates none",
            "by daco",
            MachineModel.load(folder / "fan.daco").sha256,
        ):
            assert said in text

    def test_json_is_complete(self, models):
        folder, _ = models
        found = json.loads(ok("inspect", folder / "fan.daco", "--json").stdout)
        model = MachineModel.load(folder / "fan.daco")
        assert found["sha256"] == model.sha256
        assert found["schema"] == SCHEMA
        target = found["domains"]["target"]
        assert (target["normals"], target["clips"], target["kind"]) == (10, 10, "training")
        assert target["threshold"] == model.thresholds["target"]
        assert target["smallest_rate"] == 1 / 11
        assert target["expected_rate"] is None
        assert found["basis"] == model.basis_sentence
        assert found["bytes"] == (folder / "fan.daco").stat().st_size
        assert found["ranges"] == model.ranges
        low, high = found["ranges"]["limits"]["level"]
        shown = ok("inspect", folder / "fan.daco").stdout
        assert f"level {low:g} to {high:g} dB of full scale" in " ".join(shown.split())
        assert len(found["provenance"]["selection"]["criterion"]) == 9
        assert found["left_out_of_blend"] == []

    @pytest.mark.parametrize("suffix", ["svg", "png"])
    def test_the_maps_are_drawn(self, models, tmp_path, suffix):
        folder, _ = models
        picture = tmp_path / f"maps.{suffix}"
        ok("inspect", folder / "fan.daco", "--picture", picture)
        assert picture.stat().st_size > 10_000

    def test_another_ending_or_file_is_a_mistake(self, models, tmp_path):
        folder, _ = models
        result = run("inspect", folder / "fan.daco", "--picture", tmp_path / "maps.gif")
        assert "a picture is .svg or .png" in str(result.exception)
        (tmp_path / "x.daco").write_bytes(b"hello world, hello")
        assert isinstance(run("inspect", tmp_path / "x.daco").exception, ModelError)
        assert isinstance(run("inspect", tmp_path).exception, ModelError)
