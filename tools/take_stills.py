"""Take the still of each hero, for pages that run no scripts: `make stills`; NAMES="bag_of_words" for one.

A still is the drawing as it stands at first, or after the button that the hero's JSON names as `still`. It
brings its style along, and follows the scheme, light or dark, of the page that shows it.
"""

import re
import sys

import lab

from attention_course.heroes import HEROES, STYLE, hero

# What JupyterLab's dark theme gives the variables of stage.css.
DARK = (
    "--jp-ui-font-color1: #e4e4e4; --jp-ui-font-color2: #b0b0b0; --jp-border-color1: #616161; "
    "--jp-layout-color1: #111; --jp-layout-color2: #333;"
)


def style() -> str:
    """Return the style of the stage for a drawing that stands alone."""
    dark = re.compile(r'\[data-jp-theme-light="false"\] \.attention-hero \{(.*?)\}', re.S)
    css = dark.sub(rf"@media (prefers-color-scheme: dark) {{ svg {{ {DARK}\1}} }}", STYLE)
    css = re.sub(r"^\.attention-hero \{", "svg {", css, flags=re.M).replace(".attention-hero svg ", "svg ")
    return css.replace(".attention-hero ", "svg ")


def take(page, name: str) -> str:
    """Return the still of a hero as SVG."""
    page.set_content(f"<!doctype html><meta charset=utf-8><body>{hero(name).page()}")
    page.evaluate("for (const node of document.querySelectorAll('[hidden]')) node.hidden = false")
    if button := hero(name).still:
        page.get_by_role("button", name=button).click()
    page.wait_for_timeout(1000)
    drawing = page.locator(".attention-hero svg").evaluate(
        "(svg) => new XMLSerializer().serializeToString(svg)"
    )
    drawing = re.sub(r' (tabindex|role|aria-[a-z]+)="[^"]*"', "", drawing)
    return drawing.replace(">", f' data-hero="{name}"><style>\n{style()}</style>', 1) + "\n"


def main() -> None:
    """Take the stills of the named heroes, or of all."""
    chromium = lab.find_chromium() or sys.exit("No Chromium found: install it, or name it in $CHROMIUM.")
    with lab.browser(chromium) as browser:
        page = browser.new_context(reduced_motion="reduce").new_page()
        for name in sys.argv[1:] or HEROES:
            HEROES[name].with_suffix(".svg").write_text(take(page, name), encoding="utf-8")
            print(f"{name}.svg")


if __name__ == "__main__":
    main()
