"""The numbers that heroes publish are those of PyTorch and the package, whatever is pressed and dragged."""

import itertools
import json
import math
import operator
import re
from base64 import b64decode

import numpy as np
import pytest
import torch
from record_heroes import DATES, encoder_decoder

from attention_course.attention import attention, causal_mask, padding_mask
from attention_course.averaging import causal_mean_loop, causal_mean_matmul
from attention_course.heads import HEAD_TARGETS
from attention_course.heroes import HEROES, hero
from attention_course.stories import FACT, QUESTIONS


def close(values, expected) -> None:
    torch.testing.assert_close(torch.tensor(values, dtype=torch.float64), torch.as_tensor(expected).double())


class Show:
    """A hero on a page; without motion each state is there at once."""

    def __init__(self, page, name: str, motion: str = "false"):
        self.page, self.data = page, hero(name).data
        page.context.eval(hero(name).read(".js"))
        page.do(f"motion.matches = {motion}; const figure = new Node('figure')")
        page.do(f"const stage = new Stage(figure, {hero(name).heights[0]}, 'a hero')")
        page.do(f"play(stage, {json.dumps(self.data)})")
        page.do("const all = (node) => [node, ...node.children.flatMap(all)]")
        page.do(
            "const named = (name) => all(figure).find(({ attributes, tag, textContent }) =>"
            "(attributes['aria-label'] ?? '').startsWith(name) || (tag === 'button' && textContent === name))"
        )

    def fire(self, name: str, event: str, **given) -> None:
        """Let an event happen to what has this label, and to what listens for it at once."""
        self.page.do(f"named({json.dumps(name)}).fire('{event}', {json.dumps(given)})")
        self.page.wait(10)

    def press(self, name: str) -> None:
        self.fire(name, "click")

    def type(self, label: str, text: str) -> None:
        """Fill the field with this label; what is typed is worked through, a step of 10 ms after another."""
        field = f"all(figure).find((node) => node.textContent.startsWith('{label}') && node.tag === 'label')"
        self.page.do(f"{field}.children[0].value = {json.dumps(text)}")
        self.page.do(f"{field}.children[0].fire('input')")

    def key(self, name: str, *keys: str) -> None:
        for key in keys:
            self.fire(name, "keydown", key=key)

    def point(self, name: str) -> str:
        """Point at something; return what is said of it."""
        self.fire(name, "pointerenter")
        words = self.words
        self.fire(name, "pointerleave")
        return words

    def drawn(self, attribute: str, value: str, *names: str) -> list[list]:
        """Return attributes of all nodes that have a value of another, from back to front."""
        found = f"all(figure).filter(({{ attributes }}) => attributes['{attribute}'] === '{value}')"
        return self.page.get(
            f"{found}.map((node) => {json.dumps(names)}.map((name) => node.getAttribute(name)))"
        )

    def texts(self) -> list[str]:
        """Return what is written in the picture, piece by piece."""
        return self.page.get(
            "all(figure).filter(({ children }) => !children.length).map((n) => n.textContent)"
        )

    def __getitem__(self, name: str):
        return json.loads(self.page.get("figure.dataset.values"))[name]

    @property
    def words(self) -> str:
        return self.page.get("all(figure).find(({ attributes }) => attributes.class === 'words').textContent")


@pytest.fixture
def show(page_of):
    return lambda name, **options: Show(page_of("heroes/stage.js"), name, **options)


@pytest.mark.parametrize("name", HEROES)
def test_each_hero_plays_without_a_browser_and_publishes_numbers(show, name):
    assert show(name).page.get("figure.dataset.values")


def test_bag_of_words(show):
    shown = show("bag_of_words")

    def assert_means(seen):
        close(shown["means"], causal_mean_loop(torch.tensor(shown["tokens"]).float())[:seen])

    for seen in range(1, 9):
        shown.press("Step")
        assert_means(seen)
    before = shown["tokens"]
    shown.key("token 3", "ArrowLeft", "ArrowUp")
    assert shown["tokens"] != before
    assert_means(8)
    end = shown["means"][-1]
    shown.press("Shuffle")
    assert_means(8)
    close(shown["means"][-1], end)
    assert "Another order" in shown.words


def test_bag_of_words_a_token_flies_from_its_place_to_the_mean(show):
    shown, flown = show("bag_of_words", motion="true"), []
    for _ in range(2):
        shown.press("Step")
        for _ in range(30):
            shown.page.wait(10)
            flown.append(float(shown.drawn("r", "5", "cx")[0][0]))
    token, mean = (150 + 34 * (x[0] + 5) for x in (shown["tokens"][1], shown["means"][1]))  # in pixels
    assert max(flown[30:]) == pytest.approx(token, abs=12)
    assert flown[-1] == pytest.approx(mean)


