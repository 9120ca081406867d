"""Every reference passes, every named mistake is rejected under its name, and no bad answer does harm."""

import html
import re
import threading
from itertools import combinations

import pytest
import torch

from attention_course.exercises import EXERCISES, Verdict, check, engine, hint, hints_given, solution

NAMES = list(EXERCISES)
MISTAKES = [
    pytest.param(e.name, m.name, m.function, id=f"{e.name}-{m.name}")
    for e in EXERCISES.values()
    for m in e.mistakes
]


def draw(exercise, seed):
    return exercise.draw_inputs(torch.Generator().manual_seed(seed))


def mean_of_past(x):
    out = torch.zeros_like(x)
    for t in range(x.shape[-2]):
        out[..., t, :] = x[..., : t + 1, :].mean(dim=-2)
    return out


@pytest.fixture(autouse=True)
def fresh_hints():
    hints_given.clear()


# The data


@pytest.mark.parametrize("name", NAMES)
def test_the_reference_passes_50_draws(name):
    for seed in range(50):
        verdict = check(name, EXERCISES[name].reference, seed)
        assert verdict.passed, f"seed {seed}: {verdict}"
        assert verdict.mistake is None
        assert "✗" not in verdict._repr_html_()


@pytest.mark.parametrize(("name", "mistake", "function"), MISTAKES)
def test_a_mistake_is_rejected_under_its_own_name(name, mistake, function):
    message = next(m.message for m in EXERCISES[name].mistakes if m.name == mistake)
    for seed in range(4):
        verdict = check(name, function, seed)
        assert (verdict.passed, verdict.mistake, verdict.message) == (False, mistake, message)
        assert "yours" in verdict._repr_html_()


@pytest.mark.parametrize("name", NAMES)
def test_no_two_mistakes_are_the_same_function(name):
    exercise = EXERCISES[name]
    inputs = draw(exercise, 0)
    did = [[engine.run(m.function, arguments) for arguments in inputs] for m in exercise.mistakes]
    for one, other in combinations(did, 2):
        assert not all(engine.same(a, b, exercise.tolerance) for a, b in zip(one, other, strict=True))
    names = [m.name for m in exercise.mistakes] + [p.mistake for p in exercise.properties if p.mistake]
    assert len(set(names)) == len(names)


def test_the_mistakes_of_the_syllabus_are_named():
    def named(*exercises):
        return {m.name for name in exercises for m in EXERCISES[name].mistakes}

    first, second, third = NAMES[:3], NAMES[3:6], NAMES[6:]
    assert named(*first) >= {
        *("leaves_itself_out", "whole_sequence", "averages_averages", "mean_over_channels"),
        *("mean_of_the_future", "sum"),
    }
    assert named(*second) >= {
        *("no_keepdim", "triu", "not_normalised", "diagonal_excluded", "tokens_first", "columns_normalised"),
    }
    assert named(*third) >= {
        *("wrong_dim", "mask_after_softmax", "zero_in_place_of_inf", "inverted_mask", "no_max_subtraction"),
        "no_keys_gives_nan",
    }


@pytest.mark.parametrize("name", NAMES)
def test_inputs_are_small_to_large_and_drawn_anew(name):
    exercise = EXERCISES[name]
    assert str(draw(exercise, 1)) == str(draw(exercise, 1))
    drawn = set()
    for _ in range(12):  # shift_matrix draws one small number: it may come twice
        seen = []
        check(name, lambda *arguments, seen=seen: seen.append(str(arguments)))
        drawn.add("".join(seen))
    assert len(drawn) > 1


@pytest.mark.parametrize("name", ["causal_mean_loop", "causal_mean_matmul", "causal_mean_softmax"])
def test_tokens_come_in_every_shape(name):
    inputs = [x for (x,) in draw(EXERCISES[name], 0)]
    assert inputs[0].shape[-2] == 1
    assert {x.dim() for x in inputs} == {2, 3}
    assert any(x.dim() == 3 and x.shape[0] == 1 for x in inputs)
    assert any(x.dim() == 3 and x.shape[0] > 1 and len(set(x.shape)) == 3 for x in inputs)
    assert any(x.shape[-1] == x.shape[-2] > 1 for x in inputs)
    assert max(float(x.abs().max()) for x in inputs) > 5e3


