"""What went wrong is called by its name; what is right but forbidden or cut off from gradients is told so."""

import re

import pytest
import torch
from answers import bad, judged, mean_of_past

from attention_course.exercises import EXERCISES, judging
from attention_course.exercises.running import Submission

pytestmark = pytest.mark.slow

NAMES = list(EXERCISES)
TRAINED = [name for name, e in EXERCISES.items() if any(prop.mistake == "detached" for prop in e.properties)]
FROZEN = {"lora": 1, "kl_per_token": 1}  # the argument that needs no gradient


def test_two_mistakes_are_both_told():
    def sum_from_the_second_row(x):
        return torch.cat([torch.zeros_like(x[..., :1, :]), x.cumsum(dim=-2)[..., 1:, :]], dim=-2)

    verdict = judged("causal_mean_loop", sum_from_the_second_row, 0)
    assert verdict.mistakes == ("sum_instead_of_mean", "loop_starts_too_late")
    assert verdict.mistake == "sum_instead_of_mean"
    assert verdict.headline == "not yet: sum instead of mean, and loop starts too late"
    for mistake in EXERCISES["causal_mean_loop"].mistakes:
        assert (mistake.message in verdict.message) == (mistake.names[0] in verdict.mistakes)


def test_what_an_error_says_drives_no_terminal():
    def answer(x):
        raise ValueError("\x1b[31mred\x9b2J")

    assert not {"\x1b", "\x9b"} & {*repr(bad(answer))}


@pytest.mark.parametrize(("row", "name"), [(0, "row 0"), (-1, "the last row")])
def test_a_mistake_or_a_right_answer_is_recognized_but_for_a_row(row, name):
    def but_for_a_row(out):
        out[..., row, :] += 7
        return out

    verdict = judged("causal_mean_loop", lambda x: but_for_a_row(x.cumsum(dim=-2)), 0)
    assert verdict.mistakes == ("sum_instead_of_mean",)
    assert verdict.message.startswith(f"Except for {name}, your result is that of a known mistake. ")
    assert f"Everything is right except {name}." in bad(lambda x: but_for_a_row(mean_of_past(x))).message
    assert "is right except" not in bad(lambda x: mean_of_past(x) + 1).message


@pytest.mark.parametrize(
    ("name", "number"), [*((n, 0) for n in NAMES), *((NAMES[0], n) for n in (torch.nan, 2j))]
)
def test_an_answer_of_one_number_is_told_of_one_mistake_at_most(name, number):
    """Zeros fit many pairs of mistakes, and are evidence for none."""
    dtype = type(number) if number else None
    verdict = judged(
        name, lambda *given: torch.full_like(EXERCISES[name].reference(*given), number, dtype=dtype), 0
    )
    assert not verdict.passed
    assert len(verdict.mistakes) < 2
    assert not verdict.message.startswith("Except for")


@pytest.mark.parametrize("words", ["of its own", "the same"])
def test_an_error_is_that_of_a_mistake_only_with_its_words(words):
    mistake = next(
        m for m in EXERCISES["grouped_attention"].mistakes if m.names == ("copied_n_kv_head_times",)
    )

    def answer(*given):
        try:
            return mistake.function(*given)
        except RuntimeError as error:
            raise RuntimeError(words if words == "of its own" else str(error)) from None

    verdict = judged("grouped_attention", answer, 0)
    assert verdict.mistakes == (mistake.names if words == "the same" else ())


def test_an_answer_that_knows_the_inputs_is_caught_by_a_property():
    inputs = judging.trial(EXERCISES["causal_mean_loop"], 3).inputs
    known = {str(x): mean_of_past(x) for (x,) in inputs}
    verdict = bad(lambda x: known.get(str(x), torch.zeros_like(x)), seed=3)
    assert verdict.headline == "not yet: a property fails"


