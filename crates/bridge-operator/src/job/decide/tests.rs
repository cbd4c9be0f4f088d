use jiff::SignedDuration;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;

use super::super::plan::plan;
use super::*;
use crate::foreign::PodEnd;

const UID: &str = "job-uid";

fn now() -> Timestamp {
    Timestamp::from_second(1_800_000_000).unwrap()
}

fn job(extra: &str) -> BridgeJob {
    let spec = format!(
        r#"{{"resourceURL":"http://x:6820","resourcesecret":"sec","jobdata":{{"jobscript":"/s"}}{}{extra}}}"#,
        if extra.is_empty() { "" } else { "," }
    );
    let mut job = BridgeJob::new("hello", serde_json::from_str(&spec).unwrap());
    job.metadata.namespace = Some("team".to_owned());
    job.metadata.uid = Some(UID.to_owned());
    job.metadata.generation = Some(1);
    job
}

fn deleted(mut job: BridgeJob) -> BridgeJob {
    job.metadata.deletion_timestamp = Some(Time(now()));
    job.metadata.finalizers = Some(vec![api::FINALIZER_CANCEL.to_owned()]);
    job
}

fn handed_over(mut job: BridgeJob) -> BridgeJob {
    let context = Context { generation: Some(1), now: now() };
    let mut report = Report::on(None, context);
    report.ready(Some(ResourceManager::Slurm)).hand_over(false).config_map("map-uid");
    job.status = Some(report.finish());
    job
}

fn running_record(seq: u64) -> JobRecord {
    let mut record = JobRecord::new(UID, "pod-1");
    record.seq = seq;
    record.state = JobState::Active { id: RemoteId::new("42"), phase: Phase::Running, missing: None };
    record
}

/// A job whose status mirrors a running remote job.
fn running(job: BridgeJob) -> BridgeJob {
    let mut job = handed_over(job);
    let context = Context { generation: Some(1), now: now() };
    let mut report = Report::on(job.status.as_ref(), context);
    job.status = Some(report.record(&running_record(5)).status().clone());
    job
}

fn map(record: Option<&JobRecord>) -> SeenMap {
    let mut data = keys::write(&job("").spec, Some(ResourceManager::Slurm));
    if let Some(record) = record {
        data.insert(keys::STATE.to_owned(), record.encode().unwrap());
        data.insert(keys::ID.to_owned(), "42".to_owned());
    }
    SeenMap {
        uid: "map-uid".to_owned(),
        resource_version: "7".to_owned(),
        ours: true,
        deleting: false,
        foreign: false,
        pod_made: None,
        data,
    }
}

fn pod(phase: PodPhase) -> SeenPod {
    SeenPod {
        uid: "pod-uid".to_owned(),
        owner: Some("map-uid".to_owned()),
        deletion: None,
        ours: true,
        phase,
        restarts: 0,
    }
}

fn crashed(seconds_ago: i64) -> PodPhase {
    let at = now().checked_sub(SignedDuration::from_secs(seconds_ago)).unwrap();
    PodPhase::Ended { end: PodEnd::Exited(1), why: "exit code 1".to_owned(), at: Some(at), ran: Some(3) }
}

struct Case {
    planned: Result<Planned, Problem>,
    references: Result<(), Problem>,
    namespace_ending: bool,
}

impl Default for Case {
    fn default() -> Self {
        let runs = Runs::Worker { replaced: None };
        let planned = Planned { runs, manager: Some(ResourceManager::Slurm), needs: Vec::new() };
        Self { planned: Ok(planned), references: Ok(()), namespace_ending: false }
    }
}

impl Case {
    fn foreign() -> Self {
        let runs = Runs::Foreign { image: "own:1".to_owned() };
        Self { planned: Ok(Planned { runs, manager: None, needs: Vec::new() }), ..Self::default() }
    }

    fn without_secret() -> Self {
        let message = "there is no Secret \"sec\"".to_owned();
        Self { references: Err(Problem { reason: terms::SECRET_MISSING, message }), ..Self::default() }
    }

    fn decide(&self, job: &BridgeJob, map: Option<&SeenMap>, pod: Option<&SeenPod>) -> Decision {
        self.decide_at(now(), job, map, pod)
    }

