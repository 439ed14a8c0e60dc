//! Pipelines that can be timed by hand.

use super::*;

fn chain(forward_s: &[f64], send_s: f64, latency_s: &[f64]) -> Chain {
    let mut made = Chain::of(forward_s.len());
    made.forward_s.copy_from_slice(forward_s);
    made.backward_s = forward_s.iter().map(|seconds| 2.0 * seconds).collect();
    for ways in [&mut made.there, &mut made.back] {
        ways.send_s.fill(send_s);
        ways.latency_s[..latency_s.len()].copy_from_slice(latency_s);
    }
    made
}

fn end_s(schedule: Schedule, num: usize, chain: &Chain, overlap: bool) -> f64 {
    pipeline_ends(
        schedule,
        num,
        chain,
        overlap,
        &mut vec![0.0; chain.num_stages()],
        &mut Progress::default(),
    )
}

#[test]
fn two_stages_end_when_the_last_gradient_has_come_back() {
    let two = chain(&[1.0, 1.0], 0.0, &[0.0]);
    assert_eq!(end_s(Schedule::OneForwardOneBackward, 2, &two, true), 9.0);
}

#[test]
fn one_forward_one_backward_waits_for_a_way_with_each_turn_and_gpipe_once_there_and_back() {
    let four = chain(&[10.0; 4], 0.0, &[0.0, 40.0, 0.0]);
    assert_eq!(
        end_s(Schedule::OneForwardOneBackward, 8, &four, true),
        330.0 + 8.0 * 40.0
    );
    assert_eq!(end_s(Schedule::Gpipe, 8, &four, true), 330.0 + 2.0 * 40.0);
}

#[test]
fn steps_that_are_repeated_are_those_that_are_computed_one_by_one() {
    let uneven = chain(&[1.0, 1.7, 0.3], 0.1, &[0.4, 2.0]);
    for num in 1..60 {
        let mut one_by_one = Progress::default();
        one_by_one.clear(3);
        let mut ends_s = [0.0; 3];
        for j in 0..2 {
            one_by_one.forward((j + 1_usize).saturating_sub(num), j, &uneven, true);
        }
        for j in 0..num {
            one_by_one.forward((j + 3).saturating_sub(num), 2, &uneven, true);
            one_by_one.backward(&uneven, true, &mut ends_s);
        }
        let found_s = end_s(Schedule::OneForwardOneBackward, num, &uneven, true);
        let expected_s = ends_s.iter().copied().fold(0.0, max);
        assert!(
            (found_s / expected_s - 1.0).abs() < 1e-12,
            "{num}: {found_s} is not {expected_s}"
        );
    }
}

#[test]
fn no_pipeline_ends_before_its_bound_and_equal_stages_end_at_it() {
    let equal = chain(&[1.0; 5], 0.0, &[]);
    let uneven = chain(&[1.0, 7.0, 0.3], 0.4, &[2.0, 0.1]);
    for schedule in [Schedule::Gpipe, Schedule::OneForwardOneBackward] {
        assert!((least_s(schedule, 40, &equal) / 132.0 - 1.0).abs() < 1e-12);
        for num in 1..40 {
            assert!(least_s(schedule, num, &uneven) <= end_s(schedule, num, &uneven, true) * (1.0 + 1e-12));
        }
    }
}

#[test]
fn a_stage_that_cannot_overlap_waits_for_what_it_sends() {
    let mut two = chain(&[1.0, 1.0], 0.5, &[]);
    two.backward_s.fill(1.0);
    assert_eq!(end_s(Schedule::Gpipe, 2, &two, true), 7.0);
    assert_eq!(end_s(Schedule::Gpipe, 2, &two, false), 8.0);
}
