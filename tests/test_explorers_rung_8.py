"""The explorers of rung 8: a learner's own model, what it writes, its weights, and its training, live."""

import re

import pytest
import torch
from ipywidgets import ValueWidget
from jupyter_client.manager import start_new_kernel

from attention_course.attention import record_weights
from attention_course.explorers import (
    EXPLORERS,
    LiveTraining,
    attention_over_text,
    explore,
    live_training,
    sampling,
    subject,
)
from attention_course.gpt import GPT, BigramLanguageModel, GPTConfig, generate
from attention_course.plots import Lines
from attention_course.stories import answers, write_stories
from attention_course.text import CharTokenizer, Data
from attention_course.training import History, Recipe, Trainer, train

TEXT = "the cat sat on the mat.\n"


@pytest.fixture
def tokenizer():
    return CharTokenizer(TEXT)


@pytest.fixture
def model(tokenizer):
    torch.manual_seed(1)
    return GPT(GPTConfig(tokenizer.vocab_size, block_size=16, n_layer=3, n_head=2, n_embd=8)).train()


# What is looked at


def test_without_a_subject_the_caption_says_that_nothing_was_learnt(model, tokenizer):
    for name in ("sampling", "attention_over_text"):
        assert "learnt nothing yet" in explore(name).figure.caption
        passed = explore(name, model=model, tokenizer=tokenizer, **{_text_of(name): "the cat"})
        assert "learnt nothing yet" not in passed.figure.caption


def _text_of(name):
    return {"sampling": "prompt", "attention_over_text": "text"}[name]


def test_the_untrained_model_is_the_same_everywhere_and_disturbs_no_generator():
    before = torch.get_rng_state()
    again = subject._untrained()
    assert torch.equal(torch.get_rng_state(), before)
    for one, other in zip(again.parameters(), subject.UNTRAINED.parameters(), strict=True):
        assert torch.equal(one, other)
    assert CharTokenizer(write_stories()) == subject.TOKENIZER


@pytest.mark.parametrize("name", ["sampling", "attention_over_text"])
def test_the_static_page_of_a_learners_model_holds_no_measured_number(name, model, tokenizer):
    explorer = explore(name, model=model, tokenizer=tokenizer, **{_text_of(name): "the cat"})
    data, metadata = explorer._repr_mimebundle_()
    assert not re.search(r"\d", data["text/plain"].removeprefix("Rung 8"))
    assert data["text/plain"] == repr(explorer)
    assert metadata["image/png"]["alt"] == explorer.figure.caption
    assert re.search(r"\d", explorer.figure.caption)


@pytest.mark.parametrize(
    ("name", "looks_at"),
    [("sampling", "It looks at: model, tokenizer, prompt."), ("tril_matmul", "It brings")],
)
def test_a_subject_that_an_explorer_does_not_take_is_named(name, looks_at):
    with pytest.raises(TypeError, match=f"The explorer '{name}' takes no 'text'. {looks_at}"):
        explore(name, text="the cat")


def test_rungs_1_to_7_take_no_subject():
    for name in list(EXPLORERS)[:7]:
        with pytest.raises(TypeError, match="takes no 'model'"):
            explore(name, model=None)


@pytest.mark.parametrize("name", ["sampling", "attention_over_text"])
def test_model_tokenizer_and_text_must_go_together(name, model, tokenizer):
    with pytest.raises(ValueError, match=r"logits for 12 characters, but the tokenizer knows.*tokenizer="):
        explore(name, model=model)
    with pytest.raises(ValueError, match="The text is empty"):
        explore(name, **{_text_of(name): ""})
    with pytest.raises(ValueError, match=r"'z'.*is none of the 12 characters"):
        explore(name, model=model, tokenizer=tokenizer, **{_text_of(name): "zoo"})