def poured(shown) -> torch.Tensor:
    """Return the shares that lie in the outputs, (T, T), read from the lengths of their bars."""
    pieces = shown.drawn("class", "piece", "width", "opacity")
    return torch.tensor([float(width) / 14 * (opacity != "0") for width, opacity in pieces]).view(5, 5)


def test_tril_matmul(show):
    shown = show("tril_matmul")
    distance = torch.arange(5)[:, None] - torch.arange(5)
    for recipe, (first, last) in {"Mean of the past": (0, 5), "Last two": (0, 2), "Previous": (1, 2)}.items():
        shown.press(recipe)
        weights = ((distance >= first) & (distance < last)).float()
        weights = weights / weights.sum(dim=-1, keepdim=True).clamp(min=1)
        close(shown["weights"], weights)
        tokens = torch.tensor(shown["tokens"]).float()
        close(shown["outputs"], weights @ tokens)
        for _ in range(5):
            shown.press("Step")
        close(poured(shown).tolist(), weights * tokens)
        shown.press("Start over")
        assert not poured(shown).any()
    shown.press("Fading")
    fading = (0.5**distance).tril()
    close(shown["weights"], fading / fading.sum(dim=-1, keepdim=True))
    assert "Token 1 pours 2/7 × 2 = 0.57 into it" in shown.point("weight of token 1 in row 2")
    shown.press("Mean of the past")
    shown.press("Start over")
    for t in range(5):
        shown.press("Step")
        assert shown["complete"] == list(range(t + 1))
    shown.key("token 2", "ArrowRight")
    tokens = torch.tensor(shown["tokens"]).float()
    close(shown["outputs"], causal_mean_matmul(tokens[:, None])[:, 0])
    said = shown.point("weight of token 1 in row 2")
    assert f"= {tokens[:3].mean():.2f}. Token 1 pours 1/3 × 2 = 0.67 into it" in said
    assert "The weight of token 3 is 0" in shown.point("weight of token 3 in row 2")


def test_tril_matmul_pours_token_by_token_and_a_step_taken_early_leaves_no_row_half_full(show):
    shown = show("tril_matmul", motion="true")
    said = []
    for _ in range(3):
        shown.press("Step")
    for _ in range(100):
        shown.page.wait(20)
        said += [shown.words] * (shown.words not in said)
    sums = ["Output 2 = …", "Output 2 = 1/3 × 6", "Output 2 = 1/3 × 6 + 1/3 × 2"]
    assert said[-4:-2] == sums[1:]
    assert said[-1].endswith(" + 1/3 × 1 = 3.")
    close(poured(shown)[:3].sum(dim=-1).tolist(), shown["outputs"][:3])
    shown.press("▶ Play")
    shown.page.wait(300)
    shown.key("token 0", "ArrowLeft")
    shown.page.wait(20_000)
    assert "Output 4 = 1/5 × 5" in shown.words, "a dragged token does not stop it"


def test_masked_softmax(show):
    shown = show("masked_softmax")

    def assert_weights(place):
        hidden = ~causal_mask(6)[place]
        scores = torch.tensor(shown["scores"]).masked_fill(hidden, -math.inf)
        assert shown["hidden"] == hidden.tolist()
        close(shown["weights"], scores.softmax(dim=-1))
        close([float(width) / 504 for (width,) in shown.drawn("class", "part", "width")], shown["weights"])

    assert_weights(5)
    before = shown["weights"]
    shown.press("Drop the mask")
    assert_weights(2)
    assert shown["ghost"] == before
    freed = sum(before[3:])
    assert f"frees {freed:.2f} of the total" in shown.words
    assert f"{1 / (1 - freed):.2f} times" in shown.words
    before = shown["weights"]
    shown.key("score of drum", "ArrowUp")
    assert shown["weights"] == before
    assert "its weight stays 0, and no other weight moves" in shown.words
    shown.fire("score of Ben", "focus")
    shown.key("score of Ben", "ArrowUp")
    assert_weights(2)
    gain = shown["weights"][0] - before[0]
    assert f"It gained {gain:.2f}, and the others together lost as much" in shown.words
    assert "more than half" not in shown.words
    for _ in range(4):
        shown.key("score of Ben", "ArrowUp")
    assert "That is more than half." in shown.words
    for key, place in {"ArrowLeft": 1, "ArrowRight": 2}.items():
        shown.key("the token that looks back", key)
        assert_weights(place)
    assert "is behind the mask, so its weight is 0." in shown.point("weight of drum")
    shown.press("All scores 0")
    close(shown["weights"], torch.tensor([1 / 3] * 3 + [0.0] * 3))


