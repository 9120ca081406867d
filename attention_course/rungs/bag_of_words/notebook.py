# %% [markdown]
# # Rung {bag_of_words}: bag of words
#
# <!--ladder-->
#
# **You will build** a model that counts which letter follows which, and then one that averages everything it has read so far, the simplest way to see more than one letter.
#
# <!--staircase-->
#
# You know who got the drum, because you've read the sentence. A table of letter pairs can't know, because it sees only one letter, the last. Let's build it, and then let it see more.

# %% tags=["hero", "folded"]
# Where this leads: a machine that learns to write. Guess, then watch
from attention_course.heroes import hero

hero("ladder")

# %% [markdown]
# **You need** Python, the natural logarithm ln, and tensors with their indices, slices and shapes.
#
# <!--time-->
#
# <!--test-out-->
#
# ## A model that only counts
#
# Every character of the text gets a number. `counts[i][j]` will say how often character j came right after character i.

# %% tags=["folded"]
# Imports
import torch

from attention_course.exercises import check
from attention_course.explorers import explore
from attention_course.fills import fill
from attention_course.plots import Lines, picture
from attention_course.progress import progress
from attention_course.questions import ask
from attention_course.text import CharTokenizer, load_text, train_val_split

progress("bag_of_words")

# %%
text = load_text("stories")
tokenizer = CharTokenizer(text)
V = tokenizer.vocab_size
train_ids, val_ids = train_val_split(
    tokenizer.encode(text)
)  # the last tenth is kept for later
ids = train_ids.tolist()

print(text[:139])
print(f"... {len(text):,} characters, {V} different ones")
print("The first word, in numbers:", ids[:4])

# %% tags=["folded"]
# Fill in: count the pairs
fill("count_pairs")

# %% tags=["folded", "name:count_pairs"]
# The pairs, counted
counts = [[0] * V for _ in range(V)]
for t in range(len(ids) - 1):
    counts[ids[t]][ids[t + 1]] += 1

# %% [markdown]
# That is all the learning this model does. Divide each row by its sum, and the counts become probabilities. Row "o" then says how likely each character is to follow an "o".

# %% tags=["do"]
shares = [[n / sum(row) for n in row] for row in counts]
table = torch.tensor(shares)  # (V, V)

letter = "o"
row = table[tokenizer.characters.index(letter)]
for p, i in zip(*row.topk(4)):  # the four largest, and where they are
    print(f"{p:.2f}  {tokenizer.characters[i]!r}")

# %% [markdown]
# Change "o" to another letter, and run the cell again. Can you find one that leaves no doubt about what comes next? (Look for one that is always followed by the same letter.)
#
# What you have built is a **language model**, which reads a text and says how likely each possible continuation is. The pieces that a language model reads and writes are called **tokens**. Ours are single characters, spaces included; the models that you chat with use longer pieces, of a few letters each. All the tokens that a model knows are its **vocabulary**, and V is how many there are.
#
# Now let it continue from `Who got it? Poor `, where somebody's name should follow.

# %% tags=["folded"]
# Question
ask("after_a_space")

# %% tags=["do"]
torch.manual_seed(1)
line = tokenizer.encode("Who got it? Poor ").tolist()
for _ in range(40):
    probabilities = table[line[-1]]  # (V,): only the last character counts
    drawn = torch.multinomial(probabilities, 1)  # draw one at random
    line.append(drawn.item())
print(tokenizer.decode(torch.tensor(line)))

# %% [markdown]
# There is the line from the top of this page. Try other seeds. Does it ever answer the question?
#
# ## How wrong is it?
#
# "It writes nonsense" is true, but we can't improve what we can't measure. So let the model read a text that it hasn't counted, and see how surprised it is by each character that actually comes. If it gave that character a probability of 1, it isn't surprised. The smaller the probability p was, the larger the surprise should be, and when two surprising things happen one after the other, their surprises should add up. The probabilities of the two multiply, so we want a logarithm, because it turns products into sums. The surprise is −ln p.
#
# The average surprise over a text is the **loss** of a language model. It's measured in **nats** per character, because the logarithm is the natural one. Every model in this course gets that number, and lower is better.

# %% tags=["folded"]
# Question
ask("loss_of_a_guess")

