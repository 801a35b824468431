"""How a vote over all configurations should count, decided leave-one-machine-out.

``python benchmarks/vote.py [--cache DIR]`` prints tables of docs/evidence.md. It reads real
embeddings and published scores below DACO_SHARED or ../shared where they are, and makes synthetic
machines, which takes minutes; DIR keeps their vectors. Labels enter figures, never a score.
"""

from __future__ import annotations

import argparse
import os

for variable in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ[variable] = "1"  # before NumPy reads them

import csv
import itertools
from collections import Counter, namedtuple
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from functools import cache
from pathlib import Path
from typing import NamedTuple
from zlib import crc32

import numpy as np
from scipy.special import log_ndtr, ndtri

import daco
from daco.backbones.logmel import LogMel
from daco.evaluation.intervals import machine_jackknife
from daco.evaluation.metrics import grid_metrics, harmonic_mean
from daco.synthetic.factory import MACHINES, ClipPlan, record

VIEWS = ("mn04", "mn04_band", "mod", "env", "cep", "mod60")
SETS = ("mod+env+cep", "mod60+env+cep", "mod+mod60+env+cep")
COMBINATIONS = [*VIEWS, "mod+env", *SETS, "mn04+mod"]
COMBINATIONS += [f"{network}+{views}" for network in ("mn04", "mn04_band") for views in SETS]
TEN = ["raw-k1", "ldn-ratio-K1", "ldn-mean-K4", "ldn-mean-K16", "varmin-K4", "varmin-K16"]
TEN += ["zscore-hard-k1", "zscore-hard-varmin-K4", "zscore-hard-ldn-mean-K4", "conf-soft-m0-k1"]
TAIL = 9.0  # the most that a score above those of all normals can add

OPTIONS = {  # the first of each is how daco votes
    "norm": "rank, bounded tail; rank, linear tail; rank, log tail; rank, no tail; median/IQR; "
    "median/IQR within 5; uniform rank; -log p, bounded tail",
    "scope": "pooled; domains, soft; domains, hard; domains alike",
    "weights": "configuration; base; family",
    "mean": "mean; trimmed 10 %; trimmed 25 %; median",
    "committee": "all; paper; ten; bases; no conf; varmin",
    "views": "mean; Fisher; maximum",
}
Variant = namedtuple("Variant", ["norm", "scope", "weights", "mean", "committee", "views"])
VARIANTS = [Variant(*v) for v in itertools.product(*(o.split("; ") for o in OPTIONS.values()))]
VARIANTS = [v for v in VARIANTS if v.views == "mean" or v.norm.startswith("rank")]
CHOSEN = VARIANTS[0]
RULES = ("raw-k1", "conf-soft-m0-k1", "varmin", "criterion", "all")


class Members(NamedTuple):
    """Scores of all configurations on one view: of the normals left out, and of the test clips."""

    names: tuple[str, ...]
    loo: np.ndarray
    test: np.ndarray
    codes: np.ndarray  # domains of the normals
    weights: np.ndarray  # domain weights of the test clips
    balance: np.ndarray | None = None


Machine = namedtuple("Machine", "name group views labels domains")  # views: {name: Members}


def combinations(machine: Machine) -> list[str]:
    known = [name for name in COMBINATIONS if set(name.split("+")) <= set(machine.views)]
    return known or list(machine.views)


def machine_of(name: str, group: str, vectors: dict, split, domain, label) -> Machine:
    train, test, views = split == "train", split == "test", {}
    for view, X in vectors.items():
        bank = daco.NormalBank(X[train], domain[train])
        grid = daco.frontier_grid(bank.bands)
        names, weights = tuple(config.name for config in grid), bank.domain_weights(X[test])
        scores = bank.leave_one_out(grid), bank.score(X[test], grid)
        views[view] = Members(names, *scores, bank.clip_domains, weights, bank.balance(grid))
    return Machine(name, group, views, label[test], domain[test])


def truth_of(names: list[str]) -> list[np.ndarray]:
    """Split, domain and label, which are in the challenge's file names."""
    parts = np.array([name.split("/")[-1].split("_")[:5] for name in names])
    return [parts[:, 3], parts[:, 2], (parts[:, 4] == "anomaly").astype(int)]


