//! How much longer a step is because stages share parameters and sum their gradients.

use super::arrays::{Layout, Setting, max, min};
use super::links::Loads;
use super::memory::holds_tie;
use super::rings::SOFTWARE_S;
use super::shares::filled;

/// The earlier and the later stage of a tie, if they send each other gradients by it.
fn stages_of(setting: &Setting, layout: &Layout, number: usize) -> Option<(usize, usize)> {
    let (layer, tied) = setting.tie(number);
    let (early, late) = (layout.stage_of(tied), layout.stage_of(layer));
    holds_tie(setting, layout.first[late], layout.first[late + 1], number).then_some((early, late))
}

/// Seconds that a step is longer, all replicas' exchanges at once.
///
/// The two stages send each other what they have, as soon as they have it, each tensor-parallel rank its own; all of
/// them share the link. What is on its way while the last micro-batch goes back to the earlier stage, or the next
/// step's first one comes to the later one, costs nothing.
pub fn tied_seconds(setting: &Setting, layout: &Layout, loads: &mut Loads) -> f64 {
    if setting.num_ties() == 0 {
        return 0.0;
    }
    loads.clear(setting);
    for number in 0..setting.num_ties() {
        load(setting, layout, loads, number);
    }
    let (mut worst_s, mut least_slack_s) = (0.0, f64::INFINITY);
    for number in 0..setting.num_ties() {
        let (late_s, slack_s) = late_and_slack(setting, layout, loads, number);
        worst_s = max(worst_s, late_s);
        least_slack_s = min(least_slack_s, slack_s);
    }
    if least_slack_s < f64::INFINITY {
        worst_s = max(worst_s, loads.busiest_uplink_s(setting) - least_slack_s);
    }
    worst_s
}

/// What the stages of one tie put on links between regions, there and back.
fn load(setting: &Setting, layout: &Layout, loads: &mut Loads, number: usize) {
    let Some((early, late)) = stages_of(setting, layout, number) else {
        return;
    };
    let num_bytes = setting.tied_gradient_t[number] * setting.tensor as f64;
    for replica in 0..layout.num_replicas() {
        let (a, b) = (layout.machine(replica, early), layout.machine(replica, late));
        if setting.region(a) != setting.region(b) {
            loads.add(setting, a, b, num_bytes);
            loads.add(setting, b, a, num_bytes);
        }
    }
}

/// How much longer the slowest replica's exchange of one tie takes than is free, and the least that is free.
///
/// Of the second only exchanges between regions count: others cross no uplink.
fn late_and_slack(setting: &Setting, layout: &Layout, loads: &Loads, number: usize) -> (f64, f64) {
    let (mut worst_s, mut least_slack_s) = (0.0, f64::INFINITY);
    let Some((early, late)) = stages_of(setting, layout, number) else {
        return (worst_s, least_slack_s);
    };
    let num_bytes = setting.tied_gradient_t[number];
    for replica in 0..layout.num_replicas() {
        let (a, b) = (layout.machine(replica, early), layout.machine(replica, late));
        let (there_s, back_s) = slack_seconds(setting, layout, replica, early, late);
        for (source, target, slack_s) in [(a, b, there_s), (b, a, back_s)] {
            let (latency_s, flow) = setting.pair(source, target);
            let (from, to) = (setting.region(source), setting.region(target));
            let own = setting.own_qq.at(setting.place(source), setting.place(target));
            let mut full_s = if a == b {
                0.0
            } else {
                num_bytes * setting.tensor as f64 / own
            };
            if from != to && own < f64::INFINITY {
                full_s = max(full_s, loads.carried_s(setting, from, to));
            } else if from != to {
                full_s = loads.link_s(setting, from, to);
            }
            let sent_s = if flow > 0.0 {
                max(num_bytes / flow, full_s)
            } else {
                f64::INFINITY
            };
            worst_s = max(worst_s, latency_s + 0.5 * SOFTWARE_S + sent_s - slack_s);
            if from != to {
                least_slack_s = min(least_slack_s, slack_s);
            }
        }
    }
    (worst_s, least_slack_s)
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
            if a != b {
                let (from, to) = (setting.region(a), setting.region(b));
                price += num_bytes * (setting.egress_rr.at(from, to) + setting.egress_rr.at(to, from));
            }
        }
    }
    price
}
