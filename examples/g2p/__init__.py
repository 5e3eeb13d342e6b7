"""Grapheme to phoneme: English spelling to ARPAbet with stress, learned from CMUdict.

    bioluminescence -> B AY2 OW0 L UW2 M AH0 N EH1 S AH0 N S

`python -m examples.g2p` trains the encoder-decoder that `assets/g2p` holds, and measures it.
"""
