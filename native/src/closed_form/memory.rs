//! Bytes that one rank of a stage holds, and brings to the all-reduce.

use super::arrays::{Layout, Schedule, Setting, max};

/// Bytes of one rank of a stage of layers `first .. last` at its peak, with `num` micro-batches.
///
/// ```text
/// held + in flight x kept                       in flight: min(num, P - s) under 1F1B, num under GPipe
/// held + in flight x inputs + largest layer     with recomputation
/// ```
pub fn memory_bytes(setting: &Setting, first: usize, last: usize, stage: usize, num_stages: usize, num: usize) -> f64 {
    let in_flight = match setting.schedule {
        Schedule::OneForwardOneBackward => num.min(num_stages - stage),
        Schedule::Gpipe => num,
    } as f64;
    let held = held_bytes(setting, setting.held_j, setting.tied_held_t, first, last);
    if setting.recompute {
        let kept = setting.input_j[last] - setting.input_j[first];
        let g = (last - first).ilog2() as usize;
        let peak = max(setting.peak_gl.at(g, first), setting.peak_gl.at(g, last - (1 << g)));
        return held + in_flight * kept + peak;
    }
    held + in_flight * (setting.kept_j[last] - setting.kept_j[first])
}

/// Bytes that one rank of a stage brings to the all-reduce: also of what it has once more of an earlier stage.
#[inline]
pub fn gradient_bytes(setting: &Setting, layout: &Layout, stage: usize) -> f64 {
    let (first, last) = (layout.first[stage], layout.first[stage + 1]);
    held_bytes(setting, setting.gradient_j, setting.tied_gradient_t, first, last)
}

/// Layers of a stage that have gradients, at least one: each is summed by itself where `sums_by_layer`.
pub fn num_layer_sums(setting: &Setting, layout: &Layout, stage: usize) -> usize {
    let ends_j = &setting.gradient_j[layout.first[stage]..=layout.first[stage + 1]];
    ends_j.windows(2).filter(|ends| ends[1] > ends[0]).count().max(1)
}

/// Bytes that a stage of layers `first .. last` has of its layers (prefix sums), and of earlier stages' that these use.
#[inline]
fn held_bytes(setting: &Setting, layers_j: &[f64], tied_t: &[f64], first: usize, last: usize) -> f64 {
    let mut num_bytes = layers_j[last] - layers_j[first];
    for (k, tied) in tied_t.iter().enumerate() {
        if holds_tie(setting, first, last, k) {
            num_bytes += tied;
        }
    }
    num_bytes
}

/// Whether layers `first .. last` use an earlier stage's parameters by this tie; one tie of each earlier layer counts.
pub fn holds_tie(setting: &Setting, first: usize, last: usize, number: usize) -> bool {
    let uses = |k: usize| {
        let layer = setting.tie(k).0;
        first <= layer && layer < last
    };
    let tied = setting.tie(number).1;
    tied < first && uses(number) && !(0..number).any(|k| setting.tie(k).1 == tied && uses(k))
}
