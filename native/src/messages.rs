//! Messages of the value network: of all pairs of a graph's nodes, summed by shares and their maximum.
//!
//! Letters of shapes: B graphs, N nodes, W the width of hidden states.
//!
//! ```text
//! m_ij = relu(sent_j + got_i + weights^T edge_ij)
//! seen_i = [sum_j share_j m_ij, max_j m_ij]
//! ```
//!
//! Their array of (B, N, N, W), which numpy would write and read from memory five times, is never made.

use std::borrow::Cow;

use numpy::ndarray::{ArrayView, Dimension};
use numpy::{
    PyReadonlyArray1, PyReadonlyArray2, PyReadonlyArray3, PyReadonlyArray4, PyReadwriteArray3, PyUntypedArrayMethods,
};
use pyo3::prelude::*;

/// Figures of an edge.
const NUM_EDGE: usize = 4;

/// Exchange messages: `sent`, `got` (B, N, W), `edge` (B, N, N, 4), `weights` (4, W), into `seen` (B, N, 2 W).
#[pyfunction]
pub fn exchange_messages(
    sent: PyReadonlyArray3<'_, f32>,
    got: PyReadonlyArray3<'_, f32>,
    edge: PyReadonlyArray4<'_, f32>,
    weights: PyReadonlyArray2<'_, f32>,
    share: PyReadonlyArray2<'_, f32>,
    num: PyReadonlyArray1<'_, i64>,
    mut seen: PyReadwriteArray3<'_, f32>,
) -> PyResult<()> {
    let (py, (most, width)) = (sent.py(), (sent.shape()[1], sent.shape()[2]));
    let (sent, got, edge) = (
        in_order(sent.as_array()),
        in_order(got.as_array()),
        in_order(edge.as_array()),
    );
    let (weights, share) = (in_order(weights.as_array()), in_order(share.as_array()));
    let (num, seen) = (num.as_array(), seen.as_slice_mut()?);
    py.detach(|| {
        for (b, &num) in num.iter().enumerate() {
            let nodes = b * most..b * most + num as usize;
            let graph = Graph {
                sent: &sent[nodes.start * width..nodes.end * width],
                share: &share[nodes.clone()],
                weights: &weights,
                width,
            };
            for i in nodes {
                let edges = &edge[i * most * NUM_EDGE..(i + 1) * most * NUM_EDGE];
                graph.gather(
                    &got[i * width..(i + 1) * width],
                    edges,
                    &mut seen[2 * i * width..2 * (i + 1) * width],
                );
            }
        }
    });
    Ok(())
}

/// An array's values row by row, also where they lie otherwise: copied only then.
fn in_order<D: Dimension>(array: ArrayView<'_, f32, D>) -> Cow<'_, [f32]> {
    array
        .to_slice()
        .map_or_else(|| array.iter().copied().collect(), Cow::Borrowed)
}

/// What is the same for all nodes of a graph that get messages.
struct Graph<'a> {
    sent: &'a [f32],
    share: &'a [f32],
    weights: &'a [f32],
    width: usize,
}

impl Graph<'_> {
    /// All that one node gets.
    fn gather(&self, got: &[f32], edges: &[f32], seen: &mut [f32]) {
        let width = self.width;
        let (sum, most) = seen.split_at_mut(width);
        sum.fill(0.0);
        most.fill(0.0);
        let (w0, w1) = (&self.weights[..width], &self.weights[width..2 * width]);
        let (w2, w3) = (&self.weights[2 * width..3 * width], &self.weights[3 * width..4 * width]);
        let senders = self
            .sent
            .chunks_exact(width)
            .zip(edges.chunks_exact(NUM_EDGE))
            .zip(self.share);
        for ((sent, edge), share) in senders {
            for c in 0..width {
                let mut made = sent[c] + got[c];
                made += edge[0] * w0[c] + edge[1] * w1[c];
                made += edge[2] * w2[c] + edge[3] * w3[c];
                made = made.max(0.0);
                sum[c] += share * made;
                most[c] = most[c].max(made);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Graph;

    /// Two senders of shares 0.25 and 0.75; the second one's message is negative in the first place, so 0.
    #[test]
    fn messages_are_summed_by_shares_and_their_maximum() {
        let graph = Graph {
            sent: &[1.0, 2.0, -5.0, 4.0],
            share: &[0.25, 0.75],
            weights: &[1.0; 8],
            width: 2,
        };
        let mut seen = [9.0; 4];
        graph.gather(&[1.0, 0.0], &[0.0, 1.0, 0.0, 1.0, 0.0, 0.0, 0.0, 0.0], &mut seen);
        assert_eq!(seen, [1.0, 4.0, 4.0, 4.0]);
    }
}
