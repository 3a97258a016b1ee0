"""Images with labels, as a client sends them: files of a form whose fields are labels, or a zip of folders."""

import io
import zipfile
from collections.abc import Iterator, Sequence
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from metareplay.data.readers.images import IMAGE_SUFFIXES
from metareplay.errors import DataError
from metareplay.estimators.loading import AnyEstimator
from metareplay.serve.inputs import check_count, check_image
from metareplay.serve.refusals import RequestError
from metareplay.serve.settings import ServeSettings

ZIP = ("application/zip", "application/x-zip-compressed")
UNPACKED = 4
"""How many times as large as a request's body the files of a zip may be together."""
LONGEST_LABEL = 100


class LabelledFile(NamedTuple):
    """An image, and the class that it shows."""

    label: str
    name: str
    content: bytes


def zipped_images(content: bytes, settings: ServeSettings) -> list[LabelledFile]:
    """The images of a zip, labelled by the folder that each is in; those below a folder ``test`` are left out."""
    try:
        with zipfile.ZipFile(io.BytesIO(content)) as archive:
            return list(_unpacked(archive, settings))
    except (zipfile.BadZipFile, NotImplementedError, RuntimeError, EOFError, OSError, ValueError) as error:
        raise DataError(f"the zip cannot be read ({error}); pack the folders again, without a password") from error


def _unpacked(archive: zipfile.ZipFile, settings: ServeSettings) -> Iterator[LabelledFile]:
    entries = [(entry, PurePosixPath(entry.filename.replace("\\", "/"))) for entry in archive.infolist()]
    images = [
        (entry, path)
        for entry, path in entries
        if path.suffix.lower() in IMAGE_SUFFIXES and not any(part.startswith(("._", "__MACOSX")) for part in path.parts)
    ]
    check_count(len(images), settings)
    left = UNPACKED * settings.max_body
    for entry, path in images:
        if "test" in path.parts[:-2]:
            continue  # test examples are for tests
        if len(path.parts) < 2:
            raise DataError(
                f"{path.name} is not in a folder; every image in the zip must be in the folder of its class"
            )
        with archive.open(entry) as opened:
            image = opened.read(left + 1)  # whatever size the zip announces
        left -= len(image)
        if left < 0:
            raise RequestError(
                413, f"the files in the zip are larger than {UNPACKED} times --max-body; send fewer, or smaller ones"
            )
        yield LabelledFile(path.parts[-2], path.name, image)


def write_images(
    images: Sequence[LabelledFile], estimator: AnyEstimator, settings: ServeSettings, folder: Path
) -> Path:
    """The images as files in folders, under generated names; refused if one is not an image, or has no proper label."""
    if estimator.inputs.get("kind") != "images":
        raise RequestError(415, "this model did not learn from image files, so it cannot learn a task from them")
    if not images:
        raise DataError(
            "there are no images; send files whose fields are their labels: curl -F cat=@1.png -F dog=@2.png"
        )
    check_count(len(images), settings)
    for image in images:
        _check_label(image)
        check_image(image.name, image.content, settings)
    root = folder / "examples"
    for number, image in enumerate(images):
        place = root / "train" / image.label  # so that a class may be called test
        place.mkdir(parents=True, exist_ok=True)
        suffix = ".png" if image.content.startswith(b"\x89PNG") else ".jpg"
        (place / f"{number:06d}{suffix}").write_bytes(image.content)
    return root


def _check_label(image: LabelledFile) -> None:
    """A label becomes the name of one folder, never a path."""
    label = image.label
    if not 0 < len(label.encode()) <= LONGEST_LABEL or not label.isprintable() or label.startswith("."):
        raise DataError(f"{image.name} needs a label of 1 to {LONGEST_LABEL} bytes that does not begin with a dot")
    if "/" in label or "\\" in label:
        raise DataError(f"the label of {image.name} must not contain / or \\; it is {label!r}")
