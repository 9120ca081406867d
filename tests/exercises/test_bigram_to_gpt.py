"""Rung 8's exercises: what their inputs hold, what their references equal, what their texts say."""

import pytest
import torch
import torch.nn.functional as F
from answers.bigram_to_gpt import batch_by_chunks, loss_row_by_row, write_as_told, write_by_chances_of_its_own
from torch import nn

from attention_course import gpt
from attention_course.attention import causal_mask
from attention_course.exercises import CATALOGUE, EXERCISES, check, judging
from attention_course.rungs.bigram_to_gpt import exercises as rung
from attention_course.rungs.bigram_to_gpt.exercises import Model

pytestmark = pytest.mark.slow


def inputs(name, seed=0):
    return judging.trial(EXERCISES[name], seed).inputs


def test_the_mistakes_of_the_syllabus_are_named():
    assert {name for exercise in rung.EXERCISES for m in exercise.mistakes for name in m.names} >= {
        *("targets_unshifted", "softmax_before_cross_entropy", "no_crop", "no_position", "no_residual"),
        *("argmax_for_sampling", "loop_ends_too_early", "epsilon_in_the_log", "one_token_too_early"),
    }


@pytest.mark.parametrize("exercise", rung.EXERCISES, ids=lambda exercise: exercise.name)
def test_every_property_catches_a_mistake(exercise):
    def holds(prop, function):
        try:
            return all(prop.holds(function, *arguments) for arguments in inputs(exercise.name))
        except Exception:
            return False

    for prop in exercise.properties:
        assert holds(prop, exercise.reference)
        assert not all(holds(prop, mistake.function) for mistake in exercise.mistakes), prop.claim


@pytest.mark.parametrize("seed", range(4))
def test_blocks_touch_both_ends_and_come_twice(seed):
    texts = [(len(ids), T, starts.tolist()) for ids, T, starts in inputs("get_batch", seed)]
    assert any(0 in starts and N - T - 1 in starts for N, T, starts in texts)
    assert any(len(set(starts)) < len(starts) for _, _, starts in texts)
    assert {T == 1 for _, T, _ in texts} == {len(starts) == 1 for *_, starts in texts} == {True, False}
    assert inputs("get_batch", seed)[-1][0].min() > 255


def test_logits_are_equal_large_and_far_apart():
    drawn = [logits for logits, _ in inputs("cross_entropy_loss")]
    assert any(not logits.any() for logits in drawn)
    assert any(logits.min() > 900 for logits in drawn)
    assert any(
        (logits.gather(-1, targets[..., None]) == -1000).all()
        for logits, targets in inputs("cross_entropy_loss")
    )
    assert any(logits[:, 0].min() > 900 and logits[:, 1:].max() < 100 for logits in drawn)


def test_mixed_up_positions_are_numbers_and_not_errors():
    for ids, wte, wpe in inputs("embed"):
        assert len(wpe) > ids.shape[1]
        assert len(wpe) >= max(len(wte), len(ids), ids.numel())


def test_the_model_depends_on_all_that_it_is_shown_and_is_causal():
    model, ids = Model(5, 4, seed=3), torch.tensor([0, 1, 2, 3])
    logits = model(ids)
    assert logits.shape == (4, 5)
    for t in range(4):
        other = ids.clone()
        other[t] = 4
        moved = (model(other) != logits).any(dim=-1)
        assert moved.tolist() == [False] * t + [True] * (4 - t)
    assert (logits > 0).all()
    sixteenths = 16 * logits.softmax(-1)
    torch.testing.assert_close(sixteenths, sixteenths.round())


@pytest.mark.parametrize(
    ("ids", "error", "said"),
    [
        ([0, 1, 2, 3], ValueError, r"4 tokens, but there is no position 3.* the last ones"),
        ([[0, 1]], ValueError, r"shape \(1, 2\), expected \(T,\)"),
        ([], ValueError, "at least one token"),
        ([0, 5], IndexError, "no token 5, only 0 to 4"),
    ],
)
def test_the_model_says_what_it_cannot_read(ids, error, said):
    with pytest.raises(error, match=said):
        Model(5, 3, seed=0)(torch.tensor(ids, dtype=torch.long))


def test_texts_outgrow_their_block_and_one_draw_equals_a_sum():
    texts = inputs("generate")
    assert {model.positions is None for model, *_ in texts} == {True, False}
    assert any(len(ids) < block_size < len(ids) + len(draws) for _, ids, block_size, draws in texts)
    assert any(len(ids) > block_size for _, ids, block_size, _ in texts)
    assert any(block_size == 1 for _, _, block_size, _ in texts)
    model, ids, _, draws = texts[2]
    assert model(ids)[-1].softmax(-1).cumsum(-1)[0] == draws[0] == 0.5


