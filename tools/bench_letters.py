"""Time from a key press to the painted figure, of the GPT that runs in a page: `make bench-letters`.

The CPU is slowed four times, or as often as an argument says. A letter at the end of a text is one token to
read; at its beginning, all tokens are read anew. When the temperature moves, up to 44 letters are written.
"""

import statistics
import sys
import tempfile
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from shutil import copytree
from threading import Thread

import lab
from website import explorers

PAGE = """<!doctype html><meta charset="utf-8"><link rel="stylesheet" href="explorers/figure.css">
<body data-jp-theme-light="true">{}<script type="module" src="static/explorer.js"></script>"""
WATCH = """() => {
  const figure = document.querySelector("[data-painted]");
  addEventListener("keydown", () => (window.pressed = performance.now()), true);
  const painted = () => window.times.push(performance.now() - window.pressed);
  new MutationObserver(painted).observe(figure, { attributeFilter: ["data-painted"] });
}"""
STORY = "Kind Eve gave poor Sam a drum at the farm. What? A drum. Where? At the farm. Who got it? Poor Sam. "
TASKS = [  # name of the explorer, what is done, the control, keys before, keys
    ("attention_over_text", "a letter at the end", "text", [], STORY),
    ("attention_over_text", "a letter at the beginning", "text", ["Control+Home"], "Who got it? "),
    ("attention_over_text", "the query", "position", [], ["ArrowLeft"] * 40),
    ("sampling", "a letter at the end, 44 more written", "text", [], STORY[:60]),
    ("sampling", "the temperature, 44 letters written", "temperature", [], ["ArrowLeft"] * 10),
]


def main(slower: float) -> None:
    """Print the median and the longest of the times of each task."""
    path = lab.find_chromium() or sys.exit("No browser: install Chromium, or name one in $CHROMIUM.")
    with tempfile.TemporaryDirectory() as folder, lab.browser(path) as chromium:
        explorers.write(Path(folder, "explorers"))
        copytree(Path(explorers.__file__).parent / "static", Path(folder, "static"))
        for name in {task[0] for task in TASKS}:
            Path(folder, f"{name}.html").write_text(PAGE.format(explorers.markup(name)), encoding="utf-8")
        quiet = type("Quiet", (SimpleHTTPRequestHandler,), {"log_message": lambda *_: None})
        server = ThreadingHTTPServer(("127.0.0.1", 0), partial(quiet, directory=folder))
        Thread(target=server.serve_forever, daemon=True).start()
        for name, what, control, before, keys in TASKS:
            page = chromium.new_page(viewport={"width": 390, "height": 844})
            page.goto(f"http://127.0.0.1:{server.server_port}/{name}.html")
            page.wait_for_selector("[data-painted]")
            handle = page.locator(f"[name={control}]")
            if keys[0] != "ArrowLeft" and not before:
                handle.fill("")
            for key in [*before, "ArrowRight"]:
                handle.press(key)
            page.wait_for_load_state("networkidle")
            page.evaluate(WATCH)
            page.context.new_cdp_session(page).send("Emulation.setCPUThrottlingRate", {"rate": slower})
            page.evaluate("window.times = []")
            for key in keys:
                handle.press(key if key != " " else "Space")
                page.wait_for_timeout(50)
            times = page.evaluate("window.times")
            longest, median = max(times), statistics.median(times)
            print(
                f"{name:20} {what:38} {median:6.1f} ms, at most {longest:6.1f} ({len(times)} times)",
                flush=True,
            )
            page.close()
        server.shutdown()


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 4)
