"""What the notebooks say and no cell of theirs can show."""

import math
import re

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from attention_course import gpt
from attention_course.exercises import EXERCISES
from attention_course.questions import QUESTIONS
from attention_course.stories import NAMES, ORDERS, Story, write_stories
from attention_course.text import CharTokenizer, conditional_entropy


def test_the_loss_of_random_logits_is_half_a_variance_above_uniform():
    torch.manual_seed(1)
    for variance in (0.0, 0.25, 1.0):
        logits = torch.randn(50_000, 87) * variance**0.5
        loss = F.cross_entropy(logits, torch.randint(87, (50_000,)))
        assert loss.item() == pytest.approx(math.log(87) + variance / 2, abs=0.03)


@given(s=st.floats(0, 1), seed=st.integers(0, 2**32))
def test_no_share_gives_both_answers(s, seed):
    """For any linear layer: if both answers are right on equal cards, one on swapped cards is wrong."""
    generator = torch.Generator().manual_seed(seed)
    v = torch.randn(10, 8, generator=generator, dtype=torch.float64)
    read = torch.randn(8, 2, 10, generator=generator, dtype=torch.float64)

    def lead(first, second):
        scores = torch.einsum("c,cak->ak", s * v[first] + (1 - s) * v[second], read)
        return scores[:, 2] - scores[:, 6]  # of card 2 over card 6, for either answer

    torch.testing.assert_close(lead(2, 6) - lead(6, 2), (2 * s - 1) * (lead(2, 2) - lead(6, 6)))
    if (lead(2, 2) > lead(6, 6)).all():
        first, second = (lead(2, 6) - lead(6, 2)).tolist()
        assert not (first > 0 > second)


def test_an_inverted_mask_leaves_the_last_query_with_zeros():
    x = torch.randn(2, 5, 3, generator=torch.Generator().manual_seed(0))
    out = F.scaled_dot_product_attention(x, x, x, attn_mask=torch.ones(5, 5).triu(1).bool())
    assert not out[:, -1].any()
    assert out[:, :-1].any(dim=-1).all()


# What the questions claim


def right(name):
    return next(choice["text"] for choice in QUESTIONS[name]["choices"] if choice.get("right"))


def test_nine_characters_hold_eight_pairs():
    x, y = EXERCISES["get_batch"].reference(torch.arange(9), 8, torch.tensor([0]))
    assert right("pairs_in_a_block") == str(x.numel()) == "8"
    assert torch.equal(y, x + 1)
    stretches = [(i, j) for i in range(8) for j in range(i, 8)]
    assert any(
        choice["text"].startswith(f"{len(stretches)}:") for choice in QUESTIONS["pairs_in_a_block"]["choices"]
    )


def test_the_loss_before_training_lies_about_half_a_nat_above_ln_v():
    text = write_stories(0, 20_000)
    tokenizer = CharTokenizer(text)
    V = tokenizer.vocab_size
    question = QUESTIONS["loss_before_training"]["question"]
    assert f"{V} different characters, and ln {V} = {math.log(V):.2f}" in question
    assert right("loss_before_training").startswith(f"About {math.log(V) + 0.5:.0f}")
    blocks = tokenizer.encode(text).unfold(0, 65, 1)[::300]
    excess = []
    for seed in range(16):
        torch.manual_seed(seed)
        model = gpt.GPT(gpt.GPTConfig(V, block_size=64, n_layer=2, n_embd=64))
        with torch.no_grad():
            logits = model(blocks[:, :-1])
        assert 0.6 < logits.var() < 1.5
        excess.append(float(F.cross_entropy(logits.flatten(0, 1), blocks[:, 1:].flatten())) - math.log(V))
    assert 0.4 < sum(excess) / len(excess) < 0.7
    assert min(excess) > -0.3
    assert max(excess) < 1.2


@given(st.lists(st.integers(0, 3), min_size=2, max_size=40), st.integers(0, 2**32))
def test_no_bigram_table_is_below_the_counted_floor(tokens, seed):
    assert right("below_the_bigram_floor").startswith("No, because the floor is the loss of the best table")
    ids = torch.tensor(tokens)
    floor = conditional_entropy(ids, 2)
    table = 3 * torch.randn(4, 4, generator=torch.Generator().manual_seed(seed))
    assert F.cross_entropy(table[ids[:-1]], ids[1:]) >= floor - 1e-5
    counts = torch.zeros(4, 4).index_put((ids[:-1], ids[1:]), torch.ones(()), accumulate=True)
    best = (counts + 1e-9).log()
    assert abs(F.cross_entropy(best[ids[:-1]], ids[1:]) - floor) < 1e-4


def test_the_story_of_the_question_is_one_and_there_are_as_many_things_as_it_says():
    told = re.search(r"`(.*?) Who", QUESTIONS["what_one_layer_gets"]["question"])[1]
    names = re.match(r"Kind (\w+) gave poor (\w+) a (\w+) at the (\w+)\.", told).groups()
    assert Story(*names, ORDERS[0]).text.startswith(told)
    assert f"one of the {len(NAMES)} names" in right("what_one_layer_gets")


def test_with_unshifted_targets_the_loss_falls_to_0_and_one_letter_is_repeated():
    torch.manual_seed(0)
    model = gpt.GPT(gpt.GPTConfig(6, block_size=8, n_layer=1, n_head=1, n_embd=16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    for _ in range(60):
        ids = torch.randint(6, (16, 8))
        loss = F.cross_entropy(model(ids).flatten(0, 1), ids.flatten())
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    assert loss < 0.1
    written = gpt.generate(model, torch.tensor([[1, 4, 2, 5]]), 10, temperature=0.0)
    assert written[0, 4:].tolist() == [5] * 10
