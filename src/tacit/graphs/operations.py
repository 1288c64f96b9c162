"""The closed list of operations that a graph may have.

An operation of this list is a function of its inputs. It draws nothing, keeps nothing, and writes
to none of them. It takes the same steps for all numbers. Its result's shape follows from its
inputs' shapes and constants alone. It does not raise because of numbers. Where it could,
`condition` and `index` say what `graph_check` looks at, once, before any row is there.

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
expm1.default floor.default floor_divide.default fmod.Scalar ge.Scalar ge.Tensor gelu.default
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
logcumsumexp.default logsumexp.default max.default max.dim mean.default mean.dim min.default min.dim
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
    states = arguments.get("hx")
    if isinstance(states, list) and len(states) != 2:
        return f"has {len(states)} states, not 2"
    return _no_draws(arguments)


def _no_statistics(arguments: Mapping[str, Any]) -> str:
    if not arguments.get("use_input_stats", True):
        return "has statistics of other examples; use GroupNorm"
    return ""


def _constant_divisor(arguments: Mapping[str, Any]) -> str:
    if arguments.get("other", 1) == 0:
        return "divides whole numbers by 0"
    return ""


def _one_number(arguments: Mapping[str, Any]) -> str:
    if arguments.get("reduction", 1) not in (0, 1, 2):
        return "has another reduction than none, mean and sum"
    return ""


_CONDITIONS: Mapping[str, Callable[[Mapping[str, Any]], str]] = {
    **dict.fromkeys(("lstm.input", "gru.input", "rnn_tanh.input", "rnn_relu.input"), _whole_layers),
    "scaled_dot_product_attention.default": _no_draws,
    "instance_norm.default": _no_statistics,
    "remainder.Scalar": _constant_divisor,
    "fmod.Scalar": _constant_divisor,
    "div.Scalar_mode": _constant_divisor,
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
_FLOATS_ONLY = frozenset(
    {"div.Tensor_mode", "floor_divide.default", "pow.Scalar", "pow.Tensor_Tensor"}
)
# Why what people ask for most is not on the list, and what to write instead; by a name's beginning.
_INSTEAD: tuple[tuple[str, str], ...] = (
    ("batch_norm", "looks across examples; use GroupNorm or LayerNorm, or eval mode"),
    ("_native_batch_norm", "looks across examples; use GroupNorm or LayerNorm, or eval mode"),
    ("native_dropout", "draws at random; leave dropout out, as the noise regularises"),
    ("dropout", "draws at random; leave dropout out, as the noise regularises"),
    ("alpha_dropout", "draws at random; leave dropout out, as the noise regularises"),
    ("rand", "draws at random; use a buffer of fixed numbers"),
    ("normal", "draws at random; use a buffer of fixed numbers"),
    ("bernoulli", "draws at random"),
    ("multinomial", "draws at random"),
    ("rrelu", "draws at random; use leaky_relu"),
    ("_local_scalar_dense", "asks for a number of a row (item(), if, while); use torch.where"),
    ("item", "asks for a number of a row; use torch.where"),
    ("nonzero", "gives a size by numbers; use torch.where with three arguments"),
    ("sym_", "gives a size by numbers; use torch.where with three arguments"),
    ("masked_select", "gives a size by numbers; use torch.where with three arguments"),
    ("unique", "gives a size by numbers"),
    ("bincount", "gives a size by numbers; compare with torch.arange and add up"),
    ("one_hot", "raises for an unknown number; use (x.unsqueeze(-1) == torch.arange(n)).float()"),
    ("prod", "takes a time that zeros tell; add up logarithms"),
    ("cumprod", "takes a time that zeros tell; add up logarithms"),
    ("empty", "reads memory that nobody has written; use zeros"),
    ("new_empty", "reads memory that nobody has written; use new_zeros"),
    ("sort", "takes a time that numbers tell"),
    ("topk", "takes a time that numbers tell; use softmax, or max"),
    ("argsort", "takes a time that numbers tell"),
    ("kthvalue", "takes a time that numbers tell"),
    ("median", "takes a time that numbers tell; use mean"),
    ("linalg_", "raises or takes its time by numbers, as for a singular matrix"),
    ("inverse", "raises for a singular matrix"),
    ("cholesky", "raises for a matrix that is not positive"),
    ("binary_cross_entropy.", "raises outside 0 to 1; use binary_cross_entropy_with_logits"),
    ("complex", "complex numbers are not read"),
    ("fft_", "complex numbers are not read"),
    ("view_as_", "complex numbers are not read"),
)
ITEM: Final = "item"  # of an operation's several results, the one at a place


@dataclass(frozen=True, slots=True)
class Operation:
    """An operation of the list.

    index: the argument with places, and the one that they are places of. floats_only: whether it
    may be given no whole numbers. products: whether it multiplies matrices.
    """

    name: str
    call: torch._ops.OpOverload
    condition: Callable[[Mapping[str, Any]], str] | None
    index: tuple[str, str] | None
    floats_only: bool
    products: bool

    @property
    def arguments(self) -> list[torch.Argument]:
        """Its arguments, as torch states them."""
        return list(self.call._schema.arguments)


def _operation(name: str, *, products: bool) -> Operation:
    packet, _, overload = name.partition(".")
    call = getattr(getattr(torch.ops.aten, packet), overload)
    floats_only = name in _FLOATS_ONLY
    return Operation(name, call, _CONDITIONS.get(name), _PLACES.get(name), floats_only, products)


_NAMES = " ".join((_MOVES, _MAKES, _POINTWISE, _REDUCES, _LAYERS, _INDEXES)).split()
OPERATIONS: Mapping[str, Operation] = {
    **{name: _operation(name, products=False) for name in _NAMES},
    **{name: _operation(name, products=True) for name in _PRODUCTS.split()},
}


def instead(name: str) -> str:
    """Return why an operation is not on the list, and what to use instead; "": it is unknown."""
    return next((why for begin, why in _INSTEAD if name.startswith(begin)), "")
