//! The lab's Slurm.

use std::path::PathBuf;

use secrecy::SecretString;
use url::Url;

use super::{Lab, LabError, Values, unique};

/// A Slurm cluster, and a user of one test's own in it.
#[derive(Clone, Debug)]
pub struct Slurm {
    /// Of slurmrestd.
    pub url: Url,
    /// The user's name. The user exists inside the lab only.
    pub user: String,
    /// The user's home, at the same path for jobs and for the test.
    pub home: PathBuf,
    /// Where sshd listens, `host:port`.
    pub ssh: String,
    /// The private key that sshd accepts for the user.
    pub ssh_key: PathBuf,
    /// sshd's own key, as a `known_hosts` file.
    pub ssh_known_hosts: PathBuf,
    system: &'static str,
    lab: Option<String>,
}

impl Slurm {
    pub(super) async fn with_new_user(lab: &Lab, values: &Values, system: &'static str) -> Result<Self, LabError> {
        let names = if system == "slurm" { &PLAIN } else { &PURGE };
        let user = unique("u");
        lab.must("user", &[&user, system]).await?;
        let alice = PathBuf::from(values.get(names.home)?);
        let ssh = values.get(names.ssh)?;
        Ok(Self {
            url: values.parse(names.url)?,
            home: alice.with_file_name(&user),
            ssh: ssh.split_once('@').map_or(ssh, |(_, address)| address).to_owned(),
            ssh_key: values.get(names.ssh_key)?.into(),
            ssh_known_hosts: values.get(names.ssh_known_hosts)?.into(),
            user,
            system,
            lab: lab.name.clone(),
        })
    }

    /// A token for the user that is valid for so many seconds.
    pub async fn token(&self, seconds: u32) -> Result<SecretString, LabError> {
        let user = format!("username={}", self.user);
        let lifespan = format!("lifespan={seconds}");
        let line = self.exec(&["scontrol", "token", &user, &lifespan]).await?;
        let token = line.trim();
        Ok(SecretString::from(token.strip_prefix("SLURM_JWT=").unwrap_or(token)))
    }

    /// Runs one of Slurm's own commands beside its programs, as administrator; returns its standard output.
    pub async fn exec(&self, command: &[&str]) -> Result<String, LabError> {
        Lab::with_name(self.lab.clone()).must("exec", &[&[self.system], command].concat()).await
    }
}

/// The names of the two clusters' values in `lab/env`.
struct Names {
    url: &'static str,
    home: &'static str,
    ssh: &'static str,
    ssh_key: &'static str,
    ssh_known_hosts: &'static str,
}

const PLAIN: Names = Names {
    url: "BRIDGE_LAB_SLURM_URL",
    home: "BRIDGE_LAB_SLURM_HOME",
    ssh: "BRIDGE_LAB_SLURM_SSH",
    ssh_key: "BRIDGE_LAB_SLURM_SSH_KEY",
    ssh_known_hosts: "BRIDGE_LAB_SLURM_SSH_KNOWN_HOSTS",
};

const PURGE: Names = Names {
    url: "BRIDGE_LAB_SLURM_PURGE_URL",
    home: "BRIDGE_LAB_SLURM_PURGE_HOME",
    ssh: "BRIDGE_LAB_SLURM_PURGE_SSH",
    ssh_key: "BRIDGE_LAB_SLURM_PURGE_SSH_KEY",
    ssh_known_hosts: "BRIDGE_LAB_SLURM_PURGE_SSH_KNOWN_HOSTS",
};