    fn decide_at(&self, now: Timestamp, job: &BridgeJob, map: Option<&SeenMap>, pod: Option<&SeenPod>) -> Decision {
        decide(&Input {
            job,
            planned: &self.planned,
            references: &self.references,
            map,
            pod,
            namespace_ending: self.namespace_ending,
            now,
        })
    }
}

fn reason(decision: &Decision, type_: &str) -> Option<(String, String)> {
    let found = decision.status.conditions.iter().find(|condition| condition.type_ == type_)?;
    Some((found.status.clone(), found.reason.clone()))
}

fn told_state(steps: &[Step]) -> JobRecord {
    let told = steps.iter().find_map(|step| match step {
        Step::MakeMap { told, .. } => Some(told),
        _ => None,
    });
    JobRecord::decode(&told.unwrap()[keys::STATE]).unwrap()
}

#[test]
fn a_new_job_is_marked_before_anything_is_made() {
    let decision = Case::default().decide(&job(""), None, None);
    assert!(decision.status.handover.is_some());
    assert_eq!(reason(&decision, "Ready"), Some(("True".into(), "Resolved".into())));
    let map = Step::MakeMap { told: Data::new(), pod_made: None };
    assert_eq!(decision.steps, [map, Step::MakePod { uid: None, restarts: 0 }]);
}

