//! One job's life in the cluster: plan → dereference → decide → report → apply.

pub mod apply;
pub mod build;
pub mod controller;
pub mod decide;
pub mod dereference;
pub mod plan;
pub mod report;
pub mod seen;
