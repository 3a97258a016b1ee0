"""Seeds in parallel, each in its own process: the same figures as alone, and one failure spoils nothing."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path

import pytest

from metareplay.errors import MetaReplayError
from metareplay.experiments.engines.base import PARENT
from metareplay.experiments.plan import Plan
from metareplay.experiments.run import Run
from metareplay.experiments.seeds import Request, SeedStatus, run_seeds
from metareplay.learner.config import RunConfig


def with_seeds(config: RunConfig, out: Path, *seeds: int) -> list[Plan]:
    plan = Plan.of(config, out)
    return [plan.with_seed(seed, out / f"seed-{seed}") for seed in seeds]


@pytest.mark.slow  # in short: test_seeds_share_what_was_read
def test_two_jobs_give_the_same_as_alone(
    tmp_path: Path, tiny_config: Callable[..., RunConfig], assert_same_run: Callable[[Path, Path], None]
) -> None:
    """Also if both write for TensorBoard."""
    board = find_spec("tensorboard") is not None
    plans, heard = with_seeds(tiny_config("pr-bbb"), tmp_path / "many", 3, 4), list[list[SeedStatus]]()
    results = run_seeds(plans, jobs=2, resume=False, tensorboard=board, report=heard.append)
    assert [result.seed for result in results] == [3, 4]
    for plan in plans:
        alone = tmp_path / f"alone-{plan.config.seed}"
        Run(Plan.of(plan.config, alone)).execute()
        assert_same_run(alone, plan.folder)
        assert not board or list((plan.folder / "tensorboard").iterdir())
    assert results[0].tgiven_matrix != results[1].tgiven_matrix or results[0].tinfer_final != results[1].tinfer_final
    assert [(status.seed, status.share, status.state) for status in heard[-1]] == [
        (3, 1.0, "finished"),
        (4, 1.0, "finished"),
    ]
    left = {path.name for path in (tmp_path / "many" / "seed-3").iterdir()}
    assert not left & {"request.json", "progress.json"}


def test_a_failing_seed_is_reported_and_the_others_are_kept(
    tmp_path: Path, tiny_config: Callable[..., RunConfig]
) -> None:
    blocked = tmp_path / "many" / "seed-0"
    blocked.mkdir(parents=True)
    (blocked / "mine.txt").write_text("precious")  # makes this seed refuse its folder
    plans = with_seeds(tiny_config("sp-dirac", {"training.iterations": 2}), tmp_path / "many", 0, 1)
    with pytest.raises(MetaReplayError, match=r"seed 0 stopped: .*already exists.*\(1 of 2 seeds are kept\)"):
        run_seeds(plans, jobs=2, resume=False)
    assert json.loads((tmp_path / "many" / "seed-1" / "results.json").read_text())["seed"] == 1
    assert (blocked / "mine.txt").read_text() == "precious"


def test_finished_seeds_are_not_run_again(tmp_path: Path, tiny_config: Callable[..., RunConfig]) -> None:
    config = tiny_config("sp-dirac", {"training.iterations": 2})
    Run(Plan.of(config, tmp_path / "many" / "seed-0")).execute()
    log = (tmp_path / "many" / "seed-0" / "log.txt").read_text()
    results = run_seeds(with_seeds(config, tmp_path / "many", 0), jobs=1, resume=True)
    assert results[0].seed == 0
    assert (tmp_path / "many" / "seed-0" / "log.txt").read_text() == log


def test_finished_seeds_of_another_configuration_are_refused(
    tmp_path: Path, tiny_config: Callable[..., RunConfig]
) -> None:
    Run(Plan.of(tiny_config("sp-dirac", {"training.iterations": 2}), tmp_path / "many" / "seed-0")).execute()
    with pytest.raises(MetaReplayError, match="another configuration"):
        run_seeds(
            with_seeds(tiny_config("sp-dirac", {"training.iterations": 3}), tmp_path / "many", 0), jobs=1, resume=True
        )


def test_a_stop_before_all_seeds_have_run_says_how_to_go_on(
    tmp_path: Path, tiny_config: Callable[..., RunConfig]
) -> None:
    config = tiny_config("sp-dirac", {"training.iterations": 2})
    Run(Plan.of(config, tmp_path / "many" / "seed-0")).execute()
    with pytest.raises(MetaReplayError, match="--resume"):
        run_seeds(with_seeds(config, tmp_path / "many", 0, 1), jobs=1, resume=True, should_stop=lambda: True)


def test_a_seed_whose_parent_was_killed_while_it_started_saves_its_state_and_ends(
    tmp_path: Path, tiny_config: Callable[..., RunConfig]
) -> None:
    config, killed = tiny_config("pr-bbb").dump(), os.getpid() + 10**6
    request = Request(config=config, source="here", tasks=None, resume=True, tensorboard=False)
    (tmp_path / "request.json").write_text(request.model_dump_json())
    ended = subprocess.run(
        [sys.executable, "-m", "metareplay.experiments.seeds", str(tmp_path)],
        env={**os.environ, PARENT: str(killed)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert ended.returncode == 2
    assert "continue with --resume" in ended.stderr
    assert not (tmp_path / "results.json").exists()
