"""What is known of a request while it is served."""

from __future__ import annotations

from server.call import Call


def test_texts_are_logged_only_on_request() -> None:
    for wanted in (False, True):
        call = Call("Embed", "id", 0.0, log_text=wanted)
        call.tell(text="a")
        call.tell(text="b")
        assert call.facts == ({"text": "ab"} if wanted else {})
