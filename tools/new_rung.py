"""Begin a rung: `make new-rung STEM=tiny TITLE="a tiny rung"` makes its folder, the last on the ladder.

Every file that a rung needs is in it, short, and passes all tests: it halves a number. Replace what is there.
"""

import argparse
import sys
from pathlib import Path

SKELETON = Path(__file__).parent / "skeleton"
PACKAGE = Path(__file__).resolve().parent.parent / "attention_course"


def main(stem: str, title: str) -> None:
    """Make the folder, and put the stem at the end of the order."""
    folder, ladder = PACKAGE / "rungs" / stem, PACKAGE / "ladder.py"
    if not stem.isidentifier() or not stem.islower():
        sys.exit(f"{stem!r} is no stem: lower-case words with an underscore between them, as tril_matmul.")
    if folder.exists():
        sys.exit(f"There is a rung {stem} already.")
    folder.mkdir()
    (folder / "__init__.py").touch()
    for file in sorted(SKELETON.iterdir()):
        text = file.read_text(encoding="utf-8").replace('title = "STEM"', f'title = "{title}"')
        (folder / file.name).write_text(text.replace("STEM", stem), encoding="utf-8")
    head, end, tail = ladder.read_text(encoding="utf-8").partition("\n)\nNUMBER")
    ladder.write_text(f'{head}\n    "{stem}",{end}{tail}', encoding="utf-8")
    print(f"attention_course/rungs/{stem}: its place is the line {stem!r} in attention_course/ladder.py")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Begin a rung.")
    parser.add_argument("stem", help="the name of its folder, for example tril_matmul")
    parser.add_argument("title", help="its title in the navigation")
    main(**vars(parser.parse_args()))