#[test]
fn kill_at_creation_makes_nothing_ever() {
    let decision = Case::default().decide(&job(r#""kill":true"#), None, None);
    assert_eq!((decision.status.jobstatus, decision.steps.len()), (Some(JobStatus::Killed), 0));
    assert!(decision.status.handover.is_none());
    assert_eq!(reason(&decision, "Failed"), Some(("True".into(), "Killed".into())));
}

#[test]
fn suspend_at_creation_makes_nothing_yet() {
    let first = Case::default().decide(&job(r#""suspend":true"#), None, None);
    assert_eq!((first.status.jobstatus, first.steps.len()), (Some(JobStatus::Suspended), 0));
    let mut resumed = job("");
    resumed.status = Some(first.status);
    let second = Case::default().decide(&resumed, None, None);
    assert_eq!(reason(&second, "Suspended"), Some(("False".into(), "Resumed".into())));
    assert_eq!(second.steps.len(), 2);
}

#[test]
fn a_missing_secret_is_waited_for_more_and_more_rarely() {
    let mut waiting = job("");
    let decision = Case::without_secret().decide(&waiting, None, None);
    assert_eq!(reason(&decision, "Ready"), Some(("False".into(), "SecretMissing".into())));
    assert_eq!((decision.steps.len(), decision.again), (0, Some(Duration::from_secs(1))));
    let mut status = decision.status;
    status.conditions[0].last_transition_time = Time(now().checked_sub(SignedDuration::from_hours(1)).unwrap());
    waiting.status = Some(status);
    assert_eq!(Case::without_secret().decide(&waiting, None, None).again, Some(Duration::from_mins(1)));
    assert_eq!(Case::default().decide(&waiting, None, None).steps.len(), 2);
}

#[test]
fn a_plan_that_cannot_be_made_is_the_end() {
    let problem = Problem { reason: terms::MANAGER_UNKNOWN, message: "slurm, lsf, …".to_owned() };
    let decision = Case { planned: Err(problem), ..Case::default() }.decide(&job(""), None, None);
    assert_eq!(decision.status.jobstatus, Some(JobStatus::Failed));
    assert_eq!(reason(&decision, "Ready"), Some(("False".into(), "ManagerUnknown".into())));
    assert_eq!(decision.steps, []);
}

#[test]
fn names_that_are_taken_are_not_touched() {
    let mut other = map(None);
    other.ours = false;
    let decision = Case::default().decide(&job(""), Some(&other), None);
    assert_eq!((decision.status.handover.is_none(), decision.steps.len()), (true, 0));
    assert!(decision.status.message.unwrap().contains("hello-bridge-cm"));
    let stranger = SeenPod { owner: None, ..pod(PodPhase::Running) };
    assert_eq!(Case::default().decide(&job(""), None, Some(&stranger)).steps, []);
}

#[test]
fn nothing_is_done_while_nothing_changes() {
    let job = running(job(""));
    let decision = Case::default().decide(&job, Some(&map(Some(&running_record(5)))), Some(&pod(PodPhase::Running)));
    assert_eq!((decision.steps.len(), decision.again), (0, None));
    assert_eq!(Some(decision.status), job.status);
}

#[test]
fn a_config_map_that_is_gone_is_made_again_with_the_known_id() {
    let decision = Case::default().decide(&running(job("")), None, None);
    let record = told_state(&decision.steps);
    assert_eq!(record.id().map(RemoteId::as_str), Some("42"));
    assert!(record.seq > 5 && matches!(record.state, JobState::Active { .. }));
}

#[test]
fn without_a_known_id_whoever_takes_the_job_looks_first() {
    let decision = Case::default().decide(&handed_over(job("")), None, None);
    let record = told_state(&decision.steps);
    assert!(matches!(record.state, JobState::Submitting { .. }) && record.doubt);
}

#[test]
fn an_id_of_an_earlier_attempt_is_not_taken_for_this_one() {
    let mut job = running(job(""));
    let status = job.status.as_mut().unwrap();
    status.attempts = Some(2);
    for condition in &mut status.conditions {
        if condition.type_ == terms::SUBMITTED {
            condition.status = "False".to_owned();
        }
    }
    let record = told_state(&Case::default().decide(&job, None, None).steps);
    assert!(matches!(record.state, JobState::Submitting { .. }));
    assert_eq!(record.attempt, 2);
}

#[test]
fn a_config_map_deleted_by_hand_keeps_what_its_pod_saved() {
    let mut going = map(Some(&running_record(9)));
    going.deleting = true;
    let decision = Case::default().decide(&running(job("")), Some(&going), Some(&pod(PodPhase::Running)));
    assert!(matches!(&decision.steps[0], Step::ReleaseMap { uid, .. } if uid == "map-uid"));
    assert_eq!(told_state(&decision.steps).seq, 9);
}

#[test]
fn wishes_reach_the_config_map_once() {
    let job = running(job(r#""kill":true,"updateinterval":3"#));
    let mut map = map(Some(&running_record(5)));
    let decision = Case::default().decide(&job, Some(&map), Some(&pod(PodPhase::Running)));
    let [Step::SetKeys { data, resource_version: None, .. }] = &decision.steps[..] else { panic!("{decision:?}") };
    assert_eq!((data["kill"].as_str(), data["updateInterval"].as_str(), data.len()), ("true", "3", 3));
    map.data.extend(data.clone());
    assert_eq!(Case::default().decide(&job, Some(&map), Some(&pod(PodPhase::Running))).steps, []);
}

#[test]
fn kill_before_the_first_record_is_decided_by_whoever_saves_first() {
    let job = handed_over(job(r#""kill":true"#));
    let decision = Case::default().decide(&job, Some(&map(None)), Some(&pod(PodPhase::Pending(None))));
    let [Step::SetKeys { data, resource_version: Some(version), .. }] = &decision.steps[..] else {
        panic!("{decision:?}")
    };
    assert_eq!(version, "7");
    let record = JobRecord::decode(&data[keys::STATE]).unwrap();
    assert!(matches!(record.ending(), Some(Ending::NeverSubmitted { .. })));
}

#[test]
fn a_pod_that_crashed_is_made_again_with_growing_pauses() {
    let job = running(job(""));
    let map = map(Some(&running_record(5)));
    let first = Case::default().decide(&job, Some(&map), Some(&pod(crashed(0))));
    assert!(matches!(&first.steps[..], [Step::DeletePod { force: false, .. }, Step::MakePod { restarts: 1, .. }]));
    assert_eq!(first.status.reason.as_deref(), Some("WorkerFailed"));
    assert_eq!(first.status.jobstatus, Some(JobStatus::Running));
    let third = SeenPod { restarts: 2, ..pod(crashed(5)) };
    let waits = Case::default().decide(&job, Some(&map), Some(&third));
    assert_eq!((waits.steps.len(), waits.again), (0, Some(Duration::from_secs(15))));
    assert_eq!([0, 1, 2, 5, 6, 60].map(pods::pause), [0, 10, 20, 160, 300, 300]);
}

#[test]
fn a_pod_that_is_gone_is_made_again_at_once() {
    let decision = Case::default().decide(&running(job("")), Some(&map(Some(&running_record(5)))), None);
    assert_eq!(decision.steps, [Step::MakePod { uid: Some("map-uid".to_owned()), restarts: 0 }]);
}

#[test]
fn a_pod_on_a_dead_node_is_removed_after_its_time() {
    let job = running(job(""));
    let map = map(Some(&running_record(5)));
    let going = |seconds: i64| SeenPod {
        deletion: Some(now().checked_sub(SignedDuration::from_secs(seconds)).unwrap()),
        ..pod(PodPhase::Running)
    };
    let early = Case::default().decide(&job, Some(&map), Some(&going(10)));
    assert_eq!((early.steps.len(), early.again), (0, Some(Duration::from_secs(20))));
    let late = Case::default().decide(&job, Some(&map), Some(&going(30)));
    assert_eq!(late.steps, [Step::DeletePod { uid: "pod-uid".to_owned(), force: true }]);
}

#[test]
fn a_newer_programs_state_is_not_touched() {
    let mut newer = map(None);
    newer.data.insert(keys::STATE.to_owned(), r#"{"version":999}"#.to_owned());
    for job in [running(job(r#""kill":true"#)), deleted(running(job("")))] {
        let decision = Case::default().decide(&job, Some(&newer), None);
        assert_eq!(decision.steps, []);
        assert_eq!(reason(&decision, "Ready"), Some(("False".into(), "StateTooNew".into())));
    }
}

#[test]
fn deleting_cancels_first_and_lets_go_after_the_end() {
    let job = deleted(running(job("")));
    let live = map(Some(&running_record(5)));
    let decision = Case::default().decide(&job, Some(&live), Some(&pod(PodPhase::Running)));
    let [Step::SetKeys { data, .. }] = &decision.steps[..] else { panic!("{decision:?}") };
    assert_eq!((data["kill"].as_str(), data["bridge.delete"].as_str()), ("true", "true"));

    let mut record = running_record(6);
    record.state = JobState::Finished { ending: Ending::Lost { id: RemoteId::new("42") } };
    let over = Case::default().decide(&job, Some(&map(Some(&record))), Some(&pod(PodPhase::Running)));
    assert_eq!(over.steps, [Step::DeleteMap { uid: "map-uid".to_owned() }, Step::LetGo]);
    assert_eq!(over.status.jobstatus, Some(JobStatus::Unknown));
}

#[test]
fn deleting_without_a_pod_makes_one() {
    let job = deleted(running(job("")));
    let decision = Case::default().decide(&job, Some(&map(Some(&running_record(5)))), None);
    assert!(matches!(&decision.steps[..], [Step::SetKeys { .. }, Step::MakePod { .. }]));
    let decision = Case::default().decide(&job, None, None);
    assert_eq!(told_state(&decision.steps).id().map(RemoteId::as_str), Some("42"));
    assert!(
        matches!(&decision.steps[..], [Step::MakeMap { told, .. }, Step::MakePod { .. }] if told["kill"] == "true")
    );
}

#[test]
fn a_cancel_that_is_blocked_says_what_to_do_and_abandon_lets_go() {
    let mut job = deleted(running(job("")));
    let live = map(Some(&running_record(5)));
    let ending = Case { namespace_ending: true, ..Case::default() };
    for case in [Case::without_secret(), ending] {
        let decision = case.decide(&job, Some(&live), None);
        assert_eq!(reason(&decision, "Ready"), Some(("False".into(), "CancelBlocked".into())));
        let message = decision.status.message.unwrap();
        assert!(
            message.contains("42") && message.contains("http://x:6820") && message.contains("abandon=job-uid"),
            "{message}"
        );
        assert!(!decision.steps.iter().any(|step| matches!(step, Step::MakePod { .. } | Step::LetGo)));
    }
    job.metadata.annotations = Some([(api::ANNOTATION_ABANDON.to_owned(), "another".to_owned())].into());
    let other = Case::without_secret().decide(&job, Some(&live), None);
    assert!(!other.steps.contains(&Step::LetGo));
    job.metadata.annotations = Some([(api::ANNOTATION_ABANDON.to_owned(), UID.to_owned())].into());
    let decision = Case::without_secret().decide(&job, Some(&live), None);
    assert_eq!(decision.steps.last(), Some(&Step::LetGo));
}

#[test]
fn orphan_and_jobs_that_never_began_are_let_go_at_once() {
    let orphan = deleted(running(job(r#""deletionPolicy":"Orphan""#)));
    let decision = Case::default().decide(&orphan, Some(&map(Some(&running_record(5)))), Some(&pod(PodPhase::Running)));
    assert_eq!(decision.steps, [Step::DeleteMap { uid: "map-uid".to_owned() }, Step::LetGo]);
    assert_eq!(Case::without_secret().decide(&deleted(job("")), None, None).steps, [Step::LetGo]);
}

#[test]
fn a_namespace_that_ends_cancels_while_the_pod_still_can() {
    let case = Case { namespace_ending: true, ..Case::default() };
    let going = SeenPod { deletion: Some(now()), ..pod(PodPhase::Running) };
    let decision = case.decide(&running(job("")), Some(&map(Some(&running_record(5)))), Some(&going));
    assert!(matches!(&decision.steps[..], [Step::SetKeys { data, .. }] if data["kill"] == "true"));
    let orphan = running(job(r#""deletionPolicy":"Orphan""#));
    assert_eq!(case.decide(&orphan, Some(&map(Some(&running_record(5)))), Some(&going)).steps, []);
}

#[test]
fn time_to_live_counts_from_the_end_also_if_nothing_was_submitted() {
    let mut job = job(r#""kill":true,"ttlSecondsAfterFinished":60"#);
    job.status = Some(Case::default().decide(&job, None, None).status);
    for again in [
        Case::default().decide(&job, None, None).again,
        Case::default()
            .decide(
                &{
                    let mut new = job.clone();
                    new.status = None;
                    new
                },
                None,
                None,
            )
            .again,
    ] {
        assert_eq!(again, Some(Duration::from_mins(1)));
    }
    let status = job.status.as_mut().unwrap();
    for condition in &mut status.conditions {
        condition.last_transition_time = Time(now().checked_sub(SignedDuration::from_secs(61)).unwrap());
    }
    assert_eq!(Case::default().decide(&job, None, None).steps, [Step::DeleteJob]);
}

fn foreign_map(pairs: &[(&str, &str)], pod_made: bool) -> SeenMap {
    let pod_made = pod_made.then_some(Timestamp::UNIX_EPOCH);
    let mut map = SeenMap { foreign: true, pod_made, ..map(None) };
    map.data.extend(pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())));
    map
}

#[test]
fn a_foreign_pod_is_noted_before_it_is_made() {
    // First its ConfigMap, which the status knows before anything else is done.
    let decision = Case::foreign().decide(&job(r#""image":"own:1""#), None, None);
    assert!(matches!(&decision.steps[..], [Step::MakeMap { .. }]));
    let mut begun = foreign_job("");
    begun.status.as_mut().unwrap().handover.as_mut().unwrap().config_map_uid = None;
    let decision = Case::foreign().decide(&begun, Some(&foreign_map(&[], false)), None);
    assert_eq!(decision.status.handover.unwrap().config_map_uid.as_deref(), Some("map-uid"));
    assert!(matches!(&decision.steps[..], [Step::MarkPodMade { .. }, Step::MakePod { .. }]));
    // Lost before the status knew it: there was no pod yet.
    let decision = Case::foreign().decide(&begun, None, None);
    assert!(matches!(&decision.steps[..], [Step::MakeMap { pod_made: None, .. }]));
}

#[test]
fn a_foreign_pod_is_made_again_only_with_an_id() {
    let job = handed_over(job(r#""image":"own:1""#));
    let with_id = foreign_map(&[("id", "9"), ("jobStatus", "RUNNING")], true);
    let again = Case::foreign().decide(&job, Some(&with_id), None);
    assert!(matches!(&again.steps[..], [Step::MakePod { .. }]));
    let without = foreign_map(&[("jobStatus", "PENDING")], true);
    let over = Case::foreign().decide(&job, Some(&without), None);
    assert_eq!((over.status.jobstatus, over.steps.len()), (Some(JobStatus::Unknown), 0));
}

#[test]
fn a_foreign_job_ends_with_its_pod() {
    let job = handed_over(job(r#""image":"own:1""#));
    let told = foreign_map(&[("id", "9"), ("status.jobStatus", "COMPLETED"), ("status.message", "fine")], true);
    let early = Case::foreign().decide(&job, Some(&told), Some(&pod(PodPhase::Running)));
    assert_eq!(early.status.jobstatus, Some(JobStatus::Running));
    let ended = PodPhase::Ended { end: PodEnd::Exited(0), why: "exit code 0".to_owned(), at: None, ran: None };
    let late = Case::foreign().decide(&job, Some(&told), Some(&pod(ended)));
    assert_eq!(late.status.jobstatus, Some(JobStatus::Done));
}

fn exits(code: i32) -> PodPhase {
    PodPhase::Ended { end: PodEnd::Exited(code), why: format!("exit code {code}"), at: None, ran: None }
}

/// A job that a foreign pod has.
fn foreign_job(extra: &str) -> BridgeJob {
    let mut job = handed_over(job(&format!(r#""image":"own:1"{extra}"#)));
    job.status.as_mut().unwrap().handover.as_mut().unwrap().foreign = true;
    job
}

#[test]
fn a_foreign_job_keeps_its_deadline() {
    let job = foreign_job(r#","activeDeadlineSeconds":60"#);
    let after = |seconds: i64| now().checked_add(SignedDuration::from_secs(seconds)).unwrap();
    // Its time is hours off, as that of another zone; by our clock it was submitted after the hand-over.
    let early = after(-5 * 3600).to_string();
    let told = |word: &str, kill: &str| {
        foreign_map(&[("id", "9"), ("jobStatus", word), ("submitTime", &early), ("kill", kill)], true)
    };
    let runs = pod(PodPhase::Running);
    let before = Case::foreign().decide_at(after(59), &job, Some(&told("RUNNING", "")), Some(&runs));
    assert_eq!((before.steps.len(), before.again), (0, Some(Duration::from_secs(1))));

    let due = Case::foreign().decide_at(after(60), &job, Some(&told("RUNNING", "")), Some(&runs));
    let [Step::SetKeys { data, .. }] = &due.steps[..] else { panic!("{due:?}") };
    assert_eq!(*data, Data::from([("kill".to_owned(), "true".to_owned())]));

    let over = |job: &BridgeJob, word: &str, kill: &str| {
        Case::foreign().decide_at(after(60), job, Some(&told(word, kill)), Some(&pod(exits(0))))
    };
    let late = over(&job, "CANCELLED", "true");
    assert_eq!(late.status.jobstatus, Some(JobStatus::Failed));
    assert_eq!(reason(&late, terms::FAILED), Some(("True".to_owned(), "DeadlineExceeded".to_owned())));
    // What ended by itself ended so, and whoever asked for the end himself gets what he asked for.
    assert_eq!(over(&job, "COMPLETED", "").status.jobstatus, Some(JobStatus::Done));
    assert_eq!(reason(&over(&job, "EXIT", ""), terms::FAILED), Some(("True".to_owned(), "JobFailed".to_owned())));
    let killed = foreign_job(r#","activeDeadlineSeconds":60,"kill":true"#);
    assert_eq!(over(&killed, "CANCELLED", "true").status.jobstatus, Some(JobStatus::Killed));
    // Without a pod there is nothing to be told to end.
    let never = Case::foreign().decide_at(after(60), &job, Some(&foreign_map(&[], false)), None);
    assert_eq!(reason(&never, terms::FAILED), Some(("True".to_owned(), "DeadlineExceeded".to_owned())));
}

#[test]
fn what_a_foreign_pod_cannot_do_is_told() {
    let attempts = Case::foreign().decide(&job(r#""image":"own:1","backoffLimit":1"#), None, None);
    assert_eq!((attempts.status.jobstatus, attempts.steps.len()), (Some(JobStatus::Failed), 0));
    assert!(attempts.status.message.unwrap().contains("spec.backoffLimit"));
    let held = foreign_map(&[("id", "9"), ("jobStatus", "RUNNING")], true);
    let held = Case::foreign().decide(&foreign_job(r#","suspend":true"#), Some(&held), Some(&pod(PodPhase::Running)));
    assert_eq!(reason(&held, terms::SUSPENDED), Some(("False".to_owned(), "Unsupported".to_owned())));
    let mut silent = foreign_job("");
    let status = silent.status.as_mut().unwrap();
    status.message = Some("the controller pod cannot start yet: ErrImagePull".to_owned());
    let runs = Case::foreign().decide(&silent, Some(&foreign_map(&[], true)), Some(&pod(PodPhase::Running)));
    assert_eq!(runs.status.message.unwrap(), "the controller pod runs and has told nothing yet");
}

#[test]
fn a_foreign_config_map_that_is_made_again_starts_no_second_job() {
    // Let go by hand: what was known of its pod goes along.
    let deleting = SeenMap { deleting: true, ..foreign_map(&[("jobStatus", "PENDING")], true) };
    let replaced = Case::foreign().decide(&foreign_job(""), Some(&deleting), Some(&pod(PodPhase::Running)));
    let [Step::ReleaseMap { .. }, Step::MakeMap { pod_made: Some(_), .. }] = &replaced.steps[..] else {
        panic!("{replaced:?}")
    };
    // Taken away by force: without an id nobody knows whether a job was submitted.
    let gone = Case::foreign().decide(&foreign_job(""), None, None);
    let [Step::MakeMap { pod_made: Some(_), .. }] = &gone.steps[..] else { panic!("{gone:?}") };
    let mut known = foreign_job("");
    known.status.as_mut().unwrap().jobid = Some("9".to_owned());
    let known = Case::foreign().decide(&known, None, None);
    let [Step::MakeMap { told, pod_made: Some(_) }] = &known.steps[..] else { panic!("{known:?}") };
    assert_eq!(told["id"], "9");
    // Whoever is to end such a job needs a pod for it, also if none could be made the last time.
    let unmade = Case::foreign().decide(
        &foreign_job(r#","kill":true"#),
        Some(&foreign_map(&[("id", "9"), ("kill", "true")], false)),
        None,
    );
    assert!(matches!(&unmade.steps[..], [Step::MarkPodMade { .. }, Step::MakePod { .. }]), "{unmade:?}");
    // Nobody acts on a part of an id.
    let mut cut = foreign_job("");
    cut.status.as_mut().unwrap().jobid = Some("1,2,3,…".to_owned());
    let cut = Case::foreign().decide(&cut, None, None);
    assert!(matches!(&cut.steps[..], [Step::MakeMap { told, .. }] if !told.contains_key("id")));
}

#[test]
fn whose_pod_has_a_job_does_not_change_with_the_operators_settings() {
    let images = |worker: &str, replace: &[&str]| {
        let patterns = replace.iter().map(|pattern| bridge_core::plan::ImagePattern::new(*pattern));
        bridge_core::plan::ImageRules::cluster(worker, patterns)
    };
    let spec = r#""image":"bridge:1","resourceManager":"slurm""#;
    // The operator's own image at the time; it was upgraded since.
    let ours = plan(&job(spec), &images("bridge:2", &[]), Some(false)).unwrap();
    assert_eq!((ours.runs, ours.manager), (Runs::Worker { replaced: None }, Some(ResourceManager::Slurm)));
    let foreign = plan(&job(spec), &images("bridge:2", &["bridge:*"]), Some(true)).unwrap();
    assert_eq!(foreign.runs, Runs::Foreign { image: "bridge:1".to_owned() });
    assert!(matches!(plan(&job(spec), &images("bridge:2", &[]), None).unwrap().runs, Runs::Foreign { .. }));

    // Also where only the status is left to tell.
    let gone = Case::default().decide(&foreign_job(""), None, None);
    assert!(matches!(&gone.steps[..], [Step::MakeMap { told, .. }] if !told.contains_key(keys::STATE)));
}

#[test]
fn a_config_map_in_a_namespace_that_ends_is_kept_until_the_job_is_cancelled() {
    let case = Case { namespace_ending: true, ..Case::default() };
    let map = SeenMap { deleting: true, ..map(Some(&running_record(5))) };
    let decision = case.decide(&running(job("")), Some(&map), Some(&pod(PodPhase::Running)));
    let [Step::SetKeys { data, .. }] = &decision.steps[..] else { panic!("{decision:?}") };
    assert_eq!((data[keys::KILL].as_str(), data[keys::DELETE].as_str()), ("true", "true"));
}

#[test]
fn a_pod_of_ours_that_lost_its_owner_is_taken_away() {
    let orphan = SeenPod { owner: None, ..pod(exits(0)) };
    let map = map(Some(&running_record(5)));
    let decision = Case::default().decide(&running(job("")), Some(&map), Some(&orphan));
    assert_eq!(decision.steps, [Step::DeletePod { uid: "pod-uid".to_owned(), force: false }]);
    let stranger = SeenPod { ours: false, ..orphan };
    assert_eq!(Case::default().decide(&running(job("")), Some(&map), Some(&stranger)).steps, []);
}

#[test]
fn a_foreign_config_map_is_only_told_to_end() {
    let job = handed_over(job(r#""image":"own:1","kill":true,"updateinterval":3"#));
    let told = foreign_map(&[("id", "9")], true);
    let decision = Case::foreign().decide(&job, Some(&told), Some(&pod(PodPhase::Running)));
    let [Step::SetKeys { data, .. }] = &decision.steps[..] else { panic!("{decision:?}") };
    assert_eq!(*data, Data::from([("kill".to_owned(), "true".to_owned())]));
}

#[test]
fn a_foreign_pod_that_may_be_under_way_is_not_given_up() {
    let job = handed_over(job(r#""image":"own:1""#));
    let mut map = foreign_map(&[], true);
    map.pod_made = Some(now());
    let decision = Case::foreign().decide(&job, Some(&map), None);
    assert_eq!((decision.steps.len(), decision.again), (0, Some(Duration::from_secs(10))));
    assert_eq!(decision.status.jobstatus, Some(JobStatus::Pending));
}

#[test]
fn a_secret_that_is_missing_when_a_pod_has_to_be_made_again_is_told_once_and_looked_for_ever_more_rarely() {
    let mut job = running(job(""));
    let map = map(Some(&running_record(5)));
    let first = Case::without_secret().decide(&job, Some(&map), None);
    assert_eq!(reason(&first, terms::READY), Some(("False".to_owned(), "SecretMissing".to_owned())));
    job.status = Some(first.status.clone());
    let later = now().checked_add(SignedDuration::from_secs(120)).unwrap();
    let second = Case::without_secret().decide_at(later, &job, Some(&map), None);
    assert_eq!(second.status, first.status);
    assert_eq!(second.again, Some(Duration::from_secs(30)));
}

#[test]
fn a_pod_that_the_cluster_refused_is_tried_again_without_a_word() {
    let mut job = running(job(""));
    let map = map(Some(&running_record(5)));
    let mut report = Report::on(job.status.as_ref(), Context { generation: Some(1), now: now() });
    report.worker(terms::WORKER_STARTING, "no quota");
    report.condition(terms::READY, report::Holds::False, terms::WORKER_STARTING, "no quota");
    job.status = Some(report.finish());
    let again = Case::default().decide(&job, Some(&map), None);
    assert!(matches!(&again.steps[..], [Step::MakePod { .. }]));
    assert_eq!(Some(again.status), job.status);
    let made = Case::default().decide(&job, Some(&map), Some(&pod(PodPhase::Running)));
    assert_eq!(reason(&made, terms::READY).unwrap().0, "True");
}

#[test]
fn a_record_that_cannot_be_read_is_left_alone_and_blocks_a_deletion() {
    let mut damaged = map(Some(&running_record(5)));
    damaged.data.insert(keys::STATE.to_owned(), "{".to_owned());
    let decision = Case::default().decide(&running(job("")), Some(&damaged), None);
    assert_eq!((decision.steps.len(), reason(&decision, terms::READY).unwrap().1.as_str()), (0, "StateUnreadable"));
    let decision = Case::default().decide(&deleted(running(job(""))), Some(&damaged), None);
    assert_eq!(reason(&decision, terms::READY).unwrap().1, "CancelBlocked");
    let message = decision.status.message.unwrap();
    assert!(
        message.contains("42 on http://x:6820") && message.contains("annotate -n team bridgejob hello"),
        "{message}"
    );
}

#[test]
fn a_job_that_may_still_be_held_is_released_by_whoever_takes_it() {
    let mut job = running(job(""));
    let status = job.status.as_mut().unwrap();
    status.jobstatus = Some(JobStatus::Submitted);
    let record = told_state(&Case::default().decide(&job, None, None).steps);
    assert_eq!(record.state, JobState::Prepared { id: RemoteId::new("42") });
    assert!(record.remade_for.is_some());
    // That nothing was told of it is no proof that nothing was done: the operator may have been away.
    let never_told = told_state(&Case::default().decide(&handed_over(self::job("")), None, None).steps);
    assert_eq!(never_told.remade_for, Some(now()));
}
