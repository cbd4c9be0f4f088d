//! The suite that every resource manager passes: written once, against `dyn ResourceManager`.
//!
//! ```text
//! #[tokio::test(flavor = "multi_thread")]
//! async fn conformance() {
//!     bridge_testkit::conformance::check(&MySubject::start().await).await;
//! }
//! ```
//!
//! A case is skipped, and says so, where the manager lacks the facet or the [`Subject`] cannot arrange what it needs.

mod cancel;
mod context;
mod facets;
mod faulty;
mod hold;
mod poll;
mod report;
mod subject;
mod submit;

use std::panic::AssertUnwindSafe;

use futures::future::LocalBoxFuture;
use futures::{FutureExt, StreamExt};

use context::Context;
pub use report::{Report, Verdict};
pub use subject::{Sample, Subject};

/// Why a case did not fail.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Done {
    Passed,
    /// What is missing.
    Skipped(String),
}

type CaseResult = anyhow::Result<Done>;

/// One case: its name says what is demanded.
#[derive(Clone, Copy)]
struct Case {
    name: &'static str,
    run: for<'a> fn(&'a Context<'a>) -> LocalBoxFuture<'a, CaseResult>,
}

/// Puts `async fn`s with one argument into a list of cases under their own names.
macro_rules! cases {
    ($($function:ident),+ $(,)?) => {
        &[$($crate::conformance::Case { name: stringify!($function), run: |context| Box::pin($function(context)) }),+]
    };
}
use cases;

/// Runs all cases and prints a line for each.
///
/// # Panics
/// With the list of the cases that failed, if any did.
#[allow(clippy::panic, reason = "this is how a test fails")]
pub async fn check(subject: &dyn Subject) {
    let report = run(subject).await;
    assert!(report.is_ok(), "{report}");
}

/// Runs all cases, prints a line for each, and says what came out.
pub async fn run(subject: &dyn Subject) -> Report {
    let context = Context::new(subject);
    let alike = [submit::CASES, poll::CASES, cancel::CASES, hold::CASES, facets::CASES].concat();
    let mut report = Report::new(subject.name());
    // Not `Send`: async closures that borrow are not general enough for that, and a test awaits in place.
    let runs: Vec<LocalBoxFuture<'_, (&'static str, Verdict)>> =
        alike.iter().map(|case| run_one(&context, case).boxed_local()).collect();
    let mut finished = futures::stream::iter(runs).buffer_unordered(subject.side_by_side().max(1));
    while let Some((name, verdict)) = finished.next().await {
        report.add(name, verdict);
    }
    drop(finished);
    for case in faulty::CASES {
        let (name, verdict) = run_one(&context, case).await;
        if let Some(faults) = subject.faults() {
            faults.clear();
        }
        report.add(name, verdict);
    }
    report
}

async fn run_one(context: &Context<'_>, case: &Case) -> (&'static str, Verdict) {
    // A case waits several times, each bounded by itself; this bound is for an adapter that never answers.
    let limit = context.subject.max_wait() * 5;
    let guarded = AssertUnwindSafe((case.run)(context)).catch_unwind();
    let verdict = match tokio::time::timeout(limit, guarded).await {
        Ok(Ok(Ok(Done::Passed))) => Verdict::Passed,
        Ok(Ok(Ok(Done::Skipped(why)))) => Verdict::Skipped(why),
        Ok(Ok(Err(failure))) if failure.is::<context::CannotTell>() => Verdict::Skipped(failure.to_string()),
        Ok(Ok(Err(failure))) => Verdict::Failed(format!("{failure:#}")),
        Ok(Err(_)) => Verdict::Failed("panicked".to_owned()),
        Err(_) => Verdict::Failed(format!("did not end within {limit:?}")),
    };
    (case.name, verdict)
}
