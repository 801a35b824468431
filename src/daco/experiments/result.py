"""StudyResult: the two tables of a study, clips and criteria, and what follows from them."""

from __future__ import annotations

import json
import time
from collections.abc import Sequence
from dataclasses import dataclass, field
from html import escape
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self

from daco.errors import DataError, InputError
from daco.experiments.run_files import CLIPS, CRITERIA, P_VALUE, REPORT, RUN, write_run
from daco.text import quantity

if TYPE_CHECKING:
    import pandas as pd

    from daco.method.selection import Choice, Rule

__all__ = ["CLIPS", "CRITERIA", "P_VALUE", "REPORT", "RUN", "ReportPath", "StudyResult"]


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
        test), ``clip``, ``domain`` (empty if unknown), ``label`` (1 anomaly, 0 normal, -1 unknown)
        and ``weight_target`` (the share of the target domain in the decision). Then one column of
        scores for each configuration; those of the normals are leave-one-out scores. ``p:<name>``
        has the p-values of a configuration.
    criteria : DataFrame
        ``set, machine, section, configuration, measure, split, value``. The criterion is the mean
        of ``balance`` over splits; ``resample`` has it for resampled splits and clips, ``paper``
        for the paper's ten splits if they are not the first ten. ``uniformity`` and ``pseudo_...``
        have the split -1.
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
        import pandas as pd

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

    def year(self, which: str) -> int | None:
        """Return the year whose rules hold for a set."""
        return self.run.get("years", {}).get(which)

    def metrics(self, configs: Sequence[str] | None = None) -> pd.DataFrame:
        """Return the official metrics in percent, one row per machine, section, configuration."""
        import pandas as pd

        from daco.evaluation.official import metrics_table

        wanted = [*self.candidates, *self.compared] if configs is None else list(configs)
        clips = self.test_clips
        parts = [
            metrics_table(clips[clips["set"] == each], wanted, self.year(each))
            for each in self.sets
        ]
        return pd.concat(parts, ignore_index=True)

    def grid(self) -> pd.DataFrame:
        """Return score and criterion of every candidate, one row each."""
        from daco.experiments.choice import grid_table

        return grid_table(self)

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
        from daco.experiments.choice import choose_from

        return choose_from(self, rule)

    def rules(self) -> pd.DataFrame:
        """Return what each rule picks, and what that scores."""
        from daco.experiments.choice import rules_table

        return rules_table(self)

    def frontier(self) -> pd.DataFrame:
        """Return AUC source and target along the strength m of the calibration."""
        from daco.experiments.analysis import frontier_table

        return frontier_table(self.metrics(self.candidates))

    def coverage(self) -> pd.DataFrame:
        """Return the realised false-alarm rates of both domains at nominal rates."""
        from daco.experiments.analysis import coverage_table

        return coverage_table(self)

    def stability(self) -> pd.DataFrame:
        """Return how many resamples pick each configuration, and what it scores."""
        from daco.experiments.choice import stability_table

        return stability_table(self)

    def differences(self) -> pd.DataFrame:
        """Return the score of the chosen configuration minus those of other rules."""
        from daco.experiments.analysis import differences_table

        return differences_table(self)

    def transfer(self) -> pd.DataFrame:
        """Return how well criterion and dev score predict the evaluation score."""
        from daco.experiments.analysis import transfer_table

        return transfer_table(self)

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
