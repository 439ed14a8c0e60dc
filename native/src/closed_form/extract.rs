//! Settings and layouts as Python has them, tuples of numpy arrays, and as Rust has them.

use numpy::{Element, PyArray1, PyArray2, PyArrayMethods, PyReadonlyArray1, PyReadonlyArray2, PyUntypedArrayMethods};
use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use super::arrays::{Layout, Rows, Schedule, Setting};
use super::cache::Cache;

type Floats<'py> = PyReadonlyArray1<'py, f64>;
type Ints<'py> = PyReadonlyArray1<'py, i64>;
type Matrix<'py> = PyReadonlyArray2<'py, f64>;

/// `hulk_placement.cost.closed_form.arrays.Setting`.
#[derive(FromPyObject)]
#[expect(clippy::struct_excessive_bools, reason = "each is a choice of its own")]
pub struct SettingArrays<'py> {
    #[pyo3(attribute("kind_M"))]
    kind_m: Ints<'py>,
    #[pyo3(attribute("region_M"))]
    region_m: Ints<'py>,
    #[pyo3(attribute("place_M"))]
    place_m: Ints<'py>,
    worker_cells: usize,
    #[pyo3(attribute("memory_K"))]
    memory_k: Floats<'py>,
    #[pyo3(attribute("price_K"))]
    price_k: Floats<'py>,
    #[pyo3(attribute("is_cold_K"))]
    is_cold_k: PyReadonlyArray1<'py, bool>,
    #[pyo3(attribute("nic_K"))]
    nic_k: Floats<'py>,
    #[pyo3(attribute("forward_KJ"))]
    forward_kj: Matrix<'py>,
    #[pyo3(attribute("backward_KJ"))]
    backward_kj: Matrix<'py>,
    #[pyo3(attribute("held_J"))]
    held_j: Floats<'py>,
    #[pyo3(attribute("gradient_J"))]
    gradient_j: Floats<'py>,
    #[pyo3(attribute("kept_J"))]
    kept_j: Floats<'py>,
    #[pyo3(attribute("input_J"))]
    input_j: Floats<'py>,
    #[pyo3(attribute("peak_GL"))]
    peak_gl: Matrix<'py>,
    #[pyo3(attribute("output_L"))]
    output_l: Floats<'py>,
    #[pyo3(attribute("ties_T2"))]
    ties_t2: PyReadonlyArray2<'py, i64>,
    #[pyo3(attribute("tied_held_T"))]
    tied_held_t: Floats<'py>,
    #[pyo3(attribute("tied_gradient_T"))]
    tied_gradient_t: Floats<'py>,
    #[pyo3(attribute("latency_QQ"))]
    latency_qq: Matrix<'py>,
    #[pyo3(attribute("flow_QQ"))]
    flow_qq: Matrix<'py>,
    #[pyo3(attribute("own_QQ"))]
    own_qq: Matrix<'py>,
    #[pyo3(attribute("is_wire_QQ"))]
    is_wire_qq: PyReadonlyArray2<'py, bool>,
    #[pyo3(attribute("inside_latency_K"))]
    inside_latency_k: Floats<'py>,
    #[pyo3(attribute("inside_flow_K"))]
    inside_flow_k: Floats<'py>,
    #[pyo3(attribute("latency_RR"))]
    latency_rr: Matrix<'py>,
    #[pyo3(attribute("round_trip_RR"))]
    round_trip_rr: Matrix<'py>,
    #[pyo3(attribute("flow_RR"))]
    flow_rr: Matrix<'py>,
    #[pyo3(attribute("capacity_RR"))]
    capacity_rr: Matrix<'py>,
    #[pyo3(attribute("carried_RR"))]
    carried_rr: Matrix<'py>,
    #[pyo3(attribute("uplink_R"))]
    uplink_r: Floats<'py>,
    #[pyo3(attribute("egress_RR"))]
    egress_rr: Matrix<'py>,
    #[pyo3(attribute("banned_MJ"))]
    banned_mj: Matrix<'py>,
    price_limit: f64,
    global_batch: usize,
    micro_batch: usize,
    tensor: usize,
    schedule: usize,
    overlap: bool,
    recompute: bool,
    transports: usize,
    wire_share: f64,
    inner_steps: usize,
    sums_by_layer: bool,
    is_money: bool,
    is_equal: bool,
}

