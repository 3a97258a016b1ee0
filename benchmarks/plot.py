"""The table of training steps as a figure."""

from pathlib import Path

from metareplay.report.figures.canvas import BLUE, LIGHT, ORANGE, new_figure, save_figure, style_axes

LEFT = 0.5
PICTURE = Path(__file__).parents[1] / "docs" / "images" / "steps.svg"


def draw(table: str) -> None:
    """Bars for one core, marks for the floor and for the paper's code; written next to the other images."""
    cells = [
        [cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines() if line.startswith("| ")
    ][1:]
    rows = [
        (name, theirs.split(";")[0], float(floor.split()[0]), float(ours)) for name, theirs, floor, ours, *_ in cells
    ]
    figure = new_figure(7.2, 0.7 + 0.42 * len(rows))
    axes = figure.subplots()
    style_axes(axes, LIGHT, frame=("left",))
    places = range(len(rows))
    axes.barh(places, [ours for *_, ours in rows], color=BLUE, height=0.55, label="metareplay")
    theirs = [(place, float(row[1])) for place, row in zip(places, rows, strict=True) if row[1] != "–"]
    axes.scatter(
        [value for _, value in theirs],
        [place for place, _ in theirs],
        color=ORANGE,
        marker="D",
        s=34,
        zorder=3,
        label="the paper's code",
    )
    floors = [floor for _, _, floor, _ in rows]
    axes.scatter(floors, places, color=LIGHT.ink, marker="|", s=240, linewidths=2, zorder=4, label="arithmetic floor")
    for place, (*_, ours) in zip(places, rows, strict=True):
        axes.annotate(
            f"{ours:.1f}",
            (LEFT, place),
            xytext=(5, 0),
            textcoords="offset points",
            va="center",
            fontsize=9,
            color="#ffffff",
        )
    axes.set(yticks=list(places), yticklabels=[name for name, *_ in rows], xscale="log", xlim=(LEFT, 400))
    axes.set_xticks([1, 2, 5, 10, 20, 50, 100, 200], labels=["1", "2", "5", "10", "20", "50", "100", "200"])
    axes.minorticks_off()
    axes.invert_yaxis()
    axes.set_xlabel("one training step on one core, in steps of plain fine-tuning")
    axes.grid(axis="x", color=LIGHT.line, linewidth=0.6)
    axes.set_axisbelow(True)
    axes.legend(frameon=False, fontsize=9, loc="lower right", labelcolor=LIGHT.ink)
    figure.patch.set_alpha(1.0)
    save_figure(figure, PICTURE)
