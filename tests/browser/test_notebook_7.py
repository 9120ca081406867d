"""Explorers, questions and exercises in Notebook 7, the other application that people open notebooks with."""

import lab

CELLS = [
    "from attention_course.explorers import explore\n\nexplore('tril_matmul')",
    "from attention_course.questions import ask\n\nask('pairs_in_a_block')",
    "from attention_course.exercises import check\n\ncheck('shift_matrix', lambda T: torch.eye(T))",
]


def test_notebook_7_shows_the_same(chromium_path):
    with (
        lab.jupyter_lab({"some.ipynb": lab.notebook_of(["import torch", *CELLS])}, app="notebook") as address,
        lab.browser_page(chromium_path) as page,
    ):
        lab.open_notebook(page, address, "notebooks/some.ipynb")
        lab.run_all(page)
        explorer = page.locator(".attention-explorer")
        explorer.locator(".noUi-handle").first.focus()
        page.keyboard.press("ArrowLeft")
        explorer.locator(".attention-caption").filter(has_text="a loss of 0.78 nats").wait_for()
        explorer.locator("canvas").first.focus()
        explorer.locator(".attention-readout").filter(has_text="token s = 0 “i”: 1.00").wait_for()
        page.locator(".attention-question button").first.click()
        page.locator(".attention-question [role=status]").filter(has_text=".").wait_for()
        page.locator(".jp-OutputArea").filter(has_text="not yet").wait_for()
