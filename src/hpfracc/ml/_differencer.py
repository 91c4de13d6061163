"""Fractional differencing as a step of a scikit-learn pipeline; scikit-learn need not be installed."""

from __future__ import annotations

import sys
from typing import Any, TypedDict, Unpack, final

import numpy as np

from hpfracc import _reading
from hpfracc._frames import open_samples
from hpfracc._optional import import_optional
from hpfracc.errors import InvalidInputError, ShapeError, SolveError, UnsupportedDtypeError
from hpfracc.operators._fractional_difference import fractional_difference
from hpfracc.operators.core.sequences import difference_width

__all__ = ["FractionalDifferencer"]

_PARAMETERS = ("d", "window", "threshold", "continues")
_OUTPUTS = ("default", "pandas")
#: Critical values of the t-statistic of the augmented Dickey-Fuller test with a constant, as polynomials in 1/T.
#: J. G. MacKinnon, "Critical values for cointegration tests", Queen's Economics Department Working Paper 1227, 2010,
#: table 2, N = 1.
_CRITICAL = {
    0.01: (-3.43035, -6.5393, -16.786, -79.433),
    0.05: (-2.86154, -2.8903, -4.234, -40.040),
    0.10: (-2.56677, -1.5384, -2.809, 0.0),
}


class DifferencerOptions(TypedDict, total=False):
    """The parameters of :class:`FractionalDifferencer`, for type checkers."""

    d: float
    window: int | None
    threshold: float | None
    continues: bool


