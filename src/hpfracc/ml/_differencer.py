"""Fractional differencing as a step of a scikit-learn pipeline; scikit-learn need not be installed."""

from __future__ import annotations

import sys
from typing import Any, TypedDict, Unpack, final

import numpy as np

from hpfracc._frames import open_samples
from hpfracc._optional import import_optional
from hpfracc.errors import InvalidInputError, ShapeError, UnsupportedDtypeError
from hpfracc.operators._fractional_difference import fractional_difference
from hpfracc.operators.core.sequences import difference_width

__all__ = ["FractionalDifferencer"]

_PARAMETERS = ("d", "window", "threshold")


class DifferencerOptions(TypedDict, total=False):
    """The parameters of :class:`FractionalDifferencer`, for type checkers."""

    d: float
    window: int | None
    threshold: float | None


@final
class FractionalDifferencer:
    """Fractional differences of the columns of a table whose rows are in order of time.

    A transformer in the sense of scikit-learn, which need not be installed. It has no state but its parameters: each
    call of :meth:`transform` treats its rows as a complete series that starts with the first row. So transform a series
    before you split it, or put the last ``width - 1`` rows in front of the next part. A value depends on earlier rows
    only.

    Parameters
    ----------
    d : float, default 0.5
        The order of the difference.
    window : int, optional
        Number of rows that a value depends on; all earlier rows by default.
    threshold : float, optional
        Alternative to ``window``: drop the weights after the last one of at least this size.

    Attributes
    ----------
    n_features_in_ : int
        Number of columns seen by :meth:`fit`.
    feature_names_in_ : array of str
        Their names, if all of them are strings.
    width_ : int or None
        Number of rows that a value depends on; None without window and threshold.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> series = np.cumsum(np.ones((5, 1)), axis=0)
    >>> differ = hf.FractionalDifferencer(d=0.5).fit(series)
    >>> bool(np.allclose(differ.inverse_transform(differ.transform(series)), series))
    True
    """

    n_features_in_: int
    feature_names_in_: np.ndarray[Any, Any]
    width_: int | None

    def __init__(self, d: float = 0.5, *, window: int | None = None, threshold: float | None = None) -> None:
        self.d = d
        self.window = window
        self.threshold = threshold

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name; ``deep`` is accepted for scikit-learn and has no effect."""
        return {name: getattr(self, name) for name in _PARAMETERS}

    def set_params(self, **params: Unpack[DifferencerOptions]) -> FractionalDifferencer:
        """Set parameters by name.

        Parameters
        ----------
        **params
            ``d``, ``window`` and ``threshold``.

        Returns
        -------
        FractionalDifferencer
            The object itself.

        Raises
        ------
        InvalidInputError
            If a name is none of these.
        """
        for name, value in params.items():
            if name not in _PARAMETERS:
                raise InvalidInputError(
                    f"FractionalDifferencer has no parameter {name!r}; use {', '.join(_PARAMETERS)}"
                )
            setattr(self, name, value)
        return self

    def fit(self, X: Any, y: Any = None) -> FractionalDifferencer:  # noqa: N803 (scikit-learn's name)
        """Check the parameters against a table of rows (times) by columns; ``y`` is not used."""
        table = _as_table(X)
        fractional_difference(table[:1], self.d, self.window, self.threshold, axis=0)
        self.n_features_in_ = table.shape[1]
        names = _names_of(X)
        if names is not None:
            self.feature_names_in_ = names
        elif hasattr(self, "feature_names_in_"):
            del self.feature_names_in_
        self.width_ = self.window
        if self.threshold is not None:
            self.width_ = difference_width(self.d, self.threshold)
        return self

    def set_output(self, *, transform: str | None = None) -> FractionalDifferencer:
        """Set the type that :meth:`transform` returns, as scikit-learn's transformers do.

        Parameters
        ----------
        transform : {"default", "pandas"}, optional
            ``"default"``: a NumPy array. ``"pandas"``: a ``DataFrame`` with the index of the input. None leaves the
            setting unchanged; the initial setting is that of ``sklearn.set_config(transform_output=...)``, or an array.
        """
        if transform is not None:
            # The attribute that scikit-learn's `clone` reads.
            self._sklearn_output_config = {"transform": _check_output(transform)}
        return self

    def transform(self, X: Any) -> Any:  # noqa: N803
        """Differences of every column, with as many rows as the input; see :meth:`set_output` for the type."""
        found = self._apply(X, inverse=False)
        if self._output() == "default":
            return found
        pandas = import_optional("pandas")
        index = X.index if isinstance(X, pandas.DataFrame) else None
        names = _names_of(X)
        return pandas.DataFrame(found, index=index, columns=self.get_feature_names_out(names))

    def inverse_transform(self, X: Any) -> np.ndarray[Any, Any]:  # noqa: N803
        """The table whose differences these are."""
        return self._apply(X, inverse=True)

    def fit_transform(self, X: Any, y: Any = None) -> Any:  # noqa: N803
        """:meth:`fit`, then :meth:`transform`."""
        return self.fit(X, y).transform(X)

    def _output(self) -> str:
        """The type that :meth:`transform` returns."""
        chosen = getattr(self, "_sklearn_output_config", None)
        if chosen is not None:
            return str(chosen["transform"])
        sklearn = sys.modules.get("sklearn")
        get_config = getattr(sklearn, "get_config", None)  # None while another thread imports it
        return "default" if get_config is None else _check_output(get_config()["transform_output"])

    def get_feature_names_out(self, input_features: Any = None) -> np.ndarray[Any, Any]:
        """The names of the columns, unchanged; ``x0``, ``x1``, ... if they have none."""
        if input_features is None:
            known = getattr(self, "feature_names_in_", None)
            input_features = [f"x{i}" for i in range(self.n_features_in_)] if known is None else known
        return np.asarray(input_features, dtype=object)

    def _apply(self, given: Any, *, inverse: bool) -> np.ndarray[Any, Any]:
        table = _as_table(given)
        names, known = _names_of(given), getattr(self, "feature_names_in_", None)
        if names is not None and known is not None and list(names) != list(known):
            raise InvalidInputError(
                "The feature names should match those that were passed during fit: it was fitted with "
                f"{', '.join(known)} and is given {', '.join(names)}; give the same columns in the same order"
            )
        expected = getattr(self, "n_features_in_", table.shape[1])
        if table.shape[1] != expected:
            raise ShapeError(
                f"X has {table.shape[1]} features, but FractionalDifferencer is expecting {expected} features as "
                "input; give the columns it was fitted with, or fit it again"
            )
        found = fractional_difference(table, self.d, self.window, self.threshold, axis=0, inverse=inverse)
        return np.ascontiguousarray(found)

    def __sklearn_tags__(self) -> Any:
        """Tags of the estimator; called by scikit-learn."""
        from sklearn.utils import InputTags, Tags, TargetTags, TransformerTags

        return Tags(
            estimator_type=None,
            target_tags=TargetTags(required=False),
            transformer_tags=TransformerTags(preserves_dtype=["float64", "float32"]),
            input_tags=InputTags(allow_nan=True),
            requires_fit=False,
        )

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={value!r}" for name, value in self.get_params().items() if value is not None)
        return f"FractionalDifferencer({shown})"


def _names_of(given: Any) -> np.ndarray[Any, Any] | None:
    """The names of a frame's columns if all of them are strings, as in scikit-learn."""
    columns = getattr(given, "columns", None)
    if columns is None or not all(isinstance(name, str) for name in columns):
        return None
    return np.asarray(columns, dtype=object)


def _check_output(name: Any) -> str:
    if name not in ("default", "pandas"):
        raise InvalidInputError(f"transform={name!r} is not an output this transformer has; use 'default' or 'pandas'")
    return str(name)


def _as_table(given: Any) -> np.ndarray[Any, Any]:
    """Rows by columns, in float32 or float64."""
    if hasattr(given, "toarray"):
        raise UnsupportedDtypeError("X is sparse, but its differences are not; convert it with X.toarray()")
    table = np.asarray(open_samples(given, axis=0, by_row=True).values)
    if table.dtype.kind == "c":
        raise InvalidInputError(
            "Complex data not supported in a table of features; use hpfracc.fractional_difference for complex series"
        )
    if table.dtype not in (np.float32, np.float64):
        table = table.astype(np.float64)
    if table.ndim != 2:
        raise ShapeError(
            f"X has shape {table.shape}; give rows by columns. Reshape your data: X.reshape(-1, 1) is one series"
        )
    for count, what in zip(table.shape, ("sample", "feature"), strict=True):
        if not count:
            raise ShapeError(
                f"Found array with 0 {what}(s) (shape={table.shape}) while a minimum of 1 is required; give one"
            )
    return table
