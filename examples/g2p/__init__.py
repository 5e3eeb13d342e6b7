"""Grapheme to phoneme: English spelling to ARPAbet with stress, learned from CMUdict.

    worcestershire -> W UH1 S T ER0 SH ER0

`python -m examples.g2p` trains the encoder-decoder that `assets/g2p` holds, and measures it.
"""
