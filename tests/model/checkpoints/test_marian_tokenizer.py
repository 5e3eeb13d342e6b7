"""Marian's tokenizers beside MarianTokenizer of transformers."""

from __future__ import annotations

import json
import random
import unicodedata
from collections.abc import Callable
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import sentencepiece
from tokenizers import Tokenizer
from transformers import MarianTokenizer

from model.checkpoint import CheckpointError
from model.checkpoints import load_checkpoint, marian_tokenizer
from model.checkpoints.marian_tokenizer import read_marian_tokenizers
from tests.model.checkpoints.tiny_references import tiny_marian

SOURCE_TEXT = (
    "the keeper of a lamp went down to the sea and his boats came home in the evening light while "
    "one bell rang twice over the harbour wall naïve café déjà vu quick brown foxes jump over lazy "
    "dogs 0 1 2 3 4 5 6 7 8 9 10 1984 , . ! ? - ( ) it's ガラス パン 한국 ᾄδω ὦ"
)
TARGET_TEXT = (
    "der Hüter der Lampe ging hinunter zum Meer und die Boote kamen am Abend heim während größere "
    "Straßen schön öde 東京 x東京 x東京都 日本 語 の 海 海中国 人民 привет мир , . ! ?"
)


def decomposed(text: str) -> str:
    return unicodedata.normalize("NFD", text)


LANGUAGES = (">>fra<<", ">>deu<<")
# What texts are made of: each is drawn from as often as the others.
PARTS: tuple[list[str], ...] = (
    SOURCE_TEXT.split(),
    TARGET_TEXT.split(),
    list("abcdefghijklmnopqrstuvwxyzABC"),
    list(",.!?-()'\"0123456789"),
    [chr(code) for code in range(0xC0, 0x250)],  # composed
    [decomposed(chr(code)) for code in range(0xC0, 0x180)],
    [*"東京都日本語の海中国人民学校", "東京", "東京都"],
    [chr(code) for code in range(0x400, 0x450)],
    [chr(code) for code in range(0xFF01, 0xFF5F)],  # full width
    [*map(chr, range(0xFF66, 0xFF9E)), "ｶﾞﾗｽ", "ﾊﾟﾝ"],  # half width
    [*map(chr, range(0xAC00, 0xAC40)), *map(decomposed, ("한국", "ᾄδω", "ὦ"))],
    [
        *map(chr, range(0x1F600, 0x1F620)),
        "\U0001f468\u200d\U0001f469\u200d\U0001f467",
        "\u263a\ufe0f",
    ],
    [
        "ﬁ",
        "①",
        "™",
        "…",
        "½",
        "\uff5e",
        "▁",
        "\u00a0",
        "\u3000",
        "\u200b",
        "\ufeff",
        "\t",
        "\n",
        "  ",
    ],
)


def write_pieces(path: Path, text: str, **settings: Any) -> None:
    """A sentencepiece model of texts that are made of the words of one."""
    generator = random.Random(0)
    lines = [" ".join(generator.choices(text.split(), k=12)) for _ in range(400)]
    corpus = path.with_suffix(".txt")
    corpus.write_text("\n".join(lines))
    sentencepiece.SentencePieceTrainer.train(
        input=str(corpus),
        model_prefix=str(path),
        num_threads=1,
        minloglevel=2,
        **({"vocab_size": 200, "character_coverage": 1.0, "hard_vocab_limit": False} | settings),
    )
    path.with_name(f"{path.name}.model").rename(path)


def pieces_of(path: Path) -> list[str]:
    model = sentencepiece.SentencePieceProcessor(str(path))
    ids = range(model.get_piece_size())
    return [model.id_to_piece(i) for i in ids if not model.is_control(i) | model.is_unknown(i)]


def write_tokenizer(directory: Path, *, separate: bool = False, rule: str = "nmt_nfkc") -> Path:
    """The files of a Marian tokenizer, its ids in an order of their own."""
    write_pieces(directory / "source.spm", SOURCE_TEXT, normalization_rule_name=rule)
    write_pieces(directory / "target.spm", TARGET_TEXT, normalization_rule_name=rule)
    source, target = (pieces_of(directory / f"{side}.spm") for side in ("source", "target"))
    vocabularies = {"vocab": sorted({*source, *target}), "target_vocab": []}
    if separate:
        vocabularies = {"vocab": source, "target_vocab": target}
    for name, pieces in vocabularies.items():
        random.Random(1).shuffle(pieces)
        tokens = ["</s>", "<unk>", *pieces, *LANGUAGES, "<pad>"]
        ids = {token: index for index, token in enumerate(tokens)}
        (directory / f"{name}.json").write_text(json.dumps(ids))
    settings = {"separate_vocabs": separate}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
    return directory


pytestmark = pytest.mark.filterwarnings("ignore:Recommended. pip install sacremoses")


