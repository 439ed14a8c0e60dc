//! Arrays of numpy as the loops read them.

use numpy::PyReadonlyArray1;
use pyo3::PyResult;

/// Indices, none of which is negative.
pub fn indices(array: &PyReadonlyArray1<'_, i64>) -> PyResult<Vec<usize>> {
    Ok(array.as_slice()?.iter().map(|&index| index as usize).collect())
}
