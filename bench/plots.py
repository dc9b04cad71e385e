"""Plots of costs by the number of contenders, waiters, items or parties: counts and ratios, no times."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from bench.harness import Measure
from bench.results import KAZOO, OURS, Report, ratios

KINDS = ("requests", "events", "bytes")
STYLES = {OURS: "-o", KAZOO: "--s"}
SIZE_INCHES = (10.0, 2.8)


def draw(report: Report, measures: Mapping[str, Measure], folder: Path) -> list[Path]:
    """Draw a file for each measure with several sizes, if matplotlib is installed."""
    try:
        import matplotlib
    except ImportError:
        print("no plots: install matplotlib, or distsync's extra bench")
        return []
    matplotlib.use("svg")
    matplotlib.rcParams.update({"svg.hashsalt": "distsync", "font.size": 8, "svg.fonttype": "none"})
    swept = [measure for measure in measures.values() if len(measure.sizes) > 1]
    return [draw_one(report, measure, folder) for measure in swept if len(sizes_of(report, measure)) > 1]


def sizes_of(report: Report, measure: Measure) -> set[int]:
    return {one.size for one in report.results if one.measure == measure.name}


def draw_one(report: Report, measure: Measure, folder: Path) -> Path:
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, len(KINDS) + 1, figsize=SIZE_INCHES, layout="constrained")
    for axis, kind in zip(axes, KINDS, strict=False):
        draw_counts(axis, report, measure, kind)
    draw_ratio(axes[-1], report, measure)
    for axis in axes:
        axis.set_xscale("log")
        axis.set_xlabel(measure.of_what)
        axis.grid(alpha=0.3)
    axes[0].legend()
    axes[-1].legend()
    figure.suptitle(measure.title)
    path = folder / f"{measure.name}.svg"
    figure.savefig(path, metadata={"Date": None})
    pyplot.close(figure)
    return path


def draw_counts(axis: Any, report: Report, measure: Measure, kind: str) -> None:
    """Draw the counts on the last server: they are the same on all."""
    results = report.of(measure.name, report.servers[-1])
    for who, style in STYLES.items():
        counted = [(one.size, one.counts[who][kind]) for one in results if who in one.counts]
        axis.plot(*zip(*counted, strict=True), style, label=who)
    if kind == "bytes":
        axis.set_yscale("log")
    else:
        axis.set_ylim(bottom=0)
    axis.set_title(f"{kind} per {measure.operation}")


def draw_ratio(axis: Any, report: Report, measure: Measure) -> None:
    """Draw the rate relative to kazoo's: the median, and the range from the worst to the best round."""
    for server in report.servers:
        spreads = [(one.size, sorted(ratios(one, OURS, KAZOO))) for one in report.of(measure.name, server)]
        sizes = [size for size, _ in spreads]
        axis.plot(sizes, [each[len(each) // 2] for _, each in spreads], "-o", label=server)
        axis.fill_between(sizes, [each[0] for _, each in spreads], [each[-1] for _, each in spreads], alpha=0.2)
    axis.axhline(1, color="grey", linewidth=0.8)
    axis.set_yscale("log")
    axis.set_title("rate / kazoo's")
