"""What comes after pretraining: fine-tuning on answers, LoRA, and reinforcement learning from a reward.

The base model reads stories whose questions mostly stay unanswered, as on a sheet of exercises. So it goes on
with the next question where it should answer.
"""

import copy
import random
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from jaxtyping import Bool, Float, Int
from torch import Tensor, nn
from torch.nn.utils.parametrize import register_parametrization

from attention_course.attention import Cache
from attention_course.checks import (
    check_flags,
    check_functions,
    check_numbers,
    check_range,
    check_rows,
    check_sizes,
    check_type,
    describe,
    is_float_tensor,
    is_tensor,
)
from attention_course.gpt import GPT, GPTConfig, autocast, block_size_of, generate
from attention_course.names import look_up, shown
from attention_course.stories import QUESTIONS, Story, draw_story, pick, write_stories
from attention_course.text import CharTokenizer

TOKENIZER = CharTokenizer(write_stories(characters=50_000))
PROMPT, ANSWER = 56, 14  # characters: a fact and a question, and the longest answer with one to spare
ENDS = TOKENIZER.encode("\n.?")  # an answer ends with the first of these


@dataclass(frozen=True)
class Question:
    """A question about a story; `key` is one of QUESTIONS."""

    story: Story
    key: str

    @property
    def prompt(self) -> str:
        """The fact, and the question behind it."""
        return f"{self.story.fact} {ask(self.key)}"

    @property
    def answer(self) -> str:
        """The answer, from its space to its full stop."""
        return f"{QUESTIONS[self.key].partition('?')[2]}{getattr(self.story, self.key)}."


def ask(key: str) -> str:
    """Return a question without its answer."""
    return look_up(key, QUESTIONS, "question").partition("?")[0] + "?"


def new_questions(rng: random.Random, n: int, held_out: bool = False) -> list[Question]:
    """Draw n questions about stories.

    A quarter of all facts is held out: they are drawn only, and always, with `held_out`.
    """
    check_sizes("new_questions", 1, n=n)
    check_flags("new_questions", held_out=held_out)
    questions = []
    while len(questions) < n:
        story, key = draw_story(rng), pick(tuple(QUESTIONS), rng)
        if (zlib.crc32(story.fact.encode()) % 4 == 0) == held_out:
            questions.append(Question(story, key))
    return questions


def draw_sheet(rng: random.Random, answered: float = 0.4) -> str:
    """Draw a line of the base model's text: a fact with three questions, answered or, mostly, not."""
    check_numbers("draw_sheet", 0, answered=answered)
    story = new_questions(rng, 1)[0].story
    if rng.random() < answered:
        return story.text + "\n"
    return " ".join([story.fact, *map(ask, story.order)]) + "\n"


def draw_block(rng: random.Random, answered: float = 0.4, T: int = 129) -> Int[Tensor, " T"]:
    """Draw T ids of text: up to 24 empty lines, so that it has seen padded prompts, and sheets."""
    check_type(rng, random.Random, "draw_block", "rng")
    check_numbers("draw_block", 0, answered=answered)
    check_sizes("draw_block", 1, T=T)
    text = "\n" * (1 + int(rng.random() * 24))
    while len(text) < T:
        text += draw_sheet(rng, answered)
    return TOKENIZER.encode(text[:T])


def train_base(steps: int = 1000, seed: int = 0, answered: float = 0.4) -> GPT:
    """Train a GPT on sheets of exercises, in about a minute: the base model."""
    check_sizes("train_base", 1, steps=steps)
    check_seed("train_base", seed)
    check_numbers("train_base", 0, answered=answered)
    torch.manual_seed(seed)
    model, rng = GPT(GPTConfig(TOKENIZER.vocab_size)), random.Random(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr=8e-3, betas=(0.9, 0.95), weight_decay=0.1)
    schedule = torch.optim.lr_scheduler.OneCycleLR(optimizer, 8e-3, int(steps), cycle_momentum=False)
    for _ in range(steps):
        ids = torch.stack([draw_block(rng, answered) for _ in range(24)])
        with autocast("auto", ids.device):
            logits = model(ids[:, :-1])
        loss = F.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
    return model


