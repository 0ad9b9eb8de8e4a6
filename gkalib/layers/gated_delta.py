"""The gated delta rule: a memory that corrects, and fades."""

from gkalib.layers.memory import MemoryAttention

__all__ = ["GatedDeltaAttention"]


class GatedDeltaAttention(MemoryAttention):
    r"""The delta rule on a memory of which a share a_t is kept.

    $$S_t = a_t S_{t-1} - \beta_t (a_t S_{t-1} k_t - v_t)\, k_t^\top$$

    It is ``delta`` where a = 1. The arguments are those of ``MemoryAttention``.

    References:
        Yang, Kautz and Hatamizadeh, Gated delta networks, 2025. Chapter 15 teaches it.
    """

    rule = "delta"
    gates = ("decay", "rate")