def test_query_key_value(show):
    shown, text, letters = show("query_key_value"), "potato", "pota"
    letter = torch.tensor([[float(a == b) for b in letters] for a in text])
    x = torch.cat([letter, torch.eye(6)], dim=-1)  # one-hot letters beside one-hot positions, as in the rung
    W_query, W_key = torch.zeros(2, 10, 2)
    W_query[:4, 0] = torch.tensor([4.0, -4, 4, -4])  # p and t want a vowel, o and a want none
    W_query[4:, 1] = 2  # and late
    W_key[:4, 0] = torch.tensor([-1.0, 1, -1, 1])
    W_key[4:, 1] = torch.arange(6)
    q, k, v = x @ W_query, x @ W_key, letter
    output, weights = attention(q, k, v, causal_mask(6))
    stages = {"scores": q @ k.T, "scaled": q @ k.T / 2**0.5, "weights": weights, "output": output}
    shown.key("the letter that asks", *3 * ["ArrowLeft"])
    for t in range(6):
        assert shown["t"] == t
        for name, expected in {"q": q, "k": k, "v": v}.items():
            close(shown[name], expected)
        for name, expected in stages.items():
            close(shown[name], expected[t])
        assert shown["answer"] == "ppotat"[t]  # the last vowel, or for a vowel the last consonant
        for s in range(6):
            said = shown.point(f"key {s}").replace("−", "-").replace("\u2009", " ")
            terms, score = re.search(r"\): (.*?) = (-?\d+)\.", said).groups()
            products = [int(a) * int(b) for a, b in re.findall(r"(-?\d+)·(-?\d+)", terms)]
            assert sum(products) == int(score) == stages["scores"][t, s]
            weight = weights[t, s].item()
            assert (f"Weight {weight:.2f}." if weight else "Weight 0.") in said
            assert ("the mask hides it" in said) == (s > t)
        shown.key("the letter that asks", "ArrowRight")
    pale = [len(shown.drawn("opacity", "0.08"))]
    for step in range(1, 9):
        shown.press("Step")
        assert shown["step"] == step
        pale.append(len(shown.drawn("opacity", "0.08")))
    assert pale[1:] == sorted(set(pale[1:]), reverse=True), "each step shows more"
    assert pale[-1] == 0
    assert f"{weights[5, 2]:.2f} + {weights[5, 4]:.2f}" in shown.point("output, letter t")


def test_scaling_variance(show):
    shown, norms = show("scaling_variance"), {}
    rows = torch.tensor(shown.data["scores"], dtype=torch.float64)
    for divided in (False, True):
        shown.press("Start over")
        for head_size, row in zip(shown.data["head_sizes"], rows, strict=True):
            scores = row * (head_size**-0.5 if divided else 1)
            assert (shown["head_size"], shown["divided"]) == (head_size, divided)
            close(shown["scores"], scores)
            close(shown["weights"], scores.softmax(dim=-1))
            jacobian = torch.autograd.functional.jacobian(lambda s: s.softmax(dim=-1), scores)
            close(shown["norm"], jacobian.norm())
            norms[head_size, divided] = shown["norm"]
            said = shown.point("key 5").replace("−", "-")
            assert f"{scores[5]:.1f}, weight {shown['weights'][5]:.2f}" in said.replace("-0.0", "0.0")
            shown.press("Step")
        shown.press("÷ √head_size")
    assert norms[256, False] < 0.05 * norms[1, False]
    assert norms[256, True] > 0.8 * norms[1, True]
    before = shown["head_size"]
    shown.key("head_size", "ArrowLeft")
    assert shown["head_size"] == before / 2


