//! The lab: real systems on one machine, as a test fixture.
