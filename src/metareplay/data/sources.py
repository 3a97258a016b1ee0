"""Find, verify and read data sets into tensors; nothing about tasks."""

import importlib.util
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray

from metareplay.data.base import LabelledImages
from metareplay.data.cache import cache_path, load_cached, store
from metareplay.data.offline import OFFLINE_VARIABLE, is_offline
from metareplay.data.originals import Original, find_original
from metareplay.data.readers.parquet import INSTALL_HINT, read_split
from metareplay.errors import DataError

DATA_VARIABLE = "METAREPLAY_DATA"
SPLITS = ("train", "test")


@dataclass(frozen=True)
class ImageSource:
    """A known data set: where it is published, how its files are laid out and what they must contain."""

    name: str
    hub_id: str
    """Repository on the Hugging Face hub."""
    subfolder: str
    """Folder of the parquet files inside that repository."""
    image_column: str
    label_column: str
    mode: str
    """Pillow's name of the pixel layout: "L" for grey, "RGB" for colour."""
    checksums: Mapping[str, str] | None
    """``LabelledImages.checksums`` of the unchanged data set; None where copies with other pixels are in use."""
    sizes: Mapping[str, int] = field(default_factory=dict)
    """How many images each split must have, where there are no checksums."""


KNOWN_SOURCES: dict[str, ImageSource] = {
    "mnist": ImageSource(
        name="mnist",
        hub_id="ylecun/mnist",
        subfolder="mnist",
        image_column="image",
        label_column="label",
        mode="L",
        checksums={
            "train": "71d3be42f93ad20da73bb4a9744d0bebdaa6832be56dc010e21940e72c4c8b1e",
            "test": "4718853ea946af656684509414983beff2e65cf414265c27966161014c003b8b",
        },
    ),
    "cifar10": ImageSource(
        name="cifar10",
        hub_id="uoft-cs/cifar10",
        subfolder="plain_text",
        image_column="img",
        label_column="label",
        mode="RGB",
        checksums=None,
        sizes={"train": 50_000, "test": 10_000},
    ),
    "cifar100": ImageSource(
        name="cifar100",
        hub_id="uoft-cs/cifar100",
        subfolder="cifar100",
        image_column="img",
        label_column="fine_label",
        mode="RGB",
        checksums=None,
        sizes={"train": 50_000, "test": 10_000},
    ),
}


def load_mnist(data_dir: Path | None = None) -> LabelledImages:
    """MNIST: 60,000 training and 10,000 test images of shape (1, 28, 28)."""
    return load_images("mnist", data_dir)


def load_cifar10(data_dir: Path | None = None) -> LabelledImages:
    """CIFAR-10: 50,000 training and 10,000 test images of shape (3, 32, 32)."""
    return load_images("cifar10", data_dir)


def load_cifar100(data_dir: Path | None = None) -> LabelledImages:
    """CIFAR-100 with its fine labels: 50,000 training and 10,000 test images of shape (3, 32, 32)."""
    return load_images("cifar100", data_dir)


def load_images(name: str, data_dir: Path | None = None) -> LabelledImages:
    """A known data set from ``data_dir``, else from the folder in METAREPLAY_DATA, else from the Hugging Face hub.

    The folder may be the data set's own or one that contains it under its name. It is only read.
    """
    source = KNOWN_SOURCES[name]
    if (original := _find_original(name, data_dir)) is not None:
        return _load_original(source, original)
    files = _split_files(source, _locate(source, data_dir))
    cache = cache_path(source.name, [file for split in SPLITS for file in files[split]])
    cached = None if cache is None else load_cached(cache, source.checksums)
    if cached is not None:
        return cached
    train_x, train_y = read_split(files["train"], source.image_column, source.label_column, source.mode)
    test_x, test_y = read_split(files["test"], source.image_column, source.label_column, source.mode)
    images = LabelledImages(train_x, train_y, test_x, test_y)
    _verify(source, images, files)
    if cache is not None:
        store(cache, images)
    return images


def _find_original(name: str, data_dir: Path | None) -> Original | None:
    """The files that the data set's authors publish, if they are in the data folder."""
    named = data_dir if data_dir is not None else os.environ.get(DATA_VARIABLE)
    return find_original(name, Path(named).expanduser()) if named else None


def _load_original(source: ImageSource, original: Original) -> LabelledImages:
    """Read the authors' files; an archive is verified by its published checksum, the content as for other files."""
    cache = cache_path(source.name, original.files)
    images = None if cache is None else load_cached(cache, source.checksums)
    if images is None:
        images = original.read()
        _verify(source, images, dict.fromkeys(SPLITS, original.files))
        if cache is not None:
            store(cache, images)
    return images