def test_multi_head(show):
    """Heads whose scores are ln w have the weights w: run them over the cards, and join what they find."""
    shown = show("multi_head")
    cards = torch.tensor(shown.data["cards"], dtype=torch.float64)[None, :, None]  # (1, 4, 1)

    def assert_outputs():
        outputs = []
        for shares in torch.tensor(shown["weights"], dtype=torch.float64):
            query = 2 * shares.clamp_min(1e-300).log()[None, None]  # the scale divides by √4
            output, weights = attention(query, torch.eye(4, dtype=torch.float64)[None], cards)
            close(weights[0, 0].tolist(), shares)
            outputs.append(output.item())
        close(shown["outputs"], outputs)
        wanted = cards[0, shown["question"], 0].tolist()
        answers = outputs if len(outputs) == 2 else 2 * outputs
        assert shown["right"] == [abs(a - b) < 1e-9 for a, b in zip(answers, wanted, strict=True)]

    names = [", ".join(shown.data["friends"][f] for f in pair) for pair in shown.data["questions"]]
    for name in names:
        shown.press(name)
        seen = set()
        for key in ["ArrowLeft"] * 20 + ["ArrowRight"] * 21:
            shown.key("output of head 0", key)
            assert_outputs()
            seen.add(tuple(shown["right"]))
        assert seen == {(False, False), (True, False), (False, True)}, "one head never answers both"
    said = shown.point("Bob holds 6")
    weight = shown["weights"][0][1]
    assert f"weight {weight:.2f} · card 6 = {6 * weight:.2f}." in said
    shown.press("Split into two heads")
    for name, pair in zip(names, shown.data["questions"], strict=True):
        shown.key(name, "Enter")
        assert shown["question"] == pair
        assert_outputs()
        assert shown["right"] == [True, True]
    shown.key("output of head 1", "ArrowLeft", "ArrowRight", "ArrowRight", "ArrowLeft", "ArrowLeft")
    assert_outputs()


def test_a_real_model(show):
    shown = show("a_real_model")
    right, *bugs = shown.data["attentions"]
    T, many = len(shown.data["tokens"]), len(right["written"])

    def assert_shows(name, typed):
        chosen = next(each for each in (right, *bugs) if each["name"] == name)
        maps = [torch.tensor(list(b64decode(each["weights"]))).view(T, T) / 100 for each in (right, chosen)]
        assert (shown["name"], shown["typed"]) == (name, typed)
        close(shown["losses"], [right["loss"], chosen["loss"]])
        close(shown["weights"], torch.stack(maps).flatten(1))
        for each in (right, chosen):
            chips = [token.replace("\n", "↵").removeprefix(" ") or "␣" for token in each["written"]]
            assert set(chips) <= set(shown.texts())
        return chosen, maps

    for step in range(many + 1):
        close(shown["typed"], [step, 0])
        close(shown["losses"], 2 * [right["loss"]])
        shown.press("Step")
    assert_shows("no mask", [many, 0])
    for step in range(many):
        shown.press("Step")
        assert_shows("no mask", [many, step + 1])
    for bug in bugs[1:]:
        shown.press(bug["name"])
        shown.page.wait(200)
        chosen, maps = assert_shows(bug["name"], [many, many])
        way = "falls" if chosen["loss"] < right["loss"] else "rises"
        assert chosen["says"] in shown.words
        assert f"{way} from {right['loss']:.2f} to {chosen['loss']:.2f}, and it writes" in shown.words
        lines = {f"{sign} {line}" for sign, line in bug["code"] if sign != " "}
        assert lines <= set(shown.texts())
        for query, token in enumerate(shown.data["tokens"]):
            most = [f"{100 * each[query].max():.0f} % on" for each in maps]
            said = shown.point(f"what “{token.strip()}” reads")
            assert f"here, {most[0]}" in said
            assert f"With “{bug['name']}” it has {most[1]}" in said
    shown.press(bugs[-1]["name"])  # pressed again, it is taken out
    assert_shows("right", [many, 0])


