//! Room under construction.
fn main() {}
