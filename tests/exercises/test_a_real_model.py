"""Rung 9's exercises: what their inputs hold, what their references equal, what their texts say."""

import pytest
import torch
from tokenizers import Tokenizer, models
from torch import nn
from torch.nn import functional as F

from attention_course.attention import Cache, attend, attention, causal_mask
from attention_course.exercises import EXERCISES, check, judging
from attention_course.exercises.comparing import same
from attention_course.heads import followed_before, head_scores
from attention_course.llama import RMSNorm, Rotary
from attention_course.rungs.a_real_model import exercises as rung
from attention_course.smollm import SMOLLM

pytestmark = pytest.mark.slow


def inputs(name, seed=0):
    return judging.trial(EXERCISES[name], seed).inputs


def test_the_mistakes_of_the_syllabus_are_named():
    assert {name for each in rung.EXERCISES for m in each.mistakes for name in m.names} >= {
        *("mean_subtracted", "epsilon_outside_the_root", "positions_along_heads", "values_rotated"),
        *("positions_without_offset", "heads_shared_in_turns", "wrong_alignment", "merged_by_frequency"),
    }


# Inputs


@pytest.mark.parametrize("seed", range(5))
def test_sizes_that_a_wrong_answer_confuses_are_equal_in_one_input_and_differ_in_another(seed):
    assert {x.dim() for x, *_ in inputs("rms_norm", seed)} == {2, 3}
    assert any(not x.any(dim=-1).all() for x, *_ in inputs("rms_norm", seed))
    assert any(x.shape == (2, 2, 2) for x, *_ in inputs("rms_norm", seed))
    rotations = inputs("rotate", seed)
    assert {x.dim() for x, *_ in rotations} == {2, 4}
    assert any(x.shape[-2] == x.shape[1] for x, *_ in rotations if x.dim() == 4)
    assert any(x.shape[-2] == x.shape[-1] // 2 > 1 for x, *_ in rotations)
    assert any((positions.diff() < 0).any() for _, positions, _ in rotations)
    sizes = [(*q.shape[1:3], *k.shape[1:3]) for q, k, _ in inputs("grouped_attention", seed)]
    groups = {(n_head // n_kv_head, n_kv_head) for n_head, _, n_kv_head, _ in sizes}
    assert groups >= {(1, 2), (2, 1), (2, 2), (2, 3), (3, 2), (3, 3)}
    assert any(1 < T_q < T_k for _, T_q, _, T_k in sizes)
    steps = {(q.shape[2], past.shape[2]) for q, _, _, past, *_ in inputs("attend_with_cache", seed)}
    assert min(T_past for _, T_past in steps) == 0
    assert min(T_new for T_new, _ in steps) == 1
    assert any(1 < T_new < T_past for T_new, T_past in steps)


@pytest.mark.parametrize("seed", range(20))
def test_the_wrong_ways_to_merge_lead_elsewhere(seed):
    for mistake in EXERCISES["encode_word"].mistakes:
        drawn = judging.trial(EXERCISES["encode_word"], seed)
        ends = [drawn.outcome(mistake, i) for i in range(len(drawn.inputs))]
        assert not all(same(*pair, 0.0) for pair in zip(drawn.targets, ends, strict=True)), mistake


@pytest.mark.parametrize("seed", range(5))
def test_a_table_holds_pairs_in_another_order_than_they_were_learned_in(seed):
    assert any(list(merges.values()) != sorted(merges.values()) for _, merges in inputs("encode_word", seed))


@pytest.mark.parametrize("seed", range(5))
def test_rows_of_recorded_weights_are_causal_and_sum_to_1(seed):
    for weights, ids in inputs("find_induction_head", seed):
        assert not weights.triu(1).any()
        torch.testing.assert_close(weights.sum(dim=-1), torch.ones(weights.shape[:3]))
        first, second = ids.chunk(2)
        assert torch.equal(first, second)
        assert len(first.unique()) == len(first)
        layer, head = rung.find_induction_head(weights, ids).tolist()
        assert layer != head


# References


def test_rms_norm_is_that_of_the_package_and_of_pytorch():
    for x, weight, eps in inputs("rms_norm"):
        norm = RMSNorm(len(weight), eps)
        norm.weight = nn.Parameter(weight)
        torch.testing.assert_close(rung.rms_norm(x, weight, eps), norm(x))
        torch.testing.assert_close(rung.rms_norm(x, weight, eps), F.rms_norm(x, weight.shape, weight, eps))


def test_rotate_is_rotary_of_the_package():
    x = torch.randn(2, 3, 5, 6)
    rotary = Rotary(6, 12, base=50.0)
    torch.testing.assert_close(rung.rotate(x, torch.arange(5), 50.0), rotary(x))
    torch.testing.assert_close(rung.rotate(x, torch.arange(7, 12), 50.0), rotary(x, start=7))


def test_grouped_attention_is_that_of_the_package_and_of_pytorch():
    for q, k, v in inputs("grouped_attention"):
        out = rung.grouped_attention(q, k, v)
        torch.testing.assert_close(out, attend(q, k, v, is_causal=True, enable_gqa=True))
        mask = causal_mask(q.shape[2], k.shape[2])
        torch.testing.assert_close(out, F.scaled_dot_product_attention(q, k, v, mask, enable_gqa=True))
        if q.shape[1] == k.shape[1]:
            torch.testing.assert_close(out, attention(q, k, v, mask)[0])


def test_a_step_is_that_of_the_cache():
    for q, k, v, past_k, past_v, rotate in inputs("attend_with_cache"):
        rotary, layer, cache = Rotary(q.shape[-1], 20, rotate.base), nn.Identity(), Cache()
        cache.extend(layer, past_k, past_v)
        cache.advance(past_k.shape[2])
        every_k, every_v = cache.extend(layer, rotary(k, len(cache)), v)
        out = attend(rotary(q, len(cache)), every_k, every_v, is_causal=True)
        torch.testing.assert_close(rung.attend_with_cache(q, k, v, past_k, past_v, rotate), out)


@pytest.mark.parametrize("seed", range(10))
def test_a_word_is_encoded_as_the_library_does(seed):
    for ids, merges in inputs("encode_word", seed):
        spelled = {token: chr(token) for token in {*ids.tolist(), *sum(merges, ())} if token < 256}
        learned = sorted(merges, key=merges.get)
        for left, right in learned:
            spelled[merges[left, right]] = spelled[left] + spelled[right]
        numbers = {text: token for token, text in spelled.items()}
        assert len(numbers) == len(spelled)
        pairs = [(spelled[left], spelled[right]) for left, right in learned]
        found = Tokenizer(models.BPE(numbers, pairs)).encode("".join(map(chr, ids.tolist()))).ids
        assert rung.encode_word(ids, merges).tolist() == found


@pytest.mark.parametrize("seed", range(5))
def test_the_head_found_has_the_highest_score_of_induction(seed):
    for weights, ids in inputs("find_induction_head", seed):
        scores = head_scores(weights, followed_before(ids))
        found = rung.find_induction_head(weights, ids)
        assert scores[tuple(found)] == scores.max()
        assert scores.flatten().sort().values[-2] < 0.95 * scores.max()


# Texts


def test_what_the_insights_say_is_true():
    x = torch.randn(4, 6)
    x = x - x.mean(dim=-1, keepdim=True)
    assert "whose channels have mean 0 it equals LayerNorm" in EXERCISES["rms_norm"].insight
    torch.testing.assert_close(rung.rms_norm(x, x[0], 1e-5), F.layer_norm(x, (6,), x[0], None, 1e-5))

    assert "how far apart" in EXERCISES["rotate"].insight
    here, there = (rung.rotate(x, torch.arange(start, start + 4), 100.0) for start in (0, 1000))
    torch.testing.assert_close(here @ here.T, there @ there.T, atol=1e-3, rtol=0)

    assert "in place of n_head" in EXERCISES["grouped_attention"].insight
    sizes = []
    for n_kv_head in (3, 9):
        cache, k = Cache(), torch.randn(2, n_kv_head, 7, 4)
        cache.extend(nn.Identity(), k, k)
        cache.advance(7)
        sizes.append(cache.numel())
    assert 9 * sizes[0] == 3 * sizes[1]

    assert "49,000 merges" in EXERCISES["encode_word"].insight
    assert 48_500 < SMOLLM.vocab_size - 256 < 49_500
    for _, merges in inputs("encode_word"):
        assert all(part < token for pair, token in merges.items() for part in pair)


def test_the_cache_of_the_next_step_is_what_cat_gives():
    assert "The cache of the next step" in EXERCISES["attend_with_cache"].insight
    q, k, v, past_k, past_v, rotate = inputs("attend_with_cache")[-1]
    positions = torch.arange(past_k.shape[2], past_k.shape[2] + 4)
    first, rest = (([each[:, :, cut] for each in (q, k, v)]) for cut in (slice(0, 3), slice(3, 4)))
    kept = torch.cat([past_k, rotate(k, positions)[:, :, :3]], dim=2), torch.cat([past_v, first[2]], dim=2)
    whole = rung.attend_with_cache(q, k, v, past_k, past_v, rotate)
    torch.testing.assert_close(rung.attend_with_cache(*first, past_k, past_v, rotate), whole[:, :, :3])
    torch.testing.assert_close(rung.attend_with_cache(*rest, *kept, rotate), whole[:, :, 3:])


@pytest.mark.parametrize(
    ("positions", "says"),
    [(3, "positions is 3, expected a tensor"), (torch.tensor([3]), "and `x` has T = 2 tokens")],
)
@pytest.mark.usefixtures("shapes_unchecked")
def test_wrong_positions_are_told_what_is_expected(positions, says):
    def answer(q, k, v, past_k, past_v, rotate):
        return rotate(q, positions)

    x = torch.randn(2, 4)
    with pytest.raises((TypeError, ValueError), match=says):
        rung.Rotation(10.0)(x, positions)
    assert "rotate: positions" in check("attend_with_cache", answer, 0).message


@pytest.mark.parametrize(
    ("name", "answer", "function"),
    [
        ("rms_norm", lambda x, weight, eps: F.rms_norm(x, weight.shape, weight, eps), "rms_norm"),
        (
            "find_induction_head",
            lambda weights, ids: (
                rung.find_induction_head(weights, ids)
                + 0 * head_scores(weights, ids[:, None] == ids).sum().long()
            ),
            "head_scores",
        ),
    ],
)
def test_what_the_task_does_without_is_told_by_its_name(name, answer, function):
    verdict = check(name, answer, seed=0)
    assert (verdict.passed, verdict.headline) == (False, f"not yet: it calls {function}")
