"""Data sets and truths of DCASE 2020, 2021 and 2022: real names, few clips, empty recordings."""

from __future__ import annotations

from daco.data.dcase import machine_sections

LABELS = ("normal", "anomaly")
DOMAINS = ("source", "target")


def names_of_2020(section, n=4, anonymous=False):
    """Test clips of an id: n normals, then n anomalies."""
    if anonymous:
        return [f"id_{section}_{i:08d}.wav" for i in range(2 * n)]
    return [f"{label}_id_{section}_{i:08d}.wav" for label in LABELS for i in range(n)]


def names_of_2021(section, n=4, anonymous=False):
    """Test clips of a section by domain: n normals, then n anomalies of each."""
    stems = {domain: f"section_{section}_{domain}_test" for domain in DOMAINS}
    if anonymous:
        return {d: [f"{stem}_{i:04d}.wav" for i in range(2 * n)] for d, stem in stems.items()}
    return {
        d: [f"{stem}_{label}_{i:04d}.wav" for label in LABELS for i in range(n)]
        for d, stem in stems.items()
    }


def names_of_2022(section, n=4):
    """Labelled test clips of a section."""
    return [
        f"section_{section}_{domain}_test_{label}_{i:04d}_m-n_X.wav"
        for domain in DOMAINS
        for label in LABELS
        for i in range(n)
    ]


def paths_of(year, part, n=4):
    """Paths of a year's development or evaluation set below its folder."""
    anonymous = part == "eval"
    for machine, section in sorted(machine_sections(year)[part]):
        if year == 2020:
            for i in range(3):
                yield f"{machine}/train/normal_id_{section}_{i:08d}.wav"
            for name in names_of_2020(section, n, anonymous):
                yield f"{machine}/test/{name}"
            continue
        tail = "_strength_1_ambient" if year == 2021 else "_m-n_X"
        for domain, count in zip(DOMAINS, (3, 2), strict=True):
            for i in range(count):
                stem = f"section_{section}_{domain}_train_normal_{i:04d}"
                yield f"{machine}/train/{stem}{tail}.wav"
        if year == 2021:
            for domain, names in names_of_2021(section, n, anonymous).items():
                for name in names:
                    yield f"{machine}/{domain}_test/{name}"
        else:
            plain = [f"section_{section}_{i:04d}.wav" for i in range(4 * n)]
            for name in plain if anonymous else names_of_2022(section, n):
                yield f"{machine}/test/{name}"


def make_set(root, year, part, write=lambda path: path.write_bytes(b"x"), machines=None):
    """The set, with a file made by `write` for each clip."""
    for path in paths_of(year, part):
        if machines is None or path.split("/")[0] in machines:
            (root / path).parent.mkdir(parents=True, exist_ok=True)
            write(root / path)
    return root


def make_list_of_2020(path, n=4, column=True):
    """The organisers' list: a machine, then its clips: anonymous and labelled name, and label."""
    lines = []
    for machine in ("fan", "pump", "slider", "valve", "ToyCar", "ToyConveyor"):
        lines.append(machine)
        for name, section in sorted(machine_sections(2020)["eval"]):
            if name == machine:
                pairs = zip(names_of_2020(section, n, True), names_of_2020(section, n), strict=True)
                for i, (one, other) in enumerate(pairs):
                    lines.append(f"{one},{other},{int(i >= n)}" if column else f"{one},{other}")
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("\n".join(lines) + "\n")
    return path


def make_truth_of_2021(folder, n=4):
    """A file for each machine, section and domain; no folder of domains."""
    for machine, section in machine_sections(2021)["eval"]:
        for domain, names in names_of_2021(section, n, anonymous=True).items():
            file = f"ground_truth_{machine}_section_{section}_{domain}_test.csv"
            path = folder / "ground_truth_data" / file
            path.parent.mkdir(parents=True, exist_ok=True)
            rows = [f"{name},{int(i >= n)}\n" for i, name in enumerate(names)]
            path.write_text("".join(rows))
    return folder


def make_truth_of_2022(folder, n=4):
    """Files of labels and domains, and the attributes in that year's own layout."""
    for machine, section in machine_sections(2022)["eval"]:
        for kind in ("data", "domain"):
            path = (
                folder
                / f"ground_truth_{kind}"
                / f"ground_truth_{machine}_section_{section}_test.csv"
            )
            path.parent.mkdir(parents=True, exist_ok=True)
            rows = (
                f"section_{section}_{i:04d}.wav,{int(i % 2 if kind == 'data' else i >= 2 * n)}\n"
                for i in range(4 * n)
            )
            path.write_text("".join(rows))
        path = folder / "ground_truth_attributes" / machine / f"attributes_{section}.csv"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("file_name,d1p,d1v,file_name_with_attributes\n")
    return folder