def test_the_references_do_what_the_package_does():
    torch.manual_seed(0)
    model = gpt.GPT(gpt.GPTConfig(vocab_size=11, block_size=7, n_layer=1, n_head=2, n_embd=6, bias=True))
    for parameter in model.parameters():
        nn.init.normal_(parameter)  # so that no two LayerNorms are alike
    table, block = model.transformer, model.transformer["h"][0]
    ids = torch.randint(11, (3, 5))
    x = rung.embed(ids, table["wte"].weight, table["wpe"].weight)
    x = rung.pre_norm_block(x, lambda z: block.attn(z, causal_mask(5)), block.mlp, block.ln_1, block.ln_2)
    logits = model(ids)
    torch.testing.assert_close(model.lm_head(table["ln_f"](x)), logits)
    expected = F.cross_entropy(logits.flatten(0, 1), ids.flatten())
    torch.testing.assert_close(rung.cross_entropy_loss(logits, ids), expected)


@pytest.mark.parametrize(
    ("name", "answer", "headline", "said"),
    [
        ("get_batch", lambda *given: tuple(batch_by_chunks(*given)), "wrong type", "2 things"),
        ("get_batch", lambda *given: batch_by_chunks(*given).float(), "wrong dtype", "torch.int64"),
        ("get_batch", lambda *given: batch_by_chunks(*given)[0], "wrong shape", "`block_size` = 3"),
        ("cross_entropy_loss", lambda *given: loss_row_by_row(*given).item(), "wrong type", "float"),
        (
            "cross_entropy_loss",
            lambda logits, targets: (
                -logits.clamp(-80, 80).log_softmax(-1).gather(-1, targets[..., None]).mean()
            ),
            "wrong values",
            "`logits` of shape (2, 3, 5)",
        ),
        ("embed", lambda ids, wte, wpe: ids + wpe, "it raises an error", "`wte` of shape (3, 2)"),
        ("pre_norm_block", lambda x, attn, *_: 2 * x + attn(x), "wrong values", "`attn` = causal attention"),
        ("generate", write_by_chances_of_its_own, "wrong values", "`model` = a model of "),
        (
            "generate",
            lambda model, ids, size, draws: write_as_told(model, ids, size, draws[1:]),
            "wrong shape",
            "`draws` of shape (2,)",
        ),
        (
            "generate",
            lambda model, ids, size, draws: write_as_told(model, ids[None], size, draws),
            "it raises an error",
            "ids has shape (1, 3), expected (T,)",
        ),
    ],
)
def test_what_has_no_name_is_rejected_in_words(name, answer, headline, said):
    for seed in range(3):
        verdict = check(name, answer, seed)
        assert not set(verdict.mistakes) & set(CATALOGUE)
        assert verdict.headline == f"not yet: {headline}"
        assert said in verdict.message


def test_a_block_that_adds_in_place_is_told_so():
    def in_place(x, attn, mlp, ln_1, ln_2):
        x += attn(ln_1(x))
        x += mlp(ln_2(x))
        return x

    assert check("pre_norm_block", in_place, 0).headline == "not yet: it changes its input"


def test_what_the_insights_say_is_true():
    ids = torch.arange(20)
    assert "unfold(0, block_size + 1, 1)" in EXERCISES["get_batch"].insight
    blocks = ids.unfold(0, 5, 1)
    assert blocks.untyped_storage().data_ptr() == ids.untyped_storage().data_ptr()
    assert torch.equal(blocks[3], torch.tensor([3, 4, 5, 6, 7]))
    given = "F.cross_entropy(logits.flatten(0, 1), targets.flatten())"
    assert given in EXERCISES["cross_entropy_loss"].insight
    assert check("cross_entropy_loss", lambda logits, targets: eval(given, {"F": F} | locals()), 0).passed
    assert "cannot read a longer text" in EXERCISES["embed"].insight
    model = gpt.GPT(gpt.GPTConfig(5, block_size=4, n_layer=3, n_head=1, n_embd=8))
    with pytest.raises(ValueError, match="block_size is 4"):
        model(torch.zeros(1, 5, dtype=torch.long))


def test_a_gradient_comes_back_unchanged_along_the_sums():
    assert "flows back along it unchanged" in EXERCISES["pre_norm_block"].insight
    y = x = torch.randn(1, 3, 4, requires_grad=True)
    for _ in range(20):  # the parts are cut off from the gradient, so only the line of sums is left
        y = rung.pre_norm_block(
            y, lambda z: 3 * z.detach(), lambda z: z.detach() ** 2, torch.tanh, torch.tanh
        )
    y.sum().backward()
    torch.testing.assert_close(x.grad, torch.ones_like(x))


def test_with_random_draws_a_token_comes_as_often_as_its_probability_says():
    assert "drawn with its probability" in EXERCISES["generate"].insight
    model, start, n = Model(4, None, seed=5), torch.tensor([2]), 4000
    draws = torch.rand(n, 1, generator=torch.Generator().manual_seed(0))
    drawn = torch.stack([rung.generate(model, start, 1, draw)[1] for draw in draws])
    shares = drawn.bincount(minlength=4) / n
    torch.testing.assert_close(shares, model(start)[-1].softmax(-1), atol=0.03, rtol=0)
