"""The report: a summary as plain JSON, and one standalone HTML page rendered from it."""

from daco.report.page import render_html
from daco.report.summary import summarise
from daco.report.write import write_report

__all__ = ["render_html", "summarise", "write_report"]