@pytest.mark.parametrize("name", ["sampling", "attention_over_text"])
def test_looking_leaves_the_model_and_the_global_generator_as_they_were(name, model, tokenizer):
    before = torch.get_rng_state()
    explorer = explore(name, model=model, tokenizer=tokenizer, **{_text_of(name): "the cat"})
    first = next(iter(explorer.controls.values()))
    first.value = first.min
    assert explorer.figure.error == ""
    assert model.training
    assert torch.equal(torch.get_rng_state(), before)


@pytest.mark.parametrize("name", ["sampling", "attention_over_text"])
def test_a_model_that_goes_on_learning_is_seen_as_it_is_now(name, model, tokenizer):
    explorer = explore(name, model=model, tokenizer=tokenizer, **{_text_of(name): "the cat"})
    caption = explorer.figure.caption
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.mul_(-2)
    for control in explorer.controls.values():
        _to_and_fro(control)
    assert explorer.figure.caption != caption


def test_a_step_of_training_and_a_change_of_data_make_another_state(tokenizer):
    model = GPT(GPTConfig(tokenizer.vocab_size, block_size=8, n_layer=1, n_head=1, n_embd=8))
    states = [subject.state_of(model), subject.state_of(model)]
    train(model, Data.of(20 * TEXT), Recipe(steps=1, batch_size=2))
    states.append(subject.state_of(model))
    first = next(model.parameters())
    first.data = first.data.flip(0)
    states.append(subject.state_of(model))
    assert states[0] == states[1]
    assert len(set(states)) == 3


def _to_and_fro(control: ValueWidget):
    value = control.value
    control.value = control.min
    control.value = value


# Sampling


def test_probabilities_are_those_from_which_generate_draws(model, tokenizer):
    ids = tokenizer.encode("the c")[None]
    out = sampling.compute(0.7, 4, 0, model, tokenizer, "the c")
    drawn = generate(model, ids.expand(20_000, -1), 1, 0.7, 4, torch.Generator().manual_seed(0))[:, -1]
    shares = torch.bincount(drawn, minlength=tokenizer.vocab_size) / 20_000
    torch.testing.assert_close(out["probabilities"], shares, atol=0.015, rtol=0)
    assert (out["probabilities"] > 0).sum() == 4


def test_temperature_0_takes_the_best_and_top_k_1_does_the_same(model, tokenizer):
    cold = sampling.compute(0.0, 12, 3, model, tokenizer, "the c")
    one = sampling.compute(1.0, 1, 4, model, tokenizer, "the c")
    assert cold["sample"] == one["sample"]
    for out in (cold, one):
        assert out["probabilities"].max() == 1
        assert out["probabilities"].argmax() == out["best"][0]


def test_a_sample_is_what_generate_writes(model, tokenizer):
    prompt = 3 * TEXT  # longer than block_size
    out = sampling.compute(1.2, 5, 7, model, tokenizer, prompt)
    ids = generate(
        model, tokenizer.encode(prompt)[None], sampling.LENGTH, 1.2, 5, torch.Generator().manual_seed(7)
    )
    assert out["sample"] == tokenizer.decode(ids[0, len(prompt) :])
    assert len(out["sample"]) == sampling.LENGTH


def test_sampling_shows_prompt_and_sample_and_names_the_best(model, tokenizer):
    explorer = explore("sampling", model=model, tokenizer=tokenizer, prompt="the c")
    bars, text = explorer.figure.panels
    out = sampling.compute(1.0, 12, 1, model, tokenizer, "the c")
    assert text.text == "the c" + out["sample"]
    assert (text.values > 0).sum() == len("the c")
    assert bars.label == "character; drawn among the best 12"
    assert bars.heights.tolist() == sorted(out["probabilities"].tolist(), reverse=True)
    best = tokenizer.characters[out["probabilities"].argmax()].replace(" ", "␣").replace("\n", "↵")
    assert bars.labels[0] == best
    entropy = -(out["probabilities"] * out["probabilities"].log()).sum()
    assert f"the most probable character is “{best}”" in explorer.figure.caption
    assert f"{entropy:.2f} nats, of at most ln 12 = 2.48" in explorer.figure.caption