@pytest.fixture(scope="module", params=[False, True], ids=["one vocabulary", "two vocabularies"])
def directory(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tokenizer(tmp_path_factory.mktemp("marian"), separate=request.param)


def reference(directory: Path) -> Any:
    files = {"source_spm": "source.spm", "target_spm": "target.spm", "vocab": "vocab.json"}
    return MarianTokenizer(
        **{name: str(directory / file) for name, file in files.items()},
        target_vocab_file=str(directory / "target_vocab.json"),
        **json.loads((directory / "tokenizer_config.json").read_text()),
    )


def random_text(generator: random.Random) -> str:
    text = ""
    for _ in range(generator.randrange(12)):
        text += generator.choice(generator.choice(PARTS)) + generator.choice(("", " "))
    return generator.choice(LANGUAGES) + text if generator.random() < 0.05 else text


def assert_same_ids(directory: Path, count: int) -> None:
    """Compares the ids of random texts, as a source and as a target."""
    source, target = (
        Tokenizer.from_str(content.decode()) for content in read_marian_tokenizers(directory)
    )
    theirs, generator = reference(directory), random.Random(7)
    texts = [random_text(generator) for _ in range(count)]
    for text in texts:
        assert source.encode(text).ids == theirs(text).input_ids, repr(text)
        assert target.encode(text).ids == theirs(text_target=text).input_ids, repr(text)


def test_random_texts_have_the_ids_of_transformers(directory: Path) -> None:
    assert_same_ids(directory, 500)


@pytest.mark.parametrize("rule", ["identity", "nfkc", "nmt_nfkc_cf"])
def test_other_normalisations(tmp_path: Path, rule: str) -> None:
    assert_same_ids(write_tokenizer(tmp_path, rule=rule), 200)


@pytest.mark.full
def test_ten_thousand_texts_have_the_ids_of_transformers(directory: Path) -> None:
    assert_same_ids(directory, 10_000)


def test_the_target_is_decoded(directory: Path) -> None:
    target = Tokenizer.from_str(read_marian_tokenizers(directory)[1].decode())
    theirs = reference(directory)
    for text in ("die Boote kamen am Abend heim", "größere Straßen", "привет , мир !", ""):
        ids = target.encode(text).ids
        assert target.decode(ids) == text
        assert target.decode(ids) == theirs.decode(ids, skip_special_tokens=True)


def test_a_checkpoint_has_both_tokenizers(tmp_path: Path) -> None:
    write_tokenizer(tmp_path)
    size = len(json.loads((tmp_path / "vocab.json").read_text()))
    tiny_marian(vocab_size=size, decoder_vocab_size=size).save_pretrained(tmp_path)
    checkpoint = load_checkpoint(tmp_path)
    both = (checkpoint.tokenizer_json, checkpoint.target_tokenizer_json)
    assert both == read_marian_tokenizers(tmp_path)
    (tmp_path / "target.spm").write_bytes((tmp_path / "source.spm").read_bytes())
    assert load_checkpoint(tmp_path).target_tokenizer_json is None


def damage_ids(directory: Path) -> None:
    path = directory / "vocab.json"
    ids = json.loads(path.read_text())
    ids["<pad>"] += 1
    path.write_text(json.dumps(ids))


def without_unknown(directory: Path) -> None:
    path = directory / "vocab.json"
    path.write_text(path.read_text().replace("<unk>", "<other>"))


def with_an_id_that_is_none(directory: Path) -> None:
    path = directory / "vocab.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | {"<pad>": "9"}))


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda d: (d / "target.spm").unlink(), r"cannot read .*target\.spm"),
        (lambda d: (d / "source.spm").write_bytes(b"\xff"), r"source\.spm is no sentencepiece"),
        (damage_ids, r"vocab\.json does not number its tokens from 0 to \d+"),
        (without_unknown, r"vocab\.json lacks <unk>"),
        (with_an_id_that_is_none, r"vocab\.json holds the id '9'"),
        (lambda d: write_pieces(d / "source.spm", SOURCE_TEXT, model_type="bpe"), "model_type is"),
        (
            lambda d: write_pieces(d / "source.spm", SOURCE_TEXT, add_dummy_prefix=False),
            "add_dummy_prefix is False",
        ),
        (
            lambda d: write_pieces(d / "source.spm", SOURCE_TEXT, user_defined_symbols=["<x>"]),
            "'<x>' is a piece of its user or a byte",
        ),
    ],
)
def test_refusals(tmp_path: Path, damage: Callable[[Path], None], message: str) -> None:
    damage(write_tokenizer(tmp_path))
    with pytest.raises(CheckpointError, match=message):
        read_marian_tokenizers(tmp_path)


def test_without_the_package_of_the_pieces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def find(name: str) -> object:
        return None if name == "sentencepiece" else find_spec(name)

    write_tokenizer(tmp_path)
    monkeypatch.setattr(marian_tokenizer, "find_spec", find)
    with pytest.raises(CheckpointError, match=r"source\.spm .* pip install sentencepiece"):
        read_marian_tokenizers(tmp_path)
