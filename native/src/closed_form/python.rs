//! What Python asks of the closed form.

use numpy::{PyArray1, PyReadonlyArray1, ToPyArray};
use pyo3::prelude::*;

use super::cache::Cache;
use super::extract::{LayoutArrays, SettingArrays, check, schedule_of};
use super::pipeline::{Stage, Way};
use super::progress::Progress;
use super::resources::Resources;
use super::rings::Cut;
use super::{evaluate, memory, pipeline, price, tied};

type Floats<'py> = PyReadonlyArray1<'py, f64>;

/// The cost of a layout, from nothing: seconds of a step, or its price; more where memory, price or workers lack.
#[pyfunction]
#[pyo3(name = "evaluate")]
pub fn evaluate_py(setting: SettingArrays<'_>, layout: LayoutArrays<'_>, cache: &mut Cache) -> PyResult<f64> {
    let (setting, layout) = (setting.view()?, layout.read()?);
    check(&setting, &layout, cache)?;
    Ok(evaluate::evaluate(&setting, &layout, cache))
}

/// Times all replicas' pipelines beside each other, and weighs their cells, into the cache.
#[pyfunction]
pub fn time_replicas(setting: SettingArrays<'_>, layout: LayoutArrays<'_>, cache: &mut Cache) -> PyResult<()> {
    let (setting, layout) = (setting.view()?, layout.read()?);
    check(&setting, &layout, cache)?;
    evaluate::time_alone(&setting, &layout, cache);
    evaluate::share_links(&setting, &layout, cache);
    Ok(())
}

/// Bytes of one rank of a stage of layers first .. last - 1 at its peak, with `num` micro-batches.
#[pyfunction]
pub fn memory_bytes(
    setting: SettingArrays<'_>,
    first: usize,
    last: usize,
    stage: usize,
    num_stages: usize,
    num: usize,
) -> PyResult<f64> {
    Ok(memory::memory_bytes(
        &setting.view()?,
        first,
        last,
        stage,
        num_stages,
        num,
    ))
}

/// Whether layers first .. last - 1 use an earlier stage's parameters by this tie.
#[pyfunction]
pub fn holds_tie(setting: SettingArrays<'_>, first: usize, last: usize, number: usize) -> PyResult<bool> {
    Ok(memory::holds_tie(&setting.view()?, first, last, number))
}

/// Seconds that a step is longer because stages that share parameters sum their gradients; `at_ties`: the setting with
/// links as messages of that size find them.
#[pyfunction]
pub fn tied_seconds(setting: SettingArrays<'_>, at_ties: SettingArrays<'_>, layout: LayoutArrays<'_>) -> PyResult<f64> {
    let (setting, layout) = (setting.view()?, layout.read()?);
    Ok(tied::tied_seconds(
        &setting,
        &at_ties.view()?,
        &layout,
        &mut Resources::of(setting.num_regions(), setting.num_machines()),
    ))
}

/// Seconds that a micro-batch takes from one stage of a replica to a later one, forward, and back.
#[pyfunction]
pub fn slack_seconds(
    setting: SettingArrays<'_>,
    layout: LayoutArrays<'_>,
    replica: usize,
    early: usize,
    late: usize,
) -> PyResult<(f64, f64)> {
    Ok(tied::slack_seconds(
        &setting.view()?,
        &layout.read()?,
        replica,
        early,
        late,
    ))
}

/// How many cells more would make all machines' cells whole workers.
#[pyfunction]
pub fn lacking_cells(setting: SettingArrays<'_>, layout: LayoutArrays<'_>) -> PyResult<usize> {
    let (setting, layout) = (setting.view()?, layout.read()?);
    Ok(price::lacking_cells(
        &setting,
        &layout,
        &mut vec![0; setting.num_machines()],
    ))
}

/// As `hulk_placement.cost.gloo.cut_ring`: segments that cross every edge in each half, and the bytes of one.
#[pyfunction]
pub fn ring_cut(num_bytes: f64, num_ranks: usize, num_buckets: usize) -> (usize, f64) {
    let cut = Cut::of(num_bytes, num_ranks, num_buckets);
    (cut.hops, cut.segment)
}

/// As `hulk_placement.cost.gloo.Ring.edge_s`, there and back in `way_s`, where the edge's link is busy for `full_s`.
#[pyfunction]
pub fn edge_seconds(hops: usize, segment: f64, num_buckets: usize, way_s: f64, flow: f64, full_s: f64) -> f64 {
    Cut {
        hops,
        segment,
        num_buckets,
    }
    .edge_s(way_s, flow, full_s)
}

/// `hulk_placement.cost.closed_form.pipeline.Chain`.
#[derive(FromPyObject)]
pub struct ChainArrays<'py> {
    forward_s: Floats<'py>,
    backward_s: Floats<'py>,
    send_s: Floats<'py>,
    latency_s: Floats<'py>,
    packets: Floats<'py>,
    back_send_s: Floats<'py>,
    back_latency_s: Floats<'py>,
    back_packets: Floats<'py>,
}

impl ChainArrays<'_> {
    fn read(&self) -> PyResult<Vec<Stage>> {
        let (forward_s, backward_s) = (self.forward_s.as_slice()?, self.backward_s.as_slice()?);
        let there = ways(&self.send_s, &self.latency_s, &self.packets, forward_s.len())?;
        let back = ways(
            &self.back_send_s,
            &self.back_latency_s,
            &self.back_packets,
            forward_s.len(),
        )?;
        let blocks = forward_s.iter().zip(backward_s).zip(there.into_iter().zip(back));
        Ok(blocks
            .map(|((&forward_s, &backward_s), (there, back))| Stage {
                forward_s,
                backward_s,
                there,
                back,
            })
            .collect())
    }
}

/// The ways behind so many stages; none behind those that the arrays are too short for.
fn ways(send: &Floats<'_>, latency: &Floats<'_>, packets: &Floats<'_>, num_stages: usize) -> PyResult<Vec<Way>> {
    let (send, latency, packets) = (send.as_slice()?, latency.as_slice()?, packets.as_slice()?);
    let at = |row: &[f64], s: usize| row.get(s).copied().unwrap_or(0.0);
    let way = |s: usize| Way {
        send_s: at(send, s),
        latency_s: at(latency, s),
        packets: at(packets, s),
    };
    Ok((0..num_stages).map(way).collect())
}

/// When each stage's last backward pass ends, in seconds; (P).
#[pyfunction]
pub fn pipeline_ends<'py>(
    py: Python<'py>,
    schedule: usize,
    num_micro_batches: usize,
    chain: ChainArrays<'py>,
    overlap: bool,
) -> PyResult<Bound<'py, PyArray1<f64>>> {
    let (chain, schedule) = (chain.read()?, schedule_of(schedule)?);
    let mut ends_p = vec![0.0; chain.len()];
    pipeline::pipeline_ends(
        schedule,
        num_micro_batches,
        &chain,
        overlap,
        &mut ends_p,
        &mut Progress::default(),
    );
    Ok(ends_p.to_pyarray(py))
}

/// Seconds that no pipeline of these stages ends before.
#[pyfunction]
pub fn least_s(schedule: usize, num_micro_batches: usize, chain: ChainArrays<'_>) -> PyResult<f64> {
    Ok(pipeline::least_s(
        schedule_of(schedule)?,
        num_micro_batches,
        &chain.read()?,
    ))
}
