"""Folders of images: folder/class/image, or folder/task/class/image; both may lie in train/ and test/."""

from pathlib import Path
from typing import NamedTuple

import numpy as np
import torch

from metareplay.data.base import Examples, Place, encode_labels, encode_tasks
from metareplay.data.readers.images import IMAGE_ENDINGS, read_pixels
from metareplay.errors import DataError

LAYOUT = "folder/class/image.png or folder/task/class/image.png, both also inside folder/train and folder/test"


class Found(NamedTuple):
    """One image file and what its folders say."""

    file: Path
    task: str | None
    label: str
    test: bool


def image_files(root: Path) -> list[Path]:
    """All images below a folder, in the order of their names; hidden files and other kinds are passed over."""
    files = (path for path in root.rglob("*") if path.suffix.lower() in IMAGE_ENDINGS and path.is_file())
    return sorted(path for path in files if not any(part.startswith(".") for part in path.relative_to(root).parts))


def find_images(root: Path, test_root: Path | None = None) -> list[Found]:
    """The images of a folder with what their folders say of them."""
    found = [image for part, test in _parts(root, test_root) for image in _in_part(part, test)]
    if {image.task is None for image in found} == {True, False}:
        odd = next(image for image in found if (image.task is None) != (found[0].task is None))
        raise DataError(f"{odd.file} lies deeper or less deep than {found[0].file}; every image must lie in {LAYOUT}")
    return found


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


def _in_part(root: Path, test: bool) -> list[Found]:
    found = []
    for file in image_files(root):
        folders = file.relative_to(root).parts[:-1]
        if not 1 <= len(folders) <= 2:
            raise DataError(
                f"{file} lies {'in no class folder' if not folders else 'too deep'}; every image must lie in {LAYOUT}"
            )
        found.append(Found(file, folders[0] if len(folders) == 2 else None, folders[-1], test))
    if not found:
        raise DataError(f"{root} holds no images ({', '.join(IMAGE_ENDINGS[:3])}, ...); expected is {LAYOUT}")
    for empty in (path for path in root.rglob("*") if path.is_dir() and not path.name.startswith(".")):
        if not any(empty.iterdir()):
            raise DataError(f"the folder {empty} is empty; every class needs images: add some, or remove the folder")
    return found


def read_folder(root: Path, test_root: Path | None, size: tuple[int, int] | None) -> Examples:
    """The pixels of all images; labels and tasks are the folders' names."""
    found = find_images(root, test_root)
    places = (Place("", [str(image.file) for image in found]),)
    x, mode = read_pixels([image.file for image in found], lambda index: str(found[index].file), size)
    y, labels = encode_labels(np.array([image.label for image in found], dtype=object), "class", places)
    task, tasks = (None, ()) if found[0].task is None else encode_tasks([image.task for image in found], places)
    test = torch.tensor([image.test for image in found])
    inputs = {"kind": "images", "mode": mode, "size": list(x.shape[2:]), "resize": size is not None}
    return Examples(x, y, labels, places, task, tasks, test if bool(test.any()) else None, inputs)