def test_looking_inside(show):
    shown = show("looking_inside")
    tokens, shape = shown.data["tokens"], shown.data["shape"]
    T, words = len(tokens), [token.strip() for token in tokens]
    ids = torch.tensor([tokens.index(token) for token in tokens])

    def decode(text):
        return torch.tensor(list(b64decode(text))) / 100

    weights = torch.zeros(*shape, T, T)
    weights[:, :, *torch.tril_indices(T, T)] = decode(shown.data["weights"]).view(*shape, -1)

    def assert_shows(job, head, query):
        scores = decode(shown.data["jobs"][job]["scores"]).view(*shape)
        assert (shown["job"], shown["head"], shown["query"]) == (job, list(head), query)
        close(shown["weights"], weights[*head, query, : query + 1])
        close(shown["scores"], scores.flatten())
        assert shown["targets"] == HEAD_TARGETS[job](ids)[query].nonzero().flatten().tolist()
        read = int(weights[*head, query].argmax())
        assert f"on average, has {100 * scores[head]:.0f} % of its weight" in shown.words
        name = "itself" if read == query else f"“{words[read]}”"
        assert (
            f"From “{words[query]}” it reads {name} most, {100 * weights[*head, query, read]:.0f} %"
            in shown.words
        )

    labels = {"previous token": "the token before", "first token": "the first token"}
    labels["induction"] = "what followed the same word earlier"
    for job, label in reversed(labels.items()):
        ranking = decode(shown.data["jobs"][job]["scores"]).argsort(descending=True, stable=True).tolist()
        many = (decode(shown.data["jobs"][job]["scores"]) >= 0.5).sum()
        for best in ranking[:3]:
            shown.press(label)
            assert f"{many} of 270 heads put 50 % or more of their weight there" in shown.texts()
            assert_shows(job, divmod(best, shape[1]), T - 1)
    job, head = shown["job"], tuple(shown["head"])
    for query in reversed(range(T - 1)):
        shown.key("the token that asks", "ArrowLeft")
        assert_shows(job, head, query)
    left, top, cell = 48, 24, 19.5  # as in hero.js; the drawing's corner is at (100, 50)
    for layer, h in ((5, 7), (29, 8), (0, 0)):
        place = {"clientX": 100 + left + cell * (layer + 0.5), "clientY": 50 + top + cell * (h + 0.5)}
        shown.fire("head", "pointermove", **place)
        assert_shows(job, (layer, h), 0)
        shown.fire("head", "pointerleave")
        assert_shows(job, head, 0)
    shown.fire("head", "pointerdown", **place)
    shown.key("head", "ArrowRight", "ArrowDown")
    assert_shows(job, (1, 1), 0)


def test_looking_inside_shows_after_a_guess_what_it_asked_for(show):
    shown = show("looking_inside")
    assert shown["job"] == "previous token"
    shown.page.do("stage.play()")
    tokens, read = shown.data["tokens"], shown["weights"].index(max(shown["weights"]))
    assert (shown["job"], shown["query"]) == ("induction", len(tokens) - 1)
    assert shown["scores"].index(max(shown["scores"])) == 9 * shown["head"][0] + shown["head"][1]
    asked = hero("looking_inside").ask
    assert (tokens[-1], tokens[read]) == (" dog", " ran")
    assert "“ran”" in asked["choices"][asked["right"]]


def test_speed_run(show):
    shown = show("speed_run")
    runners, mark = shown.data["runners"], shown.data["mark"]
    done = [r["seconds"][-1] if r["accuracies"][-1] == mark else math.inf for r in runners]
    total = math.ceil(max(runner["seconds"][-1] for runner in runners))

    judged = set()

    def accuracy_at(runner, now):
        measured = list(zip(runner["seconds"], runner["accuracies"], strict=True))
        for (start, low), (stop, high) in itertools.pairwise(measured):
            if start <= now < stop:
                return low + (high - low) * (now - start) / (stop - start)
        return measured[-1][1]

    for at in range(121):
        now = total * at / 120
        if at:
            shown.key("the clock", "ArrowRight")
            said = re.match(r"After (\S+) s, (\w+) of 6 ha", shown.words)
            assert said[2] == str(sum(seconds <= now for seconds in done) or "none")
            assert float(said[1]) == pytest.approx(now, abs=0.051)
        close(shown["now"], now)
        close(shown["accuracies"], [accuracy_at(runner, now) for runner in runners])
        assert shown["done"] == [seconds <= now for seconds in done]
        written = [
            [each["text"] for each in texts if each["seconds"] <= now] for texts in shown.data["texts"]
        ]
        assert shown["texts"] == [texts[-1] for texts in written]
        for story, answer in itertools.pairwise(shown.texts()):
            if who := re.search(r"gave poor (\w+) a .*Who got it\? $", story):
                assert answer.endswith("✓" if answer.startswith(f"Poor {who[1]}.") else "✗")
                judged.add(answer[-1])
    assert "✗" in judged
    for at, runner in enumerate(runners):
        said = shown.point(f"+ {runner['trick']}" if at else "rung")
        assert runner["why"] in said
        assert (f"{done[at]:.1f} s" if done[at] < math.inf else "does not reach the mark") in said
        if at and max(done[at - 1 : at + 1]) < math.inf:
            assert f"{done[at] / done[at - 1]:.2f} of the time of the lane above" in said
            assert ("chance" in said) != runner["differs"]