@pytest.mark.parametrize("name", NAMES)
def test_texts_are_there(name):
    exercise = EXERCISES[name]
    assert len(exercise.hints) >= 3
    assert 1 <= exercise.difficulty <= 5
    assert exercise.minutes > 0
    assert len(re.findall(r"[.?](?: |$)", exercise.insight)) in (1, 2)
    messages = [each.message for each in (*exercise.mistakes, *exercise.properties)]
    for text in (exercise.task, exercise.insight, *exercise.hints, *messages):
        assert not re.search(r"!|\b(simply|obviously|just)\b", text.replace("!=", "")), text
        assert text.count("`") % 2 == 0, text


# Slips as a learner writes them: the name that each has to get


def returns_in_the_loop(x, k=None):
    out = torch.zeros_like(x)
    for t in range(x.shape[-2]):
        out[..., t, :] = x[..., : t + 1, :].mean(dim=-2)
        return out


def sums_the_others(x):
    out = torch.zeros_like(x)
    for t in range(x.shape[-2]):
        out[..., t, :] = x[..., :t, :].sum(dim=-2) / (t + 1)
    return out


def starts_late(x, k):
    out = torch.zeros_like(x)
    for t in range(k - 1, x.shape[-2]):
        out[..., t, :] = x[..., t - k + 1 : t + 1, :].mean(dim=-2)
    return out


def exponential_average(x):
    out, state = torch.zeros_like(x), 0
    for t in range(x.shape[-2]):
        state = 0.5 * state + 0.5 * x[..., t, :]
        out[..., t, :] = state
    return out


def mean_of_weighted(x, total):
    out = torch.zeros_like(x)
    for t in range(x.shape[-2]):
        weights = 0.5 ** torch.arange(t, -1, -1)
        out[..., t, :] = (x[..., : t + 1, :] * (weights / total(weights))[:, None]).mean(dim=-2)
    return out


def normalised(weights):
    return weights / weights.sum(dim=-1, keepdim=True)


def band_of_distances(T, k):
    return normalised((torch.arange(T)[:, None] - torch.arange(T) < k).float())


def shift_by_loop(T):
    m = torch.zeros(T, T)
    for t in range(T):
        m[t, t - 1] = 1
    return m


def fill_not_kept(x):
    scores = torch.zeros(x.shape[-2], x.shape[-2])
    scores.masked_fill(torch.ones_like(scores).triu(1) == 1, float("-inf"))
    return scores.softmax(dim=-1) @ x


def fills_from_the_second_diagonal(x):
    scores = torch.zeros(x.shape[-2], x.shape[-2])
    return scores.masked_fill(torch.ones_like(scores).triu(2) == 1, float("-inf")).softmax(dim=-1) @ x


def real(size, lengths):
    return torch.arange(size) < lengths[:, None]


def padding_fill_not_kept(scores, lengths):
    scores.masked_fill(~real(scores.shape[-1], lengths)[:, None], float("-inf"))
    return scores.softmax(dim=-1)


def divides_what_is_left(scores, lengths, smallest=0.0):
    weights = scores.softmax(dim=-1) * real(scores.shape[-1], lengths)[:, None]
    return weights / weights.sum(dim=-1, keepdim=True).clamp(min=smallest)


def masks_both_ways(scores, lengths):
    mask = real(scores.shape[-1], lengths)[:, None] & real(scores.shape[-2], lengths)[:, :, None]
    return scores.masked_fill(~mask, float("-inf")).softmax(dim=-1).masked_fill(~mask, 0)


def tril(T):
    return torch.ones(T, T).tril()


@pytest.mark.parametrize(
    ("name", "answer", "mistake"),
    [
        ("causal_mean_loop", returns_in_the_loop, "returns_in_the_loop"),
        ("windowed_mean", returns_in_the_loop, "returns_in_the_loop"),
        ("forgetting_mean", returns_in_the_loop, "returns_in_the_loop"),
        ("causal_mean_loop", sums_the_others, "leaves_itself_out_of_the_sum"),
        ("windowed_mean", starts_late, "first_rows_left_at_zero"),
        ("forgetting_mean", exponential_average, "average_starts_from_zero"),
        ("forgetting_mean", lambda x: mean_of_weighted(x, lambda w: 1), "divides_by_the_count"),
        ("forgetting_mean", lambda x: mean_of_weighted(x, torch.sum), "divides_twice"),
        ("causal_mean_matmul", lambda x: (w := tril(x.shape[-2])) / w.sum() @ x, "one_sum_for_all"),
        ("causal_mean_matmul", fills_from_the_second_diagonal, "one_step_ahead"),
        ("band_matrix", band_of_distances, "all_later_tokens"),
        ("band_matrix", lambda T, k: normalised(tril(T) - tril(T).tril(-k - 1)), "band_one_too_wide"),
        ("band_matrix", lambda T, k: (b := tril(T).triu(1 - k)) / b.sum(), "one_sum_for_all"),
        ("shift_matrix", shift_by_loop, "wraps_around"),
        ("causal_mean_softmax", fill_not_kept, "zero_in_place_of_inf"),
        ("causal_mean_softmax", fills_from_the_second_diagonal, "one_step_ahead"),
        (
            "stable_softmax",
            lambda x: (e := (x - x.amax(-1, keepdim=True)).exp()) / e.sum(),
            "one_sum_for_all",
        ),
        ("padding_weights", padding_fill_not_kept, "ignores_the_lengths"),
        ("padding_weights", divides_what_is_left, "renormalised_by_hand_with_nan"),
        ("padding_weights", lambda s, n: divides_what_is_left(s, n, 1e-12), "renormalised_by_hand"),
        ("padding_weights", masks_both_ways, "hides_queries_too"),
    ],
)
def test_a_slip_gets_its_name(name, answer, mistake):
    for seed in range(3):
        assert check(name, answer, seed).mistake == mistake


