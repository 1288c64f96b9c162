"""Which operations of torch cannot raise because of the numbers that they are given.

An operation stands here if, for tensors of right shapes and types, it gives a result whatever the
numbers are, nan and infinities too, with a shape that does not depend on them. Not here: what
solves or factors matrices (singular ones raise), what reads or writes at an index that is itself a
number of a tensor (one out of range raises), what divides whole numbers (zero raises), losses that
look at their input's range, and what gives a shape, or a number of Python's, by numbers.
"""

from __future__ import annotations

from typing import Any

import torch

_VIEWS = """
alias detach diagonal expand movedim permute select slice split split_with_sizes squeeze t transpose
unbind unfold unsafe_split unsafe_split_with_sizes unsqueeze view _unsafe_view _reshape_alias
"""
_MADE = """
_to_copy arange cat clone constant_pad_nd copy eye fill flip full full_like lift_fresh_copy
new_full new_ones new_zeros ones ones_like repeat roll scalar_tensor stack tril triu zero zeros
zeros_like diag_embed
"""
_POINTWISE = """
abs add addcdiv addcmul bitwise_and bitwise_right_shift ceil clamp clamp_max clamp_min cos div elu
eq erf exp expm1 floor ge gelu gt hardsigmoid hardswish hardtanh isinf isnan le leaky_relu lerp log
log1p log_sigmoid_forward logical_and logical_not logical_or lt maximum minimum mish mul ne neg
reciprocal relu round rsqrt rsub sgn sigmoid sign silu sin softplus sqrt square sub tanh where
"""
_REDUCED = """
_log_softmax _safe_softmax _softmax amax amin cumsum linalg_vector_norm logsumexp mean prod std sum
var var_mean
"""
_PRODUCTS = """
_adaptive_avg_pool2d addbmm addmm addmv avg_pool2d baddbmm bmm convolution dot
max_pool2d_with_indices mm mv native_group_norm native_layer_norm
"""
_BACKWARD = """
_adaptive_avg_pool2d_backward _log_softmax_backward_data _softmax_backward_data avg_pool2d_backward
convolution_backward elu_backward gelu_backward hardsigmoid_backward hardswish_backward
hardtanh_backward leaky_relu_backward log_sigmoid_backward max_pool2d_with_indices_backward
mish_backward native_group_norm_backward native_layer_norm_backward select_backward
sigmoid_backward silu_backward slice_backward softplus_backward tanh_backward threshold_backward
unfold_backward
"""
# What writes to its first argument alone, beside the functions of single numbers.
_WRITES = """
copy fill index_add index_copy index_fill index_put masked_fill masked_scatter scatter scatter_add
squeeze t transpose tril triu unsqueeze zero
"""
_IN_PLACE = frozenset(f"{name}_" for name in (_POINTWISE + _WRITES).split())
_HARMLESS = frozenset(" ".join((_VIEWS, _MADE, _POINTWISE, _REDUCED, _PRODUCTS, _BACKWARD)).split())
# Of these names, the forms that can divide whole numbers by zero, or find where numbers are not 0.
_NOT = frozenset({"div.Tensor_mode", "div.Scalar_mode", "where.default"})
_POWER = "pow.Tensor_Scalar"  # of a fixed exponent, which raises for all numbers or for none


def harmless(operation: Any) -> bool:
    """Check whether torch's `operation` gives a result whatever the numbers are.

    One in place counts as the same that is not.
    """
    if not isinstance(operation, torch._ops.OpOverload) or operation.namespace != "aten":
        return False
    plain = _name(operation).rstrip("_")
    form = f"{plain}.{operation._overloadname}"
    return (plain in _HARMLESS and form not in _NOT) or form == _POWER


def writes_to_its_first(operation: Any) -> bool:
    """Check whether an operation that writes in place writes to its first argument alone.

    That is one tensor, and it keeps the memory that it has. Not so: `set_`, which gives it
    another's; `resize_`; what writes to a list of tensors, or to `out`.
    """
    written = [
        place
        for place, argument in enumerate(operation._schema.arguments)
        if argument.alias_info is not None and argument.alias_info.is_write
    ]
    return _name(operation) in _IN_PLACE and written == [0]


def _name(operation: Any) -> str:
    name: str = operation._schema.name.partition("::")[2]
    return name
