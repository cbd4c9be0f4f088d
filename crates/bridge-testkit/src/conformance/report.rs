//! What came out of a run.

use std::fmt;

/// What came out of a case.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Verdict {
    /// As demanded.
    Passed,
    /// Not tried, and why.
    Skipped(String),
    /// Not as demanded, and how.
    Failed(String),
}

impl fmt::Display for Verdict {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Passed => f.write_str("ok"),
            Self::Skipped(why) => write!(f, "skipped: {why}"),
            Self::Failed(how) => write!(f, "FAILED: {how}"),
        }
    }
}

/// What came out of all cases.
#[derive(Debug, Clone)]
pub struct Report {
    manager: String,
    verdicts: Vec<(&'static str, Verdict)>,
}

impl Report {
    pub(super) fn new(manager: &str) -> Self {
        Self { manager: manager.to_owned(), verdicts: Vec::new() }
    }

    pub(super) fn add(&mut self, case: &'static str, verdict: Verdict) {
        println!("conformance {}: {case} … {verdict}", self.manager);
        self.verdicts.push((case, verdict));
    }

    /// Whether no case failed.
    #[must_use]
    pub fn is_ok(&self) -> bool {
        !self.verdicts.iter().any(|(_, verdict)| matches!(verdict, Verdict::Failed(_)))
    }

    /// What came out of one case.
    #[must_use]
    pub fn verdict(&self, case: &str) -> Option<&Verdict> {
        self.verdicts.iter().find(|(name, _)| *name == case).map(|(_, verdict)| verdict)
    }

    /// The cases that were skipped, so that a test can demand that none, or only certain ones, were.
    #[must_use]
    pub fn skipped(&self) -> Vec<&'static str> {
        self.names(|verdict| matches!(verdict, Verdict::Skipped(_)))
    }

    /// The cases that failed.
    #[must_use]
    pub fn failed(&self) -> Vec<&'static str> {
        self.names(|verdict| matches!(verdict, Verdict::Failed(_)))
    }

    fn names(&self, wanted: impl Fn(&Verdict) -> bool) -> Vec<&'static str> {
        self.verdicts.iter().filter(|(_, verdict)| wanted(verdict)).map(|(name, _)| *name).collect()
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let failed = self.failed().len();
        writeln!(f, "{}: {failed} of {} conformance cases failed", self.manager, self.verdicts.len())?;
        for (name, verdict) in &self.verdicts {
            if let Verdict::Failed(how) = verdict {
                writeln!(f, "  {name}: {how}")?;
            }
        }
        Ok(())
    }
}