def load_digits() -> LabelledImages:
    """Scikit-learn's 1,797 digits of shape (1, 8, 8); a fixed third of each class is for testing."""
    images, labels = _embedded_digits()
    order = np.random.RandomState(0).permutation(len(labels))  # NumPy promises this stream never changes
    is_test = np.zeros(len(labels), dtype=bool)
    for label in np.unique(labels):
        of_label = order[labels[order] == label]
        is_test[of_label[: len(of_label) // 3]] = True
    x = torch.from_numpy(images).unsqueeze(1)  # (N, 8, 8) -> (N, 1, 8, 8)
    y, test = torch.from_numpy(labels), torch.from_numpy(is_test)
    return LabelledImages(x[~test], y[~test], x[test], y[test], max_value=16)


def _embedded_digits() -> tuple[NDArray[np.uint8], NDArray[np.int64]]:
    """Images (N, 8, 8) and labels (N,), read from scikit-learn's file: importing it all takes a second."""
    package = importlib.util.find_spec("sklearn")
    if package is not None and package.origin is not None:
        path = Path(package.origin).parent / "datasets" / "data" / "digits.csv.gz"
        if path.is_file():
            rows = np.loadtxt(path, dtype=np.float64, delimiter=",").astype(np.int64)  # (N, 65)
            return rows[:, :-1].reshape(-1, 8, 8).astype(np.uint8), rows[:, -1]  # (N, 64) -> (N, 8, 8)
    from sklearn.datasets import load_digits as load_embedded

    digits = load_embedded()
    return digits.images.astype(np.uint8), digits.target.astype(np.int64)


def _locate(source: ImageSource, data_dir: Path | None) -> Path:
    """The folder that holds the parquet files."""
    named = data_dir if data_dir is not None else os.environ.get(DATA_VARIABLE)
    if not named:
        root, origin = _download(source), f"the hub's {source.hub_id}"
    else:
        root, origin = Path(named).expanduser(), "--data-dir" if data_dir is not None else DATA_VARIABLE
    if not root.is_dir():
        raise DataError(
            f"{root} (from {origin}) is not a folder; "
            f"give the folder with the {source.name} parquet files, or its parent"
        )
    inside = list(dict.fromkeys((".", source.subfolder, source.name, f"{source.name}/{source.subfolder}")))
    for place in inside:
        if any(any((root / place).glob(f"{split}-*.parquet")) for split in SPLITS):
            return root / place
    raise DataError(
        f"no {source.name} files (train-*.parquet, test-*.parquet) in {root} (from {origin}) "
        f"or its folders {', '.join(inside[1:])}; download the repository {source.hub_id} from the Hugging Face hub "
        f"and give its folder with --data-dir or {DATA_VARIABLE}"
    )


def _download(source: ImageSource) -> Path:
    """The hub's copy; an earlier download is used again, without a network."""
    try:
        from huggingface_hub import snapshot_download
        from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars
    except ImportError as error:
        raise DataError(INSTALL_HINT) from error
    silent = are_progress_bars_disabled()
    if not silent:
        disable_progress_bars()
    try:
        return Path(
            snapshot_download(
                source.hub_id,
                repo_type="dataset",
                allow_patterns=[f"{source.subfolder}/*.parquet"],
                local_files_only=is_offline(),
            )
        )
    except Exception as error:  # the client also lets its HTTP library's own errors through
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        if is_offline():
            raise DataError(
                f"{source.name} is not on this machine, and offline mode ({OFFLINE_VARIABLE} or HF_HUB_OFFLINE) is on; "
                f"put its files (the repository {source.hub_id}, or those its authors publish) into a folder "
                f"and give it with --data-dir or {DATA_VARIABLE}"
            ) from error
        raise DataError(
            f"cannot download {source.name} from the Hugging Face hub ({reason}); check the network, "
            f"or give a folder with the repository {source.hub_id} by --data-dir "
            f"or the environment variable {DATA_VARIABLE}"
        ) from error
    finally:
        if not silent:
            enable_progress_bars()


def _split_files(source: ImageSource, folder: Path) -> dict[str, list[Path]]:
    files = {split: sorted(folder.glob(f"{split}-*.parquet")) for split in SPLITS}
    for split, split_files in files.items():
        if not split_files:
            raise DataError(
                f"{folder} has no file {split}-*.parquet; {source.name} needs train and test files: download it again"
            )
    return files


def _verify(source: ImageSource, images: LabelledImages, files: Mapping[str, list[Path]]) -> None:
    if source.checksums is None:
        for split, labels in (("train", images.train_y), ("test", images.test_y)):
            if len(labels) != source.sizes[split]:
                raise DataError(
                    f"{', '.join(map(str, files[split]))}: {len(labels)} {split} images, "
                    f"but {source.name} has {source.sizes[split]}; download {source.hub_id} again"
                )
        return
    for split, checksum in images.checksums().items():
        expected = source.checksums[split]
        if checksum != expected:
            raise DataError(
                f"checksum of the {split} images in {', '.join(map(str, files[split]))} is {checksum[:12]}..., "
                f"expected {expected[:12]}...: this is not the unchanged {source.name}; download {source.hub_id} again"
            )
