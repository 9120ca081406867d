"""How soon a page of the site shows its opening picture on a phone, and what moves: `make bench-pages`.

The site in `site/` is opened at 390 x 844 with the processor slowed four times, each page three times without
a cache. Printed are the medians: the first paint, the frame in which the opening picture stands, and the sum
of the layout shifts, which tests/browser/website/test_phone.py holds at 0.
"""

import http.server
import statistics
import sys
import threading
from functools import partial

import lab

from attention_course.ladder import RUNGS

SLOWER = 4
WATCH = """
    window.moved = 0;
    new PerformanceObserver((list) => {
        for (const entry of list.getEntries()) window.moved += entry.value;
    }).observe({ type: "layout-shift", buffered: true });
    const look = () => {
        if (document.querySelector(".attention-hero svg text")) window.shown = performance.now();
        else requestAnimationFrame(look);
    };
    requestAnimationFrame(look);
"""
MEASURED = """() => [
    performance.getEntriesByName("first-contentful-paint")[0].startTime, window.shown, window.moved,
]"""


class Quiet(http.server.SimpleHTTPRequestHandler):
    """A server that prints nothing."""

    def log_message(self, *_):
        pass


def measure(browser, address: str) -> list[float]:
    """Return the first paint, when the picture stands, both in milliseconds, and the layout shift."""
    phone = browser.new_context(viewport={"width": 390, "height": 844}, device_scale_factor=3, is_mobile=True)
    page = phone.new_page()
    page.context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": SLOWER})
    page.add_init_script(WATCH)
    page.goto(address)
    page.wait_for_load_state("networkidle")
    measured = page.evaluate(MEASURED)
    phone.close()
    return measured


def main() -> None:
    """Measure the front page and each rung."""
    chromium = lab.find_chromium() or sys.exit("No Chromium found: install it, or name it in $CHROMIUM.")
    handler = partial(Quiet, directory=lab.ROOT / "site")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    print("page                    first paint   picture   layout shift")
    with lab.browser(chromium) as browser:
        for path in ["", *(f"{rung.name}/" for rung in RUNGS)]:
            runs = [measure(browser, f"http://127.0.0.1:{server.server_port}/{path}") for _ in range(3)]
            paint, shown, moved = map(statistics.median, zip(*runs, strict=True))
            print(f"{path or 'front page':23} {paint:8.0f} ms {shown:6.0f} ms {moved:14.4f}")
    server.shutdown()


if __name__ == "__main__":
    main()
