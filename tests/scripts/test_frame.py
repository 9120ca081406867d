"""The frame in JupyterLab: which notebooks it is for, and what it does once."""

import pytest

LAB = """
const calls = [];
const call = (name) => (...given) => void calls.push([name, ...given].join(" "));
let open; // what JupyterLab does when a panel comes to the front
const app = {
  shell: {
    currentChanged: { connect: (listen) => (open = (panel) => listen(null, { newValue: panel })) },
    isTopInSimpleModeVisible: () => true,
    toggleTopInSimpleModeVisibility: call("title"),
    isSideTabBarVisible: () => true,
    toggleSideTabBarVisibility: call("side"),
    activateById: call("activate"),
  },
  commands: { hasCommand: () => true, execute: async (name) => call("execute")(name) },
};
const notebook = (id, metadata) => ({
  id,
  addClass: (name) => calls.push(`${id}: ${name}`),
  context: { ready: Promise.resolve() },
  content: { model: { getMetadata: (name) => metadata[name] } },
});
window._JUPYTERLAB["attention-course"].get().then((factory) => factory()[0].activate(app));
"""


@pytest.fixture
def page(page_of):
    page = page_of("labextension/static/remoteEntry.js")
    page.do(LAB)
    return page


def test_a_notebook_of_the_course_gets_the_frame_and_the_window_is_set_up_once(page):
    page.do("open(notebook('one', { attention_course: {} }))")
    assert page.get("calls.splice(0)") == [
        "one: attention-course",
        "title",
        "side right",
        "execute toc:show-panel",
        "activate one",
    ]
    page.do("open(notebook('two', { attention_course: {} }))")
    assert page.get("calls") == ["two: attention-course"]


@pytest.mark.parametrize("panel", ["notebook('one', {})", "null", "{ id: 'a terminal' }"])
def test_all_else_is_left_alone(page, panel):
    page.do(f"let failed; open({panel}).catch((error) => (failed = String(error)))")
    assert page.get("[failed, calls]") == [None, []]


def test_a_narrow_window_keeps_its_width_and_bars_that_are_hidden_stay_hidden(page):
    page.do("window.innerWidth = 1199; app.shell.isSideTabBarVisible = () => false")
    page.do("open(notebook('one', { attention_course: {} }))")
    assert page.get("calls") == ["one: attention-course", "title"]


def test_a_title_that_is_hidden_stays_hidden(page):
    page.do("app.shell.isTopInSimpleModeVisible = () => false")
    page.do("open(notebook('one', { attention_course: {} }))")
    assert "title" not in page.get("calls")
