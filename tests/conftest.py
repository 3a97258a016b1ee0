"""What every test shares: one thread, no display, a cache of its own, seeded random numbers."""

import os
from collections.abc import Iterator
from pathlib import Path

os.environ["MPLBACKEND"] = "Agg"  # before anything imports matplotlib

import pytest
import torch

torch.set_num_threads(1)


@pytest.fixture(scope="session", autouse=True)
def cache_dir(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """No test reads or fills the user's own cache, or depends on how the user's machine reaches the network."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("METAREPLAY_CACHE", str(tmp_path_factory.mktemp("cache")))
        for name in ("METAREPLAY_OFFLINE", "HF_HUB_OFFLINE", "HF_DATASETS_OFFLINE"):
            patch.delenv(name, raising=False)  # tests say themselves when they are offline
        yield


@pytest.fixture(scope="session", autouse=True)
def no_waiting_for_the_disk() -> Iterator[None]:
    """A power failure is nothing that a test brings about: what was written need not have reached the disk."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", lambda handle: None)
        yield


@pytest.fixture(autouse=True)
def seeded_torch() -> None:
    """PyTorch initialises its modules from the global generator: the same in every order of the tests."""
    torch.manual_seed(0)


@pytest.fixture
def rng() -> torch.Generator:
    return torch.Generator().manual_seed(0)


@pytest.fixture(scope="session")
def mnist_dir() -> Path:
    """The real MNIST: what METAREPLAY_DATA names, or data/mnist beside the repository; else the test is skipped."""
    pytest.importorskip("datasets")
    named = os.environ.get("METAREPLAY_DATA")
    found = [Path(named)] if named else sorted(Path(__file__).parents[2].glob("*/data/mnist"))
    if not found:
        pytest.skip("MNIST is not at hand; METAREPLAY_DATA names its folder")
    return found[0]
