//! Emulators, the adapter conformance suite and the lab fixture. Not published.

pub mod lab;
