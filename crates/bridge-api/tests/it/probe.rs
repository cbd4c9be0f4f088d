#[test]
fn probe() {
    std::fs::write("/tmp/probe-crd.yaml", bridge_api::crd_yaml().unwrap()).unwrap();
    let text = std::fs::read("/tmp/probe.yaml").unwrap();
    let reading = bridge_api::reader::read("job.yaml", &text);
    for p in &reading.problems { println!("{p}"); }
    for p in &reading.notes { println!("note {p}"); }
    println!("{:?}", reading.documents);
}
