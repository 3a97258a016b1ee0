"""An engine by its name: ``local``, ``slurm``, ``ray`` or ``ray=ADDRESS``."""

from metareplay.errors import ConfigError
from metareplay.experiments.engines.base import Engine, mapping_of, parse_resources
from metareplay.experiments.engines.local import Local
from metareplay.experiments.engines.slurm import Slurm


def engine_named(name: str, resources: str | None = None) -> Engine:
    """The engine, with what each job may use."""
    wanted, (kind, equals, address) = parse_resources(resources), name.partition("=")
    if kind == "local" and not equals:
        if given := mapping_of(wanted):
            raise ConfigError(f"--resources {next(iter(given))} has no effect with --on local; use --jobs and threads")
        return Local()
    if kind == "slurm" and not equals:
        return Slurm(wanted)
    if kind == "ray" and bool(equals) == bool(address):
        from metareplay.experiments.engines.on_ray import OnRay, refuse_unreachable

        refuse_unreachable(address or None)  # before anything is written
        return OnRay(address or None, wanted)
    raise ConfigError(f"--on {name!r} is unknown; choose local, slurm, ray or ray=ADDRESS")