def real_vectors(folder: Path, name: str) -> tuple:
    """Vectors by view, and split, domain and label of the clips."""
    vectors = {}
    for view in VIEWS:
        data = np.load(folder / f"{name}_{'logmel_mod' if view == 'mod' else view}.npz")
        vectors[view] = data[data.files[0]].astype(np.float32)
    return vectors, *truth_of(data["file_name"].tolist())


def real_machines(folder: Path) -> Iterator[Machine]:
    for name in ("fan", "bearing"):
        yield machine_of(name, "real", *real_vectors(folder, name))


def published_machines(folder: Path) -> Iterator[Machine]:
    """Score files without normals: members are ranked among the test clips, in one domain."""
    configs = tuple(sorted(path.name for path in folder.iterdir() if (path / "dev").is_dir()))
    for name in ("ToyCar", "ToyTrain", "bearing", "fan", "gearbox", "slider", "valve"):
        file = f"dev/anomaly_score_{name}_section_00_test.csv"
        tables = [list(csv.reader((folder / config / file).open())) for config in configs]
        scores = np.array([[float(row[1]) for row in table] for table in tables]).T
        _, domains, labels = truth_of([row[0] for row in tables[0]])
        one_domain = np.zeros(len(scores), int), np.ones((len(scores), 1))
        members = Members(configs, scores, scores, *one_domain)
        yield Machine(f"{name} 2025", "published", {"BEATs": members}, labels, domains)


def synthetic_vectors(seed: int, name: str, folder: Path | None) -> dict[str, np.ndarray]:
    """Views of 290 + 10 normals and 200 test clips of one machine of a factory."""
    file = folder / f"synth{seed}_{name}.npz" if folder else None
    if file and file.exists():
        return dict(np.load(file))
    clips = [("train", "source", 0, i) for i in range(290)]
    clips += [("train", "target", 0, i) for i in range(10)]
    clips += [("test", *c) for c in itertools.product(("source", "target"), (0, 1), range(50))]
    plans = [ClipPlan("", name, 10.0, 16000, 1, 1.0, seed, False, *clip) for clip in clips]
    net, views = LogMel(), VIEWS[2:]
    rows = [net.embed_many(record(plan)[:, 0][None], views) for plan in plans]
    data = {view: np.concatenate([row[view] for row in rows]) for view in views}
    columns = map(np.array, zip(*clips, strict=True))
    data |= dict(zip(("split", "domain", "label"), columns, strict=False))
    if file:
        np.savez(file, **data)
    return data


def synthetic_machines(folder: Path | None) -> Iterator[Machine]:
    tasks = list(itertools.product((0, 1), MACHINES))  # two factories
    with ProcessPoolExecutor(2) as pool:
        found = pool.map(synthetic_vectors, *zip(*tasks, strict=True), itertools.repeat(folder))
        for (seed, name), data in zip(tasks, found, strict=True):
            truth = [data.pop(key) for key in ("split", "domain", "label")]
            yield machine_of(f"{name} {seed}", "synthetic", data, *truth)


def normalise(reference: np.ndarray, scores: np.ndarray, norm: str) -> np.ndarray:
    """Members' scores (n, C) by those of their normals (N, C); 0 where all normals are alike."""
    kind, _, tail = norm.partition(", ")
    low, median, high = np.quantile(reference, [0.25, 0.5, 0.75], axis=0)
    if kind.startswith("median"):
        scaled = (scores - median) / np.where(high > low, high - low, np.inf)
        return np.clip(scaled, -5, 5) if norm.endswith("5") else scaled
    ordered = np.sort(reference, axis=0)
    ranks = [
        (np.searchsorted(a, s, "left") + np.searchsorted(a, s, "right")) / 2
        for a, s in zip(ordered.T, scores.T, strict=True)
    ]
    share = (np.stack(ranks, axis=1) + 0.5) / (len(reference) + 1)
    top = ordered[-1]
    beyond = np.maximum(scores - top, 0) / np.where(top > median, top - median, np.inf)
    tails = {"bounded tail": TAIL * beyond / (TAIL + beyond), "linear tail": beyond}
    tails |= {"log tail": np.log1p(beyond)}
    scales = {"rank": ndtri, "-log p": lambda u: -np.log1p(-u), "uniform rank": lambda u: u}
    return np.where(top > ordered[0], scales[kind](share) + tails.get(tail, 0.0), 0.0)


