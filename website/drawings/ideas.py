"""What is learned and how it is kept: hypernetwork and posteriors, replay, drift of features."""

from website.drawings.canvas import TASKS, Canvas

EMBEDDINGS = ((0.9, 0.2, 0.6, 0.1), (0.1, 0.8, 0.3, 0.7), (0.5, 0.5, 0.1, 0.9))
CENTRES = (0.3, 0.68, 0.48)
SPREADS = (0.1, 0.14, 0.19)


def hypernetwork() -> Canvas:
    """Embeddings, the hypernetwork, a posterior per task; then networks drawn from one of them."""
    drawing = Canvas(372, "A hypernetwork turns each task's embedding into a posterior over weights")
    for x, words in ((52, "embedding"), (204, "hypernetwork"), (392, "posterior")):
        drawing.text(x, 20, words, bold=True)
    for x, words in ((52, "a few numbers"), (204, "shared by all tasks"), (392, "over the weights")):
        drawing.text(x, 38, words, size=12, colour="muted")
    drawing.box(139, 56, 130, 168)
    drawing.network(160, 140, "line", (3, 5, 5, 3), 29)
    for number, colour in enumerate(TASKS):
        y = 84 + 56 * number
        drawing.cells(26, y - 9, colour, EMBEDDINGS[number])
        drawing.line((82, y), (135, y), colour=colour)
        drawing.line((273, y), (318, y), colour=colour)
        drawing.bell(326, y + 18, 134, 38, colour, centre=CENTRES[number], spread=SPREADS[number])
    drawing.text(20, 262, "To answer, networks are drawn from a posterior:", at="start")
    for number in range(3):
        drawing.network(40 + 82 * number, 310, "two")
    drawing.text(144, 350, "each answers on its own", size=12, colour="muted")
    drawing.line((264, 310), (312, 310))
    for number, lengths in enumerate((78, 30, 14)):
        drawing.bar(326, 288 + 16 * number, lengths, "two")
    drawing.text(326, 350, "the average answers", at="start", size=12, colour="muted")
    return drawing


def replay() -> Canvas:
    """A step in the third task: it fits new data, and two old posteriors are held by copies of what they were."""
    drawing = Canvas(330, "While a task is learned, the posteriors of old tasks are held in place")
    drawing.text(62, 20, "embeddings", bold=True)
    drawing.text(190, 20, "hypernetwork", bold=True)
    drawing.text(362, 20, "posteriors", bold=True)
    drawing.box(140, 34, 100, 236)
    drawing.network(156, 152, "line", (3, 4, 3), 34)
    shifts = (0.07, -0.06, 0.0)
    for number, colour in enumerate(TASKS):
        y = 74 + 78 * number
        drawing.cells(36, y - 9, colour, EMBEDDINGS[number])
        drawing.line((92, y), (136, y), colour=colour)
        drawing.line((244, y), (276, y), colour=colour)
        old = number < 2
        centre = CENTRES[number] + shifts[number]
        drawing.bell(284, y + 24, 130, 44, colour, centre=centre, spread=SPREADS[number])
        if old:
            drawing.bell(284, y + 24, 130, 44, colour, centre=CENTRES[number], spread=SPREADS[number], dashed=True,
                         axis=False)  # fmt: skip
            drawing.text(422, y - 2, "held by", at="start", size=12, colour="muted")
            drawing.text(422, y + 13, "its copy", at="start", size=12, colour="muted")
    drawing.text(422, 228, "fits the", at="start", size=12, colour="muted")
    drawing.text(422, 243, "new data", at="start", size=12, colour="muted")
    drawing.text(240, 298, "loss  =  misfit of the new data  +  prior  +  distance of old posteriors", size=13)
    drawing.text(240, 318, "to the copies (dashed) taken before the task began", size=13)
    return drawing


def drift() -> Canvas:
    """Feature space before and after a task: inputs of the new task show the map by which stored Gaussians move."""
    drawing = Canvas(346, "Stored statistics follow the features when later tasks change the network")
    for x, words in ((118, "before task 2"), (362, "after task 2")):
        drawing.text(x, 20, words, bold=True)
        drawing.text(x, 38, "features of network 1", size=12, colour="muted")
    drawing.box(10, 50, 212, 190, fill="none")
    drawing.box(258, 50, 212, 190, fill="none")
    cloud = ((-30, -12), (-16, 14), (-4, -18), (6, 8), (20, -8), (30, 12), (14, 22), (-24, 2), (2, -4))
    drawing.ellipse(76, 110, 84, 48, "one", turned=-25)
    drawing.dot(76, 110, "one", 4)
    drawing.text(76, 162, "stored: task 1", size=12, colour="one")
    for dx, dy in cloud:
        drawing.dot(156 + dx, 196 + dy, "two")
        drawing.dot(392 + 0.85 * dx + 0.35 * dy, 192 - 0.3 * dx + 0.9 * dy, "two")
    drawing.text(116, 258, "inputs of task 2", size=12, colour="two")
    drawing.ellipse(324, 110, 84, 48, "line", turned=-25, dashed=True)
    drawing.ellipse(348, 100, 80, 52, "one", turned=-46)
    drawing.dot(348, 100, "one", 4)
    drawing.text(372, 162, "moved along", size=12, colour="one")
    drawing.text(364, 258, "the same inputs", size=12, colour="two")
    drawing.line((190, 196), (348, 192), colour="two", bend=(262, 246))
    drawing.line((120, 100), (304, 96), colour="one", bend=(212, 60))
    drawing.text(240, 296, "An affine map is fitted to the new task's inputs, seen by both networks;", size=13)
    drawing.text(240, 316, "all stored means and covariances are mapped by it, and widened by", size=13)
    drawing.text(240, 336, "what it leaves unexplained. No old input is needed.", size=13)
    return drawing
