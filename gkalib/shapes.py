"""The shapes that tensors have everywhere in the library, as jaxtyping aliases.

Axes: ``b`` batch, ``h`` query head, ``g`` key head (a divisor of ``h``), ``n`` query, ``m`` key, ``d`` head
dimension, ``e`` value dimension. A lag may differ within the batch and then has its axis in front.
"""

from jaxtyping import Bool, Float, Real
from torch import Tensor

Query = Float[Tensor, "b h n d"]
Key = Float[Tensor, "b g m d"]
Value = Float[Tensor, "b g m e"]
Scores = Float[Tensor, "b h n m"]
Weights = Float[Tensor, "b h n m"]
Output = Float[Tensor, "b h n e"]
Lag = Real[Tensor, "*lags n m"]
Allowed = Bool[Tensor, "*allowed"]