# Gradients

TRAINED = [
    *("attention_weights", "head_forward", "scaled_weights", "cross_attention_forward", "split_heads"),
    *("merge_heads", "multi_head_forward", "cross_entropy_loss", "embed", "pre_norm_block"),
]


def without_gradients(answer):
    def cut(*arguments):
        with torch.no_grad():
            return answer(*arguments)

    return cut


def without_the_gradient_of(number, answer):
    def cut(*arguments):
        return answer(*(a.data if i == number else a for i, a in enumerate(arguments)))

    return cut


@pytest.mark.parametrize("name", TRAINED)
def test_an_answer_that_cuts_off_gradients_is_told_so(name):
    reference = EXERCISES[name].reference
    floats = [
        i for i, a in enumerate(draw(EXERCISES[name], 0)[0]) if torch.is_tensor(a) and a.is_floating_point()
    ]
    for answer in (
        lambda *arguments: reference(*arguments).detach(),
        without_gradients(reference),
        *(without_the_gradient_of(number, reference) for number in floats),
    ):
        verdict = check(name, answer, 0)
        assert (verdict.passed, verdict.mistake, verdict.headline) == (False, "detached", "not yet: detached")
        assert "training changes parameters by" in verdict.message
        assert verdict._repr_html_().count("✗ fails") == 1


@pytest.mark.parametrize("part", range(1, 5))
def test_a_block_that_detaches_a_part_is_told_so(part):
    def block(*arguments):
        x, *parts = arguments
        parts[part - 1] = without_gradients(parts[part - 1])
        return EXERCISES["pre_norm_block"].reference(x, *parts)

    assert check("pre_norm_block", block, 0).mistake == "detached"


def test_where_nothing_is_trained_through_an_answer_may_detach():
    for name in set(NAMES) - set(TRAINED):
        assert check(name, without_gradients(EXERCISES[name].reference), 0).passed


@pytest.mark.parametrize("name", ["cross_attention_forward", "multi_head_forward"])
def test_only_nan_is_called_nan(name):
    def answer(*arguments):
        mask = arguments[-1]
        assert mask is None or mask.any(-1).all()
        return EXERCISES[name].reference(*arguments)

    verdict = check(name, answer, 0)
    assert (verdict.mistake, verdict.headline) == (None, "not yet: a property fails")


# Not tried yet


@pytest.mark.parametrize("name", NAMES)
def test_an_empty_stub_is_not_tried_yet(name):
    def raises(*arguments):
        raise NotImplementedError("your turn")

    def returns_none(*arguments):
        pass

    verdicts = [check(name, stub) for stub in (raises, returns_none, lambda *_: ..., None, ...)]
    for verdict in verdicts:
        assert not verdict.passed
        assert verdict.mistake is None
        assert repr(verdict).startswith(f"{name}: not tried yet\n")
    assert len({verdict._repr_html_() for verdict in verdicts}) == 1


@pytest.mark.parametrize("name", NAMES)
def test_who_must_not_detach_is_told_before_trying(name):
    assert ("without `.detach()` or `torch.no_grad()`" in check(name, None).message) == (name in TRAINED)


def test_stubs_of_every_form_are_not_tried_yet():
    def documented(x):
        """Average the past."""

    def documented_and_passed(x):
        """Average the past."""
        pass
        ...

    def returned(x):
        return None  # your turn

    text = repr(check("causal_mean_loop", None))
    assert "None. Is" not in text
    assert {repr(check("causal_mean_loop", f)) for f in (documented, documented_and_passed, returned)} == {
        text
    }


