//! Condition types and reasons.
pub use crate::names::GROUP as _GROUP;
