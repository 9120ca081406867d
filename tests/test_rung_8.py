"""Rung 8: right answers of every style pass, slips get their names, and what the questions claim is true."""

import math
import re

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from attention_course import gpt
from attention_course.attention import causal_mask
from attention_course.exercises import EXERCISES, check
from attention_course.exercises.bigram_to_gpt import Model
from attention_course.questions import QUESTIONS
from attention_course.stories import ORDERS, THINGS, Story, write_stories
from attention_course.text import CharTokenizer, ngram_floor

NAMES_OF_EXERCISES = ("get_batch", "cross_entropy_loss", "embed", "pre_norm_block", "generate")


# Right answers


def batch_by_slices(ids, block_size, starts):
    x = torch.stack([ids[i : i + block_size] for i in starts])
    y = torch.stack([ids[i + 1 : i + 1 + block_size] for i in starts])
    return torch.stack([x, y])


def batch_by_chunks(ids, block_size, starts):
    chunks = torch.stack([ids[i : i + block_size + 1] for i in starts.tolist()])
    return torch.stack([chunks[:, :-1], chunks[:, 1:]])


def batch_by_loops(ids, block_size, starts):
    out = torch.zeros(2, len(starts), block_size, dtype=torch.long)
    for b in range(len(starts)):
        for t in range(block_size):
            out[0, b, t] = ids[starts[b] + t]
            out[1, b, t] = ids[starts[b] + t + 1]
    return out


def batch_by_unfold(ids, block_size, starts):
    chunks = ids.unfold(0, block_size + 1, 1)[starts]
    return torch.stack([chunks[:, :-1], chunks[:, 1:]])


def loss_by_loops(logits, targets):
    total = 0
    for row, target in zip(logits.flatten(0, 1), targets.flatten(), strict=True):
        row = row - row.max()
        total = total + row.exp().sum().log() - row[target]
    return total / targets.numel()


def loss_by_one_hot(logits, targets):
    chosen = F.one_hot(targets, logits.shape[-1]) == 1
    return -logits.log_softmax(-1)[chosen].mean()


def embed_by_modules(ids, wte, wpe):
    tokens, positions = (
        torch.func.functional_call(nn.Embedding(*table.shape), {"weight": table}, which)
        for table, which in ((wte, ids), (wpe, torch.arange(ids.shape[-1])))
    )
    return tokens + positions


def embed_by_loops(ids, wte, wpe):
    return torch.stack([torch.stack([wte[i] + wpe[t] for t, i in enumerate(row)]) for row in ids])


def embed_by_one_hot(ids, wte, wpe):
    return F.one_hot(ids, len(wte)).float() @ wte + wpe[None, : ids.size(1)]


def block_in_steps(x, attn, mlp, ln_1, ln_2):
    attended = x + attn(ln_1(x))
    thought = mlp(ln_2(attended))
    return attended + thought


def block_on_a_copy(x, attn, mlp, ln_1, ln_2):
    x = x.clone()
    x += attn(ln_1(x))
    x += mlp(ln_2(x))
    return x


def block_in_a_loop(x, attn, mlp, ln_1, ln_2):
    for part, norm in ((attn, ln_1), (mlp, ln_2)):
        x = torch.add(part(norm(x)), x)
    return x


def generate_by_count(model, ids, block_size, draws):
    for draw in draws.tolist():
        probabilities = F.softmax(model(ids[max(0, len(ids) - block_size) :])[-1].double(), dim=0)
        token = int((probabilities.cumsum(0) <= draw).sum())
        ids = torch.cat([ids, torch.tensor([token])])
    return ids


def generate_by_walk(model, ids, block_size, draws):
    text = ids.tolist()
    for draw in draws:
        total = 0.0
        for token, p in enumerate(model(torch.tensor(text[-block_size:]))[-1].softmax(-1).tolist()):
            total += p
            if total > draw:
                text.append(token)
                break
    return torch.tensor(text)


