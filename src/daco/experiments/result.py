"""StudyResult: the two tables of a study, clips and criteria, and what follows from them."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import cached_property
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

import pandas as pd

from daco.errors import DataError, InputError
from daco.evaluation.official import metrics_table
from daco.evaluation.system_scores import require_run_schema
from daco.experiments import analysis, choice
from daco.experiments.machine import P_VALUE
from daco.experiments.run_folder import CLIPS, CRITERIA, RUN, write_run
from daco.method.selection import parse_rule
from daco.text import quantity

if TYPE_CHECKING:
    from daco.method.selection import Choice, Rule
    from daco.method.viability import Viability
    from daco.validation import Float64s


class ReportPath(type(Path())):  # type: ignore[misc]
    """The path of a report; a notebook shows the page itself."""

    def _repr_html_(self) -> str:
        page = escape(self.read_text(encoding="utf-8"))
        return f'<iframe srcdoc="{page}" style="width: 100%; height: 80vh; border: 0"></iframe>'


@dataclass(frozen=True, eq=False, repr=False)
class StudyResult:
    """The tables of a study, made by :func:`daco.study` or read from the folder of a run.

    Everything else follows from the two tables: methods return metrics, choices and analyses as
    tables of pandas.

    Attributes
    ----------
    clips : DataFrame
        One row per clip: ``set`` (dev or eval), ``machine``, ``section``, ``split`` (train or
        test), ``clip``, ``domain`` (empty if unknown) and ``label`` (1 anomaly, 0 normal, -1
        unknown). Then one column of scores for each configuration; those of the normals are
        leave-one-out scores. ``p:<name>`` has the p-values of a configuration.
    criteria : DataFrame
        ``set, machine, section, configuration, measure, split, value``. The criterion is the mean
        of ``balance`` over splits; ``resample`` has it for resampled splits and clips, ``paper``
        for the paper's ten splits if they are not the first ten. ``pseudo_...`` have the
        split -1.
    run : dict
        Inputs, settings, machines, the choice, notes and times, as in ``run.json``.
    folder : Path or None
        The folder of the run.

    Examples
    --------
    >>> import daco, pandas as pd
    >>> clips = pd.DataFrame({"set": ["dev"], "split": ["test"], "raw-k1": [0.2], "p:raw-k1": 0.4})
    >>> daco.StudyResult(clips, pd.DataFrame()).decided
    ['raw-k1']
    """

    clips: pd.DataFrame
    criteria: pd.DataFrame
    run: dict[str, Any] = field(default_factory=dict)
    folder: Path | None = None

    @classmethod
    def read(cls, folder: Path | str) -> Self:
        """Read the folder of a finished run."""
        folder = Path(folder)
        for name in (CLIPS, CRITERIA, RUN):
            if not (folder / name).is_file():
                raise DataError(
                    f"{folder} is not a finished run: it has no {name}. Run 'daco study' with "
                    f"--out {folder}; an interrupted study goes on where it stopped."
                )
        try:
            run = json.loads((folder / RUN).read_text(encoding="utf-8"))
            clips, criteria = (pd.read_parquet(folder / name) for name in (CLIPS, CRITERIA))
        except (OSError, ValueError) as error:  # Arrow's errors are among these
            raise DataError(
                f"{folder} cannot be read: {error}. Run the same study again in this folder."
            ) from None
        require_run_schema(folder, run)
        return cls(clips, criteria, run, folder)

    def __repr__(self) -> str:
        machines = self.clips.drop_duplicates(["set", "machine", "section"])
        sizes = machines.groupby("set", sort=False).size()
        counts = " and ".join(quantity(int(n), f"{which} machine") for which, n in sizes.items())
        configs = quantity(len(self.candidates), "configuration")
        return f"StudyResult({configs} on {counts}, chosen {self.run['choice']['config']})"

    def _repr_html_(self) -> str:
        from daco.experiments.report import result_html

        return result_html(self)

    @property
    def candidates(self) -> list[str]:
        """The configurations that a rule may choose, in the order of the grid."""
        return list(self.run["settings"]["candidates"])

    @property
    def compared(self) -> list[str]:
        """Other columns of scores: daco's default, other scorers and systems."""
        return list(self.run["settings"]["compared"])

    @property
    def decided(self) -> list[str]:
        """The configurations with p-values."""
        return [str(name)[len(P_VALUE) :] for name in self.clips if str(name).startswith(P_VALUE)]

    @property
    def sets(self) -> list[str]:
        """The sets of machines: dev, eval or both."""
        return list(dict.fromkeys(self.clips["set"]))

    @property
    def test_clips(self) -> pd.DataFrame:
        """The rows of the test clips."""
        return self.clips[self.clips["split"] == "test"]

    @property
    def years(self) -> dict[str, int | None]:
        """The year whose rules hold for each set."""
        return {which: self.run.get("years", {}).get(which) for which in self.sets}

    def metrics(self, configs: Sequence[str] | None = None) -> pd.DataFrame:
        """Return the official metrics in percent, one row per machine, section, configuration."""
        table = self._metrics
        return table if configs is None else table[table["configuration"].isin(configs)]

    @cached_property
    def _metrics(self) -> pd.DataFrame:
        clips, configs = self.test_clips, [*self.candidates, *self.compared]
        return pd.concat(
            [
                metrics_table(clips[clips["set"] == which], configs, year)
                for which, year in self.years.items()
            ],
            ignore_index=True,
        )

    @cached_property
    def _veto(self) -> tuple[Viability | None, str]:
        """The label-free veto, and a note about it."""
        return choice.label_free_veto(self.criteria, self.candidates, self.run["machines"])

    @cached_property
    def _resampled(self) -> Float64s | None:
        return choice.resampled_criteria(self.criteria, self.candidates)

    def grid(self) -> pd.DataFrame:
        """Return score and criterion of every candidate, one row each.

        ``configuration, dev_score, eval_score, criterion_dev, criterion_eval, criterion_paper,
        pseudo_score, viable``, as far as they are known; scores in percent.
        """
        return self._grid.copy()

    @cached_property
    def _grid(self) -> pd.DataFrame:
        veto, _ = self._veto
        return choice.grid_of(self.candidates, self._metrics, self.criteria, self.years, veto)

    def choose(self, rule: Rule | str = "guarded") -> Choice:
        """Choose a configuration by a rule; no label of an evaluation clip is read.

        Parameters
        ----------
        rule : {"guarded", "label-free", "paper", "criterion", "dev"}
            ``guarded`` takes the smallest criterion of what neither the dev scores nor the
            label-free veto exclude, ``label-free`` has the latter veto alone. ``paper`` is the
            paper's: its ten splits and the veto by dev scores. ``criterion`` has no veto, and
            ``dev`` takes the largest dev score.
        """
        metrics = None
        if parse_rule(rule) in choice.READS_DEV:
            metrics = self._metrics[self._metrics["set"] == "dev"]
        veto, note = self._veto
        grid = choice.grid_of(self.candidates, metrics, self.criteria, self.years, veto)
        return choice.explained(choice.pick(grid, rule, self._resampled), grid, veto, note)

    def rules(self) -> pd.DataFrame:
        """Return what each rule picks, and what that scores.

        ``rule, reads`` (which labels), ``configuration, criterion_dev``, scores of both sets with
        ``low`` and ``high`` (95 % intervals over machines), ``n_dev_machines``, ``n_machines`` (of
        the evaluation, or of development without evaluation labels), ``agreement`` (the share of
        the resamples that pick the configuration; nan for a default that is kept within the noise)
        and ``stability``, the same in words. ``random`` is the mean of all candidates, ``oracle``
        the best in hindsight.
        """
        return self._rules.copy()

    @cached_property
    def _rules(self) -> pd.DataFrame:
        by_machine = choice.machine_criteria(self.criteria)
        return choice.rules_of(self._grid, self._metrics, by_machine, self._resampled, self.years)

    def stability(self) -> pd.DataFrame:
        """Return how many resamples pick each configuration that no veto excludes.

        ``configuration, picked`` (number of resamples), ``n_resamples, within_noise`` (whether
        its criterion less that of the chosen one has a 5 % quantile <= 0), ``chosen``, criterion
        and scores; most often picked first.
        """
        rule = self.run["settings"]["rule"]
        return choice.stability_of(self._grid, rule, self._resampled)

    def frontier(self) -> pd.DataFrame:
        """Return AUC source and target along the strength m of the calibration.

        A row for each labelled set and variant: ``raw``, ``daco-m...`` from strong to no shrinkage,
        ``ratio-soft``. Columns ``set, variant, configuration, m, auc_source, auc_target`` (means
        over machines and sections), ``signed_gap, absolute_gap, median_gap`` (of source minus
        target) and ``score``.
        """
        return analysis.frontier_table(self._metrics)

    def coverage(self) -> pd.DataFrame:
        """Return the realised false-alarm rates of both domains at nominal rates.

        ``set, machine, section, domain, configuration, decision, level, rate, n`` (normal test
        clips). The decision ``p-value`` is that of daco, ``paper's threshold`` that of the paper.
        """
        chosen = self.run["choice"]["config"]
        return analysis.coverage_table(self.clips, chosen)

    def differences(self, *, clips: bool = True) -> pd.DataFrame:
        """Return the evaluation score of the chosen configuration minus those of other rules.

        ``rules`` (that pick the other one), ``first, second, value, low, high, n, over``: paired
        differences in points. With `clips` there are intervals over test clips, too, which hold for
        these machines only.
        """
        return analysis.differences_table(
            self._metrics,
            self._rules,
            self.run["choice"]["config"],
            self.years.get("eval"),
            self.test_clips if clips else None,
        )

    def transfer(self) -> pd.DataFrame:
        """Return how well criterion and dev score predict the evaluation score.

        ``signal, rho`` (Spearman over configurations; +1 is a perfect predictor), its 95 % interval
        ``low, high``, ``over`` (``families`` of configurations, which are near copies of each
        other, or ``machines``), n and, over families, ``p``: two-sided, by permuted family means.
        """
        by_machine = choice.machine_criteria(self.criteria)
        return analysis.transfer_of(self._grid, self._metrics, by_machine, years=self.years)

    def report(self, folder: Path | str | None = None) -> Path:
        """Write the report, ``report.html``, and return its path.

        Parameters
        ----------
        folder : path, optional
            By default the folder of the run, whose ``run.json`` then has the time it took.
        """
        from daco.experiments.report import write_report

        if folder is None and self.folder is None:
            raise InputError("This study has no folder. Name one: result.report(folder).")
        started = time.perf_counter()
        path = write_report(self, folder)
        if self.folder is not None and folder is None:
            times = self.run["times"]
            seconds = round(time.perf_counter() - started, 3)
            total = round(times["total"] - times.get("report", 0) + seconds, 3)
            times |= {"report": seconds, "total": total}
            write_run(self.folder, self.run)
        return ReportPath(path)

    def export(self, folder: Path | str) -> list[Path]:
        """Write figures (SVG, PNG) and tables (CSV, LaTeX, Markdown), and return their paths."""
        from daco.experiments.export import write_export

        return write_export(self, folder)
