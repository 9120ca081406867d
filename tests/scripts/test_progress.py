"""What was done, taken by the site's script from the file and written again: nothing is lost on the way."""

import json

from hypothesis import example, given
from hypothesis import strategies as st

from attention_course.progress import DAYS

STATIC = "../tools/website/static"
BROWSER = """
const localStorage = {}; // of which Object.keys lists what is kept, and nothing else
const methods = {
    getItem: (key) => (Object.hasOwn(localStorage, key) ? localStorage[key] : null),
    setItem: (key, value) =>
        Object.defineProperty(localStorage, key, { value, enumerable: true, writable: true }),
};
for (const [name, value] of Object.entries(methods)) Object.defineProperty(localStorage, name, { value });
globalThis.TextDecoder = class {
    decode(text) {
        return text;
    }
};
let said = "";
async function take(text) {
    said = await taken({ name: "progress.json", size: text.length, arrayBuffer: () => text });
}
"""
NAMES = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=5)
TEXTS = st.lists(NAMES, unique=True, max_size=3)


def table(**fields: st.SearchStrategy) -> st.SearchStrategy:
    """Draw entries with these fields."""
    return st.dictionaries(NAMES, st.fixed_dictionaries(fields), max_size=3)


DAY = st.dates().map(lambda day: day.isoformat())
PARTS = {
    "questions": table(answers=TEXTS.filter(bool), right_at_first_try=st.booleans()),
    "exercises": table(tries=st.integers(1, 2**53 - 1), passed=st.booleans(), mistakes=TEXTS),
    "fills": st.dictionaries(NAMES, TEXTS.filter(bool), max_size=3),
    "review": table(due=DAY, days=st.sampled_from(DAYS)),
}
REWORDED = {"mean_at_one": {"answers": ["in older words"], "right_at_first_try": True}}


@given(st.fixed_dictionaries(PARTS, optional={"notes": TEXTS}))
@example({"questions": REWORDED, "exercises": {}, "fills": {}, "review": {}})
def test_what_a_file_has_is_taken_and_written_again(page_of, content):
    page, text = page_of(f"{STATIC}/kept.js", f"{STATIC}/progress.js"), json.dumps(content)
    page.do(f"{BROWSER} take({json.dumps(text)})")
    assert json.loads(page.get("written({ mean_at_one: 'in newer words' })")) == content
    assert page.get("said").startswith("Taken") is any(content[part] for part in PARTS)
    page.do(f"take({json.dumps(text)})")
    assert "was here already" in page.get("said")


def test_fields_of_a_newer_edition_are_passed_over_and_own_answers_are_told_as_they_went(page_of):
    page = page_of(f"{STATIC}/kept.js", f"{STATIC}/progress.js")
    page.do(f"{BROWSER} keep('attention-question which_dim', ['-1']);")  # by an older edition
    content = {
        "questions": {"which_dim": {"answers": ["0"], "seen": 1}, "mean_at_one": {"answers": ["(3, 6)"]}},
        "exercises": {"windowed_mean": {"tries": 1, "seen": 1}},
    }
    page.do(f"take({json.dumps(json.dumps(content))})")
    assert page.get("said") == "Taken from progress.json: 2 questions, 1 exercise."
    assert json.loads(page.get("written({ which_dim: '-1', mean_at_one: '(3, 6)' })"))["questions"] == {
        "which_dim": {"answers": ["-1", "0"], "right_at_first_try": True},
        "mean_at_one": {"answers": ["(3, 6)"], "right_at_first_try": False},
    }
