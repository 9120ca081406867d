"""Answers to the exercises of notebook 05."""

import math

import numpy as np
import torch
import torch.nn.functional as F

from answers import right, wrong
from attention_course.attention import attention_weights

# scaled_weights


def scores_of(x, w_query, w_key):
    return (x @ w_query) @ (x @ w_key).transpose(-2, -1)


@right("scaled_weights")
def einsum_of_four(x, w_query, w_key):
    scores = torch.einsum("...tc,cd,ed,...se->...ts", x, w_query, w_key, x)
    return torch.softmax(scores / math.sqrt(w_key.shape[1]), dim=-1)


@right("scaled_weights")
def scale_on_q(x, w_query, w_key):
    return (x @ w_query * w_query.shape[1] ** -0.5 @ (x @ w_key).mT).softmax(dim=-1)


@right("scaled_weights")
def scale_on_both_sides(x, w_query, w_key):
    root = w_query.shape[-1] ** -0.25
    return F.softmax((x @ w_query * root) @ (x @ w_key * root).mT, dim=-1)


@right("scaled_weights")
def scaled_in_float64(x, w_query, w_key):
    q, k = x.double() @ w_query.double(), x.double() @ w_key.double()
    return torch.softmax(q @ k.mT * q.shape[-1] ** -0.5, dim=-1).to(x.dtype)


@right("scaled_weights")
def scaled_by_vmap(x, w_query, w_key):
    def of_one_text(x):
        return ((x @ w_query) @ (x @ w_key).T / w_key.size(1) ** 0.5).softmax(-1)

    return torch.vmap(of_one_text)(x) if x.dim() == 3 else of_one_text(x)


@right("scaled_weights")
def loops_over_queries_and_keys(x, w_query, w_key):
    texts = x[None] if x.dim() == 2 else x
    B, T, _ = texts.shape
    weights = torch.zeros(B, T, T)
    for b in range(B):
        q, k = texts[b] @ w_query, texts[b] @ w_key
        for t in range(T):
            for s in range(T):
                weights[b, t, s] = q[t].dot(k[s]) / q.shape[1] ** 0.5
            weights[b, t] = weights[b, t].sub(weights[b, t].max()).exp()
            weights[b, t] /= weights[b, t].sum()
    return weights[0] if x.dim() == 2 else weights


@right("scaled_weights")
def softmax_of_differences(x, w_query, w_key):
    scores = (x @ w_query / w_query.shape[1] ** 0.5) @ (x @ w_key).transpose(-1, -2)
    return 1 / (scores.unsqueeze(-2) - scores.unsqueeze(-1)).exp().sum(-1)


@right("scaled_weights")
def one_matrix_for_query_and_key(x, w_query, w_key):
    bilinear = w_query @ w_key.T / math.sqrt(w_query.shape[1])
    return torch.log_softmax(x @ bilinear @ x.transpose(-2, -1), dim=-1).exp()


@right("scaled_weights")
def what_rung_4_built(x, w_query, w_key):
    return attention_weights(x @ w_query, x @ w_key)


@wrong("scaled_weights", "scaled_by_n_embd")
def root_of_the_rows_of_the_matrix(x, w_query, w_key):
    scores = torch.einsum("...tc,cd,ed,...se->...ts", x, w_query, w_key, x)
    return (scores / w_query.shape[0] ** 0.5).softmax(-1)


@wrong("scaled_weights", "exponent_without_brackets")
def minus_one_half_without_brackets(x, w_query, w_key):
    return torch.softmax(scores_of(x, w_query, w_key) * w_query.shape[-1] ** -1 / 2, dim=-1)


@wrong("scaled_weights", "counts_dims_from_the_front")
def scale_of_len_q(x, w_query, w_key):
    return torch.softmax(scores_of(x, w_query, w_key) / len(x @ w_query) ** 0.5, dim=-1)


@wrong("scaled_weights", "keys_from_w_query")
def queries_meet_queries(x, w_query, w_key):
    q = x @ w_query
    return torch.softmax(q @ q.transpose(-2, -1) * q.shape[-1] ** -0.5, dim=-1)


@wrong("scaled_weights", "scaled_by_head_size", "future_hidden")
def divides_too_much_and_hides_the_future(x, w_query, w_key):
    scores = (x @ w_query / w_query.shape[1]) @ (x @ w_key).mT
    past = torch.ones(x.shape[-2], x.shape[-2]).tril() == 1
    return torch.where(past, scores, -torch.inf).softmax(dim=-1)