def in_scope(members: Members, norm: str, scope: str) -> np.ndarray:
    """Normalised over all normals, or within each domain and averaged over the domains."""
    if scope == "pooled":
        return normalise(members.loo, members.test, norm)
    weights, n = members.weights, members.weights.shape[1]
    if scope != "domains, soft":
        alike = np.full_like(weights, 1 / n)
        weights = alike if scope == "domains alike" else np.eye(n)[weights.argmax(axis=1)]
    parts = [normalise(members.loo[members.codes == g], members.test, norm) for g in range(n)]
    return sum(weights[:, [g]] * part for g, part in enumerate(parts))


@cache
def committee(names: tuple[str, ...], kind: str, weights: str) -> tuple[np.ndarray, np.ndarray]:
    """Which members belong to it, and each one's share in each group that has one vote."""
    configs = [daco.ScoreConfig.parse(name) for name in names]
    strongest = next(n for n in ("beam-varmin-K4", "varmin-K4", "ldn-ratio-K1") if n in names)
    belongs = {
        "all": lambda config: True,
        "paper": lambda config: config in daco.paper_grid(),
        "ten": lambda config: config.name in TEN,
        "bases": lambda config: config.calibration is None,
        "no conf": lambda config: config.calibration != "conf",
        "varmin": lambda config: config.name == strongest,
    }.get(kind, lambda config: config.name == kind)
    chosen = np.flatnonzero([belongs(config) for config in configs])
    labels = [configs[i].base.name if weights == "base" else configs[i].family for i in chosen]
    counted = np.array(labels)[:, None] == np.unique(labels)
    return chosen, counted / counted.sum(axis=0)


def votes(members: Members, variants: list[Variant]) -> np.ndarray:
    """The vote of one view under each variant, (n, V)."""
    columns, scaled = [], {}
    for v in variants:
        if v[:2] not in scaled:
            scaled[v[:2]] = in_scope(members, v.norm, v.scope)
        pick = members.names[np.argmin(members.balance)] if v.committee == "criterion" else ""
        chosen, shares = committee(members.names, pick or v.committee, v.weights)
        Z = scaled[v[:2]][:, chosen]
        Z = Z if v.weights == "configuration" else Z @ shares
        if v.mean.startswith("trimmed"):
            cut = Z.shape[1] * int(v.mean.split()[1]) // 100
            Z = np.sort(Z, axis=1)[:, cut : Z.shape[1] - cut]
        columns.append(np.median(Z, axis=1) if v.mean == "median" else Z.mean(axis=1))
    return np.stack(columns, axis=1)


def together(views: list[np.ndarray], variants: list[Variant]) -> np.ndarray:
    """One score from the votes of several views. Fisher: the mean of -log(1 - Phi(vote))."""
    fisher = np.mean([-log_ndtr(-view) for view in views], axis=0)
    kinds = {"mean": np.mean(views, axis=0), "maximum": np.max(views, axis=0), "Fisher": fisher}
    return np.stack([kinds[v.views][:, i] for i, v in enumerate(variants)], axis=1)


def results(machine: Machine, variants: list[Variant]) -> dict[str, np.ndarray]:
    """AUC source, AUC target and pAUC of every combination of views in percent, (V, 3)."""
    found, by_view = {}, {view: votes(each, variants) for view, each in machine.views.items()}
    for name in combinations(machine):
        scores = together([by_view[view] for view in name.split("+")], variants)
        found[name] = 100 * grid_metrics(scores, machine.labels, machine.domains).values
    return found


def show(title: str, header: list[str], rows: list[list]) -> None:
    print(f"\n{title}\n\n| {' | '.join(header)} |\n|{'---|' * len(header)}")
    for row in rows:
        cells = [f"{cell:.1f}" if isinstance(cell, float) else str(cell) for cell in row]
        print(f"| {' | '.join(cells)} |", flush=True)


