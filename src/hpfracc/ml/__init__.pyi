"""Public names, loaded on first use: see ``hpfracc/_lazy.py``."""

from hpfracc.ml.config import LayerConfig as LayerConfig
from hpfracc.ml.torch.equations import FractionalResidual as FractionalResidual
from hpfracc.ml.torch.equations import GraphDiffusion as GraphDiffusion
from hpfracc.ml.torch.equations import LaplacianPower as LaplacianPower
from hpfracc.ml.torch.equations import LaplacianResidual as LaplacianResidual
from hpfracc.ml.torch.equations import graded_points as graded_points
from hpfracc.ml.torch.equations import whole_derivative as whole_derivative
from hpfracc.ml.torch.layers import FractionalConv1d as FractionalConv1d
from hpfracc.ml.torch.layers import FractionalConv2d as FractionalConv2d
from hpfracc.ml.torch.layers import FractionalDerivative as FractionalDerivative
from hpfracc.ml.torch.layers import FractionalFourier as FractionalFourier
from hpfracc.ml.torch.layers import FractionalLayer as FractionalLayer
from hpfracc.ml.torch.layers import FractionalLoss as FractionalLoss
from hpfracc.ml.torch.neural_fode import NeuralFODE as NeuralFODE
from hpfracc.ml.torch.neural_fsde import NeuralFSDE as NeuralFSDE
from hpfracc.ml.torch.order import LearnableOrder as LearnableOrder
from hpfracc.ml.torch.order import parameter_groups as parameter_groups
from hpfracc.ml.torch.recurrent import FractionalFilter as FractionalFilter
from hpfracc.ml.torch.recurrent import FractionalLSTM as FractionalLSTM
from hpfracc.ml.torch.recurrent import FractionalRNN as FractionalRNN
