//! In how many stages a model's layers can be held.

use crate::closed_form::arrays::Setting;
use crate::closed_form::memory::memory_bytes;

/// Whether the layers can be split in 1, 2, .. stages of at most so many bytes; (J), false for none.
///
/// Each stage takes all layers that it has room for: with fewer it needs no less than those after it then need more.
pub fn stages_that_hold(setting: &Setting, most_bytes: f64, num_batches: usize) -> Vec<bool> {
    let num_layers = setting.num_layers();
    let holds = |num_stages: usize| {
        let mut first = 0;
        for stage in 0..num_stages {
            let (mut last, most) = (first, num_layers - (num_stages - 1 - stage));
            while last < most && most_bytes >= memory_bytes(setting, first, last + 1, stage, num_stages, num_batches) {
                last += 1;
            }
            if last == first {
                break;
            }
            first = last;
        }
        first == num_layers
    };
    std::iter::once(false).chain((1..=num_layers).map(holds)).collect()
}
