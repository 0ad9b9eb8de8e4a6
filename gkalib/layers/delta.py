"""The delta rule: a memory that corrects what it holds before it adds."""

from gkalib.layers.memory import MemoryAttention

__all__ = ["DeltaAttention"]


class DeltaAttention(MemoryAttention):
    r"""One step of gradient descent on ½‖S k_t − v_t‖² a token, of rate β_t.

    $$S_t = S_{t-1} - \beta_t (S_{t-1} k_t - v_t)\, k_t^\top$$

    With β = 1 the last pair is recalled exactly, and what was stored along its key is gone. The arguments are
    those of ``MemoryAttention``.

    References:
        Schlag, Irie and Schmidhuber, Linear transformers are secretly fast weight programmers, 2021; Yang et
        al., Parallelizing linear transformers with the delta rule over sequence length, 2024. Chapter 15
        teaches it.
    """

    rule = "delta"
    gates = ("rate",)
