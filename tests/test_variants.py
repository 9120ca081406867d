"""Whatever numbers a question is drawn with, its answer is right, and so is what is said of each choice."""

import itertools
import math
import re

import pytest
import torch

from attention_course.attention import attention, window_mask
from attention_course.ladder import RUNGS
from attention_course.speedrun import newton_schulz
from attention_course.variants import variants

TEMPLATES = {name: list(rung.variants(name)) for rung in RUNGS for name in rung.templates}
DRAWN = [(name, each) for name, made in TEMPLATES.items() for each in made]
each_drawn = pytest.mark.parametrize(("name", "entry"), DRAWN, ids=[name for name, _ in DRAWN])

WORDS = [
    "zero",
    "one",
    "two",
    "three",
    "four",
    "five",
    "six",
    "seven",
    "eight",
    "nine",
    "ten",
    "eleven",
    "twelve",
]
VOWELS = set("aeiou")


def numbers(text: str) -> list[float]:
    """All numbers of a text, in digits or in words, in their order."""
    text = text.replace("−", "-").replace(",", ", ").replace("½", "0.5")
    text = re.sub(r"(\d), (\d{3})(?!\d)", r"\1\2", text)
    found = re.findall(r"(?<![\w.])-?\d+(?:\.\d+)?|" + "|".join(rf"\b{word}\b" for word in WORDS), text, re.I)
    return [float(WORDS.index(each.lower())) if each.lower() in WORDS else float(each) for each in found]


def pairs(text: str) -> list[torch.Tensor]:
    return [torch.tensor(numbers(each)) for each in re.findall(r"\(([−\d., ]+)\)", text)]


def shown(tensor: torch.Tensor) -> str:
    return f"({', '.join(f'{number:g}' for number in tensor.tolist())})"


def where_are_the(question: str) -> str:
    one, two, three, total = map(float, re.findall(r"0\.\d+", question))
    steps = {"One step": one, "Two steps": two, "Three steps": three}
    (found,) = [
        f"{first} back and {second.lower()} back"
        for (first, a), (second, b) in itertools.combinations(steps.items(), 2)
        if round(a + b, 2) == total
    ]
    return found


def learning_at_rank(n_out: float, n_in: float, rank: float) -> float:
    return torch.zeros(int(n_out), int(rank)).numel() + torch.zeros(int(rank), int(n_in)).numel()


def matrix(question: str) -> str:
    numbers_of_column = re.search(r"holds ([\d ]+) from top", question)[1].split()
    column = torch.arange(len(numbers_of_column))[:, None]
    result = column - column.T if "`column - position`" in question else column.T - column
    return "The matrix with rows " + ", then ".join(" ".join(map(str, row)) for row in result.tolist())


def moved(question: str) -> str:
    distance = int(numbers(question.partition("wherever")[2])[0])
    letters = "abcdefghij"
    text = torch.eye(10)
    weights = torch.tensor([[float(t - s == distance) for s in range(10)] for t in range(10)])
    at_five = letters[int((weights @ text)[5].argmax())]
    steps = letters.index(at_five) - 5
    place = {1: "", 2: "two places ", 3: "three places "}[abs(steps)]
    return f"Each position gets a copy of the letter {place}{'before' if steps < 0 else 'after'} it"


def last_vowel(question: str) -> str:
    word = re.search(r"`(\w+)`", question)[1]
    position = int(re.search(r"does position (\d)", question)[1])
    at = max(i for i in range(position + 1) if word[i] in VOWELS)
    return f"{word[at]}, at position {at}"


def row_of_w(question: str) -> str:
    position = int(re.search(r"at position (\d)", question)[1])
    letter = re.search(r"the (\w) at", question)[1]
    assert "potato"[position] == letter
    x = torch.zeros(10)
    x[["pota".index(letter), 4 + position]] = 1
    first, second = x.nonzero().flatten().tolist()
    assert torch.equal(x @ torch.eye(10), x)
    return f"Row {first} of W plus row {second}"


