"""The browser that these tests need, without which they are skipped, or fail in CI; and fonts for it."""

import os
from pathlib import Path

import lab
import matplotlib
import pytest
from fontTools.ttLib import TTFont


@pytest.fixture(scope="session")
def chromium_path() -> str:
    """Return where Chromium is."""
    if path := lab.find_chromium():
        return path
    reason = "No browser for this test: install Chromium, or name one in $CHROMIUM."
    if os.environ.get("CI"):
        pytest.fail(f"{reason} In CI no browser test may be skipped.")
    pytest.skip(reason)


FONTS = """<fontconfig><dir>{0}</dir><cachedir>{0}</cachedir>
<alias><family>monospace</family><prefer><family>DejaVu Sans Mono</family></prefer></alias>
<alias><family>sans-serif</family><prefer><family>DejaVu Sans</family></prefer></alias></fontconfig>"""


@pytest.fixture(scope="session")
def letters(tmp_path_factory):
    """Give a browser other letters: `letters(1.15)` returns the environment in which DejaVu's are 15 % wider.

    Readers have fonts that nobody here has; what depends on no font's widths is right with theirs. Those of
    code stay as they are: all fonts for it are about as wide.
    """

    def made(scale: float) -> dict[str, str]:
        folder = tmp_path_factory.mktemp("fonts")
        for name in ("DejaVuSans.ttf", "DejaVuSans-Bold.ttf", "DejaVuSansMono.ttf"):
            font = TTFont(Path(matplotlib.get_data_path(), "fonts/ttf", name))
            if "Mono" not in name:
                advances = font["hmtx"].metrics
                font["hmtx"].metrics = {
                    glyph: (round(scale * by), left) for glyph, (by, left) in advances.items()
                }
            font.save(folder / name)
        (folder / "fonts.conf").write_text(FONTS.format(folder))
        return {"FONTCONFIG_FILE": str(folder / "fonts.conf")}

    return made
