//! The lab: real systems on one machine, as a test fixture.
//!
//! A test asks for what it needs and gets a place of its own in it:
//!
//! ```ignore
//! #[tokio::test]
//! async fn a_job_completes() {
//!     let Some(lab) = bridge_testkit::lab!() else { return };
//!     let slurm = lab.slurm().await.unwrap();
//!     // slurm.url, slurm.user (this test's alone), slurm.home, slurm.token(…)
//! }
//! ```
//!
//! The systems are those of `lab/up`, started by the first test that asks and shared by all; they stay up until
//! `lab/down`. Tests that break things take a lab of their own: [`Lab::own`].
//!
//! | variable | meaning |
//! |---|---|
//! | `BRIDGE_LAB=off` | tests of the lab are skipped, each with a line on standard error |
//! | `BRIDGE_LAB_SKIPPED` | a file that gets the names of the skipped tests, one a line |
//! | `BRIDGE_LAB_NAME`, `BRIDGE_LAB_DIR` | which lab, and where (see `docs/lab.md`) |
//! | `BRIDGE_TEST_KUBECONFIG` | an existing cluster to use instead of the lab's |

mod error;
mod kubernetes;
mod ray;
mod s3;
mod skip;
mod slurm;
mod values;

use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};

use tokio::process::Command;
use tokio::sync::OnceCell;

pub use error::LabError;
pub use kubernetes::{Kubernetes, TestNamespace};
pub use ray::Ray;
pub use s3::S3;
#[doc(hidden)]
pub use skip::{for_test, skip};
pub use slurm::Slurm;
use values::Values;

/// The lab for the test it is written in, or `None` if `BRIDGE_LAB=off` (which is then said on standard error).
///
/// It goes into the test itself: the test's name is taken from where the macro stands.
#[macro_export]
macro_rules! lab {
    () => {{
        fn here() {}
        $crate::lab::for_test(::std::any::type_name_of_val(&here))
    }};
}

/// Says on standard error that the test it is written in is skipped, and why. The test then returns.
#[macro_export]
macro_rules! skip {
    ($why:expr) => {{
        fn here() {}
        $crate::lab::skip(::std::any::type_name_of_val(&here), $why)
    }};
}

/// One lab and what is up in it.
#[derive(Debug)]
pub struct Lab {
    /// `None` leaves the choice to the environment, as for the commands.
    name: Option<String>,
    /// Whether it is to end with this value.
    own: AtomicBool,
    kubernetes: OnceCell<Values>,
    slurm: OnceCell<Values>,
    slurm_purge: OnceCell<Values>,
    ray: OnceCell<Values>,
    s3: OnceCell<Values>,
}

static SHARED: LazyLock<Lab> = LazyLock::new(|| Lab::with_name(None));

impl Lab {
    /// The lab that all tests share.
    #[must_use]
    pub fn shared() -> &'static Self {
        &SHARED
    }

    /// A lab of the test's own, for tests that break things. It ends with [`Lab::down`], or with the value at the latest.
    #[must_use]
    pub fn own(purpose: &str) -> Self {
        let lab = Self::with_name(Some(unique(purpose)));
        lab.own.store(true, Ordering::Relaxed);
        lab
    }

    fn with_name(name: Option<String>) -> Self {
        Self {
            name,
            own: AtomicBool::new(false),
            kubernetes: OnceCell::new(),
            slurm: OnceCell::new(),
            slurm_purge: OnceCell::new(),
            ray: OnceCell::new(),
            s3: OnceCell::new(),
        }
    }

    /// A Kubernetes cluster.
    pub async fn kubernetes(&self) -> Result<Kubernetes, LabError> {
        if let Some(path) = kubernetes::existing() {
            return Ok(Kubernetes::existing(path));
        }
        let values = self.up(&self.kubernetes, "kubernetes").await?;
        Kubernetes::of_lab(values)
    }

    /// A Slurm cluster as it is shipped, and a user of this call's own in it.
    pub async fn slurm(&self) -> Result<Slurm, LabError> {
        let values = self.up(&self.slurm, "slurm").await?;
        Slurm::with_new_user(self, values, "slurm").await
    }

    /// A Slurm cluster that forgets a job two seconds after its end (its accounting does not), and a user of this
    /// call's own in it.
    pub async fn slurm_purge(&self) -> Result<Slurm, LabError> {
        let values = self.up(&self.slurm_purge, "slurm-purge").await?;
        Slurm::with_new_user(self, values, "slurm-purge").await
    }

    /// A Ray cluster.
    pub async fn ray(&self) -> Result<Ray, LabError> {
        let values = self.up(&self.ray, "ray").await?;
        Ray::new(values)
    }

    /// An S3 server, and a bucket of this call's own in it.
    pub async fn s3(&self) -> Result<S3, LabError> {
        let values = self.up(&self.s3, "s3").await?;
        S3::with_new_bucket(values)
    }

    /// The machine's address in the lab's network: servers of a test that pods or jobs must reach listen here.
    /// Something must be up already.
    pub async fn host(&self) -> Result<IpAddr, LabError> {
        self.values().await?.parse("BRIDGE_LAB_HOST")
    }

    /// Runs one of the lab's commands (`up`, `down`, `image` …) for this lab.
    pub async fn run(&self, command: &str, arguments: &[&str]) -> Result<Output, LabError> {
        let program = commands().join(command);
        let mut process = Command::new(&program);
        process.args(arguments).stdin(std::process::Stdio::null()).kill_on_drop(true);
        if let Some(name) = &self.name {
            process.env("BRIDGE_LAB_NAME", name);
        }
        process.output().await.map_err(|source| LabError::NotRun { program, source })
    }

    /// Like [`Lab::run`], and fails unless the command succeeds. Returns what it wrote to standard output.
    pub async fn must(&self, command: &str, arguments: &[&str]) -> Result<String, LabError> {
        let output = self.run(command, arguments).await?;
        if output.status.success() {
            Ok(String::from_utf8_lossy(&output.stdout).into_owned())
        } else {
            Err(LabError::failed(command, arguments, &output))
        }
    }

    /// Ends the lab and everything in it.
    pub async fn down(&self) -> Result<(), LabError> {
        self.must("down", &[]).await?;
        self.own.store(false, Ordering::Relaxed);
        Ok(())
    }

    async fn up<'a>(&self, cell: &'a OnceCell<Values>, system: &str) -> Result<&'a Values, LabError> {
        cell.get_or_try_init(async || {
            self.must("up", &[system]).await?;
            self.values().await
        })
        .await
    }

    async fn values(&self) -> Result<Values, LabError> {
        Ok(Values::read(&self.must("env", &["--plain"]).await?))
    }
}

impl Drop for Lab {
    fn drop(&mut self) {
        // A test that failed halfway.
        if let (true, Some(name)) = (self.own.load(Ordering::Relaxed), &self.name) {
            let _ = std::process::Command::new(commands().join("down")).env("BRIDGE_LAB_NAME", name).output();
        }
    }
}

/// A name that no other test has, in this process or another: `prefix-…`, with the letters that names of namespaces,
/// buckets and users may have.
#[must_use]
#[expect(clippy::disallowed_methods, reason = "the time tells real test runs apart")]
pub fn unique(prefix: &str) -> String {
    static COUNT: AtomicU32 = AtomicU32::new(0);
    let count = COUNT.fetch_add(1, Ordering::Relaxed);
    // A test run may be repeated under the same process id: the time tells the runs apart.
    let seconds = jiff::Timestamp::now().as_second() % 1_000_000;
    format!("{prefix}-{seconds:x}-{:x}-{count:x}", std::process::id())
}

fn commands() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab")
}