def test_a_body_without_return_is_told_so():
    def assigns(x):
        out = mean_of_past(x)  # noqa: F841

    def loops(x):
        out = torch.zeros_like(x)
        for t in range(x.shape[-2]):
            out[..., t, :] = x[..., : t + 1, :].mean(dim=-2)

    def names_nothing(x):
        _ = x @ x

    for answer in (assigns, loops, lambda x: print(end="")):
        verdict = bad(answer)
        assert verdict.headline == "not tried yet"
        assert verdict.message == "Your function returned None. Is the `return` missing?"
    assert engine.has_body(names_nothing)


def test_what_pytorch_has_not_implemented_is_an_error_like_others():
    def softmax_of_booleans(x):
        mask = torch.ones(x.shape[-2], x.shape[-2]).tril().bool()
        return torch.softmax(mask, dim=-1) @ x

    verdict = bad(softmax_of_booleans)
    assert verdict.headline == "not yet: it raises an error"
    assert "not implemented for 'Bool'" in verdict.message


def test_where_gradients_are_off_a_right_answer_still_passes():
    with torch.no_grad():
        for name in TRAINED:
            assert check(name, EXERCISES[name].reference, 0).passed


def test_a_body_that_still_raises_not_implemented_is_not_tried_yet():
    def unfinished(x):
        mean_of_past(x)
        raise NotImplementedError

    assert repr(check("causal_mean_loop", unfinished)) == repr(check("causal_mean_loop", None))


# Right answers


def by_cumsum(x):
    count = torch.arange(1, x.shape[-2] + 1)
    return x.cumsum(dim=-2) / count[:, None]


def by_einsum(x):
    weights = torch.ones(x.shape[-2], x.shape[-2]).tril()
    return torch.einsum("ts,...sc->...tc", weights / weights.sum(-1, keepdim=True), x)


def by_where(x):
    T = x.shape[-2]
    past = torch.arange(T) <= torch.arange(T)[:, None]
    return torch.where(past, 0.0, float("-inf")).softmax(-1) @ x


def by_float64(x):
    return mean_of_past(x.double()).to(x.dtype)


def by_vmap(x):
    past = torch.ones(x.shape[-2], x.shape[-2]).tril()
    return torch.vmap(lambda row: (row[:, None] * x).sum(-2) / row.sum(), out_dims=-2)(past)


def in_place_on_a_copy(x):
    x = x.clone()
    for t in reversed(range(x.shape[-2])):
        x[..., t, :] = x[..., : t + 1, :].mean(dim=-2)
    return x


def with_gradient(x):
    return mean_of_past(x) * torch.ones((), requires_grad=True)


@pytest.mark.parametrize("name", ["causal_mean_loop", "causal_mean_matmul", "causal_mean_softmax"])
@pytest.mark.parametrize(
    "answer",
    [by_cumsum, by_einsum, by_where, by_float64, by_vmap, in_place_on_a_copy, with_gradient],
)
def test_right_answers_in_other_styles_pass(name, answer):
    for seed in range(3):
        verdict = check(name, answer, seed)
        assert verdict.passed, verdict
        assert repr(verdict) == f"{name}: passed on 9 inputs"


def window_by_cumsum(x, k):
    total = torch.cat([torch.zeros_like(x[..., :1, :]), x], dim=-2).double().cumsum(-2)
    end = torch.arange(1, x.shape[-2] + 1)
    start = (end - k).clamp(min=0)
    return ((total[..., end, :] - total[..., start, :]) / (end - start)[:, None]).to(x.dtype)


def forgetting_by_recursion(x):
    rows, total, weight = [], torch.zeros_like(x[..., 0, :]), 0.0
    for token in x.unbind(-2):
        total, weight = total / 2 + token, weight / 2 + 1
        rows.append(total / weight)
    return torch.stack(rows, dim=-2)


def band_by_distance(T, k):
    back = torch.arange(T)[:, None] - torch.arange(T)
    return torch.where((back >= 0) & (back < k), 0.0, float("-inf")).softmax(dim=1)


