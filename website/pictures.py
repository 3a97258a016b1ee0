"""Pictures that follow the scheme chosen on the page, where code hosts can only follow the system's.

A `<picture>` with a light and a dark form becomes two images of which the theme shows one. Drawings (docs/images/drawn)
are put into the page, where their colours are variables of the page.
"""

import posixpath
import re

from website.outside import DOCS, ROOT

DRAWN = "images/drawn/"
PICTURE = re.compile(r"<picture>\s*<source\b([^>]*)>\s*<img\b([^>]*?)/?>\s*</picture>", re.DOTALL)
IMAGE = re.compile(r"<img\b[^>]*>")
STYLE = re.compile(r"<style>.*?</style>\s*", re.DOTALL)


def attribute(name: str, tag: str) -> str:
    """The value of an attribute; empty if there is none."""
    found = re.search(rf'\b{name}="([^"]*)"', tag)
    return found[1] if found else ""


def _two_images(picture: re.Match[str]) -> str:
    source, image = picture[1], picture[2]
    dark = image.replace(attribute("src", image), attribute("srcset", source))
    return "".join(f"<img{tag.replace(name, f'{name}#only-{scheme}')}>" for tag, name, scheme in (
        (image, attribute("src", image), "light"), (dark, attribute("srcset", source), "dark")))  # fmt: skip


def with_pictures_by_scheme(html: str, page: str) -> str:
    """The content of a page, with its pictures and drawings in the form for the site."""

    def inlined(image: re.Match[str]) -> str:
        path = posixpath.normpath(posixpath.join(posixpath.dirname(page), attribute("src", image[0])))
        if not path.startswith(DRAWN):
            return image[0]
        drawing = STYLE.sub("", (ROOT / DOCS / path).read_text(encoding="utf-8")).strip()
        label = f'<svg class="drawn" role="img" aria-label="{attribute("alt", image[0])}"'
        return drawing.replace("<svg", label, 1)

    return IMAGE.sub(inlined, PICTURE.sub(_two_images, html))