@final
class FractionalDifferencer:
    """Fractional differences of the columns of a table whose rows are in order of time.

    A transformer in the sense of scikit-learn, which need not be installed. A value depends on its own row and on
    earlier ones, those of :meth:`fit` included: :meth:`transform` goes on where :meth:`fit` ended. So the parts of a
    series can be differenced one after the other, as in ``GridSearchCV(..., cv=TimeSeriesSplit())``.

    Parameters
    ----------
    d : float, default 0.5
        The order of the difference.
    window : int, optional
        Number of rows that a value depends on; all earlier rows by default.
    threshold : float, optional
        Alternative to ``window``: drop the weights after the last one of at least this size.
    continues : bool, default True
        Whether rows that are transformed may follow those that were fitted. The labels of a ``DataFrame`` with a sorted
        index tell: all fitted rows with earlier labels come before its first row. An array, which has no labels,
        follows the fitted rows unless it is the fitted table itself. False: each table is a series of its own.

    Attributes
    ----------
    n_features_in_ : int
        Number of columns seen by :meth:`fit`.
    feature_names_in_ : array of str
        Their names, if all of them are strings.
    width_ : int or None
        Number of rows that a value depends on; None without window and threshold.
    rows_ : array
        The fitted table.

    See Also
    --------
    fractional_difference

    Notes
    -----
    A gap between the fitted rows and the next ones is not known, and neither are rows that a fold leaves out: use folds
    whose training rows are consecutive, such as those of ``TimeSeriesSplit``.

    Examples
    --------
    >>> import numpy as np
    >>> import hpfracc as hf
    >>> series = np.cumsum(np.ones((5, 1)), axis=0)
    >>> differ = hf.FractionalDifferencer(d=0.5).fit(series)
    >>> bool(np.allclose(differ.inverse_transform(differ.transform(series)), series))
    True
    >>> halves = hf.FractionalDifferencer(d=1.0).fit(series[:3])
    >>> halves.transform(series[3:]).ravel()
    array([1., 1.])
    """

    n_features_in_: int
    feature_names_in_: np.ndarray[Any, Any]
    width_: int | None
    rows_: np.ndarray[Any, Any]

    def __init__(
        self, d: float = 0.5, *, window: int | None = None, threshold: float | None = None, continues: bool = True
    ) -> None:
        self.d, self.window, self.threshold, self.continues = d, window, threshold, continues

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """The parameters by name; ``deep`` is accepted for scikit-learn and has no effect."""
        return {name: getattr(self, name) for name in _PARAMETERS}

    def set_params(self, **params: Unpack[DifferencerOptions]) -> FractionalDifferencer:
        """Set parameters by name.

        Parameters
        ----------
        **params
            ``d``, ``window``, ``threshold`` and ``continues``.

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
            setattr(self, _reading.choice("a parameter of FractionalDifferencer", name, _PARAMETERS), value)
        return self

    def fit(self, X: Any, y: Any = None) -> FractionalDifferencer:  # noqa: N803 (scikit-learn's name)
        """Check the parameters against a table of rows (times) by columns, and keep it; ``y`` is not used."""
        table = _as_table(X)
        fractional_difference(table[:1], self.d, self.window, self.threshold, axis=0)
        names = _names_of(X)
        vars(self).pop("feature_names_in_", None)
        if names is not None:
            self.feature_names_in_ = names
        self.n_features_in_, self.width_ = table.shape[1], self._width(self.d)
        self.rows_, self._labels = np.array(table), _sorted_labels(X)
        return self

    def _width(self, d: float) -> int | None:
        return self.window if self.threshold is None else difference_width(d, self.threshold)

    def minimal_order(
        self, X: Any, *, level: float = 0.05, orders: Any = None, lags: int | None = None  # noqa: N803
    ) -> float:  # fmt: skip
        r"""The smallest order whose differences are stationary by the augmented Dickey-Fuller test, in every column.

        The test regresses :math:`\Delta y_t = c + \gamma y_{t-1} + \sum_{i=1}^p \delta_i \Delta y_{t-i} + e_t`, and
        passes if the t-statistic of :math:`\gamma` is below its critical value [1], [2]. The first row is subtracted
        from each column before, because a level that begins with the first row is no memory.

        Parameters
        ----------
        X : array_like, shape (rows, columns)
            The table, with the window or threshold of this object; the first ``width - 1`` differences are left out.
        level : {0.01, 0.05, 0.1}
            Probability to pass by chance where :math:`\gamma = 0`.
        orders : array_like, optional
            Orders to try, in this sequence; 0, 0.05, ..., 1 by default.
        lags : int, optional
            p; by default the number up to :math:`12 (T/100)^{1/4}` with the smallest information criterion of Akaike.

        Returns
        -------
        float
            The order, for ``d``.

        References
        ----------
        1. D. A. Dickey, W. A. Fuller, J. Amer. Statist. Assoc. 74, 1979, 427-431.
        2. J. G. MacKinnon, "Critical values for cointegration tests", Queen's Economics Department Working Paper 1227,
           2010.

        Examples
        --------
        >>> import numpy as np
        >>> import hpfracc as hf
        >>> walk = np.cumsum(np.random.default_rng(3).standard_normal((500, 1)), axis=0)
        >>> 0.0 < hf.FractionalDifferencer().minimal_order(walk) < 1.0
        True
        """
        if level not in _CRITICAL:
            raise InvalidInputError(f"level={level!r} is not tabulated; use {', '.join(map(str, _CRITICAL))}")
        tried = np.arange(21) / 20.0 if orders is None else np.asarray(orders, np.float64).ravel()
        table = _as_table(X).astype(np.float64)
        table = table - table[:1]
        for d in map(float, tried):
            found, width = fractional_difference(table, d, self.window, self.threshold, axis=0), self._width(d)
            kept = found[0 if width is None else min(width, len(found)) - 1 :]
            if all(_is_stationary(column, level, lags) for column in kept.T):
                return d
        raise SolveError(
            f"no order of {tried.min():g} to {tried.max():g} makes every column stationary at the level {level:g}; try "
            "larger orders, or more rows"
        )

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
            self._sklearn_output_config = {"transform": _reading.choice("transform", transform, _OUTPUTS)}
        return self

    def transform(self, X: Any) -> Any:  # noqa: N803
        """Differences of every column, with as many rows as the input; see :meth:`set_output` for the type."""
        found = self._apply(X, inverse=False)
        if self._output() == "default":
            return found
        pandas = import_optional("pandas")
        index = X.index if isinstance(X, pandas.DataFrame) else None
        return pandas.DataFrame(found, index=index, columns=self.get_feature_names_out(_names_of(X)))

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
        name = "default" if get_config is None else get_config()["transform_output"]
        return _reading.choice("transform", name, _OUTPUTS)

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
        options: dict[str, Any] = {"d": self.d, "window": self.window, "threshold": self.threshold, "axis": 0}
        past = self._past(given, table, options, inverse).astype(table.dtype)
        whole = np.concatenate([past, np.zeros_like(table) if inverse else table])
        found = fractional_difference(whole, **options)[len(past) :]
        if inverse:  # what the past contributes to these rows is known
            found = fractional_difference(table - found, **options, inverse=True)
        return np.ascontiguousarray(found)

    def _past(
        self, given: Any, table: np.ndarray[Any, Any], options: dict[str, Any], inverse: bool
    ) -> np.ndarray[Any, Any]:
        """The fitted rows before those of ``table``."""
        rows = getattr(self, "rows_", table[:0])
        if not self.continues or not len(rows):
            return rows[:0]
        labels = _sorted_labels(given)
        if labels is not None and self._labels is not None:
            try:
                count = int(self._labels.searchsorted(labels[0]))
            except TypeError:
                raise InvalidInputError(
                    f"the first label {labels[0]!r} cannot be compared with {self._labels[-1]!r}, the last one of fit; "
                    "give both tables the same kind of index, or continues=False"
                ) from None
        else:
            known = fractional_difference(rows, **options) if inverse and table.shape == rows.shape else rows
            count = 0 if _is_same(table, known, inverse) else len(rows)
        width = self._width(self.d)  # of the parameters as they are now
        return rows[:count] if width is None else rows[:count][max(0, count - width + 1) :]

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


def _sorted_labels(given: Any) -> Any:
    """The index of a frame if it is sorted; None for all other tables."""
    index = getattr(given, "index", None)
    return index if getattr(index, "is_monotonic_increasing", False) and hasattr(index, "searchsorted") else None


def _is_same(table: np.ndarray[Any, Any], known: np.ndarray[Any, Any], inverse: bool) -> bool:
    """Whether a table is the fitted one; differences of it, which ``inverse`` undoes, agree but for rounding."""
    if table.shape != known.shape:
        return False
    rounding = float(np.sqrt(np.finfo(table.dtype).eps)) if inverse else 0.0
    size = float(np.nanmax(np.abs(known), initial=0.0))
    return bool(np.allclose(table, known, rtol=0.0, atol=rounding * size, equal_nan=True))


def _is_stationary(y: np.ndarray[Any, Any], level: float, lags: int | None) -> bool:
    """Whether the augmented Dickey-Fuller test with a constant rejects a unit root."""
    change = np.diff(y)
    most = lags if lags is not None else int(12.0 * (len(y) / 100.0) ** 0.25)
    if most < 0 or len(change) - most < most + 4:
        raise ShapeError(f"{len(y)} differences are too few for a test with {most} lags; give more rows or fewer lags")
    if not np.isfinite(y).all():
        raise InvalidInputError("a column has values that are not finite; fill or drop them before the test")
    if np.ptp(y) == 0.0:
        return True

    def fit(count: int, first: int) -> tuple[float, float]:
        """The information criterion, and the t-statistic, with ``count`` lags from difference ``first`` on."""
        past = [change[first - i : len(change) - i] for i in range(1, count + 1)]
        given = np.column_stack([y[first:-1], np.ones(len(change) - first), *past])
        basis, triangle = np.linalg.qr(given)
        if np.abs(np.diagonal(triangle)).min() <= 1e-12 * np.abs(triangle).max():
            raise InvalidInputError("the lags of a column depend on each other; give fewer lags")
        target = change[first:]
        rest = target - basis @ (basis.T @ target)
        inverse = np.linalg.inv(triangle)
        rows, columns = given.shape
        variance = float(rest @ rest) / (rows - columns)
        slope = float((inverse @ (basis.T @ target))[0])
        error = float(np.sqrt(variance * np.sum(inverse[0] ** 2)))
        return rows * float(np.log(max(variance, 1e-300) * (rows - columns) / rows)) + 2.0 * columns, slope / error

    chosen = most if lags is not None else min(range(most + 1), key=lambda count: fit(count, most)[0])
    statistic = fit(chosen, chosen)[1]
    return statistic < float(np.polynomial.polynomial.polyval(1.0 / (len(change) - chosen), _CRITICAL[level]))


def _names_of(given: Any) -> np.ndarray[Any, Any] | None:
    """The names of a frame's columns if all of them are strings, as in scikit-learn."""
    columns = getattr(given, "columns", None)
    if columns is None or not all(isinstance(name, str) for name in columns):
        return None
    return np.asarray(columns, dtype=object)


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
