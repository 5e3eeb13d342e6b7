"""Chat messages to ids, through the checkpoint's template."""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from dataclasses import dataclass

from jinja2.exceptions import TemplateError

from server.errors import InvalidInput
from server.template_sandbox import RenderLimits, TemplateSandbox
from server.tokenizer import Span, Tokenizer

ROLES = ("system", "user", "assistant", "tool")

_FREE_CHARACTERS = 1 << 20  # that a rendering may have whatever the messages
_GROWTH = 8  # characters that it may have for each of the messages
_MOST_SECONDS = 5.0
_ROLE_SHOWN = 80  # characters of a role that an error repeats

# What a template raises when it does not know what to do with the messages.
_TEMPLATE_ERRORS = (
    TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RecursionError,
    TypeError,
    ValueError,
)


@dataclass(frozen=True)
class ChatMessage:
    """One turn of a conversation; `role` is one of `ROLES`."""

    role: str
    content: str


class ChatTemplate:
    """A checkpoint's chat template, which renders as transformers does, within limits."""

    def __init__(
        self, template: str, tokens: dict[str, str], most_seconds: float = _MOST_SECONDS
    ) -> None:
        """Compiles a template; `tokens` are the names it may use (`bos_token`, ...).

        Raises:
            ValueError: it is not a Jinja template.
        """
        self._sandbox = TemplateSandbox()
        self._tokens = tokens
        self._most_seconds = most_seconds
        try:
            self._template = self._sandbox.from_string(template)
        except TemplateError as error:
            raise ValueError(f"the chat template cannot be compiled: {error}") from error

    def render(self, messages: Sequence[ChatMessage]) -> str:
        """The text of a conversation, up to where the assistant's next turn begins.

        Raises:
            InvalidInput: there is no message, a role is unknown, or the template refuses.
            OverLimit: the rendering is too large or takes too long.
        """
        _check(messages)
        size = sum(len(message.content) for message in messages)
        limits = RenderLimits(
            characters=_FREE_CHARACTERS + _GROWTH * size,
            deadline=time.monotonic() + self._most_seconds,
        )
        try:
            with self._sandbox.within(limits):
                return self._rendered(messages, limits)
        except _TEMPLATE_ERRORS as error:
            raise InvalidInput(
                f"chat.messages is refused by the model's template: {error}"
            ) from error

    def _rendered(self, messages: Sequence[ChatMessage], limits: RenderLimits) -> str:
        pieces, length = [], 0
        for piece in self._template.generate(
            messages=[{"role": m.role, "content": m.content} for m in messages],
            tools=None,
            documents=None,
            add_generation_prompt=True,
            **self._tokens,
        ):
            length += len(piece)
            limits.check_time()
            limits.check_size(length)
            pieces.append(piece)
        return "".join(pieces)


def encode_chat(
    messages: Sequence[ChatMessage],
    tokenizer: Tokenizer,
    template: ChatTemplate,
    parse_control_tokens: bool = False,
) -> list[int]:
    """Ids of a conversation; the template writes every special token, a BOS included.

    Unless `parse_control_tokens`, text of a message never becomes a control token: each spelling
    of one is a placeholder while the template renders. Then the spellings are put back, the whole
    is encoded as it would be anyway, and the control tokens that came of those spellings are
    encoded again, as text.

    Raises:
        InvalidInput, OverLimit: see `ChatTemplate.render`; or the template takes a spelling apart.
    """
    if parse_control_tokens:
        return tokenizer.encode(template.render(messages), add_special_tokens=False)
    placeholders = _Placeholders(messages)
    hidden = [
        ChatMessage(m.role, placeholders.hide(m.content, tokenizer.control_spans(m.content)))
        for m in messages
    ]
    text, spans = placeholders.restore(template.render(hidden))
    return tokenizer.encode_around(text, spans, add_special_tokens=False)


class _Placeholders:
    """Stands for pieces of text while a template renders them.

    A placeholder is the piece's number between two marks: a private-use character that no message
    holds.
    """

    def __init__(self, messages: Sequence[ChatMessage]) -> None:
        used = set().union(*(message.content for message in messages))
        self._mark = next(m for m in map(chr, range(0xF0000, 0xFFFFE)) if m not in used)
        self._pieces: list[str] = []

    def hide(self, text: str, spans: Sequence[Span]) -> str:
        """The text with a placeholder for each span."""
        parts, done = [], 0
        for start, end in spans:
            parts.append(f"{text[done:start]}{self._mark}{len(self._pieces)}{self._mark}")
            self._pieces.append(text[start:end])
            done = end
        return "".join((*parts, text[done:]))

    def restore(self, text: str) -> tuple[str, list[Span]]:
        """The text with its pieces put back, and where they now are."""
        # Split at a group: text, number, text, number, ..., text.
        parts = re.split(f"{self._mark}([0-9]+){self._mark}", text)
        if any(self._mark in part for part in parts):
            raise InvalidInput(
                "chat.messages spells a control token that the model's template takes apart"
            )
        restored, spans, length = [], [], 0
        for index, part in enumerate(parts):
            piece = self._pieces[int(part)] if index % 2 else part
            if index % 2:
                spans.append((length, length + len(piece)))
            restored.append(piece)
            length += len(piece)
        return "".join(restored), spans


def _check(messages: Sequence[ChatMessage]) -> None:
    if not messages:
        raise InvalidInput("chat.messages is empty; give at least one message")
    for index, message in enumerate(messages):
        if message.role not in ROLES:
            raise InvalidInput(
                f"chat.messages[{index}].role is {message.role[:_ROLE_SHOWN]!r}; it must be one of "
                f"{', '.join(ROLES)}"
            )