def sizes(arguments):
    """Return the shapes of tensors, and the numbers."""
    return tuple(
        a.shape if torch.is_tensor(a) else a for a in arguments if isinstance(a, torch.Tensor | int | float)
    )


@pytest.mark.parametrize("name", [name for name in NAMES if not EXERCISES[name].judge])
def test_an_answer_that_keeps_its_results_by_their_sizes_passes_only_where_there_is_nothing_else(name):
    reference, results = EXERCISES[name].reference, {}

    def keeps(*arguments):
        if sizes(arguments) not in results:
            results[sizes(arguments)] = reference(*arguments).detach()
        return results[sizes(arguments)].clone()

    inputs = judging.trial(EXERCISES[name], 0).inputs[-1]
    assert judged(name, keeps, 0).passed == all(isinstance(each, int | float) for each in inputs)


@pytest.mark.parametrize("only_the_last", [False, True])
@pytest.mark.parametrize("result", [False, True])
def test_what_is_kept_from_call_to_call_is_told(only_the_last, result):
    kept = {}

    def keeps(x, k):
        mean = EXERCISES["windowed_mean"].reference(x, k)
        if only_the_last and x.shape not in kept:
            kept.clear()
        mine = kept.setdefault(x.shape, mean)
        return mine if result else mine.copy_(mean)

    said = bad(keeps, "windowed_mean", seed=0).message
    assert result or "writes over" in said


def test_a_mask_that_is_kept_for_the_next_batch_is_told():
    kept = {}

    def keeps_mask(scores, lengths):
        hidden = torch.arange(scores.shape[-1]) >= lengths[:, None, None]
        hidden = kept.setdefault(scores.shape, hidden)
        return scores.masked_fill(hidden, -torch.inf).softmax(-1).masked_fill(hidden, 0.0)

    verdict = bad(keeps_mask, "padding_weights", seed=0)
    assert verdict.headline == "not yet: wrong when called again"
    assert "wrong for only some values? Or does it keep something between calls" in verdict.message


@pytest.mark.parametrize(
    "name",
    [
        *(
            "causal_mean_loop",
            "windowed_mean",
            "forgetting_mean",
            "causal_mean_matmul",
            "causal_mean_softmax",
        ),
        *("band_matrix", "shift_matrix", "padding_weights", "causal_mask", "padding_mask", "get_batch"),
        *("embed", "grouped_attention", "attend_with_cache", "learning_rate_schedule"),
    ],
)
def test_a_table_of_64_positions_is_too_short(name):
    def looks_up(*arguments):
        longest = max(max(each) if isinstance(each, torch.Size) else each for each in sizes(arguments))
        if longest > 64:
            raise IndexError
        return EXERCISES[name].reference(*arguments)

    assert not judged(name, looks_up, 0).passed


RANKS = {
    r"\(T, C\) or \(B, T, C\)": (2, 3),
    r"`[xq]` (of shape )?\(\.\.\., ": (2, 3, 4),
    "any shape": (1, 2, 3, 4),
}
PROMISED = [
    (name, rank)
    for name, exercise in EXERCISES.items()
    for words, ranks in RANKS.items()
    if re.search(words, exercise.task)
    for rank in ranks
]


@pytest.mark.parametrize(("name", "rank"), PROMISED)
def test_each_number_of_dimensions_that_a_task_promises_is_asked_for(name, rank):
    def all_but_one(x, *others):
        if x.dim() == rank:
            raise IndexError
        return EXERCISES[name].reference(x, *others)

    assert not judged(name, all_but_one, 0).passed


def test_a_mask_of_each_head_is_asked_for():
    def takes_it_for_one_of_each_text(q, k, mask):
        mask = mask[:, None] if q.dim() == 4 and mask.dim() == 3 else mask
        return EXERCISES["attention_weights"].reference(q, k, mask)

    assert not judged("attention_weights", takes_it_for_one_of_each_text, 0).passed