def changes(variant: Variant) -> str:
    return ", ".join(a for a, b in zip(variant, CHOSEN, strict=True) if a != b) or "as chosen"


def by_group(machines: list[Machine]) -> dict[str, list[Machine]]:
    return {name: list(mine) for name, mine in itertools.groupby(machines, lambda m: m.group)}


def left_out(figures: np.ndarray, machines: list[Machine], labels: list[str]) -> list:
    """Groups' means of figures (machines, options), each under the best option of the others."""
    groups, picks, scores = np.array([m.group for m in machines]), Counter(), []
    for i in range(len(machines)):
        others = [figures[(groups == g) & (np.arange(len(groups)) != i)] for g in set(groups)]
        best = np.argmax(np.mean([each.mean(axis=0) for each in others if len(each)], axis=0))
        picks[labels[best]] += 1
        scores.append(figures[i, best])
    means = [float(np.mean(np.array(scores)[groups == g])) for g in by_group(machines)]
    return [*means, "; ".join(f"{n} x {pick}" for pick, n in picks.most_common(3))]


def show_variants(machines: list[Machine]) -> None:
    found, columns = {m.name: results(m, VARIANTS) for m in machines}, {}
    for group, mine in by_group(machines).items():
        for name in combinations(mine[0]):
            column = f"{group}, {'views together' if '+' in name else 'one view'}"
            metrics = np.concatenate([found[m.name][name] for m in mine], axis=1)
            columns.setdefault(column, []).append(harmonic_mean(metrics, axis=1))
    official = np.array([np.mean(values, axis=0) for values in columns.values()])
    rows, free = [], {"nothing": [CHOSEN]}
    for factor, options in OPTIONS.items():
        free[factor] = [CHOSEN._replace(**{factor: option}) for option in options.split("; ")]
        at = [VARIANTS.index(v) for v in free[factor]]
        rows += [[factor, VARIANTS[i]._asdict()[factor], *official[:, i].tolist()] for i in at]
    show("Official score with one thing changed", ["what", "option", *columns], rows)
    # One figure a machine: the mean over its views and combinations.
    scores = [[harmonic_mean(x, axis=1) for x in found[m.name].values()] for m in machines]
    figures, rows = np.array([np.mean(score, axis=0) for score in scores]), []
    for name, variants in (free | {"everything": VARIANTS}).items():
        at = [VARIANTS.index(v) for v in variants]
        rows.append([name, *left_out(figures[:, at], machines, [changes(v) for v in variants])])
    show("Mean over views, the best on the others", ["free", *by_group(machines), "picked"], rows)
    at, heard = VARIANTS.index(CHOSEN), [m for m in machines if m.group != "published"]
    sets = np.array([[harmonic_mean(found[m.name][s][at]) for s in SETS] for m in heard])
    rows = [[s, *left_out(sets[:, [i]], heard, [""])[:-1], ""] for i, s in enumerate(SETS)]
    rows.append(["best on the others", *left_out(sets, heard, list(SETS))])
    show("Views without a network, mean over machines", ["views", *by_group(heard), ""], rows)


def show_rules(machines: list[Machine]) -> None:
    """The vote against one configuration on every view, and intervals of the difference."""
    for group, mine in by_group(machines).items():
        rules = [rule for rule in RULES if rule != "criterion" or group != "published"]
        found = [results(m, [CHOSEN._replace(committee=rule) for rule in rules]) for m in mine]
        names, rows = combinations(mine[0]), []
        first = np.array([each[names[0]] for each in found])
        for name in names:
            metrics = np.array([each[name] for each in found])  # machines, rules, 3
            scores = [float(harmonic_mean(metrics[:, i])) for i in range(len(rules))]
            rivals = first[:, 1], metrics[:, 1], metrics[:, 2]
            gains = [machine_jackknife(metrics[:, -1], rival) for rival in rivals]
            cells = [f"{gain.delta:+.1f} ({gain.low:+.1f} to {gain.high:+.1f})" for gain in gains]
            rows.append([name, *scores, *cells])
        less = [f"less {rule}" for rule in (f"{rules[1]} of {names[0]}", *rules[1:3])]
        show(f"{group}: one for all views, or the vote", ["views", *rules, *less], rows)