def padded_by_loop(scores, lengths):
    weights = torch.zeros_like(scores)
    for b, n in enumerate(lengths.tolist()):
        if n:
            weights[b, :, :n] = scores[b, :, :n].softmax(dim=-1)
    return weights


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("windowed_mean", window_by_cumsum),
        ("forgetting_mean", forgetting_by_recursion),
        ("band_matrix", band_by_distance),
        ("band_matrix", lambda T, k: (b := torch.ones(T, T).tril().triu(1 - k)) / b.sum(1)[:, None]),
        ("shift_matrix", lambda T: torch.diag(torch.ones(T - 1), -1)),
        ("shift_matrix", lambda T: torch.nn.functional.pad(torch.eye(T), (0, 0, 1, 0))[:T]),
        ("stable_softmax", lambda x: (x - x.logsumexp(-1, keepdim=True)).exp()),
        ("stable_softmax", torch.nn.Softmax(dim=-1)),
        ("padding_weights", padded_by_loop),
    ],
)
def test_other_exercises_take_other_styles_too(name, answer):
    for seed in range(10):
        verdict = check(name, answer, seed)
        assert verdict.passed, verdict


@pytest.mark.parametrize("name", NAMES)
def test_who_has_passed_gets_an_insight(name):
    exercise = EXERCISES[name]
    verdict = check(name, exercise.reference, 0)
    assert verdict.message.startswith("Your values equal the target on all ")
    assert verdict.message.endswith(f" drawn anew for this check. {exercise.insight}")
    assert engine.panel.prose(verdict.message) in verdict._repr_html_()
    assert exercise.insight not in repr(check(name, exercise.mistakes[0].function, 0))


def test_what_the_insights_say_is_true():
    def large_negative(x):
        T = x.shape[-2]
        return torch.zeros(T, T).masked_fill(torch.ones(T, T).triu(1) == 1, -1e9).softmax(-1) @ x

    assert "-1e9" in EXERCISES["causal_mean_softmax"].insight
    assert check("causal_mean_softmax", large_negative).passed
    assert "zeros" in EXERCISES["padding_weights"].insight
    q, hidden = torch.ones(1, 2, 3), torch.zeros(1, 2, 2, dtype=torch.bool)
    assert not torch.nn.functional.scaled_dot_product_attention(q, q, q, attn_mask=hidden).any()
    assert "k = T" in EXERCISES["windowed_mean"].insight
    x, windowed = torch.randn(4, 3), EXERCISES["windowed_mean"].reference
    torch.testing.assert_close(windowed(x, 1), x)
    torch.testing.assert_close(windowed(x, 4), mean_of_past(x))
    torch.testing.assert_close(windowed(x, 9), mean_of_past(x))
    assert "identity" in EXERCISES["band_matrix"].insight
    band = EXERCISES["band_matrix"].reference
    assert torch.equal(band(4, 1), torch.eye(4))
    assert torch.equal(band(4, 4) > 0, torch.ones(4, 4).tril() > 0)


def test_the_callers_grad_mode_and_random_state_do_not_matter():
    def uses_grad(x):
        assert torch.is_grad_enabled()
        return mean_of_past(x)

    before = torch.get_rng_state()
    with torch.no_grad():
        assert check("causal_mean_loop", uses_grad).passed
    assert torch.equal(before, torch.get_rng_state())


# Bad answers


def bad(answer, name="causal_mean_loop", **arguments) -> Verdict:
    verdict = check(name, answer, **arguments)
    assert not verdict.passed
    assert verdict.mistake is None
    assert isinstance(verdict._repr_html_(), str)
    return verdict


def test_an_answer_that_raises():
    def raises(x):
        if x.dim() == 3:
            return x @ torch.ones(77, 77)  # the line to find
        return mean_of_past(x)

    verdict = bad(raises)
    assert verdict.headline == "not yet: it raises an error"
    assert "RuntimeError" in verdict.message
    assert "`return x @ torch.ones(77, 77)  # the line to find`" in verdict.message
    assert "`x` of shape (1, 3, 2)" in verdict.message


@pytest.mark.parametrize(
    "error", [SystemExit, KeyboardInterrupt, RecursionError, GeneratorExit, StopIteration]
)
def test_no_error_of_an_answer_gets_out(error):
    def raises(x):
        raise error("oh")

    assert f"raised {error.__name__}: oh." in bad(raises).message


def test_endless_recursion():
    def again(x):
        return again(x)

    assert "RecursionError" in bad(again).message


def test_wrong_number_of_arguments():
    assert "TypeError" in bad(lambda: None).message


@pytest.mark.parametrize(
    "body",
    ["while True: pass", "while True:\n  try: y = x + 1\n  except Exception: pass"],
)
def test_an_answer_that_hangs_is_stopped(monkeypatch, body):
    monkeypatch.setattr(engine, "TIME_LIMIT", 0.2)
    code = "def hangs(x):\n  calls.append(x)\n" + "\n".join("  " + line for line in body.split("\n"))
    scope = {"calls": []}
    exec(code, scope)
    verdict = bad(scope["hangs"])
    assert len(scope["calls"]) == 1  # one wait, not one for each input
    assert verdict.headline == "not yet: it does not end"
    assert "still running after 0.2 seconds, for `x` of shape (1, 2)" in verdict.message
    assert "It was stopped" in verdict.message
    assert not [t for t in threading.enumerate() if t.name == "answer"]


