//! What the planner runs a million times a second: arrays in, arrays out. One subject a file; formulas and units stand
//! beside the code that computes them. Types, files and messages are Python's.

use pyo3::prelude::*;

/// The extension module `hulk_native`: one submodule per subject.
#[pymodule]
mod hulk_native {}
