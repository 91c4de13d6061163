"""The primitives by name: operators are lowered to them, and backends implement them."""

from __future__ import annotations

from hpfracc.engine.primitives.base import Primitive
from hpfracc.engine.primitives.bitwise_xor import BitwiseXor
from hpfracc.engine.primitives.causal_convolution import CausalConvolution
from hpfracc.engine.primitives.chirp_transform import ChirpTransform
from hpfracc.engine.primitives.elementwise import Elementwise
from hpfracc.engine.primitives.exponential_recurrence import ExponentialRecurrence
from hpfracc.engine.primitives.fft import FourierTransform
from hpfracc.engine.primitives.history_sum import HistorySum
from hpfracc.engine.primitives.matmul import Matmul
from hpfracc.engine.primitives.mittag_leffler import MittagLefflerFunction
from hpfracc.engine.primitives.random import Random
from hpfracc.engine.primitives.reduction import Reduction
from hpfracc.engine.primitives.spectral_multiply import SpectralMultiply
from hpfracc.engine.primitives.stencil_relax import StencilRelax
from hpfracc.engine.primitives.toeplitz_apply import ToeplitzApply
from hpfracc.engine.primitives.tridiagonal_solve import TridiagonalSolve

__all__ = ["OWN_PRIMITIVES", "PRIMITIVES"]

PRIMITIVES: dict[str, Primitive] = {
    primitive.name: primitive
    for primitive in (
        CausalConvolution(),
        Matmul(),
        FourierTransform(),
        Elementwise(),
        Reduction(),
        BitwiseXor(),
        MittagLefflerFunction(),
        SpectralMultiply(),
        ToeplitzApply(),
        StencilRelax(),
        ExponentialRecurrence(),
        HistorySum(),
        ChirpTransform(),
        Random(),
        TridiagonalSolve(),
    )
}


#: The contracts of users' operations, added by the layer that registers them.
OWN_PRIMITIVES: dict[str, Primitive] = {}
