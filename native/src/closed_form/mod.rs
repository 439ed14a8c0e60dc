//! The closed form of a step: what searches evaluate, a million times a second where they change a layout bit by bit.
//!
//! `evaluate` prices a layout of a `Setting`: `pipeline` times one replica, `sharing` all of them beside each other,
//! `sync` the all-reduces, `tied` what stages that share parameters send each other. Python hands over arrays (`python`).

pub mod arrays;
pub mod cache;
pub mod evaluate;
pub mod extract;
pub mod groups;
pub mod links;
pub mod memory;
pub mod pipeline;
pub mod price;
pub mod progress;
pub mod python;
pub mod resources;
pub mod rings;
pub mod shares;
pub mod sharing;
pub mod sync;
#[cfg(test)]
pub mod testing;
pub mod tied;
pub mod wan;
