//! The program `mote`.
fn main() {}
