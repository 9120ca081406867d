"""A training, live: the loss falls, the model writes, a button stops it."""

import html
import re
from types import SimpleNamespace

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell

from attention_course.explorers import LiveTraining, live_training
from attention_course.gpt import GPT, GPTConfig
from attention_course.text import CharTokenizer, Corpus
from attention_course.training import History, Recipe, Trainer, train


@pytest.fixture(autouse=True)
def eight_characters(monkeypatch):
    """Let the model write eight characters: most tests ask only whether it wrote."""
    monkeypatch.setattr(live_training, "LENGTH", 8)


@pytest.fixture
def clock(monkeypatch):
    """A clock that moves when it is told to."""
    clock = SimpleNamespace(now=100.0)
    monkeypatch.setattr(live_training, "perf_counter", lambda: clock.now)
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


def take(trainer, live, steps, clock=None, seconds=0.0):
    """Take steps as `train` does; return what `live` said to each."""
    said = []
    for _ in range(steps):
        trainer.step()
        if clock:
            clock.now += seconds
        said.append(live(trainer))
    return said


@pytest.fixture
def live(tokenizer):
    return LiveTraining(tokenizer, {"bigram floor": 1.5, "entropy": 0.25}, prompt="the ")


def test_the_button_stops_at_the_next_step_and_the_training_can_go_on(live, model):
    trainer = FakeTrainer(model)
    assert live.stop.disabled
    assert take(trainer, live, 5) == 5 * [False]
    assert not live.stop.disabled
    live.stop.click()
    assert take(trainer, live, 1) == [True]
    assert live.stop.disabled
    assert live.words.value == "stopped after step 6 of 1000, loss 0.67"
    assert live.bar.value == 6
    assert take(trainer, live, 5) == 5 * [False]
    live.stop.click()  # nobody looks any more
    assert take(FakeTrainer(model, steps=7), live, 7) == 7 * [False]
    assert (live.bar.value, live.bar.max) == (7, 7)


def test_an_interrupt_is_shown_like_a_stop(live, model):
    trainer = FakeTrainer(model)
    take(trainer, live, 5)
    trainer.history.stopped = True
    live(trainer)
    assert live.words.value == "stopped after step 5 of 1000, loss 0.80"
    assert live.stop.disabled


def test_progress_in_words(live, model, clock):
    trainer = FakeTrainer(model)
    take(trainer, live, 1, clock)
    take(trainer, live, 119, clock, seconds=0.25)
    assert live.words.value == "step 120 of 1000, loss 0.03, 218 s left"
    take(trainer, live, 880, clock, seconds=0.25)
    assert live.words.value == "1000 steps in 250 s, loss 0.00"


def test_five_pictures_a_second_at_most_and_one_at_the_end(live, model, clock, monkeypatch):
    shown = []
    monkeypatch.setattr(live.figure, "show", lambda *panels, caption: shown.append(panels))
    take(FakeTrainer(model), live, 999, clock, seconds=0.01)
    assert 45 <= len(shown) <= 51  # in ten seconds
    shown.clear()
    take(FakeTrainer(model, steps=3), live, 3, clock, seconds=0.01)
    assert [len(losses.x) for losses, _ in shown] == [1, 3]


def test_the_picture_shows_both_losses_the_floors_and_the_end_of_a_sample(tokenizer, model):
    floors = {"bigram floor": 1.5, "entropy": 0.25}
    live = LiveTraining(tokenizer, floors, prompt="a" + 4000 * "t")
    trainer = FakeTrainer(model, steps=120)
    take(trainer, live, 120)
    losses, text = live.figure.panels
    training, validation = (losses.points(name) for name in ("training", "validation"))
    assert training[1].tolist() == pytest.approx(trainer.history.losses)
    assert validation[0].tolist() == [50, 100]
    assert validation[1].tolist() == pytest.approx([0.18, 0.14])
    assert losses.levels == floors
    assert losses.state()["x_limits"] == [1, 120]
    assert text.title == "Written after step 120"
    assert len(text.text) == 4000
    assert text.text.startswith(3992 * "t")


