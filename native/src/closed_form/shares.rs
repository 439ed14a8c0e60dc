//! A replica's sequences in micro-batches: as few as hold them, all of one size.

use super::arrays::{Layout, Setting};

/// Micro-batches of a step: as few as the global batch fits into.
pub fn num_batches_of_all(setting: &Setting) -> usize {
    setting.global_batch.div_ceil(setting.micro_batch)
}

/// Micro-batches of a replica: as few as its sequences fit into.
#[inline]
pub fn num_batches(setting: &Setting, layout: &Layout, replica: usize) -> usize {
    layout.shares[replica].div_ceil(setting.micro_batch)
}

/// Of a whole micro-batch what each of a replica's has: 1 where its sequences just fill them.
///
/// ```text
/// sequences / (micro-batches x size of a whole one)
/// ```
#[inline]
pub fn filled(setting: &Setting, layout: &Layout, replica: usize) -> f64 {
    layout.shares[replica] as f64 / (num_batches(setting, layout, replica) * setting.micro_batch) as f64
}