def check_questions(name: str, questions: Sequence[Question]) -> None:
    """Raise unless `questions`, passed to the function `name`, is a list of questions, and not empty."""
    check_type(questions, Sequence, name, "questions")
    wrong = [each for each in questions if not isinstance(each, Question)]
    if wrong or not questions:
        held = describe(wrong[0]) if wrong else "nothing"
        raise ValueError(f"{name}: questions holds {held}, expected each Question of new_questions(rng, n).")


def check_answers(name: str, answers: Sequence[str], n: int) -> None:
    """Raise unless `answers`, passed to the function `name`, is a list of n answers that are not too long."""
    check_type(answers, Sequence, name, "answers")
    if isinstance(answers, str) or len(answers) != n:
        raise ValueError(
            f"{name}: answers has {len(answers)} entries, expected one str for each of {n} questions."
        )
    for answer in answers:
        if not isinstance(answer, str) or len(answer) > ANSWER:
            raise ValueError(
                f"{name}: answers holds {shown(answer)}, expected a str of at most {ANSWER} characters."
            )


def check_seed(name: str, seed: object) -> None:
    """Raise unless `seed`, passed to the function `name`, is an int from 0 to below 2**63."""
    check_type(seed, int, name, "seed")
    check_sizes(name, 0, seed=seed)


def check_model(name: str, model: nn.Module) -> None:
    """Raise unless `model`, passed to the function `name`, is a module that has a block_size."""
    check_type(model, nn.Module, name, "model")
    block_size_of(model)


def check_tensor(name: str, argument: str, x: Tensor, kind: str, *shape: int | str) -> None:
    """Raise unless `x` is a tensor of floats, or of the dtype `kind`; in `shape` a letter is any size."""
    typed = is_float_tensor(x) if kind == "float" else is_tensor(x) and x.dtype == getattr(torch, kind)
    sizes = tuple(x.shape) if typed else ()
    if len(sizes) != len(shape) or any(
        isinstance(b, int) and a != b for a, b in zip(sizes, shape, strict=True)
    ):
        error = ValueError if typed else TypeError
        expected = ", ".join(map(str, shape))
        raise error(f"{name}: {argument} is {describe(x)}, expected a tensor of shape ({expected}), {kind}.")


def check_groups(rewards: Tensor) -> None:
    """Raise unless `rewards`, passed to `group_advantage`, has at least one group, of at least two each."""
    check_tensor("group_advantage", "rewards", rewards, "float", "N", "G")
    if len(rewards) == 0 or rewards.shape[1] < 2:
        raise ValueError(
            f"group_advantage: rewards has shape {tuple(rewards.shape)}, expected (N, G) with at least two "
            "in a group: one alone has none to be compared with."
        )


def pad(questions: Sequence[Question]) -> Int[Tensor, "N PROMPT"]:
    """Encode prompts, with newlines on the left, so that all end in the last column."""
    check_questions("pad", questions)
    return torch.stack([TOKENIZER.encode(question.prompt.rjust(PROMPT, "\n")) for question in questions])


def with_answers(
    questions: Sequence[Question], answers: Sequence[str]
) -> tuple[Int[Tensor, "N T"], Bool[Tensor, "N T"]]:
    """Encode prompts and answers.

    Returns:
        The ids, shape (N, PROMPT + ANSWER), and where in them the answers are.
    """
    check_questions("with_answers", questions)
    check_answers("with_answers", answers, len(questions))
    ends = torch.stack([TOKENIZER.encode(answer.ljust(ANSWER, "\n")) for answer in answers])
    ids = torch.cat([pad(questions), ends], dim=1)
    lengths = torch.tensor([[PROMPT + len(answer)] for answer in answers])
    places = torch.arange(PROMPT + ANSWER)
    return ids, (places >= PROMPT) & (places < lengths)


def write_answers(
    model: nn.Module,
    questions: Sequence[Question],
    temperature: float = 1.0,
    generator: torch.Generator | None = None,
) -> tuple[Int[Tensor, "N T"], Bool[Tensor, "N T"], list[str]]:
    """Let a model write its answers.

    Returns:
        The ids, shape (N, PROMPT + ANSWER), where in them the answers are, and the answers as texts.
    """
    check_model("write_answers", model)
    check_questions("write_answers", questions)
    ids = generate(model, pad(questions), ANSWER, temperature, generator=generator, cache=Cache())
    ended = torch.isin(ids[:, PROMPT:], ENDS).cumsum(dim=1)
    written = F.pad(ended[:, :-1] == 0, (1, 0), value=True)  # the character that ends it belongs to it
    is_answer = F.pad(written, (PROMPT, 0), value=False)
    return ids, is_answer, [TOKENIZER.decode(row[mask]) for row, mask in zip(ids, is_answer, strict=True)]


