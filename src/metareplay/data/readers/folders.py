"""Folders of images: folder/class/image, or folder/task/class/image; both also inside train/ and test/."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from metareplay.data.base import Examples, Place, encode_labels, encode_tasks
from metareplay.data.inside import refuse_outside
from metareplay.data.readers.images import IMAGE_SUFFIXES, read_pixels
from metareplay.errors import DataError

LAYOUT = "folder/class/image.png or folder/task/class/image.png, both also inside folder/train and folder/test"


class ImageFile(NamedTuple):
    """One image file, with the task, class and split that its folders name."""

    file: Path
    task: str | None
    label: str
    test: bool


def image_files(root: Path) -> list[Path]:
    """All images below a folder, sorted by path; hidden files and other formats are skipped."""
    files = (path for path in root.rglob("*") if path.suffix.lower() in IMAGE_SUFFIXES and path.is_file())
    found = sorted(path for path in files if not any(part.startswith(".") for part in path.relative_to(root).parts))
    refuse_outside(root, found)
    return found


def find_images(root: Path, test_root: Path | None = None) -> list[ImageFile]:
    """The images in a folder, with the task, class and split that their folders name."""
    images = [image for part, test in _parts(root, test_root) for image in _in_part(part, test)]
    if {image.task is None for image in images} == {True, False}:
        odd = next(image for image in images if (image.task is None) != (images[0].task is None))
        raise DataError(f"{odd.file} is not at the same depth as {images[0].file}; every image must be in {LAYOUT}")
    return images


def _parts(root: Path, test_root: Path | None) -> list[tuple[Path, bool]]:
    inside = {path.name: path for path in root.iterdir() if path.is_dir() and not path.name.startswith(".")}
    if test_root is not None:
        return [(root, False), (test_root, True)]
    if set(inside) == {"train"}:
        return [(inside["train"], False)]
    if {"train", "test"} <= set(inside):
        if more := sorted(set(inside) - {"train", "test"}):
            raise DataError(f"{root} has train and test but also {more[0]}; move it elsewhere, or into one of the two")
        return [(inside["train"], False), (inside["test"], True)]
    return [(root, False)]


def _in_part(root: Path, test: bool) -> list[ImageFile]:
    images = []
    for file in image_files(root):
        folders = file.relative_to(root).parts[:-1]
        if not 1 <= len(folders) <= 2:
            raise DataError(
                f"{file} is {'too deep' if folders else 'not in a class folder'}; every image must be in {LAYOUT}"
            )
        images.append(ImageFile(file, folders[0] if len(folders) == 2 else None, folders[-1], test))
    if not images:
        raise DataError(f"{root} holds no images ({', '.join(IMAGE_SUFFIXES[:3])}, ...); expected {LAYOUT}")
    for empty in (path for path in root.rglob("*") if path.is_dir() and not path.name.startswith(".")):
        if not any(empty.iterdir()):
            raise DataError(f"the folder {empty} is empty; every class needs images: add some, or remove the folder")
    return images


def read_folder(root: Path, test_root: Path | None, size: tuple[int, int] | None) -> Examples:
    """The pixels of all images; labels and tasks are folder names."""
    images = find_images(root, test_root)
    places = (Place("", [str(image.file) for image in images]),)
    x, mode = read_pixels([image.file for image in images], lambda index: str(images[index].file), size)
    y, labels = encode_labels(np.array([image.label for image in images], dtype=object), "class", places)
    task, tasks = (None, ()) if images[0].task is None else encode_tasks([image.task for image in images], places)
    test = torch.tensor([image.test for image in images])
    inputs = {"kind": "images", "mode": mode, "size": list(x.shape[2:]), "resize": size is not None}
    return Examples(x, y, labels, places, task, tasks, test if bool(test.any()) else None, inputs)
