//! Sums over links between regions, and what crosses a boundary.

use super::arrays::{Grid, Layout, Setting};

pub fn row_sum(grid: &Grid, number: usize) -> f64 {
    grid.row(number).iter().sum()
}

pub fn column_sum(grid: &Grid, number: usize) -> f64 {
    (0..grid.num_rows()).map(|row| grid.at(row, number)).sum()
}

/// Bytes that a replica's stages send over one boundary in a step: of each sequence what the last layer before it gives.
#[inline]
pub fn boundary_bytes(setting: &Setting, layout: &Layout, replica: usize, stage: usize) -> f64 {
    layout.shares[replica] as f64 / setting.micro_batch as f64 * setting.output_l[layout.first[stage + 1] - 1]
}