def test_sampling_also_looks_at_a_bigram_model(tokenizer):
    bigram = BigramLanguageModel(tokenizer.vocab_size)
    explorer = explore("sampling", model=bigram, tokenizer=tokenizer, prompt="t")
    expected = torch.softmax(bigram.table.weight[tokenizer.encode("t")[0]], dim=-1)
    assert explorer.figure.panels[0].heights[0] == pytest.approx(expected.max().item(), abs=1e-6)


# Attention over a text


def test_weights_are_the_models_and_the_prediction_is_too(model, tokenizer):
    out = attention_over_text.compute(2, 1, 5, model, tokenizer, "the cat sat")
    with record_weights() as layers:
        logits = model.eval()(tokenizer.encode("the cat sat")[None])
    torch.testing.assert_close(out["weights"], layers[2][0, 1, 5])
    assert out["weights"].sum().item() == pytest.approx(1, abs=1e-5)
    assert out["expected"] == tokenizer.characters[logits[0, 5].argmax()]


def test_the_largest_weights_are_named_with_their_position(model, tokenizer):
    explorer = explore("attention_over_text", model=model, tokenizer=tokenizer, text="the cat sat")
    explorer.controls["position"].value = 3
    text, bars = explorer.figure.panels
    assert (text.framed, text.text) == (3, "the cat sat")
    weights = text.values[:4]
    most = int(weights.argmax())
    assert bars.labels[0] == f"{most} {'the␣'[most]}"
    assert bars.heights.tolist() == sorted(weights.tolist(), reverse=True)
    assert f"query 3 “␣”: {100 * weights[most].item():.0f} % on character {most}" in explorer.figure.caption
    assert "the text goes on with “c”" in explorer.figure.caption
    explorer.controls["position"].value = 10
    assert len(explorer.figure.panels[1].heights) == attention_over_text.MOST_LOOKED_AT
    assert "the text ends" in explorer.figure.caption


def test_a_long_text_is_cut_to_what_the_model_can_see(model, tokenizer):
    explorer = explore("attention_over_text", model=model, tokenizer=tokenizer, text=TEXT)
    assert explorer.figure.panels[0].text == TEXT[-16:]
    assert explorer.controls["position"].max == 15
    assert explorer.controls["layer"].max == 2
    assert explorer.controls["head"].max == 1


def test_a_story_opens_where_its_first_answer_must_be_found():
    explorer = explore("attention_over_text")
    start, _ = answers(subject.STORY)[0]
    assert explorer.figure.panels[0].text == subject.STORY
    assert explorer.controls["position"].value == start - 1
    assert f"the text goes on with “{subject.STORY[start]}”" in explorer.figure.caption


def test_a_model_without_weights_is_refused(tokenizer):
    bigram = BigramLanguageModel(tokenizer.vocab_size)
    with pytest.raises(ValueError, match=r"BigramLanguageModel has no weights to look at.*Pass a GPT"):
        explore("attention_over_text", model=bigram, tokenizer=tokenizer, text="the")


# Live training


