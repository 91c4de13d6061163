"""Public names, loaded on first use: see ``hpfracc/_lazy.py``."""

from hpfracc.ml.jax.equations import FractionalResidual as FractionalResidual
from hpfracc.ml.jax.equations import GraphDiffusion as GraphDiffusion
from hpfracc.ml.jax.equations import LaplacianPower as LaplacianPower
from hpfracc.ml.jax.equations import LaplacianResidual as LaplacianResidual
from hpfracc.ml.jax.layers import FractionalConv1d as FractionalConv1d
from hpfracc.ml.jax.layers import FractionalConv2d as FractionalConv2d
from hpfracc.ml.jax.layers import FractionalDerivative as FractionalDerivative
from hpfracc.ml.jax.layers import FractionalFourier as FractionalFourier
from hpfracc.ml.jax.layers import FractionalLayer as FractionalLayer
from hpfracc.ml.jax.layers import FractionalLoss as FractionalLoss
from hpfracc.ml.jax.neural_fode import NeuralFODE as NeuralFODE
from hpfracc.ml.jax.neural_fsde import NeuralFSDE as NeuralFSDE
from hpfracc.ml.jax.optimizers import fractional_adam as fractional_adam
from hpfracc.ml.jax.optimizers import fractional_gradient_flow as fractional_gradient_flow
from hpfracc.ml.jax.optimizers import fractional_sgd as fractional_sgd
from hpfracc.ml.jax.order import LearnableOrder as LearnableOrder
from hpfracc.ml.jax.recurrent import FractionalFilter as FractionalFilter
from hpfracc.ml.jax.recurrent import FractionalLSTM as FractionalLSTM
from hpfracc.ml.jax.recurrent import FractionalRNN as FractionalRNN
from hpfracc.ml.path_losses import energy_score as energy_score
from hpfracc.ml.path_losses import signature_kernel as signature_kernel
from hpfracc.ml.path_losses import signature_mmd as signature_mmd
