//! A job on shares of pools -> the graphs that the value network reads.
//!
//! Letters of shapes: B graphs, N nodes (the most of any graph), P pools. Logarithms are to base 10 and at most `LIMIT`
//! off 0; `ideal` is the step in which all accelerators of the share are always busy and nothing is sent.
//!
//! ```text
//! ideal_s     global batch / sum over pools of count x speed
//! layer_s     accelerators / (layers x sum of count x speed): one layer of one sequence on a mean accelerator
//! ```

use numpy::ndarray::{ArrayView2, ArrayViewMut1, ArrayViewMut2, ArrayViewMut3, ArrayViewMut4, Axis, s};
use numpy::{
    PyReadonlyArray1, PyReadonlyArray2, PyReadwriteArray1, PyReadwriteArray2, PyReadwriteArray3, PyReadwriteArray4,
};
use pyo3::prelude::*;

use crate::arrays::indices;

/// No figure is further off 0.
pub const LIMIT: f64 = 4.0;

/// What is the same for all shares of a job.
#[derive(FromPyObject)]
pub struct Figures<'py> {
    /// Sequences a second of one accelerator; 0 where the job may not use the pool.
    #[pyo3(attribute("speed_P"))]
    speed: PyReadonlyArray1<'py, f64>,
    #[pyo3(attribute("memory_P"))]
    memory: PyReadonlyArray1<'py, f64>,
    #[pyo3(attribute("log_size_P"))]
    log_size: PyReadonlyArray1<'py, f64>,
    #[pyo3(attribute("region_P"))]
    region: PyReadonlyArray1<'py, i64>,
    states_bytes: f64,
    #[pyo3(attribute("log_gradient_s_P"))]
    log_gradient_s: PyReadonlyArray1<'py, f64>,
    /// [i, j]: from j to i, as in all edges.
    #[pyo3(attribute("log_activation_s_PP"))]
    log_activation_s: PyReadonlyArray2<'py, f64>,
    #[pyo3(attribute("log_reduce_s_PP"))]
    log_reduce_s: PyReadonlyArray2<'py, f64>,
    #[pyo3(attribute("log_latency_s_PP"))]
    log_latency_s: PyReadonlyArray2<'py, f64>,
    #[pyo3(attribute("unknown_PP"))]
    unknown: PyReadonlyArray2<'py, f64>,
    num_layers: i64,
    global_batch: i64,
}

/// The graphs to fill, all 0.
#[derive(FromPyObject)]
pub struct Graphs<'py> {
    #[pyo3(attribute("node_BN7"))]
    node: PyReadwriteArray3<'py, f32>,
    #[pyo3(attribute("edge_BNN4"))]
    edge: PyReadwriteArray4<'py, f32>,
    #[pyo3(attribute("graph_B6"))]
    graph: PyReadwriteArray2<'py, f32>,
    #[pyo3(attribute("share_BN"))]
    share: PyReadwriteArray2<'py, f32>,
    #[pyo3(attribute("ideal_B"))]
    ideal: PyReadwriteArray1<'py, f64>,
}

/// As `Figures`, `counts` beside them.
struct Job<'a> {
    counts: ArrayView2<'a, i64>,
    speed: &'a [f64],
    memory: &'a [f64],
    log_size: &'a [f64],
    region: Vec<usize>,
    log_gradient_s: &'a [f64],
    log_activation_s: ArrayView2<'a, f64>,
    log_reduce_s: ArrayView2<'a, f64>,
    log_latency_s: ArrayView2<'a, f64>,
    unknown: ArrayView2<'a, f64>,
    log_states: f64,
    log_layers: f64,
    global_batch: f64,
}

/// As `Graphs`.
struct Filled<'a> {
    node: ArrayViewMut3<'a, f32>,
    edge: ArrayViewMut4<'a, f32>,
    graph: ArrayViewMut2<'a, f32>,
    share: ArrayViewMut2<'a, f32>,
    ideal: ArrayViewMut1<'a, f64>,
}

/// What a share has of the pools that the job may use.
struct Share {
    /// Those that it has something of, and how many accelerators.
    pools: Vec<(usize, f64)>,
    /// Sequences a second, accelerators, bytes.
    speed: f64,
    accelerators: f64,
    memory: f64,
    num_regions: usize,
}

/// Logarithms that a graph's figures are relative to.
struct Logs {
    mean_speed: f64,
    ideal_s: f64,
    layer_s: f64,
}

/// Write the figures of each graph; `counts` (B, P) are accelerators.
#[pyfunction]
pub fn fill_graphs(
    py: Python<'_>,
    figures: Figures<'_>,
    counts: PyReadonlyArray2<'_, i64>,
    mut graphs: Graphs<'_>,
) -> PyResult<()> {
    let job = Job {
        counts: counts.as_array(),
        speed: figures.speed.as_slice()?,
        memory: figures.memory.as_slice()?,
        log_size: figures.log_size.as_slice()?,
        region: indices(&figures.region)?,
        log_gradient_s: figures.log_gradient_s.as_slice()?,
        log_activation_s: figures.log_activation_s.as_array(),
        log_reduce_s: figures.log_reduce_s.as_array(),
        log_latency_s: figures.log_latency_s.as_array(),
        unknown: figures.unknown.as_array(),
        log_states: figures.states_bytes.log10(),
        log_layers: (figures.num_layers as f64).log10(),
        global_batch: figures.global_batch as f64,
    };
    let mut filled = Filled {
        node: graphs.node.as_array_mut(),
        edge: graphs.edge.as_array_mut(),
        graph: graphs.graph.as_array_mut(),
        share: graphs.share.as_array_mut(),
        ideal: graphs.ideal.as_array_mut(),
    };
    py.detach(|| (0..job.counts.nrows()).for_each(|b| job.fill(b, &mut filled)));
    Ok(())
}