class Clock:
    """A clock that moves when it is told to."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(live_training, "perf_counter", clock)
    return clock


class FakeTrainer(Trainer):
    """A training that learns nothing; its losses are known: 4, 2, 4/3, 1, ..."""

    def __init__(self, model, steps=1000):
        self.model = model
        self.recipe = Recipe(steps=steps)
        self.steps_done = 0
        self.history = History()

    def step(self):
        self.steps_done += 1
        self.history.losses.append(4 / self.steps_done)
        if self.steps_done % 50 == 0:
            self.history.val_steps.append(self.steps_done)
            self.history.val_losses.append(4 / self.steps_done + 0.1)


def take(trainer, watch, steps, clock=None, seconds=0.0):
    """Take steps as `train` does; return what `watch` said to each."""
    said = []
    for _ in range(steps):
        trainer.step()
        if clock:
            clock.now += seconds
        said.append(watch(trainer))
    return said


@pytest.fixture
def watch(tokenizer):
    return LiveTraining(tokenizer, {"bigram floor": 1.5, "entropy": 0.25}, prompt="the ")


def test_the_button_stops_at_the_next_step(watch, model):
    trainer = FakeTrainer(model)
    assert watch.stop.disabled
    assert take(trainer, watch, 5) == 5 * [False]
    assert not watch.stop.disabled
    watch.stop.click()
    assert take(trainer, watch, 1) == [True]
    assert watch.stop.disabled
    assert watch.words.value == "stopped after step 6 of 1000, loss 0.67"
    assert watch.bar.value == 6


def test_a_training_that_was_stopped_can_go_on(watch, model):
    trainer = FakeTrainer(model)
    take(trainer, watch, 5)
    watch.stop.click()
    take(trainer, watch, 1)
    assert take(trainer, watch, 5) == 5 * [False]
    assert not watch.stop.disabled


def test_another_training_begins_anew(watch, model):
    take(FakeTrainer(model), watch, 5)
    watch.stop.click()  # nobody looked any more
    other = FakeTrainer(model, steps=7)
    assert take(other, watch, 7) == 7 * [False]
    assert (watch.bar.value, watch.bar.max) == (7, 7)


def test_an_interrupt_is_shown_like_a_stop(watch, model):
    trainer = FakeTrainer(model)
    take(trainer, watch, 5)
    trainer.history.stopped = True
    watch(trainer)
    assert watch.words.value == "stopped after step 5 of 1000, loss 0.80"
    assert watch.stop.disabled


def test_progress_in_words(watch, model, clock):
    trainer = FakeTrainer(model)
    take(trainer, watch, 1, clock)
    take(trainer, watch, 119, clock, seconds=0.25)
    assert watch.words.value == "step 120 of 1000, loss 0.03, 218 s left"
    take(trainer, watch, 880, clock, seconds=0.25)
    assert watch.words.value == "1000 steps in 250 s, loss 0.00"


def test_five_pictures_a_second_at_most_and_one_at_the_end(watch, model, clock, monkeypatch):
    shown = []
    monkeypatch.setattr(watch.figure, "show", lambda *panels, caption: shown.append(panels))
    take(FakeTrainer(model), watch, 999, clock, seconds=0.01)
    assert 45 <= len(shown) <= 51  # in ten seconds
    trainer = FakeTrainer(model, steps=3)
    shown.clear()
    take(trainer, watch, 3, clock, seconds=0.01)
    assert len(shown) == 2
    assert len(shown[-1][0].x) == 3


def test_the_picture_shows_both_losses_and_the_floors(watch, model):
    trainer = FakeTrainer(model, steps=120)
    take(trainer, watch, 120)
    losses, text = watch.figure.panels
    assert isinstance(losses, Lines)
    training, validation = (losses.points(name) for name in ("training", "validation"))
    assert training[1].tolist() == pytest.approx(trainer.history.losses)
    assert validation[0].tolist() == [50, 100]
    assert validation[1].tolist() == pytest.approx([0.18, 0.14])
    assert losses.levels == {"bigram floor": 1.5, "entropy": 0.25}
    assert losses.state()["x_limits"] == [1, 120]
    assert text.title == "Written after step 120"
    assert text.text.startswith("the ")
    assert len(text.text) == len("the ") + live_training.LENGTH


def sampled_steps(watch, monkeypatch, clock, cost):
    """Let each sample take `cost` seconds; return a list to which each adds its step."""
    steps = []

    def slow(model, ids, length, generator):
        clock.now += cost
        steps.append(watch._trainer.steps_done)
        return ids

    monkeypatch.setattr(live_training, "generate", slow)
    return steps


def test_a_sample_every_100_steps_and_at_the_end(watch, model, clock, monkeypatch):
    steps = sampled_steps(watch, monkeypatch, clock, cost=0.01)
    take(FakeTrainer(model, steps=450), watch, 450, clock, seconds=0.02)
    assert steps == [1, 101, 201, 301, 401, 450]


def test_slow_samples_are_taken_less_often(watch, model, clock, monkeypatch):
    steps = sampled_steps(watch, monkeypatch, clock, cost=1.0)
    take(FakeTrainer(model), watch, 999, clock, seconds=0.125)
    assert steps == [1, 321, 641, 961]  # 40 seconds apart


def test_watching_does_not_change_the_training(watch, tokenizer, model):
    data = Data.of(20 * TEXT)
    recipe = Recipe(steps=6, batch_size=4, evaluate_every=3, precision="float32")
    histories = []
    for watching in (None, watch):
        torch.manual_seed(5)
        learner = GPT(GPTConfig(tokenizer.vocab_size, 16, n_layer=1, n_head=2, n_embd=8, dropout=0.5))
        histories.append(train(learner, data, recipe, callback=watching))
    assert histories[0].losses == histories[1].losses
    assert watch.bar.value == 6


def test_a_sample_disturbs_neither_the_global_generator_nor_the_mode(watch, model):
    trainer = FakeTrainer(model)
    before = torch.get_rng_state()
    take(trainer, watch, 3)
    assert torch.equal(torch.get_rng_state(), before)
    assert model.training


def test_the_page_without_a_kernel_says_the_same_at_all_times(watch, model):
    before = watch._repr_mimebundle_()["text/plain"]
    take(FakeTrainer(model, steps=3), watch, 3)
    data = watch._repr_mimebundle_()
    assert data["text/plain"] == before == repr(watch)
    assert "application/vnd.jupyter.widget-view+json" in data
    assert not re.search(r"\d", before)
    assert not re.search(r"\d", repr(watch.figure.still()))


def test_a_prompt_that_cannot_be_written_is_refused_before_the_training(tokenizer):
    with pytest.raises(ValueError, match="prompt is empty"):
        LiveTraining(tokenizer, prompt="")
    with pytest.raises(ValueError, match="'Z'"):
        LiveTraining(tokenizer, prompt="Zoe")


BUSY = """
import time
from types import SimpleNamespace
from attention_course.explorers import LiveTraining, subject
from attention_course.training import History