@pytest.mark.parametrize(
    ("cost", "seconds", "expected"),
    [(0.01, 0.02, [1, 101, 201, 301, 401, 450]), (1.0, 0.125, [1, 321, 450])],  # slow ones 40 seconds apart
)
def test_a_sample_every_100_steps_or_more_if_it_takes_long(
    cost, seconds, expected, live, model, clock, monkeypatch
):
    trainer, steps = FakeTrainer(model, steps=450), []

    def generate(model, ids, length, generator):
        clock.now += cost
        steps.append(trainer.steps_done)
        return ids

    monkeypatch.setattr(live_training, "generate", generate)
    take(trainer, live, 450, clock, seconds)
    assert steps == expected


def test_a_line_of_each_sample_stays_in_the_film(model, clock, monkeypatch):
    tokenizer = CharTokenizer("the <mat>\na cat rat")
    live, lines = LiveTraining(tokenizer), iter(["the <mat>", "\na cat\nthe rat", "the mat", "the rat"])

    def written(model, ids, length, generator):
        return torch.cat([ids, tokenizer.encode(next(lines))[None]], dim=1)

    def film():
        return [html.unescape(line).strip() for line in re.findall("<pre[^>]*>(.*?)</pre>", live.film.value)]

    monkeypatch.setattr(live_training, "generate", written)
    take(FakeTrainer(model, steps=200), live, 200)
    assert film() == ["step 1  the <mat>", "step 101  a cat", "your GPT  the mat"]
    take(FakeTrainer(model), live, 1)
    assert film() == ["step 1  the rat"]


def test_the_callback_changes_neither_the_training_nor_the_mode(live, tokenizer, text):
    data = Corpus.of(20 * text)
    recipe = Recipe(steps=6, batch_size=4, evaluate_every=3, precision="float32")
    histories = []
    for callback in (None, live):
        torch.manual_seed(5)
        learner = GPT(GPTConfig(tokenizer.vocab_size, 16, n_layer=1, n_head=2, n_embd=8, dropout=0.5))
        histories.append(train(learner, data, recipe, callback=callback))
    assert histories[0].losses == histories[1].losses
    assert live.bar.value == 6


def test_the_page_without_a_kernel_says_the_same_at_all_times(live, model):
    before = live._repr_mimebundle_()
    assert set(before) == {"text/plain", "application/vnd.jupyter.widget-view+json"}
    take(FakeTrainer(model, steps=3), live, 3)
    data = live._repr_mimebundle_()
    assert f'<img alt="{live.figure.caption}" ' in data["text/html"]
    assert data["text/plain"] == before["text/plain"] == repr(live)
    assert "application/vnd.jupyter.widget-view+json" in data
    assert not re.search(r"\d", repr(live) + repr(live.figure.still()))


DIVERGE = """
for _ in range(5):
    trainer.step()
    live(trainer)
raise FloatingPointError("Trainer: the loss of step 6 is nan. Begin again with a smaller learning rate.")
"""


@pytest.fixture
def shell():
    shell = InteractiveShell.instance()
    shell.history_manager.enabled = False
    yield shell
    InteractiveShell.clear_instance()


def test_a_training_that_breaks_off_says_why_and_the_button_rests(live, model, shell):
    shell.push({"live": live, "trainer": FakeTrainer(model)})
    shell.run_cell(DIVERGE)
    assert live.stop.disabled
    assert live.words.value == "aborted after step 5 of 1000"
    assert "FloatingPointError: Trainer: the loss of step 6 is nan. Begin again with" in live.figure.caption
    shell.run_cell("raise ValueError('of another cell')")
    assert "another" not in live.figure.caption
    shell.run_cell("trainer.step(); live(trainer)")
    assert live.words.value == "aborted after step 6 of 1000"


def test_a_training_that_comes_to_its_end_says_so_after_its_cell_too(live, model, shell):
    shell.push({"live": live, "trainer": FakeTrainer(model, steps=2)})
    shell.run_cell("for _ in range(2): trainer.step(); live(trainer)")
    assert live.words.value.startswith("2 steps in")
