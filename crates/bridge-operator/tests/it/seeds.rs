//! The examples of the README and of the paper on a real Slurm and a real object store, with only URL, Secrets, pull policy,
//! queue and folders changed.

use bridge_api::JobStatus;
use bridge_testkit::lab::{Lab, S3, Slurm};
use secrecy::ExposeSecret as _;
use serde_json::json;

use crate::bed::Bed;

struct Site {
    bed: Bed,
    slurm: Slurm,
    s3: S3,
}

impl Site {
    async fn new(lab: &Lab) -> Self {
        let bed = Bed::new(lab).await;
        let slurm = lab.slurm().await.unwrap();
        let s3 = lab.s3().await.unwrap();
        let token = slurm.token(3600).await.unwrap();
        bed.secret("mysecret", &[("username", &slurm.user), ("password", token.expose_secret())]).await;
        bed.secret(
            "mysecret-s3",
            &[("accesskey", &s3.keys.access_key), ("secretkey", s3.keys.secret_key.expose_secret())],
        )
        .await;
        Self { bed, slurm, s3 }
    }

    fn endpoint(&self) -> &str {
        self.s3.endpoint.trim_start_matches("http://")
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn the_readmes_example_runs() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let site = Site::new(lab).await;
    let script = site.slurm.home.join("batch.sh");
    let text = format!("#!/bin/bash\ncd {}\necho result > output.txt\n", site.slurm.home.display());
    std::fs::write(&script, text).unwrap();
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let job = json!({
        "resourceURL": site.slurm.url,
        "resourcesecret": "mysecret",
        "imagepullpolicy": "IfNotPresent",
        "updateinterval": 30,
        "jobproperties": { "runlimit": 20, "currentWorkingDir": site.slurm.home },
        "jobdata": { "jobScript": script, "scriptlocation": "remote" },
        "s3storage": { "s3secret": "mysecret-s3", "endpoint": site.endpoint(), "secure": false },
        "s3upload": { "bucket": site.s3.bucket, "files": "output.txt" },
    });
    site.bed.try_create("mybridgejob", job).await.unwrap();
    let status = site.bed.until_status("mybridgejob", JobStatus::Done).await;
    assert!(status.conditions.iter().any(|c| c.type_ == "OutputsStaged" && c.status == "True"), "{status:?}");
    assert_eq!(std::fs::read_to_string(site.s3.object_path("mybridgejob/output.txt")).unwrap(), "result\n");
}

#[tokio::test(flavor = "multi_thread")]
async fn the_papers_slurm_example_runs() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let site = Site::new(lab).await;
    std::fs::write(site.s3.object_path("slurmbatch.sh"), "#!/bin/bash\necho hello from slurm\n").unwrap();
    let job = json!({
        "resourceURL": site.slurm.url,
        "image": "slurmpod:0.1",
        "resourcesecret": "mysecret",
        "imagepullpolicy": "IfNotPresent",
        "updateinterval": 20,
        "jobdata": { "jobscript": format!("{}:slurmbatch.sh", site.s3.bucket), "scriptlocation": "s3" },
        "jobproperties": json!({
            "NodesNumber": "1", "Queue": "debug", "Tasks": "2", "slurmJobName": "test",
            "currentWorkingDir": site.slurm.home, "envLibPath": "/usr/mpi/gcc/openmpi-4.0.3rc4/lib",
            "ErrorFileName": "slurmjob.err", "OutputFileName": "slurmjob.out",
        })
        .to_string(),
        "s3storage": { "s3secret": "mysecret-s3", "endpoint": site.endpoint(), "secure": false },
    });
    site.bed.try_create("slurmjob-test", job).await.unwrap();
    let status = site.bed.until_status("slurmjob-test", JobStatus::Done).await;
    assert_eq!(status.queue.as_deref(), Some("debug"));
    let output = std::fs::read_to_string(site.slurm.home.join("slurmjob.out")).unwrap();
    assert!(output.contains("hello from slurm"), "{output}");
}