def test_the_line_of_the_loop_is_shown(monkeypatch):
    monkeypatch.setattr(engine, "TIME_LIMIT", 0.2)

    def hangs(x):
        while x is not None:
            pass

    assert re.search(r"It happened in line \d+: `(while x is not None:|pass)`", bad(hangs).message)


def test_an_answer_that_cannot_be_stopped_says_so(monkeypatch):
    monkeypatch.setattr(engine, "TIME_LIMIT", 0.05)
    done = threading.Event()
    assert "Restart the kernel" in bad(lambda x: done.wait(30)).message
    done.set()
    for thread in threading.enumerate():
        if thread.name == "answer":
            thread.join(5)


def test_a_hang_on_later_inputs_only(monkeypatch):
    monkeypatch.setattr(engine, "TIME_LIMIT", 0.2)

    def hangs(x):
        while x.dim() == 3:
            pass
        return mean_of_past(x)

    assert "(1, 3, 2)" in bad(hangs).message


def test_each_call_in_a_property_has_a_limit_of_its_own(monkeypatch):
    limited, called = [], []
    usual = engine.run
    monkeypatch.setattr(engine, "run", lambda *given: (limited.append(1), usual(*given))[1])
    assert check("causal_mean_loop", lambda x: (called.append(1), mean_of_past(x))[1]).passed
    assert len(limited) == len(called) > 20


def test_a_hang_in_a_property_only(monkeypatch):
    monkeypatch.setattr(engine, "TIME_LIMIT", 0.2)
    calls = []

    def hangs(x):
        calls.append(1)
        while len(calls) > 9:
            pass
        return mean_of_past(x)

    assert "still running" in bad(hangs).message


def test_the_learners_own_interrupt_passes_through(monkeypatch):
    started = threading.Event()

    def hangs(x):
        started.set()
        while True:
            pass

    def interrupted(thread, timeout=None, join=threading.Thread.join):
        if timeout == engine.TIME_LIMIT:
            started.wait()
            raise KeyboardInterrupt
        join(thread, timeout)

    monkeypatch.setattr(threading.Thread, "join", interrupted)
    before = set(threading.enumerate())
    with pytest.raises(KeyboardInterrupt):
        check("causal_mean_loop", hangs)
    assert not set(threading.enumerate()) - before


@pytest.mark.parametrize(
    ("answer", "type_name"),
    [
        (lambda x: mean_of_past(x).tolist(), "list"),
        (lambda x: mean_of_past(x).numpy(), "ndarray"),
        (lambda x: mean_of_past(x).sum().item(), "float"),
        (lambda x: mean_of_past(x).to_sparse(), "torch.sparse_coo tensor"),
        (lambda x: mean_of_past(x).to("meta"), "torch.strided tensor on meta"),
    ],
)
def test_an_answer_of_the_wrong_type(answer, type_name):
    verdict = bad(answer)
    assert verdict.headline == "not yet: wrong type"
    assert f"returned a {type_name}" in verdict.message


def test_an_answer_that_returns_none_on_some_inputs():
    verdict = bad(lambda x: mean_of_past(x) if x.dim() == 2 else None)
    assert verdict.headline == "not yet: wrong type"
    assert "`return`" in verdict.message


@pytest.mark.parametrize(
    "answer",
    [
        lambda x: mean_of_past(x).mean(dim=-1),
        lambda x: mean_of_past(x)[None],
        lambda x: x.sum(),
        lambda x: mean_of_past(x)[..., :0],
    ],
)
def test_an_answer_of_the_wrong_shape(answer):
    verdict = bad(answer)
    assert verdict.headline == "not yet: wrong shape"
    assert "(1, 2)" in verdict.message


@pytest.mark.parametrize("dtype", [torch.float64, torch.complex64, torch.float16, torch.int64])
def test_an_answer_of_the_wrong_dtype(dtype):
    verdict = bad(lambda x: mean_of_past(x).to(dtype))
    assert verdict.headline == "not yet: wrong dtype"
    assert str(dtype) in verdict.message


