//! Layouts whose shared links can be reckoned by hand.

use super::super::arrays::{Rows, Schedule, Setting};
use super::super::evaluate::{evaluate, time_alone};
use super::super::testing::World;

/// Two regions, stage 0 of each replica in one and stage 1 in the other; links of `bytes_per_s` without latency.
fn setting(world: &World, bytes_per_s: f64) -> Setting<'static> {
    let leak = |values: Vec<f64>| -> &'static [f64] { values.leak() };
    let both = |values: [f64; 4]| Rows::new(leak(values.to_vec()), 2);
    Setting {
        latency_qq: both([0.0; 4]),
        flow_qq: both([1e9, bytes_per_s, bytes_per_s, 1e9]),
        own_qq: both([1e9, f64::INFINITY, f64::INFINITY, 1e9]),
        capacity_rr: both([1e9, bytes_per_s, bytes_per_s, 1e9]),
        carried_rr: both([1e10, bytes_per_s, bytes_per_s, 1e10]),
        uplink_r: leak(vec![f64::INFINITY; 2]),
        ..world.setting()
    }
}

/// When the slowest of replicas of two stages ends, each of four micro-batches, alone and beside the others.
fn ends_s(num_replicas: usize, schedule: Schedule, bytes_per_s: f64) -> (f64, f64) {
    let world = World {
        global_batch: 4 * num_replicas,
        schedule,
        ..World::of(2 * num_replicas)
    };
    let (setting, layout) = (setting(&world, bytes_per_s), world.layout(num_replicas, 2));
    let mut cache = world.cache(&layout);
    time_alone(&setting, &layout, &mut cache);
    evaluate(&setting, &layout, &mut cache);
    (cache.alone_dp.at(0, 0), cache.sharing.ends_dp.at(0, 0))
}

#[test]
fn a_replica_alone_on_its_links_takes_what_its_pipeline_does() {
    for schedule in [Schedule::Gpipe, Schedule::OneForwardOneBackward] {
        let (alone_s, shared_s) = ends_s(1, schedule, 1e6);
        assert_eq!(alone_s, shared_s);
    }
}

#[test]
fn replicas_in_step_are_as_slow_as_on_links_of_their_part() {
    for schedule in [Schedule::Gpipe, Schedule::OneForwardOneBackward] {
        for num in [2, 4, 8] {
            let (_, shared_s) = ends_s(num, schedule, 1e7);
            let (part_s, _) = ends_s(1, schedule, 1e7 / num as f64);
            assert!(
                (shared_s / part_s - 1.0).abs() < 1e-12,
                "{num}: {shared_s} is not {part_s}"
            );
        }
    }
}
