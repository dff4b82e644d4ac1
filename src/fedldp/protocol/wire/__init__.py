"""What crosses a client's boundary: its types, their bytes, and a model as one vector."""

from fedldp.protocol.wire.codec import (
    broadcast_digest,
    pack_reply,
    pack_reports,
    pack_request,
    read_reply,
    read_reply_to,
    read_reports_to,
    read_request,
)
from fedldp.protocol.wire.frame import pack_arrays, read_arrays
from fedldp.protocol.wire.types import (
    Broadcast,
    Counted,
    Incoming,
    Layout,
    Reason,
    Refusal,
    Report,
    Reports,
    RoundReply,
    RoundRequest,
    Sensitive,
    Vector,
    label_bits,
)

__all__ = [
    "Broadcast",
    "Counted",
    "Incoming",
    "Layout",
    "Reason",
    "Refusal",
    "Report",
    "Reports",
    "RoundReply",
    "RoundRequest",
    "Sensitive",
    "Vector",
    "broadcast_digest",
    "label_bits",
    "pack_arrays",
    "pack_reply",
    "pack_reports",
    "pack_request",
    "read_arrays",
    "read_reply",
    "read_reply_to",
    "read_reports_to",
    "read_request",
]