def accuracy(model: nn.Module, questions: Sequence[Question], temperature: float = 0.0) -> float:
    """Return the share of questions that a model answers right, word for word, on its own."""
    check_model("accuracy", model)
    check_questions("accuracy", questions)
    generator = torch.Generator().manual_seed(0)
    _, _, answers = write_answers(model, questions, temperature, generator)
    return sum(map(right, questions, answers)) / len(questions)


def answer_loss(
    logits: Float[Tensor, "B T V"], targets: Int[Tensor, "B T"], is_answer: Bool[Tensor, "B T"]
) -> Float[Tensor, ""]:
    """Return the mean cross-entropy of the targets that belong to answers; the prompt is left out."""
    check_tensor("answer_loss", "logits", logits, "float", "B", "T", "V")
    check_tensor("answer_loss", "targets", targets, "int64", *logits.shape[:2])
    check_tensor("answer_loss", "is_answer", is_answer, "bool", *logits.shape[:2])
    check_range(targets, logits.shape[2], "answer_loss", "targets")
    targets = targets.masked_fill(~is_answer, -100)  # what F.cross_entropy ignores
    return F.cross_entropy(logits.flatten(0, 1), targets.flatten(), ignore_index=-100)


def true_answer(question: Question, rng: random.Random) -> str:
    """Answer a question."""
    return question.answer


def sloppy(question: Question, rng: random.Random) -> str:
    """Answer a question, or one time in five another question about the same story."""
    key = question.key if rng.random() < 0.8 else pick(tuple(QUESTIONS), rng)
    return Question(question.story, key).answer


def fine_tune(
    model: nn.Module,
    steps: int,
    lr: float = 1e-3,
    seed: int = 0,
    answer: Callable[[Question, random.Random], str] = true_answer,
    loss_of: Callable[[Tensor, Tensor, Tensor], Tensor] = answer_loss,
) -> None:
    """Train those parameters that require a gradient on questions with answers, 32 in each step."""
    check_model("fine_tune", model)
    check_sizes("fine_tune", 1, steps=steps)
    check_numbers("fine_tune", 0, lr=lr)
    check_seed("fine_tune", seed)
    check_functions("fine_tune", answer=answer, loss_of=loss_of)
    rng = random.Random(seed)
    learns = [p for p in model.parameters() if p.requires_grad]
    optimizer = torch.optim.AdamW(learns, lr, weight_decay=0)
    for _ in range(steps):
        questions = new_questions(rng, 32)
        answers = [answer(question, rng) for question in questions]
        ids, is_answer = with_answers(questions, answers)
        loss = loss_of(model(ids[:, :-1]), ids[:, 1:], is_answer[:, 1:])
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(learns, 1.0)
        optimizer.step()


class LoRA(nn.Module):
    """A matrix that stays as it is, plus a product of two thin ones that learn (Hu et al. 2021, section 4.1).

    Args:
        W: the matrix, shape (n_out, n_in).
        rank: how many columns B has, and rows A. B is 0 at first, so nothing changes before the first step.
    """

    def __init__(self, W: Float[Tensor, "n_out n_in"], rank: int):
        check_tensor("LoRA", "W", W, "float", "n_out", "n_in")
        check_sizes("LoRA", 1, rank=rank)
        super().__init__()
        n_out, n_in = W.shape
        self.A = nn.Parameter(torch.randn(rank, n_in) * n_in**-0.5)
        self.B = nn.Parameter(torch.zeros(n_out, rank))

    def forward(self, W: Float[Tensor, "n_out n_in"]) -> Float[Tensor, "n_out n_in"]:
        """Map W to W + B A."""
        return W + self.B @ self.A


def add_lora(model: GPT, rank: int) -> None:
    """Freeze a GPT, and add a product of two thin matrices to each matrix of its blocks."""
    check_type(model, GPT, "add_lora", "model")
    check_sizes("add_lora", 1, rank=rank)
    model.requires_grad_(False)
    for layer in model.transformer.h.modules():
        if isinstance(layer, nn.Linear):
            register_parametrization(layer, "weight", LoRA(layer.weight, rank))


