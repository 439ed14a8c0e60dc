//! What Python asks of layouts: arrays that are filled or changed in place.

use numpy::{PyArray1, PyReadonlyArray1, PyReadonlyArray2, PyReadwriteArray1, PyUntypedArrayMethods, ToPyArray};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::anneal::{Annealing, Plan};
use super::estimate::Limits;
use super::pools::Pools;
use super::{construct, estimate, fewest, layer_split, pools};
use crate::closed_form::cache::Cache;
use crate::closed_form::extract::{LayoutArrays, SettingArrays, check, numbers, rows};

type Ints<'py> = PyReadonlyArray1<'py, i64>;
type Found<'py, T> = PyResult<Bound<'py, PyArray1<T>>>;

/// Splits the layers so that the period is shortest, into `first_P`.
#[pyfunction]
pub fn split_layers(setting: SettingArrays<'_>, layout: LayoutArrays<'_>) -> PyResult<()> {
    let mut changed = layout.read()?;
    layer_split::split_layers(&setting.view()?, &mut changed);
    layout.write(&changed)
}

/// Fills a layout, whose shape says replicas and stages, with the machines of an order, best layers and shares.
#[pyfunction]
pub fn construct_layout(
    py: Python<'_>,
    setting: SettingArrays<'_>,
    layout: LayoutArrays<'_>,
    order: Ints<'_>,
    by_rows: bool,
) -> PyResult<()> {
    let (view, mut changed, order) = (setting.view()?, layout.read()?, numbers(order.as_slice()?));
    if order.len() < changed.machines.len() {
        let (given, asked) = (order.len(), changed.machines.len());
        return Err(PyValueError::new_err(format!(
            "an order of {given} cells does not fill a layout of {asked}"
        )));
    }
    py.detach(|| construct::construct(&view, &mut changed, &order, by_rows));
    layout.write(&changed)
}

/// Whether the layers can be split in 1, 2, .. stages of at most so many bytes; (J), False for none.
#[pyfunction]
pub fn stages_that_hold<'py>(
    py: Python<'py>,
    setting: SettingArrays<'py>,
    most_bytes: f64,
    num_batches: usize,
) -> Found<'py, bool> {
    let view = setting.view()?;
    Ok(py
        .detach(|| fewest::stages_that_hold(&view, most_bytes, num_batches))
        .to_pyarray(py))
}

/// Makes `num_moves` moves from a layout whose replicas are timed; its cost now, and that of `best`, which is updated.
///
/// `free`: cells for which each machine has room left, updated. `hot`, `cold`: temperatures at the first and the last
/// move. The same seed makes the same moves.
#[pyfunction]
#[expect(
    clippy::too_many_arguments,
    reason = "they are one call's; the loop's own are in `Annealing` and `Plan`"
)]
pub fn anneal(
    py: Python<'_>,
    setting: SettingArrays<'_>,
    layout: LayoutArrays<'_>,
    cache: &mut Cache,
    mut free: PyReadwriteArray1<'_, i64>,
    best: LayoutArrays<'_>,
    cost: f64,
    best_cost: f64,
    num_moves: usize,
    hot: f64,
    cold: f64,
    seed: u64,
) -> PyResult<(f64, f64)> {
    let (view, mut now, mut best_now) = (setting.view()?, layout.read()?, best.read()?);
    check(&view, &now, cache)?;
    let plan = Plan {
        num_moves,
        hot,
        cold,
        seed,
    };
    let free_m = free.as_slice_mut()?;
    let mut annealing = Annealing {
        setting: view,
        layout: &mut now,
        cache,
        free_m,
        best: &mut best_now,
        cost,
        best_cost,
    };
    py.detach(|| annealing.run(&plan));
    let costs = (annealing.cost, annealing.best_cost);
    layout.write(&now)?;
    best.write(&best_now)?;
    Ok(costs)
}

/// Regions with a weight as a closed walk: from the heaviest on the nearest, put where its worse edge is best.
#[pyfunction]
pub fn tour_of<'py>(
    py: Python<'py>,
    both: PyReadonlyArray2<'py, f64>,
    weight: PyReadonlyArray1<'py, f64>,
) -> Found<'py, i64> {
    Ok(array(py, &pools::tour_of(rows(&both)?, weight.as_slice()?)))
}

/// The cells that a way of cutting uses: all, or as many of each region as fill its rows or columns.
#[pyfunction]
pub fn cells_for<'py>(
    py: Python<'py>,
    setting: SettingArrays<'py>,
    order: Ints<'py>,
    num_stages: usize,
    way: usize,
) -> Found<'py, i64> {
    let cells = pools::cells_for(&setting.view()?, &numbers(order.as_slice()?), num_stages, way);
    Ok(array(py, &cells))
}

/// The logarithm of the cost of each shape (stages, eighths of the replicas there is room for, way of cutting).
///
/// `limits`: accelerators at least and at most, replicas where they are asked for (else 0).
#[pyfunction]
#[pyo3(name = "estimate")]
#[expect(clippy::too_many_arguments, reason = "arrays of different shapes")]
pub fn estimate_py<'py>(
    py: Python<'py>,
    setting: SettingArrays<'py>,
    both: PyReadonlyArray2<'py, f64>,
    counts: Ints<'py>,
    usable: Ints<'py>,
    first: Ints<'py>,
    shapes: PyReadonlyArray2<'py, i64>,
    limits: (usize, usize, usize),
) -> Found<'py, f64> {
    let (view, both, num_shapes) = (setting.view()?, rows(&both)?, shapes.shape()[0]);
    let pools = Pools {
        counts: counts.as_slice()?,
        usable: usable.as_slice()?,
        first: first.as_slice()?,
    };
    let (shapes, limits) = (
        rows(&shapes)?,
        Limits {
            least: limits.0,
            most: limits.1,
            data: limits.2,
        },
    );
    Ok(py
        .detach(|| estimate::estimate(&view, both, &pools, shapes, num_shapes, limits))
        .to_pyarray(py))
}

fn array<'py>(py: Python<'py>, values: &[usize]) -> Bound<'py, PyArray1<i64>> {
    values
        .iter()
        .map(|&value| value as i64)
        .collect::<Vec<i64>>()
        .to_pyarray(py)
}
