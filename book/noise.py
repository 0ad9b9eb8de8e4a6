"""Changes the last place of what torch computes, as another processor would, the same way each time."""

import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode

# What processors round differently: they add in another order, and have another polynomial for exp.
PRODUCTS = (
    "mm bmm addmm baddbmm addbmm mv addmv dot vdot convolution convolution_backward linalg_matrix_exp "
    "_scaled_dot_product_flash_attention_for_cpu _scaled_dot_product_flash_attention_for_cpu_backward "
    "_cdist_forward _euclidean_dist _trilinear"
)
SUMS = (
    "sum mean nansum cumsum logsumexp logcumsumexp var std var_mean std_mean linalg_vector_norm norm trace "
    "native_layer_norm native_layer_norm_backward native_group_norm native_batch_norm mse_loss "
    "nll_loss_forward binary_cross_entropy binary_cross_entropy_with_logits kl_div smooth_l1_loss avg_pool2d "
    "_adaptive_avg_pool2d"
)
EXPONENTIALS = (
    "exp exp2 expm1 sinh cosh tanh sigmoid softplus log_sigmoid_forward gelu gelu_backward silu "
    "silu_backward erf erfc _softmax _log_softmax _softmax_backward_data _log_softmax_backward_data"
)
NOISY = frozenset(f"{PRODUCTS} {SUMS} {EXPONENTIALS}".split())

# The last: as many low bits are zero in a number that came out exactly, a half or a count, on any processor.
_KINDS = {torch.float32: (torch.int32, 31, 8), torch.float64: (torch.int64, 63, 24)}
_FACTOR = 0x9E3779B97F4A7C15  # the golden ratio's: its multiples are spread evenly


def perturb(result: Tensor, seed: int) -> None:
    """Move each number by −1, 0 or 1 unit in the last place, in place.

    Which of the three is a function of the seed and of the number's bits, a quarter, a half and a quarter of
    all: where two computations gave the same number, they do so again. What ends in zeros (0, 1, a count, ∞)
    stays, since it is taken to be exact.

    Args:
        result: of any shape; another dtype than float32 and float64 stays as it is.
        seed: which function.
    """
    if result.dtype not in _KINDS or result.device.type != "cpu" or result.layout != torch.strided:
        return
    integer, sign, low = _KINDS[result.dtype]
    bits = result.detach().view(integer)
    factor = (_FACTOR * (2 * seed + 1)) % 2**sign
    mixed = bits * (factor | 1)
    # The two highest bits of a product depend on all bits of its factors; each is 0 or −1 when shifted down.
    step = (mixed >> sign).sub_(mixed.bitwise_left_shift_(1) >> sign)
    bits.add_(step.mul_((bits & (2**low - 1)) != 0))


class Noise(TorchDispatchMode):
    """Perturbs the results of matrix products, sums and exponentials, of backward passes too.

    Args:
        seed: which noise.
    """

    supports_higher_order_operators = True  # flex_attention is one; it is called, its result has no noise

    def __init__(self, seed: int):
        super().__init__()
        self.seed = seed

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        """Call the operation, then perturb what it returned."""
        result = func(*args, **(kwargs or {}))
        name = func.name().removeprefix("aten::").partition(".")[0]
        if name in NOISY or name.removesuffix("_") in NOISY:
            for tensor in result if isinstance(result, tuple | list) else (result,):
                if type(tensor) in (Tensor, torch.nn.Parameter):
                    perturb(tensor, self.seed)
        return result


def start(seed: int) -> None:
    """From here on, and in this thread, torch computes with noise."""
    Noise(seed).__enter__()