def generate_by_left_search(model, ids, block_size, draws):
    out = torch.zeros(len(ids) + len(draws), dtype=ids.dtype)
    out[: len(ids)] = ids
    for t in range(len(ids), len(out)):
        logits = model(out[max(0, t - block_size) : t])
        out[t] = torch.searchsorted(logits.softmax(1).cumsum(1)[-1], draws[t - len(ids)])
    return out


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("get_batch", batch_by_slices),
        ("get_batch", batch_by_chunks),
        ("get_batch", batch_by_loops),
        ("get_batch", batch_by_unfold),
        ("cross_entropy_loss", lambda logits, y: F.cross_entropy(logits.flatten(0, 1), y.flatten())),
        ("cross_entropy_loss", lambda logits, y: F.cross_entropy(logits.transpose(1, 2), y)),
        (
            "cross_entropy_loss",
            lambda logits, y: (logits.logsumexp(-1) - logits.gather(-1, y[..., None])[..., 0]).mean(),
        ),
        ("cross_entropy_loss", loss_by_loops),
        ("cross_entropy_loss", loss_by_one_hot),
        ("embed", embed_by_modules),
        ("embed", embed_by_loops),
        ("embed", embed_by_one_hot),
        ("pre_norm_block", block_in_steps),
        ("pre_norm_block", block_on_a_copy),
        ("pre_norm_block", block_in_a_loop),
        ("generate", generate_by_count),
        ("generate", generate_by_walk),
    ],
)
def test_right_answers_in_other_styles_pass(name, answer):
    for seed in range(5):
        verdict = check(name, answer, seed)
        assert verdict.passed, verdict


# Slips as a learner writes them


def slices(x, y):
    def batch(ids, block_size, starts):
        return torch.stack(
            [torch.stack([ids[i + k : i + k + block_size] for i in starts.tolist()]) for k in (x, y)]
        )

    return batch


def rolled(ids, block_size, starts):
    x = torch.stack([ids[i : i + block_size] for i in starts])
    return torch.stack([x, x.roll(-1, dims=1)])


def chunk_of_block_size(ids, block_size, starts):
    chunk = torch.stack([ids[i : i + block_size] for i in starts])
    return torch.stack([chunk[:, :-1], chunk[:, 1:]])


def zeros_then_filled(ids, block_size, starts):
    x = torch.stack([ids[i : i + block_size] for i in starts])
    y = torch.zeros_like(x)
    y[:, :-1] = x[:, 1:]
    return torch.stack([x, y])


def by_rows(ids, block_size, starts):
    return torch.stack(
        [torch.stack([ids[i : i + block_size], ids[i + 1 : i + 1 + block_size]]) for i in starts]
    )


def naive(last):
    def loss(logits, targets):
        p = torch.softmax(logits, dim=-1)
        return last(torch.gather(p, -1, targets.unsqueeze(-1)).squeeze(-1))

    return loss


def by_exp(logits, targets):
    exp = torch.exp(logits)
    p = exp / exp.sum(dim=-1, keepdim=True)
    return -p.gather(-1, targets[..., None]).log().mean()


def softmax_first(logits, targets):
    p = logits.softmax(-1)
    return F.cross_entropy(p.view(-1, p.shape[-1]), targets.view(-1))


def viewed(logits, targets):
    B, T, V = logits.shape
    return F.cross_entropy(logits.view(B, V, T), targets)


def index_with_targets(logits, targets):
    return -F.log_softmax(logits, dim=-1)[:, :, targets].mean()


def write(window=lambda ids, n: ids[-n:], choose=None, first=0):
    """Write a generate as a learner would, with one step another."""

    def sample(logits, draw):
        return torch.searchsorted(logits.softmax(-1).cumsum(-1), draw, right=True)

    def answer(model, ids, block_size, draws):
        for i in range(first, len(draws)):
            logits = model(window(ids, block_size))[-1]
            ids = torch.cat([ids, (choose or sample)(logits, draws[i]).view(1)])
        return ids

    return answer


def all_but_one(model, ids, block_size, draws):
    for i in range(len(draws) - 1):
        ids = generate_by_count(model, ids, block_size, draws[i : i + 1])
    return ids


def overwritten(model, ids, block_size, draws):
    for draw in draws:
        ids = ids[-block_size:]
        ids = generate_by_count(model, ids, block_size, draw[None])
    return ids


def collected(model, ids, block_size, draws):
    return generate_by_count(model, ids, block_size, draws)[len(ids) :]


