"""What a transformer is, as plain data: read by every package, importing none of them."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from enum import StrEnum
from typing import Any, Self

from model.typed_fields import ConfigError, typed_fields


class Kind(StrEnum):
    """Which stacks a model has."""

    ENCODER = "encoder"
    DECODER = "decoder"
    ENCODER_DECODER = "encoder_decoder"


class Positions(StrEnum):
    """How a model knows the order of its tokens."""

    NONE = "none"
    SINUSOIDAL = "sinusoidal"  # Vaswani et al. 2017, section 3.5
    SINUSOIDAL_HALVES = "sinusoidal_halves"  # the same numbers, all sines before all cosines
    LEARNED = "learned"
    ROTARY = "rotary"  # Su et al. 2021, half-split form
    RELATIVE = "relative"  # a learned bias of the scores by distance (Raffel et al. 2020)


class Norm(StrEnum):
    """Which normalisation a block uses."""

    LAYER = "layer"  # Ba et al. 2016
    RMS = "rms"  # Zhang and Sennrich 2019


class NormPlacement(StrEnum):
    """Where a block normalises: before each sublayer, or after its residual."""

    PRE = "pre"
    POST = "post"


class Activation(StrEnum):
    """The non-linearity of the feed-forward network."""

    GELU = "gelu"  # with erf
    GELU_TANH = "gelu_tanh"
    RELU = "relu"
    SILU = "silu"


class PoolingMode(StrEnum):
    """How the states of a text's tokens become one vector."""

    MEAN = "mean"
    CLS = "cls"
    MAX = "max"
    LAST = "lasttoken"


@dataclass(frozen=True)
class Pooling:
    """From token states to an embedding."""

    mode: PoolingMode
    normalize: bool


class RopeScalingKind(StrEnum):
    """How rotary frequencies were changed for texts longer than a model was first trained on."""

    LINEAR = "linear"  # all alike: positions are interpolated (Chen et al. 2023)
    LLAMA3 = "llama3"  # the slow ones alone (Llama 3.1)


@dataclass(frozen=True)
class RopeScaling:
    """Rotary frequencies, slowed down.

    Attributes:
        factor: the frequencies are divided by it.
        low_frequency_factor, high_frequency_factor: of llama3. What turns fewer times than the
            first within the original positions is slowed down, what turns more often than the
            second is kept, and in between it goes over smoothly.
        original_positions: of llama3: the longest text before.

    Raises:
        ConfigError: a value is out of range.
    """

    kind: RopeScalingKind
    factor: float
    low_frequency_factor: float = 1.0
    high_frequency_factor: float = 4.0
    original_positions: int = 0

    def __post_init__(self) -> None:
        if not 1.0 <= self.factor <= 1e6:
            raise ConfigError(f"rope_scaling factor is {self.factor}; it must be from 1 to 1e6")
        if self.kind is not RopeScalingKind.LLAMA3:
            return
        low, high = self.low_frequency_factor, self.high_frequency_factor
        if not 0.0 < low < high <= 1e6:
            raise ConfigError(
                f"rope_scaling has frequency factors {low} and {high}; "
                "they must be above 0, and the second above the first"
            )
        if not 1 <= self.original_positions <= _MOST_ENTRIES:
            raise ConfigError(
                f"rope_scaling original_positions is {self.original_positions}; "
                f"it must be from 1 to {_MOST_ENTRIES}"
            )


_MOST_LAYERS = 1024
_MOST_WIDTH = 1 << 20
_MOST_ENTRIES = 1 << 24
_MOST_CELLS = 1 << 28  # of a table that is computed: 1 GiB in fp32
_COMPUTED = (Positions.SINUSOIDAL, Positions.SINUSOIDAL_HALVES)


