//! Data of stand-alone jobs: crashes in the middle, stores under other names, full disks.

use std::process::Command;

use bridge_testkit::s3::S3Server;

use crate::support::{Bench, Done, Running, until};

/// A job on this machine whose Secret opens the server under a name.
fn yaml(endpoint: &str, jobdata: &str, storage: &str, upload: &str) -> String {
    format!(
        "apiVersion: bridgejob.ibm.com/v1alpha1\nkind: BridgeJob\nmetadata:\n  name: sample\nspec:\n  \
         resourceURL: \"local:\"\n  jobdata:\n{jobdata}  s3storage:\n    s3secret: keys\n    endpoint: {endpoint}\n    \
         secure: false\n{storage}{upload}---\napiVersion: v1\nkind: Secret\nmetadata:\n  name: keys\nstringData:\n  \
         accesskey: test-access-key\n  secretkey: test-secret-key\n"
    )
}

fn put(s3: &S3Server, bucket: &str, key: &str, content: &[u8]) {
    let path = s3.object_path(bucket, key);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(path, content).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_runner_killed_in_the_middle_of_many_files_leaves_the_rest_to_the_next() {
    const FILES: usize = 40;
    const STUCK: usize = 17;
    let bench = Bench::new();
    let s3 = S3Server::start().await.unwrap();
    let script = "    scriptlocation: inline\n    jobscript: |\n      #!/bin/sh\n      mkdir out; echo once >> out/runs\n      \
                  i=10\n      while [ $i -lt 50 ]; do echo \"content of $i\" > out/file-$i; i=$((i+1)); done\n";
    let upload = "  s3upload:\n    bucket: results\n    files: out/file-*, out/runs\n";
    bench.file("sample.yaml", &yaml(&s3.address().to_string(), script, "", upload));
    let path = |number: usize| format!("/results/sample/file-{}", number + 10);
    // Files are sent four at a time, in order: when the third after the stuck one comes, all before it are done.
    s3.door().close_for(&path(STUCK));
    let runner = bench.start(&["run", "sample.yaml"]);
    until("the file after the stuck one", || s3.door().puts(&path(STUCK + 3)) == 1);
    runner.kill();
    s3.door().open();

    bench.bridge(&["run", "sample.yaml"]).ends(0);
    let puts: Vec<usize> = (0..FILES).map(|number| s3.door().puts(&path(number))).collect();
    assert!(puts[..STUCK].iter().all(|count| *count == 1), "what had arrived is not sent again: {puts:?}");
    assert_eq!(puts[STUCK], 2, "{puts:?}");
    assert!(puts[STUCK + 4..].iter().all(|count| *count == 1), "{puts:?}");
    let read = |name: &str| std::fs::read_to_string(s3.object_path("results", &format!("sample/{name}"))).unwrap();
    for number in 10..10 + FILES {
        assert_eq!(read(&format!("file-{number}")), format!("content of {number}\n"));
    }
    assert_eq!(read("runs"), "once\n", "the job itself ran once");
    assert!(read("manifest.json").contains("\"complete\": true"));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_job_whose_data_is_missing_does_not_run() {
    let bench = Bench::new();
    let s3 = S3Server::start().await.unwrap();
    put(&s3, "inputs", "there", b"x");
    let script = format!(
        "    scriptlocation: inline\n    jobscript: |\n      #!/bin/sh\n      : > {}\n",
        bench.path("ran").display()
    );
    let jobdata = format!("{script}    additionaldata: inputs:there, inputs:a/missing\n");
    bench.file("sample.yaml", &yaml(&s3.address().to_string(), &jobdata, "", ""));
    let done = bench.bridge(&["run", "sample.yaml"]).ends(1);
    assert!(done.err.contains("sample: FAILED: its data could not be brought: "), "{done:?}");
    assert!(done.err.contains("inputs:a/missing") && !bench.path("ran").exists(), "{done:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn buckets_may_have_names_of_their_own() {
    let bench = Bench::new();
    let s3 = S3Server::start().await.unwrap();
    put(&s3, "inputs", "a b/größe.txt", b"2\n1\n");
    let jobdata = "    scriptlocation: inline\n    jobscript: |\n      #!/bin/sh\n      sort größe.txt > 'sorted ä'\n    \
                   additionaldata: inputs:a b/größe.txt\n";
    let upload = "  s3upload:\n    bucket: results\n    files: sorted ä\n";
    bench.file("sample.yaml", &yaml("s3.test", jobdata, "    addressing: virtual\n", upload));
    // No resolver knows these names, so the server is reached as a proxy, which is asked by name.
    let mut command = bench.command(&["run", "sample.yaml"]);
    command.env("http_proxy", s3.endpoint()).env_remove("no_proxy").env_remove("NO_PROXY");
    let done = Done::of(&command.output().unwrap()).ends(0);
    let read = std::fs::read_to_string(s3.object_path("results", "sample/sorted ä"));
    assert_eq!(read.unwrap_or_else(|error| panic!("{error}: {done:?}")), "1\n2\n");
    let seen = s3.door().seen();
    assert!(
        seen.iter().all(|request| ["inputs.s3.test", "results.s3.test"].contains(&request.host.as_str())),
        "{seen:?}"
    );
    assert!(seen.iter().any(|request| request.path == "/a%20b/gr%C3%B6%C3%9Fe.txt"), "{seen:?}");
    assert!(seen.iter().any(|request| request.method == "PUT" && request.path == "/"), "the bucket was made: {seen:?}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_full_disk_is_told_with_the_object_and_waited_out() {
    let bench = Bench::new();
    let s3 = S3Server::start().await.unwrap();
    put(&s3, "inputs", "large.bin", &vec![7; 1_500_000]);
    let jobdata = "    scriptlocation: inline\n    jobscript: |\n      #!/bin/sh\n      wc -c < large.bin\n    \
                   additionaldata: inputs:large.bin\n";
    bench.file("sample.yaml", &yaml(&s3.address().to_string(), jobdata, "", ""));
    // A disk of 2 MiB that only this process sees, and that ends with it.
    let disk = bench.state().join("local");
    std::fs::create_dir_all(&disk).unwrap();
    let mount = "mount -t tmpfs -o size=2m none \"$0\" && head -c 1000000 /dev/zero > \"$0/filler\" && exec \"$@\"";
    let inner = bench.command(&["run", "sample.yaml"]);
    let mut command = Command::new("unshare");
    command.args(["-m", "sh", "-c", mount]).arg(&disk).arg(inner.get_program()).args(inner.get_args());
    command.current_dir(bench.path(""));
    let runner = Running::of(command, &bench);
    until("the message", || {
        assert!(runner.is_alive(), "this test makes a disk of its own and needs root: {}", runner.err());
        runner.err().contains("No space left on device")
    });
    let told = runner.err();
    assert!(told.contains("inputs:large.bin") && told.contains("PENDING"), "{told}");
    std::fs::remove_file(runner.seen_inside(&disk.join("filler"))).unwrap();
    assert_eq!(runner.wait().ends(0).out.trim(), "1500000");
}

/// The examples of the README and of the paper, and the shapes of the first version's samples, with this machine as
/// the resource: only URL, endpoint, pull policy and what belongs to one manager alone are changed.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn the_known_examples_with_s3_run_on_this_machine() {
    let bench = Bench::new();
    let s3 = S3Server::start().await.unwrap();
    let script = bench.file("batch.sh", "#!/bin/sh\necho result > output.txt\necho done\n");
    std::fs::set_permissions(&script, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    put(&s3, "mys3bucket", "slurmbatch.sh", b"#!/bin/bash\necho from the paper\n");
    put(&s3, "mybucket", "lsf/script.sh", b"#!/bin/sh\ncat data1.txt data2.txt > out.txt\necho \"$1\"\n");
    put(&s3, "mybucket", "lsf/parameters", b"[\"from a parameter\"]");
    put(&s3, "mybucket", "lsf/data1.txt", b"1\n");
    put(&s3, "other", "data2.txt", b"2\n");
    let spec = |text: &str| {
        format!(
            "kind: BridgeJob\napiVersion: bridgejob.ibm.com/v1alpha1\nmetadata:\n  name: mybridgejob\nspec:\n  \
             resourceURL: \"local:\"\n  imagepullpolicy: Always\n  updateinterval: 1\n{text}  s3storage:\n    s3secret: mysecret-s3\n    \
             endpoint: {}\n    secure: false\n---\napiVersion: v1\nkind: Secret\nmetadata:\n  name: mysecret-s3\nstringData:\n  \
             accesskey: test-access-key\n  secretkey: test-secret-key\n",
            s3.address()
        )
    };
    let readme = format!(
        "  jobproperties:\n    runlimit: 20 # mins\n  jobdata:\n    jobScript: {}\n    scriptlocation: remote\n  s3upload:\n    \
         bucket: mybucket\n    files: 'output.txt'\n",
        script.display()
    );
    let paper = "  jobdata:\n    jobscript: \"mys3bucket:slurmbatch.sh\"\n    scriptlocation: \"s3\"\n";
    let empty = "  jobdata:\n    jobscript: \"mys3bucket:slurmbatch.sh\"\n    scriptlocation: s3\n    scriptextralocation: s3\n    \
                 scriptmetadata: \"\"\n    jobparameters: \"\"\n";
    let full = "  jobdata:\n    jobscript: mybucket:lsf/script.sh\n    scriptlocation: s3\n    scriptextralocation: s3\n    \
                jobparameters: mybucket:lsf/parameters\n    additionaldata: mybucket:lsf/data1.txt,other:data2.txt\n  s3upload:\n    \
                bucket: newbucket\n    files: out.txt\n";
    for (text, output) in [
        (readme.as_str(), "done\n"),
        (paper, "from the paper\n"),
        (empty, "from the paper\n"),
        (full, "from a parameter\n"),
    ] {
        bench.file("sample.yaml", &spec(text));
        let done = bench.bridge(&["run", "--again", "sample.yaml"]).ends(0);
        assert_eq!(done.out, output, "{text}\n{done:?}");
    }
    let read = |bucket: &str, name: &str| {
        std::fs::read_to_string(s3.object_path(bucket, &format!("mybridgejob/{name}"))).unwrap()
    };
    assert_eq!(read("mybucket", "output.txt"), "result\n");
    assert_eq!(
        (read("newbucket", "out.txt"), read("newbucket", "stdout")),
        ("1\n2\n".to_owned(), "from a parameter\n".to_owned())
    );
}