def solid_blocks(shown) -> list[str]:
    """Return what is written on the blocks of the tower that are there, and no longer pale."""
    solid = "({ tag, style }) => tag === 'g' && style['--there'] === 1 && style.visibility !== 'hidden'"
    texts = "({ tag, textContent }) => (tag === 'text' && textContent ? [textContent] : [])"
    return sorted(
        shown.page.get(f"all(figure).filter({solid}).flatMap((node) => all(node).flatMap({texts}))")
    )


def kept_of(scores, values):
    """Return the largest score, the sum of exps, and that of exps times values."""
    if not len(scores):
        return -math.inf, 0.0, 0.0
    exps = (scores - scores.max()).exp()
    return scores.max().item(), exps.sum().item(), (exps @ values).item()


def test_bytes(show):
    shown = show("bytes")
    values = torch.tensor(shown.data["values"]).double()

    def assert_kept():
        scores = torch.tensor(shown["scores"]).double()
        close(shown["whole"], scores.softmax(dim=-1) @ values)
        for step in range(9):
            assert shown["step"] == step
            block = 0 if step == 1 else (step + 1) // 3 if step < 8 else 2
            seen = scores[: 2 * block + 2 * (step % 3 == 1 or step == 8)] if step else scores[:0]
            largest, total, mix = kept_of(seen, values[: len(seen)])
            if step % 3 == 0 and step:  # corrected, and not yet added: relative to the new maximum
                newer = max(largest, scores[2 * block : 2 * block + 2].max().item())
                factor = math.exp(largest - newer)
                assert shown["factor"] == pytest.approx(factor)
                largest, total, mix = newer, factor * total, factor * mix
                words = f"= {factor:.2f}" if factor < 1 else "the factor is exp(0) = 1"
                assert words in shown.words
            if step:
                close([shown["largest"], shown["total"], shown["mix"]], [largest, total, mix])
                close(shown["output"], mix / total)
            shown.press("Step")
        close(shown["output"], scores.softmax(dim=-1) @ values)
        assert "you never held that row" in shown.words
        shown.press("Start over")

    assert shown["largest"] is None
    assert_kept()
    shown.key("score 5", *8 * ["ArrowUp"])  # the last is the largest now
    assert shown["scores"] == [1, 3, 2, 5, 4, 6]
    assert_kept()
    shown.key("score 0", *20 * ["ArrowUp"])  # as large as the last, from the first block on
    assert shown["scores"][0] == 6
    assert_kept()


def test_bytes_the_bars_shrink_by_the_factor_and_their_old_length_is_dashed(show):
    shown = show("bytes")
    for _ in range(2):
        shown.press("Step")
    (before, *_), (mixed, *_) = shown.drawn("class", "old", "width")
    shown.press("Step")
    bars = [float(width) for (width,) in shown.drawn("class", "old", "width")]
    close(bars, math.exp(-2) * torch.tensor([float(before), float(mixed)]))
    dashed = shown.drawn("stroke-dasharray", "3 3", "width", "opacity")
    close([[float(each) for each in pair] for pair in dashed], [[float(before), 1], [float(mixed), 1]])


def test_bigram_to_gpt(show):
    shown = show("bigram_to_gpt")
    parts, prompt = shown.data["parts"], shown.data["prompt"]
    fact = FACT.match(prompt)

    def judged(line):
        """Return each answer, and whether it is that of the fact in the prompt."""
        asked = {question: key for key, question in QUESTIONS.items()}
        found = re.finditer(rf"({'|'.join(map(re.escape, asked))})(\w*\W?)", prompt + line)
        return [{"text": each[2], "right": each[2] == f"{fact[asked[each[1]]]}."} for each in found]

    twice = ["attention", "attention", "feed-forward", "feed-forward"]
    assert solid_blocks(shown) == ["table of pairs"]
    assert [judged(part["line"])[0]["right"] for part in parts] == [False] * (len(parts) - 1) + [True]
    for built, part in enumerate(parts):
        if built:
            shown.press("Step")
            assert f"{part['loss']:.3f}, {100 * part['accuracy']:.0f} % of the answers right" in shown.words
        assert shown["shown"] == [[part["loss"], part["accuracy"]] for part in parts[: built + 1]]
        assert shown["answers"] == judged(part["line"])
        said = shown.point("second layer")
        assert ("Guess" in said) == ("Loss" not in said) == (built < len(parts) - 1)
    heights = [float(y) for (y,) in shown.drawn("class", "tread", "y1")]
    losses = [part["loss"] for part in parts]
    assert sorted(range(len(parts)), key=heights.__getitem__) == sorted(
        range(len(parts)), key=lambda at: -losses[at]
    )
    assert solid_blocks(shown) == [*twice, "letter → vector", "position", "vector → logits"]
    by_stair = shown.point("feed-forward")
    shown.page.do("const block = all(figure).find((n) => n.tag === 'g' && n.textContent === 'feed-forward')")
    shown.page.do("block.fire('pointerenter')")
    assert (shown.words, shown["chosen"]) == (by_stair, 5), "a block and its stair are one"
    shown.page.do("block.fire('click'); block.fire('pointerleave')")
    assert (shown["chosen"], shown.page.get("[...block.classes]")) == (5, ["chosen"])


