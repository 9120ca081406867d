"""A training, live: the loss falls, the model writes, a button stops it."""

import html
import re

import pytest
import torch
from IPython.core.interactiveshell import InteractiveShell
from jupyter_client.manager import start_new_kernel

from attention_course.explorers import LiveTraining, live_training
from attention_course.gpt import GPT, GPTConfig
from attention_course.plots import Lines
from attention_course.text import CharTokenizer, Data
from attention_course.training import History, Recipe, Trainer, train


class Clock:
    """A clock that moves when it is told to."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now


@pytest.fixture(autouse=True)
def eight_characters(monkeypatch):
    """Let the model write eight characters: most tests ask only whether it wrote."""
    monkeypatch.setattr(live_training, "LENGTH", 8)


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


def test_the_button_stops_at_the_next_step(live, model):
    trainer = FakeTrainer(model)
    assert live.stop.disabled
    assert take(trainer, live, 5) == 5 * [False]
    assert not live.stop.disabled
    live.stop.click()
    assert take(trainer, live, 1) == [True]
    assert live.stop.disabled
    assert live.words.value == "stopped after step 6 of 1000, loss 0.67"
    assert live.bar.value == 6


def test_a_training_that_was_stopped_can_go_on(live, model):
    trainer = FakeTrainer(model)
    take(trainer, live, 5)
    live.stop.click()
    take(trainer, live, 1)
    assert take(trainer, live, 5) == 5 * [False]
    assert not live.stop.disabled


def test_another_training_begins_anew(live, model):
    take(FakeTrainer(model), live, 5)
    live.stop.click()  # nobody looked any more
    other = FakeTrainer(model, steps=7)
    assert take(other, live, 7) == 7 * [False]
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
    trainer = FakeTrainer(model, steps=3)
    shown.clear()
    take(trainer, live, 3, clock, seconds=0.01)
    assert len(shown) == 2
    assert len(shown[-1][0].x) == 3


def test_the_picture_shows_both_losses_and_the_floors(live, model):
    trainer = FakeTrainer(model, steps=120)
    take(trainer, live, 120)
    losses, text = live.figure.panels
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


def sampled_steps(live, monkeypatch, clock, cost):
    """Let each sample take `cost` seconds; return a list to which each adds its step."""
    steps = []

    def slow(model, ids, length, generator):
        clock.now += cost
        steps.append(live._trainer.steps_done)
        return ids

    monkeypatch.setattr(live_training, "generate", slow)
    return steps


def test_a_sample_every_100_steps_and_at_the_end(live, model, clock, monkeypatch):
    steps = sampled_steps(live, monkeypatch, clock, cost=0.01)
    take(FakeTrainer(model, steps=450), live, 450, clock, seconds=0.02)
    assert steps == [1, 101, 201, 301, 401, 450]


def test_a_line_of_each_sample_stays_in_the_film(model, clock, monkeypatch):
    tokenizer = CharTokenizer("the <mat>\na cat rat")
    live = LiveTraining(tokenizer)

    def written(model, ids, length, generator):
        line = ("the <mat>", "\na cat\nthe rat", "the mat")[live._trainer.steps_done // 100]
        return torch.cat([ids, tokenizer.encode(line)[None]], dim=1)

    monkeypatch.setattr(live_training, "generate", written)
    trainer = FakeTrainer(model, steps=200)
    take(trainer, live, 150)
    assert film(live) == ["step 1  the <mat>", "step 101  a cat"]
    take(trainer, live, 50)
    assert film(live) == ["step 1  the <mat>", "step 101  a cat", "your GPT  the mat"]
    take(FakeTrainer(model), live, 1)
    assert film(live) == ["step 1  the <mat>"]


def film(live):
    """Return the lines of the film, as they are read."""
    return [html.unescape(line).strip() for line in re.findall("<pre[^>]*>(.*?)</pre>", live.film.value)]


def test_slow_samples_are_taken_less_often(live, model, clock, monkeypatch):
    steps = sampled_steps(live, monkeypatch, clock, cost=1.0)
    take(FakeTrainer(model), live, 999, clock, seconds=0.125)
    assert steps == [1, 321, 641, 961]  # 40 seconds apart


def test_the_callback_does_not_change_the_training(live, tokenizer, text):
    data = Data.of(20 * text)
    recipe = Recipe(steps=6, batch_size=4, evaluate_every=3, precision="float32")
    histories = []
    for callback in (None, live):
        torch.manual_seed(5)
        learner = GPT(GPTConfig(tokenizer.vocab_size, 16, n_layer=1, n_head=2, n_embd=8, dropout=0.5))
        histories.append(train(learner, data, recipe, callback=callback))
    assert histories[0].losses == histories[1].losses
    assert live.bar.value == 6


def test_a_sample_disturbs_neither_the_global_generator_nor_the_mode(live, model):
    trainer = FakeTrainer(model)
    before = torch.get_rng_state()
    take(trainer, live, 3)
    assert torch.equal(torch.get_rng_state(), before)
    assert model.training


def test_the_page_without_a_kernel_says_the_same_at_all_times(live, model):
    before = live._repr_mimebundle_()
    assert set(before) == {"text/plain", "application/vnd.jupyter.widget-view+json"}
    take(FakeTrainer(model, steps=3), live, 3)
    data = live._repr_mimebundle_()
    assert f'<img alt="{live.figure.caption}" ' in data["text/html"]
    before = before["text/plain"]
    assert data["text/plain"] == before == repr(live)
    assert "application/vnd.jupyter.widget-view+json" in data
    assert not re.search(r"\d", before)
    assert not re.search(r"\d", repr(live.figure.still()))


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

live = LiveTraining(subject.TOKENIZER)
history = History()
trainer = SimpleNamespace(model=subject.UNTRAINED, history=history, steps_done=0, done=False)
trainer.recipe = SimpleNamespace(steps=10**9)
start = time.monotonic()
stopped = False
while not stopped and time.monotonic() < start + 20:
    trainer.steps_done += 1
    history.losses.append(1.0)
    stopped = live(trainer)
    if trainer.steps_done == 1:
        print(live.stop.comm.comm_id, flush=True)
    time.sleep(0.01)
print("stopped" if stopped else "went on")
"""


@pytest.mark.slow
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


def test_what_cannot_be_shown_is_refused_before_the_training(tokenizer, shapes_unchecked):
    with pytest.raises(TypeError, match="tokenizer is a str, expected a CharTokenizer"):
        LiveTraining("stories")
    with pytest.raises(ValueError, match=r"floors\['entropy'\] = 0, expected a number above 0"):
        LiveTraining(tokenizer, {"entropy": 0})


def test_of_a_long_text_the_end_is_shown(tokenizer, model):
    live = LiveTraining(tokenizer, prompt="a" + 4000 * "t")
    take(FakeTrainer(model, steps=1), live, 1)
    shown = live.figure.panels[1].text
    assert len(shown) == 4000
    assert shown.startswith(3992 * "t")
