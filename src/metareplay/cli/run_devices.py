"""``metareplay run --devices N``: one run that several processes learn together."""

import os
import sys
from dataclasses import replace
from typing import TYPE_CHECKING

from metareplay.errors import ConfigError, MetaReplayError

if TYPE_CHECKING:
    from rich.console import Console

    from metareplay.cli.engine_options import How
    from metareplay.experiments.on_devices import Devices
    from metareplay.experiments.plan import Plan


def team_of(devices: int, strategy: str | None, device: str | None, *, alone: bool) -> "Devices | None":
    """The processes; all but the first are silent. None for one device."""
    if devices == 1:
        if strategy is not None:
            raise ConfigError(
                f"--strategy {strategy} has no effect on one device; add --devices 2 or more, or leave it out"
            )
        return None
    from metareplay.experiments.on_devices import launched
    from metareplay.interrupts import stop_on_signal

    if not alone:
        raise ConfigError("--devices is for one run on this machine; leave out --seeds, --on and --list")
    team = launched(devices, strategy or "ddp", device, stop_on_signal())
    if team.rank > 0:
        sys.stdout = sys.stderr = open(os.devnull, "w")  # noqa: SIM115  (for as long as the process lives)
    return team


def refuse_what_needs_whole_batches(plan: "Plan") -> None:
    """Refuse what several devices cannot learn, before anything is written or removed."""
    import torch

    from metareplay.nets.registry import build_seeded, network_factory
    from metareplay.training.objective import Objective
    from metareplay.training.together import refuse_parts_of_batches

    factory = network_factory(plan.config.network, plan.benchmark.input_shape, plan.config)
    network = build_seeded(factory, 2, torch.Generator().manual_seed(0))  # neither outputs nor weights matter
    refuse_parts_of_batches(network, local=Objective.of(plan.config).local_reparametrisation)


def learn_together(console: "Console", plan: "Plan", how: "How", team: "Devices") -> None:
    """Learn what remains; the first process shows the results."""
    from metareplay.experiments.run import Run
    from metareplay.experiments.run_folder import RunFolder, finished_results
    from metareplay.training.progress import LiveProgress

    try:
        done = how.resume and finished_results(plan.folder, plan.config) is not None
        if not how.resume and team.rank == 0:
            RunFolder(plan.folder).refuse_if_used()
        if not done:
            with team.folder(plan.folder, resume=how.resume) as folder:
                unit = "squared error" if plan.info.problem == "regression" else "accuracy %"
                shown = None if how.quiet or team.rank else LiveProgress(console, unit=unit)
                run = Run(replace(plan, folder=folder), observer=shown, should_stop=team.should_stop, together=team)
                run.execute(resume=how.resume)
    except MetaReplayError:
        if team.rank == 0:
            raise
    if team.rank == 0:
        from metareplay.cli.run_display import print_table, write_page

        results = finished_results(plan.folder, plan.config)
        assert results is not None
        print_table(console, plan.folder, results)
        write_page(console, plan.folder)
