"""Write plots to files."""

from io import BytesIO
from pathlib import Path

from lakeproof.errors import UsageError
from lakeproof.output_files import write_whole
from reader.plot.series import Plot

_WIDTH, _HEIGHT = 10.0, 3.0  # size of a panel in inches


def write_image(plot: Plot, path: Path) -> None:
    """Write a plot to a file, in the format of its suffix."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError(
            "Drawing to a file requires matplotlib, which is not installed.",
            "Run `pip install 'lakeproof[plot]'`. Without --output, the plot is drawn in the terminal.",
        ) from error

    figure = Figure(figsize=(_WIDTH, _HEIGHT * len(plot.panels)), layout="constrained")
    kinds = sorted(figure.canvas.get_supported_filetypes())
    kind = path.suffix.removeprefix(".").lower()
    if kind not in kinds:
        raise UsageError(
            f"Cannot draw to {path}: unknown kind of file.", f"Use a name that ends with one of: {', '.join(kinds)}."
        )
    figure.suptitle(_plain(plot.title))
    every = figure.subplots(len(plot.panels), sharex=True, squeeze=False)[:, 0]
    for axes, panel in zip(every, plot.panels, strict=True):
        for line in panel.lines:
            style = {"marker": "o", "linestyle": "none", "fillstyle": "none"} if line.is_points else {"marker": "."}
            axes.plot(line.times, line.values, label=_plain(line.label), **style)
        axes.set_ylabel(panel.measure)
        axes.grid(visible=True, alpha=0.3)
        axes.set_xlim(*plot.limits)
        if panel.from_zero and axes.get_ylim()[0] > 0:
            axes.set_ylim(bottom=0)
    every[-1].set_xlabel(f"{plot.time} (UTC)")
    every[0].legend(loc="best", fontsize="small")
    image = BytesIO()
    figure.savefig(image, format=kind)
    try:
        write_whole(path, image.getvalue())
    except OSError as error:
        raise UsageError(
            f"Cannot write {path}: {error.strerror or error}.", "Check the folder, or use another one."
        ) from error


def _plain(text: str) -> str:
    """Escape text: matplotlib hides labels that begin with _, and reads $ as mathematics."""
    return text.replace("$", r"\$") if not text.startswith("_") else " " + text.replace("$", r"\$")
