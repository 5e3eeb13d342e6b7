"""Small tokenizers of every kind that decodes differently, as the bytes of their files."""

from __future__ import annotations

from tokenizers import (
    AddedToken,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
)

TURN_END = "<|im_end|>"
_SPECIALS = [AddedToken(name, special=True, normalized=False) for name in ("<s>", "</s>", TURN_END)]


def byte_level() -> bytes:
    """As GPT-2: a token for each byte, and a few merges."""
    merges = [("Ġ", "a"), ("l", "p"), ("h", "a"), ("lp", "ha"), ("Ġa", "lpha"), ("ð", "Ł")]
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    names = [*alphabet, *(left + right for left, right in merges)]
    tokenizer = Tokenizer(
        models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=merges)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(_SPECIALS)
    # Not special, one of them outside of the alphabet of bytes.
    tokenizer.add_tokens([AddedToken("<think>"), AddedToken("é ü"), AddedToken("    ")])
    return tokenizer.to_str().encode()


def byte_ids(content: bytes) -> list[int]:
    """Ids of any bytes under `byte_level`, one each."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    names = {byte: chr(byte) for byte in printable}
    names |= {byte: chr(256 + index) for index, byte in enumerate(others)}
    ordered = sorted(names.values())
    return [ordered.index(names[byte]) for byte in content]


def word_piece() -> bytes:
    """As BERT."""
    names = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "cat", "do", "##g", "##s", "n", "'", "t", ".", ","]
    names += ["n't", "not", "##.", "##ä", "[", "]", "sep", "##p"]
    tokenizer = Tokenizer(
        models.WordPiece(vocab={name: i for i, name in enumerate(names)}, unk_token="[UNK]")
    )
    tokenizer.normalizer = normalizers.BertNormalizer(lowercase=True)
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(prefix="##", cleanup=True)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    tokenizer.add_special_tokens(
        [AddedToken(name, special=True, normalized=False) for name in names[:4]]
    )
    return tokenizer.to_str().encode()


def sentence_piece() -> bytes:
    """As Llama 2: BPE over words that begin with `▁`, and a token for each byte."""
    names = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    names += ["▁", "a", "b", "é", "▁a", "▁▁", "ab", "▁ab", "<", ">", "/", "s"]
    merges = [("▁", "a"), ("▁", "▁"), ("a", "b"), ("▁a", "b")]
    tokenizer = Tokenizer(
        models.BPE(
            vocab={name: i for i, name in enumerate(names)},
            merges=merges,
            unk_token="<unk>",
            byte_fallback=True,
            fuse_unk=True,
        )
    )
    tokenizer.normalizer = normalizers.Sequence(
        [normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")]
    )
    tokenizer.decoder = decoders.Sequence(
        [
            decoders.Replace("▁", " "),
            decoders.ByteFallback(),
            decoders.Fuse(),
            decoders.Strip(" ", 1, 0),
        ]
    )
    tokenizer.post_processor = processors.TemplateProcessing(
        single="<s> $A", special_tokens=[("<s>", 1)]
    )
    tokenizer.add_special_tokens(
        [AddedToken(name, special=True, normalized=False) for name in names[:3]]
    )
    return tokenizer.to_str().encode()


def unigram() -> bytes:
    """As T5 and Marian: the model itself knows `</s>` as a piece."""
    pieces = [("</s>", 0.0), ("<unk>", 0.0), ("▁", -2.0), ("▁the", -3.0), ("a", -4.0)]
    pieces += [(name, -5.0) for name in ("t", "h", "e", "<", "/", "s", ">", "é", "▁a", "▁▁")]
    tokenizer = Tokenizer(models.Unigram(pieces, unk_id=1, byte_fallback=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="always")
    tokenizer.decoder = decoders.Metaspace(prepend_scheme="always")
    tokenizer.post_processor = processors.TemplateProcessing(
        single="$A </s>", special_tokens=[("</s>", 0)]
    )
    tokenizer.add_special_tokens([AddedToken("</s>", special=True, normalized=False)])
    return tokenizer.to_str().encode()


def words() -> bytes:
    """Whole words and no decoder: the tokens are joined by spaces."""
    names = ["[UNK]", "one", "two", "three"]
    tokenizer = Tokenizer(
        models.WordLevel(vocab={name: i for i, name in enumerate(names)}, unk_token="[UNK]")
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    return tokenizer.to_str().encode()


def end_of_word() -> bytes:
    """A decoder to which the last token matters: no token's text is certain before the end."""
    names = ["a", "b</w>", "c</w>"]
    tokenizer = Tokenizer(models.BPE(vocab={name: i for i, name in enumerate(names)}, merges=[]))
    tokenizer.decoder = decoders.BPEDecoder(suffix="</w>")
    return tokenizer.to_str().encode()


ALL = (byte_level, word_piece, sentence_piece, unigram, words, end_of_word)