watch = LiveTraining(subject.TOKENIZER)
history = History()
trainer = SimpleNamespace(model=subject.UNTRAINED, history=history, steps_done=0, done=False)
trainer.recipe = SimpleNamespace(steps=10**9)
start = time.monotonic()
stopped = False
while not stopped and time.monotonic() < start + 20:
    trainer.steps_done += 1
    history.losses.append(1.0)
    stopped = watch(trainer)
    if trainer.steps_done == 1:
        print(watch.stop.comm.comm_id, flush=True)
    time.sleep(0.01)
print("stopped" if stopped else "went on")
"""


def test_a_press_arrives_while_the_cell_is_running():
    """What JupyterLab sends when the button is pressed, to a kernel that is busy."""
    manager, client = start_new_kernel()
    try:
        client.control_channel.send(client.session.msg("create_subshell_request", {}))
        subshell = client.get_control_msg(timeout=20)["content"]["subshell_id"]
        client.execute(BUSY)
        printed = _printed_lines(client)
        comm = next(printed)
        press = {"comm_id": comm, "data": {"method": "custom", "content": {"event": "click"}}}
        message = client.session.msg("comm_msg", press)
        message["header"]["subshell_id"] = subshell
        client.shell_channel.send(message)
        assert next(printed) == "stopped"
    finally:
        client.stop_channels()
        manager.shutdown_kernel(now=True)


def _printed_lines(client):
    """Yield what the kernel prints, line by line; a line may come in pieces."""
    text = ""
    while True:
        message = client.get_iopub_msg(timeout=40)
        if message["msg_type"] == "error":
            raise AssertionError("\n".join(message["content"]["traceback"]))
        if message["msg_type"] == "stream" and message["content"]["name"] == "stdout":
            *lines, text = (text + message["content"]["text"]).split("\n")
            yield from lines