@pytest.mark.parametrize(
    ("name", "answer", "mistake"),
    [
        ("get_batch", slices(0, 0), "targets_unshifted"),
        ("get_batch", slices(0, -1), "targets_shifted_back_with_slices"),
        ("get_batch", slices(0, 2), "targets_two_steps_later_with_slices"),
        ("get_batch", slices(1, 0), "targets_first"),
        ("get_batch", rolled, "last_step_wraps_around"),
        ("get_batch", chunk_of_block_size, "last_step_not_taken"),
        ("get_batch", zeros_then_filled, "last_step_zero"),
        ("get_batch", by_rows, "stacked_in_each_text"),
        ("get_batch", lambda ids, T, s: slices(0, 1)(ids, T, s * T), "starts_times_block_size_with_slices"),
        ("get_batch", lambda ids, T, s: torch.cat([*slices(0, 1)(ids, T, s)]), "concatenated"),
        ("cross_entropy_loss", softmax_first, "softmax_before_cross_entropy"),
        ("cross_entropy_loss", viewed, "view_in_place_of_transpose"),
        ("cross_entropy_loss", F.cross_entropy, "classes_along_time"),
        ("cross_entropy_loss", naive(lambda p: -p.log().mean()), "log_of_zero"),
        ("cross_entropy_loss", naive(lambda p: p.log().mean()), "no_minus_with_inf"),
        ("cross_entropy_loss", naive(lambda p: -p.log().sum()), "sum_in_place_of_mean_with_inf"),
        ("cross_entropy_loss", naive(lambda p: -p.log2().mean()), "bits_in_place_of_nats_with_inf"),
        ("cross_entropy_loss", naive(lambda p: (1 - p).mean()), "one_minus_the_probability"),
        ("cross_entropy_loss", naive(lambda p: -p.mean().log()), "mean_before_the_log"),
        ("cross_entropy_loss", by_exp, "no_max_subtraction"),
        ("cross_entropy_loss", index_with_targets, "every_target_at_every_position"),
        (
            "cross_entropy_loss",
            lambda logits, y: F.cross_entropy(logits.flatten(0, 1), y.flatten(), reduction="sum"),
            "sum_in_place_of_mean",
        ),
        (
            "cross_entropy_loss",
            lambda logits, y: -(logits.log_softmax(-1) * F.one_hot(y, logits.shape[-1])).mean(),
            "mean_over_the_vocabulary",
        ),
        ("embed", lambda ids, wte, wpe: F.embedding(ids, wte), "no_position"),
        ("embed", lambda ids, wte, wpe: wte[ids] + wpe[ids], "position_of_the_token"),
        ("embed", lambda ids, wte, wpe: wte[ids] + wpe[torch.arange(len(ids))], "counts_the_texts"),
        ("embed", lambda ids, wte, wpe: wte[ids] + wpe, "whole_table"),
        (
            "embed",
            lambda ids, wte, wpe: wte[ids] + F.embedding(torch.arange(ids.shape[1]) + 1, wpe),
            "positions_from_1_by_index",
        ),
        ("pre_norm_block", lambda x, a, m, n1, n2: (x := x + a(n1(x))) * 0 + m(n2(x)), "no_second_residual"),
        ("pre_norm_block", lambda x, a, m, n1, n2: n2((y := n1(x + a(x))) + m(y)), "post_norm"),
        ("pre_norm_block", lambda x, a, m, n1, n2: m(n2(a(n1(x)))), "no_residual"),
        ("pre_norm_block", lambda x, a, m, n1, n2: (x := n1(x)) + a(x), None),
        ("pre_norm_block", lambda x, a, m, n1, n2: (y := x + a(n1(x))) + m(n1(y)), "one_norm_for_both"),
        ("generate", write(window=lambda ids, n: ids), "no_crop"),
        ("generate", write(window=lambda ids, n: ids[:n]), "crops_to_the_first_tokens"),
        ("generate", write(window=lambda ids, n: ids[-1:]), "shows_the_last_token_only"),
        ("generate", write(choose=lambda logits, draw: logits.argmax(-1)), "argmax_for_sampling"),
        (
            "generate",
            write(choose=lambda s, u: torch.searchsorted(s.cumsum(-1), u, right=True)),
            "no_softmax",
        ),
        ("generate", write(choose=lambda s, u: torch.searchsorted(s.exp().cumsum(-1), u)), "no_softmax"),
        ("generate", generate_by_left_search, "first_sum_that_reaches_the_draw"),
        ("generate", all_but_one, "last_step_not_taken"),
        ("generate", overwritten, "crops_the_text"),
        ("generate", collected, "returns_only_the_new_tokens"),
    ],
)
def test_a_slip_gets_its_name(name, answer, mistake):
    for seed in range(5):
        verdict = check(name, answer, seed)
        assert (verdict.passed, verdict.mistake) == (False, mistake)


