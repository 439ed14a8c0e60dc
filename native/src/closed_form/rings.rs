//! How long gloo's rings take: of all stages at the same time, each over the walk of its stage.
//!
//! By stage only the number of cells in each region counts: the machines of a region are alike to a ring, and the walk
//! over regions is the layout's tour. The plan that is chosen in the end gets rings over machines.

use super::arrays::{Grid, Layout, Setting, max, min};
use super::groups::Groups;
use super::links::{column_sum, row_sum};

const MAX_SEGMENT_BYTES: f64 = (1 << 20) as f64;

/// Fixed cost of a segment's two messages in software, added to a round trip; `hulk_placement.cost.gloo` says where from.
pub const SOFTWARE_S: f64 = 0.0012;

/// How gloo cuts one all-reduce: `hops` segments of `segment` bytes cross every edge, in each of two halves.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Cut {
    pub hops: usize,
    pub segment: f64,
    pub num_buckets: usize,
}

impl Cut {
    /// ```text
    /// N = roundup(max(ceil(B / 1 MiB), 2 n), n) segments of B / N bytes; (n - 1) N / n of them cross each edge
    /// ```
    /// for B bytes of each of so many buckets on n ranks.
    pub fn of(num_bytes: f64, num_ranks: usize, num_buckets: usize) -> Self {
        let bucket = (num_bytes / num_buckets as f64).ceil();
        let segments = ((bucket / MAX_SEGMENT_BYTES).ceil() as usize).max(2 * num_ranks);
        let per_rank = segments.div_ceil(num_ranks);
        Self {
            hops: (num_ranks - 1) * per_rank,
            segment: bucket / (per_rank * num_ranks) as f64,
            num_buckets,
        }
    }

    /// What crosses an edge in each half, of as many tensor-parallel ranks.
    #[inline]
    fn edge_bytes(self, tensor: usize) -> f64 {
        self.hops as f64 * self.segment * self.num_buckets as f64 * tensor as f64
    }

    /// Seconds if this edge is the worst, there and back in `way_s`, at `flow` bytes a second; all that shares the
    /// edge's link keeps it busy for `full_s` in each half. With R = way + software, x = segment / flow, K hops, b
    /// buckets the greater of
    ///
    /// ```text
    /// 2 (floor(K / 2) (R + x) + b x + (0 if K is even else R))       two segments in flight
    /// 2 full + R + max(0, R - 2 (b - 1) full / (K b))                the link being full
    /// ```
    pub fn edge_s(self, way_s: f64, flow: f64, full_s: f64) -> f64 {
        if flow <= 0.0 {
            return f64::INFINITY;
        }
        let (hops, buckets) = (self.hops as f64, self.num_buckets as f64);
        let (round_trip_s, segment_s) = (way_s + SOFTWARE_S, self.segment / flow);
        let mut waiting_s = (self.hops / 2) as f64 * (round_trip_s + segment_s) + buckets * segment_s;
        if self.hops % 2 == 1 {
            waiting_s += round_trip_s;
        }
        let full_s = max(full_s, hops * buckets * segment_s);
        let turning_s = max(0.0, round_trip_s - 2.0 * (buckets - 1.0) * full_s / (hops * buckets));
        max(2.0 * waiting_s, 2.0 * full_s + round_trip_s + turning_s)
    }

    /// As `edge_s`, of two ranks of stages, which send each other all they have: half of `way_s`, as long as its bytes.
    #[inline]
    fn exchange_s(self, way_s: f64, flow: f64, full_s: f64) -> f64 {
        let alone_s = self.hops as f64 * self.segment * self.num_buckets as f64 / flow;
        let sent_s = if flow > 0.0 {
            max(alone_s, full_s)
        } else {
            f64::INFINITY
        };
        0.5 * (way_s + SOFTWARE_S) + 2.0 * sent_s
    }
}

