"""Write the drawings."""

from website.drawings import ideas, systems
from website.outside import DOCS, ROOT

FOLDER = ROOT / DOCS / "images" / "drawn"
DRAWINGS = {
    "hypernetwork": ideas.hypernetwork,
    "replay": ideas.replay,
    "inference": systems.inference,
    "drift": ideas.drift,
    "living": systems.living,
    "layers": systems.layers,
}

if __name__ == "__main__":
    FOLDER.mkdir(parents=True, exist_ok=True)
    for name, draw in DRAWINGS.items():
        (FOLDER / f"{name}.svg").write_text(draw().svg(), encoding="utf-8")