def test_ladder(show):
    shown = show("ladder")
    assert "worse than guessing" in shown.words
    for at, moment in enumerate(shown.data["moments"]):
        if at:
            shown.key("the moment of the practice", "ArrowRight")
        assert [shown[name] for name in ("step", "loss", "told")] == [
            moment[n] for n in ("step", "loss", "told")
        ]
        assert shown["passed"] == [
            name for name, floor in shown.data["floors"].items() if moment["loss"] < floor
        ]
        drawn = " ".join(line for line in shown["text"] if line)
        letters = "".join(drawn.split())
        assert letters == "".join(moment["text"].split())[: len(letters)]
        known = [word in shown.data["words"] for word in re.findall("[A-Za-z]+", drawn)]
        assert (shown["real"], shown["all"]) == (sum(known), len(known))
    assert "2 stories are without a mistake" in shown.words
    for number, rung in enumerate(shown.data["rungs"], 1):
        assert shown.point(f"rung {number}, ") == f"Rung {number}, {rung['title']}: {rung['sentence']}."


def test_an_empty_page(show):
    shown = show("an_empty_page")
    lines, pages = shown.data["lines"], shown.data["pages"]
    many = len(shown.data["findings"])

    def assert_shows(on):
        page = pages["".join(str(int(line in on)) for line in lines)]
        assert set(shown["on"]) == set(on)
        assert shown["verdicts"] == page[:many]
        assert shown["levels"] == [int(digit) for digit in page[many:] or "0" * 64]
        texts = shown.texts()
        signs = [
            texts[texts.index(next(t for t in texts if t.startswith(f))) - 1] for f in shown.data["findings"]
        ]
        assert signs == [{"w": "✗", "f": "✗", "r": "✓", "n": "–"}[verdict] for verdict in page[:many]]

    for built in range(len(lines) + 1):
        assert_shows(lines[:built])
        shown.press("Step")
    for line in lines:
        shown.press(f"{line}: ")
        assert_shows([each for each in lines if each != line])
        assert f"Left out: {line}. " in shown.words
        shown.key(f"{line}: ", "Enter")
        assert_shows(lines)


# The encoder-decoder of rung 6


def written(shown) -> list[str]:
    """Return what stands behind each question of the sheet."""
    return shown.page.get(
        "all(figure).filter(({ attributes }) => attributes.class === 'answer').map((n) => n.textContent)"
    )


def test_after_pretraining(show):
    shown = show("after_pretraining")
    asked, moments, questions = (shown.data[key] for key in ("asked", "moments", "questions"))
    assert (shown["step"], written(shown)) == (0, ["▏"] * len(asked))
    for step, moment in enumerate(moments, 1):
        shown.press("Step")
        right = [answer == each["answer"] for answer, each in zip(moment["answers"], asked, strict=True)]
        assert (shown["step"], shown["answers"], shown["right"]) == (step, moment["answers"], right)
        signs = ["✓" if each else "✗" for each in right]
        assert written(shown) == [f"{a} {sign}" for a, sign in zip(moment["answers"], signs, strict=True)]
        shares = [moment["right"] / questions, moment["reward"] or 0]
        heights = [float(height) for (height,) in shown.drawn("class", "bar", "height")]
        assert heights == pytest.approx([150 * share for share in shares])
        assert f"{moment['right']} of {questions}" in shown.words
    for moment in moments[1:]:
        assert f"{round(100 * moment['reward'])}\N{NO-BREAK SPACE}%" in shown.words
    shown.press("Start over")
    assert written(shown) == ["▏"] * len(asked)


def test_after_pretraining_writes_letter_by_letter_and_judges_what_is_finished(show):
    shown, seen = show("after_pretraining", motion="true"), []
    shown.press("Step")
    for _ in range(100):
        shown.page.wait(10)
        seen.append(written(shown)[0])
    answer = shown.data["moments"][0]["answers"][0]
    assert list(dict.fromkeys(seen)) == [*(f"{answer[:n]}▏" for n in range(len(answer))), f"{answer} ✗"]


