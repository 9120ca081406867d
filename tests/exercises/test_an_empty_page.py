"""The page of rung 11: what the check says of it, and what the questions claim of one."""

import contextlib
import math
import time

import pytest
import torch
from cells import code_of
from torch import nn

from attention_course.examine.planted import plant
from attention_course.examine.wrapped_model import StoppedError, WrappedModel
from attention_course.exercises import EXERCISES, check
from attention_course.exercises.judging import judge
from attention_course.gpt import GPT, GPTConfig
from attention_course.questions import QUESTIONS
from attention_course.rungs.an_empty_page import exercises as rung
from attention_course.training.loss import mean_loss

pytestmark = pytest.mark.slow


def right(name: str) -> str:
    return next(choice["text"] for choice in QUESTIONS[name]["choices"] if choice.get("right"))


# The page


def test_our_page_is_the_gpt_of_rung_8():
    page, gpt = rung.gpt(13, 7), GPT(GPTConfig(13, 7))
    gpt.load_state_dict(page.state_dict())
    ids = torch.randint(13, (2, 7))
    torch.testing.assert_close(page(ids), gpt(ids))


class Renamed(nn.Module):
    """A page with other names, with biases and a buffer, and with no layer for the logits."""

    def __init__(self, vocab_size, block_size, swapped=False):
        super().__init__()
        gpt = GPT(GPTConfig(vocab_size, block_size, bias=True))
        nn.init.normal_(gpt.transformer.h[0].mlp.c_fc.bias)
        self.tok_emb, self.pos_emb = gpt.transformer.wte, gpt.transformer.wpe
        self.blocks, self.norm, self.swapped = gpt.transformer.h, gpt.transformer.ln_f, swapped
        self.register_buffer("tril", torch.ones(block_size, block_size).tril())

    def forward(self, ids):
        x = self.tok_emb(ids) + self.pos_emb(torch.arange(ids.shape[1]))
        for block in self.blocks:
            if self.swapped:
                x = x + block.attn(block.ln_2(x), is_causal=True)
                x = x + block.mlp(block.ln_1(x))
            else:
                x = block(x, is_causal=True)
        return self.norm(x) @ self.tok_emb.weight.T


NAMES = {"wte": "tok_emb", "wpe": "pos_emb", "h": "blocks", "ln_f": "norm"}


@pytest.mark.parametrize(
    ("names", "swapped", "says"),
    [
        (NAMES, False, "All names and shapes fit. The same logits: True.\n"),
        (NAMES, True, "All names and shapes fit. The same logits: False.\n"),
        (NAMES | {"wte": "wte"}, False, 'They do not fit: Missing key(s) in state_dict: "tok_emb.weight".'),
    ],
)
def test_a_page_with_other_names_takes_what_the_gpt_has_learned(names, swapped, says, capsys):
    code = code_of("an_empty_page", "translated").replace(
        '"lm_head": "lm_head"', f'"lm_head": "{names["wte"]}"'
    )
    for its, mine in names.items():
        assert f'"transformer.{its}": "transformer.{its}"' in code
        code = code.replace(f'"transformer.{its}": "transformer.{its}"', f'"transformer.{its}": "{mine}"')
    trained = GPT(GPTConfig(13, 7))
    for parameter in trained.parameters():
        parameter.data += 0.1 * torch.randn_like(parameter)
    data = type("Data", (), {"val": torch.randint(13, (20,))})
    given = {
        "torch": torch,
        "WrappedModel": WrappedModel,
        "EXERCISES": EXERCISES,
        "data": data,
        "is_yours": True,
    }
    page = {"MyGPT": lambda V, T: Renamed(V, T, swapped), "V": 13, "block_size": 7}
    exec(code, given | page | {"trained": trained, "theirs": trained.state_dict()})
    assert capsys.readouterr().out.startswith(says)


class Page(nn.Module):
    """A page that raises an error when it is made, or when it is called."""

    def __init__(self, vocab_size, block_size, error=SystemExit):
        super().__init__()
        self.error = error

    def forward(self, ids):
        raise self.error


class Empty(Page):
    def __init__(self, vocab_size, block_size):
        raise NotImplementedError


class Stops(Page):
    def __init__(self, vocab_size, block_size):
        super().__init__(vocab_size, block_size, StoppedError)


class NoSuper(Page):
    def __init__(self, vocab_size, block_size):
        self.table = nn.Embedding(vocab_size, 8)  # before super().__init__()