def previous(question: str) -> str:
    found, own, position = re.search(r"found the (\w) for the (\w) at position (\d)", question).groups()
    assert "potato"[int(position)] == own
    assert "potato"[int(position) - 1] == found
    return f"That {'an' if found in VOWELS else 'a'} {found} came before it, and nothing else"


def reach(question: str) -> str:
    window = int(re.search(r"window of (\d)", question)[1])
    seen = window_mask(40, window).float()
    inputs = int((seen @ seen)[-1].count_nonzero())
    return f"{inputs}, its own and the {inputs - 1} before it"


def shapes(question: str) -> str:
    (T, C), (_, d), (_, v) = pairs(question)
    x = torch.zeros(int(T), int(C))
    output, _ = attention(
        x @ torch.zeros(int(C), int(d)), x @ torch.zeros(int(C), int(d)), torch.zeros(int(T), int(v))
    )
    return str(tuple(output.shape))


def cross(question: str) -> str:
    (q, _), (k, _) = pairs(question)
    d, v = numbers(question)[-2:]
    output, weights = attention(
        torch.zeros(int(q), int(d)), torch.zeros(int(k), int(d)), torch.zeros(int(k), int(v))
    )
    return f"Weights {tuple(weights.shape)}, output {tuple(output.shape)}"


def of_a_head(question: str) -> str:
    (shape,) = pairs(question)
    B, T, _ = map(int, shape)
    x = torch.zeros(B, T, int(numbers(question)[0]))
    return str(tuple(attention(x, x, x)[1].shape))


