"""Seeds side by side: what is finished is not run again."""

from collections.abc import Callable
from pathlib import Path

from metareplay.experiments.config import RunConfig
from metareplay.experiments.run import Run
from metareplay.experiments.seeds import run_seeds


def test_finished_seeds_are_not_run_again(tmp_path: Path, tiny_config: Callable[..., RunConfig]) -> None:
    config = tiny_config("sp-dirac", {"training.iterations": 2})
    Run(config, tmp_path / "many" / "seed-0").execute()
    log = (tmp_path / "many" / "seed-0" / "log.txt").read_text()
    results = run_seeds([config], tmp_path / "many", jobs=1, resume=True)
    assert results[0]["seed"] == 0
    assert (tmp_path / "many" / "seed-0" / "log.txt").read_text() == log
