//! The simulation of one training step, event by event: blocks of pipelines, transfers that share links, all-reduces.
//!
//! Letters of shapes: C cells (replica x P + stage), I blocks of a cell (2 M), H channels (2 x cell + kind), M
//! micro-batches, F flows, R resources, G groups, S sums (the buckets of all groups in order), Q phases, E edges of all
//! phases. One more entry of `first_...` says where the last one ends.

mod blocks;
mod events;
mod sharing;
mod sums;

use pyo3::prelude::*;

pub use blocks::{input_of, output_of};

/// Go through the step until nothing is left that can happen; results are written into the arrays of all three.
#[pyfunction]
pub fn run_step(
    py: Python<'_>,
    mut blocks: blocks::Arrays<'_>,
    mut flows: sharing::Arrays<'_>,
    mut sums: sums::Arrays<'_>,
) -> PyResult<()> {
    let mut step = events::Step::new(blocks.view()?, flows.view()?, sums.view()?);
    py.detach(|| step.run());
    Ok(())
}