def group(question: str) -> str:
    n_head, n_key = map(int, numbers(question)[:2])
    head = int(re.search(r"does head (\d+)", question)[1])
    of = torch.arange(n_key).repeat_interleave(n_head // n_key)
    others = [i for i in range(n_head) if of[i] == of[head] and i != head]
    return f"Set {of[head]}, with heads {', '.join(map(str, others[:-1]))} and {others[-1]}"


def merge(question: str) -> str:
    question = question.replace("`", "")
    ranks = {pair: int(rank) for rank, pair in re.findall(r"(\d) for (\w+ \w+)", question)}
    characters = re.search(r"in characters ([\w ]+)\.", question)[1].split()
    assert "".join(characters) in question
    found = [" ".join(pair) for pair in itertools.pairwise(characters)]
    first = min((pair for pair in found if pair in ranks), key=ranks.__getitem__)
    return f"{first}, because its rank is the lowest"


def diagonals(question: str) -> str:
    layers = int(numbers(question.partition("model has")[2])[0])
    sees = (~torch.ones(20, 20, dtype=torch.bool).triu(2)).float()
    reached = torch.linalg.matrix_power(sees, layers).count_nonzero(dim=1)
    return f"The lower triangle, and {WORDS[int(reached[0]) - 1]} diagonals above it"


def rms(question: str) -> str:
    x = torch.tensor(numbers(question)[:4])
    assert torch.nn.functional.rms_norm(x, (4,)).allclose(x / 5, atol=1e-4)
    return ", ".join(f"{number:g}" for number in (x / 5).double().mul(1000).round().div(1000).tolist())


def questions_in(question: str) -> str:
    cut = int(re.search(r"We cut (\d+)", question)[1])
    beginnings = [range(cut)[:length] for length in range(1, cut)]  # each has a character that follows it
    return str(len(beginnings))


def last_block(question: str) -> str:
    block, written = map(int, numbers(question)[:2])
    kept = torch.arange(written)[-block:]
    return f"At the last {block}, characters {kept[0]} to {kept[-1]} (counting from 0)"


def swapped(question: str) -> str:
    first, second, T = map(int, numbers(question)[:3])
    x = torch.randn(T, 2, generator=torch.Generator().manual_seed(0), dtype=torch.double)
    other = x.clone()
    other[[first, second]] = x[[second, first]]
    sums = [each.cumsum(0) for each in (x, other)]
    (changed,) = (~torch.isclose(*sums).all(1)).nonzero().flatten().tolist()
    return f"Output {changed} only"


def after_muon(question: str) -> str:
    singular = torch.tensor(numbers(question)[:3])
    matrix = torch.diag(singular)
    lifted = torch.linalg.svdvals(newton_schulz(matrix))
    assert lifted.min() > 0.5
    assert lifted.max() < 1.3
    return "All about 1"


def size_of_scores(question: str) -> str:
    T = int(numbers(question)[0])
    return f"About {4 * T**2 / 1e6:.0f} MB"


def largest(question: str) -> str:
    T, head_size, block, _ = map(int, numbers(question))
    sizes = {f"{T:,} × {head_size}": T * head_size, f"{block} × {block}": block**2}
    return f"The output, {max(sizes, key=sizes.__getitem__)}"


def times(question: str) -> str:
    by = int(re.search(r"is (\d) higher", question)[1])
    ratio = torch.softmax(torch.tensor([by + 0.7, 0.7]), 0)
    name = {1: "e", 2: "e²", 3: "e³"}[by]
    return f"{name} times as much, about {ratio[0] / ratio[1]:.2f}, whatever"


def fall(question: str) -> str:
    by = int(re.search(r"grows by (\d)", question)[1])
    logits = torch.tensor([-12.0, 0.0])
    before, after = (-torch.log_softmax(each, 0)[0] for each in (logits, logits + torch.tensor([by, 0.0])))
    return f"It falls by about {before - after:.0f}"


def half_more(question: str) -> float:
    V = int(numbers(question)[0])
    return math.log(V) + 0.5


RIGHT = {  # the question, and how its right answer begins
    "loss_of_a_guess": lambda q: f"ln {int(numbers(q)[0])}, about {math.log(numbers(q)[0]):.1f}",
    "mean_at_one": lambda q: shown(torch.stack(pairs(q)[:2]).mean(0)),
    "swap_two_tokens": swapped,
    "row_of_tril": lambda q: shown((torch.ones(3, 3).tril() @ torch.stack(pairs(q)[:3]))[1]),
    "column_minus_row": matrix,
    "what_broadcasting_does": lambda q: (
        f"It uses the same weights for each of the {int(pairs(q)[1][0])} sequences, and gives shape "
        f"{tuple((torch.zeros(*pairs(q)[0].int()) @ torch.zeros(*pairs(q)[1].int())).shape)}"
    ),
    "ones_at_distance_1": moved,
    "where_are_the_o": where_are_the,
    "one_higher": times,
    "add_a_constant": lambda q: "They don't change",
    "one_hot_times_a_matrix": row_of_w,
    "replaced_by_the_output": previous,
    "what_poor_should_ask": lambda q: "Which word came right after “poor”?",
    "shape_of_the_output": shapes,
    "shape_of_the_weights": of_a_head,
    "what_the_second_t_finds": last_vowel,
    "variance_of_a_score": lambda q: f"{int(numbers(q)[-1])}",
    "ten_times_the_scores": lambda q: "Nearly all the weight goes to the largest score",
    "wide_queries": lambda q: f"{numbers(q)[0] ** 2:g}",
    "loss_of_random_logits": lambda q: f"{half_more(q):.2f}, higher by half the variance",
    "confident_and_wrong": fall,
    "two_windows": reach,
    "shape_of_cross_weights": cross,
    "other_channels": lambda q: f"W_key and W_value get {int(numbers(q)[0])} rows",
    "shuffle_the_context": lambda q: "Nothing",
    "one_new_token": lambda q: "Key 0 only",
    "two_cards_one_softmax": lambda q: f"{sum(numbers(q)[:2]) / 2:g}, and nothing",
    "width_of_the_wrapper": lambda q: (
        f"({int(numbers(q)[0])}, {int(numbers(q)[2] * numbers(q.partition('values of')[2])[0])})"
    ),
    "how_many_parameters": lambda q: "It stays the same",
    "pairs_in_a_block": questions_in,
    "loss_before_training": lambda q: f"About {half_more(q):.2g}, so a bit above",
    "crop": last_block,
    "rms_of_a_row": rms,
    "which_key_head": group,
    "both_move_together": lambda q: "It stays the same",
    "which_merge_first": merge,
    "where_to_look_for_the_answer": lambda q: "At “" + re.search(r"poor (\w+)", q)[1] + "”",
    "fewer_steps": lambda q: "You can't tell without the seconds per step",
    "after_newton_schulz": after_muon,
    "how_many_at_rank_1": lambda q: f"{learning_at_rank(*numbers(q)[:3]):,.0f}",
    "a_group_that_is_all_wrong": lambda q: "Nothing, because every advantage is 0",
    "size_of_the_table": size_of_scores,
    "largest_tensor": largest,
    "reading_and_writing": lambda q: "Writing",
    "mask_off_by_one": diagonals,
}


def test_at_least_forty_questions_can_be_drawn_anew_and_each_with_several_numbers():
    assert len(TEMPLATES) >= 40
    assert RIGHT.keys() == TEMPLATES.keys()
    for name, made in TEMPLATES.items():
        assert len({entry["question"] for entry in made}) == len(made) >= 4, name


@each_drawn
def test_the_right_choice_is_right(name, entry):
    (right,) = [choice["text"] for choice in entry["choices"] if choice.get("right")]
    wanted = RIGHT[name](entry["question"]).replace("-", "−")
    assert right.startswith(wanted)
    assert not [each for each in entry["choices"] if each["text"] == wanted and not each.get("right")]


@each_drawn
def test_the_choices_differ_and_each_is_explained(name, entry):
    texts = [choice["text"] for choice in entry["choices"]]
    explanations = [choice["explanation"] for choice in entry["choices"]]
    assert len(set(texts)) == len(texts) >= 3
    assert len(set(explanations)) == len(explanations)
    for text in (entry["question"], *texts, *explanations):
        assert text.strip()
        assert not re.search(r"[{}]|\bnan\b|\.\d{6}|(?<!\w)-\d", re.sub(r"`.*?`", "", text)), text


EQUATION = re.compile(r"((?:ln )?[½\d(][½\d.,·+/ ()]*) = ([\d.]*\d)")
ADDED = re.compile(r"([\d.]+) and ([\d.]+)(?:, which is| make) ([\d.]*\d)")


def value(text: str) -> float:
    """What a formula of a text is, also one that begins within brackets."""
    text = text.removeprefix("(") if text.count("(") > text.count(")") else text
    if text.startswith("ln "):
        return math.log(float(text[3:]))
    return eval(text.replace("·", "*").replace("½", "0.5"))


@each_drawn
def test_what_is_computed_in_a_text_is_right(name, entry):
    for choice in entry["choices"]:
        for left, total in EQUATION.findall(choice["explanation"]):
            assert value(left) == pytest.approx(float(total), abs=0.051)
        for a, b, total in ADDED.findall(choice["explanation"]):
            assert float(a) + float(b) == pytest.approx(float(total))


def test_equations_are_found():
    found = [EQUATION.findall(choice["explanation"]) for _, entry in DRAWN for choice in entry["choices"]]
    assert sum(map(len, found)) > 40


def test_a_question_without_numbers_is_always_the_same():
    question = {"question": "Which?", "choices": [{"text": "a", "explanation": "b", "right": True}]}
    assert list(variants(question)) == [question]


def test_what_would_read_alike_is_left_out():
    choice = {"explanation": "", "text": "{{n}}"}
    question = {"draw": {"n": [1, 2, 3]}, "question": "{{n}}?", "choices": [choice, choice | {"text": "2"}]}
    assert [each["question"] for each in variants(question)] in (["1?", "3?"],)