@pytest.mark.parametrize(("dtype", "passes"), [(torch.float64, True), (torch.int64, False)])
def test_any_floating_dtype_will_do_where_none_was_given(dtype, passes):
    verdict = check("shift_matrix", lambda T: torch.diag(torch.ones(T - 1, dtype=dtype), -1))
    assert verdict.passed is passes
    assert passes or verdict.headline == "not yet: wrong dtype"


def test_an_answer_that_changes_its_input():
    def in_place(x):
        out = mean_of_past(x)
        x.zero_()
        return out

    verdict = bad(in_place)
    assert verdict.headline == "not yet: it changes its input"
    assert "`x`" in verdict.message


def test_an_answer_with_nan():
    verdict = bad(lambda x: mean_of_past(x).masked_fill(x > 1e4, float("nan")))
    assert verdict.headline == "not yet: NaN or inf"


def test_plain_wrong_values_say_which_properties_hold():
    verdict = bad(lambda x: x)
    assert verdict.headline == "not yet: wrong values"
    assert "of shape (3, 2)" in verdict.message
    assert "Compute the first value that differs by hand" in verdict.message
    page = verdict._repr_html_()
    assert "✓ holds" in page
    verdict = bad(lambda x: mean_of_past(x) * 2)
    assert "✗ fails" in verdict._repr_html_()


def weights_by_len(x):
    past = torch.ones(len(x), len(x)).tril()
    return past / past.sum(-1, keepdim=True) @ x


def rows_by_len(x):
    return torch.stack([x[..., : t + 1, :].mean(dim=-2) for t in range(min(len(x), x.shape[-2]))], dim=-2)


def three_sizes(x):
    _B, T, _C = x.shape
    return torch.stack([x[:, : t + 1].mean(dim=1) for t in range(T)], dim=1)


def nan_without_a_batch(x):
    return mean_of_past(x) * (1 if x.dim() == 3 else torch.nan)


ON_2D_ONLY = "It works for (T, C) and not for (B, T, C)"
ON_3D_ONLY = "It works for (B, T, C) and not for (T, C)"


@pytest.mark.parametrize(
    ("answer", "headline", "remark"),
    [
        (weights_by_len, "it raises an error", ON_2D_ONLY),
        (rows_by_len, "wrong shape", ON_2D_ONLY),
        (lambda x: mean_of_past(x) + x.dim() - 2, "wrong values", ON_2D_ONLY),
        (three_sizes, "it raises an error", ON_3D_ONLY),
        (lambda x: mean_of_past(x).reshape(-1, *x.shape[-2:]), "wrong shape", ON_3D_ONLY),
        (nan_without_a_batch, "NaN or inf", ON_3D_ONLY),
        (lambda x: mean_of_past(x) + 3 - x.dim(), "wrong values", ON_3D_ONLY),
    ],
)
def test_an_answer_that_works_with_or_without_a_batch_only(answer, headline, remark):
    for seed in range(3):
        verdict = bad(answer, "causal_mean_matmul", seed=seed)
        assert verdict.headline == f"not yet: {headline}"
        assert f". {remark}" in verdict.message or f"? {remark}" in verdict.message
        assert "`x.shape[-2]`" in verdict.message


def test_a_dim_counted_from_the_front_is_told_its_name_from_the_end():
    def softmax_along_dim_1(x):
        scores = torch.full_like(x @ x.mT, float("-inf")).triu(1)
        return scores.softmax(dim=1) @ x

    message = bad(softmax_along_dim_1, "causal_mean_softmax", seed=0).message
    assert ON_2D_ONLY in message
    assert "dim=-1 in place of dim=1" in message


def test_a_long_text_is_tried_without_taking_long():
    def powers_that_overflow(x):
        powers = 2.0 ** torch.arange(x.shape[-2])[:, None]
        return (powers * x).cumsum(dim=-2) / powers.cumsum(dim=-2)

    for seed in range(3):
        verdict = bad(powers_that_overflow, "forgetting_mean", seed=seed)
        assert "A text of 140 tokens" in verdict.message
    lengths = []
    check("forgetting_mean", lambda x: lengths.append(x.shape[-2]) or forgetting_by_recursion(x))
    assert sorted(set(lengths))[-2:] == [24, 140]
    assert lengths.count(140) == 1


def test_a_window_by_the_first_dim_is_told_of_the_batch():
    def by_first_dim(x, k):
        return torch.stack([x[max(0, t - k + 1) : t + 1].mean(dim=0) for t in range(len(x))])

    for seed in range(4):
        assert ON_2D_ONLY in bad(by_first_dim, "windowed_mean", seed=seed).message


