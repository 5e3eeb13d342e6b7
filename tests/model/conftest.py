"""Real checkpoints and their references: loaded once, and only where a test asks for them."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from model.checkpoint import Checkpoint
from model.checkpoints import load_checkpoint
from model.transformer import Transformer
from tests.model import references


@pytest.fixture(scope="session")
def minilm() -> Checkpoint:
    return load_checkpoint(references.minilm_directory())


@pytest.fixture(scope="session")
def smollm2() -> Checkpoint:
    return load_checkpoint(references.smollm2_file())


@pytest.fixture(scope="session")
def smollm2_model(smollm2: Checkpoint) -> Transformer:
    return smollm2.build()


@pytest.fixture(scope="session")
def smollm2_reference() -> Any:
    return references.smollm2_reference()


@pytest.fixture(scope="session", autouse=True)
def one_thread() -> None:
    """Workers share the machine: threads that wait for each other cost more than they bring."""
    torch.set_num_threads(1)