@pytest.fixture(scope="module")
def translator() -> dict:
    """Return what the notebook defines, its model with the parameters that the hero carries."""
    rung = encoder_decoder(short=True)
    stored = hero("cross_and_causal").data["parameters"]
    for part in ("encoder", "decoder"):
        parameters = rung[part].state_dict()
        for name, parameter in parameters.items():
            entry = stored[f"{part}.{name}"]
            integers = np.frombuffer(b64decode(entry["integers"]), dtype=np.int8)
            parameter.copy_(torch.tensor(integers * entry["scale"]).view_as(parameter))
        assert len(parameters) == sum(name.startswith(part) for name in stored)
    return rung


@torch.no_grad()
def rewrite(rung: dict, text: str, covered: list[bool]) -> tuple[str, torch.Tensor]:
    """Write a date as the notebook does, and hide what is covered as the padding is hidden."""
    seen = padding_mask(torch.tensor([len(text)]), 17)
    seen[..., : len(text)] &= ~torch.tensor(covered)
    context = rung["encoder"](rung["to_ids"]([text], 17), seen)
    ids = rung["to_ids"]([">"], 1)
    for _ in range(10):
        logits, weights = rung["decoder"](ids, context, seen)
        ids = torch.cat([ids, logits[:, -1:].argmax(dim=-1)], dim=-1)
    return "".join(rung["characters"][i] for i in ids[0, 1:]), weights[0, :, : len(text)]


@pytest.mark.slow
def test_the_model_in_the_page_is_that_of_the_rung(show, translator):
    sources, targets = translator["sources"][:200], translator["targets"][:200]
    written = [rewrite(translator, text, [False] * len(text))[0] for text in sources]
    assert sum(map(operator.eq, written, targets)) > 190
    shown = show("cross_and_causal")

    def assert_computes(text, covered):
        assert (shown["text"], shown["covered"]) == (text, covered)
        written, weights = rewrite(translator, text, covered)
        assert shown["written"] == written
        torch.testing.assert_close(torch.tensor(shown["weights"]).float(), weights, atol=1e-3, rtol=0)
        assert not weights[:, covered].any()

    for typed in (*DATES, "31 December  9999"):
        shown.type("Your date", typed)
        date = re.sub(" +", " ", typed.lower())
        day, month, _ = date.split()
        assert_computes(date, [False] * len(date))
        shown.press("Cover the month")
        assert_computes(date, [len(day) < at <= len(day) + len(month) for at in range(len(date))])
        assert f"Covered: “{month}”" in shown.words
    shown.type("Your date", "14 march 1879")
    assert "✓ It writes 1879-03-14" in shown.words
    covered = [False] * 13
    for at in range(13):
        shown.key(f"cover character {at + 1}:", "Enter" if at % 2 else " ")
        covered[at] = True
        if at % 6 == 0:
            assert_computes("14 march 1879", covered)
    assert "Everything is covered" in shown.words
    shown.press("Uncover")
    assert_computes("14 march 1879", [False] * 13)


def test_a_date_is_written_character_by_character_and_each_says_what_it_looks_at(show):
    shown = show("cross_and_causal")
    assert shown["seen"] == 4
    shown.press("Start over")
    for seen, (character, row) in enumerate(zip("1879-03-14", shown["weights"], strict=True), 1):
        shown.press("Step")
        assert shown["seen"] == seen
        assert shown.words.startswith(f"“{character}” (")
        most = max(range(13), key=row.__getitem__)
        looks = f"looks at “{'14 march 1879'[most]}”{' (a space)' * (most in (2, 8))} {row[most]:.2f}"
        assert looks in shown.point(f"written character {seen}")
        assert f"“{character}” (" in shown.point(f"cover character {most + 1}:")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("3/3/1998", "doesn't know “/”"),
        ("3 märz 1998", "doesn't know “ä”"),
        *(
            (text, "For example: 3 march 1998")
            for text in ("march 3 1998", "32 march 1998", "3 march 998", "")
        ),
    ],
)
def test_a_text_that_the_model_cannot_read_leaves_the_last_date(show, text, words):
    shown = show("cross_and_causal")
    before = shown.page.get("figure.dataset.values")
    shown.type("Your date", text)
    assert words in shown.words
    assert shown.page.get("figure.dataset.values") == before
    shown.type("Your date", "14 march 1879")
    assert words not in shown.words
    assert shown.page.get("figure.dataset.values") == before
