"""The closed list of operations that a graph may have.

An operation of this list is a function of its inputs. It draws nothing, keeps nothing, and writes
to none of them. It takes the same steps for all numbers. Its result's shape follows from its
inputs' shapes and constants alone. It does not raise because of numbers. Where it could,
`condition` and `index` define what `graph_check` checks, once, before any row is there.

Names are torch's own, of the namespace `aten`, as `torch.export` writes them. What a graph names is
looked up here and nowhere else.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import torch

# Its result shares its input's memory, or is a copy of it, in another order or form.
_MOVES = """
alias.default cat.default chunk.default clone.default contiguous.default copy.default
detach.default
diag.default diag_embed.default diagonal.default expand.default expand_as.default
flatten.using_ints flip.default
masked_fill.Scalar masked_fill.Tensor movedim.int narrow.default pad.default permute.default
repeat.default repeat_interleave.self_int reshape.default roll.default select.int
select_scatter.default slice.Tensor slice_scatter.default split.Tensor split_with_sizes.default
squeeze.default squeeze.dim squeeze.dims stack.default t.default transpose.int tril.default
triu.default unbind.int unflatten.int unfold.default unsqueeze.default
 where.self where.ScalarSelf where.ScalarOther where.Scalar
"""
# It makes numbers of nothing but constants and shapes.
_MAKES = """
arange.default arange.start arange.start_step eye.default fill.Scalar fill.Tensor
full.default full_like.default linspace.default new_full.default new_ones.default new_zeros.default
ones.default ones_like.default scalar_tensor.default zeros.default zeros_like.default
"""
# Each number of its result follows from the numbers at the same place.
_POINTWISE = """
_to_copy.default abs.default acos.default add.Scalar add.Tensor addcdiv.default addcmul.default
asin.default atan.default atan2.default atanh.default bitwise_and.Tensor bitwise_not.default
bitwise_or.Tensor ceil.default celu.default clamp.default clamp.Tensor clamp_max.default
clamp_min.default copysign.Tensor cos.default cosh.default div.Scalar div.Tensor div.Scalar_mode
div.Tensor_mode elu.default eq.Scalar eq.Tensor erf.default erfc.default exp.default exp2.default
expm1.default floor.default fmod.Scalar ge.Scalar ge.Tensor gelu.default
glu.default gt.Scalar gt.Tensor hardshrink.default hardsigmoid.default hardswish.default
hardtanh.default isfinite.default isinf.default isnan.default le.Scalar le.Tensor
leaky_relu.default lerp.Scalar lerp.Tensor log.default log10.default log1p.default log2.default
log_sigmoid.default logaddexp.default logical_and.default logical_not.default logical_or.default
logical_xor.default lt.Scalar lt.Tensor maximum.default minimum.default mish.default mul.Scalar
mul.Tensor nan_to_num.default ne.Scalar ne.Tensor neg.default positive.default
pow.Scalar pow.Tensor_Scalar pow.Tensor_Tensor prelu.default reciprocal.default relu.default
relu6.default remainder.Scalar round.default rsqrt.default rsub.Scalar rsub.Tensor selu.default
sigmoid.default sign.default silu.default sin.default sinc.default sinh.default softplus.default
softshrink.default sqrt.default square.default sub.Scalar sub.Tensor tan.default
tanh.default to.dtype threshold.default trunc.default type_as.default xlogy.Tensor
"""
# It adds, compares or counts numbers along dimensions that its constants name.
_REDUCES = """
all.dim amax.default amin.default any.dim argmax.default argmin.default cosine_similarity.default
cummax.default cumsum.default linalg_vector_norm.default log_softmax.int
logsumexp.default max.default max.dim mean.default mean.dim min.default min.dim
norm.ScalarOpt_dim softmax.int std.correction sum.default
sum.dim_IntList var.correction var_mean.correction
"""
# It multiplies: matrices, convolutions, attention, recurrent layers.
_PRODUCTS = """
addbmm.default addmm.default addmv.default baddbmm.default bmm.default conv1d.default conv1d.padding
conv2d.default conv2d.padding conv3d.default conv3d.padding conv_transpose1d.default
conv_transpose2d.input conv_transpose3d.input dot.default einsum.default gru.input gru_cell.default
linear.default lstm.input lstm_cell.default matmul.default mm.default mv.default outer.default
rnn_relu.input rnn_relu_cell.default rnn_tanh.input rnn_tanh_cell.default
scaled_dot_product_attention.default
"""
# A layer without products, or a loss.
_LAYERS = """
_native_batch_norm_legit_no_training.default adaptive_avg_pool1d.default adaptive_avg_pool2d.default
adaptive_avg_pool3d.default adaptive_max_pool2d.default avg_pool1d.default avg_pool2d.default
avg_pool3d.default binary_cross_entropy_with_logits.default channel_shuffle.default
group_norm.default huber_loss.default instance_norm.default kl_div.default l1_loss.default
layer_norm.default max_pool1d.default max_pool2d.default max_pool3d.default mse_loss.default
native_layer_norm.default pixel_shuffle.default pixel_unshuffle.default rms_norm.default
smooth_l1_loss.default soft_margin_loss.default upsample_bilinear2d.vec upsample_nearest1d.vec
upsample_nearest2d.vec
"""
# It reads or writes at places that are themselves numbers. These are checked to lie inside.
_INDEXES = """
cross_entropy_loss.default embedding.default gather.default index.Tensor index_put.default
index_select.default
nll_loss.default scatter.src scatter.value scatter_add.default
"""


def _no_draws(arguments: Mapping[str, Any]) -> str:
    if arguments.get("train") and arguments.get("dropout"):
        return "drops numbers at random; set its dropout to 0"
    if arguments.get("dropout_p"):
        return "drops numbers at random; set its dropout to 0"
    return ""


def _whole_layers(arguments: Mapping[str, Any]) -> str:
    """Refuse a recurrent layer without all of its weights: torch reads past their end."""
    each = 4 if arguments.get("has_biases") else 2
    directions = 2 if arguments.get("bidirectional") else 1
    needed = arguments.get("num_layers", 0) * directions * each
    if arguments.get("num_layers", 0) < 1 or len(arguments.get("params", ())) != needed:
        return f"has {len(arguments.get('params', ()))} weights, and its layers have {needed}"
    return _all_states(arguments) or _no_draws(arguments)


def _all_states(arguments: Mapping[str, Any]) -> str:
    states = arguments.get("hx")
    if isinstance(states, list) and len(states) != 2:
        return f"has {len(states)} states, not 2"
    return ""


def _no_statistics(arguments: Mapping[str, Any]) -> str:
    """Refuse running statistics: torch writes them, so they would hold what earlier rows were."""
    kept = (arguments.get("running_mean"), arguments.get("running_var"))
    if not arguments.get("use_input_stats", True) or kept != (None, None):
        return "has statistics of other examples; use GroupNorm, or track_running_stats=False"
    return ""


def _rounded_quotient(arguments: Mapping[str, Any]) -> str:
    """Refuse a quotient that is rounded down: of floats it takes its remainder."""
    if arguments.get("rounding_mode") == "floor" and isinstance(arguments.get("other"), float):
        return "takes a time that numbers tell; use torch.floor(a / b)"
    return _constant_divisor(arguments)


def _constant_divisor(arguments: Mapping[str, Any]) -> str:
    """Refuse divisors of whole numbers for which the processor stops the process.

    By -1 it does so for the least number alone.
    """
    divisor = arguments.get("other", 1)
    if not isinstance(divisor, float) and divisor in (0, -1):
        return f"divides whole numbers by {int(divisor)}; for numbers use {divisor}.0"
    return ""


def _dense(arguments: Mapping[str, Any]) -> str:
    if arguments.get("sparse") or arguments.get("sparse_grad"):
        return "gives a sparse gradient; leave sparse out"
    return ""


def _one_number(arguments: Mapping[str, Any]) -> str:
    if arguments.get("reduction", 1) not in (0, 1, 2):
        return "has another reduction than none, mean and sum"
    return ""


_CONDITIONS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    **dict.fromkeys(("lstm.input", "gru.input", "rnn_tanh.input", "rnn_relu.input"), _whole_layers),
    "scaled_dot_product_attention.default": _no_draws,
    "instance_norm.default": _no_statistics,
    "embedding.default": _dense,
    "gather.default": _dense,
    "lstm_cell.default": _all_states,
    "remainder.Scalar": _constant_divisor,
    "fmod.Scalar": _constant_divisor,
    "div.Scalar_mode": _rounded_quotient,
    "cross_entropy_loss.default": _one_number,
    "nll_loss.default": _one_number,
}
# Of each, the argument that holds places, and the one whose size bounds them, along `dim` or 0.
_PLACES: Mapping[str, tuple[str, str]] = {
    "embedding.default": ("indices", "weight"),
    "gather.default": ("index", "self"),
    "index.Tensor": ("indices", "self"),
    "index_put.default": ("indices", "self"),
    "index_select.default": ("index", "self"),
    "scatter.src": ("index", "self"),
    "scatter.value": ("index", "self"),
    "scatter_add.default": ("index", "self"),
    "cross_entropy_loss.default": ("target", "self"),
    "nll_loss.default": ("target", "self"),
}
# They raise for whole numbers, by numbers: a zero divisor, a negative exponent.
_FLOATS_ONLY = frozenset({"div.Tensor_mode", "pow.Scalar", "pow.Tensor_Tensor"})
# Of floats they take up to 180 times as long, by numbers: a remainder is found digit by digit.
_WHOLE_ONLY = frozenset({"fmod.Scalar", "remainder.Scalar"})
# Why what people ask for most is not on the list, and what to write instead; by a name's beginning.
_INSTEAD: tuple[tuple[str, str], ...] = (
    ("batch_norm", "looks across examples; use GroupNorm or LayerNorm, or eval mode"),
    ("_native_batch_norm", "looks across examples; use GroupNorm or LayerNorm, or eval mode"),
    ("native_dropout", "draws at random; leave dropout out, as the noise regularises"),
    ("dropout", "draws at random; leave dropout out, as the noise regularises"),
    ("alpha_dropout", "draws at random; leave dropout out, as the noise regularises"),
    ("rand", "draws at random; use a buffer of fixed numbers"),
    ("normal", "draws at random; use a buffer of fixed numbers"),
    ("bernoulli", "draws at random; use a buffer of fixed numbers"),
    ("multinomial", "draws at random; use a buffer of fixed numbers"),
    ("rrelu", "draws at random; use leaky_relu"),
    ("_local_scalar_dense", "asks for a number of a row (item(), if, while); use torch.where"),
    ("item", "asks for a number of a row; use torch.where"),
    ("nonzero", "gives a size by numbers; use torch.where with three arguments"),
    ("sym_", "gives a size by numbers; use torch.where with three arguments"),
    ("masked_select", "gives a size by numbers; use torch.where with three arguments"),
    ("unique", "gives a size by numbers; compare with torch.arange and add up"),
    ("bincount", "gives a size by numbers; compare with torch.arange and add up"),
    ("one_hot", "raises for an unknown number; use (x.unsqueeze(-1) == torch.arange(n)).float()"),
    ("prod", "takes a time that zeros tell; add up logarithms"),
    ("cumprod", "takes a time that zeros tell; add up logarithms"),
    ("empty", "reads memory that nobody has written; use zeros"),
    ("new_empty", "reads memory that nobody has written; use new_zeros"),
    ("logcumsumexp", "takes a time that numbers tell; use logsumexp, or cumsum"),
    ("floor_divide", "takes a time that numbers tell; use torch.floor(a / b)"),
    ("fmod", "takes a time that numbers tell; use a - b * torch.trunc(a / b)"),
    ("remainder", "takes a time that numbers tell; use a - b * torch.floor(a / b)"),
    ("sort", "takes a time that numbers tell; use max, or softmax"),
    ("topk", "takes a time that numbers tell; use softmax, or max"),
    ("argsort", "takes a time that numbers tell; use argmax"),
    ("kthvalue", "takes a time that numbers tell; use max, or mean"),
    ("median", "takes a time that numbers tell; use mean"),
    (
        "linalg_",
        "raises or takes its time by numbers, as for a singular matrix; use products, as a "
        "fixed number of steps of an iteration",
    ),
    ("inverse", "raises for a singular matrix; use products"),
    ("cholesky", "raises for a matrix that is not positive; use products"),
    ("binary_cross_entropy.", "raises outside 0 to 1; use binary_cross_entropy_with_logits"),
    ("complex", "has complex numbers, which are not read; keep both parts as floats"),
    (
        "fft_",
        "has complex numbers, which are not read; multiply by fixed matrices of cosines and sines",
    ),
    ("view_as_", "has complex numbers, which are not read; keep both parts as floats"),
)
ITEM: Final = "item"  # of an operation's several results, the one at a place


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of the list.

    index: the argument with places, and the one that they are places of. floats_only: whether it
    may be given no whole numbers. whole_only: whether it may be given no floats. products: whether
    it multiplies matrices.
    """

    name: str
    call: torch._ops.OpOverload
    condition: Callable[[Mapping[str, Any]], str] | None
    index: tuple[str, str] | None
    floats_only: bool
    whole_only: bool
    products: bool

    @property
    def arguments(self) -> list[torch.Argument]:
        """Its arguments, as torch states them."""
        return list(self.call._schema.arguments)


def _operation(name: str, *, products: bool) -> Operation:
    packet, _, overload = name.partition(".")
    call = getattr(getattr(torch.ops.aten, packet), overload)
    return Operation(
        name,
        call,
        _CONDITIONS.get(name),
        _PLACES.get(name),
        name in _FLOATS_ONLY,
        name in _WHOLE_ONLY,
        products,
    )


_NAMES = " ".join((_MOVES, _MAKES, _POINTWISE, _REDUCES, _LAYERS, _INDEXES)).split()
OPERATIONS: Mapping[str, Operation] = {
    **{name: _operation(name, products=False) for name in _NAMES},
    **{name: _operation(name, products=True) for name in _PRODUCTS.split()},
}


def instead(name: str) -> str:
    """Return why an operation is not on the list, and what to use instead; "": it is unknown."""
    return next((why for begin, why in _INSTEAD if name.startswith(begin)), "")
