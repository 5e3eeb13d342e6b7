from __future__ import annotations

import os
from pathlib import Path

from client.load.attempt import Attempt, End, Outcome
from client.load.profile import Kind
from client.load.question import EmbedQuestion
from client.load.tally import Tally
from tests.load.finding import Finding
from tests.load.page import write_page
from tests.load.picture import draw
from tests.load.process_watch import ProcessWatch


def tally_of(*ends: End) -> Tally:
    tally = Tally()
    for number, end in enumerate(ends):
        attempt = Attempt(str(number), Kind.EMBED, EmbedQuestion("model", ("a",)))
        tally.add(Outcome(attempt, end, seconds=0.5), began=1.0, fault=None)
    return tally


TALLY = tally_of(End.ANSWERED, End.ANSWERED, End.REFUSED)


def test_findings_replace_those_of_an_earlier_run(tmp_path: Path) -> None:
    page = tmp_path / "load.md"
    page.write_text("before\n<!-- findings -->\nold\n<!-- end of findings -->\nafter\n")
    findings = [Finding("much happened", {"speed": "3 a second"}, TALLY), Finding("little", {})]
    for _ in range(2):
        write_page(page, findings, seconds=120.0)
    text = page.read_text()
    assert text.startswith("before\n<!-- findings -->\n3 calls were compared")
    assert text.endswith("<!-- end of findings -->\nafter\n")
    assert "old" not in text
    assert text.count("| much happened | 3 | 2 | 1 | 0 | 0 | 0 | speed: 3 a second |") == 1
    assert "| little |  |  |  |  |  |  |  |" in text


def test_a_picture_is_drawn(tmp_path: Path) -> None:
    watch = ProcessWatch(os.getpid())
    watch.seconds, watch.resident = [0.0, 1.0], [1000, 2000]
    draw(TALLY, {"server": watch}, tmp_path / "load.png")
    assert (tmp_path / "load.png").read_bytes().startswith(b"\x89PNG")
