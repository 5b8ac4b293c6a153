"""Check the flag of pretrained weights, for all adapters."""

from __future__ import annotations


def require_weights(pretrained: bool, argument: str) -> None:
    """Raise an error for ``pretrained=True`` without weights to keep."""
    if pretrained:
        wanted = "the trained module itself" if argument == "module" else "variables=, the trained ones"
        raise ValueError(
            f"pretrained=True needs weights to keep, but without them there are fresh ones for every "
            f"key; pass {wanted}."
        )
