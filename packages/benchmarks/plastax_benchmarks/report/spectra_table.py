"""Spectra as a table."""

from rich.table import Table

from .spectra import Reports
from .spectra_figure import count


def as_table(reports: Reports) -> Table:
    """A line for each report."""
    # As narrow as possible, since terminals have 80 columns.
    table = Table(box=None, padding=(0, 1, 0, 0))
    table.add_column("task", justify="right", no_wrap=True)
    for name in ("when", "rows"):
        table.add_column(name, no_wrap=True)
    for name in ("Hessian rank", "GGN rank", "largest", "left"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("verdict")
    for place in sorted(reports, key=lambda place: (place.task, place.when != "start", place.rows != "train")):
        report = reports[place]
        table.add_row(
            str(place.task + 1),
            place.when,
            place.rows.replace("_", " "),
            count(report.hessian),
            "n/a" if report.gram is None else count(report.gram),
            f"{report.hessian.largest:.3g}",
            "n/a" if report.residual is None else f"{report.residual.predicted.value:.3g}",
            report.verdict,
        )
    return table


def legend(reports: Reports) -> str:
    """What the columns mean."""
    first = next(iter(reports.values()))
    thresholds = sorted({f"{report.eps:.3g}" for report in reports.values()})
    samples = max(report.samples for report in reports.values())
    return (
        f"Ranks: eigenvalues above eps = {' or '.join(thresholds)}, learned within the steps of the task; "
        f"with [lower, upper] where they are not exact counts. On up to {samples} rows, {first.parameters} parameters. "
        "Largest: eigenvalue of the Hessian. "
        f"Left: the fraction of the squared residual that the quadratic model of {first.loss.replace('_', '-')} keeps "
        "after these steps. "
        "Verdict: how the network begins to learn these rows, compared with new networks."
    )
