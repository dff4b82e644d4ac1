"""Losses as users write them: some are accepted, some are refused."""

from torch.nn import functional


def margin(logits, labels):
    right = logits.gather(-1, labels[..., None])
    return functional.softplus(logits - right + 1).sum(-1)


def mean(logits, labels):
    return functional.cross_entropy(logits, labels)


def detached(logits, labels):
    return functional.cross_entropy(logits, labels, reduction="none").detach()


def raising(logits, labels):
    raise RuntimeError("first line\nsecond line")


number = 3
