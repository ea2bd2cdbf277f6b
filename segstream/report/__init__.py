"""From run folders to numbers, plots, pictures and one HTML page. No torch; nothing here is written by a run."""

from __future__ import annotations

from segstream.report.page import write_report
from segstream.report.tables import Summary, score_table, summary

__all__ = ["Summary", "score_table", "summary", "write_report"]