@pytest.mark.parametrize(
    ("name", "answer"),
    [
        ("causal_mean_matmul", lambda x: x),
        ("causal_mean_matmul", lambda x: mean_of_past(x) + (x.shape[-1] == 5)),  # only one (T, C)
        ("causal_mean_matmul", lambda x: mean_of_past(x) + (x.dim() == 3 and len(x) == 2)),
        ("stable_softmax", lambda x: x.softmax(-1) + (x.dim() == 3)),
        ("padding_weights", lambda s, n: s),
        ("shift_matrix", lambda T: torch.ones(T, T) * 7),
    ],
)
def test_other_answers_are_not_told_of_the_batch(name, answer):
    assert "It works for" not in bad(answer, name, seed=0).message


def test_an_answer_that_knows_the_inputs_is_caught_by_a_property():
    torch.manual_seed(0)
    answers = {str(x): mean_of_past(x) for (x,) in draw(EXERCISES["causal_mean_loop"], 3)}
    verdict = bad(lambda x: answers.get(str(x), torch.zeros_like(x)), seed=3)
    assert verdict.headline == "not yet: a property fails"


def test_not_callable():
    with pytest.raises(TypeError, match="function itself, but got a Tensor"):
        check("causal_mean_loop", torch.ones(2, 2))


# The panel


class Nasty:
    def __repr__(self):
        return "<script>alert(1)</script>"


def test_html_is_escaped():
    def raises(x):
        raise ValueError("<img src=x onerror=alert(1)>")

    page = bad(raises)._repr_html_()
    assert "<img" not in page
    assert html.escape("<img src=x onerror=alert(1)>") in page
    page = bad(lambda x: Nasty())._repr_html_()
    assert "<script" not in page
    assert "&lt;script&gt;" in page


def test_differing_cells_are_framed_and_the_slice_is_named():
    def wrong_in_the_second_sequence(x):
        out = mean_of_past(x)
        if x.dim() == 3 and x.shape[0] > 1:
            out[1, -1, -1] += 1
        return out

    page = bad(wrong_in_the_second_sequence)._repr_html_()
    assert page.count("outline:2px") == 1
    assert "here yours[1]" in page
    assert "here target[1]" in page


def test_large_tensors_are_cut():
    page = engine.panel.table("x", torch.arange(4000.0).reshape(2, 20, 100), (1,))
    assert "here x[1], the first 9 rows and columns" in page
    assert page.count("<td") == 81


def test_panels_need_nothing_from_outside():
    verdicts = [check(n, m.function)._repr_html_() for n in NAMES for m in EXERCISES[n].mistakes[:1]]
    for page in (*verdicts, hint("shift_matrix")._repr_html_()):
        assert not re.search(r"<script|https?:|url\(|<link|<img", page)
        assert page.count("<div") == page.count("</div")


# Names, hints, solutions


@pytest.mark.parametrize("ask", [lambda n: check(n, None), hint, solution])
def test_an_unknown_name_lists_the_names(ask):
    with pytest.raises(ValueError, match="Did you mean 'causal_mean_loop'") as error:
        ask("causal_mean_lop")
    assert all(name in str(error.value) for name in NAMES)
    with pytest.raises(ValueError, match="There are: ") as error:
        ask("zzz")
    assert "Did you mean" not in str(error.value)


@pytest.mark.parametrize("name", NAMES)
def test_hints_come_in_order(name):
    hints = EXERCISES[name].hints
    for number, text in enumerate(hints, 1):
        given = hint(name)
        assert repr(given) == f"Hint {number} of {len(hints)}: {text}"
        assert f"Hint {number} of {len(hints)}" in given._repr_html_()
    for _ in range(2):
        assert repr(hint(name)).startswith("No more hints")
        assert f"solution('{name}')" in repr(hint(name))


@pytest.mark.parametrize("name", NAMES)
def test_a_solution_asks_before_it_shows(name):
    shown = solution(name)
    text = shown._repr_mimebundle_()["text/plain"]
    assert text == f"Solution of {name}: hidden until you press the button."
    assert "def " not in "".join(str(child.get_state().values()) for child in shown.children)
    shown.button.click()
    assert "<pre" in shown.source.value
    assert re.search(r"def \w+\(", shown.source.value)
    assert "return" in shown.source.value
    assert shown.button.layout.display == "none"
    assert shown._repr_mimebundle_()["text/plain"] == text


def test_the_solution_is_the_source_of_the_reference():
    shown = solution("stable_softmax")
    shown.button.click()
    assert html.escape("exp / exp.sum(dim=dim, keepdim=True)") in shown.source.value
