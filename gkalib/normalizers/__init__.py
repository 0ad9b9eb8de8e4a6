"""From scores to weights: what a smoother does with a row of similarities."""

from gkalib.normalizers.base import Normalizer
from gkalib.normalizers.row_sum import RowSum
from gkalib.normalizers.simplex import Simplex
from gkalib.normalizers.top_k import TopK
from gkalib.normalizers.unnormalized import Unnormalized

__all__ = ["Normalizer", "RowSum", "Simplex", "TopK", "Unnormalized"]
