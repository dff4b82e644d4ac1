"""What crosses a client's boundary: its types, how they become bytes, and a model as one vector."""

from fedldp.protocol.wire.arrays import pack_arrays, read_arrays
from fedldp.protocol.wire.codec import (
    REPORT_HEADER,
    pack_answer,
    pack_question,
    pack_reports,
    read_answer,
    read_answer_to,
    read_question,
    read_reports_to,
)
from fedldp.protocol.wire.layout import Layout
from fedldp.protocol.wire.types import (
    Answer,
    Broadcast,
    Counted,
    Incoming,
    Question,
    Reason,
    Refusal,
    Report,
    Reports,
    Sensitive,
    Shuffled,
    Vector,
    label_bits,
)

__all__ = [
    "REPORT_HEADER",
    "Answer",
    "Broadcast",
    "Counted",
    "Incoming",
    "Layout",
    "Question",
    "Reason",
    "Refusal",
    "Report",
    "Reports",
    "Sensitive",
    "Shuffled",
    "Vector",
    "label_bits",
    "pack_answer",
    "pack_arrays",
    "pack_question",
    "pack_reports",
    "read_answer",
    "read_answer_to",
    "read_arrays",
    "read_question",
    "read_reports_to",
]