# %% [markdown]
# We held back the last tenth of the text for this, and counted none of it. If you give PyTorch two lists of indices, it takes them in pairs, so `table[[0, 1], [1, 2]]` holds the entries (0, 1) and (1, 2).

# %% tags=["folded"]
# Fill in: the loss of the table
fill("loss_of_the_table")

# %% tags=["folded", "name:loss_of_the_table"]
# The loss of the table
before, after = val_ids[:-1], val_ids[1:]
p = table[before, after]  # what the table gave each character that came
surprise = -p.log()
loss = surprise.mean()
print(f"{loss:.2f} nats per character")

# %% [markdown]
# So a table made by nothing but counting does far better than guessing. On average it's as unsure as if {{loss.exp():.0f}} characters were equally likely instead of all {{V}}, because ln {{loss.exp():.0f}} is about {{loss.exp().round().log():.1f}}. (A pair that was never counted would have a probability of 0 and an infinite surprise. That doesn't happen here. Where it could, people first add 1 to every count.)
#
# Let's take one line, character by character, and see where the table is most surprised.

# %% tags=["do"]
line = "it? Poor Sam."
line_ids = tokenizer.encode(line)
surprise = -table[line_ids[:-1], line_ids[1:]].log()
print("".join(f"{c:>5}" for c in line[1:].replace(" ", "␣")))
print("".join(f"{s:5.1f}" for s in surprise.abs()))  # abs: 0.0, not -0.0

# %% [markdown]
# The "S" is the biggest surprise in the line. No wonder, since it had to be guessed from a space. Write the line with another name, and see whether the table notices that your answer is wrong.
#
# ## Let it see the past
#
# It doesn't notice, and it can't, since the word that settles it came some forty letters earlier. So let's give the model the whole past. The simplest way to use it is to let every letter speak. Each one puts forward its row of the table, which says what *it* would expect next, and we take the mean of these rows. After "Poor", that is the mean of the rows "P", "o", "o" and "r".
#
# Rows of 33 numbers are too long to check by hand, so let's try the same idea on a smaller scale, with four tokens of two numbers each.

# %%
x = torch.tensor([[2.0, 8.0], [4.0, 4.0], [6.0, 0.0], [0.0, 4.0]])
x.shape

# %% [markdown]
# So far a token was a character, and its numbers were its row of the table. From here on you'll see the numbers alone, wherever they come from. The numbers of a token are called its channels, and a sequence of T tokens with C channels each is a tensor of shape (T, C). Here T = 4 and C = 2, so each token is a point in the plane. The position of a token is also called its time t, because we read from left to right.

# %% tags=["folded"]
# Question
ask("mean_at_one")

# %% [markdown]
# The past of position t, the token itself included, is a slice of `x`. Write it, and average over time, which is dimension 0. The channels, dimension 1, stay apart.

# %% tags=["folded"]
# Fill in: the mean of the past at position 1
fill("mean_of_the_past")

# %% tags=["folded", "name:mean_of_the_past"]
# The mean of the past at position 1
t = 1
past = x[: t + 1]  # (t + 1, C)
past.mean(dim=0)

# %% [markdown]
# What happens to the mean as more and more tokens come in?

# %% tags=["hero", "folded"]
# The picture of this rung. Guess, then press Play; drag a token, shuffle
hero("bag_of_words")

# %% [markdown]
# When token t arrives, it is one of t + 1, so it pulls the mean 1/(t + 1) of the way. That's halfway at first, then a third, then less and less, and all tokens end up with the same share. Keep that in mind, because it will cost us.
#
# ## Every position
#
# One loop over time does it for all positions.

# %% tags=["folded"]
# Fill in: the loop
fill("every_position")

# %% tags=["folded", "name:every_position"]
# The loop
T, C = x.shape
means = torch.zeros(T, C)
for t in range(T):
    means[t] = x[: t + 1].mean(dim=0)
means

# %% [markdown]
# Check the last row in your head: (2 + 4 + 6 + 0) / 4 = {{means[-1, 0]:.0f}}.
#
# Models read several texts at once, in a batch of B texts, which has the shape (B, T, C). The texts have nothing to do with each other, so each is averaged on its own. Can one function serve both shapes? It can if you count dimensions from the end, because time is always -2 and the channels are always -1. The three dots stand for whatever comes before. `assert_close` compares two tensors, and says nothing if they agree.