@wrong("scaled_weights")
def whole_root_of_head_size(x, w_query, w_key):
    return torch.softmax(scores_of(x, w_query, w_key) / int(w_query.shape[-1] ** 0.5), dim=-1)


@wrong("scaled_weights")
def floor_division_makes_the_scale_zero(x, w_query, w_key):
    return torch.softmax(scores_of(x, w_query, w_key) * (1 // w_query.shape[-1] ** 0.5), dim=-1)


@wrong("scaled_weights")
def cosine_in_place_of_the_scale(x, w_query, w_key):
    q, k = F.normalize(x @ w_query, dim=-1), F.normalize(x @ w_key, dim=-1)
    return torch.softmax(q @ k.transpose(-2, -1), dim=-1)


@wrong("scaled_weights")
def divides_by_the_measured_deviation(x, w_query, w_key):
    scores = scores_of(x, w_query, w_key)
    return torch.softmax(scores / scores.std(), dim=-1)


@wrong("scaled_weights")
def one_softmax_for_the_whole_table(x, w_query, w_key):
    scores = scores_of(x, w_query, w_key) * w_query.shape[-1] ** -0.5
    return torch.softmax(scores.flatten(-2), dim=-1).view_as(scores)


@wrong("scaled_weights")
def squeezed_on_the_way_out(x, w_query, w_key):
    return attention_weights(x @ w_query, x @ w_key).squeeze()


@wrong("scaled_weights")
def one_maximum_for_the_whole_table(x, w_query, w_key):
    scores = scores_of(x, w_query, w_key) * w_query.shape[-1] ** -0.5
    heights = (scores - scores.max()).exp()
    return heights / heights.sum(dim=-1, keepdim=True)


# predicted_variance


@right("predicted_variance")
def law_by_einsum(var_q, var_k, head_size, scale):
    return torch.einsum("h,h->h", var_q, var_k) * (head_size * scale * scale)


@right("predicted_variance")
def law_by_adding_a_term_for_each_channel(var_q, var_k, head_size, scale):
    total = torch.zeros_like(var_q)
    for _ in range(head_size):
        total = total + (scale * var_q.sqrt() * var_k.sqrt()) ** 2
    return total


@right("predicted_variance")
def law_by_list_comprehension(var_q, var_k, head_size, scale):
    pairs = zip(var_q.tolist(), var_k.tolist(), strict=True)
    return torch.tensor([a * b * head_size * float(scale) ** 2 for a, b in pairs])


@right("predicted_variance")
def law_in_logarithms(var_q, var_k, head_size, scale):
    size = math.log(head_size) + 2 * math.log(abs(scale))
    return (var_q.log() + var_k.log() + size).exp()


@right("predicted_variance")
def law_in_float64_by_numpy(var_q, var_k, head_size, scale):
    a, b = np.float64(var_q.numpy()), np.float64(var_k.numpy())
    return torch.as_tensor(np.square(np.sqrt(a * b * head_size) * scale)).to(var_q.dtype)


@right("predicted_variance")
def law_by_vmap(var_q, var_k, head_size, scale):
    return torch.vmap(lambda a, b: (a * scale) * (b * scale) * head_size)(var_q, var_k)


@right("predicted_variance")
def law_in_place_on_a_copy(var_q, var_k, head_size, scale):
    out = var_q.clone()
    out *= var_k
    out *= head_size
    out *= scale**2
    return out


@wrong("predicted_variance", "scale_taken_for_granted")
def the_usual_scale_whatever_scale_is(var_q, var_k, head_size, scale):
    return var_q * var_k


@wrong("predicted_variance", "head_size_missing", "scale_not_squared")
def products_of_entries(var_q, var_k, head_size, scale):
    return scale * var_q * var_k


@wrong("predicted_variance")
def one_channel_less_as_in_a_sample(var_q, var_k, head_size, scale):
    return (head_size - 1) * var_q * var_k * scale**2


@wrong("predicted_variance")
def head_size_times_the_number_of_heads(var_q, var_k, head_size, scale):
    return head_size * len(var_q) * var_q * var_k * scale**2


@wrong("predicted_variance")
def measured_in_place_of_predicted(var_q, var_k, head_size, scale):
    generator = torch.Generator().manual_seed(0)
    q = torch.randn(len(var_q), 2000, head_size, generator=generator) * var_q.sqrt()[:, None, None]
    k = torch.randn(len(var_q), 2000, head_size, generator=generator) * var_k.sqrt()[:, None, None]
    return ((q * k).sum(dim=-1) * scale).var(dim=-1)


@wrong("predicted_variance")
def keys_of_the_next_head(var_q, var_k, head_size, scale):
    return head_size * var_q * var_k.roll(-1) * scale**2


@wrong("predicted_variance")
def scale_cut_to_an_integer(var_q, var_k, head_size, scale):
    return head_size * var_q * var_k * (scale**2 // 1)


@wrong("predicted_variance")
def squeezed_to_one_number(var_q, var_k, head_size, scale):
    return (head_size * var_q * var_k * scale**2).squeeze()


@wrong("predicted_variance")
def factor_rounded_to_an_integer(var_q, var_k, head_size, scale):
    return round(head_size * scale**2) * var_q * var_k


@wrong("predicted_variance")
def queries_changed_on_the_way(var_q, var_k, head_size, scale):
    var_q *= var_k
    return head_size * var_q * scale**2


# scale_for_variance


@right("scale_for_variance")
def scale_by_rsqrt_of_the_parts(var_q, var_k, head_size, variance):
    return math.sqrt(variance) * var_q.rsqrt() * var_k.rsqrt() / math.sqrt(head_size)


@right("scale_for_variance")
def scale_by_a_loop(var_q, var_k, head_size, variance):
    out = torch.empty_like(var_q)
    for h in range(len(var_q)):
        out[h] = math.sqrt(variance) / math.sqrt(head_size * var_q[h].item() * var_k[h].item())
    return out


@right("scale_for_variance")
def scale_in_logarithms(var_q, var_k, head_size, variance):
    return torch.exp((math.log(variance / head_size) - var_q.log() - var_k.log()) / 2)


@right("scale_for_variance")
def scale_in_numpy(var_q, var_k, head_size, variance):
    product = np.prod([var_q.numpy(), var_k.numpy()], axis=0).astype(np.float64)
    return torch.tensor(np.sqrt(variance / product / head_size), dtype=var_q.dtype)


@right("scale_for_variance")
def scale_by_newton_steps(var_q, var_k, head_size, variance):
    wanted = (variance / head_size / var_q / var_k).double()
    root = wanted.clamp(min=1.0)
    for _ in range(60):
        root = (root + wanted / root) / 2
    return root.to(var_q.dtype)


@right("scale_for_variance")
def scale_by_vmap(var_q, var_k, head_size, variance):
    return torch.vmap(lambda a, b: torch.sqrt(variance / (a * b * head_size)))(var_q, var_k)


@wrong("scale_for_variance", "roots_of_the_variances")
def root_twice(var_q, var_k, head_size, variance):
    return (variance / (head_size * var_q.sqrt() * var_k.sqrt())).sqrt()


@wrong("scale_for_variance", "one_variance_twice")
def deviation_of_the_queries_squared(var_q, var_k, head_size, variance):
    return (variance / head_size) ** 0.5 / var_q


@wrong("scale_for_variance", "variances_ignored", "wanted_variance_ignored")
def the_usual_scale(var_q, var_k, head_size, variance):
    return torch.full_like(var_q, head_size**-0.5)


@wrong("scale_for_variance")
def never_above_one(var_q, var_k, head_size, variance):
    return (variance / (head_size * var_q * var_k)).sqrt().clamp(max=1)


@wrong("scale_for_variance")
def the_other_root(var_q, var_k, head_size, variance):
    return -((variance / (head_size * var_q * var_k)) ** 0.5)


@wrong("scale_for_variance")
def floor_division_of_variance_by_head_size(var_q, var_k, head_size, variance):
    return (variance // head_size / (var_q * var_k)).sqrt()


@wrong("scale_for_variance")
def rounded_to_a_power_of_two(var_q, var_k, head_size, variance):
    return 2 ** (variance / (head_size * var_q * var_k)).sqrt().log2().round()


@wrong("scale_for_variance")
def never_below_the_usual_scale(var_q, var_k, head_size, variance):
    return (variance / (head_size * var_q * var_k)).sqrt().clamp(min=head_size**-0.5)


@wrong("scale_for_variance")
def rounded_to_three_digits(var_q, var_k, head_size, variance):
    return (variance / (head_size * var_q * var_k)).sqrt().round(decimals=3)


@wrong("scale_for_variance")
def queries_changed_for_the_scale(var_q, var_k, head_size, variance):
    var_q *= var_k * head_size
    return (variance / var_q).sqrt()
