"""From run folders and comparisons to numbers, plots, pictures and one HTML page. No torch; no run writes any of it."""

from __future__ import annotations

from segstream.report.grid_page import write_comparison
from segstream.report.page import write_report
from segstream.report.tables import Summary, score_table, summary

__all__ = ["Summary", "score_table", "summary", "write_comparison", "write_report"]
