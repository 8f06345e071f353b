"""Make the README's pictures from what the browser tests saw.

MULTISLICE_NB_SCREENSHOTS=shots python -m pytest tests/widgets/test_panel_browser.py
python tests/widgets/pictures.py shots
"""

from __future__ import annotations

import sys
from pathlib import Path

from PIL import Image

PICTURES = ("panel-queued-resources", "panel-workers-1024", "panel-plan")
COLOURS = 96
"""As many as a page of text and a few tones need; a picture then takes a third of its size."""
FOLDER = Path(__file__).parents[2] / "notebooks" / "images"


def main(shots: Path) -> None:
    """Reduce each picture to a palette and put it where the README finds it."""
    for name in PICTURES:
        picture = Image.open(shots / f"{name}.png").convert("RGB")
        target = FOLDER / f"{name}.png"
        picture.quantize(COLOURS, dither=Image.Dither.NONE).save(target, optimize=True)
        print(f"{target.name}: {picture.width} x {picture.height}, {target.stat().st_size / 1000:.0f} kB")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