/// What the rings of all stages put on what they share, and scratch.
pub struct Rings {
    /// Bytes on the busiest pair of a stage's machines in a region, over those of the stage's own ring; at most. (P, R)
    sharing_pr: Grid,
    load_rr: Grid,
    /// Seconds of a region's uplink, out and in; (R).
    out_s: Vec<f64>,
    into_s: Vec<f64>,
    load_m: Vec<f64>,
    cuts: Vec<Cut>,
}

impl Rings {
    pub fn of(num_stages: usize, num_regions: usize, num_machines: usize) -> Self {
        Self {
            sharing_pr: Grid::filled(num_stages, num_regions, 1.0),
            load_rr: Grid::filled(num_regions, num_regions, 0.0),
            out_s: vec![0.0; num_regions],
            into_s: vec![0.0; num_regions],
            load_m: vec![0.0; num_machines],
            cuts: Vec::new(),
        }
    }

    /// Finds what the rings of all stages put on a pair of machines in a region, over what one ring does.
    ///
    /// At most: of the stage's machines there the one that brings the second most bytes stands for the busiest pair.
    pub fn share(&mut self, layout: &Layout, groups: &Groups) {
        self.sharing_pr.values.fill(1.0);
        if layout.num_stages == 1 {
            return;
        }
        for &machine in &layout.machines {
            self.load_m[machine] = 0.0;
        }
        for (stage, &own) in groups.bytes_p.iter().enumerate() {
            for (machine, _) in groups.each_of_several(stage) {
                self.load_m[machine] += own;
            }
        }
        for (stage, &own) in groups.bytes_p.iter().enumerate() {
            if own > 0.0 {
                self.share_of(groups, stage, own);
            }
        }
    }

    fn share_of(&mut self, groups: &Groups, stage: usize, own: f64) {
        let (most_r, second_r) = (&mut self.out_s, &mut self.into_s);
        most_r.fill(0.0);
        second_r.fill(0.0);
        let sharing_r = self.sharing_pr.row_mut(stage);
        for (machine, region) in groups.each_of_several(stage) {
            let (load, most) = (self.load_m[machine], most_r[region]);
            most_r[region] = max(most, load);
            second_r[region] = max(second_r[region], min(most, load));
            sharing_r[region] = max(1.0, second_r[region] / own);
        }
    }

    /// Seconds of the slowest ring in so many buckets, all at the same time, and of each into `ring_s` (P).
    ///
    /// First what they put on links and uplinks, then the slowest edge of each, which waits for what it crosses itself.
    /// Two replicas of stages send each other what they have.
    pub fn seconds(
        &mut self,
        setting: &Setting,
        layout: &Layout,
        groups: &Groups,
        num_buckets: usize,
        ring_s: &mut [f64],
    ) -> f64 {
        let num_replicas = layout.num_replicas();
        let is_exchange = num_replicas == 2 && layout.num_stages > 1 && !setting.sums_by_layer;
        self.cuts.clear();
        self.cuts.extend(
            groups
                .bytes_p
                .iter()
                .zip(&groups.sums_p)
                .map(|(num_bytes, num_sums)| Cut::of(num_bytes / num_sums, num_replicas, num_buckets)),
        );
        self.load(setting, groups);
        let mut slowest_s = 0.0;
        for (stage, seconds) in ring_s.iter_mut().enumerate() {
            *seconds = groups.sums_p[stage] * self.ring_s(setting, groups, stage, is_exchange);
            slowest_s = max(slowest_s, *seconds);
        }
        slowest_s
    }

    /// Puts the bytes of all rings on links between regions, and their seconds on uplinks.
    fn load(&mut self, setting: &Setting, groups: &Groups) {
        self.load_rr.values.fill(0.0);
        for (stage, cut) in self.cuts.iter().enumerate() {
            let (walk, num_bytes) = (groups.walk_of(stage), cut.edge_bytes(setting.tensor));
            if walk.len() > 1 {
                for (a, b) in edges(walk) {
                    *self.load_rr.at_mut(a, b) += num_bytes;
                }
            }
        }
        for (a, &uplink) in setting.uplink_r.iter().enumerate() {
            let is_limited = uplink < f64::INFINITY;
            self.out_s[a] = if is_limited {
                row_sum(&self.load_rr, a) / uplink
            } else {
                0.0
            };
            self.into_s[a] = if is_limited {
                column_sum(&self.load_rr, a) / uplink
            } else {
                0.0
            };
        }
    }

