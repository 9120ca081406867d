"""Time from Check to the verdict, for every exercise of the site: `make bench-judge`, after `make site`.

Two folders are compared by turns, so that other load affects both: OPTIONS="site ../before/site". The answer
is wrong in a way that no mistake has, which takes longest: it is compared with all of them. The first check
of a page loads Python; that of each other exercise comes some seconds after its editor got the focus.
"""

import argparse
import re
import statistics
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import lab
from playwright.sync_api import Locator, Page

CHECKS = 3  # of each exercise
PRESS = """async (button) => {
    const start = performance.now();
    button.click();
    while (button.disabled) await new Promise((ends) => setTimeout(ends, 2));
    return (performance.now() - start) / 1000;
}"""


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_):
        pass


def practice(chromium, folder: Path) -> Page:
    """Serve a site, and open its page of all exercises."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=folder))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    page = chromium.new_context().new_page()
    page.goto(f"http://127.0.0.1:{server.server_port}/practice/")
    page.wait_for_load_state("networkidle")
    return page


def wrong(stub: str, number: int) -> str:
    """Return the stub with a body that returns its first argument."""
    (first,) = re.search(r"def \w+\((\w+)", stub).groups()
    return re.sub(r"raise NotImplementedError.*", f"return {first}  # {number}", stub)


def seconds(task: Locator, typing: float) -> list[float]:
    """Check one exercise some times."""
    task.locator("summary").first.click()
    editor, button = task.locator("textarea"), task.get_by_role("button", name="Check")
    stub, found = editor.input_value(), []
    for number in range(CHECKS):
        editor.fill(wrong(stub, number))
        task.page.wait_for_timeout(1000 * typing)
        found.append(button.evaluate(PRESS))
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("sites", nargs="*", type=Path, default=[lab.ROOT / "site"], help="folders of sites")
    parser.add_argument("--typing", type=float, default=5, help="seconds before each check")
    parser.add_argument("--only", nargs="*", help="names of exercises")
    chosen = parser.parse_args()
    chromium = lab.find_chromium() or sys.exit("There is no Chromium: name one in $CHROMIUM.")
    with lab.browser(chromium) as started:
        pages = {site: practice(started, site) for site in chosen.sites}
        names = [
            task.get_attribute("data-task")
            for task in pages[chosen.sites[0]].locator("[data-task]:has(textarea)").all()
        ]
        names = [name for name in names if not chosen.only or name in chosen.only]
        found: dict[Path, dict[str, list[float]]] = {site: {} for site in chosen.sites}
        for name in names:
            for site, page in pages.items():
                found[site][name] = seconds(page.locator(f"[data-task={name}]"), chosen.typing)
            print(name, *(f"{each:.2f}" for site in chosen.sites for each in found[site][name]), flush=True)
    for site, of in found.items():
        (very_first, *later), *others = of.values()
        first, later = [each[0] for each in others], later + [s for each in others for s in each[1:]]
        print(f"{site}: the first verdict of the page took {very_first:.1f} s")
        for what, each in (("first checks of an exercise", first), ("later checks", later)):
            if each:
                print(f"  {what}: median {statistics.median(each):.2f} s, at most {max(each):.2f} s")


if __name__ == "__main__":
    main()
