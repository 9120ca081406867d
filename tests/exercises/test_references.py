"""References are what PyTorch and the package compute, and what texts say of exercises is true.

An exercise whose reference is a function of the package is not listed: that is tested where it is defined.
"""

from collections.abc import Callable

import numpy as np
import pytest
import torch
from answers import judged
from tokenizers import Tokenizer, models
from torch import Tensor, nn
from torch.nn import functional as F

from attention_course import answering, flash, gpt
from attention_course.attention import (
    Cache,
    MultiHeadAttentionList,
    attend,
    attention,
    attention_weights,
    causal_mask,
    fuse,
    leak_probe,
    padding_mask,
)
from attention_course.exercises import EXERCISES, check, judging
from attention_course.exercises.comparing import close
from attention_course.heads import attention_by, head_scores, induction_targets
from attention_course.llama import Llama, LlamaConfig, Rotary
from attention_course.rungs.a_real_model.exercises import Rotation
from attention_course.rungs.an_empty_page import exercises as an_empty_page
from attention_course.rungs.bigram_to_gpt.exercises import HashModel
from attention_course.rungs.bytes.exercises import Blocks
from attention_course.rungs.speed_run.exercises import MUON
from attention_course.smollm import SMOLLM

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("shapes_unchecked")]
NAN, SEEDS = float("nan"), range(3)


def inputs(name: str, seed: int = 0) -> list[tuple]:
    return judging.trial(EXERCISES[name], seed).inputs


def reference(name: str) -> Callable:
    return EXERCISES[name].reference


# Oracles


def windowed_mean(x, k):
    sums = k * F.avg_pool1d(F.pad(x.double().mT, (k - 1, 0)), k, stride=1).mT
    return (sums / torch.arange(1, x.shape[-2] + 1).clamp(max=k)[:, None]).float()


def forgetting_mean(x):
    total = count = 0
    rows = []
    for token in x.unbind(dim=-2):
        total, count = total / 2 + token, count / 2 + 1
        rows.append(total / count)
    return torch.stack(rows, dim=-2)


def softmax_of(scores, mask=None):
    """Apply PyTorch's attention to values that are one-hot, so that its output is the weights."""
    keys = torch.eye(scores.shape[-1]).expand(*scores.shape[:-2], -1, -1)
    return F.scaled_dot_product_attention(scores, keys, keys, mask, scale=1.0)


def one_head(x, W_query, W_key, W_value, mask):
    return F.scaled_dot_product_attention(x @ W_query, x @ W_key, x @ W_value, mask)


def cross_head(x, context, W_query, W_key, W_value, mask):
    return F.scaled_dot_product_attention(x @ W_query, context @ W_key, context @ W_value, mask)


def split(x, n_head):
    return torch.stack(x.chunk(n_head, dim=-1), dim=1)


def merge(heads):
    return torch.cat(heads.unbind(1), dim=-1)


def multi_head(x, W_qkv, W_proj, n_head, mask):
    q, k, v = (split(part, n_head) for part in F.linear(x, W_qkv).chunk(3, -1))
    return F.linear(merge(F.scaled_dot_product_attention(q, k, v, attn_mask=mask)), W_proj)


@torch.no_grad()
def fused(*matrices):
    n_head, _, C = matrices[0].shape
    heads = MultiHeadAttentionList(C, n_head)
    for part, matrix in zip(("query", "key", "value"), matrices, strict=True):
        for head, weight in zip(heads.heads, matrix, strict=True):
            getattr(head, part).weight.copy_(weight)
    return fuse(heads).c_attn.weight.detach()


def blocks_of(ids, block_size, starts):
    blocks = ids.unfold(0, block_size + 1, 1)[starts]
    return torch.stack([blocks[:, :-1], blocks[:, 1:]])


def rotated(x, positions, base):
    turn = Rotary(x.shape[-1], int(positions.max()) + 1, float(base))
    return torch.cat([turn(x[..., [t], :], start=int(p)) for t, p in enumerate(positions)], dim=-2)


def grouped(q, k, v):
    mask = causal_mask(q.shape[2], k.shape[2])
    return F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True)


def step_of_the_cache(q, k, v, past_k, past_v, rotate):
    rotary, layer, cache = Rotary(q.shape[-1], 100, rotate.base), nn.Identity(), Cache()
    cache.extend(layer, past_k, past_v)
    cache.advance(past_k.shape[2])
    every_k, every_v = cache.extend(layer, rotary(k, len(cache)), v)
    return attend(rotary(q, len(cache)), every_k, every_v, is_causal=True)


