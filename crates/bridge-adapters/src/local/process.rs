//! The processes of a job, seen and signalled without a number ever being taken for another process.

use std::io;
use std::path::Path;

use rustix::process::{Pid, Signal};

use super::wire::MARK_VARIABLE;

/// A process that belongs to a job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Member {
    pid: i32,
    /// In clock ticks since the boot: together with the number this names a process once and for all.
    start: u64,
}

/// What `/proc/<pid>/stat` says.
#[derive(Debug, PartialEq, Eq)]
struct Stat {
    dead: bool,
    session: i32,
    start: u64,
}

/// The living processes of the job: all that have its mark in their environment, and all of its session.
///
/// `session` is only given by the living leader of that session, because its number may belong to others later on.
pub(super) fn members(mark: &str, session: Option<i32>) -> io::Result<Vec<Member>> {
    let own = i32::try_from(std::process::id()).unwrap_or(0);
    let mut members = Vec::new();
    for entry in std::fs::read_dir("/proc")? {
        let Some(pid) = entry?.file_name().to_str().and_then(|name| name.parse::<i32>().ok()) else { continue };
        if pid == own {
            continue;
        }
        // A process may end at any moment, and then its files cannot be read.
        let Some(stat) = read_stat(pid) else { continue };
        if !stat.dead && (session == Some(stat.session) || has_mark(pid, mark)) {
            members.push(Member { pid, start: stat.start });
        }
    }
    Ok(members)
}

/// The boot this machine is in.
pub(super) fn boot_id() -> io::Result<String> {
    Ok(std::fs::read_to_string("/proc/sys/kernel/random/boot_id")?.trim().to_owned())
}

/// This machine's name.
pub(super) fn host_name() -> Option<String> {
    let name = std::fs::read_to_string("/proc/sys/kernel/hostname").ok()?;
    Some(name.trim().to_owned()).filter(|name| !name.is_empty())
}

/// Sends a signal, unless the process has ended; its number may belong to another one by then, which is not hit.
pub(super) fn signal(member: Member, signal: Signal) -> io::Result<()> {
    let Some(pid) = Pid::from_raw(member.pid) else { return Ok(()) };
    let handle = match rustix::process::pidfd_open(pid, rustix::process::PidfdFlags::empty()) {
        Ok(handle) => handle,
        Err(rustix::io::Errno::SRCH) => return Ok(()),
        Err(error) => return Err(error.into()),
    };
    // The handle stands for one process for good; now that it is held, the start time tells whether it is the right one.
    if read_stat(member.pid).is_none_or(|stat| stat.start != member.start) {
        return Ok(());
    }
    match rustix::process::pidfd_send_signal(handle, signal) {
        Ok(()) | Err(rustix::io::Errno::SRCH) => Ok(()),
        Err(error) => Err(error.into()),
    }
}

/// Asks all to end. A stopped process is woken up, so that it hears of it.
pub(super) fn terminate(members: &[Member]) -> io::Result<()> {
    let asked = signal_all(members, Signal::TERM);
    let woken = signal_all(members, Signal::CONT);
    asked.and(woken)
}

/// Ends all.
pub(super) fn kill(members: &[Member]) -> io::Result<()> {
    signal_all(members, Signal::KILL)
}

/// One that may not be signalled, because it belongs to another user, does not spare the others.
fn signal_all(members: &[Member], wanted: Signal) -> io::Result<()> {
    members.iter().map(|member| signal(*member, wanted)).fold(Ok(()), io::Result::and)
}

fn read_stat(pid: i32) -> Option<Stat> {
    parse_stat(&std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?)
}

/// The program's name in parentheses may itself hold spaces and parentheses: only what follows the last one counts.
fn parse_stat(text: &str) -> Option<Stat> {
    let fields: Vec<&str> = text.rsplit_once(')')?.1.split_whitespace().collect();
    Some(Stat {
        dead: matches!(*fields.first()?, "Z" | "X" | "x"),
        session: fields.get(3)?.parse().ok()?,
        start: fields.get(19)?.parse().ok()?,
    })
}

fn has_mark(pid: i32, mark: &str) -> bool {
    let Ok(environment) = std::fs::read(Path::new("/proc").join(pid.to_string()).join("environ")) else {
        return false;
    };
    let wanted = format!("{MARK_VARIABLE}={mark}");
    environment.split(|byte| *byte == 0).any(|entry| entry == wanted.as_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_does_not_shift_the_fields() {
        let text = "42 (a) b (c)) S 1 42 40 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 98765 0 0";
        assert_eq!(parse_stat(text), Some(Stat { dead: false, session: 40, start: 98765 }));
        assert_eq!(parse_stat("nothing of use"), None);
    }

    #[test]
    fn a_recycled_number_is_not_signalled() {
        let mut child = std::process::Command::new("sleep").arg("60").spawn().unwrap();
        let pid = i32::try_from(child.id()).unwrap();
        let real = Member { pid, start: read_stat(pid).unwrap().start };
        signal(Member { start: real.start + 1, ..real }, Signal::KILL).unwrap();
        assert!(child.try_wait().unwrap().is_none());
        signal(real, Signal::KILL).unwrap();
        child.wait().unwrap();
        signal(real, Signal::KILL).unwrap();
    }

    #[test]
    fn members_are_known_by_their_mark() {
        let mark = super::super::folder::unique();
        let mut child = std::process::Command::new("sleep").arg("60").env(MARK_VARIABLE, &mark).spawn().unwrap();
        let deadline = std::time::Instant::now() + std::time::Duration::from_secs(10);
        // Until the child has executed `sleep`, it shows our environment.
        let found = loop {
            let found = members(&mark, None).unwrap();
            if !found.is_empty() || std::time::Instant::now() > deadline {
                break found;
            }
            std::thread::yield_now();
        };
        assert_eq!(found.len(), 1);
        kill(&found).unwrap();
        child.wait().unwrap();
        assert_eq!(members(&mark, None).unwrap(), []);
    }
}