fn within(value: f64) -> f32 {
    value.clamp(-LIMIT, LIMIT) as f32
}

impl Job<'_> {
    fn fill(&self, b: usize, graphs: &mut Filled<'_>) {
        let share = self.share(b);
        let ideal_s = self.global_batch / share.speed;
        graphs.ideal[b] = ideal_s;
        let mean_speed = (share.speed / share.accelerators).log10();
        let logs = Logs {
            mean_speed,
            ideal_s: ideal_s.log10(),
            layer_s: -mean_speed - self.log_layers,
        };
        for (i, &(pool, count)) in share.pools.iter().enumerate() {
            let part = count * self.speed[pool] / share.speed;
            graphs.share[[b, i]] = part as f32;
            write(graphs.node.slice_mut(s![b, i, ..]), self.node(pool, count, part, &logs));
        }
        self.write_edges(graphs.edge.index_axis_mut(Axis(0), b), &share, &logs);
        let whole = [
            self.log_layers,
            self.global_batch.log10(),
            share.accelerators.log10(),
            share.memory.log10() - self.log_states,
            (share.num_regions as f64).log10(),
            (share.pools.len() as f64).log10(),
        ];
        write(graphs.graph.row_mut(b), whole);
    }

    fn share(&self, b: usize) -> Share {
        let mut share = Share {
            pools: Vec::new(),
            speed: 0.0,
            accelerators: 0.0,
            memory: 0.0,
            num_regions: 0,
        };
        let mut regions = Vec::new();
        for (pool, &count) in self.counts.row(b).iter().enumerate() {
            if count > 0 && self.speed[pool] > 0.0 {
                let count = count as f64;
                share.pools.push((pool, count));
                share.speed += count * self.speed[pool];
                share.accelerators += count;
                share.memory += count * self.memory[pool];
                regions.push(self.region[pool]);
            }
        }
        regions.sort_unstable();
        regions.dedup();
        share.num_regions = regions.len();
        share
    }

    fn node(&self, pool: usize, count: f64, part: f64, logs: &Logs) -> [f64; 7] {
        let (log_memory, log_count) = (self.memory[pool].log10(), count.log10());
        [
            self.speed[pool].log10() - logs.mean_speed,
            log_count,
            part.log10(),
            log_memory - self.log_states + self.log_layers,
            log_memory + log_count - self.log_states,
            self.log_size[pool],
            self.log_gradient_s[pool] - logs.ideal_s,
        ]
    }

    /// Of all pairs of nodes, each with itself.
    fn write_edges(&self, mut edges: ArrayViewMut3<'_, f32>, share: &Share, logs: &Logs) {
        for (i, &(pool, _)) in share.pools.iter().enumerate() {
            for (j, &(other, _)) in share.pools.iter().enumerate() {
                let both = [pool, other];
                let values = [
                    self.log_activation_s[both] - logs.layer_s,
                    self.log_reduce_s[both] - logs.ideal_s,
                    self.log_latency_s[both] - logs.layer_s,
                    self.unknown[both],
                ];
                write(edges.slice_mut(s![i, j, ..]), values);
            }
        }
    }
}

fn write<const K: usize>(mut into: ArrayViewMut1<'_, f32>, values: [f64; K]) {
    for (into, value) in into.iter_mut().zip(values) {
        *into = within(value);
    }
}

#[cfg(test)]
mod tests {
    use numpy::ndarray::{Array1, Array2, Array3, Array4, array};

    use super::{Filled, Job};

    /// Ten accelerators of one pool of two: 100 sequences a second, so that a batch of 1,000 takes 10 s at best.
    #[test]
    fn a_share_of_one_pool_is_one_node() {
        let (counts, links) = (array![[0_i64, 10]], Array2::zeros((2, 2)));
        let job = Job {
            counts: counts.view(),
            speed: &[5.0, 10.0],
            memory: &[1e9, 1e9],
            log_size: &[1.0, 2.0],
            region: vec![0, 1],
            log_gradient_s: &[0.0, 0.5],
            log_activation_s: links.view(),
            log_reduce_s: links.view(),
            log_latency_s: links.view(),
            unknown: links.view(),
            log_states: 8.0,
            log_layers: 1.0,
            global_batch: 1e3,
        };
        let (mut node, mut edge) = (Array3::zeros((1, 1, 7)), Array4::zeros((1, 1, 1, 4)));
        let (mut graph, mut share, mut ideal) = (Array2::zeros((1, 6)), Array2::zeros((1, 1)), Array1::zeros(1));
        let mut filled = Filled {
            node: node.view_mut(),
            edge: edge.view_mut(),
            graph: graph.view_mut(),
            share: share.view_mut(),
            ideal: ideal.view_mut(),
        };
        job.fill(0, &mut filled);
        assert_eq!((ideal[0], share[[0, 0]]), (10.0, 1.0));
        assert_eq!(node.into_raw_vec_and_offset().0, [0.0, 1.0, 0.0, 2.0, 2.0, 2.0, -0.5]);
        assert_eq!(edge.into_raw_vec_and_offset().0, [2.0, -1.0, 2.0, 0.0]);
        assert_eq!(graph.into_raw_vec_and_offset().0, [1.0, 3.0, 1.0, 2.0, 0.0, 0.0]);
    }
}
