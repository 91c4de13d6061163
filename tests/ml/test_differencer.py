"""Fractional differencing as a transformer of scikit-learn, and without it."""

from __future__ import annotations

import pickle
import subprocess
import sys

import numpy as np
import pytest

import hpfracc as hf

TABLE = 50 + np.cumsum(np.random.default_rng(2).standard_normal((120, 3)), axis=0)


@pytest.mark.parametrize("options", [{}, {"d": 0.8, "window": 15}, {"d": 0.3, "threshold": 1e-2}], ids=str)
def test_differences_down_the_columns_and_back(options):
    """``transform`` is the function along the rows, ``inverse_transform`` undoes it, pickled or not."""
    differ = hf.FractionalDifferencer(**options)
    found = differ.fit_transform(TABLE)
    right = hf.fractional_difference(TABLE, **{"d": 0.5, **options}, axis=0)
    np.testing.assert_allclose(found, right, rtol=1e-12, atol=1e-12)
    again = pickle.loads(pickle.dumps(differ))
    np.testing.assert_allclose(again.inverse_transform(found), TABLE, rtol=1e-11)
    assert again.get_params() == {"d": 0.5, "window": None, "threshold": None, "continues": True, **options}


def test_the_width_is_told():
    """None for the whole memory, else how many rows a value looks back on."""
    assert hf.FractionalDifferencer().fit(TABLE).width_ is None
    assert hf.FractionalDifferencer(window=9).fit(TABLE).width_ == 9
    assert hf.FractionalDifferencer(d=0.4, threshold=1e-2).fit(TABLE).width_ == 11
    assert hf.FractionalDifferencer().fit(TABLE).get_feature_names_out().tolist() == ["x0", "x1", "x2"]
    assert repr(hf.FractionalDifferencer(d=0.4, window=3)) == "FractionalDifferencer(d=0.4, window=3, continues=True)"


@pytest.mark.parametrize(
    ("table", "words"),
    [
        (TABLE[:, 0], "Reshape your data"),
        (TABLE[:0], "0 sample"),
        (TABLE[:, :0], "0 feature"),
        (TABLE[:, :2], "expecting 3 features"),
        (TABLE + 1j, "Complex data not supported"),
    ],
)
def test_tables_that_do_not_fit_are_refused(table, words):
    """Shape and dtype are named, with the remedy."""
    with pytest.raises(hf.errors.InvalidInputError, match=words):
        hf.FractionalDifferencer().fit(TABLE).transform(table)


def test_parameters_are_checked_when_fitted():
    """As scikit-learn has it, not in the constructor; unknown names are refused at once."""
    with pytest.raises(hf.errors.InvalidInputError, match="window=0"):
        hf.FractionalDifferencer(window=0).fit(TABLE)
    with pytest.raises(hf.errors.InvalidInputError, match="a parameter of FractionalDifferencer='order'"):
        hf.FractionalDifferencer().set_params(order=1)


