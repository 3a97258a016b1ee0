"""What is built from it: task inference by statistics, the living model, the layers of the package."""

from website.drawings.canvas import TASKS, Canvas

LAYERS = (
    ("small tools", "errors, files, seeding, settings, parts, …"),
    ("data", "data, benchmarks"),
    ("networks", "nets, batches, kernels"),
    ("what is learned", "posteriors, task_maps, likelihoods, model"),
    ("how it is learned", "strategies, training"),
    ("how it answers", "inference"),
    ("one learner", "learner"),
    ("ways to use it", "streams, export, estimators, integrations"),
    ("measuring", "evaluation, experiments"),
    ("living models", "living"),
    ("reporting", "report, paper"),
    ("entry points", "serve, cli"),
)
"""Groups of layers, from those that import nothing to those that may import all."""


def inference() -> Canvas:
    """An input is compared with what every task stored; odds become probabilities, unknown inputs are recognised."""
    drawing = Canvas(420, "An input is compared with what was stored about every task")
    drawing.box(195, 8, 90, 34, "an input")
    places = ((-18, -8), (8, 6), (20, -10))
    for number, colour in enumerate(TASKS):
        x = 80 + 160 * number
        drawing.line((240, 42), (x, 74))
        drawing.box(x - 66, 78, 132, 122, fill="none", colour=colour)
        drawing.text(x, 98, f"stored: task {number + 1}", size=13, colour=colour, bold=True)
        for place, (dx, dy) in enumerate(places[: 3 - number % 2]):
            drawing.ellipse(x + 1.4 * dx, 132 + dy, 34 - 4 * place, 22, colour, turned=30 * place - 20)
        drawing.text(x, 178, "inputs, features,", size=12, colour="muted")
        drawing.text(x, 193, "outputs", size=12, colour="muted")
        drawing.line((x, 204), (x, 228), colour=colour)
    drawing.box(14, 232, 452, 34, "which task fits better, pair by pair?")
    drawing.text(240, 284, "weights learned on held-out inputs of each new task", size=12, colour="muted")
    drawing.line((150, 292), (150, 316))
    drawing.line((370, 292), (370, 316))
    drawing.text(150, 334, "probability of each task", bold=True)
    for number, length in enumerate((26, 128, 12)):
        drawing.bar(84, 346 + 16 * number, length, TASKS[number])
    drawing.text(150, 412, "the answer mixes tasks by it", size=12, colour="muted")
    drawing.text(370, 334, "does it resemble any?", bold=True)
    drawing.bell(300, 388, 140, 38, "line", centre=0.35, spread=0.16)
    drawing.line((402, 346), (402, 392), dashed=True, arrow=False, colour="two")
    drawing.text(408, 362, "unknown", at="start", size=12, colour="two")
    drawing.text(370, 412, "strangeness, and a threshold", size=12, colour="muted")
    return drawing


def living() -> Canvas:
    """Generations of one folder, the verbs between them, and who reads it."""
    drawing = Canvas(330, "A stored model takes up tasks, one generation after another")
    names = ("new", "january", "february", "march")
    for number, name in enumerate(names):
        x = 14 + 120 * number
        drawing.box(x, 84, 92, 50, f"model {number}", name if number else "no task yet")
        if number:
            drawing.line((x - 26, 109), (x - 2, 109))
            drawing.text(x - 14, 72, "add-task", size=12)
    drawing.text(466, 24, "with --gate: refused if an old task would suffer", at="end", size=12, colour="two")
    drawing.line((360, 32), (360, 56), colour="two")
    drawing.line((420, 138), (300, 138), colour="three", bend=(360, 178))
    drawing.text(360, 176, "undo", size=12, colour="three")
    drawing.box(14, 198, 452, 40, "one folder, replaced in one step", "")
    drawing.text(240, 232, "weights, statistics, facts; no example; history and kept versions", size=12, colour="muted")
    for x, name, about in ((70, "predict, serve", "answer"), (240, "audit", "has anything moved?"),
                           (410, "history, tasks", "what happened")):  # fmt: skip
        drawing.line((x, 240), (x, 266))
        drawing.text(x, 286, name, bold=True)
        drawing.text(x, 304, about, size=12, colour="muted")
    return drawing


def layers() -> Canvas:
    """The package, from small tools to the command line."""
    step = 34
    drawing = Canvas(step * len(LAYERS) + 40, "A file imports only from layers above its own")
    for number, (title, folders) in enumerate(LAYERS):
        y = 8 + step * number
        drawing.box(8, y, 440, step - 6, colour=TASKS[number // 4])
        drawing.text(20, y + 19, title, at="start", size=13, bold=True)
        drawing.text(184, y + 19, folders, at="start", size=12)
    bottom = 8 + step * len(LAYERS)
    drawing.line((464, bottom - 8), (464, 12))
    drawing.text(240, bottom + 20, "A file imports only from layers above its own.", size=13)
    return drawing
