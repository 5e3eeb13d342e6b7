"""The models that are loaded, and which of them a request means."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from export.manifest import Manifest, Task
from server.chat import ChatTemplate
from server.decoder_engine import DecoderEngine
from server.encoder_engine import EncoderEngine
from server.errors import InvalidInput, UnknownModel, WrongTask
from server.limits import DecoderLimits
from server.memory_budget import ModelMemory
from server.metrics import ModelMetrics
from server.tokenizer import Tokenizer

_NO_MEMORY = ModelMemory(weights=0)
_NAME_SHOWN = 80  # characters of a name that an error repeats


@dataclass(frozen=True)
class Generator:
    """What generates with a model; `tokenizer` is of what it generates."""

    engine: DecoderEngine
    tokenizer: Tokenizer
    limits: DecoderLimits
    chat: ChatTemplate | None


@dataclass(frozen=True)
class Model:
    """One loaded artefact and what runs it; `tokenizer` is of what it reads."""

    manifest: Manifest
    tokenizer: Tokenizer
    metrics: ModelMetrics
    encoder: EncoderEngine | None = None
    generator: Generator | None = None
    memory: ModelMemory = _NO_MEMORY

    @property
    def name(self) -> str:
        return self.manifest.name

    @property
    def engines(self) -> tuple[EncoderEngine | DecoderEngine, ...]:
        """Those that it has."""
        decoder = self.generator.engine if self.generator else None
        return tuple(engine for engine in (self.encoder, decoder) if engine is not None)

    @property
    def max_input(self) -> int:
        """Tokens that any input may have, whatever is done with it."""
        return self.generator.limits.max_input if self.generator else self.manifest.limits.max_input

    @property
    def target_tokenizer(self) -> Tokenizer:
        """The tokenizer of what it generates; of a model that does not, of what it reads."""
        return self.generator.tokenizer if self.generator else self.tokenizer

    def embed_with(self) -> EncoderEngine:
        """The engine that embeds.

        Raises:
            WrongTask: the model does not embed.
        """
        if self.encoder is None:
            raise WrongTask(f"model {self.name} does not embed; it can {self._abilities()}")
        return self.encoder

    def generate_with(self) -> Generator:
        """What generates.

        Raises:
            WrongTask: the model does not generate.
        """
        if self.generator is None:
            raise WrongTask(f"model {self.name} does not generate; it can {self._abilities()}")
        return self.generator

    def _abilities(self) -> str:
        return " and ".join(self.manifest.task)


class Models:
    """The loaded models by name."""

    def __init__(self, models: Iterable[Model]) -> None:
        self._models = {model.name: model for model in models}

    def __iter__(self) -> Iterator[Model]:
        return iter(self._models.values())

    def find(self, name: str, task: Task | None = None) -> Model:
        """The model of that name; for an empty name the one that the task leaves no doubt about.

        Raises:
            UnknownModel: none of that name is loaded.
            InvalidInput: the name is empty and more than one model, or none, could be meant.
        """
        if not name:
            return self._only(task)
        if name not in self._models:
            raise UnknownModel(
                f"model {name[:_NAME_SHOWN]!r} is not loaded; loaded: {', '.join(self._models)}"
            )
        return self._models[name]

    def _only(self, task: Task | None) -> Model:
        able = [model for model in self if task is None or task in model.manifest.task]
        if len(able) > 1 and task is Task.EMBED:
            able = [model for model in able if model.manifest.kind == "encoder"] or able
        if len(able) == 1:
            return able[0]
        names = ", ".join(model.name for model in able) or "none of the loaded can do this"
        raise InvalidInput(f"model is empty; name one of: {names}")
