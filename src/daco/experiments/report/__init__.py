"""The report: a summary as plain JSON, and one standalone HTML page rendered from it."""

from daco.experiments.report.page import render_html
from daco.experiments.report.summary import summarise
from daco.experiments.report.write import write_report

__all__ = ["render_html", "summarise", "write_report"]
