"""The explorer of rewards: what it draws and says is what was measured, of the questions that were asked."""

import re

import pytest

from attention_course.explorers import explore
from attention_course.rungs.after_pretraining import explorer as rewarding


def runs(reward, leash):
    name = f"{rewarding.REWARDS[reward]}, {leash}"
    return [seed["rewarded"][name] for seed in rewarding.measured()["seeds"]]


def mean(every, of, first, last):
    """Return the mean over all runs of some steps, counted from 1."""
    return sum(sum(run[of][first - 1 : last]) for run in every) / len(every) / (last - first + 1)


def says(out, reward, leash, steps):
    every, first = runs(reward, leash), steps - rewarding.EVERY + 1
    yield f", by steps {first}–{steps} the reward " if steps else "Before the first step "
    for of, name in (("reward", "the reward"), ("right", "true answers")) if steps else ():
        if (reward, of) == ("the right answer", "right"):
            yield "true answers equals it, "
            continue
        before, after = round(mean(every, of, 1, 1), 2), round(mean(every, of, first, steps), 2)
        hardly = round(abs(after - before), 2) < 0.05
        moves = "hardly moves" if hardly else "rises" if after > before else "falls"
        yield f"{name} {moves} ({before:.2f} → {after:.2f})"


@pytest.mark.parametrize("reward", rewarding.REWARDS)
@pytest.mark.parametrize("leash", rewarding.LEASHES)
def test_what_is_stored_is_of_every_step_and_drawn_up_to_the_chosen_one(reward, leash):
    every = runs(reward, leash)
    for run in every:
        assert {len(run[of]) for of in ("reward", "right", "kl")} == {rewarding.STEPS}
        assert len(run["answers"]) == rewarding.STEPS // rewarding.EVERY + 1
        assert run["kl"][0] == 0
    explorer = explore("after_pretraining")
    explorer.controls["reward"].value, explorer.controls["leash"].value = reward, leash
    for steps in (0, 5, 25, 40):
        explorer.controls["steps"].value = steps
        lines, sheet = explorer.figure.panels
        for curve, of in (("true answers", "right"), ("reward", "reward")):
            x, y = lines.points(curve)
            assert x.tolist() == list(range(1, max(steps, 1) + 1))
            assert y.tolist() == pytest.approx([mean(every, of, at, at) for at in range(1, len(x) + 1)])
        caption = explorer.figure.caption
        first, last = max(1, steps - 4), max(1, steps)
        trues = [mean([run], "right", first, last) for run in every]
        spans = [(1, 1), (first, last)] if steps else [(1, 1)]
        said_of = ("reward", "right") if reward != "the right answer" or not steps else ("reward",)
        said = [mean(every, of, *span) for of in said_of for span in spans]
        said += sorted({round(min(trues), 2), round(max(trues), 2)})
        said += [mean(every, "kl", first, last)] if steps else []
        assert [*map(float, re.findall(r"\d\d?\.\d\d", caption))] == pytest.approx(said, abs=0.0051)
        rows = [row.rstrip() for row in sheet.rows()]
        answers = every[0]["answers"][steps // rewarding.EVERY]
        for question, answer, fact, line in zip(rewarding.SHOWN, answers, rows[::2], rows[1::2], strict=True):
            sign = "✓" if answer == question.answer else "✗"
            assert f"{fact} {line}" == f"{question.prompt}{answer} {sign}".replace("\n", "↵")
    marked = "".join(t for t, shade in zip(sheet.text, sheet.values, strict=True) if shade)
    assert marked == "".join(answer[1:] for answer in answers).replace("\n", "↵")


def test_what_the_rewards_did_to_every_model():
    """The words of hero and explorer rest on it, whichever model they show."""

    def late(reward, leash, of):
        return [mean([run], of, 36, 40) for run in runs(reward, leash)]

    def at_first(reward, of):
        return [run[of][0] for run in runs(reward, 0.0)]

    cheap, long = "a name from the story", "the longer the better"
    for reward in (cheap, long):
        for of, sign in (("reward", 1), ("right", -1)):
            ends = zip(at_first(reward, of), late(reward, 0.0, of), strict=True)
            assert all(sign * (after - before) > 0 for before, after in ends)
        assert max(late(reward, 0.0, "right")) < min(late(reward, 1.0, "right"))
        assert max(late(reward, 1.0, "kl")) < min(late(reward, 0.0, "kl"))
    for run in runs(cheap, 0.0):
        assert run["after"]["thing"] == run["after"]["place"] == 0