impl SettingArrays<'_> {
    /// The arrays as they lie in memory.
    pub fn view(&self) -> PyResult<Setting<'_>> {
        Ok(Setting {
            kind_m: self.kind_m.as_slice()?,
            region_m: self.region_m.as_slice()?,
            place_m: self.place_m.as_slice()?,
            worker_cells: self.worker_cells,
            memory_k: self.memory_k.as_slice()?,
            price_k: self.price_k.as_slice()?,
            is_cold_k: self.is_cold_k.as_slice()?,
            nic_k: self.nic_k.as_slice()?,
            forward_kj: rows(&self.forward_kj)?,
            backward_kj: rows(&self.backward_kj)?,
            held_j: self.held_j.as_slice()?,
            gradient_j: self.gradient_j.as_slice()?,
            kept_j: self.kept_j.as_slice()?,
            input_j: self.input_j.as_slice()?,
            peak_gl: rows(&self.peak_gl)?,
            output_l: self.output_l.as_slice()?,
            ties_t2: rows(&self.ties_t2)?,
            tied_held_t: self.tied_held_t.as_slice()?,
            tied_gradient_t: self.tied_gradient_t.as_slice()?,
            latency_qq: rows(&self.latency_qq)?,
            flow_qq: rows(&self.flow_qq)?,
            own_qq: rows(&self.own_qq)?,
            is_wire_qq: rows(&self.is_wire_qq)?,
            inside_latency_k: self.inside_latency_k.as_slice()?,
            inside_flow_k: self.inside_flow_k.as_slice()?,
            latency_rr: rows(&self.latency_rr)?,
            round_trip_rr: rows(&self.round_trip_rr)?,
            flow_rr: rows(&self.flow_rr)?,
            capacity_rr: rows(&self.capacity_rr)?,
            carried_rr: rows(&self.carried_rr)?,
            uplink_r: self.uplink_r.as_slice()?,
            egress_rr: rows(&self.egress_rr)?,
            banned_mj: rows(&self.banned_mj)?,
            price_limit: self.price_limit,
            global_batch: self.global_batch,
            micro_batch: self.micro_batch,
            tensor: self.tensor,
            schedule: schedule_of(self.schedule)?,
            overlap: self.overlap,
            recompute: self.recompute,
            transports: self.transports,
            wire_share: self.wire_share,
            inner_steps: self.inner_steps,
            sums_by_layer: self.sums_by_layer,
            is_money: self.is_money,
            is_equal: self.is_equal,
        })
    }
}

/// A matrix as it lies in memory.
pub fn rows<'a, T: Element + Copy>(array: &'a PyReadonlyArray2<'_, T>) -> PyResult<Rows<'a, T>> {
    Ok(Rows::new(array.as_slice()?, array.shape()[1]))
}

/// Numbers are those of `hulk_placement.cost.closed_form.pipeline`.
pub fn schedule_of(number: usize) -> PyResult<Schedule> {
    match number {
        0 => Ok(Schedule::Gpipe),
        1 => Ok(Schedule::OneForwardOneBackward),
        _ => Err(PyValueError::new_err(format!(
            "schedule {number} must be 0 (gpipe) or 1 (1f1b)"
        ))),
    }
}

/// `hulk_placement.cost.closed_form.arrays.Layout`.
#[derive(FromPyObject)]
pub struct LayoutArrays<'py> {
    #[pyo3(attribute("machine_DP"))]
    machine_dp: Bound<'py, PyArray2<i64>>,
    #[pyo3(attribute("first_P"))]
    first_p: Bound<'py, PyArray1<i64>>,
    #[pyo3(attribute("shares_D"))]
    shares_d: Bound<'py, PyArray1<i64>>,
    #[pyo3(attribute("tour_W"))]
    tour_w: Bound<'py, PyArray1<i64>>,
}

impl LayoutArrays<'_> {
    /// A copy to work with.
    pub fn read(&self) -> PyResult<Layout> {
        let machines = self.machine_dp.try_readonly()?;
        let (num_replicas, num_stages) = (machines.shape()[0], machines.shape()[1]);
        let layout = Layout {
            machines: numbers(machines.as_slice()?),
            num_stages,
            first: numbers(self.first_p.try_readonly()?.as_slice()?),
            shares: numbers(self.shares_d.try_readonly()?.as_slice()?),
            tour: numbers(self.tour_w.try_readonly()?.as_slice()?),
        };
        if layout.shares.len() != num_replicas || layout.first.len() != num_stages + 1 {
            let (shares, first) = (layout.shares.len(), layout.first.len());
            return Err(PyValueError::new_err(format!(
                "a layout of {num_replicas} x {num_stages} cells has {shares} shares and {first} first layers"
            )));
        }
        Ok(layout)
    }

    /// Writes a layout of the same shape into the arrays.
    pub fn write(&self, layout: &Layout) -> PyResult<()> {
        copy(&layout.machines, self.machine_dp.try_readwrite()?.as_slice_mut()?);
        copy(&layout.first, self.first_p.try_readwrite()?.as_slice_mut()?);
        copy(&layout.shares, self.shares_d.try_readwrite()?.as_slice_mut()?);
        copy(&layout.tour, self.tour_w.try_readwrite()?.as_slice_mut()?);
        Ok(())
    }
}

/// Machines, layers, ... as Rust counts them.
pub fn numbers(values: &[i64]) -> Vec<usize> {
    values.iter().map(|&value| value as usize).collect()
}

fn copy(values: &[usize], target: &mut [i64]) {
    for (there, &value) in target.iter_mut().zip(values) {
        *there = value as i64;
    }
}

/// That a cache was made for layouts of this shape on so many machines.
pub fn check(setting: &Setting, layout: &Layout, cache: &Cache) -> PyResult<()> {
    let shape = [
        layout.num_replicas(),
        layout.num_stages,
        setting.num_regions(),
        setting.num_machines(),
    ];
    if cache.shape() == shape {
        return Ok(());
    }
    let made = cache.shape();
    Err(PyValueError::new_err(format!(
        "a cache of {made:?} does not fit {shape:?} replicas, stages, regions, machines"
    )))
}
