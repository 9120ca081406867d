"""Scripts that a page runs together are linted together: each name is defined in one and used in one."""

import shutil
import subprocess
import sysconfig
from pathlib import Path

import pytest

from attention_course.heroes import HEROES, hero
from attention_course.plots.style import bundle

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "attention_course"


def read(*names: str) -> str:
    return "\n".join((PACKAGE / name).read_text(encoding="utf-8") for name in names)


def function(script: str, given: str, name: str) -> str:
    """Return a script as a function: what it defines is its own, and `name` is used."""
    return f"(({given}) => {{\n{script}\nreturn {name};\n}})"


def heroes() -> str:
    """Return the stage, and each hero as a function."""
    plays = (function(hero(name).read(".js"), "", "play") for name in HEROES)
    return f"{read('heroes/stage.js')}\nexport const all = [open, {', '.join(plays)}];\n"


def figures() -> str:
    """Return the panels, the figure that draws them in a browser, and the pen that does so in Python."""
    pen = function(read("plots/svg_canvas.js"), "", "svgOf")
    scripts = bundle(PACKAGE / "plots/panels.js", PACKAGE / "explorers/figure.js")
    return f"{scripts}\nexport const still = {pen};\n"


@pytest.mark.parametrize("together", [heroes, figures])
def test_no_name_is_undefined_and_none_unused(together, tmp_path):
    (tmp_path / "together.js").write_text(together(), encoding="utf-8")
    oxlint = shutil.which("oxlint", path=sysconfig.get_path("scripts"))
    command = [oxlint, "--config", ROOT / ".oxlintrc.json", "together.js"]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout
