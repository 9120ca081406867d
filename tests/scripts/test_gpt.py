"""The GPT in JavaScript beside the one in Python, with the same parameters; and the texts that it shows."""

import json
import random
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from website.explorers import save_model

from attention_course.attention import record_weights
from attention_course.gpt import GPT, GPTConfig, generate
from attention_course.plots import Text
from attention_course.plots.render import HERE as PLOTS
from attention_course.rungs.bigram_to_gpt.explorer_sampling import probabilities_of
from attention_course.text import CharTokenizer

ALPHABET = "\nabcdefghiß"
BYTES = """
class TextDecoder {
  decode(bytes) { return String.fromCharCode(...bytes); }
}
const bytes = (hex) => Uint8Array.from(hex.match(/../g), (one) => parseInt(one, 16)).buffer;
"""
OFF = 1e-3  # how far logits may be off


@pytest.fixture(scope="module", params=[(13, 3, 2, 6), (17, 1, 5, 15)])
def model(request):
    """A model of uncommon sizes, whose parameters are large and have 16 bits."""
    block_size, n_layer, n_head, n_embd = request.param
    torch.manual_seed(0)
    made = GPT(GPTConfig(len(ALPHABET), block_size, n_layer, n_head, n_embd))
    for parameter in made.parameters():
        parameter.data = (parameter + torch.randn_like(parameter) / 2).half().float()
    return made.eval()


@pytest.fixture
def page_with(page_of, tmp_path):
    """Return a page with a model: `page_with(model)`, or with another script in place of gpt.js."""

    def made(model, script="gpt.js"):
        path = tmp_path / "gpt.safetensors"
        save_model(model, CharTokenizer(ALPHABET), path)
        page = page_of(script)
        page.do(f"{BYTES}\nconst gpt = parse(bytes('{path.read_bytes().hex()}'));")
        return page

    return made


def off(page, model, ids):
    """Return how far logits and weights of a text are off, at most."""
    with record_weights() as layers, torch.no_grad():
        logits = model(torch.tensor([ids]))[0]
    page.do(f"const said = gpt.read({ids})")
    rows = "(weights) => weights.map((row) => [...row, ...Array(said.ids.length - row.length).fill(0)])"
    weights = page.get(f"said.layers.map((past) => past.map(({{ weights }}) => ({rows})(weights)))")
    return (
        (torch.tensor(page.get("said.logits.map((row) => [...row])")) - logits).abs().max(),
        (torch.tensor(weights).transpose(1, 2) - torch.cat(layers)).abs().max(),
    )


def test_logits_and_weights_are_those_of_python(page_with, model):
    torch.manual_seed(1)
    ids = torch.randint(len(ALPHABET), (model.block_size,)).tolist()
    assert max(off(page_with(model), model, ids)) < OFF


@pytest.mark.parametrize(("right", "wrong"), [("head_size ** -0.5", "C ** -0.5"), ("+ 1e-5", "+ 1e-2")])
def test_another_scale_is_noticed(right, wrong, page_with, model, tmp_path):
    script = (PLOTS.parent / "gpt.js").read_text(encoding="utf-8")
    assert script.count(right) == 1
    (tmp_path / "wrong.js").write_text(script.replace(right, wrong), encoding="utf-8")
    torch.manual_seed(1)
    ids = torch.randint(len(ALPHABET), (model.block_size,)).tolist()
    assert off(page_with(model, tmp_path / "wrong.js"), model, ids)[0] > 10 * OFF


def test_what_was_read_before_changes_nothing(page_with, model):
    """Of a text, the part that begins as the last one does is not read again: few letters make it long."""
    draws = random.Random(0)
    texts = [draws.choices(range(2), k=draws.randint(1, model.block_size)) for _ in range(30)]
    page = page_with(model)
    page.do("const read = (model, ids) => JSON.stringify(model.read(ids))")
    alike = page.get(f"{texts}.map((ids) => read(gpt, ids) === read(new GPT(gpt), ids))")
    assert alike == [True] * len(texts)


def test_it_writes_what_python_writes(page_with, model):
    """Also beyond block_size, and with temperature 0, which leaves no room for chance."""
    ids = [1, 2, 3]
    expected = generate(model, torch.tensor([ids]), 2 * model.block_size, temperature=0)[0].tolist()
    assert page_with(model).get(f"gpt.generate({ids}, {2 * model.block_size}, 0, 5)") == expected


@pytest.mark.parametrize(("temperature", "top_k"), [(0.5, 3), (2.0, 11), (1.0, 1), (0.0, 4)])
def test_probabilities_are_those_of_python(temperature, top_k, page_of):
    logits = torch.linspace(-2, 2, 11)[torch.randperm(11, generator=torch.Generator().manual_seed(0))]
    found = page_of("gpt.js").get(f"probabilitiesOf({logits.tolist()}, {temperature}, {top_k})")
    expected = probabilities_of(logits, temperature, top_k)
    torch.testing.assert_close(torch.tensor(found, dtype=torch.float32), expected)


def test_draws_follow_the_probabilities(page_with, model):
    page = page_with(model)
    page.do("let seed = 1; const random = () => (seed = (seed * 48271) % 2147483647) / 2147483647;")
    drawn = page.get("[...Array(3000)].map(() => gpt.generate([1, 2, 3], 1, 3, 4, random).at(-1))")
    with torch.no_grad():
        expected = probabilities_of(model(torch.tensor([[1, 2, 3]]))[0, -1], 3.0, 4)
    shares = torch.bincount(torch.tensor(drawn), minlength=len(expected)) / len(drawn)
    torch.testing.assert_close(shares, expected, atol=0.03, rtol=0)


@pytest.fixture(scope="module")
def explorer(page_of):
    return page_of("rungs/bigram_to_gpt/explorer_attention_over_text.js")


@given(text=st.text("ab \n", min_size=1, max_size=100), columns=st.integers(1, 12))
def test_rows_of_a_text_are_those_of_python(text, columns, explorer):
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Text, "COLUMNS", columns)
        patch.setattr(Text, "ROW", re.compile(Text.ROW.pattern.replace("43", str(columns - 1))))
        expected = Text("", text).rows()
    assert explorer.get(f"rowsOf({json.dumps(text)}, {columns})") == expected
