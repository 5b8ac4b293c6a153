"""What the adapters share about pretrained weights."""

from __future__ import annotations


def require_weights(pretrained: bool, argument: str) -> None:
    """Refuse ``pretrained=True`` where there are no weights to keep."""
    if pretrained:
        wanted = "the trained module itself" if argument == "module" else "variables=, the trained ones"
        raise ValueError(
            f"pretrained=True needs weights to keep, but without them there are fresh ones for every "
            f"key; pass {wanted}."
        )
