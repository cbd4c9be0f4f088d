//! Drives jobs from their plans to their ends: [`Engine`] decides, the shell makes the calls.

mod call;
mod engine;
mod rounds;
mod shell;
mod stage;

pub use call::{Action, Answer, Call, Leaving, Slot, TargetId, Ticket};
pub use engine::Engine;
pub use shell::{Driver, DriverHandle, NewJob, Observer};