# %%
def causal_mean_loop(x):
    out = torch.zeros_like(x)
    for t in range(x.shape[-2]):
        out[..., t, :] = x[..., : t + 1, :].mean(dim=-2)
    return out


torch.testing.assert_close(causal_mean_loop(x), means)

# %% [markdown]
# ### More: the batch, with a loop of its own
#
# Without the three dots you would write a second loop, over the texts. Both ways give the same means.

# %%
torch.manual_seed(1)
B, T, C = 4, 8, 2
batch = torch.randn(B, T, C)

# %% tags=["folded"]
# Fill in: a loop over the batch around it
fill("mean_of_each_text")

# %% tags=["folded", "name:mean_of_each_text"]
# Both loops
batch_means = torch.zeros(B, T, C)
for b in range(B):
    for t in range(T):
        batch_means[b, t] = batch[b, : t + 1].mean(dim=0)
batch_means.shape

# %% tags=["folded"]
# Both ways give the same
torch.testing.assert_close(causal_mean_loop(batch), batch_means)

# %% [markdown]
# ## Back to the stories
#
# Now the real thing. We cut the text that we held back into pieces of 128 characters, look up the row of each character (if an index is a whole tensor, each number in it is replaced by its row), and take the mean of the past at every position. Every row sums to 1 and so does their mean, which makes the mean at t a prediction of character t + 1. What will its loss be?

# %% tags=["folded"]
# Question
ask("more_to_see")

# %%
T = 128
B = len(val_ids) // T  # how many pieces of T characters fit
pieces = val_ids[: B * T].reshape(B, T)
predictions = causal_mean_loop(table[pieces])  # (B, T, V)
piece = torch.arange(B)  # 0, 1, ..., B - 1

surprise = torch.zeros(T - 1)
for t in range(T - 1):
    came = pieces[:, t + 1]  # (B,)
    p = predictions[piece, t, came]  # (B,): piece b with came[b]
    surprise[t] = -p.log().mean()
print(f"one letter: {loss:.2f}   all letters: {surprise.mean():.2f}")

# %% [markdown]
# Read both numbers again. We gave the model *everything* there is to know, and it got much worse. It's almost as bad as a model that only knows which characters are common. (The 2.28<!--given--> at the top of the page is a mean that was trained. We'll come to that at the end.) Let's see where it goes wrong.

# %% tags=["folded"]
# Picture: the loss at each position
common = torch.tensor(counts).sum(dim=0) / len(ids)
nothing = -common[val_ids].log().mean().item()
picture(
    Lines(
        "The more it has seen, the worse it gets",
        torch.arange(1, T),
        {"mean of the past": surprise},
        "characters seen",
        "loss, in nats per character",
        log=False,
        levels={
            "one letter": loss.item(),
            "which are common": nothing,
        },
    ),
    alt="A curve that starts at the loss of the table, climbs steeply over "
    "the first ten characters, and ends near the level of a model that "
    "only knows which characters are common.",
)

# %% [markdown]
# At the first position the mean *is* the table, because one letter is all the past there is. From then on more and more letters speak, and all of them count the same. The last letter, the one that knew so much about the next, is soon one voice among a hundred, and it's drowned out.
#
# The others don't keep quiet, either. The row of an old letter says what follows *that* letter, and that was settled long ago. So even a second voice does harm, as you'll see in exercise 2.
#
# ## What is lost
#
# There is one more reason, and it's the worst. Look at the small example again.

# %% tags=["folded"]
# Question
ask("swap_two_tokens")

# %%
swapped = x[[1, 0, 2, 3]]
changed = (causal_mean_loop(swapped) != causal_mean_loop(x)).any(dim=-1)
assert not changed[-1]
changed

# %% [markdown]
# A mean doesn't depend on the order of what goes in. Tokens go into it like words into a bag, and come out in no order, hence the name **bag of words**. For our question that's fatal, as two stories with the same letters show.