def byte_pairs(ids, merges):
    spelled = {token: chr(token) for token in {*ids.tolist(), *sum(merges, ())} if token < 256}
    learned = sorted(merges, key=merges.get)
    for left, right in learned:
        spelled[merges[left, right]] = spelled[left] + spelled[right]
    numbers = {text: token for token, text in spelled.items()}
    pairs = [(spelled[left], spelled[right]) for left, right in learned]
    word = "".join(map(chr, ids.tolist()))
    return torch.tensor(Tokenizer(models.BPE(numbers, pairs)).encode(word).ids)


def best_head(weights, ids):
    scores = head_scores(weights, induction_targets(ids))
    return torch.tensor(divmod(int(scores.argmax()), weights.shape[1]))


def softmax_of_all_blocks(blocks):
    scores, values = (torch.cat(parts) for parts in zip(*blocks, strict=True))
    package, _ = flash.online_softmax((scores[None], values) for scores, values in blocks)
    assert close(package[0], scores.softmax(dim=0) @ values)
    return package[0]


def by_singular_values(x, a, b, c):
    U, S, V = torch.linalg.svd(x, full_matrices=False)
    return U * (a * S + b * S**3 + c * S**5) @ V


def schedule(peak, steps, warmup, decay):
    corners = [-1, warmup - 1, steps - decay, steps]
    return torch.tensor(np.interp(range(steps), corners, [0, peak, peak, 0])).float()


def seconds_to(mark, seconds, losses):
    for i, loss in enumerate(losses):
        if loss <= mark:
            return float(np.interp(-mark, -losses[i - 1 : i + 1], seconds[i - 1 : i + 1]))
    return NAN


def speed_up(old, new, mark):
    first, second = (seconds_to(mark, *curve.numpy()) for curve in (old, new))
    return torch.tensor([first, second, first / second])


def lora_layer(x, W, A, B, alpha):
    thin = {"A": A, "B": alpha / len(A) * B}
    return F.linear(x, torch.func.functional_call(answering.LoRA(W, len(A)), thin, W.detach()))


def divergence(logits, reference):
    log_p, log_q = logits.log_softmax(dim=-1), reference.log_softmax(dim=-1)
    pytorch = F.kl_div(log_q, log_p, reduction="none", log_target=True).sum(dim=-1)
    assert close(pytorch, answering.kl_per_token(logits, reference))
    return pytorch


def swaps(model, ids):
    """Look at all swaps at once, in doubles."""
    exact = an_empty_page.Model(model.kind, model.table.double())
    orders = ids.repeat(len(ids), 1)
    for i in range(len(ids) - 1):
        orders[i + 1, [i, i + 1]] = ids[[i + 1, i]]
    last = exact(orders)[:, -1]
    return (last[1:] - last[0]).abs().amax(dim=-1) > 1e-5 * last[0].abs().max()


REACH = {"bigram": 1, "bigram that grows": 1, "trigram": 2, "window of 3": 3, "window of 4": 4}
REACH |= {
    "the third last": 3,
    "every other token": 5,
    "no token": 0,
    "zeros": 0,
    "faint past": 1,
    "slight past": 2,
}  # of the others, all tokens

ORACLES: dict[str, Callable] = {
    "windowed_mean": windowed_mean,
    "forgetting_mean": forgetting_mean,
    "band_matrix": lambda T, k: windowed_mean(torch.eye(T), k),
    "shift_matrix": lambda T: torch.ones(T - 1).diag(-1),
    "stable_softmax": lambda x: x.softmax(dim=-1),
    "padding_weights": lambda scores, lengths: softmax_of(scores, padding_mask(lengths, scores.shape[-1])),
    "head_forward": one_head,
    "previous_token": lambda T: torch.eye(T)[[0, *range(T - 1)]],
    "scaled_weights": lambda x, a, b: attention_weights(x @ a, x @ b),
    "cross_attention_forward": cross_head,
    "leaks": lambda models, x: torch.stack([leak_probe(model, x).triu(1).any() for model in models]),
    "split_heads": split,
    "merge_heads": merge,
    "multi_head_forward": multi_head,
    "fuse_heads": fused,
    "get_batch": blocks_of,
    "cross_entropy_loss": lambda logits, ids: F.cross_entropy(logits.flatten(0, 1), ids.flatten()),
    "embed": lambda ids, wte, wpe: F.embedding(ids, wte) + wpe[torch.arange(ids.shape[1])],
    "rms_norm": lambda x, weight, eps: F.rms_norm(x, weight.shape, weight, eps),
    "rotate": rotated,
    "grouped_attention": grouped,
    "attend_with_cache": step_of_the_cache,
    "encode_word": byte_pairs,
    "find_induction_head": best_head,
    "logit_lens": lambda stream, scale, W: F.linear(F.rms_norm(stream, scale.shape, scale, 1e-5), W),
    "online_softmax": softmax_of_all_blocks,
    "newton_schulz_step": by_singular_values,
    "learning_rate_schedule": schedule,
    "speed_up": speed_up,
    "masked_loss": answering.answer_loss,
    "lora": lora_layer,
    "group_advantage": answering.group_advantage,
    "kl_per_token": divergence,
    "swaps_noticed": swaps,
    "context_length": lambda model, ids: torch.tensor(REACH.get(model.kind, len(ids))),
}
MORE = {"windowed_mean": [(torch.randn(6, 3), k) for k in range(1, 9)]}  # inputs that no check draws