def own_draws(model, ids, block_size, draws):
    own = torch.Generator().manual_seed(1)
    for _ in draws:
        shares = model(ids[-block_size:])[-1].softmax(-1)
        ids = torch.cat([ids, torch.multinomial(shares, 1, generator=own)])
    return ids


def by_log_of_more_than_zero(logits, targets):
    return -(logits.softmax(-1).gather(-1, targets[..., None]) + 1e-9).log().mean()


@pytest.mark.parametrize(
    ("name", "answer", "headline", "said"),
    [
        ("get_batch", lambda ids, T, s: tuple(batch_by_slices(ids, T, s)), "wrong type", "2 things"),
        ("get_batch", lambda ids, T, s: batch_by_slices(ids, T, s).float(), "wrong dtype", "torch.int64"),
        ("get_batch", lambda ids, T, s: batch_by_slices(ids, T, s)[0], "wrong shape", "`block_size` = 3"),
        ("cross_entropy_loss", by_log_of_more_than_zero, "wrong values", "`logits` of shape (2, 3, 5)"),
        ("cross_entropy_loss", lambda logits, y: loss_by_loops(logits, y).item(), "wrong type", "float"),
        ("embed", lambda ids, wte, wpe: ids + wpe, "it raises an error", "`wte` of shape (3, 2)"),
        (
            "pre_norm_block",
            lambda x, *parts: x + parts[0](x),
            "wrong values",
            "`attn` = causal attention",
        ),
        ("generate", own_draws, "wrong values", "`model` = a model of 3 tokens"),
        ("generate", write(first=1), "wrong shape", "`draws` of shape (2,)"),
        (
            "generate",
            lambda model, ids, block_size, draws: generate_by_count(model, ids[None], block_size, draws),
            "it raises an error",
            "ids has shape (1, 3), expected (T,)",
        ),
    ],
)
def test_what_has_no_name_is_rejected_in_words(name, answer, headline, said):
    for seed in range(5):
        verdict = check(name, answer, seed)
        assert verdict.headline == f"not yet: {headline}"
        assert said in verdict.message


def test_a_block_that_adds_in_place_is_told_so():
    def in_place(x, attn, mlp, ln_1, ln_2):
        x += attn(ln_1(x))
        x += mlp(ln_2(x))
        return x

    assert check("pre_norm_block", in_place, 0).headline == "not yet: it changes its input"


def test_the_mistakes_of_the_syllabus_are_named():
    named = {m.name for name in NAMES_OF_EXERCISES for m in EXERCISES[name].mistakes}
    assert named >= {
        *("targets_unshifted", "softmax_before_cross_entropy", "no_crop", "no_position", "no_residual"),
        *("argmax_for_sampling", "last_step_not_taken"),
    }
    assert all(len(EXERCISES[name].mistakes) >= 6 for name in NAMES_OF_EXERCISES)


@pytest.mark.parametrize("name", NAMES_OF_EXERCISES)
def test_every_property_catches_a_mistake(name):
    exercise = EXERCISES[name]
    inputs = exercise.draw_inputs(torch.Generator().manual_seed(0))

    def holds(prop, function):
        try:
            return all(prop.holds(function, *arguments) for arguments in inputs)
        except Exception:
            return False

    for prop in exercise.properties:
        assert holds(prop, exercise.reference)
        assert not all(holds(prop, mistake.function) for mistake in exercise.mistakes), prop.claim


def test_the_model_of_the_exercise_depends_on_all_that_it_is_shown_and_is_causal():
    model = Model(5, 4, seed=3)
    ids = torch.tensor([0, 1, 2, 3])
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


def test_the_model_says_what_it_cannot_read():
    model = Model(5, 3, seed=0)
    with pytest.raises(ValueError, match=r"4 tokens, but there is no position 3.* the last ones"):
        model(torch.tensor([0, 1, 2, 3]))
    with pytest.raises(ValueError, match=r"shape \(1, 2\), expected \(T,\)"):
        model(torch.tensor([[0, 1]]))
    with pytest.raises(ValueError, match="at least one token"):
        model(torch.tensor([], dtype=torch.long))
    with pytest.raises(IndexError, match="no token 5, only 0 to 4"):
        model(torch.tensor([0, 5]))


# The exercises and the package


