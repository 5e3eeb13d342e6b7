"""One request while it is being served."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from google.protobuf.message import Message

from server.models import Model


@dataclass
class Call:
    """One request while it is being served.

    Attributes:
        method: name of the RPC.
        request_id: the caller's, or a new one.
        deadline: on the event loop's clock (the monotonic one), in seconds.
        facts: what its line in the log says beside what every line says.
    """

    method: str
    request_id: str
    deadline: float
    found: Model | None = None
    log_text: bool = False
    facts: dict[str, Any] = field(default_factory=dict)

    @property
    def model(self) -> Model:
        """The model that the call is for."""
        assert self.found is not None, f"{self.method} is for no model"
        return self.found

    def note(self, timing: Message, **facts: Any) -> None:
        """Adds the times of an answer, and more, to the call's line in the log."""
        times = {field.name: round(value, 6) for field, value in timing.ListFields()}
        self.facts |= times | facts

    def tell(self, **texts: object) -> None:
        """Adds what callers say and are told, which is logged only where the operator wants it."""
        if self.log_text:
            for name, text in texts.items():
                self.facts[name] = f"{self.facts.get(name, '')}{text}"