@pytest.mark.parametrize("name", ORACLES)
def test_a_reference_is_what_others_compute(name):
    for arguments in sum((inputs(name, seed) for seed in SEEDS), MORE.get(name, [])):
        found, expected = reference(name)(*arguments), ORACLES[name](*arguments)
        assert found.dtype == expected.dtype
        assert same_up_to_rounding(found, expected), arguments


def same_up_to_rounding(found: Tensor, expected: Tensor) -> bool:
    found, expected = found.double(), expected.double()
    rounding = 1e-5 * float(expected.nan_to_num().abs().amax() if expected.numel() else 0)
    return torch.allclose(found, expected, rtol=1e-5, atol=rounding, equal_nan=True)


@pytest.mark.parametrize(
    "name", sorted(ORACLES.keys() - {"context_length"})
)  # which reads what kind a model is
def test_what_others_compute_passes_unless_it_calls_what_the_task_does_without(name):
    verdict = judged(name, ORACLES[name], seed=0)
    calls = bool(EXERCISES[name].forbidden) and verdict.headline.startswith("not yet: it calls ")
    assert verdict.passed or calls or verdict.mistakes == ("all_blocks_held",)


def test_embeddings_block_and_loss_make_the_gpt_of_the_package():
    torch.manual_seed(0)
    model = gpt.GPT(gpt.GPTConfig(vocab_size=11, block_size=7, n_layer=1, n_head=2, n_embd=6, bias=True))
    for parameter in model.parameters():
        nn.init.normal_(parameter)  # so that no two LayerNorms are alike
    table, block = model.transformer, model.transformer["h"][0]
    ids = torch.randint(11, (3, 5))
    x = reference("embed")(ids, table["wte"].weight, table["wpe"].weight)
    attn = lambda z: block.attn(z, causal_mask(5))  # noqa: E731
    x = reference("pre_norm_block")(x, attn, block.mlp, block.ln_1, block.ln_2)
    torch.testing.assert_close(model.lm_head(table["ln_f"](x)), model(ids))


# What texts say

x, square = torch.randn(2, 4, 3), torch.randn(2, 4, 4)
four, one = torch.tensor([4.0]), torch.ones(1)


def equal(one: Tensor, other: Tensor) -> bool:
    return torch.allclose(one, other, rtol=1e-5, atol=1e-5)


def large_negative(x):
    T = x.shape[-2]
    return torch.zeros(T, T).masked_fill(torch.ones(T, T).triu(1) == 1, -1e9).softmax(-1) @ x


def scaled_up_and_down():
    x, *matrices, mask = inputs("head_forward")[5]
    W_query, W_key, W_value = matrices
    head = reference("head_forward")
    return equal(head(x, 8 * W_query, W_key / 8, W_value, mask), head(x, *matrices, mask))


def distance_alone(T=4):
    x = torch.randn(T, 6)
    here, there = (reference("rotate")(x, torch.arange(T) + start, 100.0) for start in (0, 1000))
    return torch.allclose(here @ here.T, there @ there.T, atol=1e-3, rtol=0)


def layer_norm_of_mean_0():
    x = torch.randn(4, 6)
    x = x - x.mean(dim=-1, keepdim=True)
    return equal(reference("rms_norm")(x, x[0], 1e-5), F.layer_norm(x, (6,), x[0], None, 1e-5))


def gradient_along_the_sums():
    y = x = torch.randn(1, 3, 4, requires_grad=True)
    for _ in range(20):  # the parts are cut off from the gradient, so only the line of sums is left
        y = reference("pre_norm_block")(
            y, lambda z: 3 * z.detach(), lambda z: z.detach() ** 2, torch.tanh, torch.tanh
        )
    y.sum().backward()
    return equal(x.grad, torch.ones_like(x))


