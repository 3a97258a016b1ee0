"""Where runs are executed: processes here, a Slurm array, Ray tasks. The same commands, folders and bits."""

from metareplay.experiments.engines.base import Engine, Job, Resources
from metareplay.experiments.engines.choice import engine_named

__all__ = ["Engine", "Job", "Resources", "engine_named"]
