//! What is known of a layout while it changes, and scratch: of layouts of one shape on the same machines.

use numpy::{PyArray1, PyArray2, PyArrayMethods, ToPyArray};
use pyo3::prelude::*;

use super::arrays::Grid;
use super::pipeline::Stage;
use super::progress::Progress;
use super::resources::Resources;
use super::sharing::Sharing;
use super::sync::Sums;

/// Room to evaluate layouts of so many replicas and stages.
#[pyclass(module = "hulk_native")]
pub struct Cache {
    /// When the last backward pass of each cell ends if its pipeline is alone on its links, in seconds; (D, P).
    pub alone_dp: Grid,
    /// By how much a cell's bytes are over its memory, as a part of that, and layers that must not be there; (D, P).
    pub excess_dp: Grid,
    /// The stages of each replica, and whether they are of the layout as it is.
    pub chains: Vec<Vec<Stage>>,
    pub is_weighed_d: Vec<bool>,
    pub sharing: Sharing,
    pub progress: Progress,
    pub sums: Sums,
    pub ties: Resources,
    pub cells_m: Vec<usize>,
    /// When the gradients of each stage are ready in all replicas; (P).
    pub ready_p: Vec<f64>,
    num_regions: usize,
}

#[pymethods]
impl Cache {
    #[new]
    pub fn new(num_replicas: usize, num_stages: usize, num_regions: usize, num_machines: usize) -> Self {
        let nothing = Grid::filled(num_replicas, num_stages, 0.0);
        Self {
            alone_dp: nothing.clone(),
            excess_dp: nothing,
            chains: vec![vec![Stage::default(); num_stages]; num_replicas],
            is_weighed_d: vec![false; num_replicas],
            sharing: Sharing::of(num_replicas, num_stages, num_regions, num_machines),
            progress: Progress::default(),
            sums: Sums::of(num_stages, num_regions, num_machines),
            ties: Resources::of(num_regions, num_machines),
            cells_m: vec![0; num_machines],
            ready_p: vec![0.0; num_stages],
            num_regions,
        }
    }

    /// When the last backward pass of each cell ends, in seconds; (D, P), a copy.
    #[getter(ends_DP)]
    fn ends<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<f64>>> {
        matrix(py, &self.sharing.ends_dp)
    }

    /// By how much a cell's bytes are over its memory, as a part of that, and layers that must not be there; a copy.
    #[getter(excess_DP)]
    fn excess<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyArray2<f64>>> {
        matrix(py, &self.excess_dp)
    }

    /// Seconds of each stage's all-reduce; (P), a copy.
    #[getter(sync_P)]
    fn sync<'py>(&self, py: Python<'py>) -> Bound<'py, PyArray1<f64>> {
        self.sums.sync_p.to_pyarray(py)
    }
}

impl Cache {
    /// Replicas, stages, regions and machines.
    pub fn shape(&self) -> [usize; 4] {
        [
            self.alone_dp.num_rows(),
            self.alone_dp.width(),
            self.num_regions,
            self.cells_m.len(),
        ]
    }
}

fn matrix<'py>(py: Python<'py>, grid: &Grid) -> PyResult<Bound<'py, PyArray2<f64>>> {
    grid.values.to_pyarray(py).reshape([grid.num_rows(), grid.width()])
}