def test_the_references_do_what_the_package_does():
    torch.manual_seed(0)
    model = gpt.GPT(gpt.GPTConfig(vocab_size=11, block_size=7, n_layer=1, n_head=2, n_embd=6, bias=True))
    for parameter in model.parameters():
        nn.init.normal_(parameter)  # so that no two LayerNorms are alike
    table, block = model.transformer, model.transformer["h"][0]
    ids = torch.randint(11, (3, 5))
    x = EXERCISES["embed"].reference(ids, table["wte"].weight, table["wpe"].weight)
    x = EXERCISES["pre_norm_block"].reference(
        x, lambda z: block.attn(z, causal_mask(5)), block.mlp, block.ln_1, block.ln_2
    )
    logits = model(ids)
    torch.testing.assert_close(model.lm_head(table["ln_f"](x)), logits)
    loss = EXERCISES["cross_entropy_loss"].reference(logits, ids)
    torch.testing.assert_close(F.cross_entropy(logits.flatten(0, 1), ids.flatten()), loss)


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
    assert "comes back along it unchanged" in EXERCISES["pre_norm_block"].insight
    x = torch.randn(1, 3, 4, requires_grad=True)
    y = x
    for _ in range(20):  # the parts are cut off from the gradient, so only the line of sums is left
        y = EXERCISES["pre_norm_block"].reference(
            y, lambda z: 3 * z.detach(), lambda z: z.detach() ** 2, torch.tanh, torch.tanh
        )
    y.sum().backward()
    torch.testing.assert_close(x.grad, torch.ones_like(x))


def test_with_random_draws_a_token_comes_as_often_as_its_probability_says():
    assert "as often as its probability says" in EXERCISES["generate"].insight
    model = Model(4, None, seed=5)
    start, n = torch.tensor([2]), 4000
    draws = torch.rand(n, 1, generator=torch.Generator().manual_seed(0))
    drawn = torch.stack([EXERCISES["generate"].reference(model, start, 1, draw)[1] for draw in draws])
    shares = drawn.bincount(minlength=4) / n
    torch.testing.assert_close(shares, model(start)[-1].softmax(-1), atol=0.03, rtol=0)


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
    assert right("below_the_bigram_floor").startswith("No: the floor is the best table")
    ids = torch.tensor(tokens)
    floor = ngram_floor(ids, 2)
    table = 3 * torch.randn(4, 4, generator=torch.Generator().manual_seed(seed))
    assert F.cross_entropy(table[ids[:-1]], ids[1:]) >= floor - 1e-5
    counts = torch.zeros(4, 4).index_put((ids[:-1], ids[1:]), torch.ones(()), accumulate=True)
    best = (counts + 1e-9).log()
    assert abs(F.cross_entropy(best[ids[:-1]], ids[1:]) - floor) < 1e-4


def test_the_story_of_the_question_is_one_and_there_are_as_many_things_as_it_says():
    told = re.search(r"`(.*?) What", QUESTIONS["what_one_layer_gets"]["question"])[1]
    names = re.match(r"Kind (\w+) gave poor (\w+) a (\w+) at the (\w+)\.", told).groups()
    assert Story(*names, ORDERS[0]).text.startswith(told)
    assert f"one of the {len(THINGS)} things" in right("what_one_layer_gets")


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


def test_near_temperature_zero_the_best_character_comes_each_time():
    torch.manual_seed(0)
    model = gpt.BigramLanguageModel(6)
    start = torch.arange(6)[:, None]
    best = gpt.generate(model, start, 8, temperature=0.0)
    assert torch.equal(gpt.generate(model, start, 8, temperature=1e-4), best)
    assert torch.equal(best[:, 1], model.table.weight.argmax(-1))
    assert not torch.equal(gpt.generate(model, start, 8, temperature=1.0), best)


def test_a_cropped_model_sees_the_last_128():
    seen = []

    class Spy(nn.Module):
        block_size = 128

        def forward(self, ids):
            seen.append(ids[0] + 1)  # the first character is number 1
            return torch.zeros(*ids.shape, 1000)

    gpt.generate(Spy(), torch.arange(499)[None], 1)
    first, last = int(seen[0][0]), int(seen[0][-1])
    assert right("crop") == f"At the last {len(seen[0])}, the characters {first} to {last}"
    model = gpt.GPT(gpt.GPTConfig(5, block_size=128, n_layer=1, n_head=1, n_embd=4))
    with pytest.raises(ValueError, match="block_size is 128"):
        model(torch.zeros(1, 499, dtype=torch.long))
