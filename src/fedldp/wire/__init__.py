"""What crosses a client's boundary: its types, how they become bytes, and a model as one vector."""

from fedldp.wire.arrays import pack_arrays, read_arrays
from fedldp.wire.codec import (
    REPORT_HEADER,
    pack_answer,
    pack_question,
    read_answer,
    read_answer_to,
    read_question,
)
from fedldp.wire.layout import Layout
from fedldp.wire.types import (
    Answer,
    Broadcast,
    Incoming,
    Question,
    Reason,
    Refusal,
    Report,
    Sensitive,
    Shuffled,
    Vector,
)

__all__ = [
    "REPORT_HEADER",
    "Answer",
    "Broadcast",
    "Incoming",
    "Layout",
    "Question",
    "Reason",
    "Refusal",
    "Report",
    "Sensitive",
    "Shuffled",
    "Vector",
    "pack_answer",
    "pack_arrays",
    "pack_question",
    "read_answer",
    "read_answer_to",
    "read_arrays",
    "read_question",
]