def degenerate(members: Members, kind: str) -> Members:
    """The members in another order, or with others that tell nothing."""
    rng, (n, count) = np.random.default_rng(crc32(members.test.tobytes())), members.loo.shape
    order, extra = np.arange(count), np.ones((n + len(members.test), 1))
    if kind == "another order":
        order = rng.permutation(count)
    elif kind == "10 x ldn-diff-K16":
        order = np.append(order, [members.names.index("ldn-diff-K16")] * 10)
    else:
        extra[:n] += 2e-16 * rng.integers(0, 3, (n, 1))
        extra[n:] += rng.normal(size=(len(members.test), 1))
    scores = np.hstack([np.vstack([members.loo, members.test])[:, order], extra])
    names = (*(members.names[i] for i in order), "raw-k1")
    return members._replace(names=names, loo=scores[:n], test=scores[n:])


def show_robustness(machines: list[Machine]) -> None:
    variants = [CHOSEN._replace(norm=norm) for norm in OPTIONS["norm"].split("; ")[:5]]
    variants += [CHOSEN._replace(committee=each) for each in ("paper", "ten")]
    rows, header = [[changes(v)] for v in variants], ["variant"]
    kinds = ("another order", "10 x ldn-diff-K16", "noise instead")
    for (group, mine), kind in itertools.product(by_group(machines).items(), kinds):
        gains, header = [], [*header, f"{group}: {kind}"]
        for m in mine:
            worse = m._replace(views={v: degenerate(p, kind) for v, p in m.views.items()})
            new, old = results(worse, variants), results(m, variants)
            gains += [harmonic_mean(new[name], 1) - harmonic_mean(old[name], 1) for name in old]
        for row, change in zip(rows, np.mean(gains, axis=0), strict=True):
            row.append(f"{change:+.2f}")
    show("Points won with a constant member, and", header, rows)


def show_few_normals(folder: Path, draws: int = 12) -> None:
    """The vote with few normals: all target clips, and source clips that are drawn."""
    cases = [(["mod"], "conf-soft-m0-k1"), (["mod"], "vote"), (SETS[-1].split("+"), "vote")]
    found: dict[int, list] = {50: [], 100: [], 200: [], 500: []}
    data = [real_vectors(folder, name) for name in ("fan", "bearing")]
    for n, draw in itertools.product(found, range(draws)):
        metrics = []
        for vectors, split, domain, label in data:
            rng, train, test = np.random.default_rng(draw), split == "train", split == "test"
            rows = np.flatnonzero(train & (domain == "target"))
            source = np.flatnonzero(train & (domain == "source"))
            rows = np.append(rows, rng.choice(source, n - len(rows), replace=False))
            columns = []
            for views, config in cases:
                bank = daco.NormalBank({v: vectors[v][rows] for v in views}, domain[rows])
                columns.append(bank.score({v: vectors[v][test] for v in views}, [config])[:, 0])
            scores = np.stack(columns, axis=1)
            metrics.append(grid_metrics(scores, label[test], domain[test]).values)
        found[n].append(100 * harmonic_mean(np.concatenate(metrics, axis=1), 1))
    header = ["normals", *(f"{config}, {'+'.join(views)}" for views, config in cases)]
    rows = [[n, *np.mean(values, axis=0)] for n, values in found.items()]
    show("Few normals, real machines without a network", header, rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--cache", type=Path, help="folder for the vectors of synthetic machines")
    machines = list(synthetic_machines(parser.parse_args().cache))
    shared = Path(os.environ.get("DACO_SHARED", Path(__file__).resolve().parents[2] / "shared"))
    if shared.is_dir():
        machines += real_machines(shared / "real" / "embeddings")
        machines += published_machines(shared / "published/daco-experiments/release/scores")
    print(f"{len(machines)} machines, {len(VARIANTS)} variants")
    show_variants(machines)
    show_rules(machines)
    show_robustness(machines)
    if shared.is_dir():
        show_few_normals(shared / "real" / "embeddings")


if __name__ == "__main__":
    main()
