//! The commands: repair, refusals, two labs at once, and nothing left behind.

use std::os::unix::fs::MetadataExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use bridge_testkit::lab::Lab;
use tokio::process::Command;

use super::{PROCESS_PATIENCE, eventually, http};

#[tokio::test]
async fn down_leaves_no_process_mount_cgroup_route_link_or_user() {
    let Some(_) = bridge_testkit::lab!() else { return };
    let users = std::fs::read_to_string("/etc/passwd").unwrap();
    let lab = Lab::own("clean");
    lab.must("up", &["kubernetes", "slurm", "s3"]).await.unwrap();
    let folder = folder(&lab).await;
    let network = folder.join("netns").metadata().unwrap().ino();
    let namespace = lab.kubernetes().await.unwrap().namespace().await.unwrap();
    let during = Machine::now();
    assert!(!processes_in(network).is_empty());

    // A folder with the same number keeps other labs from getting it, and its names, before the end of this test.
    let number = std::fs::read_to_string(folder.join("number")).unwrap();
    let held = tempfile::Builder::new().prefix("held").tempdir_in(folder.parent().unwrap()).unwrap();
    std::fs::write(held.path().join("number"), &number).unwrap();
    lab.down().await.unwrap();
    drop(namespace);
    assert_eq!(processes_in(network), Vec::<String>::new());
    assert!(!folder.exists());
    // Only what is this lab's is looked for: other labs may come and go meanwhile.
    let after = Machine::now();
    for (what, during, after) in [
        ("mounts", during.mounts, after.mounts),
        ("links", during.links, after.links),
        ("routes", during.routes, after.routes),
        ("cgroups", during.cgroups, after.cgroups),
    ] {
        let mine = |lines: Vec<String>| -> Vec<String> {
            lines.into_iter().filter(|line| belongs(line, &folder, number.trim())).collect()
        };
        assert!(!mine(during).is_empty(), "{what}: nothing of the lab was seen while it was up");
        assert_eq!(mine(after), Vec::<String>::new(), "{what} left behind");
    }
    assert_eq!(users, std::fs::read_to_string("/etc/passwd").unwrap());
}

#[tokio::test]
async fn up_repairs_what_was_killed() {
    let Some(_) = bridge_testkit::lab!() else { return };
    let lab = Lab::own("repair");
    lab.must("up", &["slurm", "s3"]).await.unwrap();
    let folder = folder(&lab).await;
    // "cell" and "init" hold the namespaces of all the others.
    for (system, part) in [
        ("s3", "server"),
        ("s3", "cell"),
        ("s3", "init"),
        ("slurm", "slurmctld"),
        ("slurm", "mariadbd"),
        ("slurm", "cell"),
    ] {
        let file = folder.join(system).join(format!("run/{part}.pid"));
        let text = std::fs::read_to_string(&file).unwrap();
        let pid = text.split(' ').next().unwrap();
        let killed = Command::new("kill").args(["-KILL", pid]).status().await.unwrap();
        assert!(killed.success());
        eventually("the process to end", PROCESS_PATIENCE, async || {
            let state = std::fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
            (state.is_empty() || state.contains(") Z ")).then_some(())
        })
        .await;
        let status = lab.run("status", &[]).await.unwrap();
        assert_eq!(status.status.code(), Some(1), "{part} of {system} is dead: {status:?}");
        lab.must("up", &[system]).await.unwrap();
        let status = lab.run("status", &[]).await.unwrap();
        assert!(status.status.success(), "after the repair of {part} of {system}: {status:?}");
    }
    lab.slurm().await.unwrap().token(60).await.unwrap();
    lab.down().await.unwrap();
}

#[tokio::test]
async fn a_taken_port_is_reported_with_its_owner() {
    let Some(_) = bridge_testkit::lab!() else { return };
    let lab = Lab::own("port");
    lab.must("up", &["s3"]).await.unwrap();
    lab.must("down", &["s3"]).await.unwrap();
    let network = folder(&lab).await.join("netns");
    let network = format!("--net={}", network.display());
    let mut owner = Command::new("nsenter")
        .arg(&network)
        .args(["busybox", "nc", "-l", "-p", "9000"])
        .kill_on_drop(true)
        .stdin(Stdio::null())
        .spawn()
        .unwrap();
    let pid = owner.id().unwrap();
    eventually("the port to be taken", PROCESS_PATIENCE, async || {
        let ports =
            Command::new("nsenter").arg(&network).args(["ss", "-Hltn", "sport = :9000"]).output().await.unwrap();
        (!ports.stdout.is_empty()).then_some(())
    })
    .await;
    let refused = lab.run("up", &["s3"]).await.unwrap();
    assert!(!refused.status.success(), "{refused:?}");
    let said = String::from_utf8(refused.stderr).unwrap();
    assert!(said.contains(&format!("is taken by busybox (process {pid})")), "{said}");
    owner.kill().await.unwrap();
    lab.must("up", &["s3"]).await.unwrap();
    lab.down().await.unwrap();
}

#[tokio::test]
async fn two_labs_run_side_by_side_and_up_may_be_called_twice_at_once() {
    let Some(_) = bridge_testkit::lab!() else { return };
    let (one, two) = (Lab::own("one"), Lab::own("two"));
    let (a, b, c) = tokio::join!(one.must("up", &["s3"]), one.must("up", &["s3"]), two.must("up", &["s3"]));
    for up in [a, b, c] {
        up.unwrap();
    }
    let (first, second) = (one.s3().await.unwrap(), two.s3().await.unwrap());
    assert_ne!(first.endpoint, second.endpoint);
    // Each server knows its own keys alone.
    std::fs::write(first.object_path("x"), "1").unwrap();
    assert_eq!(http().get(first.presign("GET", "x")).send().await.unwrap().status(), 200);
    let foreign = second.presign("GET", "x").replace(&second.endpoint, &first.endpoint);
    assert_eq!(http().get(foreign).send().await.unwrap().status(), 403);
    one.down().await.unwrap();
    // The end of one lab is not the end of the other.
    assert_eq!(http().get(&second.endpoint).send().await.unwrap().status(), 403);
    two.down().await.unwrap();
}