def test_values_of_another_width_are_asked_for():
    def averages_three_channels(blocks):
        return EXERCISES["online_softmax"].reference(blocks) + torch.zeros(3)

    assert not judged("online_softmax", averages_three_channels, 0).passed


def test_a_quotient_that_is_infinite_is_not_only_told_of_a_logarithm():
    def k3(logits, reference):
        ratio = reference.log_softmax(-1) - logits.log_softmax(-1)
        return (logits.softmax(-1) * (ratio.exp() - 1 - ratio)).sum(-1)

    verdict = judged("kl_per_token", k3, 0)
    assert verdict.mistakes == ("log_of_zero",)
    assert "1 divided by it is inf" in verdict.message


# Gradients


def without_gradients(answer):
    return torch.no_grad()(lambda *arguments: answer(*arguments))


def detaching(number, answer):
    return lambda *arguments: answer(*(a.data if i == number else a for i, a in enumerate(arguments)))


@pytest.mark.parametrize("name", TRAINED)
def test_an_answer_that_cuts_off_gradients_is_told_so(name):
    reference, inputs = EXERCISES[name].reference, judging.trial(EXERCISES[name], 0).inputs[0]
    floats = [i for i, a in enumerate(inputs) if torch.is_tensor(a) and a.is_floating_point()]
    floats = [i for i in floats if i != FROZEN.get(name)]
    cuts = [without_gradients(reference), *(detaching(number, reference) for number in floats)]
    if name == "pre_norm_block":
        cuts += [
            lambda x, *parts, n=n: reference(x, *parts[:n], without_gradients(parts[n]), *parts[n + 1 :])
            for n in range(4)
        ]
    for answer in (lambda *arguments: reference(*arguments).detach(), *cuts):
        verdict = judged(name, answer, 0)
        assert (verdict.passed, verdict.mistakes, verdict.headline) == (
            False,
            ("detached",),
            "not yet: detached",
        )
        assert verdict._repr_html_().count("✗ fails") == 1


@pytest.mark.usefixtures("shapes_unchecked")  # a wrapper is a call of another function of that name
@pytest.mark.parametrize("name", NAMES)
def test_gradients_matter_only_where_something_is_trained_through_an_answer(name):
    """Also where the caller has turned them off."""
    reference = EXERCISES[name].reference
    with torch.no_grad():
        assert judged(name, reference if name in TRAINED else without_gradients(reference), 0).passed


# Not tried yet


@pytest.mark.parametrize("name", NAMES)
def test_a_stub_of_any_form_is_not_tried_yet(name):
    def raises(*arguments):
        raise NotImplementedError("your turn")

    def documented(*arguments):
        """Average the past."""
        pass
        ...

    def returned(*arguments):
        return None  # your turn

    def unfinished(*arguments):
        mean_of_past(torch.ones(1, 1))
        raise NotImplementedError

    verdicts = [
        judged(name, stub) for stub in (raises, documented, returned, unfinished, lambda *_: ..., None, ...)
    ]
    assert not any(
        (verdict.tried, verdict.passed, verdict.mistakes) != (False, False, ()) for verdict in verdicts
    )
    assert len({verdict._repr_html_() for verdict in verdicts}) == 1
    assert verdicts[0].headline == "not tried yet"


def test_a_body_without_return_is_told_so():
    def assigns(x):
        out = mean_of_past(x)  # noqa: F841

    for answer in (assigns, lambda x: print(end="")):
        verdict = bad(answer)
        assert verdict.headline == "not tried yet"
        assert verdict.message == "Your function returned None. Is the `return` missing?"

    def names_nothing(x):
        _ = x @ x

    assert judging.has_body(Submission(names_nothing))


def test_what_pytorch_has_not_implemented_is_an_error_like_others():
    verdict = bad(lambda x: torch.softmax(torch.ones(x.shape[-2], x.shape[-2]).bool(), dim=-1) @ x)
    assert verdict.headline == "not yet: it raises an error"
    assert "not implemented for 'Bool'" in verdict.message
