//! How much longer a step is because stages share parameters and sum their gradients.

use super::arrays::{Layout, Setting, max};
use super::memory::holds_tie;
use super::price::byte_price;
use super::resources::{Flow, Resources};
use super::rings::SOFTWARE_S;
use super::shares::filled;

/// The earlier and the later stage of a tie, if they send each other gradients by it.
fn stages_of(setting: &Setting, layout: &Layout, number: usize) -> Option<(usize, usize)> {
    let (layer, tied) = setting.tie(number);
    let (early, late) = (layout.stage_of(tied), layout.stage_of(layer));
    holds_tie(setting, layout.first[late], layout.first[late + 1], number).then_some((early, late))
}

/// All exchanges: a replica, its earlier and its later stage, and the bytes that a tensor-parallel rank of each sends.
fn exchanges<'a>(
    setting: &'a Setting,
    layout: &'a Layout,
) -> impl Iterator<Item = (usize, (usize, usize), f64)> + use<'a> {
    (0..setting.num_ties()).flat_map(move |number| {
        let num_bytes = setting.tied_gradient_t[number];
        let of_replicas = move |stages| (0..layout.num_replicas()).map(move |replica| (replica, stages, num_bytes));
        stages_of(setting, layout, number).into_iter().flat_map(of_replicas)
    })
}

/// Seconds that a step is longer, all replicas' exchanges at once.
///
/// The two stages send each other what they have, as soon as they have it, each tensor-parallel rank its own; all of
/// them share what they draw on, and the last one through has waited for all. What is on its way while the last
/// micro-batch goes back to the earlier stage, or the next step's first one comes to the later one, costs nothing.
/// `at_ties`: the setting with links as messages of that size find them.
pub fn tied_seconds(setting: &Setting, at_ties: &Setting, layout: &Layout, resources: &mut Resources) -> f64 {
    if setting.num_ties() == 0 {
        return 0.0;
    }
    resources.begin(at_ties, layout, setting.tensor);
    for (replica, (early, late), rank_bytes) in exchanges(setting, layout) {
        let (a, b) = (layout.machine(replica, early), layout.machine(replica, late));
        let num_bytes = rank_bytes * setting.tensor as f64;
        for (is_back, source, target) in [(false, a, b), (true, b, a)] {
            resources.add(at_ties, Flow::of(early, is_back, num_bytes, num_bytes), source, target);
        }
    }
    let mut worst_s = 0.0;
    for ((replica, (early, late), rank_bytes), flows) in exchanges(setting, layout).zip(resources.flows.chunks_exact(2))
    {
        let (a, b) = (layout.machine(replica, early), layout.machine(replica, late));
        let (there_s, back_s) = slack_seconds(setting, layout, replica, early, late);
        for (flow, source, target, slack_s) in [(flows[0], a, b, there_s), (flows[1], b, a, back_s)] {
            let (latency_s, rate) = at_ties.pair(source, target);
            let sent_s = if rate > 0.0 {
                max(rank_bytes / rate, resources.busy_s(&flow))
            } else {
                f64::INFINITY
            };
            worst_s = max(worst_s, latency_s + 0.5 * SOFTWARE_S + sent_s - slack_s);
        }
    }
    worst_s
}

/// Seconds that a micro-batch takes from one stage of a replica to a later one, forward, and back.
///
/// So long may what the earlier stage sends at a step's end be on its way before the later one needs it, and what the
/// later one sends before the earlier one has computed its last micro-batch.
pub fn slack_seconds(setting: &Setting, layout: &Layout, replica: usize, early: usize, late: usize) -> (f64, f64) {
    let (mut there_s, mut back_s, size) = (0.0, 0.0, filled(setting, layout, replica));
    for stage in early..late {
        let (low, high) = (layout.first[stage], layout.first[stage + 1]);
        let (here, behind) = (layout.machine(replica, stage), layout.machine(replica, stage + 1));
        let (kind, num_bytes) = (setting.kind(here), size * setting.output_l[high - 1]);
        let forward_s = size * (setting.forward_kj.at(kind, high) - setting.forward_kj.at(kind, low));
        let (latency_s, flow) = setting.pair(here, behind);
        there_s += forward_s + latency_s;
        there_s += if flow > 0.0 { num_bytes / flow } else { 0.0 };
        let (latency_s, flow) = setting.pair(behind, here);
        back_s += size * (setting.backward_kj.at(kind, high) - setting.backward_kj.at(kind, low)) + latency_s;
        back_s += if setting.recompute { forward_s } else { 0.0 };
        back_s += if flow > 0.0 { num_bytes / flow } else { 0.0 };
    }
    (there_s, back_s)
}

/// Price of what stages that share parameters send each other in a step: all of them, there and back.
pub fn tied_price(setting: &Setting, layout: &Layout) -> f64 {
    let mut price = 0.0;
    for number in 0..setting.num_ties() {
        let Some((early, late)) = stages_of(setting, layout, number) else {
            continue;
        };
        let num_bytes = setting.tied_gradient_t[number] * setting.tensor as f64;
        for replica in 0..layout.num_replicas() {
            let (a, b) = (layout.machine(replica, early), layout.machine(replica, late));
            price += num_bytes * (byte_price(setting, a, b) + byte_price(setting, b, a));
        }
    }
    price
}