# %% tags=["do"]
stories = ["Kind Ben gave poor Sam", "Kind Sam gave poor Ben"]
rows = [table[tokenizer.encode(story)] for story in stories]  # (T, V) each
a, b = (causal_mean_loop(each)[-1] for each in rows)
torch.testing.assert_close(a, b)

# %% [markdown]
# Who got it? The two means are the same, and the two answers are not. So nothing that you build on top of this mean, however clever, can answer the question. Make up two other lines with the same letters, and see for yourself.
#
# In the picture below, drag `t` to 7, and then change the order. Which part of the path changes, and which doesn't?
# (The picture is static until you run the cell.)<!--notebook-->

# %% tags=["folded"]
# Explorer: a bag of tokens, and the mean of what is in it
explore("bag_of_words")

# %% [markdown]
# ### More: the order is still in there, if you look at all the means
#
# From one mean you cannot recover the tokens, because many pairs have the mean (3, 6). From all of them you can. Multiply a mean by its number of tokens, and you have their sum; take away the sum before it, and one token is left.

# %%
for t in range(1, len(x)):
    token = (t + 1) * means[t] - t * means[t - 1]
    torch.testing.assert_close(token, x[t])
token, x[t]

# %% [markdown]
# ## No looking ahead
#
# One thing about our mean is right, and every rung keeps it. A model that could see the next letter wouldn't need to predict it. Its loss would be wonderful, but it couldn't write a line, since the letter that it looks for isn't there yet. So no output may depend on a later input, and a function that obeys this rule is called **causal**.
#
# How do you test that? Change one input at a time, and see which outputs move. The table below has a row for each output and a column for each changed input. Where do all the ones have to be? Decide before you run the cell.

# %% tags=["do"]
f = causal_mean_loop

columns = []
for s in range(len(x)):
    nudged = x.clone()
    nudged[s] += 1
    moved = f(nudged) != f(x)
    columns.append(moved.any(dim=-1))
torch.stack(columns, dim=-1).int()

# %% [markdown]
# Column 2 says that when input 2 changed, outputs 2 and 3 moved, and the two before them didn't. All ones are on the diagonal or below it. A one above it would be a leak from the future, so we call this test the **leak probe**. Now probe something that looks harmless. Make the first line `f = lambda x: x - x.mean(dim=0)`, so that f only moves the tokens until their mean is 0, and run the cell again. Which outputs have seen the future now? (Then change it back.)
#
# ### More: the probe, ready made
#
# The package has the same probe, except that it adds random numbers instead of 1. It can find a leak, but with one text it can't prove that there is none.

# %% tags=["lesson"]
from attention_course.attention import leak_probe

moves = leak_probe(causal_mean_loop, x)
leaks = moves.triu(diagonal=1)  # keeps what lies above the diagonal
assert not leaks.any()
torch.equal(moves, torch.stack(columns, dim=-1))

# %% [markdown]
# ### More: a faster way, and why we won't need it
#
# Adding up t + 1 tokens takes t additions. Over all positions that makes 0 + 1 + ... + (T − 1) = T(T − 1)/2 for each channel, about T²/2. But the sum at t is the sum at t − 1 plus one more token, so T − 1 additions are enough. `cumsum` computes this running sum. Divide each row by its count, and you have the means. (`[:, None]` makes a column of the counts, so that row t is divided by count t.)

# %%
numbers = torch.arange(1, len(x) + 1)  # 1, 2, 3, 4
running_means = x.cumsum(dim=0) / numbers[:, None]  # (T, C) / (T, 1)
torch.testing.assert_close(running_means, causal_mean_loop(x))

# %% [markdown]
# Why not stay with the running sum? Soon each position will decide for itself how much every earlier token counts (rung {masked_softmax}), and then there is one number for each pair of positions, T² of them. (Katharopoulos et al. 2020 give up some of that freedom, and stay with running sums.)
#
# ## Prove
#
# From now on every rung is compared with the one below it. Here there is none, so we check the loop against the definition of a mean. The mean times t + 1 has to be the sum.

# %% tags=["proof"]
for T in (1, 2, 7, 32):
    tokens = torch.randn(3, T, 5)
    averaged = causal_mean_loop(tokens)
    for t in range(T):
        total = tokens[:, : t + 1].sum(dim=1)
        torch.testing.assert_close(averaged[:, t] * (t + 1), total)