@dataclass(frozen=True)
class TransformerConfig:
    """One transformer: its stacks, sizes and variations.

    `encoder_layers` and `decoder_layers` are 0 for a stack that the kind does not have.
    `positions` holds for both stacks. `kv_heads` below `heads` is grouped-query attention.

    Raises:
        ConfigError: a value is out of range, or two values do not go together.
    """

    kind: Kind
    vocab_size: int
    d_model: int
    heads: int
    d_ff: int
    max_positions: int
    encoder_layers: int = 0
    decoder_layers: int = 0
    kv_heads: int = 0  # 0: as many as heads
    head_dim: int = 0  # 0: d_model / heads
    target_vocab_size: int = 0  # 0: one vocabulary for source and target
    positions: Positions = Positions.SINUSOIDAL
    position_offset: int = 0  # added to every position before the learned table is read
    rope_theta: float = 10_000.0
    rope_scaling: RopeScaling | None = None
    relative_buckets: int = 32  # distances share so many biases, in each stack
    relative_max_distance: int = 128  # all distances from here on share the last one
    norm: Norm = Norm.LAYER
    norm_eps: float = 1e-5
    norm_placement: NormPlacement = NormPlacement.PRE
    final_norm: bool = True  # after the last block of each stack
    embedding_norm: bool = False  # right after the embeddings
    embedding_scale: float = 1.0  # token embeddings are multiplied by it
    token_types: int = 0  # segment embeddings; every token is of type 0
    activation: Activation = Activation.GELU
    gated: bool = False  # feed-forward: activation(gate) * up
    scaled_attention: bool = True  # scores are divided by sqrt(head_dim)
    causal_encoder: bool = False  # an encoder's token sees itself and those before it alone
    attention_bias: bool = True  # of the query, key and value projections
    output_bias: bool = True  # of attention's output projection
    ff_bias: bool = True
    tied_head: bool = True  # the output head is the (target) token embedding
    head_scale: float = 1.0  # the states that the output head reads are multiplied by it
    head_bias: bool = False
    dropout: float = 0.0  # in training only

    def __post_init__(self) -> None:
        object.__setattr__(self, "kv_heads", self.kv_heads or self.heads)
        if not self.head_dim and self.heads > 0:
            object.__setattr__(self, "head_dim", self.d_model // self.heads)
        self._check_ranges()
        self._check_tables()
        self._check_stacks()
        self._check_combinations()

    @property
    def has_encoder(self) -> bool:
        return self.kind is not Kind.DECODER

    @property
    def has_decoder(self) -> bool:
        return self.kind is not Kind.ENCODER

    @property
    def decoder_vocab_size(self) -> int:
        return self.target_vocab_size or self.vocab_size

    def as_causal_encoder(self) -> Self:
        """A decoder's blocks as an encoder, without the output head."""
        return replace(
            self,
            kind=Kind.ENCODER,
            encoder_layers=self.decoder_layers,
            decoder_layers=0,
            causal_encoder=True,
            head_bias=False,
        )

    def to_json(self) -> dict[str, Any]:
        """The configuration as JSON values; `from_json` reads it back."""
        return asdict(self)

    @classmethod
    def from_json(cls, values: dict[str, Any]) -> Self:
        """Reads what `to_json` wrote.

        Raises:
            ConfigError: a field is unknown, missing, of the wrong type or out of range.
        """
        return cls(**typed_fields(cls, values, "configuration"))

    def _check_ranges(self) -> None:
        ranges: dict[str, tuple[float, float]] = {
            "vocab_size": (1, _MOST_ENTRIES),
            "target_vocab_size": (0, _MOST_ENTRIES),
            "d_model": (1, _MOST_WIDTH),
            "heads": (1, _MOST_WIDTH),
            "kv_heads": (1, _MOST_WIDTH),
            "head_dim": (1, _MOST_WIDTH),
            "d_ff": (1, _MOST_WIDTH),
            "max_positions": (1, _MOST_ENTRIES),
            "encoder_layers": (0, _MOST_LAYERS),
            "decoder_layers": (0, _MOST_LAYERS),
            "position_offset": (0, _MOST_ENTRIES),
            "token_types": (0, _MOST_WIDTH),
            "relative_buckets": (4, _MOST_WIDTH),
            "relative_max_distance": (1, _MOST_WIDTH),
            "rope_theta": (1.0, 1e12),
            "norm_eps": (0.0, 1.0),
            "dropout": (0.0, 0.99),
        }
        for name, (least, most) in ranges.items():
            value = getattr(self, name)
            if not least <= value <= most:
                raise ConfigError(f"{name} is {value}; it must be from {least} to {most}")

    def _check_tables(self) -> None:
        widths = {Positions.ROTARY: "head_dim", **dict.fromkeys(_COMPUTED, "d_model")}
        name = widths.get(self.positions)
        if name is None:
            return
        rows, width = self.max_positions + self.position_offset, getattr(self, name)
        if rows * width > _MOST_CELLS:
            raise ConfigError(
                f"max_positions {self.max_positions} with {name} {width}; their product must be "
                f"at most {_MOST_CELLS} with positions {self.positions}"
            )

    def _check_stacks(self) -> None:
        for name, present in (
            ("encoder_layers", self.has_encoder),
            ("decoder_layers", self.has_decoder),
        ):
            layers = getattr(self, name)
            if present != (layers > 0):
                wanted = "at least 1" if present else "0"
                raise ConfigError(f"kind {self.kind} with {name} {layers}; it must be {wanted}")

    def _check_combinations(self) -> None:
        if self.heads % self.kv_heads:
            raise ConfigError(f"heads {self.heads} is not a multiple of kv_heads {self.kv_heads}")
        if self.positions is Positions.ROTARY and self.head_dim % 2:
            raise ConfigError(f"positions rotary needs an even head_dim, not {self.head_dim}")
        if self.positions in _COMPUTED and self.d_model % 2:
            raise ConfigError(
                f"positions {self.positions} needs an even d_model, not {self.d_model}"
            )
        self._check_attention()
        if self.rope_scaling is not None and self.positions is not Positions.ROTARY:
            raise ConfigError(
                f"rope_scaling {self.rope_scaling.kind} with positions {self.positions}; "
                "only rotary positions are scaled"
            )
        if self.position_offset and self.positions is not Positions.LEARNED:
            raise ConfigError(
                f"position_offset {self.position_offset} with positions {self.positions}; "
                "only learned positions have an offset"
            )
        if self.target_vocab_size and self.kind is not Kind.ENCODER_DECODER:
            raise ConfigError(
                f"target_vocab_size {self.target_vocab_size} with kind {self.kind}; "
                "only encoder_decoder has a second vocabulary"
            )

    def _check_attention(self) -> None:
        if self.causal_encoder and self.kind is not Kind.ENCODER:
            raise ConfigError(f"causal_encoder true with kind {self.kind}; only encoder has it")
        if self.relative_max_distance <= self.relative_buckets // 2:
            raise ConfigError(
                f"relative_max_distance is {self.relative_max_distance}; it must be above half of "
                f"relative_buckets {self.relative_buckets}"
            )
        if self.kind is Kind.ENCODER_DECODER:
            return
        if self.positions is Positions.RELATIVE:
            raise ConfigError(
                f"positions relative with kind {self.kind}; only encoder_decoder has them"
            )
        if not self.scaled_attention:
            raise ConfigError(
                f"scaled_attention false with kind {self.kind}; only encoder_decoder can do without"
            )
