"""Callers of a server whose every answer is checked."""

from __future__ import annotations

import random
from collections.abc import Sequence
from typing import Any

from client.aio import AsyncClient
from client.connection import Connection
from client.load.profile import PROFILES, Plan, Profile
from client.load.questions import draw_questions
from client.load.reference import Reference, take_references
from client.load.run import run_load
from client.load.tally import Tally

PATIENT = Profile("patient", PROFILES["mixed"].kinds)


async def references_of(target: str, kinds: Profile = PATIENT) -> list[Reference]:
    """Questions to a server and its answers to each alone."""
    async with AsyncClient(target) as client:
        return await take_references(client, await draw_questions(client, kinds, random.Random(0)))


async def put_under_load(
    target: str, references: Sequence[Reference], profile: Profile, **plan: Any
) -> Tally:
    """What comes of a load; see `client.load.profile.Plan`."""
    tally = Tally()
    await run_load(Plan(profile, **plan), Connection(target), references, tally)
    return tally