# %% [markdown]
# ## Break it
#
# Here is a bug that is easy to write. It runs, the shapes are right, and so are the first two rows.


# %% tags=["do"]
def broken_loop(x):
    out = x.clone()
    for t in range(len(out)):
        past = out[: t + 1]
        mean = past.mean(dim=0)
        out[t] = mean
    return out


torch.testing.assert_close(broken_loop(x)[:2], causal_mean_loop(x)[:2])
broken_loop(x)

# %% [markdown]
# The right means are (2, 8), (3, 6), (4, 4) and (3, 4). Which line is to blame?

# %% tags=["folded"]
# Question
ask("find_the_loop_bug")

# %% [markdown]
# Row 2 reads row 1, and by then row 1 no longer holds a token but a mean. So the loop averages averages. If you check only the first two rows, you'll see nothing wrong, so compare all of them. (The leak probe finds nothing either, because this function never looks ahead. A test sees only what it was made for.) One changed word repairs the function. Find it, then run the cell again and see all four rows come out right.
#
# ## Exercises
#
# Write your answer where it says `raise NotImplementedError`, and run the cell. `check` tries your function on fresh random inputs, and if it recognizes your mistake, it tells you which one it is. Its buttons give hints and the solution.
#
# ### 1. The loop, from memory
#
# <!--task causal_mean_loop-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("causal_mean_loop")


# %%
def my_causal_mean(x):
    raise NotImplementedError


check("causal_mean_loop", my_causal_mean)

# %% [markdown]
# ### 2. A mean of the last k
#
# The last letter drowns in a long past. So what about a short one?
#
# <!--task windowed_mean-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("windowed_mean")


# %%
def my_windowed_mean(x, k):
    raise NotImplementedError


check("windowed_mean", my_windowed_mean)

# %% [markdown]
# ### 3. A mean that forgets
#
# Or let the past fade, without ever cutting it off. (In the fill, `share[:, None]` makes a column of the shares, with one beside each token. Rung {tril_matmul} says more about that.)
#
# <!--task forgetting_mean-->

# %% tags=["folded"]
# Fill in, or go on and write it all
fill("forgetting_mean")


# %%
def my_forgetting_mean(x):
    raise NotImplementedError


check("forgetting_mean", my_forgetting_mean)

# %% [markdown]
# ### More: where our names come from
#
# Andrej Karpathy's lecture "Let's build GPT" also builds this mean, which he calls `xbow`, for "bag of words". The loops over texts and positions are his first version. There he trains the model of letter pairs; in "makemore", an earlier lecture, he counts the pairs, as we did. B, T and C are his names as well. Papers write d_model or d for the channels, and n or L for T.
#
# ## Where we are
#
# <!--step-->
#
# That's what a *trained* model writes when this mean is all it sees. It doesn't average rows of your table. Every letter gets numbers of its own, these are averaged, and one more table of numbers turns the mean into 33 probabilities. Training adjusts all of them, a little at a time, until the loss is low. (Rung {masked_softmax} shows how.) It reached 2.28<!--given-->, and so even then a model that reads everything is beaten by a table that reads one letter.
#
# What would help? A mean in which the tokens don't all count the same: the last letter a lot, the name after "poor" when somebody asks who got it, and most of the others hardly at all. Such a mean, in which the text itself decides what counts, is called **attention**. The next three rungs build it, and the first step is to give each token of the past a share that you choose.
#
# A model whose tokens learn about each other through attention alone is a **transformer**, and the drawing shows one. What you built on this rung is lit. (Click a grey line to see its code.)
#
# ![The transformer as a drawing. Lit is what this rung builds: the tokens and the mean.](images/transformer_bag_of_words.svg)
#
# ## Three sentences to remember
#
# 1. A language model predicts the next token, and its loss is its average surprise, −ln p.
# 2. A mean of the past sees everything, but it loses the order, and the last token drowns.
# 3. In a causal model no output depends on a later input. The leak probe changes one input, and watches which outputs move.
#
# Next: [rung {tril_matmul}, one matrix product]({tril_matmul}.ipynb), where a single matrix says how much each token of the past counts.
#
# <!--neighbours-->