def shares_of_draws(n=4000):
    model, start = HashModel(4, None, seed=5), torch.tensor([2])
    draws = torch.rand(n, 1, generator=torch.Generator().manual_seed(0))
    drawn = torch.stack([reference("generate")(model, start, 1, draw)[1] for draw in draws])
    return drawn.bincount(minlength=4) / n - model(start)[-1].softmax(-1)


def nearly_orthogonal():
    x = torch.randn(6, 9, generator=torch.Generator().manual_seed(0))
    after = x / x.norm()
    for _ in range(5):
        after = reference("newton_schulz_step")(after, *MUON)
    before, after = torch.linalg.svdvals(x), torch.linalg.svdvals(after)
    return before[0] / before[-1] > 3 and 0.6 < after[-1] < after[0] < 1.3


def merged(layer):
    x, W, A, B, alpha = inputs("lora")[4]
    return equal(x @ (W + alpha / len(A) * B @ A).T, layer(x, W, A, B, alpha))


def cheap_only_where_the_model_is_silent(divergence):
    sure, open_to_both = torch.tensor([[[9.0, 0.0]]]), torch.zeros(1, 1, 2)
    return divergence(open_to_both, sure).item() > 5 * divergence(sure, open_to_both).item()


FACTS = {  # words of a task or an insight, and whether they are true
    ("causal_mean_softmax", "A fill of -1e9 passes"): lambda f: (
        check("causal_mean_softmax", large_negative).passed and torch.full((1, 3), -1e9).softmax(dim=-1).all()
    ),
    ("stable_softmax", "`logsumexp` subtract the largest"): lambda f: (
        torch.tensor([1000.0, 1000.0]).logsumexp(dim=-1).isfinite()
    ),
    ("head_forward", "scale one up and the other down"): lambda f: scaled_up_and_down(),
    ("scale_for_variance", "need a scale of 1/8"): lambda f: f(four, one, 16, 1.0) == 1 / 8,
    ("scale_for_variance", "the scale is half of 1/√head_size"): lambda f: (
        f(four, one, 64, 1.0) == 64**-0.5 / 2
    ),
    ("predicted_variance", "var(q) · var(k) is left"): lambda f: equal(
        f(four, 3 * one, 64, 64**-0.5), 12 * one
    ),
    ("scaled_weights", "Dividing q alone by √head_size gives the same scores"): lambda f: equal(
        f(x, x[0].T, x[1].T), ((x @ x[0].T / 2) @ (x @ x[1].T).mT).softmax(dim=-1)
    ),
    ("split_heads", "shares its memory"): lambda f: f(square, 2).data_ptr() == square.data_ptr(),
    ("pre_norm_block", "flows back along it unchanged"): lambda f: gradient_along_the_sums(),
    ("generate", "drawn with its probability"): lambda f: shares_of_draws().abs().max() < 0.03,
    ("rms_norm", "whose channels have mean 0 it equals LayerNorm"): lambda f: layer_norm_of_mean_0(),
    ("rotate", "how far apart"): lambda f: distance_alone(),
    ("encode_word", "49,000 merges"): lambda f: 48_500 < SMOLLM.vocab_size - 256 < 49_500,
    ("newton_schulz_step", "bring nearly all of them to about 1"): lambda f: nearly_orthogonal(),
    ("lora", "add (alpha / rank) B A to W once and for all"): merged,
    ("kl_per_token", "large where the model writes what the reference"): cheap_only_where_the_model_is_silent,
    ("learning_rate_schedule", "½, 1, 1, 1, 1, ¾, ½, ¼"): lambda f: (
        f(1.0, 8, 2, 4).tolist() == [0.5, 1, 1, 1, 1, 0.75, 0.5, 0.25]
    ),
}


@pytest.mark.parametrize(("name", "words"), FACTS)
def test_what_a_text_says_is_true(name, words):
    assert words in EXERCISES[name].task + EXERCISES[name].insight
    assert FACTS[name, words](reference(name))


@pytest.mark.parametrize("others", [lambda t: [t], lambda t: [*range(t - 1), t] if t > 1 else []])
@pytest.mark.parametrize(("share", "passes"), [(0.009, True), (0.012, False)])
def test_the_weight_of_the_previous_token_has_to_be_099(others, share, passes):
    """All but `share` of each row is on the previous token, and the rest evenly on `others(t)`."""

    def answer(size):
        weights = torch.eye(size)
        for t in range(1, size):
            rest = others(t)
            weights[t] = 0
            weights[t, t - 1] = 1 - share if rest else 1
            weights[t, rest] = share / max(1, len(rest))
        return weights

    assert all(judged("previous_token", answer, seed).passed is passes for seed in SEEDS)