    /// Seconds of a stage's slowest edge.
    fn ring_s(&self, setting: &Setting, groups: &Groups, stage: usize, is_exchange: bool) -> f64 {
        let (cut, walk) = (self.cuts[stage], groups.walk_of(stage));
        let edge_s = |way_s: f64, flow: f64, full_s: f64| {
            if is_exchange {
                cut.exchange_s(way_s, flow, full_s)
            } else {
                cut.edge_s(way_s, flow, full_s)
            }
        };
        let way_s = |a: usize, b: usize| {
            if is_exchange {
                2.0 * setting.latency_rr.at(a, b)
            } else {
                setting.round_trip_rr.at(a, b)
            }
        };
        let mut worst_s = 0.0;
        for (a, b) in edges(walk) {
            if walk.len() > 1 {
                let full_s = self.load_rr.at(a, b) / setting.capacity_rr.at(a, b);
                worst_s = max(worst_s, edge_s(way_s(a, b), setting.flow_rr.at(a, b), full_s));
                worst_s = max(worst_s, 2.0 * max(self.out_s[a], self.into_s[b]));
            }
            if !groups.is_joined_inside(stage, a) {
                continue;
            }
            if groups.are_on_several(stage, a) {
                let full_s =
                    cut.edge_bytes(setting.tensor) * self.sharing_pr.at(stage, a) / setting.capacity_rr.at(a, a);
                worst_s = max(worst_s, edge_s(way_s(a, a), setting.flow_rr.at(a, a), full_s));
            }
            if let Some(machine) = groups.twin(stage, a) {
                let kind = setting.kind(machine);
                let inside_s = 2.0 * setting.inside_latency_k[kind];
                worst_s = max(worst_s, edge_s(inside_s, setting.inside_flow_k[kind], 0.0));
            }
        }
        worst_s
    }
}

/// The edges of a closed walk; one from a single region to itself.
pub fn edges(walk: &[usize]) -> impl Iterator<Item = (usize, usize)> + '_ {
    walk.iter().copied().zip(walk.iter().copied().cycle().skip(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn four_mebibytes_on_six_ranks_are_twelve_segments() {
        let cut = Cut::of(f64::from(4 << 20), 6, 1);
        assert_eq!(
            cut,
            Cut {
                hops: 10,
                segment: f64::from(4 << 20) / 12.0,
                num_buckets: 1
            }
        );
    }

    #[test]
    fn an_edge_takes_as_long_as_its_bytes_and_what_segments_wait() {
        let cut = Cut {
            hops: 4,
            segment: 1000.0,
            num_buckets: 1,
        };
        let quick_s = cut.edge_s(0.1 - SOFTWARE_S, 1e9, 0.0);
        assert!((quick_s - 2.0 * (2.0 * (0.1 + 1e-6) + 1e-6)).abs() < 1e-12);
        let full_s = cut.edge_s(0.1 - SOFTWARE_S, 1e9, 5.0);
        assert!((full_s - (10.0 + 0.1 + 0.1)).abs() < 1e-12);
        assert_eq!(cut.edge_s(0.1, 0.0, 0.0), f64::INFINITY);
    }

    #[test]
    fn a_walk_comes_back_to_where_it_began() {
        assert_eq!(edges(&[3, 1, 2]).collect::<Vec<_>>(), [(3, 1), (1, 2), (2, 3)]);
        assert_eq!(edges(&[3]).collect::<Vec<_>>(), [(3, 3)]);
    }
}
