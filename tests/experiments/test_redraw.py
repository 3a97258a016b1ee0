"""Arrays for figures recomputed from a stored model equal those that the run itself stored."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from metareplay.errors import DataError
from metareplay.experiments.plan import Plan
from metareplay.experiments.redraw import predictions_of, weights_of
from metareplay.experiments.run import Run
from metareplay.learner.config import RunConfig

pytestmark = pytest.mark.usefixtures("small_maps")


def test_maps_and_weights_are_the_run_s_own(tmp_path: Path, tiny_config: Callable[..., RunConfig]) -> None:
    Run(Plan.of(tiny_config("sp-ssge", {"training.iterations": 2}), tmp_path / "run")).execute()
    kept, again = load_file(tmp_path / "run" / "predictive.safetensors"), predictions_of(tmp_path / "run")
    assert (
        kept.keys() == again.keys() >= {"entropy", "agree", "probability", "sample_entropy", "weights", "weight_index"}
    )
    for name, tensor in kept.items():
        assert torch.equal(tensor, again[name]), name
    assert kept["weights"].shape == (3, 500, 24)
    assert torch.equal(weights_of(tmp_path / "run")["weights"], kept["weights"])


def test_point_estimates_have_no_density(tmp_path: Path, tiny_config: Callable[..., RunConfig]) -> None:
    Run(Plan.of(tiny_config("sp-dirac", {"training.iterations": 2}), tmp_path / "run")).execute()
    kept = load_file(tmp_path / "run" / "predictive.safetensors")
    assert not kept.keys() & {"agree", "sample_entropy", "weights"}
    with pytest.raises(DataError, match="point estimates, which have no weight density"):
        weights_of(tmp_path / "run")
