"""A passage of ordinary text, for checks that need what a model was made for.

On random ids a language model's activations grow far beyond what text causes, and rounding with
them: a bound for text says nothing there.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from tokenizers import Tokenizer

_PASSAGE = """\
A lighthouse keeper kept two notebooks. In the first she wrote the weather: wind from the west, \
12 knots, rain before noon, a clear evening. In the second she wrote whatever the sea brought. \
"One blue bottle," it says on the third of March, "three planks, and a letter nobody can read." \
Ships passed without stopping, as they always had, because the channel was deep and the rocks were \
well marked. What do you do all day, her brother asked when he visited in summer. She showed him \
how the lamp is cleaned, how the clockwork is wound every four hours, and how the numbers in the \
book agree, year after year, to within a few degrees. He counted the steps of the tower and found \
201; she had always thought there were 199. They climbed it again together, slowly, saying each \
number aloud, and then sat at the top until the first stars came out over the water.
"""


def passage_rows(tokenizer: bytes, vocab_size: int, rows: int, length: int) -> NDArray[np.int64]:
    """Ids `[rows, length]` of the passage; each row begins one token later than the one before.

    `tokenizer` is the content of tokenizer.json.
    """
    encoded = Tokenizer.from_buffer(tokenizer).encode(_PASSAGE, add_special_tokens=False).ids
    ids = np.array([index for index in encoded if index < vocab_size] or [0], dtype=np.int64)
    starts, columns = np.arange(rows)[:, None], np.arange(length)
    return ids.take((starts + columns) % len(ids))
