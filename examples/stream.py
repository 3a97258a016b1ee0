"""A stream without boundaries: a machine changes its mode now and then, and the model is not told when.

Run it with: python examples/stream.py
"""

import numpy as np

from metareplay import ContinualClassifier

MODES = {"idle": (0.0, 1.0), "milling": (6.0, 2.0), "drilling": (-4.0, 5.0)}
"""Mean of two of the three sensors in each mode."""


def readings(mode: str, count: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """Sensor readings, and whether each part was good."""
    good = rng.integers(0, 2, count)
    sensors = rng.normal([*MODES[mode], 0.0], [0.8, 0.8, 0.4], (count, 3))
    sensors[:, 2] += 2 * good
    return sensors, np.where(good == 1, f"{mode}: good", f"{mode}: faulty")


def main(length: int = 300, grace: int = 150, iterations: int = 150) -> ContinualClassifier:
    """Follow a stream of five stretches, and print what happens."""
    rng = np.random.default_rng(0)
    stretches = [readings(mode, length, rng) for mode in ("idle", "milling", "idle", "drilling", "milling")]
    x, y = (np.concatenate(part) for part in zip(*stretches, strict=True))
    model = ContinualClassifier(network="mlp-20", seed=0, settings={"training.iterations": iterations})
    batches = ((x[start : start + 25], y[start : start + 25]) for start in range(0, len(x), 25))
    report = model.learn_stream(batches, settings={"grace": grace}, on_event=lambda event: print(event.facts()))
    print(report.against([length * number for number in range(1, 5)]))
    print("accuracy over the whole stream, the mode unknown:", round(model.score(x, y), 3))
    return model


if __name__ == "__main__":
    main()