# What answers are given to work with


@pytest.mark.parametrize(
    ("given", "error", "says"),
    [
        (
            lambda: HashModel(5, 3, 0)(torch.tensor([0, 1, 2, 3])),
            ValueError,
            r"4 tokens, but .* the last ones",
        ),
        (lambda: HashModel(5, 3, 0)(torch.tensor([[0, 1]])), ValueError, r"shape \(1, 2\), expected \(T,\)"),
        (lambda: HashModel(5, 3, 0)(torch.arange(0)), ValueError, "at least one token"),
        (lambda: HashModel(5, 3, 0)(torch.tensor([0, 5])), IndexError, "no token 5, only 0 to 4"),
        (lambda: Rotation(10.0)(x[0], 3), TypeError, "positions is 3, expected a tensor"),
        (lambda: Rotation(10.0)(x[0], torch.tensor([3])), ValueError, "and `x` has T = 4 tokens"),
        (lambda: inputs("swaps_noticed")[0][0](torch.arange(2)), ValueError, r"expected \(B, T\)"),
    ],
)
def test_what_an_answer_may_call_says_what_it_cannot_read(given, error, says):
    with pytest.raises(error, match=says):
        given()


def test_blocks_are_copies_and_show_their_scores():
    blocks = Blocks(((torch.zeros(2), torch.ones(2, 3)), (torch.zeros(1), torch.ones(1, 3))))
    assert repr(blocks) == "scores 0.0, 0.0 | 0.0"
    for scores, values in blocks:
        scores += 1
        values += 1
    assert all((scores == 0).all() and (values == 1).all() for scores, values in blocks)


@pytest.mark.parametrize("seed", SEEDS)
def test_recorded_weights_are_causal_and_one_head_stands_out(seed):
    for weights, ids in inputs("find_induction_head", seed):
        assert not weights.triu(1).any()
        assert equal(weights.sum(dim=-1), torch.ones(weights.shape[:3]))
        scores = head_scores(weights, induction_targets(ids)).flatten().sort().values
        assert scores[-2] < 0.99 * scores[-1]


def test_the_lens_and_what_all_parts_write_end_at_the_logits_of_a_model():
    torch.manual_seed(0)
    model = Llama(LlamaConfig(11, block_size=8, n_layer=2, n_head=3, n_embd=12, n_kv_head=3))
    ids, answers, outputs = torch.tensor([3, 1, 4, 1, 5]), torch.tensor([1, 4, 1, 5, 9]), []

    def keep(q, k, v, mask):
        outputs.append(attention(q, k, v, mask)[0][0])
        return outputs[-1][None]

    with torch.no_grad():
        logits, stream = model(ids[None])[0], [model.transformer.wte(ids)]
        with attention_by(model, keep):
            for block in model.transformer.h:
                stream.append(block(stream[-1][None], is_causal=True)[0])
        last = (stream[-1], model.transformer.ln_f.weight, model.lm_head.weight)
        lens = reference("logit_lens")(torch.stack(stream), *last[1:])
        matrices = [block.get_submodule("attn.c_proj").weight for block in model.transformer.h]
        parts = [*zip(outputs, matrices, strict=True)]
        by_heads = sum(heads.transpose(0, 1).flatten(1) @ W.T for heads, W in parts)
        parts.append(((stream[-1] - by_heads)[None], torch.eye(12)))  # embedding and MLPs, as one more head
        written = [
            reference("direct_logit_attribution")(heads, W, *last, answers).sum(dim=0) for heads, W in parts
        ]
    assert equal(lens[-1], logits)
    assert equal(sum(written), logits[torch.arange(5), answers] - logits.mean(dim=-1))


@pytest.mark.parametrize("seed", SEEDS)
def test_the_weakest_leak_is_below_a_millionth_and_no_rounding(seed):
    ((weak, x),) = [(m, x) for given, x in inputs("leaks", seed) for m in given if m.kind == "weak"]
    moves = (weak(torch.cat([x[:-1], -x[-1:] - 1])) - weak(x))[:-1].abs()
    assert 1e-7 < moves.max() < 1e-6
    assert torch.equal(weak(x.clone()), weak(x))


def test_models_come_in_any_order_and_are_named_without_an_address():
    orders = {tuple(model.kind for model in inputs("leaks", seed)[0][0]) for seed in range(20)}
    assert len(orders) > 1
    assert " at 0x" not in str(inputs("leaks"))
