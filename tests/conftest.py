"""What every test shares: one thread, no display, a cache of its own, seeded random numbers; what keeps them quick."""

import os
import sys
from collections.abc import Generator, Iterator, Sequence
from pathlib import Path
from typing import Any

os.environ["MPLBACKEND"] = "Agg"  # before anything imports matplotlib

import pytest
import torch

from .chromium import Browser

torch.set_num_threads(1)
# test modules, with their rewritten assertions, are compiled once, not by every worker of every run
sys.dont_write_bytecode = False
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

LONG = 15.0
"""Seconds of processor time from which on a test is named at the end: it should be shorter, or marked slow."""
BEGUN = pytest.StashKey[float]()


def processor_seconds() -> float:
    """Of this process and of those that it has started and waited for."""
    spent = os.times()
    return spent.user + spent.system + spent.children_user + spent.children_system


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, Any, Any]:
    item.stash[BEGUN] = processor_seconds()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if call.when == "teardown":  # the time of fixtures that were made for it is included
        report.user_properties.append(("processor_seconds", processor_seconds() - item.stash[BEGUN]))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """List the tests that took long; machines differ, so that they do not fail."""
    spent = [
        (seconds, report.nodeid)
        for reports in terminalreporter.stats.values()
        for report in reports
        for name, seconds in getattr(report, "user_properties", ())
        if name == "processor_seconds" and seconds > LONG
    ]
    if spent and "not slow" in config.option.markexpr:
        terminalreporter.section(f"more than {LONG:.0f} s of processor time: shorten them, or mark them slow")
        for seconds, name in sorted(spent, reverse=True):
            terminalreporter.write_line(f"{seconds:6.1f} s  {name}")


def representative_methods() -> set[str]:
    """Methods that bring a part which none before them has: every part is there at least once."""
    from metareplay.learner.methods import METHODS

    known: set[tuple[str, str]] = set()
    chosen = set()
    for name, method in METHODS.items():
        parts = {(kind, part.name) for kind, part in method.parts().items()}
        if not parts <= known:
            chosen.add(name)
        known |= parts
    return chosen


@pytest.hookimpl(tryfirst=True)  # before slow tests are left out
def pytest_collection_modifyitems(items: Sequence[pytest.Item]) -> None:
    """Of tests marked `representative`, those of the other methods are slow."""
    marked = [item for item in items if item.get_closest_marker("representative")]
    quick = representative_methods() if marked else set()
    for item in marked:
        if item.callspec.params["method"] not in quick:  # type: ignore[attr-defined]
            item.add_marker(pytest.mark.slow)


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
    torch.default_generator.manual_seed(0)  # not torch.manual_seed, which writes down the stack for devices to come


@pytest.fixture(scope="module")
def small_maps() -> Iterator[None]:
    """The maps of the plane, which take half of a tiny run's time, have few points; in this process only."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("metareplay.experiments.curves.FINEST", 21)
        yield


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


@pytest.fixture(scope="session")
def text_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny encoder with random weights, in the files of a real one."""
    transformers, tokenizers = pytest.importorskip("transformers"), pytest.importorskip("tokenizers")
    words_known = ("good", "fine", "lovely", "bad", "poor", "awful", "film", "meal", "the", "was", "very")
    folder = tmp_path_factory.mktemp("encoder")
    vocabulary = {word: index for index, word in enumerate(("[PAD]", "[UNK]", *words_known))}
    words = tokenizers.Tokenizer(tokenizers.models.WordLevel(vocabulary, unk_token="[UNK]"))
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    transformers.PreTrainedTokenizerFast(
        tokenizer_object=words, pad_token="[PAD]", unk_token="[UNK]", model_max_length=16
    ).save_pretrained(folder)
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(vocabulary), hidden_size=16, num_hidden_layers=1, num_attention_heads=2, intermediate_size=16,
        max_position_embeddings=16,
    )  # fmt: skip
    transformers.BertModel(config).save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def image_encoder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny vision transformer with random weights, in the files of a real one."""
    transformers = pytest.importorskip("transformers")
    folder = tmp_path_factory.mktemp("vision")
    config = transformers.ViTConfig(
        hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=8, image_size=16, patch_size=8
    )
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        model = transformers.ViTModel(config)
        for weight in model.parameters():
            weight.data += 0.2 * torch.randn(weight.shape)  # so that features differ
    model.save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def one_browser(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Browser]:
    """One Chromium for all tests of a worker."""
    opened = Browser(tmp_path_factory.mktemp("profile"))
    yield opened
    opened.driver.quit()


@pytest.fixture
def browser(one_browser: Browser) -> Iterator[Browser]:
    """A browser without a page, before and after."""
    yield one_browser
    one_browser.leave()