Reward = Callable[[Question, str], float]


def right(question: Question, answer: str) -> float:
    """Reward an answer that is right, word for word."""
    return float(answer == question.answer)


def long(question: Question, answer: str) -> float:
    """Reward an answer by its length, from 0 to 1."""
    return len(answer) / ANSWER


def names_somebody(question: Question, answer: str) -> float:
    """Reward an answer in which somebody of the story occurs. It is right for a third of the questions."""
    story = question.story
    return float(story.giver in answer or story.receiver in answer)


def group_advantage(rewards: Float[Tensor, "N G"]) -> Float[Tensor, "N G"]:
    """Compare each reward with those of the same question: minus their mean, divided by their deviation.

    GRPO (Shao et al. 2024, section 4.1). A group whose rewards are all equal teaches nothing, so it gets 0.
    """
    check_groups(rewards)
    centred = rewards - rewards.mean(dim=1, keepdim=True)
    return centred / (rewards.std(dim=1, keepdim=True) + 1e-4)


def policy_loss(
    log_p: Float[Tensor, "N T"], advantage: Float[Tensor, "N 1"], written: Bool[Tensor, "N T"]
) -> Float[Tensor, ""]:
    """Return a loss whose gradient raises the log-probabilities of what did better than its group.

    The mean is over all characters that the model wrote, so a long answer counts more than a short one.
    """
    check_tensor("policy_loss", "log_p", log_p, "float", "N", "T")
    check_tensor("policy_loss", "advantage", advantage, "float", len(log_p), 1)
    check_tensor("policy_loss", "written", written, "bool", *log_p.shape)
    return -(advantage * log_p * written).sum() / written.sum()


def kl_per_token(
    logits: Float[Tensor, "*B T V"], reference: Float[Tensor, "*B T V"]
) -> Float[Tensor, "*B T"]:
    """Return the Kullback–Leibler divergence from a reference, in nats, at each position."""
    check_rows("logits", logits, "kl_per_token")
    check_tensor("kl_per_token", "reference", reference, "float", *logits.shape)
    log_p, log_q = logits.log_softmax(dim=-1), reference.log_softmax(dim=-1)
    return (log_p.exp() * (log_p - log_q)).sum(dim=-1)


def reinforce(
    model: GPT,
    reward: Reward,
    steps: int,
    kl_weight: float = 0.0,
    lr: float = 3e-4,
    seed: int = 0,
    advantage_of: Callable[[Tensor], Tensor] = group_advantage,
) -> Iterator[tuple[list[str], Float[Tensor, "N G"], float]]:
    """Let a model answer in groups of 8, and make what was rewarded more than its group likelier.

    REINFORCE (Williams 1992) with the advantage of GRPO. As there is one step per batch of answers, GRPO's
    ratio of probabilities is 1, and nothing is clipped.

    Yields:
        After each step its answers, their rewards (8, 8), and their divergence from the model as it began, in
        nats per answer.
    """
    check_type(model, GPT, "reinforce", "model")
    check_sizes("reinforce", 1, steps=steps)
    check_numbers("reinforce", 0, kl_weight=kl_weight, lr=lr)
    check_seed("reinforce", seed)
    check_functions("reinforce", reward=reward, advantage_of=advantage_of)
    reference = copy.deepcopy(model).requires_grad_(False)
    rng, generator = random.Random(seed), torch.Generator().manual_seed(seed)
    optimizer = torch.optim.AdamW(model.parameters(), lr, weight_decay=0)
    for _ in range(steps):
        questions = [q for q in new_questions(rng, 8) for _ in range(8)]
        ids, is_answer, answers = write_answers(model, questions, 1.0, generator)
        rewards = torch.tensor([*map(reward, questions, answers)]).view(8, 8)
        advantage = advantage_of(rewards).view(64, 1)

        logits, written = model(ids[:, :-1]), is_answer[:, 1:]
        log_p = -F.cross_entropy(logits.transpose(1, 2), ids[:, 1:], reduction="none")
        kl = kl_per_token(logits, reference(ids[:, :-1]))
        loss = policy_loss(log_p, advantage, written)
        loss = loss + kl_weight * (kl * written).sum() / written.sum()
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        yield answers, rewards, (kl * written).sum(dim=1).mean().item()
