//! What the planner runs a million times a second: arrays in, arrays out. One subject a file; formulas and units stand
//! beside the code that computes them. Types, files and messages are Python's.

use pyo3::prelude::*;

mod arrays;
mod closed_form;
mod cycles;
mod graphs;
mod layouts;
mod messages;
mod packing;
mod simulation;
mod windows;

/// The extension module `hulk_native`.
#[pymodule]
mod hulk_native {
    use super::windows;

    #[pymodule_export]
    use super::closed_form::cache::Cache;
    #[pymodule_export]
    use super::closed_form::python::{
        edge_seconds, evaluate_py, holds_tie, lacking_cells, least_s, memory_bytes, pipeline_ends, ring_cut,
        slack_seconds, tied_seconds, time_replicas,
    };
    #[pymodule_export]
    use super::layouts::python::{
        anneal, cells_for, construct_layout, estimate_py, split_layers, stages_that_hold, tour_of,
    };

    #[pymodule_export]
    const INITIAL_PACKETS: f64 = windows::INITIAL_PACKETS;
    #[pymodule_export]
    const PACKET_BYTES: f64 = windows::PACKET_BYTES;
    #[pymodule_export]
    const MOST_PIECES: f64 = windows::MOST_PIECES;
    #[pymodule_export]
    const AT_ONCE_BYTES: f64 = windows::AT_ONCE_BYTES;
    #[pymodule_export]
    use super::windows::packets_of;

    #[pymodule_export]
    use super::cycles::cycle_of;
    #[pymodule_export]
    const MOST_EXACT_REGIONS: usize = super::cycles::MOST_EXACT_REGIONS;
    #[pymodule_export]
    const GRAPH_LIMIT: f64 = super::graphs::LIMIT;
    #[pymodule_export]
    use super::graphs::fill_graphs;
    #[pymodule_export]
    use super::messages::exchange_messages;
    #[pymodule_export]
    use super::packing::pack;
    #[pymodule_export]
    use super::simulation::{input_of, output_of, run_step};
}