def test_scikit_learn_is_not_needed():
    """In a process that cannot import it, the transformer works."""
    code = (
        "import sys; sys.modules['sklearn'] = None\n"
        "import numpy as np, hpfracc as hf\n"
        "print(hf.FractionalDifferencer(d=1.0).fit_transform(np.array([[1.0], [4.0]])).tolist())"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[[1.0], [3.0]]"


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_keeps_scikit_learn_s_own_rules():
    """``check_estimator`` finds nothing but that the order of the rows matters, which it must."""
    from sklearn.utils.estimator_checks import check_estimator

    results = check_estimator(hf.FractionalDifferencer(), on_fail=None)
    failed = {result["check_name"] for result in results if result["status"] == "failed"}
    assert failed == {"check_methods_sample_order_invariance", "check_methods_subset_invariance"}
    assert sum(result["status"] == "passed" for result in results) > 35


def test_in_a_pipeline_and_a_grid():
    """Cloned, searched over and chained as any transformer is."""
    from sklearn.linear_model import LinearRegression
    from sklearn.model_selection import GridSearchCV
    from sklearn.pipeline import make_pipeline

    target = hf.fractional_difference(TABLE, 0.6, axis=0).sum(axis=1)
    chain = make_pipeline(hf.FractionalDifferencer(), LinearRegression())
    grid = {"fractionaldifferencer__d": [0.2, 0.6, 1.0]}
    search = GridSearchCV(chain, grid, cv=[(np.arange(120), np.arange(120))]).fit(TABLE, target)
    assert search.best_params_ == {"fractionaldifferencer__d": 0.6}


def test_frames_come_out_as_scikit_learn_has_it():
    """Arrays by default; frames with the index and the names of the input once ``set_output`` asks for them."""
    pandas = pytest.importorskip("pandas")
    given = pandas.DataFrame(TABLE, columns=["a", "b", "c"], index=pandas.bdate_range("2024-01-01", periods=120))
    differ = hf.FractionalDifferencer().fit(given)
    plain = differ.transform(given)
    assert type(plain) is np.ndarray
    assert differ.get_feature_names_out().tolist() == ["a", "b", "c"]
    found = differ.set_output(transform="pandas").set_output().transform(given)
    pandas.testing.assert_frame_equal(found, pandas.DataFrame(plain, index=given.index, columns=given.columns))
    assert list(hf.FractionalDifferencer().set_output(transform="pandas").fit_transform(TABLE).columns) == [
        "x0",
        "x1",
        "x2",
    ]
    with pytest.raises(hf.errors.InvalidInputError, match="feature names should match"):
        differ.transform(given[["b", "a", "c"]])
    with pytest.raises(hf.errors.InvalidInputError, match="transform='polars'"):
        differ.set_output(transform="polars")


def test_output_survives_a_clone_and_follows_the_configuration():
    """``clone`` and a pipeline's ``set_output`` carry it; ``sklearn.config_context`` sets the default."""
    pandas = pytest.importorskip("pandas")
    import sklearn
    from sklearn.base import clone
    from sklearn.pipeline import make_pipeline

    chain = make_pipeline(hf.FractionalDifferencer()).set_output(transform="pandas")
    assert isinstance(clone(chain).fit_transform(TABLE), pandas.DataFrame)
    with sklearn.config_context(transform_output="pandas"):
        assert isinstance(hf.FractionalDifferencer().fit_transform(TABLE), pandas.DataFrame)


OPTIONS = [{}, {"d": 0.8, "window": 15}, {"d": 0.3, "threshold": 1e-2}]


@pytest.mark.parametrize("options", OPTIONS, ids=str)
def test_goes_on_where_fit_ended(options):
    """The differences of a series do not depend on where it was split, and are undone."""
    whole = hf.FractionalDifferencer(**options).fit_transform(TABLE)
    differ = hf.FractionalDifferencer(**options).fit(TABLE[:70])
    np.testing.assert_allclose(differ.transform(TABLE[:70]), whole[:70], atol=1e-11)
    np.testing.assert_allclose(differ.transform(TABLE[70:]), whole[70:], atol=1e-11)
    np.testing.assert_allclose(differ.inverse_transform(whole[70:]), TABLE[70:], rtol=1e-10)
    np.testing.assert_allclose(differ.inverse_transform(whole[:70]), TABLE[:70], rtol=1e-10)
    own = hf.FractionalDifferencer(**options, continues=False).fit(TABLE[:70])
    np.testing.assert_allclose(own.transform(TABLE[70:]), hf.FractionalDifferencer(**options).transform(TABLE[70:]))


def test_labels_tell_which_rows_come_before():
    """Later rows, rows among the fitted ones, and an earlier or separate table."""
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame(TABLE, index=pandas.bdate_range("2024-01-01", periods=120))
    whole = hf.FractionalDifferencer().fit_transform(frame)
    differ = hf.FractionalDifferencer().fit(frame[20:90])
    anew = hf.FractionalDifferencer().fit_transform(frame[20:])
    np.testing.assert_allclose(differ.transform(frame[90:]), anew[70:], atol=1e-11)
    np.testing.assert_allclose(differ.transform(frame[50:60]), anew[30:40], atol=1e-11)
    np.testing.assert_allclose(differ.transform(frame[80:100]), anew[60:80], atol=1e-11)
    np.testing.assert_allclose(differ.transform(frame[:20]), whole[:20], atol=1e-11)
    with pytest.raises(hf.errors.InvalidInputError, match="cannot be compared"):
        differ.transform(frame.reset_index(drop=True))


@pytest.mark.parametrize("labelled", [False, True])
def test_a_grid_search_over_later_folds_finds_the_order(labelled):
    """Each test fold goes on where its training rows end; started anew, 0.2 seemed best where 0.6 is right."""
    from sklearn.linear_model import LinearRegression
    from sklearn.model_selection import GridSearchCV, TimeSeriesSplit
    from sklearn.pipeline import make_pipeline

    rng = np.random.default_rng(5)
    table = 50.0 + np.cumsum(rng.standard_normal((400, 1)), axis=0)
    target = hf.fractional_difference(table, 0.6, axis=0)[:, 0] + 0.1 * rng.standard_normal(400)
    if labelled:
        table = pytest.importorskip("pandas").DataFrame(table, columns=["price"])
    chain = make_pipeline(hf.FractionalDifferencer(), LinearRegression())
    grid = {"fractionaldifferencer__d": [0.2, 0.4, 0.6, 0.8, 1.0]}
    search = GridSearchCV(chain, grid, cv=TimeSeriesSplit(5)).fit(table, target)
    assert search.best_params_ == {"fractionaldifferencer__d": 0.6}
    assert search.best_score_ > 0.8
    grid["fractionaldifferencer__continues"] = [False]
    assert GridSearchCV(chain, grid, cv=TimeSeriesSplit(5)).fit(table, target).best_score_ < search.best_score_


def test_the_smallest_order_that_is_stationary():
    """Between 0 and 1 for a random walk, and 0 for noise; the orders tried are the user's."""
    rng = np.random.default_rng(1)
    noise = rng.standard_normal((600, 2))
    walk = 100.0 + np.cumsum(noise, axis=0)
    differ = hf.FractionalDifferencer(window=50)
    assert differ.minimal_order(noise) == 0.0
    found = differ.minimal_order(walk)
    assert 0.0 < found < 1.0
    assert differ.minimal_order(walk, level=0.01) >= found
    assert differ.minimal_order(walk, orders=[1.0]) == 1.0
    with pytest.raises(hf.errors.SolveError, match="no order of 0 to 0 makes"):
        differ.minimal_order(walk, orders=[0.0])
    with pytest.raises(hf.errors.InvalidInputError, match="level=0.2"):
        differ.minimal_order(walk, level=0.2)
    with pytest.raises(hf.errors.ShapeError, match="too few"):
        differ.minimal_order(walk[:60])


def test_the_test_for_a_unit_root_has_its_level():
    """Of 400 random walks about 5 % pass: 20 +- 4.4."""
    rng = np.random.default_rng(8)
    walks = np.cumsum(rng.standard_normal((400, 120)), axis=1)
    differ = hf.FractionalDifferencer()
    found = [differ.minimal_order(walk[:, None], orders=[0.0, 1.0], lags=1) for walk in walks]
    assert 8 <= found.count(0.0) <= 34


@pytest.mark.parametrize("options", [{}, {"window": 50}, {"threshold": 1e-3}], ids=str)
def test_parameters_that_change_after_fit_take_their_own_number_of_rows(options):
    """Not as many earlier rows as the window had in ``fit``."""
    differ = hf.FractionalDifferencer(window=5).fit(TABLE[:70]).set_params(**{"window": None, **options})
    right = hf.FractionalDifferencer(**options).fit_transform(TABLE)[70:]
    np.testing.assert_allclose(differ.transform(TABLE[70:]), right, atol=1e-11)
