"""Which errors end a command with one line: what cannot be followed, and what went wrong.

Loads everything that raises them, which a command need not have done.
"""

from export.attention_map import AttentionError
from export.build_options import BuildError
from export.gate_task import GateError
from export.graph import ExportError
from export.manifest import ManifestError
from export.own_process import ProcessEnded
from export.precisions import PrecisionError
from export.session import SessionError
from export.source import SourceError
from model.checkpoint import CheckpointError

USAGE_ERRORS = (SourceError, BuildError, PrecisionError, AttentionError)
FAILURES = (
    CheckpointError,
    ExportError,
    GateError,
    ManifestError,
    ProcessEnded,
    SessionError,
    OSError,
)
