//! Layouts made and changed: constructed along an order of machines, annealed, estimated for shares of pools.

pub mod anneal;
pub mod construct;
pub mod estimate;
pub mod fewest;
pub mod layer_split;
pub mod moves;
pub mod pools;
pub mod python;