class NoLayers(nn.Module):
    def __init__(self, vocab_size, block_size):
        super().__init__()
        self.wte, self.head = nn.Embedding(vocab_size, 32), nn.Linear(32, vocab_size)

    def forward(self, ids):
        return self.head(self.wte(ids))


def cut(vocab_size, block_size):
    page = rung.gpt(vocab_size, block_size)
    page.transformer["wpe"] = nn.Embedding(block_size - 1, 64)
    return page


@pytest.mark.parametrize(
    ("page", "headline", "says"),
    [
        *(
            (page, "not tried yet", "Replace each `raise`, let `forward` return")
            for page in (None, ..., Empty, lambda V, T: None)
        ),
        (nn.Linear(33, 128), "not yet: wrong type", "The class itself is expected, but this is a"),
        (lambda vocab_size, block_size: 3, "not yet: wrong type", "returned int, where an `nn.Module`"),
        (NoSuper, "not yet: it raises an error", "AttributeError: "),
        (Page, "not yet: fix “It answers ids with logits”", "SystemExit"),
        (Stops, "stopped", "was stopped before its end"),
        (lambda vocab_size, block_size: rung.gpt(33, 128), "not yet: fix “It answers ids with logits”", ""),
        (cut, "not yet: fix “It reads a full block”", "IndexError"),
        (NoLayers, "not yet: fix “The past is used”", "(Rung "),
    ],
)
def test_what_is_no_gpt_is_told_in_words(page, headline, says):
    verdict = check("gpt", page, seed=0)
    assert (verdict.passed, verdict.headline) == (False, headline)
    assert says in verdict.message
    assert all(f"fix “{name}”" in headline for name in verdict.mistakes)


def test_the_report_is_one_click_away():
    page = check("gpt", cut, seed=0)._repr_html_()
    assert "<details><summary>The report</summary>" in page
    assert "First fix “It reads a full block”." in page


class Slow(nn.Module):
    """A right page, each of whose answers takes a while."""

    def __init__(self, vocab_size, block_size):
        super().__init__()
        self.gpt = rung.gpt(vocab_size, block_size)

    def forward(self, ids):
        time.sleep(0.05)
        return self.gpt(ids)


def test_an_examination_gives_a_sign_of_life_with_each_answer():
    signs = []

    def guard(sizes):
        signs.append(sizes)
        return contextlib.nullcontext()

    assert judge(EXERCISES["gpt"], rung.gpt, 0, guard).passed
    assert len(signs) > 100
    assert len(set(signs)) == 1


def test_a_page_that_takes_too_long_is_called_too_large(monkeypatch):
    monkeypatch.setattr(rung, "PATIENCE", 1.0)
    verdict = judge(EXERCISES["gpt"], Slow, 0)
    assert (verdict.passed, verdict.headline) == (False, "stopped")
    assert "too large to be examined here" in verdict.message


def test_sizes_are_new_each_time_and_no_size_of_ours():
    drawn = [rung.draw_sizes(torch.Generator().manual_seed(seed))[0] for seed in range(20)]
    assert len(set(drawn)) > 10
    assert all(V > T and {V, T}.isdisjoint({33, 128}) for V, T in drawn)


# What the questions claim


def test_a_table_that_begins_large_is_sure_that_the_token_comes_again():
    torch.manual_seed(0)
    losses = []
    for std in (1.0, 64**-0.5):
        page = rung.gpt(33, 128)
        for module in page.modules():
            if isinstance(module, nn.Linear):
                module.reset_parameters()
        for table in ("wte", "wpe"):
            nn.init.normal_(page.transformer[table].weight, std=std)
        ids = torch.randint(33, (8, 33))
        losses.append([mean_loss(page(ids[:, :-1]), y).item() for y in (ids[:, 1:], ids[:, :-1])])
    (shifted, unshifted), (small, _) = losses
    assert shifted == pytest.approx(42, abs=3)
    assert unshifted < 0.1
    assert small == pytest.approx(4, abs=0.3)
    assert math.log(33) == pytest.approx(3.5, abs=0.01)


def test_a_mask_off_by_one_shows_one_diagonal_for_each_layer():
    torch.manual_seed(0)
    for layers in (1, 2, 3):
        model = plant("mask off by one", layers=layers)
        table = WrappedModel(model, model.vocab_size, model.block_size).influence(12)
        assert torch.equal(table, torch.ones(12, 12).tril(layers).bool())
    assert right("mask_off_by_one").endswith("two diagonals above it")