#[tokio::test]
async fn a_machine_that_will_not_do_is_refused_in_one_sentence() {
    let Some(_) = bridge_testkit::lab!() else { return };
    let small_disk = "mount -t tmpfs -o size=64m tmpfs /mnt && BRIDGE_LAB_DIR=/mnt exec \"$0\" s3";
    let no_cgroups = "umount --lazy --recursive /sys/fs/cgroup && exec \"$0\" kubernetes";
    for (program, arguments, reason) in [
        ("setpriv", vec!["--bounding-set=-net_admin"], "missing: the capability CAP_NET_ADMIN"),
        ("setpriv", vec!["--reuid=65534", "--clear-groups"], "missing: root"),
        ("unshare", vec!["--mount", "sh", "-c", small_disk], "MiB free and the lab needs 1024"),
        (
            "unshare",
            vec!["--mount", "sh", "-c", no_cgroups],
            "Kubernetes needs cgroups, and neither version is mounted",
        ),
    ] {
        let name = bridge_testkit::lab::unique("refused");
        let output = Command::new(program)
            .args(arguments)
            .arg(commands().join("up"))
            .env("BRIDGE_LAB_NAME", &name)
            .output()
            .await
            .unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert!(!output.status.success() && said.contains(reason), "expected \"{reason}\": {said}");
        let down = Command::new(commands().join("down")).env("BRIDGE_LAB_NAME", &name).output();
        assert!(down.await.unwrap().status.success());
    }
}

#[tokio::test]
async fn a_bad_name_is_refused() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let output = lab.run("up", &["kubernets"]).await.unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("there is no system \"kubernets\": choose from"), "{said}");
    let output = Command::new(commands().join("up")).env("BRIDGE_LAB_NAME", "../x").output().await.unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("BRIDGE_LAB_NAME is \"../x\""), "{said}");
}

#[tokio::test]
async fn the_labs_tests_are_left_out_by_name_and_number() {
    let skipped = tempfile::NamedTempFile::new().unwrap();
    let name = "lab::s3::a_signed_request_is_served_and_a_wrongly_signed_one_refused";
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", name])
        .env("BRIDGE_LAB", "off")
        .env("BRIDGE_LAB_SKIPPED", skipped.path())
        .output()
        .await
        .unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said, format!("BRIDGE_LAB=off: skipped {name} (number 1 of this test program)\n"));
    assert_eq!(std::fs::read_to_string(skipped.path()).unwrap(), format!("{name}\n"));
}

#[tokio::test]
async fn tests_run_on_an_existing_cluster() {
    let Some(lab) = bridge_testkit::lab!() else { return };
    let existing = lab.kubernetes().await.unwrap().kubeconfig;
    // A lab that cannot start: what is used must be the other cluster.
    let output = Command::new(std::env::current_exe().unwrap())
        .args(["--exact", "lab::kubernetes::a_pod_runs_to_completion_and_its_log_is_read"])
        .env("BRIDGE_TEST_KUBECONFIG", existing)
        .env("BRIDGE_LAB_NAME", "../no lab")
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(output.status.success() && said.contains("1 passed"), "{output:?}");
}

fn commands() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../../lab").canonicalize().unwrap()
}

async fn folder(lab: &Lab) -> PathBuf {
    let values = lab.must("env", &["--plain"]).await.unwrap();
    values.lines().find_map(|line| line.strip_prefix("BRIDGE_LAB_FOLDER=")).unwrap().into()
}

/// What a lab adds to the machine, as lines of text.
struct Machine {
    mounts: Vec<String>,
    links: Vec<String>,
    routes: Vec<String>,
    cgroups: Vec<String>,
}

impl Machine {
    fn now() -> Self {
        let lines = |path: &str| std::fs::read_to_string(path).unwrap().lines().map(str::to_owned).collect();
        let names = |path: &str| -> Vec<String> {
            let entries = std::fs::read_dir(path).into_iter().flatten().flatten();
            entries.map(|entry| entry.path().display().to_string()).collect()
        };
        let hierarchies = names("/sys/fs/cgroup");
        Self {
            mounts: lines("/proc/self/mountinfo"),
            links: names("/sys/class/net"),
            routes: lines("/proc/net/route"),
            // Version 1 has a folder for each hierarchy, version 2 has one for all.
            cgroups: hierarchies.iter().flat_map(|path| names(path)).chain(hierarchies.clone()).collect(),
        }
    }
}

/// Whether a mount, link, route or cgroup is of this lab.
fn belongs(line: &str, folder: &Path, number: &str) -> bool {
    let name = format!("bridgelab{number}");
    line.contains(&format!("{}/", folder.display()))
        || line.ends_with(&format!("/{name}"))
        || line.starts_with(&format!("{name}\t"))
        || line.ends_with(&format!("/bridge-lab-{number}"))
}

/// The command lines of all processes in the network namespace with this inode.
fn processes_in(network: u64) -> Vec<String> {
    let all = std::fs::read_dir("/proc").unwrap().flatten();
    all.filter(|entry| entry.path().join("ns/net").metadata().is_ok_and(|network_of| network_of.ino() == network))
        .map(|entry| std::fs::read_to_string(entry.path().join("cmdline")).unwrap_or_default().replace('\0', " "))
        .collect()
}
